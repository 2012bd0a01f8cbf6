//! Timers, wakes, and commands from other threads. That no timer fires early is seen by `quoit-event-order`.

use std::time::Duration;

use bytes::Bytes;
use quoit::{CloseReason, Command, ConnectionId, Payload, PostError, Refusal, Token};

use crate::driver::{Driver, OnData, drive, drive_with};
use crate::levels::Level;
use crate::sockets::pattern;

macro_rules! clock {
    ($level:ident) => {
        tests! { $level, clock:
            named_timers
            deadlines
            a_deadline_that_has_come_and_is_moved_is_not_told
            limits_with_all_timers_in_use
            timers_wake_a_loop_that_waits_for_ever
            wakes_are_one_until_they_are_told
            a_storm_of_wakes
            posts_of_each_thread_in_order
            a_full_inbox
            posts_and_returned_leases_wake
            after_the_loop_is_gone
        }
    };
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn named_timers(level: &Level) {
    drive(level, |driver| {
        driver.set_timer(1, millis(5));
        driver.set_timer(2, millis(1));
        driver.set_timer(3, millis(3));
        driver.set_timer(2, millis(20));
        assert!(driver.cancel_timer(3));
        assert!(!driver.cancel_timer(3));
        assert!(!driver.cancel_timer(4));
        driver.until("the last has fired", |driver| driver.timers.contains(&Token(2)));
        assert_eq!(driver.timers, [Token(1), Token(2)]);
        driver.set_timer(1, Duration::ZERO);
        driver.until("it fires again", |driver| driver.timers.len() == 3);
        driver.until_quiet();
        assert_eq!(driver.timers.len(), 3);
    });
}

pub(crate) fn deadlines(level: &Level) {
    drive(level, |driver| {
        let (_client, id) = driver.new_pair();
        driver.set_deadline(id, Some(millis(1)));
        driver.set_deadline(id, Some(millis(15)));
        driver.until("it has come", |driver| driver.seen(id).deadlines == 1);
        driver.set_deadline(id, Some(millis(1)));
        driver.set_deadline(id, None);
        driver.set_timer(1, millis(5));
        driver.until("time passes", |driver| driver.timers.len() == 1);
        assert_eq!(driver.seen(id).deadlines, 1);
        // It ends with the connection: neither closing nor closed is followed by it.
        driver.set_deadline(id, Some(millis(2)));
        driver.close(id, Some(millis(10))).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::Timeout);
        assert_eq!(driver.seen(id).deadlines, 1);
    });
}

/// As a handler moves it that hears of its peer in the same turn: it would take a peer that is alive for one that is not.
pub(crate) fn a_deadline_that_has_come_and_is_moved_is_not_told(level: &Level) {
    drive(level, |driver| {
        let (client, id) = driver.new_pair();
        for after in [Some(millis(60_000)), None] {
            driver.deadline_unreported(id);
            driver.set_deadline(id, after);
            driver.set_event_room(256);
            driver.until_quiet();
            assert_eq!(driver.seen(id).deadlines, 0, "{after:?}");
        }
        // What follows is told as ever, and it is once, although another has come before.
        driver.deadline_unreported(id);
        driver.set_deadline(id, Some(Duration::ZERO));
        driver.until_unreported(1);
        driver.set_event_room(256);
        driver.until("it is told", |driver| driver.seen(id).deadlines == 1);
        driver.set_deadline(id, Some(millis(1)));
        driver.until("so is the next", |driver| driver.seen(id).deadlines == 2);
        driver.close(id, None).unwrap();
        client.shutdown();
        driver.wait_closed(id);
    });
}

/// The loop's own timers have room of their own: a close waits for its deadline although the handler has set all the
/// timers that it may.
pub(crate) fn limits_with_all_timers_in_use(level: &Level) {
    drive_with(
        level,
        |config| config.timers = Some(2),
        |driver| {
            let (mut client, id) = driver.new_pair();
            driver.set_deadline(id, Some(millis(60_000)));
            driver.set_timer(1, millis(1));
            let refused = driver.event_loop.set_named_timer(millis(1), Token(2));
            assert_eq!(refused, Err(Refusal::Limit));
            driver.until("it fires", |driver| driver.timers.len() == 1);
            driver.set_timer(1, millis(60_000));
            assert!(driver.cancel_timer(1));
            driver.set_timer(2, millis(60_000));
            driver.set_timer(2, millis(50_000));
            let (_other, other_id) = driver.new_pair();
            driver.close(other_id, Some(millis(5))).unwrap();
            assert_eq!(driver.wait_closed(other_id), CloseReason::Timeout);
            driver.close(id, None).unwrap();
            client.shutdown();
            assert_eq!(driver.wait_closed(id), CloseReason::Local);
            client.expect_end();
        },
    );
}

pub(crate) fn timers_wake_a_loop_that_waits_for_ever(level: &Level) {
    let config = level.config();
    let mut event_loop = quoit::Loop::new(quoit::LoopIndex::default(), config).unwrap();
    let mut events = quoit::Events::with_capacity(4);
    event_loop.set_named_timer(millis(10), Token(1)).unwrap();
    while event_loop.turn([], &mut events, None).unwrap() == 0 {}
    let events: Vec<_> = events.drain().collect();
    assert!(
        matches!(events[..], [quoit::Event::Timer { token: Token(1) }]),
        "{events:?}"
    );
}

pub(crate) fn wakes_are_one_until_they_are_told(level: &Level) {
    drive(level, |driver| {
        let remote = driver.event_loop.remote();
        for told in 1..=3 {
            for _ in 0..1000 {
                remote.wake();
            }
            driver.until_quiet();
            assert_eq!(driver.woken, told);
        }
        assert!(driver.event_loop.counters().wake_writes <= 3);
    });
}

pub(crate) fn a_storm_of_wakes(level: &Level) {
    drive(level, |driver| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let remote = driver.event_loop.remote();
                driver.beside(move || (0..20_000).for_each(|_| remote.wake()))
            })
            .collect();
        for thread in threads {
            driver.join(thread);
        }
        driver.until_quiet();
        assert!((1..=80_004).contains(&driver.woken));
        // None is lost: a wake that comes while the loop sleeps ends its sleep.
        for _ in 0..200 {
            let told = driver.woken;
            let waker = driver.beside(|| ());
            driver.until_woken("a wake", |driver| driver.woken > told);
            waker.join().unwrap();
        }
    });
}

fn post(driver: &Driver, id: ConnectionId, thread: u32, count: u32) -> std::thread::JoinHandle<()> {
    let remote = driver.event_loop.remote();
    driver.beside(move || {
        for number in 0..count {
            let record = [thread.to_le_bytes(), number.to_le_bytes()].concat();
            let mut command = Command::Send {
                connection: id,
                payload: Payload::Bytes(Bytes::from(record)),
                token: Token::NONE,
            };
            while let Err(PostError::Full(back)) = remote.post(command) {
                command = back;
                std::thread::yield_now();
            }
        }
    })
}

pub(crate) fn posts_of_each_thread_in_order(level: &Level) {
    const POSTS: u32 = 2000;
    drive_with(
        level,
        |config| config.inbox = 64,
        |driver| {
            let (mut client, id) = driver.new_pair();
            let threads: Vec<_> = (0..4).map(|thread| post(driver, id, thread, POSTS)).collect();
            let reader = driver.beside(move || client.receive(4 * 8 * POSTS as usize));
            for thread in threads {
                driver.join(thread);
            }
            let mut next = [0_u32; 4];
            for record in driver.join(reader).chunks_exact(8) {
                let thread = u32::from_le_bytes(record[..4].try_into().unwrap());
                let number = u32::from_le_bytes(record[4..].try_into().unwrap());
                assert_eq!(next[thread as usize], number);
                next[thread as usize] += 1;
            }
            assert_eq!(next, [POSTS; 4]);
            assert_eq!(driver.event_loop.counters().posted_commands, u64::from(4 * POSTS));
        },
    );
}

pub(crate) fn a_full_inbox(level: &Level) {
    drive_with(
        level,
        |config| config.inbox = 2,
        |driver| {
            let remote = driver.event_loop.remote();
            let command = |token| Command::Abort {
                connection: ConnectionId::from_bits(token),
            };
            remote.post(command(1)).unwrap();
            remote.post(command(2)).unwrap();
            let refused = remote.post(command(3));
            assert!(matches!(refused, Err(PostError::Full(Command::Abort { .. }))));
            driver.until("both are refused", |driver| driver.refusals.len() == 2);
            assert!(
                driver
                    .refusals
                    .iter()
                    .all(|(_, _, refusal)| *refusal == Refusal::Stale)
            );
            remote.post(command(4)).unwrap();
            driver.until("there is room again", |driver| driver.refusals.len() == 3);
        },
    );
}

/// A loop that sleeps with nothing but other threads to wait for.
pub(crate) fn posts_and_returned_leases_wake(level: &Level) {
    let tune = |config: &mut quoit::Config| {
        config.receive_slots = 4;
        config.receive_slot_size = 512;
        config.buffer_ring = 4;
        config.leases_per_connection = 2;
    };
    drive_with(level, tune, |driver| {
        driver.on_data = OnData::Hold;
        let address = driver.listen();
        let pairs: Vec<_> = (0..3).map(|_| driver.pair(&address)).collect();
        let (mut clients, ids): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        for client in &mut clients {
            client.send(&pattern(0, 4096));
            driver.until_quiet();
        }
        let exact = level.receives_exactly();
        // Without a budget, what came past the cap is kept, and takes slots. The kernel's thread that takes submissions may
        // have been waiting for a processor.
        let least = if exact { 4 } else { 2 };
        driver.until("they hold what they may", |driver| driver.held.len() >= least);
        let starved = |driver: &Driver| {
            if exact {
                driver.held.len() == 4
            } else {
                !driver.held.is_empty()
            }
        };
        while starved(driver) && ids.iter().any(|id| driver.seen(*id).total < 4096) {
            let totals = |driver: &Driver| ids.iter().map(|id| driver.seen(*id).total).sum::<u64>();
            let before = totals(driver);
            let held = std::mem::take(&mut driver.held);
            let returning = std::thread::spawn(move || drop(held));
            driver.until_woken("returned leases", |driver| totals(driver) > before);
            returning.join().unwrap();
            driver.until_quiet();
        }
        driver.on_data = OnData::Record;
        driver.held.clear();
        driver.until("all is received", |driver| {
            ids.iter().all(|id| driver.seen(*id).total == 4096)
        });
        for id in &ids {
            assert!(driver.seen(*id).received == pattern(0, 4096));
        }
        let remote = driver.event_loop.remote();
        let id = ids[1];
        let posting = std::thread::spawn(move || remote.post(Command::Abort { connection: id }).unwrap());
        driver.until_woken("a post", |driver| driver.seen(id).closed.is_some());
        posting.join().unwrap();
    });
}

pub(crate) fn after_the_loop_is_gone(level: &Level) {
    let mut driver = Driver::new(level.config());
    driver.on_data = OnData::Hold;
    let (mut client, id) = driver.new_pair();
    client.send(&pattern(0, 1000));
    driver.wait_received(id, 1000);
    let lent = Bytes::from(vec![1; 8 << 20]);
    driver.send(id, lent.clone(), Token(1)).unwrap();
    driver.until_quiet();
    let remote = driver.event_loop.remote();
    let leases = std::mem::take(&mut driver.held);
    let queued = lent.clone();
    remote
        .post(Command::Send {
            connection: id,
            payload: Payload::Bytes(queued),
            token: Token(2),
        })
        .unwrap();
    drop(driver);
    assert!(lent.is_unique(), "a loop that is gone holds no memory");
    remote.wake();
    let refused = remote.post(Command::Abort { connection: id });
    assert!(matches!(refused, Err(PostError::Closed(_))));
    let bytes: Vec<u8> = leases.iter().flat_map(|(_, lease)| lease.to_vec()).collect();
    assert!(bytes == pattern(0, 1000));
    std::thread::spawn(move || drop(leases)).join().unwrap();
}
