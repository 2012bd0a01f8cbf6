//! What a run found, as one JSON object or a table.

mod rate;
mod table;

pub(crate) use rate::{Interval, Rate};
pub(super) use table::{Rows, Tabular};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::error::LoadError;
use super::histograms::Latencies;
use super::plan::{Arrivals, Plan, Workload};
use super::rpc::RpcReport;
use super::sizes::Sizes;
use super::tally::{Errors, Tally, add_histogram};

/// The findings of one run. The field names are those of the JSON object; units are in the names. The fields are
/// described in `docs/load.md`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    /// `echo`, `http` or `rpc`.
    pub(crate) protocol: String,
    /// The server's address.
    pub(crate) target: String,
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
    /// Requests per second that fell due by the timetable; `None`: a closed loop.
    pub(crate) offered_per_second: Option<f64>,
    /// `fixed` or `poisson`, in an open loop.
    pub(crate) schedule: Option<String>,
    /// Requests that fell due at once, in an open loop.
    pub(crate) batch: Option<u32>,
    /// What the random draws depended on.
    pub(crate) seed: u64,
    /// Whether each request had a connection of its own.
    pub(crate) churn: bool,
    /// Connections that read slowly, among `connections`.
    pub(crate) slow_connections: u64,
    /// The time over which connections were opened.
    pub(crate) ramp_up_seconds: f64,
    /// The discarded time before the measured window.
    pub(crate) warmup_seconds: f64,
    /// When the measured window began, in seconds since 1970 by the wall clock.
    pub(crate) window_started_at: f64,
    /// The length of the measured window.
    pub(crate) elapsed_seconds: f64,
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
    /// How late requests were written by the generator's own fault, slips included: an open loop only.
    pub(crate) lag: Option<Percentiles>,
    /// Whether the lag of requests that overlapped no slip is more than half of `latency_at_least`, at the median or the
    /// 99th percentile.
    pub(crate) lagging: bool,
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
    /// Processor time of the generator's threads, user and system, by request. On loopback it includes
    /// the delivery of what it sends.
    pub(crate) generator_cpu_ns_per_request: f64,
    /// The share of the window that a generator thread spent on a processor, on average, from 0 to 1.
    /// Near 1 the generator, not the server, may be what limits the rate.
    pub(crate) generator_cpu_utilization: f64,
    /// `invalid` if there was any error, or nothing was measured.
    #[serde(flatten)]
    pub(crate) ended: Ended,
    /// The window's complete intervals.
    pub(crate) intervals: Vec<Interval>,
    /// The latencies behind `latency` and `latency_at_least`: HdrHistogram V2, compressed, base64, nanoseconds.
    pub(crate) histogram: Option<String>,
    pub(crate) histogram_at_least: Option<String>,
}

/// Latencies of the measured window in nanoseconds, to three significant digits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) mean_ns: f64,
    pub(crate) standard_deviation_ns: f64,
    /// The share of them that lie within one standard deviation of the mean, 0 to 1.
    pub(crate) within_standard_deviation: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) max_ns: u64,
}

/// Times in nanoseconds, to three significant digits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) count: u64,
    pub(crate) mean_ns: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) max_ns: u64,
}

/// Gaps of the measured window in which a thread of the generator did not run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct SlipCounts {
    /// The shortest gap that counts.
    pub(crate) limit_ns: u64,
    pub(crate) count: u64,
    /// Together, over all threads.
    pub(crate) total_ns: u64,
    pub(crate) longest_ns: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Complete,
    Interrupted,
    /// No reply came on any connection for longer than the timeout.
    Stalled,
}

/// How a run ended, as a report says it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Ended {
    /// Whether the run was ended before its time.
    pub(crate) interrupted: bool,
    /// Why the figures must not be used, if so.
    pub(crate) invalid: Option<String>,
}

impl Ended {
    pub(super) fn new(ending: Ending, invalid: Option<String>) -> Self {
        Ended {
            interrupted: ending == Ending::Interrupted,
            invalid,
        }
    }
}

impl Report {
    /// # Errors
    /// The latencies cannot be encoded.
    pub(super) fn new(
        plan: &Plan,
        tally: &Tally,
        latencies: &Latencies,
        intervals: Vec<Interval>,
        ending: Ending,
    ) -> Result<Self, LoadError> {
        let elapsed_ns = tally.window.map_or(0, |(start, end)| end - start) as f64;
        let requests = tally.requests;
        let (protocol, sizes, path, body) = match &plan.workload {
            Workload::Echo { sizes } => ("echo", Some(sizes.clone()), None, None),
            Workload::Http { path, body, .. } => ("http", None, Some(path.clone()), *body),
            Workload::Rpc(streams) => ("rpc", Some(streams.sizes.clone()), None, None),
        };
        let rpc = match &plan.workload {
            Workload::Rpc(streams) => Some(RpcReport::new(streams, &tally.stream_latencies)),
            Workload::Echo { .. } | Workload::Http { .. } => None,
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
        let encode = |histogram: &Histogram<u64>| {
            (!histogram.is_empty())
                .then(|| latencies.encode(histogram))
                .transpose()
        };
        Ok(Report {
            protocol: protocol.to_owned(),
            target: plan.target.to_string(),
            message_bytes: sizes.as_ref().map(Sizes::mean),
            message_sizes: sizes.as_ref().map(ToString::to_string),
            path,
            request_body_bytes: body,
            connections: plan.connections as u64,
            pipeline: plan.pipeline,
            threads: plan.threads as u64,
            offered_per_second: plan.offered.map(|offered| offered.rate),
            schedule: plan.offered.map(|offered| {
                let name = match offered.arrivals {
                    Arrivals::Fixed => "fixed",
                    Arrivals::Poisson => "poisson",
                };
                name.to_owned()
            }),
            batch: plan.offered.map(|offered| offered.batch),
            seed: plan.seed,
            churn: plan.churn,
            slow_connections: plan.slow.map_or(0, |slow| slow.connections) as u64,
            ramp_up_seconds: plan.ramp_up.as_secs_f64(),
            warmup_seconds: plan.warmup.as_secs_f64(),
            window_started_at: latencies.started_at_seconds(),
            elapsed_seconds: elapsed_ns / 1e9,
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
                limit_ns: super::control::nanoseconds(plan.slip),
                count: tally.slips.count,
                total_ns: tally.slips.total,
                longest_ns: tally.slips.longest,
            },
            lag: percentiles(&lag),
            lagging,
            unsent_requests: plan.offered.map(|_| tally.unsent),
            unanswered_requests: plan.offered.map(|_| tally.unanswered),
            connects: percentiles(&tally.connects),
            slow_replies: plan.slow.map(|_| tally.slow_replies),
            errors: tally.errors.clone(),
            first_error: tally.first_error.clone(),
            reconnects: tally.reconnects,
            generator_cpu_ns_per_request: by(tally.cpu_ns as f64, requests as f64),
            generator_cpu_utilization: by(tally.cpu_ns as f64, elapsed_ns * plan.threads as f64),
            ended: Ended::new(ending, invalid),
            intervals,
            histogram: encode(&latencies.all)?,
            histogram_at_least: encode(&latencies.at_least)?,
        })
    }
}

/// `value` by `unit`, or nothing of what there was none of.
pub(super) fn by(value: f64, unit: f64) -> f64 {
    if unit > 0.0 { value / unit } else { 0.0 }
}

/// Whether what the generator may have slept through itself is more than a tenth of the latencies.
fn is_slipping(latency: Option<&Latency>, at_least: Option<&Latency>) -> bool {
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

pub(super) fn latency(histogram: &Histogram<u64>) -> Option<Latency> {
    if histogram.is_empty() {
        return None;
    }
    let (mean, deviation) = (histogram.mean(), histogram.stdev());
    // Both ends are values that lie in the histogram's range, as the mean does.
    let within = histogram.count_between(
        (mean - deviation).max(0.0).ceil() as u64,
        ((mean + deviation) as u64).min(histogram.high()),
    );
    Some(Latency {
        mean_ns: mean,
        standard_deviation_ns: deviation,
        within_standard_deviation: within as f64 / histogram.len() as f64,
        p50_ns: histogram.value_at_quantile(0.5),
        p90_ns: histogram.value_at_quantile(0.9),
        p99_ns: histogram.value_at_quantile(0.99),
        p99_9_ns: histogram.value_at_quantile(0.999),
        max_ns: histogram.max(),
    })
}

pub(super) fn percentiles(histogram: &Histogram<u64>) -> Option<Percentiles> {
    (!histogram.is_empty()).then(|| Percentiles {
        count: histogram.len(),
        mean_ns: histogram.mean(),
        p50_ns: histogram.value_at_quantile(0.5),
        p99_ns: histogram.value_at_quantile(0.99),
        max_ns: histogram.max(),
    })
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn the_share_within_a_standard_deviation_is_counted() {
        let mut histogram = Histogram::new_with_bounds(1, 1_000_000_000, 3).unwrap();
        assert_eq!(latency(&histogram), None);
        histogram.record_n(100, 90).unwrap();
        histogram.record_n(1_000, 10).unwrap();
        // Mean 190, standard deviation 270.
        let found = latency(&histogram).unwrap();
        assert_eq!(found.within_standard_deviation, 0.9);
        assert_eq!((found.p50_ns, found.p99_ns, found.max_ns), (100, 1_000, 1_000));
        let mut same = Histogram::new_with_bounds(1, 1_000_000_000, 3).unwrap();
        same.record_n(777, 5).unwrap();
        assert_eq!(latency(&same).unwrap().within_standard_deviation, 1.0);
    }
}
