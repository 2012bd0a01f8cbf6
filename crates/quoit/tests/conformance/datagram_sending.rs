//! Sending datagrams: to many, in segments, by copy and by loan, within bounds.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use bytes::Bytes;
use quoit::{
    Address, Command, DatagramError, DatagramOptions, DatagramSend, DatagramSocket, Ecn, Errno, Payload,
    Refusal, Token,
};

use crate::datagram_bench::{Bench, bench, bench_with, client, numbered, receive, uninterrupted};
use crate::levels::Level;
use crate::sockets::PATIENCE;

macro_rules! datagram_sending {
    ($level:ident) => {
        tests! { $level, datagram_sending:
            to_many_by_copy_and_by_loan
            segments_leave_in_one_call
            segments_leave_one_by_one_where_they_must
            every_outcome_is_told_on_request
            too_large_ones_are_told_with_their_size
            a_full_queue_refuses_and_then_has_room
            what_waits_for_a_full_receiver_arrives_whole
            what_is_queued_leaves_before_the_close
            a_close_that_cannot_send_ends_at_its_deadline
            the_source_address_is_chosen
            congestion_marks_travel
            what_cannot_be_sent_is_refused
            commands_do_what_methods_do
            an_answer_needs_no_copy
        }
    };
}

fn with_token(mut datagram: DatagramSend<'_>, token: u64) -> DatagramSend<'_> {
    datagram.token = Token(token);
    datagram
}

pub(crate) fn to_many_by_copy_and_by_loan(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let clients: Vec<_> = (0..5).map(|_| client("127.0.0.1:0")).collect();
        for round in 0..20 {
            for (number, client) in clients.iter().enumerate() {
                let to: Address = client.local_addr().unwrap().into();
                let bytes = numbered(number + round, 10 * round + number);
                let datagram = if round % 2 == 0 {
                    DatagramSend::new(to, &bytes[..])
                } else {
                    DatagramSend::new(to, bytes)
                };
                bench.send(socket, datagram).unwrap();
            }
        }
        bench.flush(socket);
        for (number, client) in clients.iter().enumerate() {
            for round in 0..20 {
                assert!(receive(client) == numbered(number + round, 10 * round + number));
            }
        }
        let counters = bench.counters(socket);
        assert_eq!(
            (counters.sent, counters.sends, counters.queued_bytes),
            (100, 100, 0)
        );
        assert!(counters.send_batches < 10, "{counters:?}");
    });
}

fn send_segments(bench: &mut Bench, socket: quoit::DatagramSocketId, client: &std::net::UdpSocket) {
    let to: Address = client.local_addr().unwrap().into();
    let mut datagram = with_token(DatagramSend::new(to, numbered(1, 10_500)), 5);
    datagram.segment_size = Some(1000);
    bench.sent.clear();
    bench.send(socket, datagram).unwrap();
    bench.until("they are sent", |bench| !bench.sent.is_empty());
    assert_eq!(bench.sent, [(Token(5), Ok(10_500))]);
    for expected in numbered(1, 10_500).chunks(1000) {
        assert!(receive(client) == expected);
    }
}

pub(crate) fn segments_leave_in_one_call(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = client("127.0.0.1:0");
        send_segments(bench, socket, &client);
        let counters = bench.counters(socket);
        assert_eq!(
            (counters.sent, counters.sends, counters.segmentation_refused),
            (11, 1, 0)
        );

        // More than one call takes.
        let to: Address = client.local_addr().unwrap().into();
        let mut datagram = DatagramSend::new(to, numbered(2, 700));
        datagram.segment_size = Some(10);
        bench.send(socket, datagram).unwrap();
        bench.flush(socket);
        for expected in numbered(2, 700).chunks(10) {
            assert!(receive(&client) == expected);
        }
        let counters = bench.counters(socket);
        assert_eq!((counters.sent, counters.sends), (81, 3));
    });
}

/// Without checksums the kernel cuts nothing.
pub(crate) fn segments_leave_one_by_one_where_they_must(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        bench.set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1);
        let client = client("127.0.0.1:0");
        for _ in 0..3 {
            send_segments(bench, socket, &client);
        }
        let counters = bench.counters(socket);
        // Tried once, and then known.
        assert_eq!(
            (counters.sent, counters.sends, counters.segmentation_refused),
            (33, 33, 1)
        );
        assert_eq!((counters.send_errors, bench.errors.len()), (0, 0));
    });
}

pub(crate) fn every_outcome_is_told_on_request(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = client("127.0.0.1:0");
        let to: Address = client.local_addr().unwrap().into();
        let lent = Bytes::from(numbered(1, 70));
        bench
            .send(socket, with_token(DatagramSend::new(to.clone(), b"copied"), 1))
            .unwrap();
        bench
            .send(socket, with_token(DatagramSend::new(to.clone(), lent.clone()), 2))
            .unwrap();
        bench
            .send(
                socket,
                with_token(DatagramSend::new(to.clone(), vec![0; 70_000]), 3),
            )
            .unwrap();
        bench
            .send(socket, DatagramSend::new(to.clone(), b"silent"))
            .unwrap();
        bench
            .send(socket, with_token(DatagramSend::new(to, b""), 4))
            .unwrap();
        bench.until("all outcomes are told", |bench| bench.sent.len() == 4);
        let expected = [
            (Token(1), Ok(6)),
            (Token(2), Ok(70)),
            (Token(3), Err(Errno::EMSGSIZE)),
            (Token(4), Ok(0)),
        ];
        assert_eq!(bench.sent, expected);
        // The memory that was lent is free.
        assert!(lent.is_unique());
        for expected in [&b"copied"[..], &lent, b"silent", b""] {
            assert_eq!(receive(&client), expected);
        }
        let counters = bench.counters(socket);
        assert_eq!((counters.sent, counters.send_errors), (4, 1));
        assert_eq!(bench.errors, []);
    });
}

pub(crate) fn too_large_ones_are_told_with_their_size(level: &Level) {
    for (address, most) in [("127.0.0.1:0", 65_507_u32), ("[::1]:0", 65_527)] {
        bench(level, |bench| {
            let socket = bench.bind(address, &DatagramOptions::default());
            let client = client(address);
            let to: Address = client.local_addr().unwrap().into();
            for size in [most, most + 1] {
                bench
                    .send(socket, DatagramSend::new(to.clone(), vec![7; size as usize]))
                    .unwrap();
            }
            bench.until("it is told", |bench| !bench.errors.is_empty());
            assert_eq!(
                bench.errors,
                [(socket, DatagramError::TooLarge { size: most + 1 })]
            );
            assert_eq!(receive(&client).len(), most as usize);
        });
    }
}

/// A connected Unix socket whose peer does not read, and that peer.
pub(crate) fn stuck(bench: &mut Bench, options: &DatagramOptions) -> (quoit::DatagramSocketId, UnixDatagram) {
    let (near, peer) = UnixDatagram::pair().unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let options = DatagramOptions {
        peer: None,
        ..options.clone()
    };
    let socket = DatagramSocket::adopt(near.into(), &options).unwrap();
    let socket = bench.event_loop.open_datagram(socket, Token(8)).unwrap();
    bench.until_quiet();
    (socket, peer)
}

pub(crate) fn a_full_queue_refuses_and_then_has_room(level: &Level) {
    bench(level, |bench| {
        for options in [
            DatagramOptions {
                high_water: 1000,
                low_water: 200,
                ..DatagramOptions::default()
            },
            DatagramOptions {
                queued_sends: 8,
                ..DatagramOptions::default()
            },
        ] {
            bench.writable = 0;
            let (socket, peer) = stuck(bench, &options);
            let mut taken = 0;
            loop {
                match bench.send(socket, DatagramSend::to_connected(&numbered(taken, 100)[..])) {
                    Ok(()) => taken += 1,
                    Err(refusal) => {
                        assert_eq!(refusal, Refusal::Full);
                        // What the kernel takes leaves room; once it takes no more, it stays full.
                        let writable = bench.writable;
                        bench.until_quiet();
                        if bench.writable == writable {
                            break;
                        }
                    }
                }
            }
            assert!(
                bench.event_loop.is_datagram_full(socket) || bench.event_loop.queued_datagrams(socket) > 900
            );
            assert!(bench.counters(socket).sends_refused > 0);
            let before = bench.writable;
            let mut buffer = [0; 200];
            for number in 0..taken {
                bench.until("there is something to read", |_| {
                    peer.set_nonblocking(true).unwrap();
                    let length = peer.recv(&mut buffer);
                    peer.set_nonblocking(false).unwrap();
                    length.is_ok_and(|length| {
                        assert!(buffer[..length] == numbered(number, 100));
                        true
                    })
                });
            }
            bench.until("there is room", |bench| bench.writable == before + 1);
            bench.send(socket, DatagramSend::to_connected(b"more")).unwrap();
            bench.until_quiet();
            assert_eq!(uninterrupted(|| peer.recv(&mut buffer)), 4);
        }
    });
}

/// The receiver is not connected back, so that it is its own queue that is full, and not the sender's buffer.
pub(crate) fn what_waits_for_a_full_receiver_arrives_whole(level: &Level) {
    bench(level, |bench| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("receiver");
        let receiver = UnixDatagram::bind(&path).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let near = UnixDatagram::unbound().unwrap();
        near.connect(&path).unwrap();
        let options = DatagramOptions::default();
        let socket = DatagramSocket::adopt(near.into(), &options).unwrap();
        let socket = bench.event_loop.open_datagram(socket, Token(8)).unwrap();
        // Many times what a receiver holds (net.unix.max_dgram_qlen), and more than one batch.
        let count = 100;
        for number in 0..count {
            bench
                .send(socket, DatagramSend::to_connected(&numbered(number, 100)[..]))
                .unwrap();
        }
        bench.until_quiet();
        let mut buffer = [0; 200];
        for number in 0..count {
            bench.until("there is something to read", |_| {
                receiver.recv(&mut buffer).is_ok_and(|length| {
                    assert_eq!(length, 100, "datagram {number}");
                    assert!(buffer[..length] == numbered(number, 100));
                    true
                })
            });
        }
    });
}

pub(crate) fn what_is_queued_leaves_before_the_close(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = client("127.0.0.1:0");
        let to: Address = client.local_addr().unwrap().into();
        for number in 0..150 {
            bench
                .send(socket, DatagramSend::new(to.clone(), &numbered(number, 20)[..]))
                .unwrap();
        }
        bench.close(socket);
        let after = bench
            .event_loop
            .send_datagram(socket, DatagramSend::new(to.clone(), b"late"));
        assert_eq!(after, Err(Refusal::Closing));
        assert_eq!(bench.event_loop.close_datagram(socket), Err(Refusal::Closing));
        bench.until("it closes", |bench| bench.closed.contains_key(&socket));
        assert_eq!(bench.closed[&socket], None);
        for number in 0..150 {
            assert!(receive(&client) == numbered(number, 20));
        }
        let after = bench
            .event_loop
            .send_datagram(socket, DatagramSend::new(to, b"late"));
        assert_eq!(after, Err(Refusal::Stale));
        assert!(bench.event_loop.datagram_counters(socket).is_none());
    });
}

pub(crate) fn a_close_that_cannot_send_ends_at_its_deadline(level: &Level) {
    let tune = |config: &mut quoit::Config| config.close_deadline = Duration::from_millis(20);
    bench_with(level, tune, |bench| {
        let (socket, _peer) = stuck(bench, &DatagramOptions::default());
        let lent = Bytes::from(vec![1; 1000]);
        for _ in 0..100 {
            bench
                .send(socket, DatagramSend::to_connected(lent.clone()))
                .unwrap();
        }
        bench.until_quiet();
        assert!(!lent.is_unique());
        bench.close(socket);
        bench.until("it closes", |bench| bench.closed.contains_key(&socket));
        assert!(lent.is_unique());
    });
}

pub(crate) fn the_source_address_is_chosen(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("0.0.0.0:0", &DatagramOptions::default());
        let client = client("127.0.0.1:0");
        let to: Address = client.local_addr().unwrap().into();
        for source in ["127.0.0.1", "127.0.0.2", "127.1.2.3"] {
            let mut datagram = DatagramSend::new(to.clone(), b"from");
            datagram.source = Some(source.parse().unwrap());
            bench.send(socket, datagram).unwrap();
            bench.until_quiet();
            let (_, from) = uninterrupted(|| client.recv_from(&mut [0; 10]));
            assert_eq!(from.ip().to_string(), source);
        }
        let mut datagram = DatagramSend::new(to, b"from");
        // Of no host (RFC 5737).
        datagram.source = Some("192.0.2.1".parse().unwrap());
        bench.send(socket, datagram).unwrap();
        bench.until("it is told", |bench| !bench.errors.is_empty());
        assert!(
            matches!(bench.errors[0].1, DatagramError::Send { size: 4, .. }),
            "{:?}",
            bench.errors
        );
    });
}

pub(crate) fn congestion_marks_travel(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            receive_ecn: true,
            ..DatagramOptions::default()
        };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let receiver = bench.bind(address, &options);
            let sender = bench.bind(address, &DatagramOptions::default());
            bench.got.clear();
            let marks = [Ecn::Capable0, Ecn::Capable1, Ecn::NotCapable];
            for ecn in marks {
                let mut datagram = DatagramSend::new(bench.address(receiver), b"marked");
                datagram.ecn = Some(ecn);
                bench.send(sender, datagram).unwrap();
            }
            bench.wait_received(3);
            let seen: Vec<_> = bench.got.iter().map(|got| got.ecn).collect();
            assert_eq!(seen, marks.map(Some));
        }
    });
}

pub(crate) fn what_cannot_be_sent_is_refused(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            high_water: 1000,
            low_water: 10,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let to = bench.address(socket);
        let nowhere = bench.send(socket, DatagramSend::to_connected(b"?"));
        assert_eq!(nowhere, Err(Refusal::Error(Errno::new(libc::EDESTADDRREQ))));
        let large = bench.send(socket, DatagramSend::new(to.clone(), &[0; 1001][..]));
        assert_eq!(large, Err(Refusal::TooLarge));
        let mut none = DatagramSend::new(to.clone(), b"x");
        none.segment_size = Some(0);
        assert_eq!(bench.send(socket, none), Err(Refusal::Error(Errno::EINVAL)));
        // A family that the socket does not have is the kernel's to refuse, and the socket goes on.
        let v6: Address = "[::1]:9".parse().unwrap();
        bench.send(socket, DatagramSend::new(v6, b"x")).unwrap();
        bench.until("it is told", |bench| !bench.errors.is_empty());
        bench.send(socket, DatagramSend::new(to, b"to itself")).unwrap();
        bench.wait_received(1);
        let other = quoit::DatagramSocketId::from_bits(u64::MAX);
        let stale = bench
            .event_loop
            .send_datagram(other, DatagramSend::to_connected(b"x"));
        assert_eq!(stale, Err(Refusal::Stale));
    });
}

pub(crate) fn commands_do_what_methods_do(level: &Level) {
    bench(level, |bench| {
        let client = client("127.0.0.1:0");
        let to: Address = client.local_addr().unwrap().into();
        let address = "127.0.0.1:0".parse().unwrap();
        let socket = DatagramSocket::bind(&address, &DatagramOptions::default()).unwrap();
        let open = Command::OpenDatagram {
            socket: Box::new(socket),
            token: Token(4),
        };
        bench.event_loop.remote().post(open).unwrap();
        bench.until("it opens", |bench| bench.opened.len() == 1);
        let socket = bench.opened[0];
        let datagrams = vec![
            DatagramSend::new(to.clone(), b"one"),
            with_token(DatagramSend::to_connected(b"nowhere"), 6),
            DatagramSend::new(to, b"two"),
        ];
        bench.turn_with([Command::SendDatagrams { socket, datagrams }], Duration::ZERO);
        bench.until_quiet();
        assert_eq!([receive(&client), receive(&client)], [b"one", b"two"]);
        let refusal = Refusal::Error(Errno::new(libc::EDESTADDRREQ));
        assert_eq!(bench.refused, [(Token(6), Some(socket), refusal)]);
        let remote = bench.event_loop.remote();
        remote.post(Command::PauseDatagrams { socket }).unwrap();
        bench.until_quiet();
        assert!(bench.event_loop.is_datagram_paused(socket));
        remote.post(Command::ResumeDatagrams { socket }).unwrap();
        remote.post(Command::CloseDatagram { socket }).unwrap();
        remote.post(Command::CloseDatagram { socket }).unwrap();
        bench.until("it closes", |bench| bench.closed.contains_key(&socket));
        assert_eq!(bench.refused.len(), 2);
    });
}

/// What was received is sent back from where it lies, and its slot is free when that is done.
pub(crate) fn an_answer_needs_no_copy(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            slots: 2,
            gro: quoit::Gro::Transparent,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let client = bench.client(socket);
        bench.holds = true;
        for round in 0..10 {
            client.send(&numbered(round, 500)).unwrap();
            bench.wait_received(round + 1);
            let datagrams = bench.held.pop().unwrap();
            let peer = datagrams.first().peer();
            let mut answer = DatagramSend::new(peer, Payload::from(datagrams));
            answer.segment_size = Some(200);
            bench.send(socket, answer).unwrap();
            bench.until_quiet();
            for expected in numbered(round, 500).chunks(200) {
                assert!(receive(&client) == expected);
            }
        }
        bench.until("the slots are back", |bench| {
            bench.counters(socket).slots_leased == 0
        });
    });
}
