//! The loop, its remote and its leases under loom: every order in which their threads can meet.
//!
//! The loop is the real one, turn by turn; only its engine is scripted. A wake that is lost leaves every thread
//! waiting, which loom reports as a deadlock; memory that two threads touch at once as a race.

mod direct;
mod engine;

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::Duration;

use loom::thread;

use self::engine::{Scripted, Touched};
use super::{AtomicBool, Eventfd, Ordering};
use crate::event_loop::LoopMemory;
use crate::sys::Linux;
use crate::wake::Wake;
use crate::{
    AttachOptions, Command, Config, Event, Events, Lease, Loop, LoopIndex, PostError, Refusal, Remote, Token,
};

/// A loop and its events.
struct Driver {
    event_loop: Loop<Scripted, Linux>,
    events: Events,
    touched: Touched,
    /// What the loop, its remotes and its leases share to wake it.
    wake: Weak<Wake>,
}

impl Driver {
    /// One to whose connection `arrived` bytes come, with so many slots for them.
    fn new(arrived: u32, config: Config) -> Self {
        let config = Config {
            connections: 1,
            listeners: 1,
            timers: Some(1),
            send_chunks: 1,
            pollable: true,
            ..config
        };
        let touched = Touched::new(config.receive_slots);
        let memory = LoopMemory::new(LoopIndex::default(), &config).unwrap();
        let engine = Scripted::new(arrived, touched.clone(), memory.notifier().unwrap());
        let wake = Arc::downgrade(&memory.remote.wake_handle());
        Self {
            event_loop: Loop::with_engine(LoopIndex::default(), config, memory, engine, String::new(), Linux),
            events: Events::with_capacity(8),
            touched,
            wake,
        }
    }

    fn with_inbox(inbox: u32) -> Self {
        Self::new(
            0,
            Config {
                inbox,
                receive_slots: 1,
                ..Config::default()
            },
        )
    }

    /// One turn, which waits for as long as it takes.
    fn turn(&mut self) -> Vec<Event> {
        self.event_loop.turn([], &mut self.events, None).unwrap();
        self.events.drain().collect()
    }

    /// One turn that does not wait, then a wait outside, by the notifier, if the loop may be parked.
    fn turn_and_park(&mut self) -> Vec<Event> {
        self.event_loop
            .turn([], &mut self.events, Some(Duration::ZERO))
            .unwrap();
        let events: Vec<_> = self.events.drain().collect();
        if events.is_empty() && self.event_loop.park().unwrap().is_none() {
            let notifier = self.event_loop.poll_descriptor().unwrap().as_raw_fd();
            Eventfd::wait(notifier);
        }
        events
    }

    /// Gives the loop a connection.
    fn attach(&mut self) -> UnixStream {
        let (near, far) = UnixStream::pair().unwrap();
        self.event_loop
            .attach(near.into(), &AttachOptions::default(), Token::NONE)
            .unwrap();
        far
    }

    /// Turns until bytes have come.
    fn receive(&mut self) -> Lease {
        loop {
            for event in self.turn() {
                if let Event::Data { data, .. } = event {
                    return data;
                }
            }
        }
    }
}

/// Tries all orders of the threads of `scenario`, which runs the loop. The bound on preemptions is what makes this
/// end: faults of this kind show with two (Musuvathi and Qadeer, "Iterative context bounding", PLDI 2007).
fn in_every_order(preemptions: usize, scenario: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || {
        // A loop needs more stack than loom's threads have; in words.
        let builder = thread::Builder::new().stack_size(64 * 1024);
        builder.spawn(scenario).unwrap().join().unwrap();
    });
}

/// A command that the loop answers with an event and nothing else.
fn numbered(number: u64) -> Command<'static> {
    Command::Refuse {
        token: Token(number),
        connection: None,
        refusal: Refusal::Limit,
    }
}

fn numbers(events: Vec<Event>) -> Vec<u64> {
    let number = |event| match event {
        Event::Refused { token, .. } => token.0,
        other => panic!("{other:?}"),
    };
    events.into_iter().map(number).collect()
}

/// Posts, however often the inbox is full.
fn post(remote: &Remote, mut command: Command<'static>) {
    while let Err(PostError::Full(back)) = remote.post(command) {
        command = back;
        thread::yield_now();
    }
}

#[test]
fn posts_of_two_threads_reach_a_sleeping_loop_in_the_order_of_each() {
    in_every_order(3, || {
        let mut driver = Driver::with_inbox(4);
        let threads = [[1, 2], [11, 12]].map(|numbers| {
            let remote = driver.event_loop.remote();
            thread::spawn(move || {
                for number in numbers {
                    remote.post(numbered(number)).unwrap();
                }
            })
        });
        let mut seen = Vec::new();
        while seen.len() < 4 {
            seen.extend(numbers(driver.turn()));
        }
        let of = |low| seen.iter().copied().filter(move |number| number / 10 == low);
        assert!(of(0).eq([1, 2]) && of(1).eq([11, 12]), "{seen:?}");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn posting_goes_on_after_the_inbox_was_full() {
    in_every_order(3, || {
        let mut driver = Driver::with_inbox(1);
        let remote = driver.event_loop.remote();
        let poster = thread::spawn(move || (1..=2).for_each(|number| post(&remote, numbered(number))));
        let mut seen = Vec::new();
        while seen.len() < 2 {
            seen.extend(numbers(driver.turn()));
        }
        assert_eq!(seen, [1, 2]);
        poster.join().unwrap();
    });
}

/// A place is one command's: nothing finds the queue full that has one, and one that is dropped serves the next.
#[test]
fn a_reserved_place_takes_one_command() {
    fn scenario(uses: bool) {
        let mut driver = Driver::with_inbox(1);
        let remote = driver.event_loop.remote();
        let permit = remote.reserve().unwrap();
        let elsewhere = driver.event_loop.remote();
        let posting = thread::spawn(move || post(&elsewhere, numbered(2)));
        let mut expected = vec![2];
        if uses {
            permit.post(numbered(1));
            expected.insert(0, 1);
        } else {
            drop(permit);
        }
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            seen.extend(numbers(driver.turn()));
        }
        assert_eq!(seen, expected);
        posting.join().unwrap();
    }
    in_every_order(3, || scenario(true));
    in_every_order(3, || scenario(false));
}

/// Wakes that come before the loop looks are one, but what was written before any of them is seen after it.
#[test]
fn what_was_written_before_a_wake_is_seen_after_it() {
    fn scenario(mut turn: impl FnMut(&mut Driver) -> Vec<Event>) {
        let mut driver = Driver::with_inbox(1);
        let written: Arc<[AtomicBool; 2]> = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let threads = [0, 1].map(|index| {
            let (remote, written) = (driver.event_loop.remote(), Arc::clone(&written));
            thread::spawn(move || {
                written[index].store(true, Ordering::Relaxed);
                remote.wake();
            })
        });
        let mut all = false;
        while !all {
            // Only what a wake announces is looked at, as a handler does.
            if turn(&mut driver)
                .iter()
                .any(|event| matches!(event, Event::Woken))
            {
                all = written.iter().all(|written| written.load(Ordering::Relaxed));
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    in_every_order(3, || scenario(Driver::turn));
    in_every_order(2, || scenario(Driver::turn_and_park));
}

#[test]
fn a_post_reaches_a_parked_loop() {
    in_every_order(3, || {
        let mut driver = Driver::with_inbox(2);
        let remote = driver.event_loop.remote();
        let poster = thread::spawn(move || (1..=2).for_each(|number| remote.post(numbered(number)).unwrap()));
        let mut seen = Vec::new();
        while seen.len() < 2 {
            seen.extend(numbers(driver.turn_and_park()));
        }
        assert_eq!(seen, [1, 2]);
        poster.join().unwrap();
    });
}

/// Whatever was posted either comes back or is dropped: nothing stays in the inbox of a loop that is gone.
#[test]
fn nothing_stays_in_the_inbox_of_a_loop_that_goes() {
    fn attach(mark: &Arc<()>) -> (Command<'static>, Weak<()>) {
        let payload = bytes::Bytes::from_owner(Marked(Arc::clone(mark)));
        let command = Command::Send {
            connection: crate::ConnectionId::from_bits(1),
            payload: crate::Payload::Bytes(payload),
            token: Token::NONE,
        };
        (command, Arc::downgrade(mark))
    }
    struct Marked(#[expect(dead_code, reason = "it is held, not read")] Arc<()>);
    impl AsRef<[u8]> for Marked {
        fn as_ref(&self) -> &[u8] {
            b"marked"
        }
    }
    in_every_order(3, || {
        let driver = Driver::with_inbox(2);
        let remote = driver.event_loop.remote();
        let threads = [0, 1].map(|_| {
            let remote = driver.event_loop.remote();
            thread::spawn(move || {
                let mark = Arc::new(());
                let (command, left) = attach(&mark);
                drop(mark);
                // What comes back is dropped here.
                let _ = remote.post(command);
                left
            })
        });
        drop(driver);
        let marks = threads.map(|thread| thread.join().unwrap());
        // The remote is still there, and with it the inbox.
        assert!(marks.iter().all(|mark| mark.strong_count() == 0));
        assert!(matches!(remote.post(numbered(1)), Err(PostError::Closed(_))));
        remote.wake();
    });
}

/// Reads the lease's memory, then returns it.
fn handle(lease: Lease, touched: &Touched) {
    touched.read(lease.number());
    drop(lease);
}

/// The loop sleeps with bytes in the socket and no slot, or no lease more for the connection; the slot comes back
/// from another thread, and is not written before that thread has done with it.
#[test]
fn a_lease_returned_elsewhere_lets_the_loop_receive_again() {
    fn scenario(slots: u32, leases: u16) {
        let mut driver = Driver::new(
            2,
            Config {
                receive_slots: slots,
                leases_per_connection: leases,
                ..Config::default()
            },
        );
        let _peer = driver.attach();
        let (lease, touched) = (driver.receive(), driver.touched.clone());
        let holder = thread::spawn(move || handle(lease, &touched));
        let second = driver.receive();
        driver.touched.read(second.number());
        holder.join().unwrap();
    }
    in_every_order(3, || scenario(1, 2));
    in_every_order(3, || scenario(2, 1));
}

/// A connection may have two leases, and its share of the slots is larger: what it waits for is a lease that comes back, and
/// no timer.
fn two_leases() -> Config {
    Config {
        receive_slots: 48,
        leases_per_connection: 2,
        ..Config::default()
    }
}

#[test]
fn leases_returned_by_two_threads_all_come_back() {
    in_every_order(2, || {
        let mut driver = Driver::new(4, two_leases());
        let _peer = driver.attach();
        let holders = [0, 1].map(|_| {
            let (lease, touched) = (driver.receive(), driver.touched.clone());
            thread::spawn(move || handle(lease, &touched))
        });
        let rest = [driver.receive(), driver.receive()];
        assert_ne!(rest[0].number(), rest[1].number());
        rest.into_iter().for_each(|lease| handle(lease, &driver.touched));
        holders.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Leases keep their memory and the loop's eventfd, and nothing else does.
#[test]
fn leases_are_returned_while_the_loop_goes_and_after() {
    in_every_order(3, || {
        let mut driver = Driver::new(3, two_leases());
        let _peer = driver.attach();
        let wake = Weak::clone(&driver.wake);
        let holders = [0, 1].map(|_| {
            let (lease, touched) = (driver.receive(), driver.touched.clone());
            thread::spawn(move || handle(lease, &touched))
        });
        // There is a byte for which it may have no lease: parked, it wants one back.
        for _ in 0..2 {
            driver
                .event_loop
                .turn([], &mut driver.events, Some(Duration::ZERO))
                .unwrap();
        }
        driver.event_loop.park().unwrap();
        drop(driver);
        holders.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(wake.strong_count(), 0);
    });
}
