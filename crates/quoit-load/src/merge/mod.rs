//! `quoit load merge`: the reports of several runs that were one load, from many machines, as the report of one run.
//!
//! What is counted is added. Percentiles come from the histograms of all, added: they are those of one histogram with all
//! values ([`crate::encoded`]). A flag is set if it is for one of them. What cannot be told of all together is
//! null.

mod read;
mod stragglers;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use self::read::Part;
pub(crate) use self::stragglers::Merged;
use super::coordinator::Findings;
use super::encoded::{self, encode};
use super::error::LoadError;
use super::histograms::Latencies;
use super::report::{
    Details, Ended, Interval, Rate, Report, SlipCounts, StreamReport, by, is_slipping, latency, percentiles,
};
use super::rpc::RpcReport;
use super::tally::Errors;

/// Reads the reports in `files` and joins them.
///
/// # Errors
/// A file cannot be read, has no report or a damaged one, or two reports are the same or not of one load.
pub(crate) fn merge(files: &[PathBuf]) -> Result<Findings, LoadError> {
    let parts = read::all(files).map_err(LoadError::new)?;
    join(&parts)
}

/// The time from the first window's beginning to the last one's end, and what all windows have in common.
#[derive(Debug, Clone, Copy)]
struct Windows {
    start: f64,
    end: f64,
    /// Below zero: they have nothing in common, and so much lies between two of them.
    common: f64,
}

impl Windows {
    /// Those of the parts that had one.
    fn of(parts: &[Part]) -> Option<Self> {
        let all = || parts.iter().filter_map(Part::window);
        let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
        let starts = || all().map(|(start, _)| start);
        let ends = || all().map(|(_, end)| end);
        Some(Windows {
            start: least(&mut starts())?,
            end: most(&mut ends())?,
            common: least(&mut ends())? - most(&mut starts())?,
        })
    }
}

fn join(parts: &[Part]) -> Result<Findings, LoadError> {
    let Some(first) = parts.first() else {
        return Err(LoadError::new("there is no report to merge".to_owned()));
    };
    let merged_histogram = |of: fn(&StreamReport) -> Option<&String>| {
        encoded::merge(
            parts
                .iter()
                .filter_map(|part| of(&part.streams))
                .map(String::as_str),
        )
        .map_err(|what| LoadError::new(format!("cannot merge the latencies: {what}")))
    };
    let all = merged_histogram(|streams| streams.histogram.as_ref())?;
    let at_least = merged_histogram(|streams| streams.histogram_at_least.as_ref())?;
    let lag = merged_histogram(|streams| streams.lag_histogram.as_ref())?;
    let connects = merged_histogram(|streams| streams.connects_histogram.as_ref())?;
    let rpc = match &first.streams.rpc {
        None => None,
        Some(rpc) => {
            let streams = merged_histogram(|streams| streams.rpc.as_ref()?.stream_histogram.as_ref())?;
            Some(RpcReport {
                streams_ended: sum(parts, |part| part.rpc.as_ref().map_or(0, |rpc| rpc.streams_ended)),
                stream_latency: latency(&streams),
                stream_histogram: encode(&streams)?,
                ..rpc.clone()
            })
        }
    };
    let windows = Windows::of(parts);
    let elapsed = windows.map_or(0.0, |windows| windows.end - windows.start);
    let merged = Merged::of(parts, windows, &all)?;
    let requests = sum(parts, |part| part.requests);
    let received_bytes = sum(parts, |part| part.received_bytes);
    let latency_of_all = latency(&all);
    let latency_at_least = latency(&at_least);
    let intervals = if merged.began_together() {
        add_intervals(parts)
    } else {
        Vec::new()
    };
    let (slipped, cpu) = parts.iter().fold((0.0, 0.0), |(slipped, cpu), part| {
        let requests = part.streams.requests as f64;
        (
            slipped + part.streams.slipped_share * requests,
            cpu + part.streams.generator_cpu_ns_per_request * requests,
        )
    });
    let streams = StreamReport {
        label: None,
        connections: sum(parts, |part| part.connections),
        threads: sum(parts, |part| part.threads),
        seed: same(parts, |part| part.seed),
        slow_connections: sum(parts, |part| part.slow_connections),
        ramp_up_seconds: most(parts, |part| Some(part.streams.ramp_up_seconds)).unwrap_or(0.0),
        warmup_seconds: most(parts, |part| Some(part.streams.warmup_seconds)).unwrap_or(0.0),
        start_at: same(parts, |part| part.start_at),
        started_late_seconds: most(parts, |part| part.streams.started_late_seconds),
        window_started_at: windows.map_or(0.0, |windows| windows.start),
        sent_requests: sum(parts, |part| part.sent_requests),
        received_replies: sum(parts, |part| part.received_replies),
        requests,
        requests_per_second: by(requests as f64, elapsed),
        rate: Rate::of(&intervals),
        received_bytes,
        received_megabytes_per_second: by(received_bytes as f64 / 1e6, elapsed),
        slipping: is_slipping(latency_of_all.as_ref(), latency_at_least.as_ref()),
        latency: latency_of_all,
        latency_at_least,
        slipped_share: by(slipped, requests as f64),
        slips: slips(parts),
        unsent_requests: sum_if_any(parts, |part| part.unsent_requests),
        unanswered_requests: sum_if_any(parts, |part| part.unanswered_requests),
        connects: percentiles(&connects),
        slow_replies: sum_if_any(parts, |part| part.slow_replies),
        rpc,
        errors: parts.iter().fold(Errors::default(), |mut errors, part| {
            errors.add(&part.streams.errors);
            errors
        }),
        first_error: parts
            .iter()
            .find_map(|part| part.said(part.streams.first_error.as_ref())),
        reconnects: sum(parts, |part| part.reconnects),
        repeated_requests: sum(parts, |part| part.repeated_requests),
        generator_cpu_ns_per_request: by(cpu, requests as f64),
        intervals,
        histogram: encode(&all)?,
        histogram_at_least: encode(&at_least)?,
        lag_histogram: encode(&lag)?,
        connects_histogram: encode(&connects)?,
        // What was run, which is the same for all.
        ..*first.streams.clone()
    };
    let report = Report {
        version: first.head.version.clone(),
        protocol: first.head.protocol.clone(),
        target: first.head.target.clone(),
        offered_per_second: parts.iter().map(|part| part.head.offered_per_second).sum(),
        elapsed_seconds: elapsed,
        lag: percentiles(&lag),
        lagging: parts.iter().any(|part| part.head.lagging),
        generator_cpu_utilization: most(parts, |part| Some(part.head.generator_cpu_utilization))
            .unwrap_or(0.0),
        ended: Ended {
            interrupted: parts.iter().any(|part| part.head.ended.interrupted),
            invalid: invalid(parts, windows),
        },
        details: Details::Streams(Box::new(streams)),
        merged: Some(merged),
    };
    let started_at = Duration::from_secs_f64(windows.map_or(0.0, |windows| windows.start));
    let length = Duration::from_secs_f64(elapsed);
    Ok(Findings {
        report,
        latencies: Some(Latencies::of_runs((all, at_least), (started_at, length))),
    })
}

/// Why the figures of all together must not be used, if so.
fn invalid(parts: &[Part], windows: Option<Windows>) -> Option<String> {
    let reasons: Vec<String> = parts
        .iter()
        .filter_map(|part| part.said(part.head.ended.invalid.as_ref()))
        .collect();
    match reasons.as_slice() {
        [] => {}
        [one] => return Some(one.clone()),
        [one, others @ ..] => return Some(format!("{one}; and {} more", others.len())),
    }
    let windows = windows.filter(|windows| windows.common <= 0.0)?;
    let by_window = |of: fn((f64, f64)) -> f64| {
        let measured = parts
            .iter()
            .filter_map(move |part| Some((of(part.window()?), part)));
        measured.min_by(|one, other| one.0.total_cmp(&other.0))
    };
    let (_, over) = by_window(|(_, end)| end)?;
    let (_, last) = by_window(|(start, _)| -start)?;
    Some(format!(
        "the windows do not overlap: that of {} was over {:.3} s before that of {} began",
        over.name, -windows.common, last.name
    ))
}

fn sum(parts: &[Part], of: fn(&StreamReport) -> u64) -> u64 {
    parts
        .iter()
        .fold(0, |sum, part| sum.saturating_add(of(&part.streams)))
}

fn sum_if_any(parts: &[Part], of: fn(&StreamReport) -> Option<u64>) -> Option<u64> {
    parts
        .iter()
        .filter_map(|part| of(&part.streams))
        .reduce(u64::saturating_add)
}

fn most(parts: &[Part], of: fn(&Part) -> Option<f64>) -> Option<f64> {
    parts.iter().filter_map(of).reduce(f64::max)
}

/// What all have, if it is the same.
fn same<T: PartialEq>(parts: &[Part], of: fn(&StreamReport) -> Option<T>) -> Option<T> {
    let mut all = parts.iter().map(|part| of(&part.streams));
    let first = all.next()??;
    all.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

fn slips(parts: &[Part]) -> SlipCounts {
    parts.iter().fold(SlipCounts::default(), |all, part| {
        let slips = &part.streams.slips;
        SlipCounts {
            limit_ns: all.limit_ns.max(slips.limit_ns),
            count: all.count.saturating_add(slips.count),
            total_ns: all.total_ns.saturating_add(slips.total_ns),
            longest_ns: all.longest_ns.max(slips.longest_ns),
        }
    })
}

/// The intervals that all have, with their counts added. What they have of percentiles cannot be.
fn add_intervals(parts: &[Part]) -> Vec<Interval> {
    let lists: Vec<&[Interval]> = parts.iter().map(|part| &part.streams.intervals[..]).collect();
    let common = lists.iter().map(|list| list.len()).min().unwrap_or(0);
    (0..common)
        .map_while(|index| {
            let at_seconds = lists[0][index].at_seconds;
            let mut each = lists.iter().map(|list| list[index]);
            each.try_fold(Interval::default(), |sum, interval| {
                // Others have another length.
                (interval.at_seconds == at_seconds).then_some(Interval {
                    at_seconds,
                    requests: sum.requests.saturating_add(interval.requests),
                    requests_per_second: sum.requests_per_second + interval.requests_per_second,
                    errors: sum.errors.saturating_add(interval.errors),
                    ..sum
                })
            })
        })
        .collect()
}
