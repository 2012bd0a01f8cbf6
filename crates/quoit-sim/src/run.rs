//! Running one seed, and catching what goes wrong.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use quoit::internals::LoopMemory;
use quoit::internals::engine::Engine;
use quoit::internals::engine::epoll::{EpollEngine, EpollSettings};
use quoit::internals::engine::uring::{Capabilities, UringEngine, UringSettings, probe};
use quoit::{EngineKind, FeatureSet};
use quoit_sim_kernel::faces::{SimEpoll, SimRing, SimSockets};
use quoit_sim_kernel::faults::FaultCounts;
use quoit_sim_kernel::kernel::{self, Kernel};

use crate::asynchronous::AsyncWorld;
use crate::handler::bury;
use crate::options::Options;
use crate::plan::Plan;
use crate::siege::Siege;
use crate::world::{Summary, World};

/// What became of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What it came to, or what was wrong.
    pub result: Result<Summary, String>,
    /// The faults that struck.
    pub counts: FaultCounts,
    /// What happened, if that was asked for.
    pub trace: Vec<String>,
}

thread_local! {
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes panics of runs values instead of lines on standard error. For the whole process; panics elsewhere are told
/// as ever.
pub fn catch_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |information| {
        let payload = information.payload();
        let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (_, Some(text)) => text.as_str(),
            _ => "a panic without a message",
        };
        let place = information
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let is_run = RUNNING.with(|running| *running.borrow());
        if is_run {
            MESSAGE.with_borrow_mut(|message| *message = Some(format!("{text} ({place})")));
        } else {
            before(information);
        }
    }));
}

thread_local! {
    static RUNNING: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs one seed. The same options always come to the same outcome.
#[must_use]
pub fn run(options: &Options) -> Outcome {
    RUNNING.set(true);
    let plan = Plan::draw(options);
    kernel::install(Kernel::new(
        options.seed,
        plan.profile.clone(),
        4096,
        options.trace,
    ));
    let result = catch_unwind(AssertUnwindSafe(|| match options.engine {
        EngineKind::Uring => live(options, plan, make_uring),
        EngineKind::Epoll => live(options, plan, make_epoll),
    }));
    let kernel = kernel::remove();
    bury();
    RUNNING.set(false);
    let result = result.map_err(|_| {
        MESSAGE
            .with_borrow_mut(Option::take)
            .unwrap_or_else(|| "a panic without a message".to_owned())
    });
    let (counts, trace) = kernel.map_or_else(Default::default, |mut kernel| {
        let trace = kernel.take_trace();
        kernel.end_counting();
        (kernel.counts, trace)
    });
    Outcome {
        result,
        counts,
        trace,
    }
}

fn live<E: Engine + 'static>(
    options: &Options,
    plan: Plan,
    make: impl Fn(&Plan, &mut LoopMemory) -> E,
) -> Summary {
    if let Some(tasks) = plan.asynchronous.clone() {
        return AsyncWorld::new(options, &plan, tasks, make).run();
    }
    match plan.siege.clone() {
        Some(siege) => Siege::new(options, &plan, siege, make).run(),
        None => World::new(options, plan, make).run(),
    }
}

fn make_uring(plan: &Plan, memory: &mut LoopMemory) -> UringEngine<SimRing, SimSockets> {
    let settings = UringSettings {
        submission_entries: plan.config.submission_queue,
        completion_entries: plan.config.completion_entries(plan.features),
        buffer_entries: plan.config.buffer_ring as u16,
        kernel_poll: plan.config.kernel_poll,
        register_pool: plan.config.register_pool,
        coalesce: plan.config.wait.coalesces(),
        coalesce_at_most: plan.config.completions_per_turn,
        notifier: plan
            .config
            .pollable
            .then(|| memory.notifier().expect("eventfds are to be had")),
    };
    let capabilities = if plan.probes {
        let found = kernel::in_fairness(|| {
            probe::<SimRing>(FeatureSet::ALL.without(plan.features), plan.config.pollable)
        });
        let found = found.expect("the simulated kernel has all that is needed");
        assert_eq!(
            found.features, plan.features,
            "what the probe found, and what there is"
        );
        found
    } else {
        Capabilities {
            features: plan.features,
            missing: Vec::new(),
        }
    };
    UringEngine::new(&settings, &capabilities, SimSockets, memory.pool()).expect("memory is to be had")
}

fn make_epoll(plan: &Plan, _memory: &mut LoopMemory) -> EpollEngine<SimEpoll, SimSockets> {
    let settings = EpollSettings {
        receives_per_turn: plan.config.receives_per_turn,
        events: plan.config.completions_per_turn.min(1024),
        connections: 64,
        coalesce: plan.config.wait.coalesces(),
        ..EpollSettings::default()
    };
    EpollEngine::new(settings, SimSockets).expect("instances are to be had")
}
