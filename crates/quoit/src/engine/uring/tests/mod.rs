//! The engine on the real kernel, each time at several levels of features.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use quoit_skipped::{skip_engine, skip_this, this_test};

use super::*;
use crate::engine::{Gather, Kind};
use crate::id::Slot;
use crate::pool::PoolSlot;
use crate::sys::Linux;
use crate::wake::Wake;

mod accept;
mod coalesce;
mod denied;
mod limits;
mod proven;
mod receive;
mod reluctant;
mod restricted;
mod send;
mod telling;

/// Far more turns than any test needs for one completion, and far longer than a completion takes on any machine:
/// a test that exceeds them waits for something that does not come.
const TURNS: usize = 10_000;
const TURN: Option<Duration> = Some(PATIENCE);
const PATIENCE: Duration = Duration::from_secs(30);
const SLOT_SIZE: u32 = 4096;
const BUDGET: u32 = 1 << 30;

const SETTINGS: UringSettings = UringSettings {
    submission_entries: 64,
    completion_entries: 256,
    buffer_entries: 8,
    kernel_poll: None,
    register_pool: false,
    coalesce: Duration::ZERO,
    coalesce_at_most: 1,
    notifier: None,
};

/// The levels that every test runs at: everything, and each important thing missing.
fn levels() -> Vec<FeatureSet> {
    if found().is_none() {
        return Vec::new();
    }
    let mut levels = vec![
        FeatureSet::EMPTY,
        FeatureSet::ALL.without(FeatureSet::OLDEST),
        FeatureSet::ALL,
    ];
    for feature in [
        Feature::ReceiveBudget,
        Feature::MultishotReceive,
        Feature::DeferTaskrun,
        Feature::SingleIssuer,
        Feature::RestrictedRing,
    ] {
        levels.push([feature].into_iter().collect());
    }
    levels
}

/// What a ring has here. Where there can be none, says so.
fn found() -> Option<FeatureSet> {
    let found = probe::<Ring>(FeatureSet::EMPTY, false);
    found
        .inspect_err(|error| skip_engine("uring", this_test(), error))
        .ok()
        .map(|capabilities| capabilities.features)
}

/// Whether a ring has this here; says so if not.
fn has(feature: Feature) -> bool {
    let has = found().map(|features| features.contains(feature));
    if has == Some(false) {
        skip_this(format_args!(
            "this kernel has no {feature} ({} and later have)",
            feature.minimum_kernel()
        ));
    }
    has == Some(true)
}

/// Whether completions may find no room here; says so if not. Older kernels may lock the thread up for good then, so the
/// queue holds everything ([`Config::completion_entries`](crate::Config::completion_entries)).
fn may_overflow() -> bool {
    has(Feature::SubmitAll)
}

fn at_all_levels(test: impl Fn(&mut Fixture)) {
    for without in levels() {
        eprintln!("without: {without}");
        test(&mut Fixture::new(&SETTINGS, 8, without));
    }
}

struct Fixture<S: UringSys = Ring> {
    engine: UringEngine<S, Linux>,
    pool: Pool,
    wake: Arc<Wake>,
    /// Completions that no test has asked for yet.
    pending: VecDeque<Completion>,
    features: FeatureSet,
}

impl Fixture {
    fn new(settings: &UringSettings, slots: u32, without: FeatureSet) -> Self {
        Self::on(settings, slots, without)
    }
}

impl<S: UringSys> Fixture<S> {
    /// An engine on a ring of another kind than the usual.
    fn on(settings: &UringSettings, slots: u32, without: FeatureSet) -> Self {
        let wake = Arc::new(Wake::new().unwrap());
        let descriptor = wake.descriptor();
        Self::woken_by(descriptor, wake, settings, slots, without)
    }

    /// As [`Fixture::on`], with another descriptor for wakes.
    fn woken_by(
        descriptor: RawFd,
        wake: Arc<Wake>,
        settings: &UringSettings,
        slots: u32,
        without: FeatureSet,
    ) -> Self {
        let mut settings = *settings;
        if found().is_some_and(|features| !features.contains(Feature::SubmitAll)) {
            // As a loop's: nothing overflows on a kernel that may lock the thread up for good then.
            settings.completion_entries = settings.completion_entries.max(1024);
        }
        let mut pool = Pool::new(slots, SLOT_SIZE, 0, Arc::clone(&wake)).unwrap();
        let since = Instant::now();
        let (mut engine, capabilities) = loop {
            let made = probe::<S>(without, false).and_then(|capabilities| {
                let engine = UringEngine::new(&settings, &capabilities, Linux, &mut pool)?;
                Ok((engine, capabilities))
            });
            match made {
                // What the rings of other tests have locked is given back late.
                Err(error) if error.errno == Errno::ENOMEM && since.elapsed() < PATIENCE => {
                    thread::yield_now()
                }
                made => break made.unwrap(),
            }
        };
        engine.bind(descriptor, &mut pool).unwrap();
        Self {
            engine,
            pool,
            wake,
            pending: VecDeque::new(),
            features: capabilities.features,
        }
    }

    fn submit(&mut self, operation: Operation) {
        self.engine.submit(operation, &mut self.pool);
    }

    fn receive(&mut self, slot: u32, socket: &impl AsRawFd, budget: u32) {
        self.submit(Operation::Receive {
            connection: Slot::new(slot),
            descriptor: socket.as_raw_fd(),
            budget,
            waited: false,
        });
    }

    fn cancel(&mut self, slot: u32, kind: Kind) {
        let handle = match kind {
            Kind::Accept => Handle::Listener(Slot::new(slot)),
            _ => Handle::Connection(Slot::new(slot)),
        };
        self.submit(Operation::Cancel { handle, kind });
    }

    /// One turn that does not wait.
    fn poll(&mut self) {
        let mut completions = Completions::default();
        self.engine.wait(Some(Duration::ZERO), &mut self.pool).unwrap();
        while self.engine.reap(&mut self.pool, 16, &mut completions) && self.engine.sys.has_completion() {}
        self.pending.extend(completions.into_list());
    }

    /// The next completion.
    fn next(&mut self) -> Completion {
        for _ in 0..TURNS {
            if let Some(completion) = self.pending.pop_front() {
                return completion;
            }
            let mut completions = Completions::default();
            let timeout = if self.engine.may_sleep() {
                TURN
            } else {
                Some(Duration::ZERO)
            };
            let before = self.engine.counters().snapshot().completions;
            self.engine.wait(timeout, &mut self.pool).unwrap();
            self.engine.reap(&mut self.pool, 16, &mut completions);
            let slept = timeout == TURN;
            let interrupted =
                !completions.is_empty() || self.engine.counters().snapshot().completions > before;
            assert!(!slept || interrupted, "nothing completed in {TURN:?}");
            self.pending.extend(completions.into_list());
        }
        panic!("nothing completed in {TURNS} turns");
    }

    /// The next outcome of receiving.
    fn next_received(&mut self) -> (Slot, Received, bool) {
        match self.next() {
            Completion::Received {
                connection,
                received,
                more,
            } => (connection, received, more),
            other => panic!("{other:?} where a receive was expected"),
        }
    }

    /// The next completion of a send, as bytes and whether the memory is held.
    fn next_sent(&mut self) -> (Result<usize, Errno>, Option<Box<Gather>>, bool) {
        match self.next() {
            Completion::Sent {
                result, gather, held, ..
            } => (result, gather, held),
            other => panic!("{other:?} where a send was expected"),
        }
    }

    /// The bytes in a slot, which goes back to the pool.
    fn take_bytes(&mut self, slot: PoolSlot, length: u32) -> Vec<u8> {
        // SAFETY: the slot was filled with at least this many bytes, and nobody else has it.
        let bytes = unsafe { std::slice::from_raw_parts(self.pool.address(slot), length as usize) }.to_vec();
        self.pool.give_back(slot);
        bytes
    }

    /// Receives on `slot` until `count` bytes are there or something else than bytes comes, arming as often as it
    /// takes. Returns the bytes, and whether the receive still goes on.
    fn receive_bytes(&mut self, slot: u32, socket: &impl AsRawFd, count: usize) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        if count == 0 {
            return (bytes, true);
        }
        for _ in 0..TURNS {
            let (_, received, more) = self.next_received();
            match received {
                Received::Data { slot, length } => bytes.extend(self.take_bytes(slot, length)),
                Received::NoBuffers | Received::Stopped => (),
                other => panic!("{other:?} where bytes were expected"),
            }
            if bytes.len() == count {
                return (bytes, more);
            }
            if !more {
                self.receive(slot, socket, BUDGET);
            }
        }
        panic!("{} of {count} bytes came in {TURNS} completions", bytes.len());
    }

    /// Ends everything that is in flight: an engine that goes before leaks what the kernel may write to.
    fn quiesce(&mut self) {
        let quiet = self
            .engine
            .quiesce(&mut self.pool, Duration::from_secs(10), &|| Linux.now());
        assert!(
            quiet,
            "the kernel is done with all memory: {:?}",
            self.engine.counters().snapshot()
        );
        assert_eq!(self.engine.counters().snapshot().in_flight, 0);
    }

    /// Ends the test with everything accounted for.
    fn finish(&mut self) {
        self.quiesce();
        let mut slots = 0;
        while self.pool.take().is_some() {
            slots += 1;
        }
        assert_eq!(
            slots + self.engine.buffers,
            self.pool.slots(),
            "no slot was lost: {:?}",
            self.pool
        );
    }
}

/// A pattern whose bytes tell their place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

#[test]
fn this_kernel_has_what_it_is_asked_for() {
    // A kernel may lack any feature, but what is there and what is missing must add up.
    for without in levels() {
        let capabilities = probe::<Ring>(without, false).unwrap();
        let missing: FeatureSet = capabilities.missing.iter().map(|&(feature, _)| feature).collect();
        assert_eq!(FeatureSet::ALL.without(missing), capabilities.features);
        assert_eq!(capabilities.features.usable(), capabilities.features);
        assert!(capabilities.features.intersection(without).is_empty());
    }
}

#[test]
fn a_wake_is_reported_each_time() {
    at_all_levels(|fixture| {
        for _ in 0..3 {
            let wake = Arc::clone(&fixture.wake);
            assert!(wake.prepare_sleep());
            thread::spawn(move || wake.wake()).join().unwrap();
            assert!(matches!(fixture.next(), Completion::Woken));
            assert!(fixture.wake.end_sleep());
            for _ in 0..3 {
                fixture.poll();
            }
            assert!(fixture.pending.is_empty(), "a wake is reported once");
        }
        fixture.finish();
    });
}

#[test]
fn a_wake_while_the_engine_waits_ends_the_wait() {
    at_all_levels(|fixture| {
        assert!(fixture.wake.prepare_sleep());
        let wake = Arc::clone(&fixture.wake);
        let waker = thread::spawn(move || wake.wake());
        assert!(matches!(fixture.next(), Completion::Woken));
        waker.join().unwrap();
        fixture.finish();
    });
}

#[test]
fn an_ordinary_turn_is_one_system_call() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"hello").unwrap();
        let before = fixture.engine.counters().snapshot().system_calls;
        fixture.receive(0, &near, BUDGET);
        fixture.engine.wait(TURN, &mut fixture.pool).unwrap();
        assert_eq!(fixture.engine.counters().snapshot().system_calls, before + 1);
        let (bytes, _) = fixture.receive_bytes(0, &near, 5);
        assert_eq!(bytes, b"hello");
        fixture.finish();
    });
}

#[test]
fn turns_that_do_not_wait_make_progress() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        fixture.receive(0, &near, BUDGET);
        fixture.poll();
        far.write_all(b"hello").unwrap();
        let found = (0..TURNS).any(|_| {
            fixture.poll();
            !fixture.pending.is_empty()
        });
        assert!(found);
        assert_eq!(fixture.receive_bytes(0, &near, 5).0, b"hello");
        fixture.finish();
    });
}

/// A turn does a share of the deferred work (20 pieces since kernel 6.13), and must hear of the rest.
#[test]
fn turns_that_do_not_wait_work_off_more_than_a_share() {
    const CONNECTIONS: u32 = 100;
    at_all_levels(|fixture| {
        let (near, far): (Vec<_>, Vec<_>) = (0..CONNECTIONS).map(|_| UnixStream::pair().unwrap()).unzip();
        for (slot, socket) in (0..).zip(&near) {
            fixture.receive(slot, socket, BUDGET);
        }
        fixture.poll();
        drop(far);
        let mut open: HashSet<Slot> = (0..CONNECTIONS).map(Slot::new).collect();
        for _ in 0..TURNS {
            fixture.poll();
            while !fixture.pending.is_empty() {
                let (connection, received, more) = fixture.next_received();
                // An end needs a buffer to be seen, and there are fewer of these.
                let is_end = matches!(received, Received::End | Received::NoBuffers);
                assert!(is_end && !more, "{received:?}");
                assert!(open.remove(&connection), "{connection:?} ends once");
            }
            if open.is_empty() {
                break;
            }
        }
        assert!(open.is_empty(), "{open:?} still wait");
        fixture.finish();
    });
}

#[test]
fn a_turn_with_nothing_to_do_does_not_wait() {
    at_all_levels(|fixture| {
        for _ in 0..3 {
            fixture.poll();
        }
        assert!(fixture.pending.is_empty());
        fixture.finish();
    });
}
