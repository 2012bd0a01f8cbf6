//! Made-up results for tests: the shape of a real run, with figures that no machine gave.

use std::collections::BTreeMap;

use super::model::{
    CaseResults, Comparison, Control, DatagramFigures, EffortUsed, Environment, ExperimentInfo, Figures,
    Judge, Latency, LeftOut, Placement, Ratio, ReadingCost, Recovery, Results, SCHEMA, Sample, ServerSummary,
    Slice, Verdict,
};

/// The server that all others are compared with.
pub(crate) const BASELINE: &str = "quoit/epoll";
/// Pairs of every series.
const PAIRS: u32 = 6;
/// The factor of the A/A band in every case.
const BAND: f64 = 1.03;
/// Half the width of every interval, as a share.
const SPREAD: f64 = 0.015;
/// CPU nanoseconds of the baseline for a request.
const BASELINE_COST: f64 = 5_000.0;

/// The servers with their cost over that of the baseline: one costs more, one is inside the band, and of those
/// that cost less one is ours and one is not.
const SERVERS: [(&str, f64); 5] = [
    ("quoit/uring", 0.90),
    ("tokio", 1.20),
    ("gnet", 1.01),
    ("floor/epoll", 0.94),
    (BASELINE, 1.0),
];

/// A run with closed loops, a schedule at four rates, and idle connections.
pub(crate) fn results() -> Results {
    let mut cases = vec![
        case("128 connections", None, &SERVERS),
        // The order of the engines is turned around: we lose here.
        case(
            "128 connections, 16 deep",
            None,
            &[("quoit/uring", 1.15), ("tokio", 1.32), (BASELINE, 1.0)],
        ),
    ];
    for (share, weight) in [(20, 1.3), (50, 1.15), (80, 1.05), (95, 1.0)] {
        let costs = SERVERS.map(|(server, cost)| (server, cost * weight));
        let mut case = case(
            &format!("{share} % of the peak"),
            Some(f64::from(share) * 1_400.0),
            &costs[..2],
        );
        case.servers.push(summary(
            BASELINE,
            weight,
            &case.name,
            Some(f64::from(share) * 1_400.0),
        ));
        cases.push(case);
    }
    cases.push(idle());
    Results {
        schema: SCHEMA,
        experiment: ExperimentInfo {
            name: "plaintext".to_owned(),
            title: "Plaintext over many connections".to_owned(),
            about: "What does a small reply cost, with nothing around it?".to_owned(),
            claims: vec![(
                "An article, 2024".to_owned(),
                "io_uring doubles the requests per second.".to_owned(),
            )],
            published: Vec::new(),
            quick: false,
            file:
                "title = \"Plaintext over many connections\"\nbaseline = \"quoit/epoll\"\n\n[[case]]\nname = \
                   \"128 connections\"\nconnections = 128\n"
                    .to_owned(),
        },
        environment: Environment {
            started_at: 1_780_000_000,
            quoit_version: "0.1.0".to_owned(),
            commit: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            kernel: Some("6.18.0".to_owned()),
            processor: Some("Example Processor 9000".to_owned()),
            cores: 2,
            memory_bytes: Some(8 << 30),
            virtualised: true,
            congestion_control: Some("cubic".to_owned()),
            io_uring_disabled: Some("0".to_owned()),
            load_average: Some(0.12),
            stolen_share: Some(0.031),
            foreign_share: Some(0.002),
            versions: BTreeMap::from([("tokio".to_owned(), "1.45.0".to_owned())]),
        },
        placement: Placement {
            kind: "same-core".to_owned(),
            server_cores: vec![1],
            generator_cores: vec![1],
        },
        effort: EffortUsed {
            seconds: 5.0,
            warm_up_seconds: 1.0,
            least_pairs: PAIRS,
            most_pairs: 40,
            band_aim: 0.05,
            spoiled_slices: 1,
            total_seconds: 912.0,
            observer_cpu_share: 0.004,
        },
        cases,
        left_out: vec![LeftOut {
            what: "nginx".to_owned(),
            why: "the program nginx was not found; apt install nginx".to_owned(),
        }],
        notes: vec!["the machine was not idle when this began (load average 0.7)".to_owned()],
        incomplete: None,
    }
}

/// A case in which every server has this cost over `BASELINE_COST`; the baseline is the last of them.
pub(crate) fn case(name: &str, offered: Option<f64>, costs: &[(&str, f64)]) -> CaseResults {
    let base = costs
        .iter()
        .find(|(server, _)| *server == BASELINE)
        .map_or_else(|| costs[0].1 / 0.9, |(_, cost)| *cost);
    let mut comparisons: Vec<Comparison> = costs
        .iter()
        .filter(|(server, _)| *server != BASELINE)
        .map(|(server, cost)| comparison(server, cost / base))
        .collect();
    comparisons.sort_by_key(|comparison| comparison.verdict);
    CaseResults {
        name: name.to_owned(),
        workload: format!(
            "http /plaintext, {name}, {}",
            if offered.is_some() {
                "open loop"
            } else {
                "closed loop"
            }
        ),
        unit: "request".to_owned(),
        judge: Judge::Cpu,
        ladder: None,
        offered_per_second: offered,
        baseline: BASELINE.to_owned(),
        controls: vec![Control {
            server: BASELINE.to_owned(),
            pairs: PAIRS,
            cost: around(1.0),
            band: BAND,
            reached: true,
        }],
        comparisons,
        servers: costs
            .iter()
            .map(|(server, cost)| summary(server, *cost, name, offered))
            .collect(),
        slices: slices(costs, name, offered),
    }
}

/// A server whose cost is `ratio` times the baseline's, judged as a run judges it.
pub(crate) fn comparison(server: &str, ratio: f64) -> Comparison {
    let cost = around(ratio);
    Comparison {
        server: server.to_owned(),
        against: BASELINE.to_owned(),
        pairs: PAIRS,
        cost,
        band: Some(BAND),
        verdict: if cost.low > BAND {
            Verdict::Loss
        } else if cost.high < 1.0 / BAND {
            Verdict::Win
        } else {
            Verdict::Tie
        },
        total_cost: Some(around(ratio.sqrt())),
        throughput: Some(around(1.0 / ratio)),
        latency_p99: Some(around(ratio)),
    }
}

/// A ratio with the usual interval.
pub(crate) fn around(median: f64) -> Ratio {
    Ratio {
        median,
        low: median * (1.0 - SPREAD),
        high: median * (1.0 + SPREAD),
    }
}

fn summary(server: &str, cost: f64, case: &str, offered: Option<f64>) -> ServerSummary {
    let figures = figures(cost, offered, 0.0);
    let p50 = figures.latency.map_or(0.0, |latency| latency.p50_ns);
    ServerSummary {
        server: server.to_owned(),
        slices: PAIRS,
        system_calls_per_unit: Some(if server.contains("uring") { 0.136 } else { 2.04 }),
        latency_curve: [
            0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0,
        ]
        .iter()
        .map(|percentile| {
            let nines = (1.0 - percentile / 100.0_f64).max(1e-6).log10().abs();
            (
                *percentile,
                p50 * (0.55 + nines * 1.4 + nuisance(case, percentile.to_bits()) * 0.05),
            )
        })
        .collect(),
        slowest_second_share: Some(0.82),
        rate_deviation: Some(0.06),
        counter_reading: server.starts_with("quoit").then_some(ReadingCost {
            server_ns: 160_000.0,
            observer_ns: 90_000.0,
        }),
        figures,
    }
}

/// Figures of a server with this cost; `shift` moves them all, as a neighbour does.
fn figures(cost: f64, offered: Option<f64>, shift: f64) -> Figures {
    let cpu = BASELINE_COST * cost * (1.0 + shift);
    let rate = offered.unwrap_or(0.9e9 / (cpu + 4_000.0));
    let p50 = if offered.is_some() {
        40_000.0 * cost
    } else {
        128e9 / rate
    };
    let latency = Latency {
        mean_ns: p50 * 1.1,
        standard_deviation_ns: p50 * 0.4,
        p50_ns: p50,
        p90_ns: p50 * 1.9,
        p99_ns: p50 * 3.2,
        p99_9_ns: p50 * 4.7,
        max_ns: p50 * 14.0,
    };
    Figures {
        units: rate * 5.0,
        units_per_second: rate,
        server_cpu_ns_per_unit: cpu,
        server_user_share: Some(0.22),
        generator_cpu_ns_per_unit: Some(4_000.0 / cost.sqrt()),
        context_switches_per_unit: Some(0.11 * cost),
        resident_bytes: Some((9.0e6 * cost) as u64),
        peak_resident_bytes: Some((11.5e6 * cost) as u64),
        minor_faults: Some(210),
        major_faults: Some(0),
        latency: Some(latency),
        latency_at_least: Some(Latency {
            max_ns: p50 * 400.0,
            ..latency
        }),
        slipped_share: Some(0.012),
        generator_lag_p99_ns: offered.map(|_| 2_500.0),
        ..Figures::default()
    }
}

/// Slices in ABBA order: the control first, then each server with the baseline. One is spoiled.
fn slices(costs: &[(&str, f64)], case: &str, offered: Option<f64>) -> Vec<Slice> {
    let mut slices = Vec::new();
    let base = (BASELINE, 1.0);
    for pair in 0..PAIRS {
        for (series, cost) in costs {
            let (series, other) = if *series == BASELINE {
                (format!("control {BASELINE}"), base)
            } else {
                ((*series).to_owned(), (*series, *cost))
            };
            let mut sides = [other, base];
            if pair % 2 == 1 {
                sides.reverse();
            }
            for (position, (server, cost)) in sides.into_iter().enumerate() {
                let number = slices.len() as u64;
                slices.push(slice(
                    server,
                    cost,
                    &series,
                    (pair, position as u32),
                    case,
                    number,
                    offered,
                ));
            }
        }
    }
    if let Some(slice) = slices.get_mut(3) {
        slice.spoiled = Some("others took 31 % of the processor".to_owned());
    }
    slices
}

fn slice(
    server: &str,
    cost: f64,
    series: &str,
    (pair, position): (u32, u32),
    case: &str,
    number: u64,
    offered: Option<f64>,
) -> Slice {
    let figures = figures(cost, offered, nuisance(case, number) * 0.02);
    let counters = |units: f64| {
        if !server.starts_with("quoit") {
            return BTreeMap::new();
        }
        let enters = if server.contains("uring") { 0.136 } else { 0.03 };
        BTreeMap::from([
            ("enters".to_owned(), units * enters),
            ("submissions".to_owned(), units * 1.01),
            ("completions".to_owned(), units * 2.0),
            ("turns".to_owned(), units * enters),
            ("sends".to_owned(), units),
        ])
    };
    let samples = (1..=5_u32)
        .map(|second| {
            let shake = nuisance(case, number * 7 + u64::from(second)) * 0.08;
            let units = figures.units_per_second * (1.0 + shake);
            Sample {
                at_seconds: f64::from(second),
                units: Some(units),
                server_user_ns: units * figures.server_cpu_ns_per_unit * 0.22,
                server_kernel_ns: units * figures.server_cpu_ns_per_unit * 0.78,
                resident_bytes: figures.resident_bytes,
                drops: 0,
                sent: None,
                socket_bytes: None,
                udp_memory_bytes: None,
                counters: counters(units),
            }
        })
        .collect();
    let counters = counters(figures.units);
    Slice {
        server: server.to_owned(),
        series: series.to_owned(),
        pair,
        position,
        spoiled: None,
        figures,
        stolen_share: Some(0.031),
        foreign_share: Some(0.002),
        observer_cpu_share: Some(0.004),
        samples,
        counters,
        histogram: None,
    }
}

fn idle() -> CaseResults {
    let mut case = case(
        "10,000 idle connections",
        None,
        &[("quoit/uring", 1.76), (BASELINE, 1.0)],
    );
    case.workload = "10,000 connections that say nothing".to_owned();
    case.unit = "connection".to_owned();
    case.judge = Judge::Memory;
    let idle = |figures: &mut Figures, server: &str| {
        *figures = Figures {
            units: 10_000.0,
            bytes_per_connection: Some(if server == BASELINE { 490.0 } else { 864.0 }),
            idle_cpu_ns_per_second: Some(2_400.0),
            resident_bytes: figures.resident_bytes,
            peak_resident_bytes: figures.peak_resident_bytes,
            ..Figures::default()
        };
    };
    for server in &mut case.servers {
        server.latency_curve.clear();
        server.system_calls_per_unit = None;
        idle(&mut server.figures, &server.server);
    }
    for slice in &mut case.slices {
        slice.samples.clear();
        idle(&mut slice.figures, &slice.server);
    }
    for comparison in &mut case.comparisons {
        (
            comparison.total_cost,
            comparison.throughput,
            comparison.latency_p99,
        ) = (None, None, None);
    }
    case
}

/// A case of datagrams, of which some are lost.
pub(crate) fn datagrams() -> CaseResults {
    let mut case = case(
        "datagrams, overrun",
        Some(300_000.0),
        &[("quoit/uring", 0.8), (BASELINE, 1.0)],
    );
    case.workload = "udp --size 1024, 1000000 datagrams".to_owned();
    case.unit = "datagram".to_owned();
    case.judge = Judge::Handled;
    let account = |figures: &mut Figures, server: &str| {
        let handled = if server == BASELINE { 0.64 } else { 0.8 };
        *figures = Figures {
            units: handled * 1e6,
            units_per_second: handled * 3e5,
            server_cpu_ns_per_unit: 2_500.0,
            server_user_share: Some(0.8),
            datagrams: Some(DatagramFigures {
                sent: 1e6,
                sent_per_second: 3e5,
                missing: (1.0 - handled) * 1e6,
                truncated: 0.0,
                handled_share: handled,
                dropped_packets: (1.0 - handled) * 1e6 + 3.0,
                user_ns_per_unit: 2_000.0,
                kernel_ns_per_unit: 500.0,
                peak_socket_bytes: 212_000.0,
                socket_bound_bytes: 212_992.0,
                wanted_buffer_bytes: None,
                peak_udp_memory_bytes: Some(262_144.0),
                pool_bytes: 131_072.0,
                pinned_bytes: Some(4_096.0),
                messages_per_receive: 12.5,
                datagrams_per_message: 1.0,
                recovery: Some(Recovery {
                    seconds: 0.2,
                    of_seconds: 6.0,
                    recovered_share: if server == BASELINE { 0.75 } else { 1.0 },
                    handled_share_before: 0.5,
                    handled_share_after: 0.999,
                    whole_second_after: (server != BASELINE).then_some(0.1),
                }),
            }),
            ..Figures::default()
        };
    };
    for server in &mut case.servers {
        server.latency_curve.clear();
        account(&mut server.figures, &server.server);
    }
    for slice in &mut case.slices {
        slice.samples.clear();
        account(&mut slice.figures, &slice.server);
    }
    case
}

/// A number between -1 and 1 that is the same every time.
fn nuisance(text: &str, number: u64) -> f64 {
    let mut state = text.bytes().fold(number ^ 0x9e37_79b9_7f4a_7c15, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    state ^= state >> 29;
    state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state ^= state >> 32;
    (state % 2_001) as f64 / 1_000.0 - 1.0
}
