//! The program `quoit-sim`: hunts for faults in the loop and its engines, seed by seed.

mod report;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use quoit::EngineKind;
use quoit_sim::options::{Options, Workload};
use quoit_sim::run::{catch_panics, run};
use quoit_sim::shrink::shrink;
use quoit_sim_kernel::faults::{FaultCounts, FaultSet};

/// Hunts for faults: runs the real loop and engines on a simulated kernel, each run decided by a seed.
#[derive(Parser)]
#[command(name = "quoit-sim", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run seeds until one fails. Ends with 0 if none did, 1 if one did, 2 if it was called wrongly
    Run(Run),
    /// Run one seed once more, and tell all that happens
    Replay(Replay),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    Uring,
    Epoll,
    Both,
}

impl Engine {
    fn kinds(self) -> &'static [EngineKind] {
        match self {
            Self::Uring => &[EngineKind::Uring],
            Self::Epoll => &[EngineKind::Epoll],
            Self::Both => &[EngineKind::Uring, EngineKind::Epoll],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A handler of events
    Events,
    /// Tasks with the sockets of quoit-async, whose futures are dropped at random
    Async,
}

impl From<What> for Workload {
    fn from(what: What) -> Self {
        match what {
            What::Events => Self::Events,
            What::Async => Self::Async,
        }
    }
}

#[derive(clap::Args)]
struct Run {
    /// How many seeds; 0 runs until it is stopped
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The engine to run on
    #[arg(long, value_enum, default_value = "both")]
    engine: Engine,
    /// What runs on the loop
    #[arg(long, value_enum, default_value = "events")]
    workload: What,
}

#[derive(clap::Args)]
struct Replay {
    /// The seed
    #[arg(long)]
    seed: u64,
    /// The engine to run on
    #[arg(long, value_enum)]
    engine: Engine,
    /// What runs on the loop
    #[arg(long, value_enum, default_value = "events")]
    workload: What,
    /// Live these lives only, by number, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<usize>>,
    /// Leave these faults out, separated by commas
    #[arg(long, default_value = "")]
    without: FaultSet,
    /// Turns before everything becomes fair, at most
    #[arg(long)]
    turns: Option<u32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    die_with_the_reader();
    catch_panics();
    match arguments.command {
        Command::Run(arguments) => hunt(&arguments),
        Command::Replay(arguments) => replay(arguments),
    }
}

/// Lets a reader that goes, as `head` does, end the program in silence, as it ends others: nobody hears what a hunt finds
/// then. Rust's programs ignore SIGPIPE, and their printing panics.
fn die_with_the_reader() {
    // SAFETY: no handler is installed, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn progress_bar(seeds: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = if seeds == 0 {
        (
            ProgressBar::new_spinner(),
            "{spinner} {pos} seeds, {per_sec}, {elapsed}",
        )
    } else {
        (
            ProgressBar::new(seeds),
            "{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left",
        )
    };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// What this process has used, which others on the machine do not change much.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn hunt(arguments: &Run) -> ExitCode {
    let bar = progress_bar(arguments.seeds);
    let begin = Instant::now();
    let mut last_report = begin;
    let (mut runs, mut lives, mut turns) = (0u64, 0, 0);
    let mut counts = FaultCounts::default();
    let end = match arguments.seeds {
        0 => u64::MAX,
        seeds => arguments.from.saturating_add(seeds),
    };
    for seed in arguments.from..end {
        for &engine in arguments.engine.kinds() {
            let options = Options {
                workload: arguments.workload.into(),
                ..Options::new(seed, engine)
            };
            let outcome = run(&options);
            runs += 1;
            counts.add(&outcome.counts);
            match outcome.result {
                Ok(summary) => {
                    lives += summary.lives;
                    turns += summary.turns;
                }
                Err(message) => {
                    bar.finish_and_clear();
                    println!("seed {seed} on {engine} failed after {runs} runs: {message}");
                    println!("shrinking it ...");
                    let shrunk = shrink(&options);
                    report::print_trace(&shrunk);
                    return ExitCode::from(1);
                }
            }
        }
        bar.inc(1);
        if bar.is_hidden() && last_report.elapsed() > Duration::from_secs(10) {
            last_report = Instant::now();
            println!("seed {seed}: {runs} runs, {lives} lives, no failure");
        }
    }
    bar.finish_and_clear();
    let (seconds, busy) = (begin.elapsed().as_secs_f64(), processor_seconds());
    println!(
        "{runs} runs, {lives} connections' lives, {turns} turns in {seconds:.1} s, {busy:.1} s of a processor \
         ({:.0} lives a second of it): no failure",
        lives as f64 / busy
    );
    report::print_faults(&counts);
    ExitCode::SUCCESS
}

fn replay(arguments: Replay) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for &engine in arguments.engine.kinds() {
        let options = Options {
            workload: arguments.workload.into(),
            only: arguments.only.clone(),
            without: arguments.without,
            turns: arguments.turns,
            ..Options::new(arguments.seed, engine)
        };
        if report::print_trace(&options) {
            code = ExitCode::from(1);
        }
    }
    code
}
