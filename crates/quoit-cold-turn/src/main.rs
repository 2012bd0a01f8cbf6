//! `quoit-cold-turn`: what a turn executes and touches.
//!
//! Where requests come now and then, what a turn needs is out of the processor's caches when it wakes. So its cost is the
//! instructions it executes and, more, the distinct cache lines that it touches. Both are counted under a tracer (valgrind's
//! lackey), so that neighbours and the machine's clock do not matter. The kernel's side is not in it.
//!
//! Beside that, what it takes of the processors' time when many connections end at once, the kernel's side with it.

#![allow(clippy::print_stdout, reason = "a program of the command line")]

mod ends;
mod mark;
mod page;
mod results;
mod steps;
mod subject;
mod trace;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::ends::End;
use crate::results::{Case, Results, read};
use crate::subject::{Server, Work};

/// Count the instructions and the distinct cache lines of a turn.
///
/// Needs valgrind. Counts do not depend on the machine's load.
#[derive(Debug, Parser)]
#[command(
    name = "quoit-cold-turn",
    after_help = "Examples:\n  \
        quoit-cold-turn trace\n  \
        quoit-cold-turn trace --server uring --work echo --requests 1 --steps\n  \
        quoit-cold-turn trace --keep lab/turn/results.json\n  \
        quoit-cold-turn ends --connections 100,10000\n  \
        quoit-cold-turn page lab/turn/results.json lab/turn/ends.json docs/performance.md"
)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Trace the turns of each server with each kind of work, and print a table.
    Trace(TraceArguments),
    /// Measure the processor time that it takes when many connections end at once. On a quiet machine.
    Ends(EndsArguments),
    /// Write a page from kept results.
    Page {
        /// Results that `trace --keep` wrote.
        results: PathBuf,
        /// Results that `ends --keep` wrote.
        ends: PathBuf,
        /// The page.
        page: PathBuf,
    },
    /// What runs under the tracer.
    #[command(hide = true)]
    Subject(SubjectArguments),
    /// The peers of `ends`.
    #[command(hide = true)]
    Peers(PeersArguments),
}

#[derive(Debug, Args)]
struct TraceArguments {
    /// Only these servers.
    #[arg(long, value_delimiter = ',', value_enum)]
    server: Vec<Server>,
    /// Only these kinds of work.
    #[arg(long, value_delimiter = ',', value_enum)]
    work: Vec<Work>,
    /// Requests at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 8], value_parser = clap::value_parser!(u32).range(1..=64))]
    requests: Vec<u32>,
    /// Show each case step by step.
    #[arg(long)]
    steps: bool,
    /// Show the functions that the instructions of a step are in.
    #[arg(long, conflicts_with = "json")]
    functions: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write the results to this file, too.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct SubjectArguments {
    #[arg(long, value_enum)]
    server: Server,
    #[arg(long, value_enum)]
    work: Work,
    #[arg(long)]
    requests: u32,
}

/// As many as a loop of Quoit has room for by default.
const MOST_CONNECTIONS: i64 = 16_384;

#[derive(Debug, Args)]
struct EndsArguments {
    /// Only these servers.
    #[arg(long, value_delimiter = ',', value_enum)]
    server: Vec<Server>,
    /// Only these ways to end.
    #[arg(long, value_delimiter = ',', value_enum)]
    end: Vec<End>,
    /// Connections that end at once.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000], value_parser = clap::value_parser!(u32).range(1..=MOST_CONNECTIONS))]
    connections: Vec<u32>,
    /// Rounds of each case, each with a new server.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write the results to this file, too.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct PeersArguments {
    #[arg(long)]
    connect: SocketAddr,
    #[arg(long, value_enum)]
    end: End,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().action {
        Action::Trace(arguments) => trace_all(&arguments),
        Action::Ends(arguments) => measure_ends(&arguments),
        Action::Page { results, ends, page } => {
            read(&results).and_then(|results| page::write(&results, &read(&ends)?, &page))
        }
        Action::Peers(PeersArguments { connect, end }) => ends::serve_peers(connect, end),
        Action::Subject(SubjectArguments {
            server,
            work,
            requests,
        }) => subject::run(server, work, requests as usize),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("quoit-cold-turn: {message}");
            ExitCode::FAILURE
        }
    }
}

/// What was given, or all if nothing was.
fn chosen<'a, T>(given: &'a [T], all: &'a [T]) -> &'a [T] {
    if given.is_empty() { all } else { given }
}

fn trace_all(arguments: &TraceArguments) -> Result<(), String> {
    let mut results = Results::here();
    for &work in chosen(&arguments.work, Work::ALL) {
        for &server in chosen(&arguments.server, Server::ALL) {
            if !server.does(work) {
                continue;
            }
            for &requests in &arguments.requests {
                let traced = trace::run(server, work, requests)
                    .map_err(|message| format!("{server}, {work}, {requests} at once: {message}"))?;
                let counted = steps::count(&traced)?;
                if arguments.functions {
                    counted.print_functions();
                }
                results.cases.push(Case::new(server, work, requests, counted));
            }
        }
    }
    if arguments.json {
        println!("{}", results::json(&results)?);
    } else {
        println!("{}", results.table());
        if arguments.steps {
            for case in &results.cases {
                println!("\n{}\n{}", case.title(), case.steps_table());
            }
        }
    }
    results::keep(&results, arguments.keep.as_deref())
}

fn measure_ends(arguments: &EndsArguments) -> Result<(), String> {
    let mut results = Results::here();
    for &end in chosen(&arguments.end, End::ALL) {
        for &server in chosen(&arguments.server, Server::IN_RUST) {
            for &connections in &arguments.connections {
                let case = ends::measure(server, end, connections, arguments.rounds)
                    .map_err(|message| format!("{server}, {connections} connections, {end}: {message}"))?;
                results.cases.push(case);
            }
        }
    }
    if arguments.json {
        println!("{}", results::json(&results)?);
    } else {
        println!("{}", results.table());
    }
    results::keep(&results, arguments.keep.as_deref())
}
