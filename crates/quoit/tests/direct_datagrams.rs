//! Datagrams that other threads send while the loop sleeps: they arrive, and end with their socket.
//!
//! A parked loop is a sleeping one, so that most of this needs no second thread and no time.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quoit::{
    Address, Config, DatagramError, DatagramOptions, DatagramSend, DatagramSocket, DatagramSocketId,
    DirectDatagramSender, Ecn, EngineKind, Errno, Event, Events, Loop, LoopIndex, Refusal, Token,
};
use support::{config, engines, guard};

/// A loop with a datagram socket.
struct Served {
    event_loop: Loop,
    events: Events,
    socket: DatagramSocketId,
    sender: DirectDatagramSender,
}

impl Served {
    fn on(engine: EngineKind, socket: DatagramSocket) -> Self {
        let config = Config {
            pollable: true,
            ..config(engine)
        };
        let mut event_loop = Loop::new(LoopIndex::default(), config).unwrap();
        let socket = event_loop.open_datagram(socket, Token::NONE).unwrap();
        let sender = event_loop.direct_datagram_sender(socket).unwrap();
        let mut served = Self {
            event_loop,
            events: Events::with_capacity(64),
            socket,
            sender,
        };
        served.park();
        served
    }

    fn bound(engine: EngineKind, address: &str) -> Self {
        let options = DatagramOptions::default();
        Self::on(
            engine,
            DatagramSocket::bind(&address.parse().unwrap(), &options).unwrap(),
        )
    }

    /// With a peer, to which it is connected.
    fn connected(engine: EngineKind, own: &Address, peer: &Address, receive_errors: bool) -> Self {
        let options = DatagramOptions {
            peer: Some(peer.clone()),
            receive_errors,
            ..DatagramOptions::default()
        };
        Self::on(engine, DatagramSocket::bind(own, &options).unwrap())
    }

    /// Makes turns until the loop sleeps; returns what they brought.
    fn park(&mut self) -> Vec<Event> {
        let mut brought = Vec::new();
        loop {
            self.event_loop
                .turn([], &mut self.events, Some(Duration::ZERO))
                .unwrap();
            brought.extend(self.events.drain());
            if self.event_loop.park().unwrap() != Some(Duration::ZERO) {
                return brought;
            }
        }
    }

    fn send(&mut self, datagram: DatagramSend<'_>) {
        self.event_loop.send_datagram(self.socket, datagram).unwrap();
    }
}

fn send(sender: &DirectDatagramSender, to: Option<&Address>, bytes: &[u8]) -> bool {
    sender.try_send(&DatagramSend {
        to: to.cloned(),
        ..DatagramSend::to_connected(bytes)
    })
}

fn udp(address: &str) -> (UdpSocket, Address) {
    let socket = UdpSocket::bind(address).unwrap();
    let address = socket.local_addr().unwrap().to_string().parse().unwrap();
    (socket, address)
}

#[test]
fn what_is_sent_while_the_loop_sleeps_arrives_and_is_counted() {
    guard(60);
    for engine in engines() {
        for (own, peers) in [
            ("127.0.0.1:0", &["127.0.0.1:0"][..]),
            ("[::]:0", &["[::1]:0", "127.0.0.1:0"]),
        ] {
            for peer in peers {
                let mut served = Served::bound(engine, own);
                let (peer, address) = udp(peer);
                let before = (
                    served.event_loop.datagram_counters(served.socket).unwrap(),
                    served.event_loop.counters(),
                );
                for datagram in [&b"one"[..], b"", b"three"] {
                    assert!(send(&served.sender, Some(&address), datagram), "{engine}: {own}");
                    let mut received = [0; 16];
                    let (length, _) = peer.recv_from(&mut received).unwrap();
                    assert_eq!(&received[..length], datagram);
                }
                let after = (
                    served.event_loop.datagram_counters(served.socket).unwrap(),
                    served.event_loop.counters(),
                );
                let grown = [
                    after.0.sent - before.0.sent,
                    after.0.sent_bytes - before.0.sent_bytes,
                    after.0.sends - before.0.sends,
                    after.0.send_batches - before.0.send_batches,
                    after.0.direct_sends - before.0.direct_sends,
                    after.1.wake_writes - before.1.wake_writes,
                    // Beside the question for drops that either reading of the counters asks.
                    after.1.system_calls - before.1.system_calls - 1,
                ];
                assert_eq!(grown, [3, 8, 3, 3, 3, 0, 3], "{engine}: {own}");
            }
        }
    }
}

#[test]
fn it_leaves_as_it_is_told_to() {
    guard(60);
    for engine in engines() {
        let served = Served::bound(engine, "0.0.0.0:0");
        let (peer, address) = udp("127.0.0.1:0");
        let from_another = DatagramSend {
            source: Some("127.0.0.2".parse().unwrap()),
            ecn: Some(Ecn::Capable0),
            ..DatagramSend::new(address.clone(), &b"x"[..])
        };
        assert!(served.sender.try_send(&from_another), "{engine}");
        let (_, from) = peer.recv_from(&mut [0; 16]).unwrap();
        assert_eq!(from.ip().to_string(), "127.0.0.2", "{engine}");
        let several = DatagramSend {
            segment_size: Some(1),
            ..DatagramSend::new(address, &b"xx"[..])
        };
        assert!(!served.sender.try_send(&several), "{engine}: the loop cuts up");
    }
}

#[test]
fn while_the_loop_is_awake_or_has_something_queued_it_is_the_loops() {
    guard(60);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("peer");
    for engine in engines() {
        let peer = UnixDatagram::bind(&path).unwrap();
        let address = format!("unix:{}", path.display()).parse().unwrap();
        let mut served = Served::connected(engine, &Address::UnixUnnamed, &address, false);
        served
            .event_loop
            .turn([], &mut served.events, Some(Duration::ZERO))
            .unwrap();
        assert!(!send(&served.sender, None, b"awake"), "{engine}");
        served.park();

        // Until the receiver is full, and one waits in the loop.
        let mut given = 0_u32;
        while served.event_loop.queued_datagrams(served.socket) == 0 {
            given += 1;
            served.send(DatagramSend::to_connected(&given.to_ne_bytes()[..]));
            served.park();
        }
        let mut received = [0; 16];
        let mut next = || {
            let length = peer.recv(&mut received).unwrap();
            u32::from_ne_bytes(received[..length].try_into().unwrap())
        };
        assert_eq!(next(), 1);
        let last = u32::MAX.to_ne_bytes();
        // There is room again, and the loop, which sleeps, has not seen it yet.
        assert!(!send(&served.sender, None, &last), "{engine}: it would overtake");
        while served.event_loop.queued_datagrams(served.socket) > 0 {
            served.event_loop.turn([], &mut served.events, None).unwrap();
            served.events.drain().for_each(drop);
        }
        served.park();
        (2..=given).for_each(|number| assert_eq!(next(), number, "{engine}"));
        assert!(send(&served.sender, None, &last), "{engine}");
        assert_eq!(next(), u32::MAX);
        drop(served);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn what_cannot_be_sent_is_the_loops_to_tell() {
    guard(60);
    for engine in engines() {
        let mut served = Served::bound(engine, "127.0.0.1:0");
        let (_peer, address) = udp("127.0.0.1:0");
        let large = vec![0; 65_508];
        let v6: Address = "[::1]:9".parse().unwrap();
        for (to, bytes) in [(Some(&address), &large[..]), (Some(&v6), b"x"), (None, b"x")] {
            assert!(!send(&served.sender, to, bytes), "{engine}");
        }
        served.send(DatagramSend::new(address, &large[..]));
        let told = served.park().into_iter().find_map(|event| match event {
            Event::DatagramError { error, .. } => Some(error),
            _ => None,
        });
        assert_eq!(told, Some(DatagramError::TooLarge { size: 65_508 }), "{engine}");
        assert!(matches!(
            served
                .event_loop
                .send_datagram(served.socket, DatagramSend::to_connected(&b"x"[..])),
            Err(Refusal::Error(errno)) if errno.code() == libc::EDESTADDRREQ
        ));
    }
}

/// The kernel tells that nobody receives there in place of the next send, whoever makes that, and once.
#[test]
fn what_the_network_answers_is_told_once() {
    guard(60);
    for engine in engines() {
        for receive_errors in [false, true] {
            // One that hears itself only: nobody is there, and nobody can take the port.
            let (deaf, nobody) = udp("127.0.0.1:0");
            deaf.connect(nobody.to_string()).unwrap();
            let stock = UdpSocket::bind("127.0.0.1:0").unwrap();
            stock.connect(nobody.to_string()).unwrap();
            stock.send(b"first").unwrap();
            let refused = stock.send(b"second").unwrap_err().raw_os_error();
            assert_eq!(refused, Some(libc::ECONNREFUSED), "stock");

            let own = "127.0.0.1:0".parse().unwrap();
            let mut served = Served::connected(engine, &own, &nobody, receive_errors);
            assert!(send(&served.sender, None, b"first"), "{engine}");
            // On io_uring the receive that the kernel has may have been told first.
            if !send(&served.sender, None, b"second") {
                served.send(DatagramSend::to_connected(&b"second"[..]));
            }
            let mut told = 0;
            // Of each of the two.
            while told < 2 {
                served.event_loop.turn([], &mut served.events, None).unwrap();
                for event in served.events.drain() {
                    told += match event {
                        Event::DatagramError {
                            error: DatagramError::Network(errno),
                            ..
                        } => u32::from(errno == Errno::ECONNREFUSED),
                        Event::DatagramError {
                            error: DatagramError::Unreachable(_),
                            ..
                        } => 1,
                        _ => 0,
                    };
                }
            }
            assert_eq!(told, 2, "{engine}, receive_errors {receive_errors}");
        }
    }
}

/// A thread that sends without an end, each socket's number and nothing else.
struct Sending {
    sent: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Sending {
    fn begin(sender: DirectDatagramSender, to: Address) -> Self {
        let (sent, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (sent, ended) = (Arc::clone(&sent), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    sent.fetch_add(u64::from(send(&sender, Some(&to), b"x")), Ordering::Relaxed);
                }
            }
        });
        let sending = Self { sent, ended, thread };
        while sending.sent.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        sending
    }

    fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// That the socket is open for as long as a send is under way is asserted where it is made.
#[test]
fn no_socket_is_closed_under_a_send() {
    guard(120);
    for engine in engines() {
        let (_peer, address) = udp("127.0.0.1:0");
        for round in 0..100 {
            let mut served = Served::bound(engine, "127.0.0.1:0");
            let sending = Sending::begin(served.sender.clone(), address.clone());
            if round % 4 == 0 {
                drop(served);
                sending.end();
                continue;
            }
            served.event_loop.close_datagram(served.socket).unwrap();
            assert!(matches!(
                served.event_loop.direct_datagram_sender(served.socket),
                Err(Refusal::Closing | Refusal::Stale)
            ));
            let is_closed = |event: &Event| matches!(event, Event::DatagramClosed { error: None, .. });
            loop {
                served.event_loop.turn([], &mut served.events, None).unwrap();
                if served.events.drain().any(|event| is_closed(&event)) {
                    break;
                }
            }
            served.park();
            assert!(!send(&served.sender, Some(&address), b"behind"), "{engine}");
            assert!(matches!(
                served.event_loop.direct_datagram_sender(served.socket),
                Err(Refusal::Stale)
            ));
            sending.end();
        }
    }
}
