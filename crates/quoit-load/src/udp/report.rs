//! What a run found, as one JSON object or a table.

use std::time::Duration;

use hdrhistogram::Histogram;
use quoit_workload::Intervals;
use serde::{Deserialize, Serialize};

use super::plan::{UdpLength, UdpPlan};
use super::replies::ReplyTally;
use super::sender::SenderTally;
use crate::LoadError;
use crate::report::{Latency, Percentiles, latency, microseconds, percentiles, two_columns};
use crate::tally::add_histogram;

/// The share of the offered rate below which a run's own senders are said to be too slow.
const ENOUGH: f64 = 0.99;

/// The findings of one run. The field names are those of the JSON object; units are in the names. The fields are
/// described in `docs/load.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct UdpReport {
    /// `udp`.
    pub(crate) protocol: String,
    /// The server's address.
    pub(crate) target: String,
    /// `sendto`, `sendmmsg` or `gso`.
    pub(crate) mode: String,
    /// Datagrams between two looks at the clock, and in one call if the mode has such, at most.
    pub(crate) batch: u32,
    /// Bytes of a datagram, on average, without the headers of UDP and IP.
    pub(crate) datagram_bytes: f64,
    /// How the sizes are spread, as given.
    pub(crate) datagram_sizes: String,
    /// Threads, each with a socket.
    pub(crate) senders: u16,
    /// What the datagrams of this run carry.
    pub(crate) run: u64,
    /// Datagrams a second that fell due; `None`: as fast as it went, or in several phases.
    pub(crate) offered_per_second: Option<f64>,
    /// The run's parts, one after the other: at least one.
    pub(crate) phases: Vec<PhaseReport>,
    /// What was sent, by the tenth of a second since the run began in which it was due.
    pub(crate) intervals: Intervals,
    /// When the run began, in seconds since 1970 by the wall clock.
    pub(crate) started_at: f64,
    /// From the run's beginning to the last datagram sent.
    pub(crate) elapsed_seconds: f64,
    /// Datagrams that the kernel took.
    pub(crate) sent: u64,
    /// `sent` by `elapsed_seconds`.
    pub(crate) sent_per_second: f64,
    /// Their bytes, in millions a second.
    pub(crate) sent_megabytes_per_second: f64,
    /// System calls that sent them.
    pub(crate) send_calls: u64,
    /// Calls that the kernel refused for want of memory (ENOBUFS), and that were made again.
    pub(crate) send_failures: u64,
    /// How late batches were sent, with a rate.
    pub(crate) lag: Option<Percentiles>,
    /// Whether less than 99 % of the offered rate was sent, in any phase.
    pub(crate) lagging: bool,
    /// What came back, if that was expected.
    pub(crate) replies: Option<RepliesReport>,
    /// The datagrams that ended the run.
    pub(crate) shutdown: ShutdownReport,
    /// Processor time of the senders' threads, user and system, by datagram sent. On loopback it includes the
    /// delivery.
    pub(crate) generator_cpu_ns_per_datagram: f64,
    /// The share of the run that a sender's thread spent on a processor, on average, from 0 to 1.
    pub(crate) generator_cpu_utilization: f64,
    /// Whether the run was ended before its time.
    pub(crate) interrupted: bool,
    /// Why the figures must not be used, if so.
    pub(crate) invalid: Option<String>,
}

/// A part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PhaseReport {
    /// Datagrams a second that fell due; `None`: as fast as it went.
    pub(crate) offered_per_second: Option<f64>,
    /// Since the run began.
    pub(crate) begins_seconds: f64,
    /// Its length: of one that ends by a count, until its last datagram.
    pub(crate) seconds: f64,
    /// Datagrams that the kernel took in it.
    pub(crate) sent: u64,
}

/// What came back from an echo. `sent = received + lost`, exactly, and what came again, late or wrong is beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RepliesReport {
    /// Datagrams that were answered rightly.
    pub(crate) received: u64,
    /// `received` by the time in which was sent.
    pub(crate) received_per_second: f64,
    /// Datagrams that were not, within the timeout after the last one.
    pub(crate) lost: u64,
    /// Replies that came again.
    pub(crate) duplicates: u64,
    /// Replies that came after one to a later datagram of the same sender; among `received`.
    pub(crate) reordered: u64,
    /// Replies of another content or length than what was sent.
    pub(crate) wrong: u64,
    /// What came and was no reply to this run.
    pub(crate) foreign: u64,
    /// The first wrong reply in words.
    pub(crate) first_error: Option<String>,
    /// From when a datagram was sent (with a rate, due) to its reply.
    pub(crate) latency: Option<Latency>,
}

/// The datagrams that ended a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShutdownReport {
    /// How many were sent.
    pub(crate) datagrams: u64,
    /// Bytes of each.
    pub(crate) bytes: u32,
    /// Time between two rounds of them.
    pub(crate) every_seconds: f64,
    /// Whether the rest was not sent because nothing received any more: the sink had ended.
    pub(crate) ended_early: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Complete,
    Interrupted,
}

impl UdpReport {
    /// # Errors
    /// Histograms cannot be merged.
    pub(super) fn new(
        plan: &UdpPlan,
        run: u64,
        started_at: Duration,
        tallies: Vec<SenderTally>,
        shutdown: ShutdownReport,
        ending: Ending,
    ) -> Result<Self, LoadError> {
        let by = |value: f64, unit: f64| if unit > 0.0 { value / unit } else { 0.0 };
        let sum = |of: fn(&SenderTally) -> u64| tallies.iter().map(of).sum::<u64>();
        let sent = sum(|tally| tally.sent);
        let cpu_ns = sum(|tally| tally.cpu_ns) as f64;
        let elapsed = tallies.iter().map(|tally| tally.ended).max().unwrap_or(0) as f64 / 1e9;
        let rate = by(sent as f64, elapsed);
        let (bytes, send_calls, send_failures) = (
            sum(|tally| tally.bytes),
            sum(|tally| tally.calls),
            sum(|tally| tally.failures),
        );
        let phases = phases(plan, &tallies);
        let mut intervals = Intervals::default();
        let mut lag: Option<Histogram<u64>> = None;
        let mut replies = Vec::new();
        for tally in tallies {
            match &mut lag {
                Some(lag) => add_histogram(lag, &tally.lag)?,
                None => lag = Some(tally.lag),
            }
            intervals.merge(&tally.intervals);
            replies.extend(tally.replies);
        }
        let lags = |phase: &PhaseReport| {
            phase
                .offered_per_second
                .is_some_and(|offered| by(phase.sent as f64, phase.seconds) < ENOUGH * offered)
        };
        let replies = RepliesReport::new(sent, elapsed, replies)?;
        let invalid = match &replies {
            _ if sent == 0 => Some("nothing was sent".to_owned()),
            Some(replies) if replies.wrong > 0 => Some("replies were wrong".to_owned()),
            Some(replies) if replies.received == 0 => Some("no datagram was answered".to_owned()),
            _ => None,
        };
        Ok(Self {
            protocol: "udp".to_owned(),
            target: plan.target.to_string(),
            mode: plan.mode.name().to_owned(),
            batch: plan.batch,
            datagram_bytes: plan.sizes.mean(),
            datagram_sizes: plan.sizes.to_string(),
            senders: plan.senders,
            run,
            offered_per_second: match plan.phases[..] {
                [only] => only.rate,
                _ => None,
            },
            started_at: started_at.as_secs_f64(),
            elapsed_seconds: elapsed,
            sent,
            sent_per_second: rate,
            sent_megabytes_per_second: by(bytes as f64 / 1e6, elapsed),
            send_calls,
            send_failures,
            lag: lag.as_ref().and_then(percentiles),
            lagging: phases.iter().any(lags) && ending == Ending::Complete,
            phases,
            intervals,
            replies,
            shutdown,
            generator_cpu_ns_per_datagram: by(cpu_ns, sent as f64),
            generator_cpu_utilization: by(cpu_ns, elapsed * 1e9 * f64::from(plan.senders)),
            interrupted: ending == Ending::Interrupted,
            invalid,
        })
    }

    /// A table of two columns.
    pub(crate) fn to_table(&self) -> String {
        two_columns(self.rows())
    }

    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row(
            "load",
            format!("udp of {} bytes on {}", self.datagram_sizes, self.target),
        );
        row(
            "senders",
            format!("{} x {}, up to {} a batch", self.senders, self.mode, self.batch),
        );
        row("run", format!("{:016x}, {:.3} s", self.run, self.elapsed_seconds));
        row("sent", self.sent.to_string());
        let offered = self
            .offered_per_second
            .map_or(String::new(), |offered| format!(" of {offered:.0} offered"));
        let lagging = if self.lagging {
            "; LAGGING: the senders are too slow for it"
        } else {
            ""
        };
        row(
            "rate",
            format!(
                "{:.0} datagrams/s{offered}, {:.2} MB/s{lagging}",
                self.sent_per_second, self.sent_megabytes_per_second
            ),
        );
        if self.phases.len() > 1 {
            for (number, phase) in (1..).zip(&self.phases) {
                let offered = phase.offered_per_second;
                let offered = offered.map_or("flat out".to_owned(), |rate| format!("{rate:.0}/s offered"));
                row(
                    &format!("phase {number}"),
                    format!("{} in {:.3} s, {offered}", phase.sent, phase.seconds),
                );
            }
        }
        row(
            "calls",
            format!(
                "{}, {:.1} datagrams each",
                self.send_calls,
                self.sent as f64 / self.send_calls.max(1) as f64
            ),
        );
        if self.send_failures > 0 {
            row(
                "refused for a while",
                format!("{} calls (ENOBUFS)", self.send_failures),
            );
        }
        if let Some(lag) = &self.lag {
            row(
                "generator lag",
                format!(
                    "p50 {}, p99 {}, max {}",
                    microseconds(lag.p50_ns as f64),
                    microseconds(lag.p99_ns as f64),
                    microseconds(lag.max_ns as f64)
                ),
            );
        }
        if let Some(replies) = &self.replies {
            replies.rows(self.sent, &mut row);
        }
        row(
            "generator CPU",
            format!(
                "{:.0} ns/datagram, {:.0} % of its thread(s)",
                self.generator_cpu_ns_per_datagram,
                self.generator_cpu_utilization * 100.0
            ),
        );
        if self.shutdown.datagrams > 0 {
            let end = if self.shutdown.ended_early {
                ", until the sink ended"
            } else {
                ""
            };
            row(
                "shutdown",
                format!(
                    "{} datagrams of {} bytes{end}",
                    self.shutdown.datagrams, self.shutdown.bytes
                ),
            );
        }
        if self.interrupted {
            row("interrupted", "the run was ended before its time".to_owned());
        }
        if let Some(reason) = &self.invalid {
            row("INVALID", reason.clone());
        }
        rows
    }
}

/// The phases that were begun, over all senders.
fn phases(plan: &UdpPlan, tallies: &[SenderTally]) -> Vec<PhaseReport> {
    let begun = |number: usize| {
        let all = || tallies.iter().filter_map(move |tally| tally.phases.get(number));
        let begins = all().map(|phase| phase.begun).min()?;
        let ended = all().map(|phase| phase.ended).max()?;
        let seconds = match plan.phases[number].length {
            UdpLength::Time(time) => time.as_secs_f64().min((ended - begins) as f64 / 1e9),
            UdpLength::Count(_) => (ended - begins) as f64 / 1e9,
        };
        Some(PhaseReport {
            offered_per_second: plan.phases[number].rate,
            begins_seconds: begins as f64 / 1e9,
            seconds,
            sent: all().map(|phase| phase.sent).sum(),
        })
    };
    (0..plan.phases.len()).map_while(begun).collect()
}

impl RepliesReport {
    /// Of the replies of all senders; `None` if none were expected.
    fn new(sent: u64, elapsed: f64, tallies: Vec<ReplyTally>) -> Result<Option<Self>, LoadError> {
        let sum = |of: fn(&ReplyTally) -> u64| tallies.iter().map(of).sum::<u64>();
        let received = sum(|tally| tally.totals.distinct);
        let mut report = Self {
            received,
            received_per_second: if elapsed > 0.0 {
                received as f64 / elapsed
            } else {
                0.0
            },
            lost: sent - received,
            duplicates: sum(|tally| tally.totals.duplicates + tally.totals.forgotten),
            reordered: sum(|tally| tally.totals.reordered),
            wrong: sum(|tally| tally.wrong),
            foreign: sum(|tally| tally.totals.foreign),
            first_error: tallies.iter().find_map(|tally| tally.first_error.clone()),
            latency: None,
        };
        let mut latencies = tallies.into_iter().map(|tally| tally.latencies);
        let Some(mut all) = latencies.next() else {
            return Ok(None);
        };
        for more in latencies {
            add_histogram(&mut all, &more)?;
        }
        report.latency = latency(&all);
        Ok(Some(report))
    }

    fn rows(&self, sent: u64, row: &mut impl FnMut(&str, String)) {
        row(
            "replies",
            format!("{}, {:.0}/s", self.received, self.received_per_second),
        );
        row(
            "lost",
            format!(
                "{}, {:.3} %",
                self.lost,
                self.lost as f64 * 100.0 / sent.max(1) as f64
            ),
        );
        for (name, count) in [
            ("duplicates", self.duplicates),
            ("out of order", self.reordered),
            ("wrong", self.wrong),
            ("of no datagram", self.foreign),
        ] {
            if count > 0 {
                row(name, count.to_string());
            }
        }
        if let Some(first) = &self.first_error {
            row("first error", first.clone());
        }
        if let Some(latency) = &self.latency {
            latency.rows(row);
        }
    }
}
