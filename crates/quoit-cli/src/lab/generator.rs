//! The load generator: `quoit load`, run as a process of its own.
//!
//! As a thread of the lab it would share an allocator, caches and a CPU clock with what measures it.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::child;
use super::error::{LabError, Result};
use super::placement;

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

/// What `quoit load --json` reports, as far as the lab uses it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LoadReport {
    /// Replies that arrived and were right.
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    pub(crate) latency_ns: Latency,
    /// Failures by kind.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, u64>,
    /// CPU time of the generator itself.
    #[serde(default)]
    pub(crate) generator_cpu_ns_per_request: Option<f64>,
}

/// Percentiles of the latency in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl LoadReport {
    fn parse(json: &[u8]) -> Result<Self> {
        let report: Self = serde_json::from_slice(json).map_err(|error| {
            LabError::new(format!(
                "the report of `quoit load` cannot be read: {error}; is it of another version?"
            ))
        })?;
        let failed: Vec<String> = report
            .errors
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(kind, count)| format!("{count} x {kind}"))
            .collect();
        // A server that drops or garbles requests is fast; its figures must not be shown.
        if !failed.is_empty() {
            return Err(LabError::new(format!(
                "the load had failures: {}",
                failed.join(", ")
            )));
        }
        if report.requests == 0 {
            return Err(LabError::new("the load had not one reply"));
        }
        Ok(report)
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
) -> Result<LoadReport> {
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
    placement::confine(&mut command, core);
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
        Some(status) if status.success() => LoadReport::parse(&report),
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

    const REPORT: &str = r#"{"requests": 1000, "requests_per_second": 500.5, "mode": "closed",
        "latency_ns": {"p50": 10, "p90": 20, "p99": 30.5, "p999": 40, "max": 50, "mean": 12.5, "stddev": 3},
        "errors": {"timeouts": 0}, "generator_cpu_ns_per_request": 4200.5}"#;

    #[test]
    fn a_report_is_read_and_may_say_more() {
        let report = LoadReport::parse(REPORT.as_bytes()).expect("it is complete");
        assert_eq!((report.requests, report.requests_per_second), (1000, 500.5));
        assert_eq!((report.latency_ns.p50, report.latency_ns.p99), (10.0, 30.5));
        assert_eq!(report.generator_cpu_ns_per_request, Some(4200.5));
    }

    #[test]
    fn failures_and_silence_are_errors() {
        for (from, to, message) in [
            ("\"timeouts\": 0", "\"timeouts\": 3", "3 x timeouts"),
            ("\"requests\": 1000", "\"requests\": 0", "not one reply"),
            ("\"p50\"", "\"p51\"", "cannot be read"),
        ] {
            let error = LoadReport::parse(REPORT.replace(from, to).as_bytes()).expect_err(message);
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
