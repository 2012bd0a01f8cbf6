//! What a run found, as one JSON object or a table.

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::plan::{Plan, Workload};
use super::rpc::RpcReport;
use super::tally::{Errors, Tally};

/// The findings of one run. The field names are those of the JSON object; units are in the names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// `echo`, `http` or `rpc`.
    pub(crate) protocol: String,
    /// The server's address.
    pub(crate) target: String,
    /// Bytes of an echo or rpc message; absent for HTTP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) message_bytes: Option<u64>,
    /// The path that was requested; absent for the others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) path: Option<String>,
    /// Connections kept open, over all threads.
    pub(crate) connections: u64,
    /// Requests kept outstanding on each connection.
    pub(crate) pipeline: u32,
    /// Threads that generated the load.
    pub(crate) threads: u64,
    /// The discarded time before the measured window.
    pub(crate) warmup_seconds: f64,
    /// The length of the measured window.
    pub(crate) elapsed_seconds: f64,
    /// Replies of the measured window whose whole content was right.
    pub(crate) requests: u64,
    /// `requests` by `elapsed_seconds`.
    pub(crate) requests_per_second: f64,
    /// Bytes received in the measured window.
    pub(crate) received_bytes: u64,
    /// `received_bytes` by `elapsed_seconds`, in millions a second.
    pub(crate) received_megabytes_per_second: f64,
    /// From the write of a request to the read of its whole reply; absent if there was no reply.
    pub(crate) latency: Option<Latency>,
    /// What is of rpc alone. Then `requests` are messages, `pipeline` is streams a connection, and `latency` is
    /// that of messages from the server's send time to the read of the whole message: one way, which means
    /// something only where both use the clock of one machine; absent if messages carry no send time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
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
    /// Whether the run was ended before its time.
    pub(crate) interrupted: bool,
    /// Why the figures must not be used, if so: any error, or nothing measured.
    pub(crate) invalid: Option<String>,
}

/// Latencies of the measured window in nanoseconds, to three significant digits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) mean_ns: f64,
    pub(crate) standard_deviation_ns: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
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

impl Latency {
    /// The figures of a histogram of nanoseconds; `None` if it is empty.
    pub(super) fn of(latencies: &Histogram<u64>) -> Option<Self> {
        (!latencies.is_empty()).then(|| Latency {
            mean_ns: latencies.mean(),
            standard_deviation_ns: latencies.stdev(),
            p50_ns: latencies.value_at_quantile(0.5),
            p90_ns: latencies.value_at_quantile(0.9),
            p99_ns: latencies.value_at_quantile(0.99),
            p99_9_ns: latencies.value_at_quantile(0.999),
            max_ns: latencies.max(),
        })
    }

    fn rows(&self, mut row: impl FnMut(&str, String)) {
        row("latency mean", microseconds(self.mean_ns));
        row("standard deviation", microseconds(self.standard_deviation_ns));
        for (name, value) in [
            ("p50", self.p50_ns),
            ("p90", self.p90_ns),
            ("p99", self.p99_ns),
            ("p99.9", self.p99_9_ns),
            ("max", self.max_ns),
        ] {
            row(name, microseconds(value as f64));
        }
    }
}

impl Report {
    pub(super) fn new(plan: &Plan, tally: &Tally, ending: Ending) -> Self {
        let elapsed_ns = tally.window.map_or(0, |(start, end)| end - start) as f64;
        let requests = tally.requests;
        let by = |value: f64, unit: f64| if unit > 0.0 { value / unit } else { 0.0 };
        let (protocol, message_bytes, path) = match &plan.workload {
            Workload::Echo { size } => ("echo", Some(*size as u64), None),
            Workload::Http { path, .. } => ("http", None, Some(path.clone())),
            Workload::Rpc(streams) => ("rpc", Some(u64::from(streams.size)), None),
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
        Report {
            protocol: protocol.to_owned(),
            target: plan.target.to_string(),
            message_bytes,
            path,
            connections: plan.connections as u64,
            pipeline: plan.pipeline,
            threads: plan.threads as u64,
            warmup_seconds: plan.warmup.as_secs_f64(),
            elapsed_seconds: elapsed_ns / 1e9,
            requests,
            requests_per_second: by(requests as f64, elapsed_ns / 1e9),
            received_bytes: tally.received_bytes,
            received_megabytes_per_second: by(tally.received_bytes as f64 / 1e6, elapsed_ns / 1e9),
            latency: Latency::of(&tally.latencies),
            rpc,
            errors: tally.errors.clone(),
            first_error: tally.first_error.clone(),
            reconnects: tally.reconnects,
            generator_cpu_ns_per_request: by(tally.cpu_ns as f64, requests as f64),
            generator_cpu_utilization: by(tally.cpu_ns as f64, elapsed_ns * plan.threads as f64),
            interrupted: ending == Ending::Interrupted,
            invalid,
        }
    }

    /// The report for people.
    pub(super) fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        let what = match (&self.path, self.message_bytes) {
            (Some(path), _) => format!("{} {path} on {}", self.protocol, self.target),
            (None, Some(bytes)) => format!("{} of {bytes} bytes on {}", self.protocol, self.target),
            (None, None) => format!("{} on {}", self.protocol, self.target),
        };
        row("load", what);
        if let Some(rpc) = &self.rpc {
            row("streams", rpc.what());
        }
        row(
            "connections",
            format!(
                "{} x {} outstanding, {} thread(s)",
                self.connections, self.pipeline, self.threads
            ),
        );
        row(
            "measured",
            format!(
                "{:.3} s after {} s of warm-up",
                self.elapsed_seconds, self.warmup_seconds
            ),
        );
        row("requests", format!("{}", self.requests));
        row("rate", format!("{:.0} requests/s", self.requests_per_second));
        row(
            "received",
            format!("{:.2} MB/s", self.received_megabytes_per_second),
        );
        if let Some(latency) = &self.latency {
            if self.rpc.is_some() {
                row(
                    "message latency",
                    "one way, from the server's send time".to_owned(),
                );
            }
            latency.rows(&mut row);
        }
        if let Some(rpc) = &self.rpc {
            row("streams ended", rpc.streams_ended.to_string());
            if let Some(latency) = &rpc.stream_latency {
                row("stream latency", "from its opening to its end".to_owned());
                latency.rows(&mut row);
            }
        }
        row(
            "generator CPU",
            format!(
                "{:.0} ns/request, {:.0} % of its thread(s)",
                self.generator_cpu_ns_per_request,
                self.generator_cpu_utilization * 100.0
            ),
        );
        if self.reconnects > 0 {
            row("reconnects", self.reconnects.to_string());
        }
        if self.errors.is_empty() {
            row("errors", "none".to_owned());
        }
        for (name, count) in self.errors.by_name() {
            if count > 0 {
                row(&format!("errors: {name}"), count.to_string());
            }
        }
        if let Some(first) = &self.first_error {
            row("first error", first.clone());
        }
        if self.interrupted {
            row("interrupted", "the run was ended before its time".to_owned());
        }
        if let Some(reason) = &self.invalid {
            row("INVALID", reason.clone());
        }
        if let Some(names) = table.column_mut(0) {
            names.set_cell_alignment(CellAlignment::Left);
        }
        table.trim_fmt()
    }
}

fn microseconds(nanoseconds: f64) -> String {
    format!("{:.1} us", nanoseconds / 1e3)
}
