//! `quoit lab demo`: both engines under the same load, in half a minute. It is the experiment of `lab/demo.toml`, run as
//! any other, and shown as one table.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use quoit_report::results::model::{CaseResults, LeftOut, Results, ServerSummary};
use quoit_report::table;

use super::console;
use super::error::{LabError, Result};
use super::experiment;
use super::experiment::model::PlacementKind;
use super::preflight::Machine;
use super::programs::Programs;
use super::run::{self, Chosen, Halt, Ran};

/// Counters below so many per request are left out of the table.
const NEGLIGIBLE: f64 = 0.000_05;

/// Arguments of `quoit lab demo`.
#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Seconds of each of the eight runs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Which cores the server and the load generator run on
    #[arg(long, value_enum, default_value_t = DemoPlacement::SameCore)]
    placement: DemoPlacement,
    /// The program `quoit` to measure, instead of this one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Print the results as JSON instead of tables, as `quoit lab run` writes them
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

/// Runs the demo and prints what it found.
pub(crate) fn run(arguments: &DemoArguments) -> Result<()> {
    let (mut experiment, file) = experiment::demo()?;
    experiment.effort.seconds = arguments.seconds.into();
    experiment.placement = match arguments.placement {
        DemoPlacement::SameCore => PlacementKind::SameCore,
        DemoPlacement::SplitCore => PlacementKind::SplitCore,
    };
    // Without io_uring there is still a figure to show, though nothing to compare it with.
    let program = arguments.program.as_deref();
    let values = Programs::find(program)?.values();
    let machine = Machine::read()?;
    let mut left_out = Vec::new();
    experiment.servers.retain(|server| {
        let obstacle = machine.obstacle(server, &values).filter(|_| server.io_uring);
        left_out.extend(obstacle.clone().map(|why| LeftOut {
            what: server.name.clone(),
            why,
        }));
        obstacle.is_none()
    });
    let folder = tempfile::tempdir().map_err(LabError::io("making a folder for the run"))?;
    let chosen = Chosen {
        experiment,
        file,
        quick: true,
        within: None,
    };
    let Ran {
        mut results, halted, ..
    } = run::measure(chosen, program, false, |_| Ok(folder.path().into()))?;
    match halted {
        None => {}
        Some(Halt::Interrupted) => return Err(LabError::new("interrupted")),
        Some(Halt::Failed(error)) => return Err(error),
    }
    results.left_out.extend(left_out);
    if arguments.json {
        let json = serde_json::to_string_pretty(&results)
            .map_err(|error| LabError::new(format!("writing the results as JSON: {error}")))?;
        console::print(&(json + "\n"))
    } else {
        console::print(&text(&results))
    }
}

/// What people read.
fn text(results: &Results) -> String {
    let mut text = String::new();
    for case in &results.cases {
        text += &format!(
            "{}; server on core(s) {:?}, load on core(s) {:?}\n\
             CPU time, system calls and context switches are those of one request\n",
            case.workload, results.placement.server_cores, results.placement.generator_cores
        );
        text += &format!("{}\n", figures(case));
        for comparison in &case.comparisons {
            text += &format!(
                "{} uses {:.3} times the CPU of {} per request.\n",
                comparison.server, comparison.cost.median, comparison.against
            );
        }
        text += &counters(case);
    }
    for left in &results.left_out {
        text += &format!("{} is not shown: {}\n", left.what, left.why);
    }
    text += &format!("{}\n", results.environment.summary());
    for note in &results.notes {
        text += &format!("Note: {note}.\n");
    }
    let pairs = results.effort.least_pairs;
    text + &format!("A first impression from {pairs} pairs; `quoit lab run` measures.\n")
}

/// The servers of a case, with what a request took.
fn figures(case: &CaseResults) -> impl std::fmt::Display + use<> {
    let mut figures = table::table(&[
        "server",
        "requests/s",
        "p50",
        "p99",
        "server\nCPU",
        "load\nCPU",
        "system\ncalls",
        "context\nswitches",
    ]);
    let cell = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
    for ServerSummary {
        server,
        figures: of,
        system_calls_per_unit,
        ..
    } in &case.servers
    {
        figures.add_row(vec![
            server.clone(),
            table::count(of.units_per_second),
            cell(of.latency.map(|latency| latency.p50_ns), table::nanoseconds),
            cell(of.latency.map(|latency| latency.p99_ns), table::nanoseconds),
            table::nanoseconds(of.server_cpu_ns_per_unit),
            cell(of.generator_cpu_ns_per_unit, table::nanoseconds),
            cell(*system_calls_per_unit, table::per_unit),
            cell(of.context_switches_per_unit, table::per_unit),
        ]);
    }
    figures
}

/// A second table: what the engines counted themselves, per request.
fn counters(case: &CaseResults) -> String {
    let servers: Vec<BTreeMap<&str, f64>> = case
        .servers
        .iter()
        .map(|summary| per_request(case, &summary.server))
        .collect();
    let mut names: Vec<&str> = servers
        .iter()
        .flatten()
        .filter(|(_, value)| value.abs() > NEGLIGIBLE)
        .map(|(name, _)| *name)
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return String::new();
    }
    let mut header = vec!["counter, per request"];
    header.extend(case.servers.iter().map(|summary| summary.server.as_str()));
    let mut counters = table::table(&header);
    let mut row = |title: &str, value: &dyn Fn(&BTreeMap<&str, f64>) -> Option<f64>| {
        let values: Vec<Option<f64>> = servers.iter().map(value).collect();
        if values.iter().any(Option::is_some) {
            let cells = values
                .into_iter()
                .map(|value| value.map_or_else(|| "-".to_owned(), table::per_unit));
            counters.add_row(std::iter::once(title.to_owned()).chain(cells).collect::<Vec<_>>());
        }
    };
    for name in names {
        row(name, &|of| of.get(name).copied());
    }
    // What io_uring is about: how much one system call carries.
    for (title, carried) in [
        ("submissions per enter", "submissions"),
        ("completions per enter", "completions"),
    ] {
        row(title, &|of| {
            let enters = of.get("enters").filter(|enters| **enters > 0.0)?;
            Some(of.get(carried)? / enters)
        });
    }
    format!("{counters}\n")
}

/// What the counters of a server rose by for each request.
fn per_request<'a>(case: &'a CaseResults, server: &str) -> BTreeMap<&'a str, f64> {
    let counting = || {
        let of_server = case.slices.iter().filter(|slice| slice.server == server);
        of_server.filter(|slice| slice.spoiled.is_none())
    };
    let requests: f64 = counting().map(|slice| slice.figures.units).sum();
    let mut counters = BTreeMap::new();
    for (name, value) in counting().flat_map(|slice| &slice.counters) {
        *counters.entry(name.as_str()).or_insert(0.0) += value / requests;
    }
    counters
}
