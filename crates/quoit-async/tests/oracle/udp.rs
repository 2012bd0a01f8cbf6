//! UDP.

use std::sync::Arc;

use crate::scenario;
use crate::support::{deaf, once, pattern, told};

scenario! {
    fn an_echo(says) {
        let (one, one_at) = udp().await;
        let (other, other_at) = udp().await;
        let mut buffer = [0; 64];
        says.told("send", one.send_to(b"ping", other_at).await);
        let (length, from) = other.recv_from(&mut buffer).await.unwrap();
        assert_eq!(from, one_at);
        says.told("send", other.send_to(&buffer[..length], from).await);
        let (length, from) = one.recv_from(&mut buffer).await.unwrap();
        assert_eq!(from, other_at);
        says.note(String::from_utf8_lossy(&buffer[..length]));
        says.told_kind("peer", one.peer_addr().map(drop));
        says.told("by name", one.send_to(b"x", ("localhost", other_at.port())).await);
        says.told("in use", UdpSocket::bind(one_at).await.map(drop).map_err(|error| error.kind().into()));
    }
}

scenario! {
    fn the_port_is_free_when_the_socket_is_dropped(says) {
        let (other, other_at) = udp().await;
        let (socket, at) = udp().await;
        drop(socket);
        for _ in 0..50 {
            let again = UdpSocket::bind(at).await;
            if let Ok(again) = &again {
                // It is closed behind what it has still to send.
                again.send_to(b"x", other_at).await.unwrap();
            }
            says.told("again", again.map(drop));
            says.told("recv", other.recv(&mut [0; 8]).await);
        }
    }
}

scenario! {
    /// More than a loop may have at once.
    fn many_sockets_come_and_go(says) {
        let (other, other_at) = udp().await;
        for _ in 0..200 {
            let (socket, _) = udp().await;
            socket.send_to(b"x", other_at).await.unwrap();
            drop(socket);
            says.told("recv", other.recv(&mut [0; 8]).await);
        }
        for _ in 0..200 {
            let (socket, _) = udp().await;
            socket.send_to(b"x", socket.local_addr().unwrap()).await.unwrap();
        }
    }
}

scenario! {
    fn many_arrive_in_order(says) {
        let (one, _) = udp().await;
        let (other, other_at) = udp().await;
        let mut buffer = [0; 64];
        for round in 0..40u8 {
            for at in 0..10u8 {
                one.send_to(&[round, at], other_at).await.unwrap();
            }
            for at in 0..10u8 {
                let (length, _) = other.recv_from(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..length], [round, at]);
            }
        }
        says.note("all");
    }
}

scenario! {
    fn a_connected_socket_hears_its_peer_only(says) {
        let (one, one_at) = udp().await;
        let (other, other_at) = udp().await;
        let (stranger, _) = udp().await;
        one.connect(other_at).await.unwrap();
        assert_eq!(one.peer_addr().unwrap(), other_at);
        stranger.send_to(b"unheard", one_at).await.unwrap();
        // Heard by whoever hears all, so that the first has left.
        stranger.send_to(b"unheard", other_at).await.unwrap();
        let mut buffer = [0; 64];
        other.recv_from(&mut buffer).await.unwrap();
        other.send_to(b"heard", one_at).await.unwrap();
        let length = one.recv(&mut buffer).await.unwrap();
        says.note(String::from_utf8_lossy(&buffer[..length]));
        says.told("send", one.send(b"back").await);
        says.told("recv", other.recv(&mut buffer).await);
        says.told("to the same", one.send_to(b"to", other_at).await);
        says.told("recv", other.recv(&mut buffer).await);
    }
}

scenario! {
    fn what_came_before_connecting_is_still_read(says) {
        let (one, one_at) = udp().await;
        let (other, other_at) = udp().await;
        let strange = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for at in 0..20u8 {
            strange.send_to(&[at], one_at).unwrap();
        }
        one.connect(other_at).await.unwrap();
        other.send_to(b"last", one_at).await.unwrap();
        let mut buffer = [0; 8];
        for _ in 0..21 {
            let length = one.recv(&mut buffer).await.unwrap();
            says.note(format!("{:?}", &buffer[..length]));
        }
    }
}

scenario! {
    fn connecting_to_another_peer(says) {
        let (one, one_at) = udp().await;
        let (first, first_at) = udp().await;
        let (second, second_at) = udp().await;
        let mut buffer = [0; 8];
        one.connect(first_at).await.unwrap();
        one.send(b"1").await.unwrap();
        says.told("first", first.recv(&mut buffer).await);
        one.connect(second_at).await.unwrap();
        one.send(b"22").await.unwrap();
        says.told("second", second.recv(&mut buffer).await);
        second.send_to(b"333", one_at).await.unwrap();
        says.told("back", one.recv(&mut buffer).await);
        assert_eq!(one.local_addr().unwrap(), one_at);
    }
}

scenario! {
    fn that_nobody_is_there_is_told_once(says) {
        let (one, _) = udp().await;
        let (_deaf, nobody) = deaf();
        one.connect(nobody).await.unwrap();
        says.told("send", one.send(b"x").await);
        let error = loop {
            if let Err(error) = one.send(b"x").await {
                break error;
            }
            tokio::task::yield_now().await;
        };
        says.told::<()>("send", Err(error));
        let (other, other_at) = udp().await;
        one.connect(other_at).await.unwrap();
        // Another answer may be on its way from before.
        while one.send(b"on").await.is_err() {}
        says.told("recv", other.recv(&mut [0; 8]).await);
    }
}

scenario! {
    /// A server answers whoever asks, and one whom it may not send to is no reason to stop.
    fn what_a_send_fails_with_is_no_others(says) {
        let (one, one_at) = udp().await;
        let (other, other_at) = udp().await;
        let one = Arc::new(one);
        let waits = Arc::clone(&one);
        let waiting = tokio::spawn(async move { waits.recv(&mut [0; 8]).await });
        let forbidden: std::net::SocketAddr = "255.255.255.255:9".parse().unwrap();
        let mut buffer = [0; 8];
        for at in 0..50 {
            // The kernel's socket tells this one, ours a later one.
            let _ = one.send_to(b"x", forbidden).await;
            while one.send_to(&[at], other_at).await.is_err() {}
            let result = other.recv(&mut buffer).await;
            assert_eq!((result.unwrap(), buffer[0]), (1, at));
        }
        let failed = loop {
            match one.send_to(b"x", forbidden).await {
                Ok(_) => tokio::task::yield_now().await,
                failed => break failed,
            }
        };
        says.told("send", failed);
        other.send_to(b"asks", one_at).await.unwrap();
        says.told("recv", waiting.await.unwrap());
        says.note(format!("{:?}", once(one.recv(&mut buffer)).await.map(|result| told(&result))));
    }
}

scenario! {
    fn an_unconnected_socket_is_not_told(says) {
        let (one, one_at) = udp().await;
        let (_deaf, nobody) = deaf();
        says.told("send", one.send_to(b"x", nobody).await);
        says.told("send", one.send_to(b"self", one_at).await);
        says.told("recv", one.recv(&mut [0; 8]).await);
    }
}

scenario! {
    fn without_a_peer_there_is_nowhere_to_send(says) {
        let (one, one_at) = udp().await;
        says.told("send", one.send(b"x").await);
        says.told("try", one.try_send(b"x"));
        says.told("no port", one.send_to(b"x", "127.0.0.1:0").await);
        says.told("send", one.send_to(b"self", one_at).await);
        says.told("recv", one.recv(&mut [0; 8]).await);
    }
}

scenario! {
    fn too_large(says) {
        let (one, one_at) = udp().await;
        let large = vec![7; 65_508];
        says.told("send", one.send_to(&large, one_at).await);
        says.told("try", one.try_send_to(&large, one_at));
        says.told("as large as can be", one.send_to(&large[1..], one_at).await);
        let mut buffer = vec![0; 70_000];
        says.told("recv", one.recv(&mut buffer).await);
        one.connect(one_at).await.unwrap();
        says.told("send", one.send(&large).await);
        says.told("send", one.send(b"x").await);
        says.told("recv", one.recv(&mut buffer).await);
    }
}

scenario! {
    fn too_large_over_ipv6(says) {
        let one = UdpSocket::bind("[::1]:0").await.unwrap();
        let at = one.local_addr().unwrap();
        let large = vec![7; 65_528];
        let mut buffer = vec![0; 70_000];
        says.told("send", one.send_to(&large, at).await);
        says.told("as large as can be", one.send_to(&large[1..], at).await);
        says.told("recv", one.recv(&mut buffer).await);
    }
}

scenario! {
    fn too_large_to_ipv4_by_a_socket_of_both(says) {
        let one = UdpSocket::bind("[::]:0").await.unwrap();
        let (other, other_at) = udp().await;
        let std::net::SocketAddr::V4(other_at) = other_at else { unreachable!("bound so") };
        let mapped = std::net::SocketAddr::new(other_at.ip().to_ipv6_mapped().into(), other_at.port());
        let large = vec![7; 65_508];
        let mut buffer = vec![0; 70_000];
        says.told("send", one.send_to(&large, mapped).await);
        says.told("as large as can be", one.send_to(&large[1..], mapped).await);
        says.told("recv", other.recv(&mut buffer).await);
    }
}

scenario! {
    fn another_family(says) {
        let (one, _) = udp().await;
        says.told("send", one.send_to(b"x", "[::1]:9").await);
        says.told("try", one.try_send_to(b"x", "[::1]:9".parse().unwrap()));
        says.told("connect", one.connect("[::1]:9").await);
    }
}

scenario! {
    fn what_does_not_fit_is_cut(says) {
        let (one, one_at) = udp().await;
        one.send_to(b"0123456789", one_at).await.unwrap();
        one.send_to(b"next", one_at).await.unwrap();
        let mut buffer = [0; 4];
        says.told("cut", one.recv_from(&mut buffer).await.map(|(length, _)| length));
        says.note(format!("{buffer:?}"));
        says.told("next", one.recv_from(&mut buffer).await.map(|(length, _)| length));
        one.send_to(b"into nothing", one_at).await.unwrap();
        one.send_to(b"!", one_at).await.unwrap();
        says.told("none", one.recv(&mut []).await);
        says.told("next", one.recv(&mut buffer).await);
    }
}

scenario! {
    fn trying_would_block(says) {
        let (one, one_at) = udp().await;
        let mut buffer = [0; 8];
        says.told("nothing", one.try_recv_from(&mut buffer).map(drop));
        one.writable().await.unwrap();
        says.told("send", one.try_send_to(b"x", one_at));
        one.readable().await.unwrap();
        says.told("recv", one.try_recv_from(&mut buffer).map(|(length, from)| (length, from == one_at)));
        says.told("nothing", one.try_recv(&mut buffer));
    }
}

scenario! {
    fn datagrams_of_nothing(says) {
        let (one, one_at) = udp().await;
        says.told("send", one.send_to(b"", one_at).await);
        says.told("send", one.send_to(b"x", one_at).await);
        says.told("send", one.send_to(b"", one_at).await);
        let mut buffer = [0; 8];
        for _ in 0..3 {
            says.told("recv", one.recv(&mut buffer).await);
        }
    }
}

scenario! {
    fn several_tasks_share_it(says) {
        let (one, one_at) = udp().await;
        let one = Arc::new(one);
        let receiving: Vec<_> = (0..4).map(|_| {
            let one = Arc::clone(&one);
            tokio::spawn(async move {
                let mut got = Vec::new();
                let mut buffer = [0; 8];
                for _ in 0..10 {
                    one.recv(&mut buffer).await.unwrap();
                    got.push(buffer[0]);
                }
                got
            })
        }).collect();
        for at in 0..40 {
            one.send_to(&[at], one_at).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut all = Vec::new();
        for task in receiving {
            all.extend(task.await.unwrap());
        }
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<_>>());
        says.note("each once");
    }
}

scenario! {
    fn a_socket_that_was_taken_over(says) {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        socket.connect(at).unwrap();
        socket.send(b"early").unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = UdpSocket::from_std(socket).unwrap();
        assert_eq!((socket.local_addr().unwrap(), socket.peer_addr().unwrap()), (at, at));
        let mut buffer = [0; 8];
        says.told("recv", socket.recv(&mut buffer).await);
        says.told("send", socket.send(b"late").await);
        says.told("recv", socket.recv(&mut buffer).await);
    }
}

scenario! {
    fn receiving_that_is_given_up_loses_nothing(says) {
        let (one, one_at) = udp().await;
        let sent = pattern(64);
        let mut got = Vec::new();
        let mut buffer = [0; 8];
        for byte in &sent {
            assert!(once(one.recv(&mut buffer)).await.is_none());
            one.send_to(&[*byte], one_at).await.unwrap();
            loop {
                tokio::select! {
                    biased;
                    result = one.recv(&mut buffer) => {
                        result.unwrap();
                        got.push(buffer[0]);
                        break;
                    }
                    () = tokio::task::yield_now() => {}
                }
            }
        }
        assert_eq!(got, sent);
        says.note("all");
    }
}

scenario! {
    fn what_was_sent_leaves_behind_the_drop(says) {
        let (one, one_at) = udp().await;
        let (other, _) = udp().await;
        for at in 0..50 {
            other.send_to(&[at], one_at).await.unwrap();
        }
        drop(other);
        let mut buffer = [0; 8];
        for at in 0..50 {
            let result = one.recv(&mut buffer).await;
            assert_eq!((result.unwrap(), buffer[0]), (1, at));
        }
        says.note("all");
    }
}

scenario! {
    fn ipv6(says) {
        let one = UdpSocket::bind("[::1]:0").await.unwrap();
        let at = one.local_addr().unwrap();
        says.told("send", one.send_to(b"six", at).await);
        says.told("recv", one.recv_from(&mut [0; 8]).await.map(|(length, from)| (length, from == at)));
    }
}
