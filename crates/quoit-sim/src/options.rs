//! Which run is wanted.

use quoit::EngineKind;
use quoit_sim_kernel::faults::FaultSet;

/// What runs on the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Workload {
    /// A handler of events.
    #[default]
    Events,
    /// The sockets of `quoit-async`, in tasks.
    Async,
}

/// Which run, and what is left out of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Decides everything else.
    pub seed: u64,
    /// The engine under test.
    pub engine: EngineKind,
    /// What runs on the loop.
    pub workload: Workload,
    /// The lives to be lived, by number; `None` is all that the seed has.
    pub only: Option<Vec<usize>>,
    /// Faults that do not strike.
    pub without: FaultSet,
    /// Turns before everything becomes fair, at most.
    pub turns: Option<u32>,
    /// Note what happens.
    pub trace: bool,
}

impl Options {
    /// All of a seed.
    #[must_use]
    pub fn new(seed: u64, engine: EngineKind) -> Self {
        Self {
            seed,
            engine,
            workload: Workload::default(),
            only: None,
            without: FaultSet::default(),
            turns: None,
            trace: false,
        }
    }
}
