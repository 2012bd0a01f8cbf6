//! Full queues, and ending with everything in flight.

use super::*;
use crate::engine::{Message, SendMode};

const TINY: UringSettings = UringSettings {
    submission_entries: 8,
    completion_entries: 16,
    buffer_entries: 8,
    kernel_poll: None,
    register_pool: false,
    coalesce: Duration::ZERO,
    coalesce_at_most: 1,
    notifier: None,
};

/// As many as there are descriptors for in a process that may have 1,024, beside those of other tests.
#[test]
fn hundreds_of_operations_pass_through_a_tiny_ring() {
    if !may_overflow() {
        return;
    }
    for without in levels() {
        let mut fixture = Fixture::new(&TINY, 8, without);
        let pairs: Vec<_> = (0..200).map(|_| UnixStream::pair().unwrap()).collect();
        let message = pattern(3);
        for (slot, (near, _)) in pairs.iter().enumerate() {
            fixture.submit(Operation::Send {
                connection: Slot::new(slot as u32),
                descriptor: near.as_raw_fd(),
                message: Message::Single {
                    address: message.as_ptr(),
                    length: 3,
                },
                mode: SendMode::Ordinary,
            });
        }
        let mut seen = vec![false; pairs.len()];
        for _ in 0..pairs.len() {
            let Completion::Sent {
                connection, result, ..
            } = fixture.next()
            else {
                panic!("something else than a send completed")
            };
            assert_eq!(result, Ok(3));
            assert!(!std::mem::replace(&mut seen[connection.index()], true));
        }
        for (_, mut far) in pairs {
            let mut bytes = [0; 3];
            far.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, message[..]);
        }
        let counters = fixture.engine.counters().snapshot();
        assert!(counters.submission_queue_full > 0);
        assert!(counters.completion_queue_overflows > 0, "{counters:?}");
        fixture.finish();
    }
}

#[test]
fn more_completions_than_the_queue_holds_are_kept() {
    if !may_overflow() {
        return;
    }
    for without in levels() {
        let mut fixture = Fixture::new(&TINY, 64, without);
        let mut pairs: Vec<_> = (0..200).map(|_| UnixStream::pair().unwrap()).collect();
        for (slot, (near, _)) in pairs.iter().enumerate() {
            fixture.receive(slot as u32, near, BUDGET);
        }
        for round in 0..3u8 {
            for (_, far) in &mut pairs {
                far.write_all(&[round; 5]).unwrap();
            }
            let mut counts = vec![0; pairs.len()];
            while counts.iter().sum::<u32>() < 5 * pairs.len() as u32 {
                let (connection, received, more) = fixture.next_received();
                match received {
                    Received::Data { slot, length } => {
                        counts[connection.index()] += length;
                        assert!(fixture.take_bytes(slot, length).iter().all(|&byte| byte == round));
                    }
                    Received::NoBuffers | Received::Stopped => (),
                    other => panic!("{other:?}"),
                }
                if !more {
                    fixture.receive(connection.get(), &pairs[connection.index()].0, BUDGET);
                }
            }
            assert!(counts.iter().all(|&count| count == 5));
        }
        fixture.finish();
    }
}

fn with_everything_in_flight(fixture: &mut Fixture) -> Vec<OwnedFd> {
    let mut kept: Vec<OwnedFd> = Vec::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    fixture.submit(Operation::Accept {
        listener: Slot::new(0),
        descriptor: listener.as_raw_fd(),
        limit: 10_000,
    });
    kept.push(TcpStream::connect(address).unwrap().into());
    for slot in 0..50 {
        let (near, mut far) = tcp_pair();
        if slot % 2 == 0 {
            far.write_all(b"unread").unwrap();
        }
        fixture.receive(slot, &near, BUDGET);
        kept.push(near.into());
        kept.push(far.into());
    }
    kept.push(listener.into());
    kept
}

fn send_big(fixture: &mut Fixture, slot: u32, socket: RawFd, message: &[u8]) {
    fixture.submit(Operation::Send {
        connection: Slot::new(slot),
        descriptor: socket,
        message: Message::Single {
            address: message.as_ptr(),
            length: message.len() as u32,
        },
        mode: SendMode::Ordinary,
    });
}

#[test]
fn quiescing_ends_everything_in_flight() {
    for without in levels() {
        let settings = UringSettings {
            buffer_entries: 128,
            ..SETTINGS
        };
        let fixture = &mut Fixture::new(&settings, 128, without);
        let kept = with_everything_in_flight(fixture);
        let big = pattern(50_000_000);
        let (near, _far) = tcp_pair();
        send_big(fixture, 60, near.as_raw_fd(), &big);
        fixture.poll();
        for completion in std::mem::take(&mut fixture.pending) {
            if let Completion::Received {
                received: Received::Data { slot, .. },
                ..
            } = completion
            {
                fixture.pool.give_back(slot);
            }
        }
        assert!(fixture.engine.counters().snapshot().in_flight > 20);
        fixture.finish();
        drop(kept);
    }
}

#[test]
fn quiescing_ends_what_was_never_submitted() {
    at_all_levels(|fixture| {
        let kept = with_everything_in_flight(fixture);
        fixture.finish();
        drop(kept);
    });
}

#[test]
fn quiescing_is_refused_on_another_thread_while_memory_is_in_use() {
    at_all_levels(|fixture| {
        let now = || Linux.now();
        fixture.poll();
        thread::scope(|scope| {
            let idle = scope
                .spawn(|| fixture.engine.quiesce(&mut fixture.pool, Duration::ZERO, &now))
                .join()
                .unwrap();
            assert_eq!(idle, fixture.features.contains(Feature::MultishotPoll));
        });
        let (near, _far) = UnixStream::pair().unwrap();
        fixture.receive(0, &near, BUDGET);
        fixture.poll();
        thread::scope(|scope| {
            let busy = scope
                .spawn(|| fixture.engine.quiesce(&mut fixture.pool, Duration::ZERO, &now))
                .join()
                .unwrap();
            assert!(!busy);
        });
        fixture.finish();
    });
}

#[test]
fn an_engine_is_made_on_one_thread_and_works_on_another() {
    for without in levels() {
        let capabilities = probe::<Ring>(without, false).unwrap();
        let wake = Arc::new(Wake::new().unwrap());
        let mut pool = Pool::new(8, SLOT_SIZE, 0, Arc::clone(&wake)).unwrap();
        let mut engine = UringEngine::<Ring, _>::new(&SETTINGS, &capabilities, Linux, &mut pool).unwrap();
        let mut fixture = thread::spawn(move || {
            engine.bind(wake.descriptor(), &mut pool).unwrap();
            let mut fixture = Fixture {
                engine,
                pool,
                wake,
                pending: VecDeque::new(),
                features: capabilities.features,
            };
            let (near, mut far) = UnixStream::pair().unwrap();
            fixture.receive(0, &near, BUDGET);
            far.write_all(b"hello").unwrap();
            assert_eq!(fixture.receive_bytes(0, &near, 5).0, b"hello");
            fixture.finish();
            fixture
        })
        .join()
        .unwrap();
        // Its thread has ended, and nothing is left: it may go here.
        assert!(
            fixture
                .engine
                .quiesce(&mut fixture.pool, Duration::ZERO, &|| Linux.now())
        );
    }
}

#[test]
fn the_kernel_can_take_submissions_by_itself() {
    let settings = UringSettings {
        kernel_poll: Some(Duration::from_millis(1)),
        ..TINY
    };
    for without in levels() {
        let mut fixture = Fixture::new(&settings, 8, without);
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut echoed = [0; 5];
        fixture.receive(0, &near, BUDGET);
        for _ in 0..100 {
            far.write_all(b"hello").unwrap();
            let (bytes, armed) = fixture.receive_bytes(0, &near, 5);
            if !armed {
                fixture.receive(0, &near, BUDGET);
            }
            send_big(&mut fixture, 1, near.as_raw_fd(), &bytes);
            assert!(matches!(fixture.next(), Completion::Sent { result: Ok(5), .. }));
            far.read_exact(&mut echoed).unwrap();
            assert_eq!(&echoed, b"hello");
        }
        let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        for (slot, (near, _)) in pairs.iter().enumerate() {
            fixture.receive(slot as u32 + 10, near, BUDGET);
        }
        fixture.finish();
    }
}
