//! The report for people.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{Ended, Interval, Latency, Percentiles, Report};

impl Interval {
    /// One line, to be shown while the run goes on.
    pub(crate) fn to_line(self) -> String {
        let time = |value: Option<u64>| value.map_or("-".to_owned(), |value| microseconds(value as f64));
        format!(
            "{:.1} s: {:.0} requests/s, p50 {}, p99 {}, {} errors",
            self.at_seconds,
            self.requests_per_second,
            time(self.p50_ns),
            time(self.p99_ns),
            self.errors
        )
    }
}

impl Latency {
    pub(crate) fn rows(&self, rows: &mut Rows) {
        let mut row = |name: &str, value: String| rows.row(name, value);
        row("latency mean", microseconds(self.mean_ns));
        row(
            "standard deviation",
            format!(
                "{}, {:.1} % within",
                microseconds(self.standard_deviation_ns),
                self.within_standard_deviation * 100.0
            ),
        );
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

impl Percentiles {
    fn text(&self) -> String {
        let [p50, p99, max] = [self.p50_ns, self.p99_ns, self.max_ns].map(|value| microseconds(value as f64));
        format!("p50 {p50}, p99 {p99}, max {max}")
    }
}

/// What a report says to people: names and what is said of each, below one another.
#[derive(Debug)]
pub(crate) struct Rows(Table);

impl Rows {
    /// Adds one.
    pub(crate) fn row(&mut self, name: &str, value: impl Into<String>) {
        self.0.add_row([name.to_owned(), value.into()]);
    }

    /// Adds how late the generator was.
    pub(crate) fn lag(&mut self, lag: &Percentiles, flag: &str) {
        self.row("generator lag", lag.text() + flag);
    }

    /// Adds what processor time the generator took for a `unit`, and the share of it that its threads had.
    pub(crate) fn generator_cpu(&mut self, ns: f64, unit: &str, utilization: f64) {
        let share = utilization * 100.0;
        self.row(
            "generator CPU",
            format!("{ns:.0} ns/{unit}, {share:.0} % of its thread(s)"),
        );
    }
}

/// The findings of a run, as they are printed: for machines as JSON, for people as a table.
pub(crate) trait Tabular: Serialize {
    /// Adds all rows but those on how the run ended.
    fn rows(&self, rows: &mut Rows);

    /// How the run ended.
    fn ended(&self) -> &Ended;

    /// A table of two columns.
    fn to_table(&self) -> String {
        let mut rows = Rows(Table::new());
        rows.0.load_style(presets::NOTHING);
        self.rows(&mut rows);
        let Ended { interrupted, invalid } = self.ended();
        if *interrupted {
            rows.row("interrupted", "the run was ended before its time");
        }
        if let Some(reason) = invalid {
            rows.row("INVALID", reason);
        }
        if let Some(names) = rows.0.column_mut(0) {
            names.set_cell_alignment(CellAlignment::Left);
        }
        rows.0.trim_fmt()
    }
}

impl Tabular for Report {
    fn ended(&self) -> &Ended {
        &self.ended
    }

    fn rows(&self, rows: &mut Rows) {
        rows.row("load", self.what());
        if let Some(rpc) = &self.rpc {
            rows.row("streams", rpc.what());
        }
        rows.row("connections", self.connections());
        rows.row(
            "measured",
            format!(
                "{:.3} s after {} s of warm-up",
                self.elapsed_seconds, self.warmup_seconds
            ),
        );
        rows.row("requests", format!("{}", self.requests));
        rows.row("rate", self.rate());
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
        if let Some(lag) = &self.lag {
            let flag = if self.lagging {
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
        rows.generator_cpu(
            self.generator_cpu_ns_per_request,
            "request",
            self.generator_cpu_utilization,
        );
        if self.reconnects > 0 {
            rows.row("reconnects", self.reconnects.to_string());
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
}

impl Report {
    fn what(&self) -> String {
        match (&self.path, &self.message_sizes) {
            (Some(path), _) => {
                let body = self
                    .request_body_bytes
                    .map_or_else(String::new, |bytes| format!(" with {bytes} bytes"));
                format!("{} {path}{body} on {}", self.protocol, self.target)
            }
            (None, Some(sizes)) => format!("{} of {sizes} bytes on {}", self.protocol, self.target),
            (None, None) => format!("{} on {}", self.protocol, self.target),
        }
    }

    fn connections(&self) -> String {
        let most = if self.offered_per_second.is_some() {
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

    fn rate(&self) -> String {
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
        if let (Some(offered), Some(schedule)) = (self.offered_per_second, &self.schedule) {
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

fn microseconds(nanoseconds: f64) -> String {
    format!("{:.1} us", nanoseconds / 1e3)
}
