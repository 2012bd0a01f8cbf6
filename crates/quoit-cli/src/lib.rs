//! The program `quoit`: shows what io_uring gives a server, and serves and loads it.
//!
//! A library only so that the fuzz targets reach its decoders, and the tests its choice of ports; the program is
//! [`main`].

mod clock;
mod console;
mod descriptors;
mod doctor;
mod lab;
mod load;
pub mod ports;
mod rpc;
mod serve;
#[cfg(any(test, fuzzing))]
pub mod untrusted;
mod usage;

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
    Doctor(doctor::DoctorArguments),
    Serve(serve::ServeArguments),
    Load(Box<load::LoadArguments>),
    /// Measure the engines on this machine
    Lab(lab::LabArguments),
}

/// Does what the command line says, and answers with the exit code of the program.
#[must_use]
pub fn main() -> ExitCode {
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) => return usage::refuse(&error),
    };
    match command {
        Command::Doctor(arguments) => doctor::command(&arguments),
        Command::Serve(arguments) => serve::command(&arguments),
        Command::Load(arguments) => load::command::<Arguments>(&arguments),
        Command::Lab(arguments) => lab::run(arguments),
    }
}
