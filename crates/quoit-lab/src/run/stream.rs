//! Reading one long response: the client of the workload `bulk`, run as a process of its own.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::console;
use crate::error::{LabError, Result};
use crate::http;

/// Arguments of `quoit lab read`, which the lab calls itself.
#[derive(Args)]
pub(crate) struct ReadArguments {
    #[arg(long, value_name = "ADDR")]
    connect: SocketAddr,
    #[arg(long)]
    path: String,
    /// The length that the response has to have
    #[arg(long, value_name = "N")]
    mebibytes: u64,
    /// Leave after so many seconds, with whatever has come
    #[arg(long, value_name = "S")]
    leave_after: Option<f64>,
}

/// The command that reads a stream, whole or for so many seconds.
pub(crate) fn command(
    quoit: &Path,
    server: SocketAddr,
    path: &str,
    mebibytes: u64,
    leave_after: Option<f64>,
) -> Command {
    let mut command = Command::new(quoit);
    command.args(["lab", "read", "--connect", &server.to_string(), "--path", path]);
    command.args(["--mebibytes", &mebibytes.to_string()]);
    if let Some(seconds) = leave_after {
        command.args(["--leave-after", &seconds.to_string()]);
    }
    command
}

/// Reads the response and prints a report; a unit is a mebibyte. The content is the tests' affair: checking it here
/// would take the core from the server.
///
/// # Errors
/// Those of the socket, and a response that is not as long as it should be.
pub(crate) fn run(arguments: &ReadArguments) -> Result<()> {
    let started = Instant::now();
    let limit = arguments.leave_after.map(Duration::from_secs_f64);
    let mut read = 0;
    let outcome = http::get(arguments.connect, &arguments.path, |piece| {
        read += piece.len() as u64;
        limit.is_none_or(|limit| started.elapsed() < limit)
    });
    let wanted = arguments.mebibytes << 20;
    let complete = outcome.and_then(|length| match length {
        length if length == wanted => Ok(()),
        length => Err(io::Error::other(format!(
            "the response has {length} bytes and not {wanted}"
        ))),
    });
    complete.map_err(LabError::io(format!(
        "reading http://{}{}",
        arguments.connect, arguments.path
    )))?;
    let elapsed = started.elapsed().as_secs_f64();
    let report = json!({ "requests": read as f64 / f64::from(1 << 20), "elapsed_seconds": elapsed });
    console::print(&format!("{report}\n"))
}
