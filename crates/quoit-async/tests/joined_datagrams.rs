//! Datagrams that the kernel joins, read one by one and all at once.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::cell::Cell;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use quoit_async::{
    Config, DatagramOptions, DatagramSend, EngineChoice, EngineKind, Gro, Payload, ServerConfig, UdpSocket,
};

/// Only what hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn on_each_engine(scenario: impl AsyncFn() + Clone + Send + Sync + 'static) {
    for engine in [EngineKind::Uring, EngineKind::Epoll] {
        let config = ServerConfig {
            loops: 1,
            config: Config {
                engine: EngineChoice::Require(engine),
                ..Config::default()
            },
            ..ServerConfig::default()
        };
        let scenario = scenario.clone();
        quoit_async::serve(config, move |_| {
            let scenario = scenario.clone();
            async move {
                tokio::time::timeout(PATIENCE, scenario()).await.unwrap();
                Ok(())
            }
        })
        .unwrap();
    }
}

#[test]
fn what_is_left_of_joined_ones_can_be_taken_together() {
    on_each_engine(async || {
        let joined = DatagramOptions {
            gro: Gro::Transparent,
            ..DatagramOptions::default()
        };
        let to = UdpSocket::bind_with("127.0.0.1:0", joined).await.unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        from.connect(to.local_addr().unwrap()).await.unwrap();
        let segments = |bytes| DatagramSend {
            segment_size: Some(2),
            ..DatagramSend::to_connected(bytes)
        };
        let mut buffer = [0; 16];
        for _ in 0..2 {
            from.try_send_datagram(segments(Payload::Copy(b"aabbccd")))
                .unwrap();
            let (length, sender) = to.recv_from(&mut buffer).await.unwrap();
            assert_eq!(
                (&buffer[..length], sender),
                (&b"aa"[..], from.local_addr().unwrap())
            );
            // However many the kernel has joined.
            let mut rest = Vec::new();
            while rest.len() < 3 {
                let datagrams = poll_fn(|cx| to.poll_recv_datagrams(cx)).await.unwrap();
                rest.extend(datagrams.iter().map(|datagram| datagram.to_vec()));
            }
            assert_eq!(rest, [&b"bb"[..], b"cc", b"d"]);
            assert_eq!(to.try_recv_datagrams().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        from.send_datagram(segments(Payload::Bytes("eef".into())))
            .await
            .unwrap();
        for expected in [&b"ee"[..], b"f"] {
            let length = to.recv(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], expected);
        }
    });
}

#[test]
fn who_sends_more_than_there_is_room_for_is_told_and_woken() {
    on_each_engine(async || {
        let small = DatagramOptions {
            high_water: 4096,
            low_water: 1024,
            ..DatagramOptions::default()
        };
        let from = UdpSocket::bind_with("127.0.0.1:0", small).await.unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let there = to.local_addr().unwrap();
        let bytes = [7; 1000];
        // Nothing leaves before the next turn, so that the queue fills.
        let sent = (0..100)
            .take_while(|_| from.try_send_to(&bytes, there).is_ok())
            .count();
        assert!((1..=5).contains(&sent), "{sent}");
        let full = from.try_send_datagram(DatagramSend::new(there.into(), Payload::Copy(&bytes)));
        assert_eq!(full.unwrap_err().kind(), ErrorKind::WouldBlock);
        poll_fn(|cx| from.poll_send_ready(cx)).await.unwrap();
        assert_eq!(
            poll_fn(|cx| from.poll_send_to(cx, &bytes, there)).await.unwrap(),
            1000
        );
        let mut buffer = [0; 2000];
        for _ in 0..=sent {
            assert_eq!(to.recv(&mut buffer).await.unwrap(), 1000);
        }
    });
}

#[test]
fn a_task_whose_socket_is_always_ready_lets_others_run() {
    on_each_engine(async || {
        let many = DatagramOptions {
            slots: 1024,
            max_datagram: 16,
            ..DatagramOptions::default()
        };
        let to = UdpSocket::bind_with("127.0.0.1:0", many).await.unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let there = to.local_addr().unwrap();
        // More than a budget, all of which is here before the first is read.
        const MANY: usize = 200;
        for number in 0..MANY {
            from.send_to(&[number as u8], there).await.unwrap();
        }
        // What another task did meanwhile.
        let turns = Rc::new(Cell::new(0));
        let counted = Rc::clone(&turns);
        let other = tokio::task::spawn_local(async move {
            loop {
                counted.set(counted.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        // Loopback delivers at once, and a socket's turn takes all that there is.
        while to.try_recv_from(&mut [0; 1]).is_err() {
            tokio::task::yield_now().await;
        }
        let before = turns.get();
        for _ in 1..MANY {
            to.recv_from(&mut [0; 1]).await.unwrap();
        }
        assert!(turns.get() > before, "nothing else ran");
        other.abort();
    });
}
