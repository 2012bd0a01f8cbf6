//! `quoit lab bench`: the engines against their floors and against each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::bulk;
use super::comparison::{self, Outcome, Pair};
use super::environment::Environment;
use super::error::{LabError, Result};
use super::generator::{Load, Protocol};
use super::idle::{self, IdleFigures};
use super::measure::Rig;
use super::pairs::NoiseBand;
use super::placement::{Cores, Placement};
use super::programs::{Engine, Programs};
use super::server::ServerCommand;
use super::syscalls::SystemCalls;
use super::table;

/// The closed loops that all sides are put under.
const WORKLOADS: [(&str, Load); 4] = [
    (
        "echo-1",
        Load {
            protocol: Protocol::Echo,
            connections: 64,
            pipeline: 1,
        },
    ),
    (
        "echo-16",
        Load {
            protocol: Protocol::Echo,
            connections: 64,
            pipeline: 16,
        },
    ),
    (
        "plaintext-1",
        Load {
            protocol: Protocol::Http,
            connections: 64,
            pipeline: 1,
        },
    ),
    (
        "plaintext-16",
        Load {
            protocol: Protocol::Http,
            connections: 64,
            pipeline: 16,
        },
    ),
];

/// The measurement of idle connections, as in `--filter`.
const IDLE: &str = "idle";

/// Arguments of `quoit lab bench`.
#[derive(Args)]
pub(crate) struct BenchArguments {
    /// Pairs of runs for each comparison and each control
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: u32,
    /// Seconds of one run
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Only measurements with this in their name, such as `echo-1 `, `quoit/uring:floor`, `bulk` or `idle`
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// Which cores the server and the load generator run on
    #[arg(long, value_enum, default_value_t = Placement::SameCore)]
    placement: Placement,
    /// The program `quoit` to measure, instead of this one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Write all raw results and the environment to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contestant {
    Quoit(Engine),
    Floor(Engine),
}

impl Contestant {
    fn name(self) -> String {
        match self {
            Self::Quoit(engine) => format!("quoit/{}", engine.name()),
            Self::Floor(engine) => format!("floor/{}", engine.name()),
        }
    }

    fn command(self, programs: &Programs, protocol: Protocol) -> Result<ServerCommand> {
        match self {
            Self::Quoit(engine) => Ok(programs.quoit_server(protocol, engine)),
            Self::Floor(engine) => programs.floor(protocol, engine),
        }
    }
}

/// A comparison with the controls that its noise is taken from: the wider band counts.
type Planned = ([Contestant; 2], &'static [Contestant]);

const FLOOR_URING: Contestant = Contestant::Floor(Engine::Uring);
const FLOOR_EPOLL: Contestant = Contestant::Floor(Engine::Epoll);
const QUOIT_URING: Contestant = Contestant::Quoit(Engine::Uring);
const QUOIT_EPOLL: Contestant = Contestant::Quoit(Engine::Epoll);

/// What is compared under each load.
const COMPARISONS: [Planned; 3] = [
    ([QUOIT_URING, FLOOR_URING], &[FLOOR_URING]),
    ([QUOIT_EPOLL, FLOOR_EPOLL], &[FLOOR_EPOLL]),
    ([QUOIT_URING, QUOIT_EPOLL], &[FLOOR_URING, FLOOR_EPOLL]),
];

/// What is compared on one stream; the floors do not serve it, so the control is our own epoll.
const BULK: Planned = ([QUOIT_URING, QUOIT_EPOLL], &[QUOIT_EPOLL]);

/// What is measured.
#[derive(Clone, Copy)]
enum Work {
    Requests(Load),
    Stream,
}

impl Work {
    fn protocol(self) -> Protocol {
        match self {
            Self::Requests(load) => load.protocol,
            Self::Stream => Protocol::Http,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Requests(_) => "request",
            Self::Stream => "MiB",
        }
    }
}

/// One workload with those of its comparisons that were asked for.
struct Plan {
    name: &'static str,
    work: Work,
    comparisons: Vec<Planned>,
}

impl Plan {
    /// The controls that the comparisons need, each once.
    fn controls(&self) -> Vec<Contestant> {
        let mut controls = Vec::new();
        for control in self.comparisons.iter().flat_map(|(_, controls)| *controls) {
            if !controls.contains(control) {
                controls.push(*control);
            }
        }
        controls
    }
}

/// The plans for a filter; without one, all.
fn plans(filter: Option<&str>) -> Vec<Plan> {
    let requests = WORKLOADS.map(|(name, load)| (name, Work::Requests(load), &COMPARISONS[..]));
    let all = requests
        .into_iter()
        .chain([("bulk", Work::Stream, std::slice::from_ref(&BULK))]);
    all.filter_map(|(name, work, comparisons)| {
        let comparisons: Vec<Planned> = comparisons
            .iter()
            .copied()
            .filter(|(sides, _)| selected(filter, &title(name, *sides)))
            .collect();
        (!comparisons.is_empty()).then_some(Plan {
            name,
            work,
            comparisons,
        })
    })
    .collect()
}

fn title(workload: &str, [a, b]: [Contestant; 2]) -> String {
    format!("{workload} {}:{}", a.name(), b.name())
}

fn selected(filter: Option<&str>, name: &str) -> bool {
    filter.is_none_or(|filter| name.contains(filter))
}

/// All that a benchmark found.
#[derive(Serialize)]
struct Bench {
    environment: Environment,
    placement: Placement,
    cores: Cores,
    pairs: u32,
    seconds: u32,
    /// Losses first, then by the ratio of the costs.
    outcomes: Vec<Outcome>,
    controls: Vec<Control>,
    idle: Vec<IdleFigures>,
    /// Measurements that failed, with the reason.
    failures: Vec<String>,
}

/// A server against itself.
#[derive(Serialize)]
struct Control {
    name: String,
    noise: NoiseBand,
    pairs: Vec<Pair>,
}

/// Runs the benchmark, prints it and writes it to the file asked for.
pub(crate) fn run(arguments: &BenchArguments) -> Result<()> {
    let filter = arguments.filter.as_deref();
    let plans = plans(filter);
    let with_idle = selected(filter, IDLE);
    if plans.is_empty() && !with_idle {
        let name = filter.unwrap_or_default();
        return Err(LabError::new(format!(
            "no measurement has `{name}` in its name; without --filter all run"
        )));
    }
    let rig = Rig {
        programs: Programs::find(arguments.program.as_deref())?,
        cores: Cores::choose(arguments.placement)?,
    };
    let mut bench = Bench {
        environment: Environment::read(),
        placement: arguments.placement,
        cores: rig.cores,
        pairs: arguments.pairs,
        seconds: arguments.seconds,
        outcomes: Vec::new(),
        controls: Vec::new(),
        idle: Vec::new(),
        failures: Vec::new(),
    };
    let progress = progress_bar(&plans, arguments.pairs);
    for plan in &plans {
        bench.run_plan(&rig, plan, &progress);
    }
    if with_idle {
        for engine in [Engine::Uring, Engine::Epoll] {
            let command = rig.programs.quoit_server(Protocol::Http, engine);
            progress.set_message(format!("idle connections on {}", command.name));
            match idle::measure(&rig, &command) {
                Ok(figures) => bench.idle.push(figures),
                Err(error) => bench.failures.push(format!("{IDLE} {}: {error}", command.name)),
            }
        }
    }
    progress.finish_and_clear();
    bench.outcomes.sort_by(|one, other| {
        one.verdict
            .cmp(&other.verdict)
            .then(other.cost.median.total_cmp(&one.cost.median))
    });
    bench.print();
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&bench)
            .map_err(|error| LabError::new(format!("writing the figures as JSON: {error}")))?;
        fs::write(path, json).map_err(LabError::io(format!("writing {}", path.display())))?;
    }
    match bench.failures.len() {
        0 => Ok(()),
        failures => Err(LabError::new(format!(
            "{failures} measurement(s) failed, as stated above"
        ))),
    }
}

fn progress_bar(plans: &[Plan], pairs: u32) -> ProgressBar {
    let series: usize = plans
        .iter()
        .map(|plan| plan.comparisons.len() + plan.controls().len())
        .sum();
    let bar = ProgressBar::new(series as u64 * u64::from(pairs));
    if let Ok(style) =
        ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed_precise} (left {eta}) {msg}")
    {
        bar.set_style(style);
    }
    bar
}

impl Bench {
    /// Runs the controls and comparisons of one workload. A failure costs what depends on it, not the rest.
    fn run_plan(&mut self, rig: &Rig, plan: &Plan, progress: &ProgressBar) {
        let mut bands: Vec<(Contestant, NoiseBand)> = Vec::new();
        for control in plan.controls() {
            let name = title(plan.name, [control; 2]);
            match self
                .run_series(rig, plan.work, [control; 2], &name, progress)
                .and_then(|pairs| {
                    let noise = comparison::noise_of(&pairs)
                        .ok_or_else(|| LabError::new("the control has no pairs to sum up"))?;
                    Ok(Control {
                        name: name.clone(),
                        noise,
                        pairs,
                    })
                }) {
                Ok(measured) => {
                    bands.push((control, measured.noise));
                    self.controls.push(measured);
                }
                Err(error) => self.failures.push(format!("{name}: {error}")),
            }
        }
        for (sides, controls) in &plan.comparisons {
            let name = title(plan.name, *sides);
            let noise = bands
                .iter()
                .filter(|(control, _)| controls.contains(control))
                .map(|(_, noise)| *noise)
                .reduce(NoiseBand::wider);
            let Some(noise) = noise else {
                self.failures
                    .push(format!("{name}: not measured, because its control failed"));
                continue;
            };
            match self.compare(rig, plan.work, *sides, noise, &name, progress) {
                Ok(outcome) => self.outcomes.push(outcome),
                Err(error) => self.failures.push(format!("{name}: {error}")),
            }
        }
    }

    fn compare(
        &self,
        rig: &Rig,
        work: Work,
        sides: [Contestant; 2],
        noise: NoiseBand,
        name: &str,
        progress: &ProgressBar,
    ) -> Result<Outcome> {
        let pairs = self.run_series(rig, work, sides, name, progress)?;
        let [a, b] = sides.map(|side| -> Result<(ServerCommand, SystemCalls)> {
            let command = side.command(&rig.programs, work.protocol())?;
            let calls = match work {
                Work::Requests(load) => comparison::count_system_calls(rig, &command, load)?,
                Work::Stream => {
                    SystemCalls::NotCounted("a stream has no requests to divide them by".to_owned())
                }
            };
            Ok((command, calls))
        });
        let ((a, a_calls), (b, b_calls)) = (a?, b?);
        Outcome::of(
            name.to_owned(),
            work.unit(),
            [(&a, a_calls), (&b, b_calls)],
            pairs,
            noise,
        )
    }

    fn run_series(
        &self,
        rig: &Rig,
        work: Work,
        sides: [Contestant; 2],
        name: &str,
        progress: &ProgressBar,
    ) -> Result<Vec<Pair>> {
        progress.set_message(name.to_owned());
        let [a, b] = sides.map(|side| side.command(&rig.programs, work.protocol()));
        let (a, b) = (a?, b?);
        let count = self.pairs as usize;
        let done = || progress.inc(1);
        match work {
            Work::Requests(load) => comparison::run_pairs(
                [&a, &b],
                count,
                |command| rig.start_warm(command, load),
                |server| rig.measure(server, load, self.seconds),
                done,
            ),
            Work::Stream => comparison::run_pairs(
                [&a, &b],
                count,
                |command| {
                    let server = rig.start(command)?;
                    bulk::warm(rig, &server)?;
                    Ok(server)
                },
                |server| bulk::measure(rig, server),
                done,
            ),
        }
    }

    fn print(&self) {
        if !self.outcomes.is_empty() {
            self.print_outcomes();
        }
        if !self.idle.is_empty() {
            self.print_idle();
        }
        for failure in &self.failures {
            println!("FAILED {failure}");
        }
        let sides = self.outcomes.iter().flat_map(|outcome| [&outcome.a, &outcome.b]);
        let uncounted: BTreeSet<&str> = sides
            .filter_map(|side| match &side.system_calls_per_unit {
                SystemCalls::NotCounted(reason) => Some(reason.as_str()),
                SystemCalls::Counted(_) => None,
            })
            .collect();
        for reason in uncounted {
            println!("System calls that are missing were not counted: {reason}.");
        }
        println!("{}", self.environment.summary());
        for note in self.environment.notes() {
            println!("Note: {note}.");
        }
    }

    fn print_outcomes(&self) {
        println!(
            "Cost is the server's CPU time a unit, as the median of {} pairwise ratios with its 95 % interval; \
             below the control's band is a win, above it a loss.",
            self.pairs
        );
        let mut outcomes = table::table(&[
            "comparison A:B",
            "verdict",
            "cost, A / B",
            "A/A band",
            "cost with\nthe load's",
            "server CPU\nA : B",
            "for a",
            "system calls\nA : B",
            "a second\nA : B",
        ]);
        for outcome in &self.outcomes {
            let Outcome { a, b, .. } = outcome;
            let both = |of: fn(f64) -> String, a: f64, b: f64| format!("{} : {}", of(a), of(b));
            outcomes.add_row(vec![
                outcome.name.clone(),
                outcome.verdict.name().to_owned(),
                table::ratio(outcome.cost),
                format!("{:.3} to {:.3}", 1.0 / outcome.noise.factor, outcome.noise.factor),
                outcome
                    .total_cost
                    .map_or_else(|| "-".to_owned(), |ratio| format!("{:.3}", ratio.median)),
                both(
                    table::nanoseconds,
                    a.server_cpu_ns_per_unit,
                    b.server_cpu_ns_per_unit,
                ),
                outcome.unit.to_owned(),
                format!(
                    "{} : {}",
                    table::system_calls(&a.system_calls_per_unit),
                    table::system_calls(&b.system_calls_per_unit)
                ),
                both(table::count, a.units_per_second, b.units_per_second),
            ]);
        }
        println!("{outcomes}");
    }

    fn print_idle(&self) {
        let mut idle = table::table(&[
            "idle connections",
            "opened",
            "open after 5 s",
            "memory of\neach",
            "memory\nbefore",
            "CPU\na second",
        ]);
        for figures in &self.idle {
            idle.add_row(vec![
                figures.server.clone(),
                table::count(figures.connections as f64),
                table::count(figures.still_open as f64),
                format!("{} B", table::count(figures.resident_bytes_per_connection())),
                format!(
                    "{} KiB",
                    table::count(figures.resident_bytes_before as f64 / 1024.0)
                ),
                table::nanoseconds(figures.cpu_ns_per_second),
            ]);
        }
        println!("{idle}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(filter: Option<&str>) -> Vec<String> {
        let titles = |plan: &Plan| {
            let name = plan.name;
            plan.comparisons
                .iter()
                .map(move |(sides, _)| title(name, *sides))
                .collect::<Vec<_>>()
        };
        plans(filter).iter().flat_map(titles).collect()
    }

    #[test]
    fn without_a_filter_everything_is_compared() {
        assert_eq!(names(None).len(), WORKLOADS.len() * COMPARISONS.len() + 1);
    }

    #[test]
    fn a_filter_selects_by_workload_or_side() {
        assert_eq!(
            names(Some("echo-16")),
            [
                "echo-16 quoit/uring:floor/uring",
                "echo-16 quoit/epoll:floor/epoll",
                "echo-16 quoit/uring:quoit/epoll"
            ]
        );
        assert_eq!(names(Some("bulk")), ["bulk quoit/uring:quoit/epoll"]);
        assert_eq!(names(Some("quoit/epoll:floor")).len(), WORKLOADS.len());
        assert!(names(Some("nothing")).is_empty());
    }

    #[test]
    fn only_the_controls_that_are_needed_run() {
        let controls = |filter| {
            plans(Some(filter))[0]
                .controls()
                .iter()
                .map(|side| side.name())
                .collect::<Vec<_>>()
        };
        assert_eq!(controls("echo-1 quoit/uring:floor"), ["floor/uring"]);
        assert_eq!(controls("echo-1 "), ["floor/uring", "floor/epoll"]);
        assert_eq!(controls("bulk"), ["quoit/epoll"]);
    }
}
