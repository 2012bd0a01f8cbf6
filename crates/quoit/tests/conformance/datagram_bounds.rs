//! What is bounded of a datagram socket, and how: the work of a turn, the memory of its slots and of the kernel, and when
//! receiving goes on that has stopped.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use quoit::{Address, Command, DatagramOptions, DatagramSend, DatagramSocketId, FeatureSet, Gro};

use crate::datagram_bench::{Bench, bench, client, numbered, receive, set, uninterrupted};
use crate::datagram_receiving::loopback_joins;
use crate::levels::Level;
use crate::sockets::PATIENCE;

macro_rules! datagram_bounds {
    ($level:ident) => {
        tests! { $level, datagram_bounds:
            batches_are_counted_as_turns_bring_them
            a_full_completion_queue_does_not_end_receiving
            receiving_goes_on_with_a_quarter_of_the_slots
            the_quiet_one_is_answered_within_the_bound_of_fairness
            the_kernel_holds_no_more_than_the_receive_buffer
            joined_ones_fill_a_slot_whatever_the_longest_datagram
        }
    };
}

/// Counted again from outside: the turns that brought any, and the most that one brought.
pub(crate) fn batches_are_counted_as_turns_bring_them(level: &Level) {
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = bench.client(socket);
        let (mut batches, mut largest) = (0, 0);
        for burst in [1, 5, 30] {
            for number in 0..burst {
                client.send(&numbered(number, 10)).unwrap();
            }
            let all = bench.got.len() + burst;
            let since = Instant::now();
            while bench.got.len() < all {
                assert!(since.elapsed() < PATIENCE, "still waiting for the burst");
                let before = bench.got.len();
                bench.turn(Duration::from_millis(5));
                let brought = (bench.got.len() - before) as u64;
                batches += u64::from(brought > 0);
                largest = largest.max(brought);
            }
            let counters = bench.counters(socket);
            assert_eq!(
                (counters.receive_batches, counters.largest_batch),
                (batches, largest),
                "{burst}"
            );
        }
        assert_eq!(bench.counters(socket).received_buffers, 36);
        assert!(batches >= 3);
    });
}

/// With so many slots nothing but a full completion queue ends a multishot.
pub(crate) fn a_full_completion_queue_does_not_end_receiving(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            slots: 512,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let client = bench.client(socket);
        for round in 0..4 {
            for number in 0..100 {
                client.send(&numbered(number, 50)).unwrap();
            }
            bench.wait_received((round + 1) * 100);
        }
        let expected = (0..4).flat_map(|_| (0..100).map(|number| numbered(number, 50)));
        assert!(bench.payloads().into_iter().eq(expected));
        let counters = bench.counters(socket);
        assert_eq!((counters.pauses, counters.kernel_drops), (0, 0));
        let config = level.config();
        let multishot = level.features() == Some(FeatureSet::ALL);
        if multishot && config.completion_queue < 100 && config.kernel_poll.is_none() {
            // In each round at least once: 100 completions do not fit.
            assert!(counters.arms > 4, "{counters:?}");
        }
    });
}

/// A turn that has something to report is soon followed by another, so a socket that ran out of slots waits for a quarter of
/// them.
pub(crate) fn receiving_goes_on_with_a_quarter_of_the_slots(level: &Level) {
    bench(level, |bench| {
        let gone = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        bench.close(gone);
        bench.until("it closes", |bench| bench.closed.contains_key(&gone));
        // What is refused is reported.
        let turn =
            |bench: &mut Bench| bench.turn_with([Command::PauseDatagrams { socket: gone }], Duration::ZERO);

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
        let counters = bench.counters(socket);
        assert_eq!((counters.pauses, counters.slots_leased), (1, 16));

        bench.held.truncate(13);
        for _ in 0..5 {
            turn(bench);
        }
        let three_are_free = bench.counters(socket);
        assert_eq!(three_are_free.slots_leased, 13);
        assert_eq!(three_are_free.arms, counters.arms, "three are no quarter");
        bench.held.truncate(12);
        turn(bench);
        assert!(bench.counters(socket).arms > counters.arms, "four are");
        bench.wait_received(20);
        assert_eq!(bench.payloads().concat(), (0..20).collect::<Vec<u8>>());
        assert_eq!(bench.refused.len(), 6);
    });
}

/// Datagrams of one socket that a turn takes at most, of which others wait: by default, on either engine.
const A_TURN: usize = 64;
/// Slots of the flooded socket.
const SLOTS: usize = 4 * A_TURN;

pub(crate) fn the_quiet_one_is_answered_within_the_bound_of_fairness(level: &Level) {
    bench(level, |bench| {
        // Slots for several turns: not they, but the share of a turn is what bounds it.
        let options = DatagramOptions {
            slots: SLOTS as u32,
            ..DatagramOptions::default()
        };
        let flooded = bench.bind("127.0.0.1:0", &options);
        let quiet = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let flood = bench.client(flooded);
        let asks = bench.client(quiet);
        asks.set_nonblocking(true).unwrap();
        // On io_uring, what the kernel has put into slots before the question comes first, however many turns that takes.
        // Then the turns that learn of the question and read it, that in which the answer leaves, and one in which the
        // kernel comes to it.
        let most = if level.is_uring() { SLOTS } else { 0 } + 4 * A_TURN;
        // A call that sends may leave the delivery to a thread of the kernel's, which goes through what was sent in order:
        // when a datagram of this thread's to itself has come, so has what it sent before, the question and the answer.
        let here = client("127.0.0.1:0");
        here.connect(here.local_addr().unwrap()).unwrap();
        let delivered = || {
            here.send(b"?").unwrap();
            assert_eq!(uninterrupted(|| here.recv(&mut [0])), 1);
        };
        // Twice what a turn takes comes before each turn, so that more and more waits until the kernel drops it.
        let turn = |bench: &mut Bench| {
            for _ in 0..2 * A_TURN {
                flood.send(b"flood").unwrap();
            }
            delivered();
            bench.turn(Duration::from_millis(5));
            delivered();
        };
        for _ in 0..5 {
            turn(bench);
        }
        for number in 0..20_u8 {
            let before = bench.got.len();
            asks.send(&[number]).unwrap();
            let mut answer = [0; 8];
            loop {
                turn(bench);
                if let Some(at) = bench.got[before..].iter().position(|got| got.socket == quiet) {
                    let question = bench.got.remove(before + at);
                    let answer = DatagramSend::new(question.peer, question.bytes);
                    bench.send(quiet, answer).unwrap();
                }
                let between = bench.got.len() - before;
                // What a thread of the kernel's submits waits for that thread to run, however many turns go by.
                assert!(
                    between <= most || level.config().kernel_poll.is_some(),
                    "{between} of the flood came between a question and its answer"
                );
                match asks.recv(&mut answer) {
                    Ok(length) => {
                        assert_eq!(answer[..length], [number]);
                        break;
                    }
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
        }
        let counters = bench.counters(flooded);
        assert!(counters.largest_batch <= A_TURN as u64, "{counters:?}");
        assert!(counters.kernel_drops > 0, "it was flooded: {counters:?}");
        bench.until("the flood has ended", |bench| {
            bench.counters(flooded).slots_leased == 0
        });
    });
}

/// What the kernel holds for a socket, and its bound, in bytes with the kernel's overhead (SO_MEMINFO, socket(7)).
fn kernel_memory(bench: &Bench, socket: DatagramSocketId) -> (u32, u32) {
    let mut places = [0_u32; 9];
    let mut length = size_of_val(&places) as libc::socklen_t;
    let descriptor = bench.event_loop.datagram_descriptor(socket).unwrap().as_raw_fd();
    // SAFETY: the call writes at most `length` bytes, the size of `places`.
    let result = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            places.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    (places[0], places[1])
}

/// Its bound is the receive buffer, which the kernel doubles; past that no more than the packet that is being added.
pub(crate) fn the_kernel_holds_no_more_than_the_receive_buffer(level: &Level) {
    const BUFFER: u32 = 65_536;
    bench(level, |bench| {
        for (size, gro, paused) in [
            (100, Gro::Off, true),
            (9_000, Gro::Off, true),
            (1_000, Gro::Off, false),
            (40_000, Gro::Transparent, true),
        ] {
            let options = DatagramOptions {
                receive_buffer: Some(BUFFER),
                gro,
                paused,
                ..DatagramOptions::default()
            };
            let socket = bench.bind("127.0.0.1:0", &options);
            let client = bench.client(socket);
            if gro != Gro::Off {
                segment(&client, 1000);
            }
            // By what was asked for, and not by what the kernel says that it was told.
            let bound = 2 * BUFFER;
            let packet = 2 * size + 4096;
            let mut most = 0;
            for number in 0..1_000 {
                client.send(&numbered(number, size as usize)).unwrap();
                let (held, _) = kernel_memory(bench, socket);
                assert!(held <= bound + packet, "{held} of {bound}, {size} bytes");
                most = most.max(held);
                if number % 300 == 0 {
                    bench.turn(Duration::ZERO);
                }
            }
            assert!(bench.counters(socket).kernel_drops > 0, "{size}");
            // It drops what does not fit: so it held all but one packet at least.
            assert!(most + packet > bound, "{most} of {bound}, {size} bytes");
            assert_eq!(kernel_memory(bench, socket).1, bound);
            bench.close(socket);
            bench.until("it closes", |bench| bench.closed.contains_key(&socket));
        }
    });
}

fn segment(client: &std::net::UdpSocket, size: i32) {
    const UDP_SEGMENT: i32 = 103;
    set(client, libc::SOL_UDP, UDP_SEGMENT, size);
}

/// A joined buffer takes up to 64 KiB, and `max_datagram` is of single ones.
pub(crate) fn joined_ones_fill_a_slot_whatever_the_longest_datagram(level: &Level) {
    bench(level, |bench| {
        for max_datagram in [100, 65_507] {
            let options = DatagramOptions {
                gro: Gro::Transparent,
                max_datagram,
                ..DatagramOptions::default()
            };
            let socket = bench.bind("127.0.0.1:0", &options);
            let client = bench.client(socket);
            bench.got.clear();
            // As many and as long ones as the kernel takes in a call.
            segment(&client, 1039);
            let bytes = numbered(3, 63 * 1039);
            assert_eq!(client.send(&bytes).unwrap(), 65_457);
            bench.wait_received(63);
            assert!(bench.payloads().iter().map(Vec::as_slice).eq(bytes.chunks(1039)));
            assert!(bench.got.iter().all(|got| !got.truncated));
            let counters = bench.counters(socket);
            let joined = if loopback_joins() { 1 } else { 63 };
            assert_eq!((counters.received, counters.received_buffers), (63, joined));
            // One alone that is longer than `max_datagram` comes whole as well: the slot is there.
            segment(&client, 0);
            let address: Address = client.local_addr().unwrap().into();
            client.send(&numbered(4, 65_507)).unwrap();
            bench.wait_received(64);
            let got = &bench.got[63];
            assert_eq!((got.bytes.len(), &got.peer), (65_507, &address));
            assert_eq!(bench.counters(socket).truncated, 0);
            let back = DatagramSend::new(address, b"still there");
            bench.send(socket, back).unwrap();
            bench.flush(socket);
            assert_eq!(receive(&client), b"still there");
        }
    });
}
