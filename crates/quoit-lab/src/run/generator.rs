//! The process that makes the load: `quoit load`, or a client under test.
//!
//! As a thread of the lab it would share an allocator, caches and a CPU clock with what measures it.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use quoit_host::monotonic_now;
use quoit_report::results::model::{Figures, Latency};
use serde::Deserialize;
use serde_json::Value;

use super::Halt;
use super::interrupt::{Interrupts, Woken};
use crate::child;
use crate::error::{LabError, Result};
use crate::server::{Output, keep_output};

/// How long it may take to end once it is asked to.
const STOP_PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks whether the run was interrupted, before the window opens.
const TICK: Duration = Duration::from_millis(50);

/// When load is measured, by CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) opens: Duration,
    pub(crate) closes: Duration,
    /// How long each generator counts: more than this window lasts if it is what several have in common.
    pub(crate) counted: Duration,
}

impl Window {
    /// Reads what `quoit load --announce` says: `window opens_ns=T lasts_ns=D in_ns=N`. On another machine the clock is
    /// another: then the window opens N after the line has come, which is late by the line's way.
    fn parse(line: &str, is_local: bool) -> Option<Self> {
        let mut words = line.strip_prefix("window ")?.split(' ');
        let mut number = |name: &str| {
            Some(Duration::from_nanos(
                words.next()?.strip_prefix(name)?.parse().ok()?,
            ))
        };
        let (opens, lasts, opens_in) = (number("opens_ns=")?, number("lasts_ns=")?, number("in_ns=")?);
        let opens = if is_local {
            opens
        } else {
            monotonic_now() + opens_in
        };
        Some(Self {
            opens,
            closes: opens + lasts,
            counted: lasts,
        })
    }

    /// The time that two windows share, in which all generators are at work. Each counts for longer by what its own is
    /// ahead or behind.
    pub(crate) fn shared(self, other: Self) -> Self {
        let opens = self.opens.max(other.opens);
        Self {
            opens,
            closes: self.closes.min(other.closes).max(opens),
            counted: self.counted.max(other.counted),
        }
    }

    /// The time that the generators' counts are of.
    pub(crate) fn seconds(&self) -> f64 {
        self.counted.as_secs_f64()
    }
}

/// What generators say at their end: the fields of `quoit load --json` that are of use here. A client under test
/// gives as many as it can.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    /// Replies in the window; of a client, all.
    pub(crate) requests: Option<f64>,
    pub(crate) elapsed_seconds: Option<f64>,
    pub(crate) generator_cpu_ns_per_request: Option<f64>,
    pub(crate) latency: Option<Latency>,
    pub(crate) latency_at_least: Option<Latency>,
    pub(crate) slipped_share: Option<f64>,
    pub(crate) lag: Option<Lag>,
    pub(crate) intervals: Vec<Interval>,
    /// HdrHistogram V2, compressed, base64.
    pub(crate) histogram: Option<String>,
    /// By kind.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) first_error: Option<String>,
    /// What else a client under test says of itself and of the server, by name.
    pub(crate) told: BTreeMap<String, f64>,
    /// Whether the generator was stopped before its time.
    pub(crate) interrupted: bool,
    /// Why its figures must not be used.
    pub(crate) invalid: Option<String>,
}

/// How late the generator's own sends were.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Lag {
    p99_ns: f64,
}

/// What was done in a part of the window.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Interval {
    /// Its end, since the window opened.
    at_seconds: f64,
    requests: f64,
}

impl Report {
    /// Understands the object that a generator ended with, or several put together.
    pub(crate) fn of(value: Value) -> Result<Self> {
        serde_json::from_value(value)
            .map_err(|error| LabError::new(format!("the report of the load cannot be understood: {error}")))
    }

    /// Units of work that were done.
    pub(crate) fn units(&self) -> f64 {
        self.requests.unwrap_or(0.0)
    }

    /// The figures that the generator knows.
    pub(crate) fn figures(&self) -> Figures {
        Figures {
            latency: self.latency,
            latency_at_least: self.latency_at_least,
            slipped_share: self.slipped_share,
            generator_lag_p99_ns: self.lag.map(|lag| lag.p99_ns),
            errors: self.errors.values().sum(),
            told: self.told.clone(),
            ..Figures::default()
        }
    }

    /// Units done from the opening of the window until so many seconds later, if the generator counts by intervals;
    /// within an interval evenly.
    pub(crate) fn units_until(&self, seconds: f64) -> Option<f64> {
        let (mut begun, mut units) = (0.0, 0.0);
        for interval in &self.intervals {
            if seconds < interval.at_seconds {
                let share = (seconds - begun) / (interval.at_seconds - begun);
                return Some(units + interval.requests * share.max(0.0));
            }
            begun = interval.at_seconds;
            units += interval.requests;
        }
        // What the intervals leave over is at the window's end.
        let (elapsed, left) = (self.elapsed_seconds? - begun, self.requests? - units);
        match self.intervals.is_empty() {
            true => None,
            false if elapsed > 0.0 => Some(units + left * ((seconds - begun) / elapsed).clamp(0.0, 1.0)),
            false => Some(units),
        }
    }

    /// Why the server failed in the generator's eyes, if it did: one that drops or garbles requests is fast, and
    /// its figures must not be shown.
    pub(crate) fn failure(&self) -> Option<String> {
        let errors: u64 = self.errors.values().sum();
        let reason = match (&self.invalid, self.requests) {
            // No reply in the window, and no error either: the machine's fault more often than the server's.
            (_, Some(requests)) if requests <= 0.0 && errors == 0 && !self.interrupted => return None,
            (Some(reason), _) => reason.clone(),
            // A client under test may count errors and know no `invalid`.
            (None, Some(_)) if errors > 0 => format!("{errors} error(s)"),
            // What it did is of another time than what the server used.
            (None, Some(_)) if self.interrupted => "it was ended before its time".to_owned(),
            (None, Some(_)) => return None,
            (None, None) => "its report has no `requests`".to_owned(),
        };
        let first = self.first_error.as_ref();
        Some(reason + &first.map_or_else(String::new, |first| format!("; the first: {first}")))
    }
}

/// A generator that runs. Dropping it stops it.
pub(crate) struct Generator {
    name: String,
    child: Child,
    ended: OwnedFd,
    windows: Receiver<Window>,
    report: Option<JoinHandle<Vec<u8>>>,
    messages: Option<JoinHandle<()>>,
    output: Output,
}

impl Generator {
    /// Starts it. The command says where it runs; `is_local`: on this machine.
    pub(crate) fn start(name: &str, mut command: Command, is_local: bool) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A terminal's interrupt goes to the lab alone, which winds up in order.
            .process_group(0);
        let mut child = command.spawn().map_err(LabError::io(format!(
            "starting {name} ({})",
            command.get_program().display()
        )))?;
        let report = child.stdout.take().map(|mut stream| {
            thread::spawn(move || {
                let mut text = Vec::new();
                // What could be read is worth showing even when the rest could not.
                let _ = stream.read_to_end(&mut text);
                text
            })
        });
        let output = Output::default();
        let (sender, windows) = mpsc::channel();
        let messages = child.stderr.take().map(|stream| {
            keep_output(stream, output.clone(), move |line| {
                if let Some(window) = Window::parse(line, is_local) {
                    // Nobody waits for it if it was announced too late.
                    let _ = sender.send(window);
                }
            })
        });
        let ended = child::descriptor(&child).map_err(LabError::io(format!("watching {name}")));
        Ok(Self {
            name: name.to_owned(),
            ended: match ended {
                Ok(ended) => ended,
                Err(error) => {
                    // It is not watched, so it must not run.
                    let _ = child::stop(&mut child, STOP_PATIENCE);
                    return Err(error);
                }
            },
            child,
            windows,
            report,
            messages,
            output,
        })
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has announced its window; `None` if it ended before.
    pub(crate) fn window(
        &self,
        interrupts: &Interrupts,
        patience: Duration,
    ) -> std::result::Result<Option<Window>, Halt> {
        let deadline = monotonic_now() + patience;
        loop {
            match self.windows.recv_timeout(TICK) {
                Ok(window) => return Ok(Some(window)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if interrupts.arrived() => return Err(Halt::Interrupted),
                Err(RecvTimeoutError::Timeout) if monotonic_now() >= deadline => {
                    return Err(LabError::new(format!(
                        "{} had not opened its connections after {patience:?}{}",
                        self.name,
                        self.output.said()
                    ))
                    .into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Waits for a moment or its end.
    pub(crate) fn wait_until(
        &self,
        interrupts: &Interrupts,
        until: Duration,
    ) -> std::result::Result<Woken, Halt> {
        match interrupts
            .wait(Some(self.ended.as_fd()), until)
            .map_err(LabError::io(format!("waiting for {}", self.name)))?
        {
            Woken::Interrupted => Err(Halt::Interrupted),
            woken => Ok(woken),
        }
    }

    /// Waits for its end and takes its report.
    ///
    /// # Errors
    /// It has not ended at that moment, or has no report. What it printed is in the message.
    pub(crate) fn finish(
        mut self,
        interrupts: &Interrupts,
        deadline: Duration,
    ) -> std::result::Result<Value, Halt> {
        if self.wait_until(interrupts, deadline)? != Woken::Ended {
            return Err(LabError::new(format!(
                "{} had not ended long after its time, and was stopped{}",
                self.name,
                self.output.said()
            ))
            .into());
        }
        let status = self
            .child
            .wait()
            .map_err(LabError::io(format!("waiting for {}", self.name)))?;
        child::end_group(&self.child);
        let report = self.report.take().and_then(|reader| reader.join().ok());
        if let Some(messages) = self.messages.take() {
            // A panic of the reader has been printed.
            let _ = messages.join();
        }
        Ok(self.read(status, &report.unwrap_or_default())?)
    }

    /// A run with errors fails, and its report says with which.
    fn read(&self, status: ExitStatus, output: &[u8]) -> Result<Value> {
        let text = String::from_utf8_lossy(output);
        let line = text.trim_end().lines().next_back().unwrap_or_default();
        let problem = match serde_json::from_str(line) {
            Ok(Value::Object(report))
                if status.success() || report.get("invalid").is_some_and(Value::is_string) =>
            {
                return Ok(Value::Object(report));
            }
            Ok(Value::Object(_)) => format!("failed ({status})"),
            Ok(_) | Err(_) if line.is_empty() => format!("gave no report ({status})"),
            Ok(_) => format!("did not end with a JSON object but with `{line}` ({status})"),
            Err(error) => format!("did not end with a JSON object ({error}) but with `{line}` ({status})"),
        };
        Err(LabError::new(format!(
            "{} {problem}{}",
            self.name,
            self.output.said()
        )))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // There is nothing to do about a failure here.
        let _ = child::stop(&mut self.child, STOP_PATIENCE);
        child::end_group(&self.child);
        if let Some(messages) = self.messages.take() {
            let _ = messages.join();
        }
        if let Some(report) = self.report.take() {
            let _ = report.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Generator {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Generator::start("client", command, true).expect("sh runs")
    }

    fn finish(script: &str) -> std::result::Result<Report, Halt> {
        let interrupts = Interrupts::listen().expect("signals can be handled");
        let value = shell(script).finish(&interrupts, monotonic_now() + FAR)?;
        Ok(Report::of(value)?)
    }

    fn error(script: &str) -> String {
        match finish(script) {
            Err(Halt::Failed(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_line_is_the_report_and_may_say_more() {
        let report = finish(r#"echo hello; echo '{"requests": 7, "elapsed_seconds": 0.5, "later": 1}'"#);
        let report = report.expect("it has one");
        assert_eq!((report.requests, report.elapsed_seconds), (Some(7.0), Some(0.5)));
        assert_eq!(report.failure(), None);
    }

    #[test]
    fn what_goes_wrong_is_quoted() {
        let text = error("echo no such server >&2; exit 3");
        assert!(
            text.contains("exit status: 3") && text.contains("no such server"),
            "{text}"
        );
        let text = error("echo nonsense");
        assert!(
            text.contains("client did not end with a JSON object") && text.contains("`nonsense`"),
            "{text}"
        );
        let text = error(r#"echo '{"requests": 7}'; exit 9"#);
        assert!(text.contains("exit status: 9"), "{text}");
    }

    #[test]
    fn failures_of_the_server_are_told() {
        let failure = |json: &str| -> Option<String> {
            Report::of(serde_json::from_str(json).expect("JSON"))
                .expect("it is understood")
                .failure()
        };
        let told = failure(r#"{"requests": 7, "invalid": "errors occurred", "first_error": "reset"}"#);
        assert_eq!(told.as_deref(), Some("errors occurred; the first: reset"));
        let told = failure(r#"{"requests": 0, "invalid": "errors", "errors": {"timeouts": 1}}"#);
        assert_eq!(told.as_deref(), Some("errors"));
        assert_eq!(
            failure(r#"{"requests": 0, "invalid": "no reply was measured"}"#),
            None
        );
        let told = failure(r#"{"requests": 7, "errors": {"reset": 2, "timeouts": 1}}"#);
        assert_eq!(told.as_deref(), Some("3 error(s)"));
        let told = failure(r#"{"requests": 7, "elapsed_seconds": 0.1, "interrupted": true}"#);
        assert_eq!(told.as_deref(), Some("it was ended before its time"));
        assert!(failure("{}").is_some_and(|told| told.contains("`requests`")));
    }

    #[test]
    fn units_are_known_at_any_time_of_the_window() {
        let json = r#"{"requests": 250, "elapsed_seconds": 2.5,
            "intervals": [{"at_seconds": 1, "requests": 100}, {"at_seconds": 2, "requests": 50}]}"#;
        let report = Report::of(serde_json::from_str(json).expect("JSON")).expect("it is understood");
        let units = [0.0, 0.5, 1.0, 1.5, 2.0, 2.25, 2.5, 9.0].map(|seconds| report.units_until(seconds));
        assert_eq!(
            units,
            [0.0, 50.0, 100.0, 125.0, 150.0, 200.0, 250.0, 250.0].map(Some)
        );
        assert_eq!(Report::default().units_until(1.0), None);
    }

    #[test]
    fn a_window_is_announced_or_not() {
        let interrupts = Interrupts::listen().expect("signals can be handled");
        let generator = shell("echo window opens_ns=1500000000 lasts_ns=200000000 in_ns=5 >&2; read -r line");
        assert_eq!(
            generator.window(&interrupts, FAR).expect("it waits"),
            Some(Window {
                opens: Duration::from_millis(1500),
                closes: Duration::from_millis(1700),
                counted: Duration::from_millis(200),
            })
        );
        let line = "window opens_ns=5 lasts_ns=200 in_ns=7";
        let before = monotonic_now();
        let there = Window::parse(line, false).expect("it is one");
        assert!(there.opens > before && there.seconds() == 2e-7);
        let here = Window::parse(line, true).expect("it is one");
        let later = Window {
            opens: here.opens + Duration::from_nanos(50),
            closes: here.closes + Duration::from_nanos(50),
            ..here
        };
        assert_eq!(
            (here.shared(later).opens, here.shared(later).closes),
            (later.opens, here.closes)
        );
        // Each counts for all of its own time, whatever the other does.
        assert_eq!(here.shared(later).seconds(), 2e-7);
        let generator = shell("echo windows are nice >&2");
        assert_eq!(generator.window(&interrupts, FAR).expect("it waits"), None);
        let generator = shell("echo busy >&2; exec tail -f /dev/null");
        let Err(Halt::Failed(error)) = generator.window(&interrupts, Duration::ZERO) else {
            panic!("it is refused")
        };
        assert!(
            error.to_string().contains("had not opened its connections"),
            "{error}"
        );
    }
}
