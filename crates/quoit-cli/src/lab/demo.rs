//! `quoit lab demo`: both engines under the same load, in half a minute.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::counters::Counters;
use super::environment::Environment;
use super::error::{LabError, Result};
use super::generator::{Load, Protocol};
use super::measure::{Figures, Rig};
use super::pairs::{self, Side};
use super::placement::{Cores, Placement};
use super::programs::{Engine, Programs};
use super::server::Server;
use super::syscalls::SystemCalls;
use super::table;

/// Pairs of runs; two make ABBA.
const PAIRS: usize = 2;
/// What is asked of the servers.
const LOAD: Load = Load {
    protocol: Protocol::Http,
    connections: 64,
    pipeline: 1,
};
/// Counters below so many a request are left out of the table.
const NEGLIGIBLE: f64 = 0.000_05;

/// Arguments of `quoit lab demo`.
#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Seconds of each of the four runs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Which cores the server and the load generator run on
    #[arg(long, value_enum, default_value_t = Placement::SameCore)]
    placement: Placement,
    /// The program `quoit` to measure, instead of this one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// What the demo found.
#[derive(Serialize)]
struct Demo {
    environment: Environment,
    placement: Placement,
    cores: Cores,
    load: Load,
    engines: Vec<EngineFigures>,
    /// Engines that could not be measured, and why.
    unavailable: BTreeMap<&'static str, String>,
}

/// The figures of one engine over all its runs.
#[derive(Serialize)]
struct EngineFigures {
    engine: Engine,
    requests_per_second: f64,
    latency_p50_ns: Option<f64>,
    latency_p99_ns: Option<f64>,
    server_cpu_ns_per_request: f64,
    generator_cpu_ns_per_request: Option<f64>,
    context_switches_per_request: f64,
    system_calls_per_request: SystemCalls,
    /// The server's own counters, a request; empty when it shows none.
    counters_per_request: BTreeMap<String, f64>,
}

/// One engine while it is measured.
struct Contestant {
    engine: Engine,
    server: Server,
    runs: Vec<Figures>,
    counters: Counters,
    system_calls: SystemCalls,
}

/// Runs the demo and prints what it found.
pub(crate) fn run(arguments: &DemoArguments) -> Result<()> {
    let rig = Rig {
        programs: Programs::find(arguments.program.as_deref())?,
        cores: Cores::choose(arguments.placement)?,
    };
    let environment = Environment::read();
    let progress = progress_bar();

    let mut unavailable = BTreeMap::new();
    let mut contestants = Vec::new();
    for engine in [Engine::Uring, Engine::Epoll] {
        progress.set_message(format!("starting and warming up {}", engine.name()));
        match rig.start_warm(&rig.programs.quoit_server(LOAD.protocol, engine), LOAD) {
            Ok(server) => contestants.push(Contestant {
                engine,
                server,
                runs: Vec::new(),
                counters: Counters::default(),
                system_calls: SystemCalls::NotCounted("the run was not reached".to_owned()),
            }),
            // Without io_uring there is still a figure to show; without epoll something is broken.
            Err(error) if engine == Engine::Uring => {
                drop(unavailable.insert(engine.name(), error.to_string()))
            }
            Err(error) => return Err(error),
        }
        progress.inc(1);
    }
    for pair in 0..PAIRS {
        for side in pairs::order(pair) {
            let engine = if side == Side::A {
                Engine::Uring
            } else {
                Engine::Epoll
            };
            if let Some(contestant) = contestants
                .iter_mut()
                .find(|contestant| contestant.engine == engine)
            {
                progress.set_message(format!("measuring {}", engine.name()));
                contestant.measure(&rig, arguments.seconds)?;
            }
            progress.inc(1);
        }
    }
    let mut engines = Vec::new();
    for mut contestant in contestants {
        progress.set_message(format!(
            "counting the system calls of {}",
            contestant.engine.name()
        ));
        contestant.system_calls = rig.count_system_calls(&contestant.server, LOAD)?;
        engines.push(contestant.finish()?);
        progress.inc(1);
    }
    progress.finish_and_clear();

    let Rig { cores, .. } = rig;
    let demo = Demo {
        environment,
        placement: arguments.placement,
        cores,
        load: LOAD,
        engines,
        unavailable,
    };
    if arguments.json {
        let json = serde_json::to_string_pretty(&demo)
            .map_err(|error| LabError::new(format!("writing the figures as JSON: {error}")))?;
        println!("{json}");
    } else {
        demo.print();
    }
    Ok(())
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new((2 + 2 * PAIRS + 2) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

impl Contestant {
    fn measure(&mut self, rig: &Rig, seconds: u32) -> Result<()> {
        // A server without metrics is measured all the same.
        let before = Counters::read(self.server.address());
        self.runs.push(rig.measure(&self.server, LOAD, seconds)?);
        if let (Ok(before), Ok(after)) = (before, Counters::read(self.server.address())) {
            self.counters.add_difference(&before, &after);
        }
        Ok(())
    }

    fn finish(self) -> Result<EngineFigures> {
        self.server.stop()?;
        let requests: f64 = self.runs.iter().map(|run| run.units).sum();
        // Means over requests, so that a longer run weighs more.
        let weighted = |figure: fn(&Figures) -> f64| {
            self.runs.iter().map(|run| figure(run) * run.units).sum::<f64>() / requests
        };
        let mean = |figure: fn(&Figures) -> Option<f64>| {
            let figures: Option<Vec<f64>> = self.runs.iter().map(figure).collect();
            figures.map(|figures| figures.iter().sum::<f64>() / figures.len() as f64)
        };
        Ok(EngineFigures {
            engine: self.engine,
            requests_per_second: mean(|run| Some(run.units_per_second)).unwrap_or_default(),
            latency_p50_ns: mean(|run| run.latency_p50_ns),
            latency_p99_ns: mean(|run| run.latency_p99_ns),
            server_cpu_ns_per_request: weighted(|run| run.server_cpu_ns_per_unit),
            generator_cpu_ns_per_request: mean(|run| run.generator_cpu_ns_per_unit),
            context_switches_per_request: weighted(|run| run.context_switches_per_unit),
            system_calls_per_request: self.system_calls,
            counters_per_request: self
                .counters
                .iter()
                .map(|(name, value)| (name.to_owned(), value / requests))
                .collect(),
        })
    }
}

impl Demo {
    fn print(&self) {
        println!(
            "GET /plaintext over {} connections, {} request(s) under way on each, server on core {},\n\
             load on core {}; CPU time, system calls and context switches are those of one request",
            self.load.connections, self.load.pipeline, self.cores.server, self.cores.generator
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
                engine.engine.name().to_owned(),
                table::count(engine.requests_per_second),
                time(engine.latency_p50_ns),
                time(engine.latency_p99_ns),
                table::nanoseconds(engine.server_cpu_ns_per_request),
                time(engine.generator_cpu_ns_per_request),
                table::system_calls(&engine.system_calls_per_request),
                table::per_unit(engine.context_switches_per_request),
            ]);
        }
        println!("{figures}");
        if let [uring, epoll] = &self.engines[..] {
            println!(
                "uring uses {:.3} times the CPU of epoll for a request.",
                uring.server_cpu_ns_per_request / epoll.server_cpu_ns_per_request
            );
        }
        self.print_counters();
        for (engine, reason) in &self.unavailable {
            println!("{engine} is not shown: {reason}");
        }
        let uncounted = self
            .engines
            .iter()
            .find_map(|engine| match &engine.system_calls_per_request {
                SystemCalls::NotCounted(reason) => Some(reason),
                SystemCalls::Counted(_) => None,
            });
        if let Some(reason) = uncounted {
            println!("System calls were not counted: {reason}");
        }
        println!("{}", self.environment.summary());
        for note in self.environment.notes() {
            println!("Note: {note}.");
        }
        println!("A first impression from {PAIRS} pairs; `quoit lab bench` measures.");
    }

    /// A second table: what the engines counted themselves, a request.
    fn print_counters(&self) {
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
            return;
        }
        let mut header = vec!["counter, a request"];
        header.extend(self.engines.iter().map(|engine| engine.engine.name()));
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
        println!("{counters}");
    }
}
