//! What has to hold for every number of a file of results.

use super::model::{CaseResults, DatagramFigures, Figures, Latency, Ratio, Results, Slice};

/// What is wrong with a value: where and what.
type Checked = Result<(), String>;

/// Checks that all numbers can be what they say they are.
pub(super) fn validate(results: &Results) -> Checked {
    let effort = &results.effort;
    at_least_zero("effort.seconds", effort.seconds)?;
    at_least_zero("effort.warm_up_seconds", effort.warm_up_seconds)?;
    at_least_zero("effort.band_aim", effort.band_aim)?;
    at_least_zero("effort.total_seconds", effort.total_seconds)?;
    at_least_zero("effort.observer_cpu_share", effort.observer_cpu_share)?;
    if let Some(load) = results.environment.load_average {
        at_least_zero("environment.load_average", load)?;
    }
    for (name, value) in [
        ("environment.stolen_share", results.environment.stolen_share),
        ("environment.foreign_share", results.environment.foreign_share),
    ] {
        if let Some(value) = value {
            share(name, value)?;
        }
    }
    for (index, case) in results.cases.iter().enumerate() {
        let place = |problem| format!("case {:?}, {problem}", case.name);
        if results.cases[..index].iter().any(|other| other.name == case.name) {
            return Err(place("which is there twice".to_owned()));
        }
        check_case(case).map_err(place)?;
    }
    Ok(())
}

fn check_case(case: &CaseResults) -> Checked {
    if let Some(offered) = case.offered_per_second {
        above_zero("offered_per_second", offered)?;
    }
    for control in &case.controls {
        let place = |problem| format!("control of {:?}, {problem}", control.server);
        check_ratio("cost", control.cost).map_err(place)?;
        check_band(control.band).map_err(place)?;
    }
    for comparison in &case.comparisons {
        let place = |problem| format!("comparison of {:?}, {problem}", comparison.server);
        check_ratio("cost", comparison.cost).map_err(place)?;
        if let Some(band) = comparison.band {
            check_band(band).map_err(place)?;
        }
        for (name, ratio) in [
            ("total_cost", comparison.total_cost),
            ("throughput", comparison.throughput),
            ("latency_p99", comparison.latency_p99),
        ] {
            if let Some(ratio) = ratio {
                check_ratio(name, ratio).map_err(place)?;
            }
        }
    }
    for server in &case.servers {
        let place = |problem| format!("server {:?}, {problem}", server.server);
        check_figures(&server.figures).map_err(place)?;
        for (name, value) in [
            ("system_calls_per_unit", server.system_calls_per_unit),
            ("slowest_second_share", server.slowest_second_share),
            ("rate_deviation", server.rate_deviation),
            (
                "counter_reading.server_ns",
                server.counter_reading.map(|cost| cost.server_ns),
            ),
            (
                "counter_reading.observer_ns",
                server.counter_reading.map(|cost| cost.observer_ns),
            ),
        ] {
            if let Some(value) = value {
                at_least_zero(name, value).map_err(place)?;
            }
        }
        for (percentile, latency) in &server.latency_curve {
            at_least_zero("latency_curve", *latency).map_err(place)?;
            finite("latency_curve", *percentile).map_err(place)?;
            if !(0.0..=100.0).contains(percentile) {
                return Err(place(format!("latency_curve has the percentile {percentile}")));
            }
        }
    }
    for (index, slice) in case.slices.iter().enumerate() {
        check_slice(slice).map_err(|problem| format!("slice {index} of {:?}, {problem}", slice.server))?;
    }
    Ok(())
}

fn check_slice(slice: &Slice) -> Checked {
    check_figures(&slice.figures)?;
    for (name, value) in [
        ("stolen_share", slice.stolen_share),
        ("foreign_share", slice.foreign_share),
    ] {
        if let Some(value) = value {
            share(name, value)?;
        }
    }
    if let Some(value) = slice.observer_cpu_share {
        at_least_zero("observer_cpu_share", value)?;
    }
    for sample in &slice.samples {
        at_least_zero("samples.at_seconds", sample.at_seconds)?;
        for (name, value) in [("units", sample.units), ("sent", sample.sent)] {
            if let Some(value) = value {
                at_least_zero(&format!("samples.{name}"), value)?;
            }
        }
        at_least_zero("samples.server_user_ns", sample.server_user_ns)?;
        at_least_zero("samples.server_kernel_ns", sample.server_kernel_ns)?;
        for (name, value) in &sample.counters {
            finite(name, *value)?;
        }
    }
    for (name, value) in &slice.counters {
        finite(name, *value)?;
    }
    Ok(())
}

fn check_figures(figures: &Figures) -> Checked {
    for (name, value) in [
        ("units", Some(figures.units)),
        ("units_per_second", Some(figures.units_per_second)),
        ("server_cpu_ns_per_unit", Some(figures.server_cpu_ns_per_unit)),
        ("generator_cpu_ns_per_unit", figures.generator_cpu_ns_per_unit),
        (
            "kernel_thread_cpu_ns_per_unit",
            figures.kernel_thread_cpu_ns_per_unit,
        ),
        ("context_switches_per_unit", figures.context_switches_per_unit),
        ("idle_cpu_ns_per_second", figures.idle_cpu_ns_per_second),
        ("generator_lag_p99_ns", figures.generator_lag_p99_ns),
        ("compiling_share", figures.compiling_share),
    ] {
        if let Some(value) = value {
            at_least_zero(name, value)?;
        }
    }
    for (name, value) in [
        ("server_user_share", figures.server_user_share),
        ("slipped_share", figures.slipped_share),
    ] {
        if let Some(value) = value {
            share(name, value)?;
        }
    }
    // A difference of two measurements: below zero in the noise.
    if let Some(bytes) = figures.bytes_per_connection {
        finite("bytes_per_connection", bytes)?;
    }
    for latency in [&figures.latency, &figures.latency_at_least]
        .into_iter()
        .flatten()
    {
        check_latency(latency)?;
    }
    for (name, value) in &figures.told {
        finite(name, *value)?;
    }
    figures.datagrams.as_ref().map_or(Ok(()), check_datagrams)
}

fn check_datagrams(datagrams: &DatagramFigures) -> Checked {
    for (name, value) in [
        ("sent", datagrams.sent),
        ("sent_per_second", datagrams.sent_per_second),
        ("missing", datagrams.missing),
        ("truncated", datagrams.truncated),
        ("dropped_packets", datagrams.dropped_packets),
        ("user_ns_per_unit", datagrams.user_ns_per_unit),
        ("kernel_ns_per_unit", datagrams.kernel_ns_per_unit),
        ("peak_socket_bytes", datagrams.peak_socket_bytes),
        ("socket_bound_bytes", datagrams.socket_bound_bytes),
        ("pool_bytes", datagrams.pool_bytes),
        (
            "wanted_buffer_bytes",
            datagrams.wanted_buffer_bytes.unwrap_or_default(),
        ),
        (
            "peak_udp_memory_bytes",
            datagrams.peak_udp_memory_bytes.unwrap_or_default(),
        ),
        ("pinned_bytes", datagrams.pinned_bytes.unwrap_or_default()),
        ("messages_per_receive", datagrams.messages_per_receive),
        ("datagrams_per_message", datagrams.datagrams_per_message),
    ] {
        at_least_zero(&format!("datagrams.{name}"), value)?;
    }
    share("datagrams.handled_share", datagrams.handled_share)?;
    let Some(recovery) = &datagrams.recovery else {
        return Ok(());
    };
    at_least_zero("datagrams.recovery.seconds", recovery.seconds)?;
    at_least_zero("datagrams.recovery.of_seconds", recovery.of_seconds)?;
    if let Some(seconds) = recovery.whole_second_after {
        at_least_zero("datagrams.recovery.whole_second_after", seconds)?;
    }
    for (name, value) in [
        ("recovered_share", recovery.recovered_share),
        ("handled_share_before", recovery.handled_share_before),
        ("handled_share_after", recovery.handled_share_after),
    ] {
        share(&format!("datagrams.recovery.{name}"), value)?;
    }
    Ok(())
}

fn check_latency(latency: &Latency) -> Checked {
    at_least_zero("latency.mean_ns", latency.mean_ns)?;
    at_least_zero("latency.standard_deviation_ns", latency.standard_deviation_ns)?;
    at_least_zero("latency.p50_ns", latency.p50_ns)?;
    at_least_zero("latency.p90_ns", latency.p90_ns)?;
    at_least_zero("latency.p99_ns", latency.p99_ns)?;
    at_least_zero("latency.p99_9_ns", latency.p99_9_ns)?;
    at_least_zero("latency.max_ns", latency.max_ns)
}

fn check_ratio(name: &str, ratio: Ratio) -> Checked {
    for value in [ratio.median, ratio.low, ratio.high] {
        above_zero(name, value)?;
    }
    if ratio.low > ratio.high {
        return Err(format!(
            "{name} has an interval from {} to {}",
            ratio.low, ratio.high
        ));
    }
    Ok(())
}

fn check_band(band: f64) -> Checked {
    finite("band", band)?;
    if band < 1.0 {
        return Err(format!("band is {band}, which is below 1"));
    }
    Ok(())
}

fn finite(name: &str, value: f64) -> Checked {
    if value.is_finite() {
        Ok(())
    } else {
        Err(format!("{name} is {value}, which is no number"))
    }
}

fn at_least_zero(name: &str, value: f64) -> Checked {
    finite(name, value)?;
    if value < 0.0 {
        return Err(format!("{name} is {value}, which is below zero"));
    }
    Ok(())
}

fn above_zero(name: &str, value: f64) -> Checked {
    at_least_zero(name, value)?;
    if value == 0.0 {
        return Err(format!("{name} is zero"));
    }
    Ok(())
}

fn share(name: &str, value: f64) -> Checked {
    at_least_zero(name, value)?;
    if value > 1.0 {
        return Err(format!("{name} is {value}, but a share is at most 1"));
    }
    Ok(())
}
