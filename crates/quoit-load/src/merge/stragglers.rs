//! What a merged report says of each of the runs: above all, which of them were not as the others.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::Windows;
use super::read::Part;
use crate::encoded::decode;
use crate::error::LoadError;
use crate::report::{Rows, microseconds, percentiles};

/// A run is slow whose 99th percentile is more than so many times that of the others together.
const SLOW: f64 = 2.0;

/// Latencies that a 99th percentile takes: ten lie beyond it.
const ENOUGH: u64 = 1_000;

/// The share of the longest window by which one may begin late or end early, and of the requests that fell due that may
/// not have been sent.
const SHARE: f64 = 0.01;

/// What a merged report says of the runs that it was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Merged {
    /// The time that all windows have in common; 0 if they do not overlap.
    common_seconds: f64,
    /// What else makes the figures doubtful.
    warnings: Vec<String>,
    /// The runs, as they were given.
    reports: Vec<MergedRun>,
}

/// One of the runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct MergedRun {
    /// Its label, or else its file.
    name: String,
    /// Its file.
    file: String,
    window_started_at: f64,
    elapsed_seconds: f64,
    /// How much later its window began than it was to begin, or, where nothing was given, than the first.
    started_late_seconds: f64,
    /// How much earlier its window ended than the last.
    ended_early_seconds: f64,
    offered_per_second: Option<f64>,
    requests: u64,
    requests_per_second: f64,
    unsent_requests: Option<u64>,
    errors: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    /// Of the latencies of all others together.
    others_p99_ns: Option<u64>,
    generator_cpu_utilization: f64,
    invalid: Option<String>,
    /// In what it was not as the others.
    straggler: Vec<Reason>,
}

/// In what a run was not as the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// Its 99th percentile is more than twice that of the others together.
    Slow,
    /// Its window began late by more than a hundredth of the longest.
    StartedLate,
    /// Its window ended early by more than that, or it was interrupted.
    EndedEarly,
    /// More than a hundredth of the requests that fell due were not sent.
    FellBehind,
    /// Its latencies are largely its generator's own lag.
    Lagging,
}

impl Merged {
    /// Of the `parts`, whose latencies together are `all`.
    ///
    /// # Errors
    /// A histogram cannot be read.
    pub(super) fn of(
        parts: &[Part],
        windows: Option<Windows>,
        all: &Histogram<u64>,
    ) -> Result<Self, LoadError> {
        let reports = parts
            .iter()
            .map(|part| MergedRun::new(part, parts, windows, all))
            .collect::<Result<Vec<_>, String>>()
            .map_err(LoadError::new)?;
        Ok(Merged {
            common_seconds: windows.map_or(0.0, |windows| windows.common.max(0.0)),
            warnings: same_timetables(parts).into_iter().collect(),
            reports,
        })
    }

    /// Whether the windows began together.
    pub(super) fn began_together(&self) -> bool {
        self.reports
            .iter()
            .all(|run| run.window_started_at > 0.0 && !run.straggler.contains(&Reason::StartedLate))
    }

    /// Adds its rows.
    pub(crate) fn rows(&self, rows: &mut Rows) {
        rows.row(
            "merged",
            format!(
                "{} reports, all measuring for {:.3} s",
                self.reports.len(),
                self.common_seconds
            ),
        );
        for run in self.reports.iter().filter(|run| !run.straggler.is_empty()) {
            let said: Vec<String> = run.straggler.iter().map(|reason| run.text(*reason)).collect();
            rows.row("straggler", format!("{}: {}", run.name, said.join("; ")));
        }
        for warning in &self.warnings {
            rows.row("warning", warning.clone());
        }
    }
}

impl MergedRun {
    fn new(
        part: &Part,
        parts: &[Part],
        windows: Option<Windows>,
        all: &Histogram<u64>,
    ) -> Result<Self, String> {
        let streams = &part.streams;
        let given = parts
            .iter()
            .filter_map(|part| part.streams.start_at)
            .reduce(f64::min);
        let (started_late_seconds, ended_early_seconds) = match (part.window(), windows) {
            (Some((start, end)), Some(windows)) => (
                (start - given.unwrap_or(windows.start)).max(0.0),
                windows.end - end,
            ),
            _ => (0.0, 0.0),
        };
        let own = streams.histogram.as_deref().map(decode).transpose()?;
        let others = match &own {
            None => all.clone(),
            Some(own) => {
                let mut others = all.clone();
                others.subtract(own).map_err(|error| error.to_string())?;
                others
            }
        };
        let own_latency = own.as_ref().and_then(percentiles);
        let others_latency = percentiles(&others);
        let mut run = MergedRun {
            name: part.name.clone(),
            file: part.place.clone(),
            window_started_at: streams.window_started_at,
            elapsed_seconds: part.head.elapsed_seconds,
            started_late_seconds,
            ended_early_seconds,
            offered_per_second: part.head.offered_per_second,
            requests: streams.requests,
            requests_per_second: streams.requests_per_second,
            unsent_requests: streams.unsent_requests,
            errors: streams.errors.total(),
            p50_ns: own_latency.as_ref().map(|latency| latency.p50_ns),
            p99_ns: own_latency.as_ref().map(|latency| latency.p99_ns),
            others_p99_ns: others_latency.as_ref().map(|latency| latency.p99_ns),
            generator_cpu_utilization: part.head.generator_cpu_utilization,
            invalid: part.head.ended.invalid.clone(),
            straggler: Vec::new(),
        };
        let slow = own_latency.zip(others_latency).is_some_and(|(own, others)| {
            own.count.min(others.count) >= ENOUGH && own.p99_ns as f64 > SLOW * others.p99_ns as f64
        });
        let longest = parts
            .iter()
            .map(|part| part.head.elapsed_seconds)
            .fold(0.0, f64::max);
        let unsent = streams.unsent_requests.unwrap_or(0);
        let due = streams.requests + streams.unanswered_requests.unwrap_or(0) + unsent;
        run.straggler = [
            (slow, Reason::Slow),
            (started_late_seconds > SHARE * longest, Reason::StartedLate),
            (
                ended_early_seconds > SHARE * longest || part.head.ended.interrupted,
                Reason::EndedEarly,
            ),
            (unsent as f64 > SHARE * due as f64, Reason::FellBehind),
            (part.head.lagging, Reason::Lagging),
        ]
        .into_iter()
        .filter_map(|(is_so, reason)| is_so.then_some(reason))
        .collect();
        Ok(run)
    }

    fn text(&self, reason: Reason) -> String {
        let time = |value: Option<u64>| microseconds(value.unwrap_or(0) as f64);
        match reason {
            Reason::Slow => format!(
                "slow, p99 {} (others {})",
                time(self.p99_ns),
                time(self.others_p99_ns)
            ),
            Reason::StartedLate => format!("started {:.3} s late", self.started_late_seconds),
            Reason::EndedEarly => format!("ended {:.3} s early", self.ended_early_seconds),
            Reason::FellBehind => format!(
                "fell behind, {} not sent in time",
                self.unsent_requests.unwrap_or(0)
            ),
            Reason::Lagging => "lagging, latencies are largely its own".to_owned(),
        }
    }
}

/// What is to be said of runs whose random timetables were the same.
fn same_timetables(parts: &[Part]) -> Option<String> {
    let random = |part: &&Part| part.streams.schedule.as_deref() == Some("poisson");
    let mut seeds: Vec<u64> = parts
        .iter()
        .filter(random)
        .filter_map(|part| part.streams.seed)
        .collect();
    seeds.sort_unstable();
    let most = seeds.chunk_by(u64::eq).max_by_key(|same| same.len())?;
    (most.len() > 1).then(|| {
        format!(
            "{} reports have the seed {}, so their requests fell due at the same times; give each run a --seed of its own",
            most.len(),
            most[0]
        )
    })
}
