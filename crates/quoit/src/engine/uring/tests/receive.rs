//! Receiving.

use super::*;

#[test]
fn bytes_arrive_in_order_and_then_the_end() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        let sent = pattern(100_000);
        let mut received = Vec::new();
        let mut armed = false;
        for piece in sent.chunks(10_000) {
            far.write_all(piece).unwrap();
            if !armed {
                fixture.receive(3, &near, BUDGET);
            }
            let bytes = fixture.receive_bytes(3, &near, piece.len());
            received.extend(bytes.0);
            armed = bytes.1;
        }
        assert!(received == sent);
        drop(far);
        if !armed {
            fixture.receive(3, &near, BUDGET);
        }
        assert_eq!(fixture.next_received(), (Slot::new(3), Received::End, false));
        fixture.finish();
    });
}

#[test]
fn an_idle_connection_holds_no_slot() {
    at_all_levels(|fixture| {
        let pairs: Vec<_> = (0..20).map(|_| UnixStream::pair().unwrap()).collect();
        for (slot, (near, _)) in pairs.iter().enumerate() {
            fixture.receive(slot as u32, near, BUDGET);
        }
        fixture.poll();
        assert_eq!(fixture.engine.receivable(&fixture.pool), 8);
        fixture.finish();
    });
}

/// Otherwise nobody who waits for a slot is served while completions come faster than they are taken.
#[test]
fn completions_that_name_no_slot_take_none_from_who_waits() {
    for without in levels() {
        let settings = UringSettings {
            buffer_entries: 1,
            ..SETTINGS
        };
        let mut fixture = Fixture::new(&settings, 1, without);
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        fixture.receive(0, &near, BUDGET);
        fixture.engine.wait(TURN, &mut fixture.pool).unwrap();
        assert!(fixture.engine.sys.has_completion(), "the end of the stream");
        assert_eq!(fixture.engine.surely_receivable(&fixture.pool), 1);
        fixture.finish();
    }
}

#[test]
fn a_slot_that_may_have_been_used_is_promised_to_nobody() {
    for without in levels() {
        let settings = UringSettings {
            buffer_entries: 1,
            ..SETTINGS
        };
        let mut fixture = Fixture::new(&settings, 1, without);
        if !fixture.features.contains(Feature::BufferRing) {
            // Slots are taken from the pool when data is there, by the engine itself.
            assert_eq!(fixture.engine.surely_receivable(&fixture.pool), 1);
            fixture.finish();
            continue;
        }
        let (near, mut far) = UnixStream::pair().unwrap();
        assert_eq!(fixture.engine.surely_receivable(&fixture.pool), 1);
        far.write_all(b"hello").unwrap();
        fixture.receive(0, &near, BUDGET);
        fixture.engine.wait(TURN, &mut fixture.pool).unwrap();
        assert!(fixture.engine.sys.has_completion());
        assert_eq!(fixture.engine.surely_receivable(&fixture.pool), 0);
        let (bytes, _) = fixture.receive_bytes(0, &near, 5);
        assert_eq!(bytes, b"hello");
        while fixture.engine.sys.has_completion() {
            fixture.poll();
        }
        assert_eq!(fixture.engine.surely_receivable(&fixture.pool), 1);
        fixture.finish();
    }
}

#[test]
fn an_empty_pool_pauses_and_no_byte_is_lost() {
    for without in levels() {
        let settings = UringSettings {
            buffer_entries: 2,
            ..SETTINGS
        };
        let mut fixture = Fixture::new(&settings, 2, without);
        let (near, mut far) = UnixStream::pair().unwrap();
        let sent = pattern(4 * SLOT_SIZE as usize);
        far.write_all(&sent).unwrap();
        let mut received = Vec::new();
        let mut held = Vec::new();
        fixture.receive(0, &near, BUDGET);
        loop {
            let (_, outcome, more) = fixture.next_received();
            match outcome {
                Received::Data { slot, length } => {
                    held.push((slot, length));
                    if !more {
                        fixture.receive(0, &near, BUDGET);
                    }
                }
                Received::NoBuffers => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(held.len(), 2);
        assert_eq!(fixture.engine.receivable(&fixture.pool), 0);
        assert!(fixture.engine.counters().snapshot().receive_no_buffers > 0);
        for (slot, length) in held {
            received.extend(fixture.take_bytes(slot, length));
        }
        fixture.receive(0, &near, BUDGET);
        let rest = sent.len() - received.len();
        received.extend(fixture.receive_bytes(0, &near, rest).0);
        assert!(received == sent);
        fixture.finish();
    }
}

#[test]
fn a_budget_ends_the_receive() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        let sent = pattern(20_000);
        let mut received = 0;
        far.write_all(&sent).unwrap();
        fixture.receive(0, &near, 5_000);
        loop {
            let (_, outcome, more) = fixture.next_received();
            if let Received::Data { slot, length } = outcome {
                let bytes = fixture.take_bytes(slot, length);
                assert!(bytes == sent[received..received + bytes.len()]);
                received += bytes.len();
            } else {
                assert_eq!(outcome, Received::Stopped);
            }
            if !more {
                break;
            }
        }
        assert!(received > 0);
        match fixture.engine.receive_mode {
            ReceiveMode::Single | ReceiveMode::Poll => assert!(received <= 5_000, "{received}"),
            ReceiveMode::MultishotBudget => {
                assert!(
                    (5_000..5_000 + SLOT_SIZE as usize).contains(&received),
                    "{received}"
                );
            }
            ReceiveMode::Multishot => assert!(received >= 5_000, "{received}"),
        }
        for _ in 0..3 {
            fixture.poll();
        }
        assert!(fixture.pending.is_empty(), "{:?}", fixture.pending);
        fixture.receive(0, &near, BUDGET);
        let (rest, _) = fixture.receive_bytes(0, &near, sent.len() - received);
        assert!(rest == sent[received..]);
        fixture.finish();
    });
}

#[test]
fn the_largest_budget_is_not_taken_for_none() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        fixture.receive(0, &near, u32::MAX);
        far.write_all(b"hello").unwrap();
        let (bytes, armed) = fixture.receive_bytes(0, &near, 5);
        assert_eq!(bytes, b"hello");
        assert_eq!(armed, fixture.features.contains(Feature::MultishotReceive));
        fixture.finish();
    });
}

#[test]
fn a_cancelled_receive_stops() {
    at_all_levels(|fixture| {
        let (near, _far) = UnixStream::pair().unwrap();
        fixture.receive(0, &near, BUDGET);
        fixture.poll();
        fixture.cancel(0, Kind::Receive);
        fixture.cancel(0, Kind::Receive);
        assert_eq!(fixture.next_received(), (Slot::new(0), Received::Stopped, false));
        fixture.cancel(0, Kind::Receive);
        fixture.poll();
        assert!(fixture.pending.is_empty());
        fixture.finish();
    });
}

#[test]
fn a_receive_cancelled_before_it_was_submitted_stops() {
    at_all_levels(|fixture| {
        let (near, _far) = UnixStream::pair().unwrap();
        fixture.receive(0, &near, BUDGET);
        fixture.cancel(0, Kind::Receive);
        assert_eq!(fixture.next_received(), (Slot::new(0), Received::Stopped, false));
        fixture.finish();
    });
}

#[test]
fn cancelling_while_bytes_arrive_loses_none() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        let sent = pattern(64_000);
        let mut received = Vec::new();
        let mut next = 0;
        fixture.receive(0, &near, BUDGET);
        for round in 0..2_000 {
            if next < sent.len() && round % 3 != 2 {
                let end = sent.len().min(next + 100);
                far.write_all(&sent[next..end]).unwrap();
                next = end;
            }
            if round % 2 == 0 {
                fixture.poll();
            }
            fixture.cancel(0, Kind::Receive);
            // Exactly one terminal completion, whatever came before it.
            loop {
                let (_, outcome, more) = fixture.next_received();
                match outcome {
                    Received::Data { slot, length } => received.extend(fixture.take_bytes(slot, length)),
                    Received::Stopped => (),
                    other => panic!("{other:?}"),
                }
                if !more {
                    break;
                }
            }
            assert!(fixture.pending.is_empty(), "{:?}", fixture.pending);
            fixture.receive(0, &near, BUDGET);
        }
        let rest = sent.len() - received.len();
        received.extend(fixture.receive_bytes(0, &near, rest).0);
        assert!(received == sent);
        fixture.finish();
    });
}

#[test]
fn a_poll_that_promised_too_much_is_made_again() {
    if found().is_none() {
        return;
    }
    let mut fixture = Fixture::new(&SETTINGS, 8, FeatureSet::ALL);
    let (mut near, mut far) = UnixStream::pair().unwrap();
    fixture.receive(0, &near, BUDGET);
    far.write_all(b"taken").unwrap();
    fixture.engine.wait(TURN, &mut fixture.pool).unwrap();
    assert!(!fixture.engine.may_sleep(), "the poll has ended");
    let mut bytes = [0; 5];
    near.read_exact(&mut bytes).unwrap();
    for _ in 0..5 {
        fixture.poll();
    }
    assert!(fixture.pending.is_empty());
    assert_eq!(fixture.engine.receivable(&fixture.pool), 8);
    far.write_all(b"hello").unwrap();
    assert_eq!(fixture.receive_bytes(0, &near, 5).0, b"hello");
    fixture.finish();
}

#[test]
fn a_receive_cancelled_after_its_poll_leaves_the_bytes() {
    if found().is_none() {
        return;
    }
    let mut fixture = Fixture::new(&SETTINGS, 8, FeatureSet::ALL);
    let (near, mut far) = UnixStream::pair().unwrap();
    fixture.receive(0, &near, BUDGET);
    far.write_all(b"hello").unwrap();
    fixture.engine.wait(TURN, &mut fixture.pool).unwrap();
    assert!(!fixture.engine.may_sleep(), "the poll has ended");
    fixture.cancel(0, Kind::Receive);
    assert_eq!(fixture.next_received(), (Slot::new(0), Received::Stopped, false));
    fixture.receive(0, &near, BUDGET);
    assert_eq!(fixture.receive_bytes(0, &near, 5).0, b"hello");
    fixture.finish();
}

#[test]
fn a_reset_is_an_error() {
    at_all_levels(|fixture| {
        let (near, far) = tcp_pair();
        fixture.receive(0, &near, BUDGET);
        fixture.poll();
        SocketSys::reset(&Linux, std::os::fd::AsFd::as_fd(&far)).unwrap();
        assert_eq!(
            fixture.next_received(),
            (Slot::new(0), Received::Error(Errno::ECONNRESET), false)
        );
        fixture.finish();
    });
}

#[test]
fn every_connection_gets_its_own_bytes() {
    at_all_levels(|fixture| {
        let mut pairs: Vec<_> = (0..32).map(|_| UnixStream::pair().unwrap()).collect();
        for (slot, (near, _)) in pairs.iter().enumerate() {
            fixture.receive(slot as u32, near, BUDGET);
        }
        for (slot, (_, far)) in pairs.iter_mut().enumerate() {
            far.write_all(&[slot as u8; 9]).unwrap();
        }
        let mut counts = vec![0; pairs.len()];
        while counts.iter().sum::<usize>() < pairs.len() * 9 {
            let (connection, outcome, more) = fixture.next_received();
            match outcome {
                Received::Data { slot, length } => {
                    let bytes = fixture.take_bytes(slot, length);
                    assert!(bytes.iter().all(|&byte| byte as usize == connection.index()));
                    counts[connection.index()] += bytes.len();
                }
                Received::NoBuffers => (),
                other => panic!("{other:?}"),
            }
            if !more {
                fixture.receive(connection.get(), &pairs[connection.index()].0, BUDGET);
            }
        }
        assert!(counts.iter().all(|&count| count == 9));
        fixture.finish();
    });
}
