//! The program `quoit`: shows what io_uring gives a server, and serves and loads it.
//!
//! It is thin: the command line, `doctor`, and the exit codes. What it does is in the crates below, of which none
//! knows one that stands above it:
//!
//! ```text
//! quoit-cli        arguments, doctor, exit codes
//! quoit-lab        experiments, and running them: starts servers and generators as processes of their own
//! quoit-report     results: their file, their statistics, how they are shown and compared
//! quoit-serve      the servers, on the core      quoit-load   the generator, without the core
//! quoit-workload   what both ends share: datagrams and their account, the RPC frames, DNS answers, calibrated work
//! quoit-host       standard streams, clock, limits, ports
//! ```

mod doctor;
#[cfg(test)]
mod documents;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use quoit_host::console::{print, say};
use quoit_host::usage;

/// A network transport on io_uring, with an epoll engine that behaves the same.
#[derive(Parser)]
#[command(name = "quoit", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Doctor(doctor::DoctorArguments),
    Serve(quoit_serve::ServeArguments),
    Load(Box<quoit_load::LoadArguments>),
    /// Measure the engines on this machine
    Lab(quoit_lab::LabArguments),
}

/// The program's arguments, for those who write pages and completions of them.
#[must_use]
pub fn arguments() -> clap::Command {
    Arguments::command()
}

/// Runs the program.
#[must_use]
pub fn run() -> ExitCode {
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) if !error.use_stderr() => return tell(&error),
        Err(error) => return usage::refuse(&error),
    };
    match command {
        Command::Doctor(arguments) => doctor::command(&arguments),
        Command::Serve(arguments) => quoit_serve::command(&arguments),
        Command::Load(arguments) => quoit_load::command::<Arguments>(&arguments),
        Command::Lab(arguments) => quoit_lab::run(arguments),
    }
}

/// Prints the help or the version, which is what was asked for, as clap does.
fn tell(asked: &clap::Error) -> ExitCode {
    // On a terminal it has colours. What is left of it is flushed.
    match asked.print().and_then(|()| print("")) {
        // A reader that has gone, as `head` does, has had what it wanted.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            say(format_args!("quoit: cannot write to standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
