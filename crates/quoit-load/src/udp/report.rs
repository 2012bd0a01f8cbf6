//! What a run of datagrams found.

use std::time::Duration;

use quoit_workload::Intervals;
use serde::Serialize;

use super::plan::Datagrams;
use super::replies::ReplyTally;
use super::sender::{PhaseTally, SenderTally};
use crate::report::{Details, Ending, Latency, Report, Rows, by, latency};
use crate::{Length, Phase, Plan};

/// The share of the offered rate below which a run's own senders are said to be too slow.
const ENOUGH: f64 = 0.99;

/// What a run of datagrams found beside what all runs find.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DatagramReport {
    /// `sendto`, `sendmmsg` or `gso`.
    pub(crate) mode: String,
    /// Datagrams between two looks at the clock, and in one call if the mode has such, at most.
    pub(crate) batch: u32,
    /// Bytes of a datagram, on average, without the headers of UDP and IP.
    pub(crate) datagram_bytes: f64,
    /// How the sizes are spread, as given.
    pub(crate) datagram_sizes: String,
    /// Threads, each with a socket.
    pub(crate) senders: usize,
    /// What the datagrams of this run carry.
    pub(crate) run: u64,
    /// The run's parts, one after the other: at least one.
    pub(crate) phases: Vec<PhaseReport>,
    /// What was sent, by the tenth of a second since the run began in which it was due.
    pub(crate) intervals: Intervals,
    /// When the run began, in seconds since 1970 by the wall clock.
    pub(crate) started_at: f64,
    /// Datagrams that the kernel took.
    pub(crate) sent: u64,
    /// `sent` by `elapsed_seconds`.
    pub(crate) sent_per_second: f64,
    /// Their bytes, in millions per second.
    pub(crate) sent_megabytes_per_second: f64,
    /// System calls that sent them.
    pub(crate) send_calls: u64,
    /// Calls that the kernel refused for want of memory (ENOBUFS), and that were made again.
    pub(crate) send_failures: u64,
    /// What came back, if that was expected.
    pub(crate) replies: Option<RepliesReport>,
    /// The datagrams that ended the run.
    pub(crate) shutdown: ShutdownReport,
    /// Processor time of the senders' threads, user and system, by datagram sent. On loopback it includes the
    /// delivery.
    pub(crate) generator_cpu_ns_per_datagram: f64,
}

/// A part of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PhaseReport {
    /// Datagrams per second that fell due; `None`: as fast as it went.
    pub(crate) offered_per_second: Option<f64>,
    /// Since the run began.
    pub(crate) begins_seconds: f64,
    /// Its length: of one that ends by a count, until its last datagram.
    pub(crate) seconds: f64,
    /// Datagrams that the kernel took in it.
    pub(crate) sent: u64,
}

/// What came back from an echo. `sent = received + lost`, exactly, and what came again, late or wrong is beside it.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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

impl Report {
    /// That of a run of datagrams, which carried `run`.
    pub(super) fn of_datagrams(
        (plan, datagrams): (&Plan, &Datagrams),
        run: u64,
        started_at: Duration,
        tally: SenderTally,
        shutdown: ShutdownReport,
        ending: Ending,
    ) -> Self {
        let sent = tally.sent;
        let elapsed = tally.ended as f64 / 1e9;
        let phases: Vec<PhaseReport> = plan
            .phases
            .iter()
            .zip(&tally.phases)
            .map(PhaseReport::new)
            .collect();
        let lags = |phase: &PhaseReport| {
            phase
                .offered_per_second
                .is_some_and(|offered| by(phase.sent as f64, phase.seconds) < ENOUGH * offered)
        };
        let replies = tally
            .replies
            .as_ref()
            .map(|replies| RepliesReport::new(sent, elapsed, replies));
        let invalid = match &replies {
            _ if sent == 0 => Some("nothing was sent".to_owned()),
            Some(replies) if replies.wrong > 0 => Some("replies were wrong".to_owned()),
            Some(replies) if replies.received == 0 => Some("no datagram got a reply".to_owned()),
            _ => None,
        };
        let lagging = phases.iter().any(lags) && ending == Ending::Complete;
        let details = DatagramReport {
            mode: datagrams.mode.name().to_owned(),
            batch: datagrams.batch,
            datagram_bytes: datagrams.sizes.mean(),
            datagram_sizes: datagrams.sizes.to_string(),
            senders: plan.threads,
            run,
            started_at: started_at.as_secs_f64(),
            sent,
            sent_per_second: by(sent as f64, elapsed),
            sent_megabytes_per_second: by(tally.bytes as f64 / 1e6, elapsed),
            send_calls: tally.calls,
            send_failures: tally.failures,
            phases,
            intervals: tally.intervals,
            replies,
            shutdown,
            generator_cpu_ns_per_datagram: by(tally.cpu_ns as f64, sent as f64),
        };
        let times = (tally.ended as f64, tally.cpu_ns);
        Report {
            lagging,
            ..Report::new(
                plan,
                times,
                &tally.lag,
                (ending, invalid),
                Details::Datagrams(Box::new(details)),
            )
        }
    }
}

impl DatagramReport {
    /// Adds all rows but those on how the run ended.
    pub(crate) fn rows(&self, head: &Report, rows: &mut Rows) {
        rows.row(
            "load",
            format!("udp of {} bytes on {}", self.datagram_sizes, head.target),
        );
        rows.row(
            "senders",
            format!("{} x {}, up to {} a batch", self.senders, self.mode, self.batch),
        );
        rows.row("run", format!("{:016x}, {:.3} s", self.run, head.elapsed_seconds));
        rows.row("sent", self.sent.to_string());
        let offered = head
            .offered_per_second
            .map_or(String::new(), |offered| format!(" of {offered:.0} offered"));
        let lagging = if head.lagging {
            "; LAGGING: the senders are too slow for it"
        } else {
            ""
        };
        rows.row(
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
                rows.row(
                    &format!("phase {number}"),
                    format!("{} in {:.3} s, {offered}", phase.sent, phase.seconds),
                );
            }
        }
        rows.row(
            "calls",
            format!(
                "{}, {:.1} datagrams each",
                self.send_calls,
                self.sent as f64 / self.send_calls.max(1) as f64
            ),
        );
        if self.send_failures > 0 {
            rows.row(
                "refused for a while",
                format!("{} calls (ENOBUFS)", self.send_failures),
            );
        }
        if let Some(lag) = &head.lag {
            rows.lag(lag, "");
        }
        if let Some(replies) = &self.replies {
            replies.rows(self.sent, rows);
        }
        rows.generator_cpu(self.generator_cpu_ns_per_datagram, "datagram", head);
        if self.shutdown.datagrams > 0 {
            let end = if self.shutdown.ended_early {
                ", until the sink ended"
            } else {
                ""
            };
            rows.row(
                "shutdown",
                format!(
                    "{} datagrams of {} bytes{end}",
                    self.shutdown.datagrams, self.shutdown.bytes
                ),
            );
        }
    }
}

impl PhaseReport {
    fn new((phase, tally): (&Phase, &PhaseTally)) -> Self {
        let seconds = (tally.ended - tally.begun) as f64 / 1e9;
        Self {
            offered_per_second: phase.offered.map(|offered| offered.rate),
            begins_seconds: tally.begun as f64 / 1e9,
            seconds: match phase.length {
                Length::Time(time) => time.as_secs_f64().min(seconds),
                Length::Count(_) => seconds,
            },
            sent: tally.sent,
        }
    }
}

impl RepliesReport {
    fn new(sent: u64, elapsed: f64, tally: &ReplyTally) -> Self {
        Self {
            received: tally.received,
            received_per_second: by(tally.received as f64, elapsed),
            lost: sent - tally.received,
            duplicates: tally.duplicates,
            reordered: tally.reordered,
            wrong: tally.wrong,
            foreign: tally.foreign,
            first_error: tally.first_error.clone(),
            latency: latency(&tally.latencies),
        }
    }

    fn rows(&self, sent: u64, rows: &mut Rows) {
        rows.row(
            "replies",
            format!("{}, {:.0}/s", self.received, self.received_per_second),
        );
        rows.row(
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
                rows.row(name, count.to_string());
            }
        }
        if let Some(first) = &self.first_error {
            rows.row("first error", first.clone());
        }
        if let Some(latency) = &self.latency {
            latency.rows(rows);
        }
    }
}
