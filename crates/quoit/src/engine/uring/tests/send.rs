//! Sending.

use std::fs::File;
use std::io::{SeekFrom, Write};
use std::os::fd::AsFd;

use super::*;
use crate::engine::{Gather, Message, SendMode};
use crate::sys::SocketOption;

pub(super) fn single(bytes: &[u8]) -> Message {
    Message::Single {
        address: bytes.as_ptr(),
        length: bytes.len() as u32,
    }
}

fn gathered(pieces: &[&[u8]]) -> Message {
    let mut gather = Gather::new();
    gather.pieces.extend(pieces.iter().map(|piece| libc::iovec {
        iov_base: piece.as_ptr().cast_mut().cast(),
        iov_len: piece.len(),
    }));
    Message::Gathered(gather)
}

impl<S: UringSys> Fixture<S> {
    pub(super) fn send(&mut self, slot: u32, socket: &impl AsRawFd, message: Message, zero_copy: bool) {
        let mode = if zero_copy {
            SendMode::ZeroCopy
        } else {
            SendMode::Ordinary
        };
        self.send_as(slot, socket, message, mode);
    }

    pub(super) fn send_as(&mut self, slot: u32, socket: &impl AsRawFd, message: Message, mode: SendMode) {
        self.submit(Operation::Send {
            connection: Slot::new(slot),
            descriptor: socket.as_raw_fd(),
            message,
            mode,
        });
    }
}

fn read_exactly(socket: &mut impl Read, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn one_piece_is_sent() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        fixture.send(0, &near, single(b"hello"), false);
        let (result, gather, held) = fixture.next_sent();
        assert_eq!((result, gather.is_none(), held), (Ok(5), true, false));
        assert_eq!(read_exactly(&mut far, 5), b"hello");
        fixture.finish();
    });
}

#[test]
fn a_thousand_pieces_leave_in_order_in_one_operation() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        let sent = pattern(1024 * 10);
        let pieces: Vec<_> = sent.chunks(10).collect();
        fixture.send(0, &near, gathered(&pieces), false);
        let (result, gather, _) = fixture.next_sent();
        assert_eq!(result, Ok(sent.len()));
        assert_eq!(gather.unwrap().pieces.len(), 1024);
        assert!(read_exactly(&mut far, sent.len()) == sent);
        let counters = fixture.engine.counters().snapshot();
        assert_eq!(
            (counters.sends, counters.send_pieces, counters.sent_bytes),
            (1, 1024, sent.len() as u64)
        );
        fixture.finish();
    });
}

#[test]
fn a_send_that_does_not_fit_waits_for_room() {
    at_all_levels(|fixture| {
        let (near, mut far) = tcp_pair();
        let sent = pattern(20_000_000);
        fixture.send(0, &near, single(&sent), false);
        fixture.poll();
        let expected = sent.clone();
        let reader = thread::spawn(move || assert!(read_exactly(&mut far, expected.len()) == expected));
        assert_eq!(fixture.next_sent().0, Ok(sent.len()));
        reader.join().unwrap();
        assert_eq!(fixture.engine.counters().snapshot().short_sends, 0);
        fixture.finish();
    });
}

#[test]
fn a_cancelled_send_tells_what_was_sent() {
    // Kernels before forget what they have sent of it (`io_sendrecv_fail` is of 6.1).
    if !has(Feature::DeferTaskrun) {
        return;
    }
    at_all_levels(|fixture| {
        let (near, mut far) = tcp_pair();
        let sent = pattern(50_000_000);
        fixture.send(0, &near, single(&sent), false);
        fixture.poll();
        fixture.cancel(0, Kind::Send);
        let bytes = fixture.next_sent().0.unwrap();
        assert!(bytes > 0 && bytes < sent.len());
        assert!(read_exactly(&mut far, bytes) == sent[..bytes]);
        assert_eq!(fixture.engine.counters().snapshot().short_sends, 1);
        // With the socket full from the start there is nothing to tell.
        Linux
            .set_option(near.as_fd(), SocketOption::SendBuffer(4096))
            .unwrap();
        fixture.send(0, &near, single(&sent), false);
        fixture.poll();
        fixture.cancel(0, Kind::Send);
        let first = fixture.next_sent().0.unwrap();
        fixture.send(0, &near, single(&sent), false);
        fixture.poll();
        fixture.cancel(0, Kind::Send);
        let second = fixture.next_sent().0;
        assert!(first > 0 && second.is_ok_and(|bytes| bytes < sent.len()) || second == Err(Errno::ECANCELED));
        drop(far);
        fixture.finish();
    });
}

/// A quiet send has ended once the kernel has taken it, and its success is known when all completions were taken. Those
/// of its cancellation, which finds nothing, must not come again and again until then: more of them than the queue has
/// room for would keep it full for ever.
#[test]
fn cancelled_quiet_sends_all_end() {
    const SENDS: u32 = 100;
    let settings = UringSettings {
        submission_entries: 8,
        completion_entries: 8,
        ..SETTINGS
    };
    for without in levels() {
        let fixture = &mut Fixture::<Ring>::on(&settings, 8, without);
        let pairs: Vec<_> = (0..SENDS).map(|_| UnixStream::pair().unwrap()).collect();
        for (slot, (near, _)) in pairs.iter().enumerate() {
            fixture.send_as(slot as u32, near, single(b"quiet"), SendMode::Quiet);
        }
        for slot in 0..SENDS {
            fixture.cancel(slot, Kind::Send);
        }
        for _ in 0..TURNS {
            // Not a turn that waits: the last success is silent.
            fixture.poll();
            if fixture.pending.len() == pairs.len() {
                break;
            }
        }
        for _ in &pairs {
            assert_eq!(fixture.next_sent().0, Ok(5));
        }
        if fixture.features.contains(Feature::AttemptedSend) {
            let counters = fixture.engine.counters().snapshot();
            // One of them watches for wakes.
            assert_eq!(counters.submissions, u64::from(SENDS) + 1, "none was cancelled");
        }
        fixture.finish();
    }
}

#[test]
fn sending_to_a_closed_peer_is_an_error_and_no_signal() {
    at_all_levels(|fixture| {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        fixture.send(0, &near, single(b"x"), false);
        assert_eq!(fixture.next_sent().0, Err(Errno::EPIPE));
        fixture.send(0, &near, gathered(&[b"x", b"y"]), false);
        let (result, gather, _) = fixture.next_sent();
        assert_eq!(result, Err(Errno::EPIPE));
        assert!(gather.is_some());
        fixture.finish();
    });
}

/// Sends without a copy where the engine can; returns how many sends said that they hold their memory.
fn zero_copy_sends(fixture: &mut Fixture, message: impl Fn() -> Message, length: usize) -> u32 {
    let (near, mut far) = tcp_pair();
    let mut held = 0;
    let mut released = Vec::new();
    for _ in 0..20 {
        fixture.send(5, &near, message(), true);
        loop {
            match fixture.next() {
                Completion::Sent {
                    result, held: holds, ..
                } => {
                    assert_eq!(result, Ok(length));
                    held += u32::from(holds);
                    break;
                }
                Completion::Released { sequence, copied, .. } => released.push((sequence, copied)),
                other => panic!("{other:?}"),
            }
        }
        read_exactly(&mut far, length);
    }
    while released.len() < held as usize {
        match fixture.next() {
            Completion::Released { sequence, copied, .. } => released.push((sequence, copied)),
            other => panic!("{other:?}"),
        }
    }
    let copied = released.iter().filter(|(_, copied)| *copied).count();
    assert_eq!(
        fixture.engine.counters().snapshot().zero_copy_copied,
        copied as u64
    );
    released.sort_unstable();
    let sequences: Vec<u32> = released.iter().map(|&(sequence, _)| sequence).collect();
    assert_eq!(sequences, (0..held).collect::<Vec<_>>());
    held
}

#[test]
fn zero_copy_sends_release_their_memory_one_by_one() {
    at_all_levels(|fixture| {
        let sent = pattern(20_000);
        let held = zero_copy_sends(fixture, || single(&sent), sent.len());
        let expected = if fixture.features.contains(Feature::ZeroCopySend) {
            20
        } else {
            0
        };
        assert_eq!(held, expected);
        assert_eq!(
            fixture.engine.counters().snapshot().zero_copy_sends,
            u64::from(expected)
        );
        fixture.finish();
    });
}

#[test]
fn gathered_zero_copy_sends_give_their_gather_back() {
    at_all_levels(|fixture| {
        let sent = pattern(20_000);
        let pieces: Vec<_> = sent.chunks(1000).collect();
        zero_copy_sends(fixture, || gathered(&pieces), sent.len());
        fixture.finish();
    });
}

#[test]
fn zero_copy_from_registered_pool_memory() {
    if found().is_none() {
        return;
    }
    let settings = UringSettings {
        register_pool: true,
        ..SETTINGS
    };
    let mut fixture = Fixture::new(&settings, 8, FeatureSet::EMPTY);
    let slot = fixture.pool.take().unwrap();
    let address = fixture.pool.address(slot).cast_const();
    let message = || Message::Single {
        address,
        length: SLOT_SIZE,
    };
    zero_copy_sends(&mut fixture, message, SLOT_SIZE as usize);
    fixture.pool.give_back(slot);
    fixture.finish();
}

#[test]
fn a_socket_without_zero_copy_is_sent_to_in_the_ordinary_way() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        for _ in 0..3 {
            fixture.send(0, &near, single(b"hello"), true);
            let (result, _, held) = fixture.next_sent();
            assert_eq!((result, held), (Ok(5), false));
            fixture.send(0, &near, gathered(&[b"a", b"bc"]), true);
            let (result, gather, held) = fixture.next_sent();
            assert_eq!((result, gather.is_some(), held), (Ok(3), true, false));
            assert_eq!(read_exactly(&mut far, 8), b"helloabc");
        }
        assert_eq!(fixture.engine.counters().snapshot().zero_copy_sends, 0);
        fixture.finish();
    });
}

#[test]
fn a_file_is_sent_as_the_socket_takes_it() {
    use std::io::Seek;
    at_all_levels(|fixture| {
        let (near, mut far) = tcp_pair();
        let sent = pattern(10_000_000);
        let mut file: File = tempfile::tempfile().unwrap();
        file.write_all(&sent).unwrap();
        file.seek(SeekFrom::Start(77)).unwrap();
        let expected = sent.clone();
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            assert!(bytes == expected[3..]);
        });
        let mut offset = 3;
        loop {
            fixture.submit(Operation::SendFile {
                connection: Slot::new(0),
                descriptor: near.as_raw_fd(),
                file: file.as_raw_fd(),
                offset,
                length: 100_000_000,
            });
            let bytes = fixture.next_sent().0.unwrap();
            offset += bytes as u64;
            if bytes == 0 {
                break;
            }
        }
        assert_eq!(offset, sent.len() as u64);
        drop(near);
        reader.join().unwrap();
        fixture.finish();
    });
}

#[test]
fn a_file_to_a_full_socket_can_be_cancelled() {
    at_all_levels(|fixture| {
        let (near, _far) = tcp_pair();
        let mut file: File = tempfile::tempfile().unwrap();
        file.write_all(&pattern(10_000_000)).unwrap();
        let mut offset = 0;
        loop {
            fixture.submit(Operation::SendFile {
                connection: Slot::new(0),
                descriptor: near.as_raw_fd(),
                file: file.as_raw_fd(),
                offset,
                length: 10_000_000 - offset,
            });
            fixture.poll();
            if fixture.pending.is_empty() {
                break;
            }
            offset += fixture.next_sent().0.unwrap() as u64;
        }
        fixture.cancel(0, Kind::Send);
        // The kernel may have found a little more room in the meantime.
        let result = fixture.next_sent().0;
        assert!(result == Err(Errno::ECANCELED) || result.is_ok_and(|bytes| bytes > 0));
        fixture.finish();
    });
}

#[test]
fn a_quiet_send_that_fits_ends_with_whatever_comes_next() {
    at_all_levels(|fixture| {
        let (near, mut far) = tcp_pair();
        let (other, mut its_peer) = tcp_pair();
        fixture.receive(1, &other, 100);
        fixture.send_as(0, &near, single(b"quiet"), SendMode::Quiet);
        fixture.poll();
        assert_eq!(read_exactly(&mut far, 5), b"quiet");
        its_peer.write_all(b"!").unwrap();
        assert_eq!(fixture.next_sent().0, Ok(5));
        assert_eq!(fixture.engine.counters().snapshot().short_sends, 0);
        fixture.cancel(1, Kind::Receive);
        fixture.finish();
    });
}

#[test]
fn a_quiet_send_that_does_not_fit_is_waited_for() {
    at_all_levels(|fixture| {
        let pieces: Vec<Vec<u8>> = (0..100).map(|_| pattern(100_000)).collect();
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let whole = pieces.concat();
        for message in [single(&whole), gathered(&pieces)] {
            let (near, mut far) = tcp_pair();
            fixture.send_as(0, &near, message, SendMode::Quiet);
            fixture.poll();
            let expected = whole.clone();
            let reader = thread::spawn(move || assert!(read_exactly(&mut far, expected.len()) == expected));
            assert_eq!(fixture.next_sent().0, Ok(whole.len()));
            reader.join().unwrap();
        }
        fixture.finish();
    });
}

#[test]
fn a_quiet_send_that_fails_says_so() {
    at_all_levels(|fixture| {
        let (near, far) = tcp_pair();
        drop(far);
        // The first is answered with a reset, which a later one meets.
        let failed = (0..1000).any(|_| {
            fixture.send_as(0, &near, single(b"to nobody"), SendMode::Quiet);
            fixture.send_as(1, &near, single(b"to nobody"), SendMode::Ordinary);
            let results = [fixture.next_sent().0, fixture.next_sent().0];
            results
                .iter()
                .any(|result| matches!(result, Err(Errno::EPIPE | Errno::ECONNRESET)))
        });
        assert!(failed);
        fixture.finish();
    });
}

#[test]
fn the_bytes_of_a_quiet_send_that_fits_in_part_are_told_when_it_is_cancelled() {
    // Kernels before forget what they have sent of it (`io_sendrecv_fail` is of 6.1).
    if !has(Feature::DeferTaskrun) {
        return;
    }
    at_all_levels(|fixture| {
        let (near, mut far) = tcp_pair();
        let sent = pattern(50_000_000);
        fixture.send_as(0, &near, single(&sent), SendMode::Quiet);
        fixture.poll();
        fixture.cancel(0, Kind::Send);
        let bytes = fixture.next_sent().0.unwrap();
        assert!(bytes > 0 && bytes < sent.len());
        assert!(read_exactly(&mut far, bytes) == sent[..bytes]);
        drop(far);
        fixture.finish();
    });
}
