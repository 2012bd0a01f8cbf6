//! The load generator: `quoit load`, run as a process of its own.
//!
//! As a thread of the lab it would share an allocator, caches and a CPU clock with what measures it.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::child;
use super::error::{LabError, Result};
use super::placement;
use crate::load::Report;

/// How much longer than its run the generator may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// What is spoken over the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    /// Messages of 64 bytes that come back unchanged.
    Echo,
    /// `GET /plaintext`.
    Http,
}

impl Protocol {
    /// As in the arguments of `serve`, `load` and the floors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Http => "http",
        }
    }

    /// What `load` is told beside the common arguments.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Echo => &["--size", "64"],
            Self::Http => &["--path", "/plaintext"],
        }
    }
}

/// A closed loop: so many connections, on each so many requests under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Load {
    pub(crate) protocol: Protocol,
    pub(crate) connections: u32,
    pub(crate) pipeline: u32,
}

/// Reads the report of `quoit load --json`, which must be of a run without failures: a server that drops or
/// garbles requests is fast, and its figures must not be shown.
fn parse(json: &[u8]) -> Result<Report> {
    let report: Report = serde_json::from_slice(json).map_err(|error| {
        LabError::new(format!(
            "the report of `quoit load` cannot be read: {error}; is it of another version?"
        ))
    })?;
    match &report.invalid {
        None => Ok(report),
        Some(reason) => Err(LabError::new(format!("the load had failures: {reason}{}", {
            let first = report.first_error.as_deref();
            first.map_or_else(String::new, |first| format!("; the first: {first}"))
        }))),
    }
}

/// Loads a server for so many seconds, from one core.
///
/// # Errors
/// The generator fails, hangs, or reports failures or no reply.
pub(crate) fn run(
    quoit: &Path,
    core: usize,
    address: SocketAddr,
    load: Load,
    seconds: u32,
) -> Result<Report> {
    let mut command = Command::new(quoit);
    command.args(["load", load.protocol.name(), "--connect", &address.to_string()]);
    command.args([
        "--connections",
        &load.connections.to_string(),
        "--pipeline",
        &load.pipeline.to_string(),
    ]);
    command.args([
        "--seconds",
        &seconds.to_string(),
        "--warmup",
        "0",
        "--json",
        "--no-progress",
    ]);
    command.args(load.protocol.arguments());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    placement::confine(&mut command, &[core]);
    let mut child = command.spawn().map_err(LabError::io(format!(
        "starting the load generator {}",
        quoit.display()
    )))?;

    let outputs = [
        child
            .stdout
            .take()
            .map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child
            .stderr
            .take()
            .map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ];
    let readers = outputs.map(|stream| {
        thread::spawn(move || {
            let mut text = Vec::new();
            // What could be read is worth showing even when the rest could not.
            let _ = stream.map(|mut stream| stream.read_to_end(&mut text));
            text
        })
    });
    let patience = Duration::from_secs(seconds.into()) + PATIENCE;
    let waited =
        child::wait_with_deadline(&mut child, patience).map_err(LabError::io("waiting for `quoit load`"));
    if !matches!(waited, Ok(Some(_))) {
        child::stop(&mut child, Duration::from_secs(1)).map_err(LabError::io("stopping `quoit load`"))?;
    }
    let [report, messages] = readers.map(|reader| reader.join().unwrap_or_default());
    match waited? {
        // A run with errors fails, and its report says with which.
        Some(status) if status.success() || !report.is_empty() => parse(&report),
        Some(status) => Err(LabError::new(format!(
            "`quoit load {}` failed ({status}): {}",
            load.protocol.name(),
            String::from_utf8_lossy(&messages).trim()
        ))),
        None => Err(LabError::new(format!(
            "`quoit load` had not ended after {patience:?}, and was stopped"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"protocol": "http", "target": "127.0.0.1:1", "path": "/plaintext", "connections": 64,
        "pipeline": 1, "threads": 1, "warmup_seconds": 0, "elapsed_seconds": 2, "requests": 1000,
        "requests_per_second": 500.5, "received_bytes": 1, "received_megabytes_per_second": 0.1,
        "latency": {"mean_ns": 12.5, "standard_deviation_ns": 3, "p50_ns": 10, "p90_ns": 20, "p99_ns": 30,
            "p99_9_ns": 40, "max_ns": 50},
        "errors": {"connect_refused": 0, "connect_other": 0, "reset": 0, "closed_early": 0, "timeouts": 0,
            "wrong_content": 0, "wrong_status": 0, "lost_requests": 0},
        "first_error": null, "reconnects": 0, "generator_cpu_ns_per_request": 4200.5,
        "generator_cpu_utilization": 0.5, "interrupted": false, "invalid": null, "later": "additions"}"#;

    #[test]
    fn a_report_is_read_and_may_say_more() {
        let report = parse(REPORT.as_bytes()).expect("it is complete");
        assert_eq!((report.requests, report.requests_per_second), (1000, 500.5));
        let latency = report.latency.expect("there were replies");
        assert_eq!((latency.p50_ns, latency.p99_ns), (10, 30));
    }

    #[test]
    fn failures_and_silence_are_errors() {
        for (from, to, message) in [
            (
                r#""first_error": null"#,
                r#""first_error": "too late""#,
                "errors occurred; the first: too late",
            ),
            (r#""p50_ns""#, r#""p51_ns""#, "cannot be read"),
        ] {
            let report = REPORT
                .replace(from, to)
                .replace(r#""invalid": null"#, r#""invalid": "errors occurred""#);
            let error = parse(report.as_bytes()).expect_err(message);
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
