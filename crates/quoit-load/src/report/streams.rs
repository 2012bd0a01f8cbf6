//! What a run of connections found.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::table::{Rows, microseconds};
use super::{Details, Ending, Interval, Latency, Percentiles, Rate, Report, by, latency, percentiles};
use crate::control::nanoseconds;
use crate::encoded::encode;
use crate::error::LoadError;
use crate::histograms::Latencies;
use crate::plan::{Arrivals, Plan, Workload};
use crate::rpc::RpcReport;
use crate::sizes::Sizes;
use crate::tally::{Errors, Tally, add_histogram};

/// The unit of the values in histograms, as reports say it.
pub(crate) const HISTOGRAM_UNIT: &str = "ns";

/// What a run of connections found beside what all runs find.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamReport {
    /// What the run is called among those that it is merged with, as given.
    pub(crate) label: Option<String>,
    /// Bytes of an echo or rpc message, on average; absent for HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_bytes: Option<f64>,
    /// How the sizes of messages are spread, as given; absent for HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_sizes: Option<String>,
    /// The path that was requested; absent for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// Bytes of each request's body; absent for GET requests and for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_body_bytes: Option<u32>,
    /// Connections kept open, over all threads.
    pub(crate) connections: u64,
    /// Requests kept outstanding on each connection; in an open loop, at most.
    pub(crate) pipeline: u32,
    /// Threads that generated the load.
    pub(crate) threads: u64,
    /// `fixed` or `poisson`, in an open loop.
    pub(crate) schedule: Option<String>,
    /// Requests that fell due at once, in an open loop.
    pub(crate) batch: Option<u32>,
    /// What the random draws depended on; absent where several runs had several.
    pub(crate) seed: Option<u64>,
    /// Whether each request had a connection of its own.
    pub(crate) churn: bool,
    /// Bytes that each thread touched whenever it had waited.
    #[serde(default)]
    pub(crate) displaced_bytes: u64,
    /// Connections that read slowly, among `connections`.
    pub(crate) slow_connections: u64,
    /// The time over which connections were opened.
    pub(crate) ramp_up_seconds: f64,
    /// The discarded time before the measured window.
    pub(crate) warmup_seconds: f64,
    /// When the measured window was to begin, if that was given, in seconds since 1970.
    pub(crate) start_at: Option<f64>,
    /// How much later than that it began.
    pub(crate) started_late_seconds: Option<f64>,
    /// When the measured window began, in seconds since 1970 by the wall clock; 0 if it did not.
    pub(crate) window_started_at: f64,
    /// Requests that were begun over the whole run, warm-up included; of rpc, streams. Those on connections that read
    /// slowly and the check before the run are not among them.
    pub(crate) sent_requests: u64,
    /// Replies over the whole run, right or wrong; of rpc, messages.
    pub(crate) received_replies: u64,
    /// Replies of the measured window whose whole content was right.
    pub(crate) requests: u64,
    /// `requests` by `elapsed_seconds`.
    pub(crate) requests_per_second: f64,
    /// How the rate varied between intervals; absent for fewer than two.
    pub(crate) rate: Option<Rate>,
    /// Bytes received in the measured window.
    pub(crate) received_bytes: u64,
    /// `received_bytes` by `elapsed_seconds`, in millions per second.
    pub(crate) received_megabytes_per_second: f64,
    /// From when a request was written (in an open loop, due) to the read of its whole reply, of all requests; absent
    /// if there was none.
    pub(crate) latency: Option<Latency>,
    /// The same, each less the time in which the generator itself did not run meanwhile: the truth lies between the two.
    pub(crate) latency_at_least: Option<Latency>,
    /// The share of the latencies that overlapped a slip, 0 to 1.
    pub(crate) slipped_share: f64,
    /// Whether slips may be more than a tenth of `latency`, at the median or the 99th percentile.
    pub(crate) slipping: bool,
    /// Gaps in which the generator itself did not run.
    pub(crate) slips: SlipCounts,
    /// Requests that fell due in the window and were not sent by its end: an open loop only.
    pub(crate) unsent_requests: Option<u64>,
    /// Requests that were sent and not answered by the window's end: an open loop only.
    pub(crate) unanswered_requests: Option<u64>,
    /// How long connecting took; absent if nothing was connected.
    pub(crate) connects: Option<Percentiles>,
    /// Replies of the window on connections that read slowly; they are in no other figure.
    pub(crate) slow_replies: Option<u64>,
    /// What is of rpc alone. Then `requests` are messages, `pipeline` is streams per connection, and `latency` is
    /// that of messages from the server's send time to the read of the whole message: one way, which means
    /// something only where both use the clock of one machine; absent if messages carry no send time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rpc: Option<RpcReport>,
    /// Errors by kind, over the whole run, warm-up included.
    pub(crate) errors: Errors,
    /// The first error in words.
    pub(crate) first_error: Option<String>,
    /// Connections opened again after they had ended, over the whole run. A server may announce an end
    /// (`Connection: close`); that is no error.
    pub(crate) reconnects: u64,
    /// Requests that were sent once more, on another connection: they were sent behind the one to which the server
    /// announced the end. Only with a pipeline.
    #[serde(default)]
    pub(crate) repeated_requests: u64,
    /// Processor time of the generator's threads, user and system, by request. On loopback it includes
    /// the delivery of what it sends.
    pub(crate) generator_cpu_ns_per_request: f64,
    /// The window's complete intervals.
    pub(crate) intervals: Vec<Interval>,
    /// The unit of the values in histograms.
    pub(crate) histogram_unit: String,
    /// What is behind `latency`, `latency_at_least`, `lag` and `connects`: HdrHistogram V2, compressed, base64.
    pub(crate) histogram: Option<String>,
    pub(crate) histogram_at_least: Option<String>,
    pub(crate) lag_histogram: Option<String>,
    pub(crate) connects_histogram: Option<String>,
}

/// Gaps of the measured window in which a thread of the generator did not run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlipCounts {
    /// The shortest gap that counts.
    pub(crate) limit_ns: u64,
    pub(crate) count: u64,
    /// Together, over all threads.
    pub(crate) total_ns: u64,
    pub(crate) longest_ns: u64,
}

impl Report {
    /// That of a run of connections.
    ///
    /// # Errors
    /// The latencies cannot be encoded.
    pub(crate) fn of_streams(
        plan: &Plan,
        tally: &Tally,
        latencies: &Latencies,
        intervals: Vec<Interval>,
        ending: Ending,
    ) -> Result<Self, LoadError> {
        let elapsed_ns = tally.window.map_or(0, |(start, end)| end - start) as f64;
        let requests = tally.requests;
        let (sizes, path, body) = match &plan.workload {
            Workload::Echo { sizes } => (Some(sizes.clone()), None, None),
            Workload::Http { path, body, .. } => (None, Some(path.clone()), *body),
            Workload::Rpc(streams) => (Some(Sizes::Fixed(streams.size)), None, None),
            Workload::Datagrams(_) => (None, None, None),
        };
        let rpc = match &plan.workload {
            Workload::Rpc(streams) => Some(RpcReport::new(streams, &tally.stream_latencies)?),
            _ => None,
        };
        let invalid = match ending {
            Ending::Stalled => Some(format!("no reply came on any connection for {:?}", plan.timeout)),
            _ if requests == 0 => Some("no reply was measured".to_owned()),
            _ if !tally.errors.is_empty() => Some("errors occurred".to_owned()),
            _ => None,
        };
        let latency = latency(&latencies.all);
        let latency_at_least = self::latency(&latencies.at_least);
        let slipping = is_slipping(latency.as_ref(), latency_at_least.as_ref());
        let lagging = is_lagging(percentiles(&tally.lag).as_ref(), latency_at_least.as_ref());
        let mut lag = tally.lag.clone();
        add_histogram(&mut lag, &tally.slipped_lag)?;
        let late = tally.window.and(plan.start_at);
        let streams = StreamReport {
            label: plan.label.clone(),
            message_bytes: sizes.as_ref().map(Sizes::mean),
            message_sizes: sizes.as_ref().map(ToString::to_string),
            path,
            request_body_bytes: body,
            connections: plan.connections as u64,
            pipeline: plan.pipeline,
            threads: plan.threads as u64,
            schedule: plan.offered().map(|offered| {
                let name = match offered.arrivals {
                    Arrivals::Fixed => "fixed",
                    Arrivals::Poisson => "poisson",
                };
                name.to_owned()
            }),
            batch: plan.offered().map(|offered| offered.batch),
            seed: Some(plan.seed),
            churn: plan.churn,
            displaced_bytes: plan.displace as u64,
            slow_connections: plan.slow.map_or(0, |slow| slow.connections) as u64,
            ramp_up_seconds: plan.ramp_up.as_secs_f64(),
            warmup_seconds: plan.warmup.as_secs_f64(),
            start_at: plan.start_at.map(|at| at.as_secs_f64()),
            // The coordinator begins no window before its time.
            started_late_seconds: late.map(|at| latencies.started_at().saturating_sub(at).as_secs_f64()),
            window_started_at: latencies.started_at().as_secs_f64(),
            sent_requests: tally.sent,
            received_replies: tally.replies,
            requests,
            requests_per_second: by(requests as f64, elapsed_ns / 1e9),
            rate: Rate::of(&intervals),
            received_bytes: tally.received_bytes,
            received_megabytes_per_second: by(tally.received_bytes as f64 / 1e6, elapsed_ns / 1e9),
            latency,
            latency_at_least,
            rpc,
            slipped_share: by(tally.slipped.len() as f64, latencies.all.len() as f64),
            slipping,
            slips: SlipCounts {
                limit_ns: nanoseconds(plan.slip),
                count: tally.slips.count,
                total_ns: tally.slips.total,
                longest_ns: tally.slips.longest,
            },
            unsent_requests: plan.offered().map(|_| tally.unsent),
            unanswered_requests: plan.offered().map(|_| tally.unanswered),
            connects: percentiles(&tally.connects),
            slow_replies: plan.slow.map(|_| tally.slow_replies),
            errors: tally.errors.clone(),
            first_error: tally.first_error.clone(),
            reconnects: tally.reconnects,
            repeated_requests: tally.repeated,
            generator_cpu_ns_per_request: by(tally.cpu_ns as f64, requests as f64),
            intervals,
            histogram_unit: HISTOGRAM_UNIT.to_owned(),
            histogram: encode(&latencies.all)?,
            histogram_at_least: encode(&latencies.at_least)?,
            lag_histogram: encode(&lag)?,
            connects_histogram: encode(&tally.connects)?,
        };
        let times = (elapsed_ns, tally.cpu_ns);
        Ok(Report {
            lagging,
            ..Report::new(
                plan,
                times,
                &lag,
                (ending, invalid),
                Details::Streams(Box::new(streams)),
            )
        })
    }
}

impl StreamReport {
    /// Adds all rows but those on how the run ended.
    pub(super) fn rows(&self, head: &Report, rows: &mut Rows) {
        rows.row("load", self.what(head));
        if let Some(rpc) = &self.rpc {
            rows.row("streams", rpc.what());
        }
        rows.row("connections", self.connections(head));
        if let Some(label) = &self.label {
            rows.row("label", label.clone());
        }
        let late = self.started_late_seconds.map_or(String::new(), |late| {
            format!(", begun {} after --start-at", microseconds(late * 1e9))
        });
        rows.row(
            "measured",
            format!(
                "{:.3} s after {} s of warm-up{late}",
                head.elapsed_seconds, self.warmup_seconds
            ),
        );
        rows.row("requests", format!("{}", self.requests));
        rows.row("rate", self.rate(head));
        rows.row(
            "received",
            format!("{:.2} MB/s", self.received_megabytes_per_second),
        );
        if let Some(latency) = &self.latency {
            if self.rpc.is_some() {
                rows.row(
                    "message latency",
                    "one way, from the server's send time".to_owned(),
                );
            }
            latency.rows(rows);
        }
        if let Some(rpc) = &self.rpc {
            rows.row("streams ended", rpc.streams_ended.to_string());
            if let Some(latency) = &rpc.stream_latency {
                rows.row("stream latency", "from its opening to its end".to_owned());
                latency.rows(rows);
            }
        }
        if self.slips.count > 0 {
            rows.row("generator slips", self.slips());
        }
        if let Some(lag) = &head.lag {
            let flag = if head.lagging {
                "; LAGGING: latencies are largely its own"
            } else {
                ""
            };
            rows.lag(lag, flag);
        }
        if let Some(connects) = self.connects.as_ref().filter(|_| self.churn) {
            rows.row(
                "connecting",
                format!("{} times, {}", connects.count, connects.text()),
            );
        }
        if let Some(replies) = self.slow_replies {
            rows.row(
                "slow readers",
                format!("{} with {replies} replies", self.slow_connections),
            );
        }
        rows.generator_cpu(self.generator_cpu_ns_per_request, "request", head);
        if self.reconnects > 0 {
            rows.row("reconnects", self.reconnects.to_string());
        }
        if self.repeated_requests > 0 {
            rows.row("repeated requests", self.repeated_requests.to_string());
        }
        if self.errors.is_empty() {
            rows.row("errors", "none".to_owned());
        }
        for (name, count) in self.errors.by_name() {
            if count > 0 {
                rows.row(&format!("errors: {name}"), count.to_string());
            }
        }
        if let Some(first) = &self.first_error {
            rows.row("first error", first.clone());
        }
    }
    fn what(&self, head: &Report) -> String {
        match (&self.path, &self.message_sizes) {
            (Some(path), _) => {
                let body = self
                    .request_body_bytes
                    .map_or_else(String::new, |bytes| format!(" with {bytes} bytes"));
                format!("{} {path}{body} on {}", head.protocol, head.target)
            }
            (None, Some(sizes)) => format!("{} of {sizes} bytes on {}", head.protocol, head.target),
            (None, None) => format!("{} on {}", head.protocol, head.target),
        }
    }

    fn connections(&self, head: &Report) -> String {
        let most = if head.offered_per_second.is_some() {
            "at most "
        } else {
            ""
        };
        let use_of = if self.churn {
            "one request each".to_owned()
        } else {
            format!("{most}{} outstanding", self.pipeline)
        };
        format!("{} x {use_of}, {} thread(s)", self.connections, self.threads)
    }

    fn rate(&self, head: &Report) -> String {
        let mut text = format!("{:.0} requests/s", self.requests_per_second);
        // Writing to a string does not fail.
        if let Some(rate) = &self.rate {
            let _ = write!(
                text,
                " (standard deviation {:.0}, {:.1} % within)",
                rate.standard_deviation,
                rate.within_standard_deviation * 100.0
            );
        }
        if let (Some(offered), Some(schedule)) = (head.offered_per_second, &self.schedule) {
            let _ = write!(text, " of {offered:.0} offered, {schedule}");
        }
        if let Some(unsent @ 1..) = self.unsent_requests {
            let _ = write!(text, "; {unsent} not sent in time");
        }
        text
    }

    fn slips(&self) -> String {
        let without = self.latency_at_least.as_ref().map_or(String::new(), |latency| {
            format!(
                "; without them p99 {}, max {} at least",
                microseconds(latency.p99_ns as f64),
                microseconds(latency.max_ns as f64)
            )
        });
        let flag = if self.slipping {
            "; SLIPPING: latencies may be its own for more than a tenth"
        } else {
            ""
        };
        format!(
            "{}, longest {}; {:.2} % of the requests overlapped one{without}{flag}",
            self.slips.count,
            microseconds(self.slips.longest_ns as f64),
            self.slipped_share * 100.0
        )
    }
}

/// Whether what the generator may have slept through itself is more than a tenth of the latencies.
pub(crate) fn is_slipping(latency: Option<&Latency>, at_least: Option<&Latency>) -> bool {
    const SHARE: f64 = 0.1;
    let beyond = |all: u64, at_least: u64| (all - at_least.min(all)) as f64 > all as f64 * SHARE;
    latency.zip(at_least).is_some_and(|(all, at_least)| {
        beyond(all.p50_ns, at_least.p50_ns) || beyond(all.p99_ns, at_least.p99_ns)
    })
}

/// Whether latencies, which contain the lag, consist of it for the greater part.
fn is_lagging(lag: Option<&Percentiles>, latency: Option<&Latency>) -> bool {
    lag.zip(latency)
        .is_some_and(|(lag, latency)| lag.p50_ns > latency.p50_ns / 2 || lag.p99_ns > latency.p99_ns / 2)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    #[test]
    fn latencies_of_which_much_may_be_slips_are_doubtful() {
        let with = |p50_ns, p99_ns| Latency {
            p50_ns,
            p99_ns,
            ..latency(&{
                let mut one = Histogram::new_with_bounds(1, 1_000_000_000, 3).unwrap();
                one.record(1).unwrap();
                one
            })
            .unwrap()
        };
        for (at_least, expected) in [
            ((100, 1_000), false),
            ((90, 900), false),
            ((89, 1_000), true),
            ((100, 899), true),
        ] {
            let found = is_slipping(Some(&with(100, 1_000)), Some(&with(at_least.0, at_least.1)));
            assert_eq!(found, expected, "{at_least:?}");
        }
        assert!(!is_slipping(None, None));
    }

    #[test]
    fn latencies_that_are_largely_lag_are_doubtful() {
        let histogram = |values: &[u64]| {
            let mut histogram = Histogram::new_with_bounds(1, 1_000_000_000, 3).unwrap();
            for value in values {
                histogram.record(*value).unwrap();
            }
            histogram
        };
        let latencies = latency(&histogram(&[100, 100, 1_000]));
        for (lags, expected) in [
            (&[10, 10, 400][..], false),
            (&[60, 60, 400], true),
            (&[10, 10, 600], true),
            (&[], false),
        ] {
            let lag = percentiles(&histogram(lags));
            assert_eq!(is_lagging(lag.as_ref(), latencies.as_ref()), expected, "{lags:?}");
        }
    }
}
