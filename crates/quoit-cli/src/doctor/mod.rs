//! `quoit doctor`: what this machine allows, and which engine would run.
//!
//! [`Examination::make`] looks; its serialised form and [`text`] tell.

mod distribution;
mod examination;
mod hints;
mod text;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use quoit::Config;

use examination::Examination;
use quoit_host::console::{print, say};

const ABOUT_RESULT: &str = "\
The first line is the verdict: the engine that a loop with the default configuration runs,
found by making one.

Fields of the JSON object (units in the names; null: unknown, or nothing to say):
  engine                 `uring` or `epoll`: what `--engine auto` runs
  reason                 why, in one line
  uring                  `usable`, and if it is not, what is `missing` and the `remedy`
  kernel                 the kernel's release
  distribution           `tried_on`, the distributions whose kernels of this version were tried
                         (docs/kernels.md), and `next`, the next kernel that brings more
  features               of io_uring, each with
    name, about            the name as `serve --without` takes it, and what the feature brings
    state                  on, off (not there), or unknown (io_uring is not usable)
    reason                 why it is off
    minimum_kernel         the first mainline kernel that has it
    by_option              the option that uses it, where it is not used by default
  memory_a_loop          what one loop takes:
    queues_bytes, buffer_ring_bytes,
    registered_pool_bytes  pinned by the kernel
    locked_bytes           their sum, to allow for under RLIMIT_MEMLOCK
    receive_pool_bytes,
    send_memory_bytes      reserved, touched as they are used
  loops_in_memlock       loops that RLIMIT_MEMLOCK has room for, if nothing else of this
                         user's uses it; null if it does not bind
  settings               each with its name, its value and, where it matters, a hint

Exit status: 0 if a server can run, on whichever engine; 1 if none can, or not the one that
--require names; 2 for wrong usage.";

/// Say what this machine allows: the engine that would run and why, features, memory, limits
#[derive(Debug, Args)]
#[command(after_help = ABOUT_RESULT)]
pub(crate) struct DoctorArguments {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Count the memory of a registered receive pool too (`serve --register-pool`)
    #[arg(long)]
    register_pool: bool,
    /// Fail if this engine is not usable: for scripts
    #[arg(long, value_enum, value_name = "ENGINE")]
    require: Option<Required>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Required {
    /// io_uring
    Uring,
}

/// Runs `quoit doctor`.
pub(crate) fn command(arguments: &DoctorArguments) -> ExitCode {
    let config = Config {
        register_pool: arguments.register_pool,
        ..Config::default()
    };
    let examination = match Examination::make(config) {
        Ok(examination) => examination,
        Err(error) => {
            say(format_args!("quoit doctor: no engine is usable: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let text = if arguments.json {
        match serde_json::to_string_pretty(&examination) {
            Ok(json) => json,
            Err(error) => {
                say(format_args!(
                    "quoit doctor: cannot write the findings as JSON: {error}"
                ));
                return ExitCode::FAILURE;
            }
        }
    } else {
        text::write(&examination)
    };
    if let Err(error) = print(&format!("{text}\n")) {
        say(format_args!(
            "quoit doctor: cannot write to standard output: {error}"
        ));
        return ExitCode::FAILURE;
    }
    match arguments.require {
        Some(Required::Uring) if !examination.uring.usable => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
