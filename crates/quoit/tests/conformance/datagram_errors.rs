//! What the network answers to datagrams, and what the kernel may lack: told, and fatal to no socket.

use std::net::SocketAddr;
use std::time::Duration;

use quoit::{
    Address, DatagramError, DatagramOptions, DatagramSend, DatagramSocketId, Errno, Gro, Token, Unreachable,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::datagram_bench::{Bench, bench, client, deaf, receive};
use crate::levels::{Level, alone};

macro_rules! datagram_errors {
    ($level:ident) => {
        tests! { $level, datagram_errors:
            who_is_gone_is_told
            a_connected_socket_is_told_too
            what_others_meet_costs_nobody_a_datagram
            what_others_meet_costs_no_segment_that_leaves_by_itself
            nothing_is_told_unless_it_is_asked_for
            a_kernel_that_joins_nothing_says_so
        }
    };
}

fn told() -> DatagramOptions {
    DatagramOptions {
        receive_errors: true,
        ..DatagramOptions::default()
    }
}

fn unreachable(error: DatagramError) -> Unreachable {
    match error {
        DatagramError::Unreachable(told) => told,
        other => panic!("{other:?}"),
    }
}

fn echoes(bench: &mut Bench, socket: DatagramSocketId) {
    let client = bench.client(socket);
    client.send(b"here").unwrap();
    let before = bench.got.len();
    bench.wait_received(before + 1);
    assert_eq!(bench.got[before].bytes, b"here");
    bench.send_to(socket, client.local_addr().unwrap(), b"there");
    bench.flush(socket);
    assert_eq!(receive(&client), b"there");
}

pub(crate) fn who_is_gone_is_told(level: &Level) {
    bench(level, |bench| {
        for (own, host) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
        ] {
            bench.errors.clear();
            let socket = bench.bind(own, &told());
            let deaf = [deaf(host), deaf(host)];
            let gone = deaf.each_ref().map(|&(_, address)| address);
            for to in gone {
                bench.send_to(socket, to, b"anybody?");
                let before = bench.errors.len();
                bench.until("it is told", |bench| bench.errors.len() > before);
            }
            // On a socket of both families as peers are there.
            let as_peer = |address: SocketAddr| match (own, address) {
                ("[::]:0", SocketAddr::V4(v4)) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
                _ => address,
            };
            let expected = gone.map(|to| (as_peer(to), Errno::ECONNREFUSED));
            let found: Vec<_> = bench
                .errors
                .iter()
                .map(|&(of, error)| {
                    assert_eq!(of, socket);
                    (unreachable(error).receiver(), unreachable(error).errno())
                })
                .collect();
            assert_eq!(found, expected);
            let counters = bench.counters(socket);
            assert_eq!((counters.receive_errors, counters.send_errors), (2, 0));
            echoes(bench, socket);
        }
    });
}

pub(crate) fn a_connected_socket_is_told_too(level: &Level) {
    bench(level, |bench| {
        let (_deaf, gone) = deaf("127.0.0.1");
        let options = DatagramOptions {
            peer: Some(Address::Tcp(gone)),
            ..told()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        for round in 1..=3 {
            let mut datagram = DatagramSend::new(Address::Tcp(gone), &b"?"[..]);
            datagram.to = None;
            bench.send(socket, datagram).unwrap();
            bench.until("it is told", |bench| bench.errors.len() == round);
            let (_, error) = bench.errors[round - 1];
            assert_eq!(unreachable(error).receiver(), gone);
        }
        assert_eq!(bench.closed.get(&socket), None);
    });
}

/// The kernel tells of a datagram that met nobody at the next call, be it a send to somebody else.
pub(crate) fn what_others_meet_costs_nobody_a_datagram(level: &Level) {
    const ROUNDS: usize = 100;
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &told());
        let (_deaf, gone) = deaf("127.0.0.1");
        let client = client("127.0.0.1:0");
        for round in 0..ROUNDS {
            for (to, kind) in [(gone, 1), (client.local_addr().unwrap(), 2)] {
                let mut datagram = DatagramSend::new(Address::Tcp(to), vec![round as u8; 10]);
                datagram.token = Token((10 * round + kind) as u64);
                bench.send(socket, datagram).unwrap();
            }
        }
        bench.until("all have left", |bench| bench.sent.len() == 2 * ROUNDS);
        for (token, result) in &bench.sent {
            assert_eq!(*result, Ok(10), "{token:?}");
        }
        // Whatever the order: what is made again may be overtaken.
        let mut came: Vec<_> = (0..ROUNDS).map(|_| receive(&client)[0]).collect();
        came.sort_unstable();
        assert_eq!(came, (0..ROUNDS as u8).collect::<Vec<_>>());
        bench.until_quiet();
        assert!(!bench.errors.is_empty());
        for &(_, error) in &bench.errors {
            assert_eq!(unreachable(error).receiver(), gone);
        }
        assert_eq!(bench.counters(socket).send_errors, 0);
        echoes(bench, socket);
    });
}

/// Neither of segments that the kernel will not cut, and that leave one by one.
pub(crate) fn what_others_meet_costs_no_segment_that_leaves_by_itself(level: &Level) {
    const ROUNDS: u8 = 30;
    const SEGMENTS: u8 = 5;
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &told());
        // Without checksums of its own nothing is cut.
        bench.set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1);
        let (_deaf, gone) = deaf("127.0.0.1");
        let client = client("127.0.0.1:0");
        for round in 0..ROUNDS {
            // The first one learns that nothing is cut.
            if round > 0 {
                bench.send_to(socket, gone, b"anybody?");
            }
            let segments: Vec<u8> = (0..SEGMENTS).flat_map(|number| [round, number]).collect();
            let mut datagram = DatagramSend::new(Address::Tcp(client.local_addr().unwrap()), segments);
            datagram.segment_size = Some(2);
            datagram.token = Token(u64::from(round) + 1);
            bench.send(socket, datagram).unwrap();
            if round == 0 {
                bench.until("it has left", |bench| bench.sent.len() == 1);
            }
        }
        bench.until("all have left", |bench| bench.sent.len() == usize::from(ROUNDS));
        for (token, result) in &bench.sent {
            assert_eq!(*result, Ok(2 * u32::from(SEGMENTS)), "{token:?}");
        }
        let mut came: Vec<_> = (0..ROUNDS * SEGMENTS).map(|_| receive(&client)).collect();
        came.sort_unstable();
        let expected: Vec<_> = (0..ROUNDS)
            .flat_map(|round| (0..SEGMENTS).map(move |number| vec![round, number]))
            .collect();
        assert_eq!(came, expected);
        bench.until_quiet();
        let counters = bench.counters(socket);
        assert!(counters.segmentation_refused > 0);
        assert_eq!(counters.send_errors, 0);
        assert!(!bench.errors.is_empty());
        for &(_, error) in &bench.errors {
            assert_eq!(unreachable(error).receiver(), gone);
        }
    });
}

pub(crate) fn nothing_is_told_unless_it_is_asked_for(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let (_deaf, gone) = deaf("127.0.0.1");
        bench.send_to(socket, gone, b"anybody?");
        echoes(bench, socket);
        bench.turn(Duration::ZERO);
        assert_eq!(bench.errors, []);
    });
}

/// From here on `UDP_GRO` is unknown to this thread, as on kernels before 5.0.
fn forget_joining() {
    let is = |argument, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).unwrap()
    };
    const UDP_GRO: u64 = 104;
    let rule = SeccompRule::new(vec![is(1, libc::SOL_UDP as u64), is(2, UDP_GRO)]).unwrap();
    let filter = SeccompFilter::new(
        [(libc::SYS_setsockopt, vec![rule])].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOPROTOOPT as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    )
    .unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

pub(crate) fn a_kernel_that_joins_nothing_says_so(level: &Level) {
    alone(|| {
        bench(level, |bench| {
            let before = bench.bind("127.0.0.1:0", &DatagramOptions::default());
            forget_joining();
            for gro in [Gro::Transparent, Gro::Raw] {
                let options = DatagramOptions {
                    gro,
                    ..DatagramOptions::default()
                };
                let address = "127.0.0.1:0".parse().unwrap();
                let error = bench
                    .event_loop
                    .bind_datagram(&address, &options, Token(1))
                    .unwrap_err();
                assert_eq!(error.errno(), Some(Errno::new(libc::ENOPROTOOPT)));
                let text = error.to_string();
                assert!(text.contains("Gro") && text.contains("leave `gro` off"), "{text}");
            }
            let after = bench.bind("127.0.0.1:0", &DatagramOptions::default());
            for socket in [before, after] {
                echoes(bench, socket);
            }
        });
    });
}
