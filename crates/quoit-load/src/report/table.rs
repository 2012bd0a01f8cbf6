//! The report for people.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::{Interval, Latency, Report};

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
    pub(crate) fn rows(&self, row: &mut impl FnMut(&str, String)) {
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

/// Names and what is said of each, below one another.
pub(crate) fn two_columns(rows: Vec<(String, String)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in rows {
        table.add_row([name, value]);
    }
    if let Some(names) = table.column_mut(0) {
        names.set_cell_alignment(CellAlignment::Left);
    }
    table.trim_fmt()
}

impl Report {
    /// A table of two columns.
    pub(crate) fn to_table(&self) -> String {
        two_columns(self.rows())
    }

    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row("load", self.what());
        if let Some(rpc) = &self.rpc {
            row("streams", rpc.what());
        }
        row("connections", self.connections());
        row(
            "measured",
            format!(
                "{:.3} s after {} s of warm-up",
                self.elapsed_seconds, self.warmup_seconds
            ),
        );
        row("requests", format!("{}", self.requests));
        row("rate", self.rate());
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
        if self.slips.count > 0 {
            row("generator slips", self.slips());
        }
        if let Some(lag) = &self.lag {
            let flag = if self.lagging {
                "; LAGGING: latencies are largely its own"
            } else {
                ""
            };
            row(
                "generator lag",
                format!(
                    "p50 {}, p99 {}, max {}{flag}",
                    microseconds(lag.p50_ns as f64),
                    microseconds(lag.p99_ns as f64),
                    microseconds(lag.max_ns as f64)
                ),
            );
        }
        if let Some(connects) = self.connects.as_ref().filter(|_| self.churn) {
            row(
                "connecting",
                format!(
                    "{} times, p50 {}, p99 {}, max {}",
                    connects.count,
                    microseconds(connects.p50_ns as f64),
                    microseconds(connects.p99_ns as f64),
                    microseconds(connects.max_ns as f64)
                ),
            );
        }
        if let Some(replies) = self.slow_replies {
            row(
                "slow readers",
                format!("{} with {replies} replies", self.slow_connections),
            );
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
        rows
    }

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

pub(crate) fn microseconds(nanoseconds: f64) -> String {
    format!("{:.1} us", nanoseconds / 1e3)
}
