//! `quoit lab compare`: what changed between two runs of an experiment, beyond the noise.

mod bootstrap;
mod changes;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod print;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::console;
use super::error::{ReportError, Result};
use super::results;
use changes::{Changes, changes};

/// The exit code when something got worse: neither a failure (1) nor wrong usage (2).
const WORSE: u8 = 3;

/// Arguments of `quoit lab compare`.
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 nothing got worse, 1 the runs cannot be compared, 2 wrong usage, 3 something got \
                        worse beyond the noise"
)]
pub struct CompareArguments {
    /// The results.json of the earlier commit or of the other machine
    old: PathBuf,
    /// The results.json that is judged
    new: PathBuf,
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
}

/// Compares and prints.
///
/// # Errors
/// A file holds no results of a run, the two have nothing in common, or standard output cannot be written to.
pub fn run(arguments: &CompareArguments) -> Result<ExitCode> {
    let (old, new) = (results::read(&arguments.old)?, results::read(&arguments.new)?);
    let changes: Changes = changes(&old, &new).map_err(|problem| {
        ReportError::new(format!(
            "{} and {} cannot be compared: {problem}",
            arguments.old.display(),
            arguments.new.display()
        ))
    })?;
    if arguments.json {
        let json = serde_json::to_string_pretty(&changes)
            .map_err(|error| ReportError::new(format!("writing the changes as JSON: {error}")))?;
        console::print(&(json + "\n"))?;
    } else {
        console::print(&print::text(&changes))?;
    }
    Ok(if changes.worse > 0 {
        ExitCode::from(WORSE)
    } else {
        ExitCode::SUCCESS
    })
}
