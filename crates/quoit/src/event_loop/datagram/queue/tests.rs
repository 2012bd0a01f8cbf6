//! The queue by itself: what leaves with which batch, in which order, and what is made again.

use proptest::prelude::*;

use super::*;

const NOW: Time = Time::from_nanos(1);

fn send(bytes: &[u8], segment_size: Option<u16>, token: u64) -> DatagramSend<'_> {
    DatagramSend {
        segment_size,
        token: Token(token),
        ..DatagramSend::to_connected(bytes)
    }
}

/// To the peer of the socket.
fn push(queue: &mut Queue, send: DatagramSend<'_>) -> bool {
    let to_peer = |heading: &mut Heading, _: &DatagramSend<'_>| {
        assert!(heading.to.is_empty(), "no other was queued");
        Ok::<_, Errno>(())
    };
    queue.push(send, to_peer).unwrap()
}

/// The bytes of each message.
fn messages(batch: &DatagramBatch) -> Vec<Vec<u8>> {
    let piece = |message: &libc::mmsghdr| {
        // SAFETY: the queue has pointed the header at one live payload, and that at live bytes.
        unsafe {
            assert_eq!(message.msg_hdr.msg_iovlen, 1);
            let payload = &*message.msg_hdr.msg_iov;
            std::slice::from_raw_parts(payload.iov_base.cast::<u8>(), payload.iov_len).to_vec()
        }
    };
    batch.messages.iter().map(piece).collect()
}

fn lengths(batch: &DatagramBatch) -> Vec<usize> {
    messages(batch).iter().map(Vec::len).collect()
}

fn results(batch: &mut DatagramBatch, result: impl Fn(usize) -> Result<u32, Errno>) {
    batch.results = (0..batch.messages.len())
        .map(|index| Some(result(index)))
        .collect();
}

#[test]
fn a_refusal_to_cut_sends_one_by_one_and_is_remembered() {
    let mut queue = Queue::new(10_000, 100, 16).unwrap();
    let mut batch = DatagramBatch::default();
    let bytes: Vec<u8> = (0..2500u32).map(|index| index as u8).collect();
    assert!(push(&mut queue, send(&bytes, Some(1000), 7)));
    queue.fill(NOW, &mut batch);
    assert_eq!(lengths(&batch), [2500]);
    results(&mut batch, |_| Err(Errno::EINVAL));
    let tally = queue.complete(NOW, &batch, |_| panic!("it is sent again"));
    assert_eq!((tally.uncut, tally.datagrams), (1, 0));

    queue.fill(NOW, &mut batch);
    assert_eq!(lengths(&batch), [1000, 1000, 500]);
    assert_eq!(messages(&batch).concat(), bytes);
    results(&mut batch, |_| Ok(1));
    let mut ended = Vec::new();
    let tally = queue.complete(NOW, &batch, |outcome| ended.push(outcome));
    assert_eq!((tally.datagrams, tally.bytes, tally.messages), (3, 2500, 3));
    let outcome = Outcome {
        token: Token(7),
        length: 2500,
        error: None,
    };
    assert_eq!((ended, queue.queued()), (vec![outcome], 0));

    // Smaller ones are still tried, until the device says that it cannot at all.
    for (size, errno, expected) in [(1000, None, 2), (999, Some(libc::EIO), 1), (10, None, 64)] {
        assert!(push(&mut queue, send(&bytes[..1900], Some(size), 0)));
        queue.fill(NOW, &mut batch);
        assert_eq!(batch.messages.len(), expected, "{size}");
        results(&mut batch, |_| errno.map_or(Ok(1), |code| Err(Errno::new(code))));
        queue.complete(NOW, &batch, |_| ());
        while !queue.is_empty() {
            queue.fill(NOW, &mut batch);
            results(&mut batch, |_| Ok(1));
            queue.complete(NOW, &batch, |_| ());
        }
    }
}

#[test]
fn a_refusal_to_cut_holds_for_its_route_alone() {
    let mut queue = Queue::new(100_000, 100, 16).unwrap();
    let mut batch = DatagramBatch::default();
    let to = |address: &str, interface| {
        let send = DatagramSend {
            interface,
            ..send(&[1; 3000], Some(1000), 0)
        };
        (address.parse().unwrap(), send)
    };
    let mut round = |(to, send): (_, DatagramSend<'_>), result: Result<u32, Errno>| {
        let head = |heading: &mut Heading, _: &DatagramSend<'_>| {
            heading.to.set_internet(to);
            Ok::<_, Errno>(())
        };
        assert_eq!(queue.push(send, head), Ok(true));
        queue.fill(NOW, &mut batch);
        let pieces = batch.messages.len();
        results(&mut batch, |_| result);
        queue.complete(NOW, &batch, |_| ());
        while !queue.is_empty() {
            queue.fill(NOW, &mut batch);
            results(&mut batch, |_| Ok(1));
            queue.complete(NOW, &batch, |_| ());
        }
        pieces
    };
    assert_eq!(round(to("192.0.2.1:53", None), Err(Errno::new(libc::EIO))), 1);
    // Whatever its port; and not another host, nor the same by another interface.
    assert_eq!(round(to("192.0.2.1:5353", None), Ok(1)), 3);
    assert_eq!(round(to("192.0.2.2:53", None), Ok(1)), 1);
    assert_eq!(round(to("192.0.2.1:53", Some(4)), Ok(1)), 1);
    // The scope of an address is an interface.
    assert_eq!(round(to("[fe80::1%3]:53", None), Err(Errno::new(libc::EIO))), 1);
    assert_eq!(round(to("[fe80::1%3]:53", None), Ok(1)), 3);
    assert_eq!(round(to("[fe80::1%4]:53", None), Ok(1)), 1);
    assert_eq!(round(to("[fe80::1%4]:53", Some(3)), Ok(1)), 3);
}

#[test]
fn a_failure_of_one_leaves_the_others() {
    let mut queue = Queue::new(1000, 100, 16).unwrap();
    let mut batch = DatagramBatch::default();
    for token in 1..=3 {
        assert!(push(&mut queue, send(&[token as u8; 10], None, token)));
    }
    queue.fill(NOW, &mut batch);
    results(&mut batch, |index| {
        if index == 1 {
            Err(Errno::ECONNREFUSED)
        } else {
            Ok(10)
        }
    });
    let mut ended = Vec::new();
    let tally = queue.complete(NOW, &batch, |outcome| {
        ended.push((outcome.token.0, outcome.error))
    });
    assert_eq!(tally.datagrams, 2);
    assert_eq!(ended, [(1, None), (2, Some(Errno::ECONNREFUSED)), (3, None)]);
}

#[test]
fn who_is_told_of_another_is_made_again() {
    let mut queue = Queue::new(1000, 100, 16).unwrap();
    let mut batch = DatagramBatch::default();
    for token in 1..=2 {
        assert!(push(&mut queue, send(&[token as u8; 10], None, token)));
    }
    let refuse_first = |index| {
        if index == 0 {
            Err(Errno::ECONNREFUSED)
        } else {
            Ok(10)
        }
    };
    queue.fill(NOW, &mut batch);
    results(&mut batch, refuse_first);
    queue.forgive(Errno::ECONNREFUSED);
    queue.complete(NOW, &batch, |_| panic!("the first is made again"));
    // That was for one batch; and the first is behind the second now.
    queue.fill(NOW, &mut batch);
    assert_eq!(messages(&batch), [[1; 10]]);
    results(&mut batch, refuse_first);
    let mut ended = Vec::new();
    queue.complete(NOW, &batch, |outcome| {
        ended.push((outcome.token.0, outcome.error))
    });
    assert_eq!(ended, [(1, Some(Errno::ECONNREFUSED)), (2, None)]);
    // Not for ever.
    assert!(push(&mut queue, send(b"x", None, 3)));
    let mut tries = 0;
    while !queue.is_empty() {
        queue.fill(NOW, &mut batch);
        results(&mut batch, refuse_first);
        queue.forgive(Errno::ECONNREFUSED);
        queue.complete(NOW, &batch, |_| ());
        tries += 1;
    }
    assert_eq!(tries, 1 + u32::from(FORGIVEN));
}

/// Of pieces that leave one by one, those that were told of something else are made again, and no other; and what is too
/// large by itself is told from what the network says so of.
#[test]
fn a_piece_that_is_told_of_another_is_made_again_by_itself() {
    let mut queue = Queue::new(10_000, 100, 16).unwrap();
    let mut batch = DatagramBatch::default();
    let bytes: Vec<u8> = (0..=54).collect();
    assert!(push(&mut queue, send(b"before", None, 1)));
    assert!(push(&mut queue, send(&bytes, Some(10), 2)));
    assert!(push(&mut queue, send(b"behind", None, 3)));
    let mut ended = Vec::new();
    let mut round = |told: Errno, result: fn(&[u8]) -> Result<u32, Errno>| {
        queue.fill(NOW, &mut batch);
        let made = messages(&batch);
        results(&mut batch, |index| result(&made[index]));
        queue.forgive(told);
        let tally = queue.complete(NOW, &batch, |outcome| {
            ended.push((outcome.token.0, outcome.error))
        });
        let made: Vec<u8> = made.iter().map(|message| message[0]).collect();
        (made, tally.datagrams, queue.is_empty())
    };
    // It will not be cut, and says so by an error that the network has too: made again as it is, once that is known.
    let refuse = |message: &[u8]| match message.len() {
        55 => Err(Errno::EMSGSIZE),
        _ => Ok(1),
    };
    assert_eq!(round(Errno::EMSGSIZE, refuse), (vec![b'b', 0, b'b'], 2, false));
    assert_eq!(round(Errno::ECONNREFUSED, refuse), (vec![0], 0, false));
    let refuse = |message: &[u8]| match message[0] {
        10 | 50 => Err(Errno::ECONNREFUSED),
        30 => Err(Errno::EMSGSIZE),
        _ => Ok(1),
    };
    assert_eq!(
        round(Errno::EMSGSIZE, refuse),
        (vec![0, 10, 20, 30, 40, 50], 3, false)
    );
    let refuse = |message: &[u8]| match message[0] {
        30 => Err(Errno::EMSGSIZE),
        _ => Ok(1),
    };
    assert_eq!(round(Errno::EMSGSIZE, refuse), (vec![10, 30, 50], 2, false));
    // Nothing was told that it could be of: it is its own.
    assert_eq!(round(Errno::ECONNREFUSED, refuse), (vec![30], 0, true));
    assert_eq!(ended, [(1, None), (2, Some(Errno::EMSGSIZE)), (3, None)]);
    assert_eq!((queue.queued(), queue.holes.len()), (0, 0));
}

/// Of a batch that has left with one call nothing is told one by one, whether its sends leave whole or not.
#[test]
fn what_leaves_with_one_call_has_no_results() {
    let mut queue = Queue::new(10_000, 100, 3).unwrap();
    let mut batch = DatagramBatch::default();
    let mut ended = Vec::new();
    for round in 0..4u64 {
        let cut = (round == 2).then_some(10);
        // Once round the ring.
        for (send, step) in [(0, None), (1, cut)] {
            assert!(push(
                &mut queue,
                self::send(&[send; 15], step, 2 * round + u64::from(send))
            ));
        }
        queue.fill(NOW, &mut batch);
        assert_eq!(queue.parts.is_empty(), cut.is_none());
        assert_eq!(messages(&batch), [[0; 15], [1; 15]]);
        // What comes while they leave is left alone.
        assert!(push(&mut queue, send(b"behind", None, 100 + round)));
        batch.results.clear();
        let tally = queue.complete(NOW, &batch, |outcome| ended.push(outcome.token.0));
        let datagrams = if cut.is_some() { 3 } else { 2 };
        assert_eq!((tally.datagrams, tally.bytes, tally.messages), (datagrams, 30, 2));
        assert_eq!(queue.queued(), 6);
        queue.fill(NOW, &mut batch);
        assert_eq!(messages(&batch), [b"behind"]);
        queue.complete(NOW, &batch, |outcome| ended.push(outcome.token.0));
        assert_eq!((queue.queued(), queue.copies.used()), (0, 0));
    }
    // The very first has no token.
    assert_eq!(ended, [1, 100, 2, 3, 101, 4, 5, 102, 6, 7, 103]);
}

#[test]
fn an_empty_datagram_is_one() {
    let mut queue = Queue::new(1000, 100, 16).unwrap();
    let mut batch = DatagramBatch::default();
    assert!(push(&mut queue, send(b"", Some(5), 1)));
    queue.fill(NOW, &mut batch);
    assert_eq!(lengths(&batch), [0]);
    results(&mut batch, |_| Ok(0));
    let tally = queue.complete(NOW, &batch, |_| ());
    assert_eq!((tally.datagrams, queue.is_empty()), (1, true));
}

proptest! {
    /// Whatever is queued and however it is cut, the bytes leave in order, once, and all that was queued ends; and
    /// what is refused is refused for want of room.
    #[test]
    fn all_that_is_taken_leaves_in_order(
        high_water in 1u32..3000,
        steps in prop::collection::vec(
            (0usize..2000, proptest::option::of(1u16..700), 0u8..4, any::<bool>()),
            1..60,
        ),
    ) {
        let mut queue = Queue::new(high_water, high_water / 4, 8).unwrap();
        let mut batch = DatagramBatch::default();
        let (mut expected, mut sent) = (Vec::new(), Vec::new());
        // Who has no token is not told.
        let (mut taken, mut ended) = (1u64, 1u64);
        for (number, (length, step, flush, refuses)) in steps.into_iter().enumerate() {
            let bytes = vec![number as u8; length];
            let fits = queue.queued() + length <= high_water as usize && !queue.is_full();
            prop_assert_eq!(push(&mut queue, send(&bytes, step, taken)), fits);
            if fits {
                expected.extend(bytes);
                taken += 1;
            }
            if flush == 0 {
                queue.fill(NOW, &mut batch);
                let pieces = messages(&batch);
                // Without parts they are whole.
                let is_cut = |index: usize| queue.parts.get(index).is_some_and(|part| part.segmented);
                let cut: Vec<_> = (0..pieces.len()).map(is_cut).collect();
                results(&mut batch, |index| {
                    if refuses && cut[index] { Err(Errno::EINVAL) } else { Ok(pieces[index].len() as u32) }
                });
                // What is refused goes again later; the order between sends is kept only without refusals.
                if !(refuses && cut.contains(&true)) {
                    sent.extend(pieces.concat());
                    queue.complete(NOW, &batch, |outcome| {
                        assert_eq!(outcome.token.0, ended);
                        ended += 1;
                    });
                } else {
                    sent.extend(pieces.iter().zip(&cut).filter(|(_, cut)| !**cut).flat_map(|(piece, _)| piece));
                    queue.complete(NOW, &batch, |outcome| {
                        assert_eq!(outcome.token.0, ended);
                        ended += 1;
                    });
                }
            }
        }
        while !queue.is_empty() {
            queue.fill(NOW, &mut batch);
            let pieces = messages(&batch);
            sent.extend(pieces.concat());
            results(&mut batch, |index| Ok(pieces[index].len() as u32));
            queue.complete(NOW, &batch, |_| ended += 1);
        }
        prop_assert_eq!((queue.queued(), queue.copies.used()), (0, 0));
        prop_assert_eq!(ended, taken);
        sent.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(sent, expected);
    }
}
