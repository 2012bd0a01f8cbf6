//! Sending: order, acknowledgements, limits.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use quoit::{
    CloseReason, Config, ConnectionId, Errno, FileRange, OnShort, Payload, RawPieces, Refusal, Token,
};

use crate::driver::{Driver, drive, drive_with};
use crate::levels::Level;
use crate::sockets::{Client, pattern, wait_reset};

macro_rules! sending {
    ($level:ident) => {
        tests! { $level, sending:
            room_after_sends_of_no_bytes
            acknowledged_in_order_when_free
            more_pieces_than_one_call_takes
            sends_of_no_bytes
            copied_and_lent_in_order
            received_bytes_sent_on
            at_once_what_the_kernel_takes
            at_once_in_pieces
            at_once_no_more_than_a_share_of_the_turn
            at_once_behind_nothing_alone
            at_once_to_a_peer_that_is_gone
            a_slow_reader_is_bounded_and_holds_up_nobody
            too_large_to_be_copied
        }
    };
}

/// Memory that tells when it is given back.
struct Watched {
    bytes: Vec<u8>,
    freed: Arc<AtomicU32>,
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) fn ascending(tokens: &[Token]) -> bool {
    tokens.windows(2).all(|pair| pair[0].0 < pair[1].0)
}

pub(crate) fn acknowledged_in_order_when_free(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let freed = Arc::new(AtomicU32::new(0));
        let expected = pattern(0, 40 * 5000);
        let reader = {
            let length = expected.len();
            driver.beside(move || client.receive(length))
        };
        for token in 1..=40 {
            let start = (token - 1) * 5000;
            let watched = Watched {
                bytes: expected[start..start + 5000].to_vec(),
                freed: Arc::clone(&freed),
            };
            driver
                .send(id, Bytes::from_owner(watched), Token(token as u64))
                .unwrap();
            if token % 7 == 0 {
                driver.turn(std::time::Duration::ZERO);
            }
        }
        driver.until("all is acknowledged", |driver| {
            let last = driver.seen(id).sent.last().map_or(0, |token| token.0);
            assert!(u64::from(freed.load(Ordering::SeqCst)) >= last);
            last == 40
        });
        assert!(ascending(&driver.seen(id).sent));
        assert!(driver.join(reader) == expected);
    });
}

pub(crate) fn more_pieces_than_one_call_takes(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let expected = pattern(5, 3000 * 3);
        let all = Bytes::from(expected.clone());
        for piece in 0..3000 {
            let bytes = all.slice(piece * 3..piece * 3 + 3);
            driver.send(id, bytes, Token(piece as u64 + 1)).unwrap();
        }
        driver.until("all is acknowledged", |driver| {
            driver.seen(id).sent.last() == Some(&Token(3000))
        });
        assert!(ascending(&driver.seen(id).sent));
        assert!(client.receive(9000) == expected);
        assert!(driver.event_loop.counters().sends < 30, "they leave together");
    });
}

pub(crate) fn sends_of_no_bytes(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.send(id, b"", Token(1)).unwrap();
        driver.until_quiet();
        assert!(driver.seen(id).sent.is_empty(), "copied sends are silent");
        driver.send(id, Bytes::new(), Token(2)).unwrap();
        driver.until("it is acknowledged", |driver| driver.seen(id).sent == [Token(2)]);

        driver.send(id, Bytes::from_static(b"a"), Token(3)).unwrap();
        driver.send(id, Bytes::new(), Token(4)).unwrap();
        driver.send(id, b"", Token(5)).unwrap();
        driver.send(id, Bytes::from_static(b"b"), Token(6)).unwrap();
        driver.send(id, Bytes::new(), Token(7)).unwrap();
        driver.until("all are acknowledged", |driver| {
            driver.seen(id).sent.last() == Some(&Token(7))
        });
        assert!(ascending(&driver.seen(id).sent));
        assert_eq!(client.receive(2), b"ab");

        let file = tempfile::tempfile().unwrap();
        let range = FileRange {
            file,
            offset: 5,
            length: 0,
            on_short: OnShort::Abort,
        };
        driver.send_file(id, range, Token(8)).unwrap();
        driver.until("the empty range is acknowledged", |driver| {
            driver.seen(id).sent.last() == Some(&Token(8))
        });
        driver.shutdown(id).unwrap();
        driver.until_quiet();
        client.expect_end();
    });
}

pub(crate) fn copied_and_lent_in_order(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let expected = pattern(11, 200_000);
        let mut rest = &expected[..];
        let mut length = 1;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(length.min(rest.len()));
            let payload = if length % 3 == 0 {
                Payload::Bytes(Bytes::copy_from_slice(now))
            } else {
                Payload::Copy(now)
            };
            driver.send(id, payload, Token(length as u64)).unwrap();
            if length % 50 == 0 {
                driver.turn(std::time::Duration::ZERO);
            }
            rest = later;
            length += 7;
        }
        let reader = driver.beside(move || client.receive(200_000));
        assert!(driver.join(reader) == expected);
        assert!(ascending(&driver.seen(id).sent));
    });
}

/// Leases sent on are returned when they are sent, in the middle of other sends and cut at both ends.
pub(crate) fn received_bytes_sent_on(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.on_data = crate::driver::OnData::Hold;
        client.send(b"[one]");
        driver.wait_received(id, 5);
        let (_, mut lease) = driver.held.pop_front().unwrap();
        lease.advance(1);
        lease.truncate(3);
        driver.send(id, b"<", Token::NONE).unwrap();
        driver.send(id, lease, Token(3)).unwrap();
        driver.send(id, b">", Token::NONE).unwrap();
        driver.until("it is acknowledged", |driver| driver.seen(id).sent == [Token(3)]);
        assert_eq!(client.receive(5), b"<one>");
        driver.turn(std::time::Duration::ZERO);
        assert_eq!(driver.event_loop.counters().pool_leased, 0);
    });
}

/// Sends until nothing more is taken, and adds what was to `taken`.
pub(crate) fn fill(driver: &mut Driver, id: ConnectionId, taken: &mut Vec<u8>) {
    let high_water = driver.event_loop.config().high_water as usize;
    loop {
        let refused_at = taken.len();
        loop {
            let piece = pattern(taken.len(), 4000);
            match driver.send(id, &piece[..], Token::NONE) {
                Ok(()) => taken.extend(piece),
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Full);
                    break;
                }
            }
            assert!(driver.event_loop.queued(id) <= high_water);
        }
        if taken.len() == refused_at {
            return;
        }
        driver.until_quiet();
    }
}

pub(crate) fn at_once_what_the_kernel_takes(level: &Level) {
    let uring = level.is_uring();
    let tune = move |config: &mut Config| {
        if !uring {
            // Epoll copies whatever is asked for, so this keeps nothing from leaving at once.
            config.zero_copy_threshold = Some(1);
        }
    };
    drive_with(level, tune, |driver| {
        let (mut client, id) = driver.new_pair();
        let short = pattern(3, 20_000);
        let taken = driver.event_loop.try_send(id, &short).unwrap();
        assert_eq!(taken > 0, level.sends_at_once(short.len()));
        let mut sent = short[..taken].to_vec();
        let piece = pattern(3, 50_000);
        // More than the buffers of both sockets hold: some call finds that not all fits.
        let rest = loop {
            let taken = driver.event_loop.try_send(id, &piece).unwrap();
            sent.extend_from_slice(&piece[..taken]);
            if taken < piece.len() {
                break &piece[taken..];
            }
        };
        assert_eq!(!sent.is_empty(), level.sends_at_once(piece.len()));
        assert_eq!(driver.event_loop.try_send(id, rest), Ok(0), "the socket is full");
        assert_eq!(driver.event_loop.queued(id), 0, "nothing is kept");
        assert_eq!(driver.event_loop.try_send(id, b""), Ok(0));
        driver.send(id, rest, Token::NONE).unwrap();
        sent.extend_from_slice(rest);
        let length = sent.len();
        let reader = driver.beside(move || (client.receive(length), client));
        let (received, _client) = driver.join(reader);
        assert!(received == sent, "other bytes arrive");
        driver.wait_flushed(id);
        assert_eq!(driver.event_loop.counters().sent_bytes, length as u64);
    });
}

pub(crate) fn at_once_in_pieces(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let (first, second) = (pattern(3, 4_000), pattern(5, 5_000));
        let pieces = [IoSlice::new(&first), IoSlice::new(&[]), IoSlice::new(&second)];
        let taken = driver.event_loop.try_send_gathered(id, &pieces).unwrap();
        assert_eq!(taken > 0, level.sends_pieces_at_once(9_000));
        let mut sent = [first, second].concat();
        driver.send(id, &sent[taken..], Token::NONE).unwrap();
        driver.wait_flushed(id);
        assert_eq!(driver.event_loop.try_send_gathered(id, &[]), Ok(0));
        // One more piece than a call takes, each of 64 bytes.
        let many = pattern(7, 64 * (RawPieces::MOST + 1));
        let pieces: Vec<_> = many.chunks(64).map(IoSlice::new).collect();
        let taken = driver.event_loop.try_send_gathered(id, &pieces).unwrap();
        // A connection on which sending without a copy turned out to copy sends at once from then on.
        assert!(taken > 0 || !level.sends_pieces_at_once(many.len()));
        assert!(
            taken <= 64 * RawPieces::MOST,
            "{taken} bytes are more than it takes"
        );
        driver.send(id, &many[taken..], Token::NONE).unwrap();
        // Not past what is queued.
        assert_eq!(driver.event_loop.try_send_gathered(id, &pieces), Ok(0));
        sent.extend(&many);
        let length = sent.len();
        let reader = driver.beside(move || (client.receive(length), client));
        let (received, _client) = driver.join(reader);
        assert!(received == sent, "other bytes arrive");
        driver.close(id, None).unwrap();
        assert_eq!(
            driver.event_loop.try_send_gathered(id, &pieces),
            Err(Refusal::Closing)
        );
    });
}

/// A reader that takes all at once does not keep the loop from the others: who sends as long as the kernel takes something
/// comes to an end in each turn.
pub(crate) fn at_once_no_more_than_a_share_of_the_turn(level: &Level) {
    const SHARE: usize = 4 << 20;
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let piece = pattern(0, 128 * 1024);
        if !level.sends_at_once(piece.len()) {
            return;
        }
        for _turn in 0..3 {
            let mut sent = 0;
            loop {
                let taken = driver.event_loop.try_send(id, &piece).unwrap();
                if taken == 0 {
                    break;
                }
                sent += taken;
                assert!(sent < SHARE + piece.len(), "it would go on for ever");
                client.receive(taken);
            }
            assert!(
                sent >= SHARE,
                "all that a turn may was read, and {sent} bytes were taken"
            );
            // What does not leave at once is queued, and leaves with the turn.
            driver.send(id, b"rest", Token::NONE).unwrap();
            driver.wait_flushed(id);
            assert_eq!(client.receive(4), b"rest");
        }
    });
}

pub(crate) fn at_once_behind_nothing_alone(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.send(id, b"first", Token::NONE).unwrap();
        assert_eq!(driver.event_loop.try_send(id, b"second"), Ok(0));
        driver.wait_flushed(id);
        let taken = driver.event_loop.try_send(id, b"second").unwrap();
        driver.send(id, &b"second"[taken..], Token::NONE).unwrap();
        driver.wait_flushed(id);
        assert_eq!(client.receive(11), b"firstsecond");
        driver.close(id, None).unwrap();
        assert_eq!(driver.event_loop.try_send(id, b"third"), Err(Refusal::Closing));
        let reader = driver.beside(move || client.expect_end());
        driver.wait_closed(id);
        driver.join(reader);
        assert_eq!(driver.event_loop.try_send(id, b"third"), Err(Refusal::Stale));
    });
}

pub(crate) fn at_once_to_a_peer_that_is_gone(level: &Level) {
    drive(level, |driver| {
        let (client, id) = driver.new_pair();
        // Paused, so that it is the send which finds the reset.
        driver.pause(id).unwrap();
        driver.until_quiet();
        client.reset();
        wait_reset(driver.event_loop.descriptor(id).unwrap());
        let lost = pattern(3, 50_000);
        let mut found = driver.event_loop.try_send(id, &lost);
        if found == Ok(0) {
            assert!(!level.sends_at_once(lost.len()));
            found = driver.send(id, lost.as_slice(), Token::NONE).map(|()| 0);
            assert_eq!(found, Ok(0));
        } else {
            assert_eq!(found, Err(Refusal::Error(Errno::ECONNRESET)));
            assert_eq!(driver.event_loop.try_send(id, b"again"), Err(Refusal::Stale));
        }
        assert_eq!(driver.wait_closed(id), CloseReason::Reset);
    });
}

pub(crate) fn a_slow_reader_is_bounded_and_holds_up_nobody(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let (mut other, other_id) = driver.new_pair();
        let mut expected = Vec::new();
        let mut echoed = 0;
        let before = loop {
            fill(driver, id, &mut expected);
            // Lent memory may pass the mark once.
            let below = !driver.event_loop.is_full(id);
            let last = b"more than fits".repeat(1000);
            assert_eq!(driver.send(id, last.clone(), Token(1)).is_ok(), below);
            if below {
                expected.extend(last);
            }
            assert_eq!(
                driver.send(id, Bytes::from_static(b"x"), Token(2)),
                Err(Refusal::Full)
            );
            let queued = driver.event_loop.queued(id);
            let before = driver.seen(id).writable;
            for round in 0..50 {
                other.send(&pattern(round, 100));
                echoed += 100;
                driver.wait_received(other_id, echoed);
                driver
                    .send(other_id, &pattern(round, 100)[..], Token::NONE)
                    .unwrap();
                driver.wait_flushed(other_id);
                assert_eq!(other.receive(100), pattern(round, 100));
            }
            if driver.event_loop.queued(id) == queued {
                assert_eq!(driver.seen(id).writable, before, "nobody has read");
                break before;
            }
            // The kernel had not taken all yet that its buffers hold: acknowledgements make room later, and the thread
            // that takes submissions (`IORING_SETUP_SQPOLL`) may have been waiting for a processor. They hold so much
            // and no more, so this ends.
            assert!(driver.event_loop.queued(id) < queued);
        };

        let reader = driver.beside(move || {
            let bytes = client.receive(expected.len());
            (bytes == expected, client)
        });
        driver.until("there is room again", |driver| {
            driver.seen(id).writable == before + 1
        });
        assert!(driver.event_loop.queued(id) <= driver.event_loop.config().low_water as usize);
        let (same, _client) = driver.join(reader);
        assert!(same, "other bytes arrive");
        driver.until_quiet();
        assert_eq!(driver.seen(id).writable, before + 1);
    });
}

pub(crate) fn too_large_to_be_copied(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let high_water = driver.event_loop.config().high_water as usize;
        let large = vec![1; high_water + 1];
        assert_eq!(driver.send(id, &large[..], Token::NONE), Err(Refusal::TooLarge));
        assert_eq!(driver.send(id, &large[..high_water], Token::NONE), Ok(()));
        // Lent memory may pass the mark once.
        driver.wait_flushed_by(id, &mut client, high_water);
        assert_eq!(driver.send(id, large.clone(), Token(1)), Ok(()));
        driver.wait_flushed_by(id, &mut client, high_water + 1);
    });
}

impl Driver {
    /// Turns until the client has received `count` bytes and the queue is empty.
    fn wait_flushed_by(&mut self, id: ConnectionId, client: &mut Client, count: usize) {
        let mut reader = client.try_clone();
        let reader = self.beside(move || reader.receive(count));
        self.join(reader);
        self.wait_flushed(id);
    }
}

/// A queue that is full of sends of no bytes drains without a system call, and says so all the same.
pub(crate) fn room_after_sends_of_no_bytes(level: &Level) {
    let tune = |config: &mut Config| config.send_pieces = 4;
    drive_with(level, tune, |driver| {
        let (_client, id) = driver.new_pair();
        for token in 1..=4 {
            driver.send(id, Bytes::new(), Token(token)).unwrap();
        }
        assert_eq!(driver.send(id, Bytes::new(), Token(5)), Err(Refusal::Full));
        driver.until("it may send again", |driver| driver.seen(id).writable == 1);
        assert_eq!(driver.seen(id).sent, [Token(4)]);
    });
}
