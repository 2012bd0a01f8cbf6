//! The engines, options and downgrade levels at which cases are run.

use std::cell::Cell;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use quoit::{Config, EngineChoice, EngineKind, Feature, FeatureSet, try_uring};
use quoit_skipped::{pass_on, skip, skip_engine};

use crate::locked_memory;
use crate::sockets::PATIENCE;

/// One way to run a loop.
pub(crate) struct Level {
    engine: EngineKind,
    tune: fn(&mut Config),
    /// What the ring of this level has here, or why there is none.
    found: OnceLock<Result<FeatureSet, String>>,
}

macro_rules! levels {
    ($($name:ident: $engine:ident, $tune:expr;)*) => {
        $(pub(crate) static $name: Level = Level {
            engine: EngineKind::$engine,
            tune: $tune,
            found: OnceLock::new(),
        };)*
    };
}

levels! {
    EPOLL: Epoll, |_| ();
    EPOLL_TINY_POOL: Epoll, tiny_pool;
    EPOLL_TINY_TURNS: Epoll, |config| {
        config.receives_per_turn = 1;
        config.completions_per_turn = 1;
    };
    URING: Uring, |_| ();
    OLDEST: Uring, |config| config.without = FeatureSet::ALL.without(FeatureSet::OLDEST);
    WITHOUT_MULTISHOT_RECEIVE: Uring, |config| config.without.insert(Feature::MultishotReceive);
    WITHOUT_RECEIVE_BUDGET: Uring, |config| config.without.insert(Feature::ReceiveBudget);
    WITHOUT_BUFFER_RING: Uring, |config| config.without.insert(Feature::BufferRing);
    WITHOUT_MULTISHOT_ACCEPT: Uring, |config| config.without.insert(Feature::MultishotAccept);
    WITHOUT_DEFER_TASKRUN: Uring, |config| config.without.insert(Feature::DeferTaskrun);
    TINY_POOL: Uring, tiny_pool;
    TINY_QUEUES: Uring, |config| {
        config.submission_queue = 8;
        config.completion_queue = 8;
        // Everything is run with it at all other levels.
        config.without.insert(Feature::RestrictedRing);
    };
    ZERO_COPY: Uring, |config| config.zero_copy_threshold = Some(1);
    ZERO_COPY_REGISTERED: Uring, |config| {
        config.zero_copy_threshold = Some(1);
        registered(config);
    };
    REGISTERED: Uring, registered;
    KERNEL_POLL: Uring, |config| config.kernel_poll = Some(Duration::from_millis(50));
}

fn tiny_pool(config: &mut Config) {
    config.receive_slots = 4;
    config.receive_slot_size = 512;
    config.leases_per_connection = 4;
    config.buffer_ring = 4;
}

/// A pool that is as small as many of these tests allow, for all of it is locked: several fit into what an ordinary user
/// may lock.
fn registered(config: &mut Config) {
    config.receive_slots = 64;
    config.buffer_ring = 32;
    config.register_pool = true;
}

impl Level {
    /// The configuration of this level; small enough that many loops fit into one process.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config {
            engine: EngineChoice::Require(self.engine),
            connections: 4096,
            // What other tests have locked is free in time, for each of them ends.
            ring_memory_patience: PATIENCE,
            ..Config::default()
        };
        (self.tune)(&mut config);
        config
    }

    /// What a ring of this level has here, found by trying; `None` on epoll.
    pub(crate) fn features(&self) -> Option<FeatureSet> {
        let found = self.is_uring().then(|| self.found())?;
        Some(*found.as_ref().expect("a test runs where there is a ring"))
    }

    fn found(&self) -> &Result<FeatureSet, String> {
        let attempt = || try_uring(&self.config()).map_err(|reason| reason.to_string());
        self.found
            .get_or_init(|| attempt().map(|capabilities| capabilities.features))
    }

    /// Whether a receive ends after an exact number of bytes, so that nothing comes past a lease cap.
    pub(crate) fn receives_exactly(&self) -> bool {
        self.features().is_none_or(|features| {
            !features.contains(Feature::MultishotReceive) || features.contains(Feature::ReceiveBudget)
        })
    }

    pub(crate) fn is_uring(&self) -> bool {
        self.engine == EngineKind::Uring
    }

    /// Whether `try_send` gives the kernel so many bytes at once.
    pub(crate) fn sends_at_once(&self, length: usize) -> bool {
        self.sends_from(32 * 1024, length)
    }

    /// Whether `try_send_gathered` does.
    pub(crate) fn sends_pieces_at_once(&self, length: usize) -> bool {
        self.sends_from(8 * 1024, length)
    }

    fn sends_from(&self, least: usize, length: usize) -> bool {
        let config = self.config();
        let by_itself = config.kernel_poll.is_none() && config.zero_copy_threshold.is_none();
        !self.is_uring() || (by_itself && length >= least)
    }
}

thread_local! {
    static RUNNING: Cell<&'static str> = const { Cell::new("") };
}

/// Runs one case, or says that it cannot be run here.
pub(crate) fn run(level: &Level, path: &'static str, case: fn(&Level)) {
    let test = path.split_once("::").unwrap().1;
    // Tests that lock more than a user may together wait for each other.
    let _locks = level.is_uring().then(|| locked_memory::reserve(&level.config()));
    if level.is_uring()
        && let Err(reason) = level.found()
    {
        if std::ptr::eq(level, &raw const URING) {
            skip_engine("uring", test, reason);
        } else {
            skip(test, reason);
        }
        return;
    }
    RUNNING.set(test);
    case(level);
}

/// Runs the rest of this test in a process of its own, for what concerns a whole process.
pub(crate) fn alone(body: impl FnOnce()) {
    const ALONE: &str = "QUOIT_CONFORMANCE_ALONE";
    if std::env::var_os(ALONE).is_some() {
        body();
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([RUNNING.get(), "--exact", "--test-threads=1", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    pass_on(&output);
}
