//! What one thread measures.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::error::LoadError;

/// Errors by kind, over the whole run, warm-up included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Errors {
    /// Connection attempts that the server refused (ECONNREFUSED).
    pub(crate) connect_refused: u64,
    /// Connection attempts that failed otherwise, or took longer than the timeout.
    pub(crate) connect_other: u64,
    /// Open connections that were reset or failed with another socket error.
    pub(crate) reset: u64,
    /// Open connections that the server closed without announcing it.
    pub(crate) closed_early: u64,
    /// Open connections on which a reply did not come within the timeout.
    pub(crate) timeouts: u64,
    /// Replies whose content was wrong, and bytes that no request called for.
    pub(crate) wrong_content: u64,
    /// HTTP replies with a status other than 200.
    pub(crate) wrong_status: u64,
    /// Requests that were sent and never answered because of the connection's end by one of the above.
    pub(crate) lost_requests: u64,
}

impl Errors {
    /// The kinds with their names, in the order of the report.
    pub(crate) fn by_name(&self) -> [(&'static str, u64); 8] {
        [
            ("connect refused", self.connect_refused),
            ("connect other", self.connect_other),
            ("reset", self.reset),
            ("closed early", self.closed_early),
            ("timeouts", self.timeouts),
            ("wrong content", self.wrong_content),
            ("wrong status", self.wrong_status),
            ("lost requests", self.lost_requests),
        ]
    }

    /// Whether nothing went wrong.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Errors::default()
    }

    fn add(&mut self, other: &Errors) {
        self.connect_refused += other.connect_refused;
        self.connect_other += other.connect_other;
        self.reset += other.reset;
        self.closed_early += other.closed_early;
        self.timeouts += other.timeouts;
        self.wrong_content += other.wrong_content;
        self.wrong_status += other.wrong_status;
        self.lost_requests += other.lost_requests;
    }
}

/// The counts of one thread, and, merged, of the run.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// Right replies (or messages) of the measured window.
    pub(crate) requests: u64,
    /// Latencies of those that have one, in nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Latencies of whole streams, in nanoseconds.
    pub(crate) stream_latencies: Histogram<u64>,
    /// Bytes of replies received in the measured window.
    pub(crate) received_bytes: u64,
    /// Connections opened again after they had ended, over the whole run.
    pub(crate) reconnects: u64,
    /// Errors over the whole run.
    pub(crate) errors: Errors,
    /// What the first error was, in words.
    pub(crate) first_error: Option<String>,
    /// Start and end of the measured window, in nanoseconds of the run's clock, if it was reached.
    pub(crate) window: Option<(u64, u64)>,
    /// Processor time of the thread within the window, in nanoseconds.
    pub(crate) cpu_ns: u64,
}

impl Tally {
    /// Latencies are kept to three significant digits, up to ten timeouts (a reply can wait longer than
    /// one behind others of its pipeline); longer ones count as that. All memory is allocated here.
    ///
    /// # Errors
    /// The timeout is too long for a histogram.
    pub(crate) fn new(timeout: Duration) -> Result<Self, LoadError> {
        let longest = u64::try_from(timeout.as_nanos())
            .unwrap_or(u64::MAX)
            .saturating_mul(10);
        let latencies = Histogram::new_with_bounds(1, longest.max(1_000_000_000), 3)
            .map_err(|error| LoadError::new(format!("cannot make a latency histogram: {error}")))?;
        Ok(Tally {
            requests: 0,
            stream_latencies: latencies.clone(),
            latencies,
            received_bytes: 0,
            reconnects: 0,
            errors: Errors::default(),
            first_error: None,
            window: None,
            cpu_ns: 0,
        })
    }

    /// Adds the counts of another thread of the same run.
    ///
    /// # Errors
    /// The histograms have different bounds.
    pub(crate) fn merge(&mut self, other: &Tally) -> Result<(), LoadError> {
        self.latencies
            .add(&other.latencies)
            .map_err(|error| LoadError::new(format!("cannot merge the threads' latencies: {error}")))?;
        self.stream_latencies
            .add(&other.stream_latencies)
            .map_err(|error| LoadError::new(format!("cannot merge the threads' latencies: {error}")))?;
        self.requests += other.requests;
        self.received_bytes += other.received_bytes;
        self.reconnects += other.reconnects;
        self.errors.add(&other.errors);
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        self.window = match (self.window, other.window) {
            (Some((start, end)), Some((other_start, other_end))) => {
                Some((start.min(other_start), end.max(other_end)))
            }
            (one, other) => one.or(other),
        };
        self.cpu_ns += other.cpu_ns;
        Ok(())
    }

    /// Keeps the words for the first error.
    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.first_error.is_none() {
            self.first_error = Some(what());
        }
    }
}
