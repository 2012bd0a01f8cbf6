//! What one thread measures.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::error::LoadError;
use super::slips::Slips;

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

    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.by_name().iter().map(|(_, count)| count).sum()
    }

    /// Whether nothing went wrong.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Errors::default()
    }

    /// Adds those of another thread or another run.
    pub(crate) fn add(&mut self, other: &Errors) {
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
    /// Requests that were begun over the whole run.
    pub(crate) sent: u64,
    /// Replies over the whole run, right or wrong.
    pub(crate) replies: u64,
    /// Right replies (or messages) of the measured window.
    pub(crate) requests: u64,
    /// Latencies of those that have one and overlapped no slip, in nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Latencies of whole streams, in nanoseconds.
    pub(crate) stream_latencies: Histogram<u64>,
    /// Latencies of those that overlapped a slip.
    pub(crate) slipped: Histogram<u64>,
    /// The same, each less the time in which the thread did not run meanwhile.
    pub(crate) slipped_at_least: Histogram<u64>,
    /// How late requests were sent by this program's own fault, in nanoseconds, if no slip was the cause: an open
    /// loop only.
    pub(crate) lag: Histogram<u64>,
    /// The same of those that overlapped a slip.
    pub(crate) slipped_lag: Histogram<u64>,
    /// How long connecting took, in nanoseconds: with a connection per request in the window, else in all of the
    /// run.
    pub(crate) connects: Histogram<u64>,
    /// Slips in the measured window.
    pub(crate) slips: Slips,
    /// Requests that fell due in the window and were not sent by its end: an open loop only.
    pub(crate) unsent: u64,
    /// Requests that were sent and not answered by the window's end.
    pub(crate) unanswered: u64,
    /// Right replies of the window on connections that read slowly.
    pub(crate) slow_replies: u64,
    /// Bytes of replies received in the measured window.
    pub(crate) received_bytes: u64,
    /// Connections opened again after they had ended, over the whole run.
    pub(crate) reconnects: u64,
    /// Requests that were sent once more, as the server announced the end of the connection that they were sent on.
    pub(crate) repeated: u64,
    /// Errors over the whole run.
    pub(crate) errors: Errors,
    /// What the first error was, in words.
    pub(crate) first_error: Option<String>,
    /// Start and end of the measured window, in nanoseconds of the run's clock, if it was reached.
    pub(crate) window: Option<(u64, u64)>,
    /// Processor time of the thread within the window, in nanoseconds.
    pub(crate) cpu_ns: u64,
}

/// An empty histogram of nanoseconds to three significant digits, up to `longest`; longer ones count as that.
///
/// # Errors
/// `longest` is too long for a histogram.
pub(super) fn new_histogram(longest: u64) -> Result<Histogram<u64>, LoadError> {
    Histogram::new_with_bounds(1, longest.max(1_000_000_000), 3)
        .map_err(|error| LoadError::new(format!("cannot make a latency histogram: {error}")))
}

/// Adds `other` to `sum`, which has the same bounds.
///
/// # Errors
/// It has not.
pub(super) fn add_histogram(sum: &mut Histogram<u64>, other: &Histogram<u64>) -> Result<(), LoadError> {
    sum.add(other)
        .map_err(|error| LoadError::new(format!("cannot merge latencies: {error}")))
}

/// What one thread of a run found.
pub(super) trait Merge: Sized {
    /// Adds what another thread of the same run found.
    ///
    /// # Errors
    /// The histograms have different bounds.
    fn merge(&mut self, other: &Self) -> Result<(), LoadError>;

    /// What all threads of a run found, of which there is at least one.
    ///
    /// # Errors
    /// As of [`Merge::merge`].
    fn of_all(threads: Vec<Self>) -> Result<Self, LoadError> {
        let mut threads = threads.into_iter();
        let mut all = threads.next().expect("a run has at least one thread");
        threads.try_for_each(|other| all.merge(&other))?;
        Ok(all)
    }
}

impl Tally {
    /// Latencies are kept up to `longest` nanoseconds. All memory is allocated here.
    ///
    /// # Errors
    /// That is too long for a histogram.
    pub(crate) fn new(longest: u64) -> Result<Self, LoadError> {
        let empty = new_histogram(longest)?;
        Ok(Tally {
            sent: 0,
            replies: 0,
            requests: 0,
            stream_latencies: empty.clone(),
            latencies: empty.clone(),
            slipped: empty.clone(),
            slipped_at_least: empty.clone(),
            lag: empty.clone(),
            slipped_lag: empty.clone(),
            connects: empty,
            slips: Slips::default(),
            unsent: 0,
            unanswered: 0,
            slow_replies: 0,
            received_bytes: 0,
            reconnects: 0,
            repeated: 0,
            errors: Errors::default(),
            first_error: None,
            window: None,
            cpu_ns: 0,
        })
    }

    /// Keeps the words for the first error.
    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.first_error.is_none() {
            self.first_error = Some(what());
        }
    }
}

impl Merge for Tally {
    fn merge(&mut self, other: &Tally) -> Result<(), LoadError> {
        self.sent += other.sent;
        self.replies += other.replies;
        self.requests += other.requests;
        add_histogram(&mut self.latencies, &other.latencies)?;
        add_histogram(&mut self.slipped, &other.slipped)?;
        add_histogram(&mut self.slipped_at_least, &other.slipped_at_least)?;
        add_histogram(&mut self.stream_latencies, &other.stream_latencies)?;
        add_histogram(&mut self.lag, &other.lag)?;
        add_histogram(&mut self.slipped_lag, &other.slipped_lag)?;
        add_histogram(&mut self.connects, &other.connects)?;
        self.slips.add(other.slips);
        self.unsent += other.unsent;
        self.unanswered += other.unanswered;
        self.slow_replies += other.slow_replies;
        self.received_bytes += other.received_bytes;
        self.reconnects += other.reconnects;
        self.repeated += other.repeated;
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
}
