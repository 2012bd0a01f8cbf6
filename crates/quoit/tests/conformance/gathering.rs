//! Sends of many lent pieces at once.

use std::io::IoSlice;

use bytes::Bytes;
use quoit::{Command, ConnectionId, Errno, RawPieces, Refusal, Token};

use crate::driver::{Driver, drive};
use crate::levels::Level;
use crate::sockets::pattern;

macro_rules! gathering {
    ($level:ident) => {
        tests! { $level, gathering:
            pieces_among_other_sends
            pieces_that_are_long
            pieces_told_of_as_they_leave
            pieces_of_no_bytes
            more_pieces_than_may_be
            pieces_behind_a_full_queue
            pieces_from_another_thread
        }
    };
}

/// Sends what `lengths` cut from the front of `bytes`, which the caller keeps until all is sent.
fn gather(
    driver: &mut Driver,
    id: ConnectionId,
    mut bytes: &[u8],
    lengths: &[usize],
    token: Token,
) -> Result<(), Refusal> {
    let mut list = Vec::new();
    for &length in lengths {
        let (now, rest) = bytes.split_at(length);
        list.push(IoSlice::new(now));
        bytes = rest;
    }
    // SAFETY: the callers wait for the acknowledgement, or for the peer to have all.
    driver.send_gathered(id, unsafe { RawPieces::new(&list) }, token)
}

pub(crate) fn pieces_among_other_sends(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let expected = pattern(7, 60_000);
        let reader = driver.beside(move || client.receive(60_000));
        for (at, part) in expected.chunks(600).enumerate() {
            let token = Token(at as u64 + 1);
            match at % 5 {
                0 => driver.send(id, part, Token::NONE).unwrap(),
                1 => driver.send(id, Bytes::copy_from_slice(part), token).unwrap(),
                2 => gather(driver, id, part, &[600], token).unwrap(),
                3 => gather(driver, id, part, &[1, 0, 199, 300, 0, 100], Token::NONE).unwrap(),
                _ => gather(driver, id, part, &[40; 15], token).unwrap(),
            }
            if at % 23 == 0 {
                driver.turn(std::time::Duration::ZERO);
            }
        }
        assert!(driver.join(reader) == expected);
        driver.until("all is acknowledged", |driver| {
            driver.seen(id).sent.last() == Some(&Token(100))
        });
        assert!(driver.seen(id).sent.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(driver.event_loop.queued(id), 0);
        assert_eq!(driver.event_loop.counters().sent_bytes, 60_000);
    });
}

/// More than the sockets hold: the kernel stops in the middle of a piece.
pub(crate) fn pieces_that_are_long(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let bytes = pattern(1, 12_000_000);
        let lengths: Vec<usize> = (0..400).map(|at| if at % 2 == 0 { 59_999 } else { 1 }).collect();
        gather(driver, id, &bytes, &lengths, Token(1)).unwrap();
        driver.until_quiet();
        assert!(driver.seen(id).sent.is_empty(), "the peer has not received yet");
        assert!(driver.event_loop.queued(id) > 0);
        let reader = driver.beside(move || client.receive(12_000_000));
        assert!(driver.join(reader) == bytes);
        driver.until("it is acknowledged", |driver| driver.seen(id).sent == [Token(1)]);
        assert_eq!(driver.event_loop.queued(id), 0);
    });
}

/// What the peer has taken is free long before all of it has left, and whoever watches sees it go.
pub(crate) fn pieces_told_of_as_they_leave(level: &Level) {
    const BYTES: usize = 12_000_000;
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let whole = Token(100 + BYTES as u64);
        let expected = pattern(1, BYTES);
        let mut bytes = expected.clone();
        let (front, back) = bytes.split_at(BYTES / 3);
        let list = [IoSlice::new(front), IoSlice::new(back)];
        // SAFETY: what is told of is not sent any more, and the rest stays as it is.
        let pieces = || unsafe { RawPieces::new(&list) };
        let short = driver
            .event_loop
            .send_gathered(id, pieces().with_progress(), Token(BYTES as u64 - 1));
        assert_eq!(short, Err(Errno::EINVAL.into()));
        driver.send_with_progress(id, pieces(), whole);
        let gone = |driver: &Driver| match driver.seen(id).sent.last() {
            Some(told) => (told.0 - 100) as usize,
            None => 0,
        };
        let in_parts = level.config().zero_copy_threshold.is_none();
        driver.until("the sockets are full", |driver| {
            driver.until_quiet();
            gone(driver) > 0 || !in_parts
        });
        let before = gone(driver);
        assert!(before < BYTES, "the peer has not received yet");
        let mut received = Vec::new();
        if in_parts {
            assert_eq!(before, BYTES - driver.event_loop.queued(id));
            bytes[..before].fill(0xff);
            received = client.receive(before);
            driver.until("more of it goes", |driver| gone(driver) > before);
        }
        let reader = driver.beside(move || client.receive(BYTES - before));
        received.append(&mut driver.join(reader));
        assert!(received == expected);
        driver.until("it is acknowledged", |driver| {
            driver.seen(id).sent.last() == Some(&whole)
        });
        assert_eq!(driver.event_loop.queued(id), 0);
    });
}

pub(crate) fn pieces_of_no_bytes(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        gather(driver, id, b"", &[], Token(1)).unwrap();
        gather(driver, id, b"", &[0, 0], Token(2)).unwrap();
        driver.until("both are acknowledged", |driver| {
            driver.seen(id).sent.last() == Some(&Token(2))
        });
        gather(driver, id, b"ab", &[0, 1, 0, 1, 0], Token(3)).unwrap();
        driver.until("it is acknowledged", |driver| {
            driver.seen(id).sent.last() == Some(&Token(3))
        });
        assert_eq!(client.receive(2), b"ab");
    });
}

pub(crate) fn more_pieces_than_may_be(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let bytes = pattern(2, RawPieces::MOST + 1);
        let lengths = vec![1; RawPieces::MOST + 1];
        assert_eq!(
            gather(driver, id, &bytes, &lengths, Token(1)),
            Err(Refusal::TooLarge)
        );
        gather(driver, id, &bytes, &lengths[1..], Token(2)).unwrap();
        driver.until("it is acknowledged", |driver| driver.seen(id).sent == [Token(2)]);
        assert!(client.receive(RawPieces::MOST) == bytes[..RawPieces::MOST]);
    });
}

pub(crate) fn pieces_behind_a_full_queue(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        // Lent memory may pass the mark once.
        let bytes = pattern(3, 8_000_000);
        gather(driver, id, &bytes, &[4_000_000, 4_000_000], Token(1)).unwrap();
        driver.until_quiet();
        assert_eq!(gather(driver, id, b"x", &[1], Token(2)), Err(Refusal::Full));
        let reader = driver.beside(move || (client.receive(8_000_000), client));
        let (received, mut client) = driver.join(reader);
        assert!(received == bytes);
        driver.until("there is room", |driver| driver.seen(id).writable == 1);
        gather(driver, id, b"x", &[1], Token(3)).unwrap();
        driver.until("it is acknowledged", |driver| {
            driver.seen(id).sent.last() == Some(&Token(3))
        });
        assert_eq!(client.receive(1), b"x");
        driver.abort(id).unwrap();
        assert_eq!(gather(driver, id, b"x", &[1], Token(4)), Err(Refusal::Closing));
        driver.wait_closed(id);
        assert_eq!(gather(driver, id, b"x", &[1], Token(5)), Err(Refusal::Stale));
    });
}

pub(crate) fn pieces_from_another_thread(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let bytes = pattern(4, 1_000);
        let (one, two) = bytes.split_at(300);
        let remote = driver.event_loop.remote();
        {
            let list = [IoSlice::new(one), IoSlice::new(two)];
            // SAFETY: the memory stays until the acknowledgement below; the list does not.
            let pieces = unsafe { RawPieces::new(&list).into_owned() };
            assert_eq!((pieces.count(), pieces.bytes()), (2, 1_000));
            remote
                .post(Command::SendGathered {
                    connection: id,
                    pieces,
                    token: Token(9),
                })
                .unwrap();
        }
        driver.lent_elsewhere(id, Token(9));
        driver.until("it is acknowledged", |driver| driver.seen(id).sent == [Token(9)]);
        assert!(client.receive(1_000) == bytes);
    });
}
