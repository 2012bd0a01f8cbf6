//! Servers that are restarted under load: not one request may be lost.
//!
//! A server is driven as fast as it goes, to learn its peak, and then in an open loop at a share of that, while it is started
//! again and again. There are two ways. `quoit serve` hands its sockets over to the next process by itself. The others inherit
//! the listening socket from this program, as from a service manager: the next process is started, and the one before is told
//! to end when that one serves.

mod page;
mod server;

pub use page::write_page;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use server::Way;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is run, and how.
#[derive(Debug, Clone, Args)]
pub struct Restarts {
    /// The program `quoit`, of which the load is
    #[arg(long, value_name = "FILE", default_value = "target/release/quoit")]
    quoit: PathBuf,
    /// A server that hands its sockets over by itself, as NAME=COMMAND: it is given --listen and --hand-over, and answers
    /// /plaintext
    #[arg(long, value_name = "NAME=COMMAND")]
    hand_over: Vec<String>,
    /// A server that inherits its listening socket as descriptor 3 (LISTEN_FDS), as NAME=COMMAND; it answers /
    #[arg(long, value_name = "NAME=COMMAND")]
    inherit: Vec<String>,
    #[arg(long, value_name = "N", default_value_t = 10)]
    restarts: u32,
    #[arg(long, value_name = "N", default_value_t = 64)]
    connections: u32,
    /// The share of the peak that is offered
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    share: f64,
    /// Seconds in which the peak is measured, after as many that warm the server up
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    peak: u32,
    /// Milliseconds between the end of one process and the start of the next
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    pause: u64,
    /// Add the results to this file, each in the place of an earlier one of that name
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

/// What became of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Outcome {
    server: String,
    restarts: u32,
    connections: u32,
    peak_per_second: f64,
    offered_per_second: f64,
    seconds: f64,
    /// Requests of the whole run, and right replies to them.
    sent_requests: u64,
    received_replies: u64,
    /// Failed, reset, closed without a word, late, wrong or lost: all that `quoit load` calls an error.
    errors: u64,
    /// Sent once more, as the end was announced in front of them.
    repeated_requests: u64,
    reconnects: u64,
    /// From the moment that a request was due to its whole reply.
    p50_ms: f64,
    p99_ms: f64,
    longest_ms: f64,
    /// The longest that a process needed to serve, and to end after the next one did.
    longest_start_ms: f64,
    longest_drain_ms: f64,
    kernel: String,
    processors: usize,
    commit: String,
}

impl Outcome {
    /// What is wrong with it, if anything is.
    fn failure(&self) -> Option<String> {
        let unanswered = self.sent_requests.saturating_sub(self.received_replies);
        (self.errors + self.repeated_requests + unanswered > 0).then(|| {
            format!(
                "{}: {} errors, {} requests without a reply, {} sent once more",
                self.server, self.errors, unanswered, self.repeated_requests
            )
        })
    }
}

/// Restarts each of the servers, and says a line about each.
///
/// # Errors
/// A server cannot be run, or a request was lost: all servers are run first.
pub fn run(arguments: &Restarts) -> Result<String, String> {
    let servers = [(&arguments.hand_over, true), (&arguments.inherit, false)];
    let mut failures = Vec::new();
    for (named, hands_over) in servers {
        for server in named {
            let (name, command) = server
                .split_once('=')
                .ok_or_else(|| format!("`{server}` is not NAME=COMMAND"))?;
            let outcome = match restart(arguments, name, command, hands_over) {
                Ok(outcome) => outcome,
                Err(error) => {
                    failures.push(format!("{name} could not be restarted under load: {error}"));
                    continue;
                }
            };
            eprintln!("{}", page::line(&outcome));
            if let Some(path) = &arguments.results {
                page::keep(path, &outcome)?;
            }
            failures.extend(outcome.failure());
        }
    }
    if failures.is_empty() {
        Ok(String::new())
    } else {
        Err(failures.join("; "))
    }
}

/// Restarts one server.
fn restart(arguments: &Restarts, name: &str, command: &str, hands_over: bool) -> Result<Outcome, String> {
    let way = Way::new(hands_over)?;
    let mut serving = way.start(command)?;
    let path = if hands_over { "/plaintext" } else { "/" };
    let load = Load {
        quoit: &arguments.quoit,
        address: way.address()?,
        path,
        connections: arguments.connections,
    };
    load.closed(arguments.peak)?;
    let peak = number(&load.closed(arguments.peak)?, "requests_per_second")?;
    let offered = (peak * arguments.share).round();
    let running = load.open(offered)?;
    let (mut starts, mut drains) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..arguments.restarts {
        std::thread::sleep(Duration::from_millis(arguments.pause));
        let begin = Instant::now();
        let next = way.start(command)?;
        starts = starts.max(begin.elapsed());
        let begin = Instant::now();
        way.end(serving)?;
        drains = drains.max(begin.elapsed());
        serving = next;
    }
    std::thread::sleep(Duration::from_millis(arguments.pause));
    let report = running.end()?;
    serving.terminate()?;
    serving.wait()?;
    let count = |name: &str| number(&report, name).map(|value| value as u64);
    let errors = report["errors"]
        .as_object()
        .ok_or("the load's report has no errors")?;
    let latency = |name: &str| {
        let value = report["latency"][name].as_f64();
        value.map_or(0.0, |nanoseconds| (nanoseconds / 1e4).round() / 100.0)
    };
    let milliseconds = |time: Duration| (time.as_secs_f64() * 1e3).round();
    Ok(Outcome {
        server: name.to_owned(),
        restarts: arguments.restarts,
        connections: arguments.connections,
        peak_per_second: peak.round(),
        offered_per_second: offered,
        seconds: (number(&report, "elapsed_seconds")? * 10.0).round() / 10.0,
        sent_requests: count("sent_requests")?,
        received_replies: count("received_replies")?,
        errors: errors.values().filter_map(Value::as_u64).sum(),
        repeated_requests: count("repeated_requests")?,
        reconnects: count("reconnects")?,
        p50_ms: latency("p50_ns"),
        p99_ms: latency("p99_ns"),
        longest_ms: latency("max_ns"),
        longest_start_ms: milliseconds(starts),
        longest_drain_ms: milliseconds(drains),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .map_or_else(|_| String::new(), |text| text.trim().to_owned()),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        commit: commit(),
    })
}

/// The commit that is tried, as far as git knows it.
fn commit() -> String {
    let output = Command::new("git")
        .args(["rev-parse", "--short=8", "HEAD"])
        .output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn number(report: &Value, name: &str) -> Result<f64, String> {
    report[name]
        .as_f64()
        .ok_or_else(|| format!("the load's report has no `{name}`"))
}

/// What drives a server.
struct Load<'a> {
    quoit: &'a Path,
    address: String,
    path: &'a str,
    connections: u32,
}

impl Load<'_> {
    fn command(&self, seconds: u32) -> Command {
        let mut command = Command::new(self.quoit);
        command
            .args(["load", "http", "--connect", &self.address, "--path", self.path])
            .args(["--connections", &self.connections.to_string()])
            .args(["--seconds", &seconds.to_string()])
            .args(["--expect", "Hello, World!", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    }

    /// As many requests as are answered.
    fn closed(&self, seconds: u32) -> Result<Value, String> {
        let mut command = self.command(seconds);
        let output = command.output().map_err(|error| self.unusable(&error))?;
        let report = parse(&output.stdout)?;
        match report["first_error"].as_str() {
            None => Ok(report),
            Some(error) => Err(format!("without a restart: {error}")),
        }
    }

    /// So many requests per second, until it is ended. Its connections are open when this returns.
    fn open(&self, rate: f64) -> Result<Running, String> {
        let mut command = self.command(3600);
        command
            .args(["--rate", &rate.to_string(), "--warmup", "0", "--announce"])
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.unusable(&error))?;
        let mut errors = BufReader::new(child.stderr.take().ok_or("the load has no standard error")?);
        let mut line = String::new();
        let read = errors.read_line(&mut line).map_err(|error| error.to_string())?;
        if read == 0 || !line.starts_with("window") {
            return Err(format!("the load did not begin: {line}"));
        }
        Ok(Running(child))
    }

    fn unusable(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.quoit.display())
    }
}

fn parse(text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|error| format!("the load's report cannot be read: {error}"))
}

/// A load that goes on.
struct Running(Child);

impl Running {
    fn end(mut self) -> Result<Value, String> {
        server::signal(&self.0, Signal::INT)?;
        let mut text = Vec::new();
        if let Some(output) = &mut self.0.stdout {
            output.read_to_end(&mut text).map_err(|error| error.to_string())?;
        }
        self.0.wait().map_err(|error| error.to_string())?;
        parse(&text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After an error: it has ended otherwise.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
