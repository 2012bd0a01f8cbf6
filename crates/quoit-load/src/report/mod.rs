//! What a run found, as one JSON object or a table.

mod rate;
mod streams;
mod table;

pub(crate) use rate::{Interval, Rate};
pub(crate) use streams::{HISTOGRAM_UNIT, SlipCounts, StreamReport, is_slipping};
pub(super) use table::{Rows, microseconds};

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize};

use super::merge::Merged;
use super::plan::Plan;
use super::udp::DatagramReport;

/// The findings of one run, or of several that were merged: what all runs have, and beside it what is of its kind. The
/// field names are those of the JSON object; units are in the names. The fields are described in `docs/load.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The version of the program that made the load.
    pub(crate) version: String,
    /// `echo`, `http`, `rpc` or `udp`.
    pub(crate) protocol: String,
    /// The server's address.
    pub(crate) target: String,
    /// Requests or datagrams per second that fell due by the timetable; `None`: there was none (a closed loop, or as
    /// fast as it went), or one per phase.
    pub(crate) offered_per_second: Option<f64>,
    /// The length of the measured window; of datagrams, from the run's beginning to the last one sent.
    pub(crate) elapsed_seconds: f64,
    /// How late requests were written by the generator's own fault, slips included, or batches of datagrams were: with
    /// a timetable only.
    pub(crate) lag: Option<Percentiles>,
    /// Whether the lag of requests that overlapped no slip is more than half of `latency_at_least`, at the median or the
    /// 99th percentile; of datagrams, whether less than 99 % of the offered rate was sent, in any phase.
    pub(crate) lagging: bool,
    /// The share of the time that a generator thread spent on a processor, on average, from 0 to 1.
    /// Near 1 the generator, not the server, may be what limits the rate.
    pub(crate) generator_cpu_utilization: f64,
    /// How it ended: `invalid` if there was any error, or nothing was measured.
    #[serde(flatten)]
    pub(crate) ended: Ended,
    #[serde(flatten)]
    pub(crate) details: Details,
    /// What was merged, if this is the report of several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) merged: Option<Merged>,
}

/// What a run found that is of its kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Details {
    Streams(Box<StreamReport>),
    Datagrams(Box<DatagramReport>),
}

/// Only runs of connections are read again, to be merged.
impl<'de> Deserialize<'de> for Details {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        StreamReport::deserialize(deserializer).map(|streams| Details::Streams(Box::new(streams)))
    }
}

/// Latencies of the measured window in nanoseconds, to three significant digits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) count: u64,
    pub(crate) mean_ns: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) max_ns: u64,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Whether the run was ended before its time.
    pub(crate) interrupted: bool,
    /// Why the figures must not be used, if so.
    pub(crate) invalid: Option<String>,
}

impl Report {
    /// That of a run that took `times.0` nanoseconds and of the processor `times.1`, on all its threads. Nothing is said to
    /// be lagging.
    pub(crate) fn new(
        plan: &Plan,
        times: (f64, u64),
        lag: &Histogram<u64>,
        (ending, invalid): (Ending, Option<String>),
        details: Details,
    ) -> Self {
        let (elapsed_ns, cpu_ns) = times;
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: plan.workload.name().to_owned(),
            target: plan.target.to_string(),
            offered_per_second: plan.offered().map(|offered| offered.rate),
            elapsed_seconds: elapsed_ns / 1e9,
            lag: percentiles(lag),
            lagging: false,
            generator_cpu_utilization: by(cpu_ns as f64, elapsed_ns * plan.threads as f64),
            ended: Ended {
                interrupted: ending == Ending::Interrupted,
                invalid,
            },
            details,
            merged: None,
        }
    }
}

/// `value` by `unit`, or nothing of what there was none of.
pub(super) fn by(value: f64, unit: f64) -> f64 {
    if unit > 0.0 { value / unit } else { 0.0 }
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
