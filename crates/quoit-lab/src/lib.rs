//! `quoit lab`: measures servers as processes of their own, the way their users run them.
//!
//! A server under test is a child process, the load generator is another, both on named cores. What is
//! compared is compared in pairs, in ABBA order, beside a control of one side against itself; the primary
//! figure is the server's CPU time per request, because on a small shared machine the throughput of loopback
//! says more about the scheduler than about the server.
//!
//! An [`experiment`] is a file that names servers and cases; [`placement`] says where they run, and [`preflight`]
//! whether they can; [`run`] starts, loads and watches them, pair by pair, and writes what it found as results, of
//! which `quoit-report` knows the rest. The programs are processes: this crate uses of `quoit-load` only the check that
//! a case's load would be understood and the histograms of its reports, and nothing of `quoit-serve`.

mod child;
mod console;
mod counters;
mod cpu;
mod demo;
mod environment;
mod error;
mod experiment;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod http;
mod list;
mod placement;
mod preflight;
mod programs;
mod run;
mod server;
mod sockets;
mod syscalls;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use quoit_report::{compare, pages, report};

use error::LabError;

/// Arguments of `quoit lab`.
#[derive(Args)]
pub struct LabArguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Both engines under the same load, in half a minute: what io_uring changes here
    Demo(demo::DemoArguments),
    /// The experiments: what each asks, which of its servers can run here, and how long it takes
    List,
    /// Measure the servers of an experiment against each other, in pairs
    Run(run::RunArguments),
    /// Read one long response and say how long it took
    #[command(hide = true)]
    Read(run::ReadArguments),
    /// Show the results of runs: Markdown, or one page with charts
    Report(report::ReportArguments),
    /// Write the pages of docs that show results, from the result files of lab/results
    Pages(pages::PagesArguments),
    /// Compare two runs of an experiment: exits with 3 if something got worse beyond the noise
    Compare(compare::CompareArguments),
}

/// Runs a sub-command; failures are printed to standard error.
pub fn run(arguments: LabArguments) -> ExitCode {
    let outcome = match arguments.command {
        LabCommand::Demo(arguments) => demo::run(&arguments).map(|()| ExitCode::SUCCESS),
        LabCommand::Run(arguments) => run::run(&arguments),
        LabCommand::Read(arguments) => run::read(&arguments).map(|()| ExitCode::SUCCESS),
        LabCommand::Report(arguments) => report::run(&arguments)
            .map(|()| ExitCode::SUCCESS)
            .map_err(LabError::from),
        LabCommand::Pages(arguments) => experiment::list().and_then(|experiments| {
            let known: Vec<pages::Known> = experiments
                .into_iter()
                .map(|experiment| pages::Known {
                    name: experiment.name,
                    title: experiment.title,
                    servers: experiment
                        .servers
                        .into_iter()
                        .filter_map(|server| Some((server.name, server.ecosystems?)))
                        .collect(),
                })
                .collect();
            pages::run(&arguments, &known)
                .map(|()| ExitCode::SUCCESS)
                .map_err(LabError::from)
        }),
        LabCommand::Compare(arguments) => compare::run(&arguments).map_err(LabError::from),
        LabCommand::List => list::run().map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            console::say(format_args!("quoit lab: {error}"));
            error.exit_code()
        }
    }
}
