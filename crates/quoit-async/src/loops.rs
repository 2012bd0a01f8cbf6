//! Loops on threads of their own, for programs that have a runtime already.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use quoit::{Address, Config, Counters, EngineKind, Loop, Runtime, RuntimeConfig, TurnError};

use crate::driver::{Driver, Served, run_turns};
use crate::errors::start_error;
use crate::family::Family;
use crate::home::{self, Home};
use crate::lock::lock;

/// Loops that run on threads of their own: the easy way. A program that has its runtime already uses their sockets from any of
/// its tasks.
///
/// Sockets that are opened outside of a loop's thread are of the program's default loops, which start by themselves at the first
/// such socket: as many as half of the processors, with [`Config::default`]. To have others, start them and make them the
/// default before.
///
/// ```
/// use quoit_async::{Loops, LoopsConfig};
///
/// let loops = Loops::start(LoopsConfig { loops: 2, ..LoopsConfig::default() })?;
/// println!("on {}: {}", loops.engine(), loops.engine_reason());
/// loops.make_default()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Loops {
    runtime: Runtime,
    family: Arc<Family>,
}

/// What [`Loops`] are made from.
#[derive(Clone, Debug)]
pub struct LoopsConfig {
    /// Loops, and so threads. Default: half of the processors, at least 1.
    pub loops: u16,
    /// The configuration of each.
    pub config: Config,
    /// Pin each loop's thread to a processor of its own. Default: off.
    pub pin: bool,
}

impl Default for LoopsConfig {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            loops: u16::try_from(processors.div_ceil(2)).unwrap_or(u16::MAX).min(64),
            config: Config::default(),
            pin: false,
        }
    }
}

static DEFAULT: OnceLock<Loops> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

/// Says once, where the program keeps its log, which engine the loops run on and why.
pub(crate) fn tell_engine(runtime: &Runtime) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        engine = %runtime.engine(),
        reason = runtime.engine_reason(),
        loops = runtime.remotes().count(),
        "loops have started"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = runtime;
}

impl Loops {
    /// Starts loops.
    ///
    /// # Errors
    /// What failed, and what to do: io_uring is denied and was required, a thread or memory cannot be had.
    pub fn start(config: LoopsConfig) -> io::Result<Self> {
        let started = Arc::new(Started::default());
        let on_thread = Arc::clone(&started);
        let runtime = Runtime::start_owned(
            RuntimeConfig {
                loops: config.loops,
                pin: config.pin,
                config: config.config,
                ..RuntimeConfig::default()
            },
            move |event_loop| run(event_loop, &on_thread),
        )
        .map_err(start_error)?;
        tell_engine(&runtime);
        let family = Family::of(&runtime);
        started.set(Arc::clone(&family), Vec::new());
        Ok(Self { runtime, family })
    }

    /// Makes these the loops of sockets that are opened outside of a loop's thread, for as long as the program runs.
    ///
    /// # Errors
    /// `AlreadyExists` if there are default loops already: make these so before the first socket is opened.
    pub fn make_default(self) -> io::Result<()> {
        DEFAULT.set(self).map_err(|_| {
            io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the program has default loops already; start these before the first socket is opened",
            )
        })
    }

    /// The engine of all of them.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.runtime.engine()
    }

    /// Why it is that one, and what io_uring lacks here if it is not. One line.
    #[must_use]
    pub fn engine_reason(&self) -> &str {
        self.runtime.engine_reason()
    }

    /// The counters of each loop as of now.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        self.runtime.remotes().map(quoit::Remote::counters).collect()
    }

    /// Ends them: listeners stop, and connections that are left after this time are reset. Returns when all have ended.
    ///
    /// # Errors
    /// What a loop failed with.
    pub fn drain(self, within: Duration) -> io::Result<()> {
        self.runtime.drain(within);
        self.runtime.join().map_err(io::Error::other)
    }
}

/// The default loops' counters; empty if none have started.
#[must_use]
pub fn default_counters() -> Vec<Counters> {
    DEFAULT.get().map(Loops::counters).unwrap_or_default()
}

/// Ends the default loops: listeners stop, and connections that are left after this time are reset. Returns when all have ended,
/// at once if none have started.
///
/// To be awaited before `main` returns. What was written is on its way by a thread of a loop then, and would be lost with the
/// process; a kernel's socket has no such moment.
pub async fn drain_default(within: Duration) {
    let Some(loops) = DEFAULT.get() else { return };
    loops.runtime.drain(within);
    for home in loops.family.homes() {
        home.ended.wait().await;
    }
}

/// The default loops.
pub(crate) fn family() -> io::Result<&'static Arc<Family>> {
    if let Some(loops) = DEFAULT.get() {
        return Ok(&loops.family);
    }
    let _one_at_a_time = lock(&STARTING);
    if DEFAULT.get().is_none() {
        // Somebody may have made others the default meanwhile, which is as good.
        let _ = Loops::start(LoopsConfig::default())?.make_default();
    }
    Ok(&DEFAULT.get().expect("set just now").family)
}

/// The loops of which a socket that is opened here belongs to one.
pub(crate) fn family_here() -> io::Result<Arc<Family>> {
    match home::current() {
        Some(home) => Ok(home.family()),
        None => family().cloned(),
    }
}

/// The loop that a socket which is opened here belongs to.
pub(crate) fn home() -> io::Result<Arc<Home>> {
    match home::current() {
        Some(home) => Ok(home),
        None => Ok(Arc::clone(family()?.next())),
    }
}

/// The family of loops that have been started, for their threads to wait for.
#[derive(Default)]
pub(crate) struct Started {
    started: OnceLock<(Arc<Family>, Vec<Address>)>,
}

impl Started {
    pub(crate) fn set(&self, family: Arc<Family>, addresses: Vec<Address>) {
        let set = self.started.set((family, addresses));
        assert!(set.is_ok(), "loops are started once");
    }

    /// The loops, and where they listen.
    pub(crate) fn wait(&self) -> &(Arc<Family>, Vec<Address>) {
        self.started.wait()
    }
}

/// Runs a loop on its thread until it has drained.
fn run(event_loop: Loop, started: &Started) -> Result<(), TurnError> {
    let index = usize::from(event_loop.index().get());
    let home = Arc::clone(&started.wait().0.homes()[index]);
    let driver = Rc::new(RefCell::new(Driver::new(event_loop, Arc::clone(&home))));
    let _served = Served::begin(&driver);
    run_turns(&driver)
}
