//! The report for people.

use comfy_table::{CellAlignment, Table, presets};

use super::{Details, Ended, Interval, Latency, Percentiles, Report};

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
    pub(super) fn text(&self) -> String {
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
    pub(crate) fn generator_cpu(&mut self, ns: f64, unit: &str, head: &Report) {
        let share = head.generator_cpu_utilization * 100.0;
        self.row(
            "generator CPU",
            format!("{ns:.0} ns/{unit}, {share:.0} % of its thread(s)"),
        );
    }
}

impl Report {
    /// A table of two columns.
    pub(crate) fn to_table(&self) -> String {
        let mut rows = Rows(Table::new());
        rows.0.load_style(presets::NOTHING);
        match &self.details {
            Details::Streams(streams) => streams.rows(self, &mut rows),
            Details::Datagrams(datagrams) => datagrams.rows(self, &mut rows),
        }
        if let Some(merged) = &self.merged {
            merged.rows(&mut rows);
        }
        let Ended { interrupted, invalid } = &self.ended;
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

pub(crate) fn microseconds(nanoseconds: f64) -> String {
    format!("{:.1} us", nanoseconds / 1e3)
}
