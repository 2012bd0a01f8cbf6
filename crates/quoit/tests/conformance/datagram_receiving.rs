//! Receiving datagrams: whole, or flagged; without ever stopping in silence.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use quoit::{
    Datagram, DatagramError, DatagramOptions, DatagramSend, DatagramSocketId, Ecn, Errno, Events, Gro,
    Handler, Loop, Token,
};

use crate::datagram_bench::{bench, bench_with, client, deaf, interface, numbered, receive, set};
use crate::levels::Level;
use crate::sockets::PATIENCE;

macro_rules! datagram_receiving {
    ($level:ident) => {
        tests! { $level, datagram_receiving:
            every_size_comes_whole
            empty_ones_do_not_end_receiving
            more_than_the_queues_hold_at_once
            without_slots_it_pauses_and_goes_on
            a_burst_longer_than_the_slots_is_no_want_of_them
            one_slot_is_enough_to_go_on
            too_long_ones_are_cut_and_flagged
            cut_control_messages_are_an_error
            all_that_is_known_is_told
            both_families_on_one_socket
            joined_ones_are_taken_apart
            joined_ones_come_raw_on_request
            nothing_comes_while_paused
            what_waits_to_be_reported_is_taken_back
            a_handler_sees_nothing_after_its_pause
            nobody_at_the_peers_port_is_told_and_not_fatal
            an_error_and_a_burst_come_both
            what_was_there_before_is_received
        }
    };
}

pub(crate) fn every_size_comes_whole(level: &Level) {
    for (address, most) in [("127.0.0.1:0", 65_507), ("[::1]:0", 65_527)] {
        sizes_come_whole(level, address, [0, 1, 2, 100, 1472, 1473, 9000, most - 1, most]);
    }
}

fn sizes_come_whole(level: &Level, address: &str, sizes: [usize; 9]) {
    bench(level, |bench| {
        let socket = bench.bind(address, &DatagramOptions::default());
        let client = bench.client(socket);
        for (number, size) in sizes.into_iter().enumerate() {
            client.send(&numbered(number, size)).unwrap();
            bench.wait_received(number + 1);
        }
        let expected: Vec<_> = sizes
            .into_iter()
            .enumerate()
            .map(|(number, size)| numbered(number, size))
            .collect();
        assert!(bench.payloads() == expected);
        let peer = client.local_addr().unwrap().into();
        assert!(bench.got.iter().all(|got| got.peer == peer && !got.truncated));
        let counters = bench.counters(socket);
        let bytes: usize = sizes.iter().sum();
        assert_eq!((counters.received, counters.received_bytes), (9, bytes as u64));
        assert_eq!(counters.received_buffers, 9);
    });
}

/// A datagram of no bytes ends a multishot `recvmsg`, and anybody can send one.
pub(crate) fn empty_ones_do_not_end_receiving(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = bench.client(socket);
        for number in 0..20 {
            client.send(b"").unwrap();
            bench.wait_received(2 * number + 1);
            client.send(&numbered(number, 10)).unwrap();
            bench.wait_received(2 * number + 2);
        }
        let expected = (0..20).flat_map(|number| [Vec::new(), numbered(number, 10)]);
        assert!(bench.payloads().into_iter().eq(expected));
    });
}

pub(crate) fn more_than_the_queues_hold_at_once(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = bench.client(socket);
        for round in 0..4 {
            for number in 0..100 {
                client.send(&numbered(number, 50)).unwrap();
            }
            bench.wait_received((round + 1) * 100);
        }
        let expected = (0..4).flat_map(|_| (0..100).map(|number| numbered(number, 50)));
        assert!(bench.payloads().into_iter().eq(expected));
        assert_eq!(bench.counters(socket).kernel_drops, 0);
    });
}

pub(crate) fn without_slots_it_pauses_and_goes_on(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            slots: 4,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let client = bench.client(socket);
        bench.holds = true;
        for number in 0..12 {
            client.send(&numbered(number, 100)).unwrap();
        }
        bench.wait_received(4);
        bench.until("the pressure is told", |bench| bench.pressure > 0);
        bench.until_quiet();
        assert_eq!((bench.got.len(), bench.pressure), (4, 1));
        let counters = bench.counters(socket);
        assert_eq!((counters.pauses, counters.slots_low_water), (1, 0));
        // It waits, and does not try in vain.
        for _ in 0..20 {
            bench.turn(Duration::ZERO);
        }
        assert_eq!(bench.counters(socket).arms, counters.arms);
        bench.held.clear();
        bench.wait_received(8);
        bench.until_quiet();
        assert_eq!((bench.got.len(), bench.pressure), (8, 2));
        bench.holds = false;
        bench.held.clear();
        bench.wait_received(12);
        let expected = (0..12).map(|number| numbered(number, 100));
        assert!(bench.payloads().into_iter().eq(expected));
        let counters = bench.counters(socket);
        assert!(counters.arms <= 12, "{counters:?}");
        assert_eq!(counters.kernel_drops, 0);
    });
}

/// A lease that is returned by another thread wakes the loop, and a single one is enough, whatever is still held.
/// All slots are taken by what one turn brings, and come back before the next: nobody holds them.
pub(crate) fn a_burst_longer_than_the_slots_is_no_want_of_them(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            slots: 4,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let client = bench.client(socket);
        for number in 0..12 {
            client.send(&numbered(number, 100)).unwrap();
        }
        bench.wait_received(12);
        assert_eq!((bench.counters(socket).pauses, bench.pressure), (0, 0));
    });
}

pub(crate) fn one_slot_is_enough_to_go_on(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            slots: 16,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let client = bench.client(socket);
        bench.holds = true;
        for number in 0..20 {
            client.send(&[number]).unwrap();
        }
        bench.wait_received(16);
        bench.until_quiet();
        for number in 16..20 {
            let one = bench.held.pop().unwrap();
            std::thread::spawn(move || drop(one));
            while bench.got.len() == number {
                let begun = std::time::Instant::now();
                bench.turn(PATIENCE);
                assert!(begun.elapsed() < PATIENCE, "the returned slot woke nobody");
            }
        }
        assert_eq!(bench.payloads().concat(), (0..20).collect::<Vec<u8>>());
    });
}

pub(crate) fn too_long_ones_are_cut_and_flagged(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            max_datagram: 100,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let client = bench.client(socket);
        for size in [99, 100, 101, 5000, 7] {
            client.send(&numbered(size, size)).unwrap();
        }
        bench.wait_received(5);
        let seen: Vec<_> = bench
            .got
            .iter()
            .map(|got| (got.bytes.len(), got.truncated))
            .collect();
        assert_eq!(
            seen,
            [(99, false), (100, false), (100, true), (100, true), (7, false)]
        );
        assert!(bench.got[3].bytes == numbered(5000, 5000)[..100]);
        assert_eq!(bench.counters(socket).truncated, 2);
    });
}

pub(crate) fn cut_control_messages_are_an_error(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = bench.client(socket);
        let more = [
            libc::IP_PKTINFO,
            libc::IP_RECVTTL,
            libc::IP_RECVTOS,
            libc::IP_RECVORIGDSTADDR,
        ];
        for name in more {
            bench.set(socket, libc::IPPROTO_IP, name, 1);
        }
        client.send(b"lost").unwrap();
        bench.until("it is told", |bench| !bench.errors.is_empty());
        assert_eq!(bench.errors, [(socket, DatagramError::ControlTruncated)]);
        for name in more {
            bench.set(socket, libc::IPPROTO_IP, name, 0);
        }
        client.send(b"found").unwrap();
        bench.wait_received(1);
        assert_eq!(bench.payloads(), [b"found"]);
        assert_eq!(bench.counters(socket).control_truncated, 1);
    });
}

pub(crate) fn all_that_is_known_is_told(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            receive_ecn: true,
            receive_timestamps: true,
            receive_local_address: true,
            gro: Gro::Transparent,
            ..DatagramOptions::default()
        };
        let cases: [(_, IpAddr, _); 2] = [
            (
                "0.0.0.0:0",
                Ipv4Addr::LOCALHOST.into(),
                (libc::IPPROTO_IP, libc::IP_TOS),
            ),
            (
                "[::]:0",
                Ipv6Addr::LOCALHOST.into(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            ),
        ];
        for (address, local, (protocol, name)) in cases {
            let socket = bench.bind(address, &options);
            let client = bench.client(socket);
            for (bits, ecn) in [(1, Ecn::Capable1), (2, Ecn::Capable0), (0, Ecn::NotCapable)] {
                set(&client, protocol, name, bits);
                let before = SystemTime::now();
                bench.got.clear();
                client.send(b"marked").unwrap();
                bench.wait_received(1);
                let got = &bench.got[0];
                assert_eq!((got.ecn, got.local), (Some(ecn), Some(local)));
                assert_eq!(got.interface, Some(interface(c"lo")));
                // Generous: the clock of the wall may be set meanwhile, but not in tests.
                let time = got.timestamp.unwrap();
                assert!(before - PATIENCE < time && time < SystemTime::now() + PATIENCE);
            }
        }
        assert_eq!(bench.errors, []);
        bench.got.clear();
        let plain = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        bench.client(plain).send(b"plain").unwrap();
        bench.wait_received(1);
        let got = &bench.got[0];
        assert_eq!((got.ecn, got.local, got.interface), (None, None, None));
        assert_eq!((got.timestamp, got.segment_size), (None, None));
    });
}

pub(crate) fn both_families_on_one_socket(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            receive_ecn: true,
            receive_local_address: true,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("[::]:0", &options);
        let quoit::Address::Tcp(address) = bench.address(socket) else {
            panic!("no UDP socket")
        };
        let v4 = client("127.0.0.1:0");
        v4.connect(("127.0.0.1", address.port())).unwrap();
        let v6 = bench.client(socket);
        for (client, protocol, name) in [
            (&v4, libc::IPPROTO_IP, libc::IP_TOS),
            (&v6, libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        ] {
            set(client, protocol, name, 2);
            bench.got.clear();
            client.send(b"question").unwrap();
            bench.wait_received(1);
            let got = bench.got[0].clone();
            assert_eq!(got.ecn, Some(Ecn::Capable0), "{protocol}");
            let mut answer = DatagramSend::new(got.peer.clone(), b"answer");
            answer.source = got.local;
            answer.ecn = Some(Ecn::Capable1);
            answer.segment_size = Some(3);
            bench.send(socket, answer).unwrap();
            // As it was written by hand, without mapping.
            let local: quoit::Address = client.local_addr().unwrap().into();
            bench.send(socket, DatagramSend::new(local, b"again")).unwrap();
            bench.until_quiet();
            assert_eq!(
                [receive(client), receive(client), receive(client)],
                [&b"ans"[..], b"wer", b"again"]
            );
        }
        assert_eq!(bench.errors, []);
    });
}

/// Whether datagrams that were sent in one call come joined to a socket that asks for it, here over loopback: what a plain
/// socket gets. Before Linux 5.11 its device cut them up (`NETIF_F_GSO_UDP_L4` was no software feature).
pub(crate) fn loopback_joins() -> bool {
    const UDP_GRO: i32 = 104;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    set(&socket, libc::SOL_UDP, UDP_GRO, 1);
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(socket.local_addr().unwrap()).unwrap();
    send_joined(&client);
    let joined = socket.recv(&mut [0; 65_536]).unwrap() == 10_500;
    if !joined {
        quoit_skipped::skip_this("this kernel's loopback device joins no datagrams");
    }
    joined
}

/// Sends eleven datagrams of 1,000 bytes (the last of 500) in one call.
fn send_joined(client: &std::net::UdpSocket) {
    const UDP_SEGMENT: i32 = 103;
    set(client, libc::SOL_UDP, UDP_SEGMENT, 1000);
    assert_eq!(client.send(&numbered(1, 10_500)).unwrap(), 10_500);
}

pub(crate) fn joined_ones_are_taken_apart(level: &Level) {
    let joined = if loopback_joins() { 1 } else { 11 };
    bench(level, |bench| {
        for (gro, buffers) in [(Gro::Transparent, joined), (Gro::Off, 11)] {
            let options = DatagramOptions {
                gro,
                ..DatagramOptions::default()
            };
            let socket = bench.bind("127.0.0.1:0", &options);
            bench.got.clear();
            let client = bench.client(socket);
            send_joined(&client);
            bench.wait_received(11);
            let expected: Vec<_> = numbered(1, 10_500).chunks(1000).map(<[u8]>::to_vec).collect();
            assert!(bench.payloads() == expected);
            let counters = bench.counters(socket);
            assert_eq!((counters.received, counters.received_buffers), (11, buffers));
            assert_eq!(counters.received_bytes, 10_500);
        }
    });
}

pub(crate) fn joined_ones_come_raw_on_request(level: &Level) {
    if !loopback_joins() {
        return;
    }
    bench(level, |bench| {
        let options = DatagramOptions {
            gro: Gro::Raw,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let client = bench.client(socket);
        send_joined(&client);
        bench.wait_received(1);
        assert_eq!(bench.got.len(), 1);
        assert!(bench.got[0].bytes == numbered(1, 10_500));
        assert_eq!(bench.got[0].segment_size, Some(1000));
        assert_eq!(bench.counters(socket).received, 11);
    });
}

pub(crate) fn nothing_comes_while_paused(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = bench.client(socket);
        client.send(b"one").unwrap();
        bench.wait_received(1);
        bench.pause(socket);
        client.send(b"two").unwrap();
        client.send(b"").unwrap();
        bench.until_quiet();
        assert_eq!(bench.got.len(), 1);
        bench.resume(socket);
        client.send(b"three").unwrap();
        bench.wait_received(4);
        assert_eq!(bench.payloads(), [&b"one"[..], b"two", b"", b"three"]);

        let options = DatagramOptions {
            paused: true,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        bench.client(socket).send(b"four").unwrap();
        bench.until_quiet();
        assert_eq!(bench.got.len(), 4);
        bench.resume(socket);
        bench.wait_received(5);
    });
}

pub(crate) fn what_waits_to_be_reported_is_taken_back(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = bench.client(socket);
        bench.set_event_room(1);
        for number in 0..20 {
            client.send(&[number]).unwrap();
        }
        bench.wait_received(1);
        bench.pause(socket);
        bench.until_quiet();
        let before = bench.got.len();
        assert!(before < 20);
        bench.resume(socket);
        bench.wait_received(20);
        assert_eq!(bench.payloads().concat(), (0..20).collect::<Vec<u8>>());
    });
}

pub(crate) fn a_handler_sees_nothing_after_its_pause(level: &Level) {
    #[derive(Default)]
    struct Pausing {
        received: Vec<u8>,
        paused: Option<DatagramSocketId>,
        closed: bool,
    }

    impl Handler for Pausing {
        fn on_datagram(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagram: Datagram<'_>) {
            assert!(self.paused.is_none() && !self.closed);
            self.received.extend(&*datagram);
            if self.received.len() == 30 {
                event_loop.close_datagram(socket).unwrap();
                self.closed = true;
            } else {
                event_loop.pause_datagrams(socket).unwrap();
                self.paused = Some(socket);
            }
        }

        fn on_turn_end(&mut self, event_loop: &mut Loop) {
            if let Some(socket) = self.paused.take() {
                event_loop.resume_datagrams(socket).unwrap();
            }
        }
    }

    let mut event_loop = Loop::new(quoit::LoopIndex::default(), level.config()).unwrap();
    let socket = event_loop
        .bind_datagram(
            &crate::driver::loopback(),
            &DatagramOptions::default(),
            Token::NONE,
        )
        .unwrap();
    let quoit::Address::Tcp(address) = event_loop.datagram_address(socket).unwrap().clone() else {
        panic!("no UDP socket")
    };
    let sender = client("127.0.0.1:0");
    for number in 0..40 {
        sender.send_to(&[number], address).unwrap();
    }
    let mut handler = Pausing::default();
    let mut events = Events::with_capacity(64);
    let begun = std::time::Instant::now();
    while event_loop.datagram_sockets() > 0 {
        assert!(begun.elapsed() < PATIENCE, "{} received", handler.received.len());
        let timeout = Some(Duration::from_millis(100));
        event_loop.run_turn(&mut handler, &mut events, timeout).unwrap();
    }
    assert_eq!(handler.received, (0..30).collect::<Vec<u8>>());
}

pub(crate) fn nobody_at_the_peers_port_is_told_and_not_fatal(level: &Level) {
    bench(level, |bench| {
        let (peer, address) = deaf("127.0.0.1");
        let options = DatagramOptions {
            peer: Some(address.into()),
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        for _ in 0..3 {
            bench.errors.clear();
            bench.send(socket, DatagramSend::to_connected(b"hello?")).unwrap();
            bench.until("the refusal is told", |bench| !bench.errors.is_empty());
            assert_eq!(
                bench.errors,
                [(socket, DatagramError::Network(Errno::ECONNREFUSED))]
            );
        }
        // It listens, and is heard.
        let quoit::Address::Tcp(address) = bench.address(socket) else {
            panic!("no UDP socket")
        };
        peer.connect(address).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        bench.send(socket, DatagramSend::to_connected(b"there?")).unwrap();
        bench.until_quiet();
        assert_eq!(receive(&peer), b"there?");
        peer.send(b"here").unwrap();
        bench.wait_received(1);
        assert_eq!(bench.payloads(), [b"here"]);
        assert!(bench.counters(socket).receive_errors + bench.counters(socket).send_errors >= 3);
    });
}

/// Errors and datagrams that are there at the same moment hide each other not.
pub(crate) fn an_error_and_a_burst_come_both(level: &Level) {
    bench(level, |bench| {
        let peer = client("127.0.0.1:0");
        let options = DatagramOptions {
            peer: Some(peer.local_addr().unwrap().into()),
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let quoit::Address::Tcp(address) = bench.address(socket) else {
            panic!("no UDP socket")
        };
        for number in 0..5 {
            peer.send_to(&[number], address).unwrap();
        }
        drop(peer);
        bench.send(socket, DatagramSend::to_connected(b"gone?")).unwrap();
        bench.until("both are told", |bench| {
            bench.got.len() == 5 && bench.errors.len() == 1
        });
    });
}

pub(crate) fn what_was_there_before_is_received(level: &Level) {
    bench_with(
        level,
        |_| (),
        |bench| {
            let early = client("127.0.0.1:0");
            let sender = client("127.0.0.1:0");
            sender.send_to(b"early", early.local_addr().unwrap()).unwrap();
            let options = DatagramOptions::default();
            let socket = quoit::DatagramSocket::adopt(early.into(), &options).unwrap();
            bench.event_loop.open_datagram(socket, Token(3)).unwrap();
            bench.wait_received(1);
            assert_eq!(bench.payloads(), [b"early"]);
        },
    );
}
