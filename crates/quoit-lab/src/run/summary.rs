//! From slices to ratios, bands, verdicts and medians.

use std::collections::BTreeMap;

use quoit_report::pairs::{self, NoiseBand, SEED};
use quoit_report::results::WHOLE_SECOND;
use quoit_report::results::model::{
    CaseResults, Comparison, Control, DatagramFigures, Figures, Latency, Ratio, ReadingCost, Recovery,
    Sample, ServerSummary, Slice, Verdict,
};

use super::latency;
use super::plan::Work;
use super::record::Record;
use super::schedule::{Series, Standing};
use crate::experiment::model::Effort;

/// Sums up a case; `None` if nothing was measured of it.
pub(crate) fn of_case(
    work: &Work<'_>,
    record: &Record,
    readings: &BTreeMap<String, Option<ReadingCost>>,
    effort: &Effort,
    baseline: &str,
) -> Option<CaseResults> {
    if record.slices.is_empty() {
        return None;
    }
    let mut controls = Vec::new();
    let mut comparisons = Vec::new();
    for series in &work.series {
        let name = series.name();
        match &series.against {
            None => controls.extend(band(record, work, &name).map(|(cost, band)| Control {
                server: series.server.clone(),
                pairs: band.pairs,
                cost,
                band: band.factor,
                reached: band.is_within(effort.band),
            })),
            Some(against) => comparisons.extend(comparison(record, work, &series.server, against)),
        }
    }
    comparisons.sort_by(|one, other| {
        one.verdict
            .cmp(&other.verdict)
            .then(other.cost.median.total_cmp(&one.cost.median))
    });
    Some(CaseResults {
        name: work.name.clone(),
        workload: work.in_words(record.peak),
        unit: work.unit().to_owned(),
        judge: work.judge(),
        ladder: work.ladder().map(str::to_owned),
        offered_per_second: work.rate(record.peak),
        baseline: baseline.to_owned(),
        controls,
        comparisons,
        servers: work
            .servers
            .iter()
            .filter_map(|server| {
                let reading = readings.get(&server.name).copied().flatten();
                summary(record, &server.name, reading)
            })
            .collect(),
        slices: record.slices.clone(),
    })
}

/// How far each series of a case has come.
pub(crate) fn standings(record: &Record, work: &Work<'_>, effort: &Effort) -> Vec<Standing> {
    let standing = |series: &Series| {
        let name = series.name();
        let is_control = series.against.is_none();
        Standing {
            is_control,
            pairs: record.pairs.get(&name).copied().unwrap_or(0),
            reached: is_control
                && band(record, work, &name).is_some_and(|(_, band)| band.is_within(effort.band)),
        }
    };
    work.series.iter().map(standing).collect()
}

/// The ratio of a control with its band; `None` without pairs.
pub(crate) fn band(record: &Record, work: &Work<'_>, series: &str) -> Option<(Ratio, NoiseBand)> {
    let ratios = costs_of(record, work, series);
    let cost = Ratio::of(&ratios, SEED)?;
    Some((cost, NoiseBand::of_control(cost, ratios.len() as u32)))
}

/// The ratio of costs of a series; `None` without pairs.
pub(crate) fn cost_of(record: &Record, work: &Work<'_>, series: &str) -> Option<Ratio> {
    Ratio::of(&costs_of(record, work, series), SEED)
}

/// The same, pair by pair.
fn costs_of(record: &Record, work: &Work<'_>, series: &str) -> Vec<f64> {
    ratios(&record.pairs_of(series), |figures| work.judge().cost(figures))
}

fn comparison(record: &Record, work: &Work<'_>, server: &str, against: &str) -> Option<Comparison> {
    let pairs = record.pairs_of(server);
    let costs = costs_of(record, work, server);
    // A verdict rests on as many pairs as have a cost, and no more.
    let count = costs.len() as u32;
    let cost = Ratio::of(&costs, SEED)?;
    let band = band(record, work, &format!("control {against}")).map(|(_, band)| band);
    Some(Comparison {
        server: server.to_owned(),
        against: against.to_owned(),
        pairs: count,
        cost,
        band: band.map(|band| band.factor),
        verdict: band.map_or(Verdict::Unjudged, |band| Verdict::of(cost, count, band)),
        total_cost: ratio(&pairs, |figures| {
            Some(figures.server_cpu_ns_per_unit + figures.generator_cpu_ns_per_unit?)
        }),
        throughput: ratio(&pairs, |figures| Some(figures.units_per_second)),
        latency_p99: ratio(&pairs, |figures| Some(figures.latency?.p99_ns)),
    })
}

/// The ratio of a figure over all pairs that have it; `None` if none has.
fn ratio(pairs: &[[&Slice; 2]], figure: impl Fn(&Figures) -> Option<f64>) -> Option<Ratio> {
    Ratio::of(&ratios(pairs, figure), SEED)
}

/// The same, pair by pair.
fn ratios(pairs: &[[&Slice; 2]], figure: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
    let positive = |slice: &Slice| figure(&slice.figures).filter(|value| *value > 0.0 && value.is_finite());
    pairs
        .iter()
        .filter_map(|[a, b]| Some(positive(a)? / positive(b)?))
        .collect()
}

fn summary(record: &Record, server: &str, reading: Option<ReadingCost>) -> Option<ServerSummary> {
    let slices: Vec<&Slice> = record
        .slices
        .iter()
        .filter(|slice| slice.server == server && slice.spoiled.is_none())
        .collect();
    if slices.is_empty() {
        return None;
    }
    let rates: Vec<f64> = slices.iter().flat_map(|slice| rates(&slice.samples)).collect();
    let (slowest, deviation) = instability(&rates).unzip();
    let figures: Vec<&Figures> = slices.iter().map(|slice| &slice.figures).collect();
    Some(ServerSummary {
        server: server.to_owned(),
        slices: slices.len() as u32,
        figures: medians(&figures),
        system_calls_per_unit: record
            .system_calls
            .get(server)
            .and_then(|counted| counted.as_ref().ok())
            .copied(),
        latency_curve: latency::curve(slices.iter().filter_map(|slice| slice.histogram.as_deref())),
        slowest_second_share: slowest,
        rate_deviation: deviation,
        counter_reading: reading,
    })
}

/// Units per second of each sample that covers a second well enough.
fn rates(samples: &[Sample]) -> Vec<f64> {
    let mut begun = 0.0;
    let mut rates = Vec::new();
    for sample in samples {
        let seconds = sample.at_seconds - begun;
        begun = sample.at_seconds;
        if seconds >= WHOLE_SECOND {
            rates.extend(sample.units.map(|units| units / seconds));
        }
    }
    rates
}

/// The slowest rate over the median one, and the standard deviation over the mean.
fn instability(rates: &[f64]) -> Option<(f64, f64)> {
    let slowest = rates.iter().copied().reduce(f64::min)?;
    let median = pairs::median(&mut rates.to_vec());
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    (median > 0.0).then(|| (slowest / median, variance.sqrt() / mean))
}

/// Medians, figure by figure, over those that have it; errors are summed.
fn medians(all: &[&Figures]) -> Figures {
    let optional = |figure: &dyn Fn(&Figures) -> Option<f64>| {
        let mut values: Vec<f64> = all.iter().filter_map(|figures| figure(figures)).collect();
        (!values.is_empty()).then(|| pairs::median(&mut values))
    };
    // There is at least one slice.
    let plain = |figure: &dyn Fn(&Figures) -> f64| optional(&|figures| Some(figure(figures))).unwrap_or(0.0);
    let whole = |figure: &dyn Fn(&Figures) -> Option<u64>| {
        optional(&|figures| figure(figures).map(|value| value as f64)).map(|value| value as u64)
    };
    let latency = |latency: &dyn Fn(&Figures) -> Option<Latency>| {
        let of = |part: &dyn Fn(Latency) -> f64| optional(&|figures| latency(figures).map(part));
        Some(Latency {
            mean_ns: of(&|latency| latency.mean_ns)?,
            standard_deviation_ns: of(&|latency| latency.standard_deviation_ns)?,
            p50_ns: of(&|latency| latency.p50_ns)?,
            p90_ns: of(&|latency| latency.p90_ns)?,
            p99_ns: of(&|latency| latency.p99_ns)?,
            p99_9_ns: of(&|latency| latency.p99_9_ns)?,
            max_ns: of(&|latency| latency.max_ns)?,
        })
    };
    Figures {
        units: plain(&|figures| figures.units),
        units_per_second: plain(&|figures| figures.units_per_second),
        server_cpu_ns_per_unit: plain(&|figures| figures.server_cpu_ns_per_unit),
        server_user_share: optional(&|figures| figures.server_user_share),
        generator_cpu_ns_per_unit: optional(&|figures| figures.generator_cpu_ns_per_unit),
        kernel_thread_cpu_ns_per_unit: optional(&|figures| figures.kernel_thread_cpu_ns_per_unit),
        context_switches_per_unit: optional(&|figures| figures.context_switches_per_unit),
        resident_bytes: whole(&|figures| figures.resident_bytes),
        peak_resident_bytes: whole(&|figures| figures.peak_resident_bytes),
        client_resident_bytes: whole(&|figures| figures.client_resident_bytes),
        client_peak_resident_bytes: whole(&|figures| figures.client_peak_resident_bytes),
        bytes_per_connection: optional(&|figures| figures.bytes_per_connection),
        idle_cpu_ns_per_second: optional(&|figures| figures.idle_cpu_ns_per_second),
        minor_faults: whole(&|figures| figures.minor_faults),
        major_faults: whole(&|figures| figures.major_faults),
        latency: latency(&|figures| figures.latency),
        latency_at_least: latency(&|figures| figures.latency_at_least),
        slipped_share: optional(&|figures| figures.slipped_share),
        generator_lag_p99_ns: optional(&|figures| figures.generator_lag_p99_ns),
        errors: all.iter().map(|figures| figures.errors).sum(),
        compiling_share: optional(&|figures| figures.compiling_share),
        datagrams: datagram_medians(all),
        told: told_medians(all),
    }
}

/// The same of what clients say beside.
fn told_medians(all: &[&Figures]) -> BTreeMap<String, f64> {
    let mut told: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
    for (name, value) in all.iter().flat_map(|figures| &figures.told) {
        told.entry(name).or_default().push(*value);
    }
    let medians = told.into_iter();
    medians
        .map(|(name, mut values)| (name.clone(), pairs::median(&mut values)))
        .collect()
}

/// The same of what only datagrams have.
fn datagram_medians(all: &[&Figures]) -> Option<DatagramFigures> {
    let all: Vec<DatagramFigures> = all.iter().filter_map(|figures| figures.datagrams).collect();
    let of =
        |figure: fn(&DatagramFigures) -> f64| pairs::median(&mut all.iter().map(figure).collect::<Vec<_>>());
    let optional = |figure: fn(&DatagramFigures) -> Option<f64>| {
        let mut values: Vec<f64> = all.iter().filter_map(figure).collect();
        (!values.is_empty()).then(|| pairs::median(&mut values))
    };
    (!all.is_empty()).then(|| DatagramFigures {
        sent: of(|figures| figures.sent),
        sent_per_second: of(|figures| figures.sent_per_second),
        missing: of(|figures| figures.missing),
        truncated: of(|figures| figures.truncated),
        handled_share: of(|figures| figures.handled_share),
        dropped_packets: of(|figures| figures.dropped_packets),
        user_ns_per_unit: of(|figures| figures.user_ns_per_unit),
        kernel_ns_per_unit: of(|figures| figures.kernel_ns_per_unit),
        peak_socket_bytes: of(|figures| figures.peak_socket_bytes),
        socket_bound_bytes: of(|figures| figures.socket_bound_bytes),
        wanted_buffer_bytes: optional(|figures| figures.wanted_buffer_bytes),
        peak_udp_memory_bytes: optional(|figures| figures.peak_udp_memory_bytes),
        pool_bytes: of(|figures| figures.pool_bytes),
        pinned_bytes: optional(|figures| figures.pinned_bytes),
        messages_per_receive: of(|figures| figures.messages_per_receive),
        datagrams_per_message: of(|figures| figures.datagrams_per_message),
        recovery: recovery_medians(&all),
    })
}

/// Medians, but for the share of the slices that recovered.
fn recovery_medians(all: &[DatagramFigures]) -> Option<Recovery> {
    let all: Vec<Recovery> = all.iter().filter_map(|figures| figures.recovery).collect();
    let of = |figure: fn(&Recovery) -> f64| pairs::median(&mut all.iter().map(figure).collect::<Vec<_>>());
    (!all.is_empty()).then(|| Recovery {
        seconds: of(|recovery| recovery.seconds),
        of_seconds: of(|recovery| recovery.of_seconds),
        recovered_share: all.iter().map(|recovery| recovery.recovered_share).sum::<f64>() / all.len() as f64,
        handled_share_before: of(|recovery| recovery.handled_share_before),
        handled_share_after: of(|recovery| recovery.handled_share_after),
        // One that had none counts as all of its time.
        whole_second_after: Some(of(|recovery| {
            recovery.whole_second_after.unwrap_or(recovery.of_seconds)
        }))
        .filter(|&after| after < of(|recovery| recovery.of_seconds)),
    })
}

#[cfg(test)]
mod tests;
