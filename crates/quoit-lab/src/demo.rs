//! `quoit lab demo`: both engines under the same load, in half a minute.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use quoit_report::pairs::{self, Side};
use quoit_report::results::model::{Environment, Figures, Slice};
use quoit_report::table;
use serde::Serialize;

use super::console;
use super::environment;
use super::error::{LabError, Result};
use super::experiment::model::{
    Case, Effort, Experiment, LoadSpec, Metrics, Pace, PlacementKind, Ready, ServerSpec, Workload,
};
use super::placement::site::Site;
use super::programs::Programs;
use super::run::{Halt, Interrupts, Job, Rig};
use super::syscalls::SystemCalls;

/// Pairs of runs; two make ABBA.
const PAIRS: usize = 2;
/// What is asked of the servers.
const CONNECTIONS: u32 = 64;
const PATH: &str = "/plaintext";
/// Seconds that a server is loaded before anything is measured: its pools fill, its memory is touched.
const WARM_UP: f64 = 1.0;
/// Counters below so many a request are left out of the table.
const NEGLIGIBLE: f64 = 0.000_05;

/// Arguments of `quoit lab demo`.
#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Seconds of each of the four runs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Which cores the server and the load generator run on
    #[arg(long, value_enum, default_value_t = DemoPlacement::SameCore)]
    placement: DemoPlacement,
    /// The program `quoit` to measure, instead of this one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// The placements that need nothing but cores.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DemoPlacement {
    /// Both on one core: wake-ups between virtual cores are slow and erratic, and then throughput is the
    /// hypervisor's
    SameCore,
    /// Each on cores of its own
    SplitCore,
}

/// What the demo found.
#[derive(Serialize)]
struct Demo {
    environment: Environment,
    placement: PlacementKind,
    server_cores: Vec<usize>,
    generator_cores: Vec<usize>,
    connections: u32,
    engines: Vec<EngineFigures>,
    /// Engines that could not be measured, and why.
    unavailable: BTreeMap<&'static str, String>,
}

/// The figures of one engine over all its runs.
#[derive(Serialize)]
struct EngineFigures {
    engine: &'static str,
    requests_per_second: f64,
    latency_p50_ns: Option<f64>,
    latency_p99_ns: Option<f64>,
    server_cpu_ns_per_request: f64,
    generator_cpu_ns_per_request: Option<f64>,
    context_switches_per_request: Option<f64>,
    system_calls_per_request: SystemCalls,
    /// The server's own counters, a request; empty when it shows none.
    counters_per_request: BTreeMap<String, f64>,
}

/// One engine while it is measured.
struct Contestant {
    engine: &'static str,
    server: ServerSpec,
    slices: Vec<Slice>,
}

/// Runs the demo and prints what it found.
pub(crate) fn run(arguments: &DemoArguments) -> Result<()> {
    let programs = Programs::find(arguments.program.as_deref())?;
    let interrupts = Interrupts::listen()?;
    let experiment = experiment(arguments);
    let case = &experiment.cases[0];
    let site = Site::prepare(&experiment)?;
    let rig = Rig {
        programs: &programs,
        site: &site,
        interrupts: &interrupts,
        seconds: experiment.effort.seconds,
        warm_up: experiment.effort.warm_up,
    };
    let environment = environment::at(&site);
    let progress = progress_bar();
    fn job<'a>(server: &'a ServerSpec, case: &'a Case) -> Job<'a> {
        Job {
            server,
            case,
            client: None,
            rate: None,
            reading: None,
        }
    }

    let mut unavailable = BTreeMap::new();
    let mut contestants: Vec<Contestant> = Vec::new();
    for engine in ["uring", "epoll"] {
        contestants.push(Contestant {
            engine,
            server: server(engine),
            slices: Vec::new(),
        });
    }
    for pair in 0..PAIRS {
        for side in pairs::order(pair) {
            let engine = if side == Side::A { "uring" } else { "epoll" };
            let contestant = contestants
                .iter_mut()
                .find(|contestant| contestant.engine == engine);
            if let Some(contestant) = contestant {
                progress.set_message(format!("measuring {engine}"));
                match rig.measure(job(&contestant.server, case)) {
                    Ok(measured) => contestant.slices.push(measured.slice),
                    // Without io_uring there is still a figure to show; without epoll something is broken.
                    Err(Halt::Failed(error)) if engine == "uring" => {
                        unavailable.insert("uring", error.to_string());
                        contestants.retain(|contestant| contestant.engine != "uring");
                    }
                    Err(halt) => return Err(failure(halt)),
                }
            }
            progress.inc(1);
        }
    }
    let mut engines = Vec::new();
    for contestant in contestants {
        progress.set_message(format!("counting the system calls of {}", contestant.engine));
        let counted = rig
            .count_system_calls(job(&contestant.server, case))
            .map_err(failure)?;
        let system_calls = counted.map_or_else(SystemCalls::NotCounted, SystemCalls::Counted);
        engines.push(contestant.finish(system_calls)?);
        progress.inc(1);
    }
    progress.finish_and_clear();

    let demo = Demo {
        environment,
        placement: experiment.placement,
        server_cores: site.server_cores().to_vec(),
        generator_cores: site.generator_cores().to_vec(),
        connections: CONNECTIONS,
        engines,
        unavailable,
    };
    if arguments.json {
        let json = serde_json::to_string_pretty(&demo)
            .map_err(|error| LabError::new(format!("writing the figures as JSON: {error}")))?;
        console::print(&(json + "\n"))
    } else {
        console::print(&demo.text())
    }
}

fn failure(halt: Halt) -> LabError {
    match halt {
        Halt::Interrupted => LabError::new("interrupted"),
        Halt::Failed(error) => error,
    }
}

/// The demo as an experiment.
fn experiment(arguments: &DemoArguments) -> Experiment {
    let effort = Effort {
        pairs: PAIRS as u32,
        most_pairs: PAIRS as u32,
        band: 1.0,
        seconds: arguments.seconds.into(),
        warm_up: WARM_UP,
    };
    Experiment {
        name: "demo".to_owned(),
        title: "What io_uring changes here".to_owned(),
        about: String::new(),
        claims: Vec::new(),
        published: Vec::new(),
        placement: match arguments.placement {
            DemoPlacement::SameCore => PlacementKind::SameCore,
            DemoPlacement::SplitCore => PlacementKind::SplitCore,
        },
        generators: Vec::new(),
        host: None,
        effort,
        quick: effort,
        servers: vec![server("uring"), server("epoll")],
        baseline: "epoll".to_owned(),
        clients: Vec::new(),
        cases: vec![Case {
            name: "plaintext".to_owned(),
            in_quick: true,
            workload: Workload::Load(LoadSpec {
                protocol: "http".to_owned(),
                connections: CONNECTIONS,
                threads: 1,
                pipeline: 1,
                pace: Pace::Closed,
                arguments: vec!["--path".to_owned(), PATH.to_owned()],
            }),
        }],
        own_programs: false,
    }
}

/// Our server on an engine, with one loop.
fn server(engine: &str) -> ServerSpec {
    let words = [
        "{quoit}", "serve", "http", "--listen", "{listen}", "--loops", "1", "--engine", engine,
    ];
    ServerSpec {
        name: engine.to_owned(),
        command: words.map(str::to_owned).to_vec(),
        command_from: None,
        environment: BTreeMap::new(),
        ready: Ready::Line,
        port: None,
        against: None,
        io_uring: engine == "uring",
        in_quick: true,
        asked_for: false,
        expects: vec![format!("engine={engine}"), "loops=1".to_owned()],
        metrics: Some(Metrics::Served),
        not_in: Vec::new(),
        needs: Vec::new(),
        remedy: String::new(),
    }
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new((2 * PAIRS + 2) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

impl Contestant {
    fn finish(self, system_calls: SystemCalls) -> Result<EngineFigures> {
        if let Some(reason) = self.slices.iter().find_map(|slice| slice.spoiled.as_ref()) {
            return Err(LabError::new(format!(
                "measuring {}: {reason}; try again",
                self.engine
            )));
        }
        let requests: f64 = self.slices.iter().map(|slice| slice.figures.units).sum();
        // Means over requests, so that a longer run weighs more.
        let weighted = |figure: fn(&Figures) -> Option<f64>| -> Option<f64> {
            let sums = self
                .slices
                .iter()
                .map(|slice| Some(figure(&slice.figures)? * slice.figures.units));
            sums.sum::<Option<f64>>().map(|sum| sum / requests)
        };
        let mean = |figure: fn(&Figures) -> Option<f64>| -> Option<f64> {
            let sum: Option<f64> = self.slices.iter().map(|slice| figure(&slice.figures)).sum();
            sum.map(|sum| sum / self.slices.len() as f64)
        };
        let mut counters = BTreeMap::new();
        for (name, value) in self.slices.iter().flat_map(|slice| &slice.counters) {
            *counters.entry(name.clone()).or_insert(0.0) += value / requests;
        }
        Ok(EngineFigures {
            engine: self.engine,
            requests_per_second: mean(|figures| Some(figures.units_per_second)).unwrap_or_default(),
            latency_p50_ns: mean(|figures| Some(figures.latency?.p50_ns)),
            latency_p99_ns: mean(|figures| Some(figures.latency?.p99_ns)),
            server_cpu_ns_per_request: weighted(|figures| Some(figures.server_cpu_ns_per_unit))
                .unwrap_or_default(),
            generator_cpu_ns_per_request: mean(|figures| figures.generator_cpu_ns_per_unit),
            context_switches_per_request: weighted(|figures| figures.context_switches_per_unit),
            system_calls_per_request: system_calls,
            counters_per_request: counters,
        })
    }
}

impl Demo {
    /// What people read.
    fn text(&self) -> String {
        let mut text = format!(
            "GET {PATH} over {} connections, one request under way on each, server on core(s) {:?},\n\
             load on core(s) {:?}; CPU time, system calls and context switches are those of one request\n",
            self.connections, self.server_cores, self.generator_cores
        );
        let mut figures = table::table(&[
            "engine",
            "requests/s",
            "p50",
            "p99",
            "server\nCPU",
            "load\nCPU",
            "system\ncalls",
            "context\nswitches",
        ]);
        let time = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), table::nanoseconds);
        for engine in &self.engines {
            figures.add_row(vec![
                engine.engine.to_owned(),
                table::count(engine.requests_per_second),
                time(engine.latency_p50_ns),
                time(engine.latency_p99_ns),
                table::nanoseconds(engine.server_cpu_ns_per_request),
                time(engine.generator_cpu_ns_per_request),
                engine.system_calls_per_request.cell(),
                engine
                    .context_switches_per_request
                    .map_or_else(|| "-".to_owned(), table::per_unit),
            ]);
        }
        text += &format!("{figures}\n");
        if let [uring, epoll] = &self.engines[..] {
            text += &format!(
                "uring uses {:.3} times the CPU of epoll for a request.\n",
                uring.server_cpu_ns_per_request / epoll.server_cpu_ns_per_request
            );
        }
        text += &self.counters();
        for (engine, reason) in &self.unavailable {
            text += &format!("{engine} is not shown: {reason}\n");
        }
        let uncounted = self
            .engines
            .iter()
            .find_map(|engine| match &engine.system_calls_per_request {
                SystemCalls::NotCounted(reason) => Some(reason),
                SystemCalls::Counted(_) => None,
            });
        if let Some(reason) = uncounted {
            text += &format!("System calls were not counted: {reason}\n");
        }
        text += &format!("{}\n", self.environment.summary());
        for note in self.environment.notes() {
            text += &format!("Note: {note}.\n");
        }
        text += &format!("A first impression from {PAIRS} pairs; `quoit lab run` measures.\n");
        text
    }

    /// A second table: what the engines counted themselves, a request.
    fn counters(&self) -> String {
        let mut names: Vec<&String> = self
            .engines
            .iter()
            .flat_map(|engine| &engine.counters_per_request)
            .filter(|(_, value)| value.abs() > NEGLIGIBLE)
            .map(|(name, _)| name)
            .collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return String::new();
        }
        let mut header = vec!["counter, a request"];
        header.extend(self.engines.iter().map(|engine| engine.engine));
        let mut counters = table::table(&header);
        let value = |engine: &EngineFigures, name: &str| engine.counters_per_request.get(name).copied();
        for name in names {
            let values = self
                .engines
                .iter()
                .map(|engine| value(engine, name).map_or_else(|| "-".to_owned(), table::per_unit));
            counters.add_row(std::iter::once(name.clone()).chain(values).collect::<Vec<_>>());
        }
        // What io_uring is about: how much one system call carries.
        for (title, carried) in [
            ("submissions an enter", "submissions"),
            ("completions an enter", "completions"),
        ] {
            let ratios: Vec<Option<f64>> = self
                .engines
                .iter()
                .map(|engine| {
                    let enters = value(engine, "enters").filter(|enters| *enters > 0.0)?;
                    Some(value(engine, carried)? / enters)
                })
                .collect();
            if ratios.iter().any(Option::is_some) {
                let cells = ratios
                    .into_iter()
                    .map(|ratio| ratio.map_or_else(|| "-".to_owned(), table::per_unit));
                counters.add_row(std::iter::once(title.to_owned()).chain(cells).collect::<Vec<_>>());
            }
        }
        format!("{counters}\n")
    }
}
