//! The program `quoit`: shows what io_uring gives a server, and serves and loads it.

mod lab;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A network transport on io_uring, with an epoll engine that behaves the same.
#[derive(Parser)]
#[command(name = "quoit", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the engines on this machine
    Lab(lab::LabArguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Lab(arguments) => lab::run(arguments),
    }
}
