//! Locked memory runs out: in children of this process that are not root, since root may lock what it likes.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use bytes::Bytes;
use quoit::{Config, EngineChoice, EngineKind, Errno, Event, Events, Loop, LoopIndex, StartError, Token};
use quoit::{Feature, FeatureSet, Footprint, try_uring};
use quoit_skipped::{needs_root, skip_this, this_test};
use std::io::Read;
use std::thread;
use std::time::Duration;
use support::{Echo, case, client, config, echo, engines, guard, listen_on, listening, run_child};

/// Users that own nothing and have no capabilities: one for each test, as locked memory is counted for all
/// processes of a user together.
const NOBODIES: [libc::uid_t; 4] = [65534, 65533, 65532, 65531];

/// Whether this process could become that user, and uses io_uring; says so if not.
fn possible() -> bool {
    // SAFETY: geteuid(2) takes nothing and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        needs_root(this_test(), "CAP_SETUID");
        return false;
    }
    engines().contains(&EngineKind::Uring)
}

/// Gives up everything that root may, with so many bytes of memory to lock.
fn become_nobody(user: libc::uid_t, memlock: u64) {
    let limit = libc::rlimit {
        rlim_cur: memlock,
        rlim_max: memlock,
    };
    // SAFETY: the limit is a valid structure, and the C library sets the ids of all threads.
    unsafe {
        Errno::check(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit)).unwrap();
        Errno::check(libc::setgid(user)).unwrap();
        Errno::check(libc::setuid(user)).unwrap();
    }
}

/// Fails at once, instead of waiting for rings that are not going to be closed.
fn impatient(engine: EngineChoice) -> Config {
    Config {
        engine,
        ring_memory_patience: Duration::ZERO,
        ..Config::default()
    }
}

const REQUIRE: EngineChoice = EngineChoice::Require(EngineKind::Uring);

fn names_the_limit(text: &str, kibibytes: u64) {
    for word in ["RLIMIT_MEMLOCK", "ulimit -l", &format!("{kibibytes} KiB")] {
        assert!(text.contains(word), "{word:?} is not named in: {text}");
    }
}

/// The loop serves, whatever the attempt to have a ring has done to its memory: with all of its pool.
fn serves(mut event_loop: Loop) {
    let address = listen_on(&mut event_loop);
    assert_eq!(event_loop.engine(), EngineKind::Epoll);
    let remote = event_loop.remote();
    thread::scope(|scope| {
        scope.spawn(move || {
            echo(&mut client(address), &[7; 100_000]);
            let within = support::PATIENCE;
            remote.post(quoit::Command::Drain { within }).unwrap();
        });
        event_loop.run(&mut Echo::default()).unwrap();
    });
}

#[test]
fn rings_past_the_limit_fall_back() {
    const LIMIT: u64 = 1 << 20;
    guard(60);
    match case() {
        None if possible() => run_child("rings_past_the_limit_fall_back", "rings"),
        Some(case) if case == "rings" => {
            become_nobody(NOBODIES[0], LIMIT);
            let mut loops = Vec::new();
            let error = loop {
                match Loop::new(LoopIndex::default(), impatient(REQUIRE)) {
                    Ok(event_loop) => loops.push(event_loop),
                    Err(error) => break error,
                }
                // Each takes memory of other kinds, too.
                let config = impatient(REQUIRE);
                let a_ring = Footprint::of(&config, FeatureSet::EMPTY).queues;
                if loops.len() as u64 * a_ring > 2 * LIMIT {
                    skip_this("this kernel does not count rings as locked memory");
                    return;
                }
            };
            assert!(matches!(error, StartError::Engine { .. }), "{error:?}");
            names_the_limit(&error.to_string(), LIMIT / 1024);
            // The rings that were tried last may be given back only now: then there is room for some more.
            let auto = loop {
                let auto = Loop::new(LoopIndex::default(), impatient(EngineChoice::Auto)).unwrap();
                match auto.engine() {
                    EngineKind::Epoll => break auto,
                    EngineKind::Uring => loops.push(auto),
                }
            };
            names_the_limit(auto.engine_reason(), LIMIT / 1024);
            serves(auto);
            // What the closed loops held is given back late, which a patient attempt outlasts.
            drop(loops);
            Loop::new(LoopIndex::default(), config(EngineKind::Uring)).unwrap();
        }
        _ => {}
    }
}

#[test]
fn a_registered_pool_past_the_limit_falls_back() {
    const LIMIT: u64 = 8 << 20;
    guard(60);
    match case() {
        None if possible() => run_child("a_registered_pool_past_the_limit_falls_back", "pool"),
        Some(case) if case == "pool" => {
            become_nobody(NOBODIES[1], LIMIT);
            let registering = |engine| Config {
                register_pool: true,
                ..impatient(engine)
            };
            // 1,024 slots of 16 KiB.
            let error = Loop::new(LoopIndex::default(), registering(REQUIRE)).unwrap_err();
            names_the_limit(&error.to_string(), LIMIT / 1024);
            let auto = Loop::new(LoopIndex::default(), registering(EngineChoice::Auto)).unwrap();
            assert_eq!(auto.engine(), EngineKind::Epoll);
            names_the_limit(auto.engine_reason(), LIMIT / 1024);
            serves(auto);
            let few = Config {
                receive_slots: 64,
                buffer_ring: 32,
                ring_memory_patience: support::PATIENCE,
                ..registering(REQUIRE)
            };
            Loop::new(LoopIndex::default(), few).unwrap();
        }
        _ => {}
    }
}

/// The kernel gives the memory of closed rings back late, so whoever makes them quickly meets `ENOMEM`, which
/// trying again gets over.
#[test]
fn rings_made_and_dropped_quickly_all_succeed() {
    guard(300);
    match case() {
        None if possible() => run_child("rings_made_and_dropped_quickly_all_succeed", "quickly"),
        Some(case) if case == "quickly" => {
            become_nobody(NOBODIES[2], 8 << 20);
            let mut events = Events::with_capacity(1);
            for _ in 0..500 {
                let patient = Config {
                    ring_memory_patience: support::PATIENCE,
                    ..config(EngineKind::Uring)
                };
                let mut event_loop = Loop::new(LoopIndex::default(), patient).unwrap();
                event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
            }
        }
        _ => {}
    }
}

/// What is sent without a copy is locked until the peer has it. What finds no room is copied, and the connection goes on.
#[test]
fn what_may_not_be_locked_is_copied() {
    const LIMIT: u64 = 1 << 20;
    const SENT: usize = 8 << 20;
    guard(60);
    match case() {
        None if possible() => run_child("what_may_not_be_locked_is_copied", "copied"),
        Some(case) if case == "copied" => {
            let config = Config {
                zero_copy_threshold: Some(1),
                ..config(EngineKind::Uring)
            };
            let found = try_uring(&config).unwrap();
            if !found.features.contains(Feature::ZeroCopySend) {
                skip_this("this kernel has no zero-copy-send");
                return;
            }
            become_nobody(NOBODIES[3], LIMIT);
            let (mut event_loop, address) = listening(config);
            let reader = thread::spawn(move || {
                let mut received = vec![0; SENT];
                client(address).read_exact(&mut received).unwrap();
                assert!(received.iter().all(|&byte| byte == 7));
            });
            let mut events = Events::with_capacity(8);
            let mut acknowledged = false;
            while !acknowledged {
                event_loop.turn([], &mut events, Some(support::PATIENCE)).unwrap();
                for event in events.drain() {
                    match event {
                        Event::Accepted { connection, .. } => {
                            let lent = Bytes::from(vec![7; SENT]);
                            event_loop.send(connection, lent, Token(1)).unwrap();
                        }
                        Event::Sent { token: Token(1), .. } => acknowledged = true,
                        Event::Closed { reason, .. } => assert!(acknowledged, "{reason}"),
                        _ => {}
                    }
                }
            }
            reader.join().unwrap();
            let counters = event_loop.counters();
            assert!(
                counters.zero_copy_sends > 0 && counters.zero_copy_copied > 0,
                "{counters:?}"
            );
        }
        _ => {}
    }
}
