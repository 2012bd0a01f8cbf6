use quoit_report::results::model::{Judge, Verdict};

use super::*;
use crate::experiment;
use crate::experiment::model::Experiment;
use crate::run::plan;

/// Two servers in one case, and their records to fill.
fn experiment() -> Experiment {
    let (mut experiment, _) = experiment::find("plaintext").expect("it is built in");
    experiment
        .servers
        .retain(|server| server.name.starts_with("quoit-"));
    experiment.cases.truncate(1);
    experiment
}

fn slice(server: &str, series: &str, pair: u32, position: u32, cpu: f64) -> Slice {
    Slice {
        server: server.to_owned(),
        series: series.to_owned(),
        pair,
        position,
        figures: Figures {
            units: 1000.0,
            units_per_second: 1e9 / cpu,
            server_cpu_ns_per_unit: cpu,
            generator_cpu_ns_per_unit: Some(cpu / 2.0),
            errors: 1,
            ..Figures::default()
        },
        ..Slice::default()
    }
}

const EFFORT: Effort = Effort {
    pairs: 2,
    most_pairs: 4,
    band: 0.05,
    seconds: 1.0,
    warm_up: 0.0,
};

/// The machine halves its speed from pair to pair; the ratios do not see it.
fn record(expensive: f64) -> Record {
    let mut record = Record::default();
    for pair in 0..6 {
        let slow = f64::from(1 << pair);
        for position in 0..2 {
            let control = "control quoit-epoll";
            record
                .slices
                .push(slice("quoit-epoll", control, pair, position, 100.0 * slow));
            // ABBA: the server runs first in even pairs.
            let (server, cpu) = if (pair + position) % 2 == 0 {
                ("quoit-uring", 100.0 * expensive * slow)
            } else {
                ("quoit-epoll", 100.0 * slow)
            };
            record
                .slices
                .push(slice(server, "quoit-uring", pair, position, cpu));
        }
    }
    record
}

fn results(record: &Record) -> CaseResults {
    let experiment = experiment();
    let (works, left_out) = plan::works(&experiment);
    assert!(left_out.is_empty(), "{left_out:?}");
    let cost = ReadingCost {
        server_ns: 150_000.0,
        observer_ns: 90_000.0,
    };
    let readings = BTreeMap::from([
        ("quoit-epoll".to_owned(), Some(cost)),
        ("quoit-uring".to_owned(), None),
    ]);
    of_case(&works[0], record, &readings, &EFFORT, &experiment.baseline).expect("there are slices")
}

#[test]
fn ratios_are_pairwise_and_judged_by_the_band() {
    for (expensive, verdict) in [(1.2, Verdict::Loss), (1.0, Verdict::Tie), (0.8, Verdict::Win)] {
        let results = results(&record(expensive));
        let [control] = &results.controls[..] else {
            panic!("{results:?}")
        };
        assert_eq!((control.pairs, control.band, control.reached), (6, 1.0, true));
        let [epoll, uring] = &results.servers[..] else {
            panic!("{results:?}")
        };
        assert_eq!(epoll.counter_reading.map(|cost| cost.server_ns), Some(150_000.0));
        assert_eq!(uring.counter_reading, None);
        let [comparison] = &results.comparisons[..] else {
            panic!("{results:?}")
        };
        assert_eq!(
            (comparison.server.as_str(), comparison.against.as_str()),
            ("quoit-uring", "quoit-epoll")
        );
        assert!(
            (comparison.cost.median - expensive).abs() < 1e-9,
            "{comparison:?}"
        );
        assert!(
            (comparison.cost.high - comparison.cost.low).abs() < 1e-9,
            "{comparison:?}"
        );
        assert_eq!((comparison.verdict, comparison.band), (verdict, Some(1.0)));
        let total = comparison.total_cost.expect("both ends report");
        assert!((total.median - expensive).abs() < 1e-9);
        let throughput = comparison.throughput.expect("there is one");
        assert!((throughput.median - 1.0 / expensive).abs() < 1e-9);
        assert_eq!(comparison.latency_p99, None);
    }
}

#[test]
fn spoiled_slices_are_kept_and_do_not_count() {
    let mut record = record(1.0);
    let mut spoiled = slice("quoit-uring", "quoit-uring", 1, 1, 1e9);
    spoiled.spoiled = Some("it rained".to_owned());
    record.slices.insert(3, spoiled);
    let results = results(&record);
    assert_eq!(results.slices.len(), 25);
    assert_eq!(results.comparisons[0].cost.high, 1.0);
    let uring = &results.servers[1];
    assert_eq!(
        (uring.server.as_str(), uring.slices, uring.figures.errors),
        ("quoit-uring", 6, 6)
    );
    assert_eq!(uring.figures.server_cpu_ns_per_unit, 600.0);
}

#[test]
fn what_clients_say_has_medians_too() {
    let mut record = record(1.0);
    let of_uring = record
        .slices
        .iter_mut()
        .filter(|slice| slice.server == "quoit-uring");
    for (number, slice) in of_uring.enumerate() {
        slice.figures.told.insert("heap".to_owned(), number as f64);
    }
    let results = results(&record);
    let told = |server: usize| results.servers[server].figures.told.clone();
    assert_eq!(
        (told(0), told(1)),
        (BTreeMap::new(), BTreeMap::from([("heap".to_owned(), 2.5)]))
    );
}

#[test]
fn half_a_pair_does_not_count() {
    let mut record = record(1.0);
    let last = record.slices.pop().expect("there are some");
    assert_eq!(last.series, "quoit-uring");
    assert_eq!(results(&record).comparisons[0].pairs, 5);
}

#[test]
fn too_few_pairs_are_not_judged() {
    let mut record = record(3.0);
    record.slices.retain(|slice| slice.pair < 5);
    let results = results(&record);
    let [comparison] = &results.comparisons[..] else {
        panic!("{results:?}")
    };
    assert_eq!((comparison.pairs, comparison.verdict), (5, Verdict::Unjudged));
    assert_eq!(comparison.band, Some(1.0));
}

#[test]
fn pairs_without_the_figure_that_is_judged_do_not_count() {
    let mut record = record(3.0);
    for slice in &mut record.slices {
        if slice.pair == 3 && slice.server == "quoit-uring" {
            slice.figures.server_cpu_ns_per_unit = 0.0;
        }
        if slice.pair == 4 && slice.series.starts_with("control") {
            slice.figures.server_cpu_ns_per_unit = 0.0;
        }
    }
    let results = results(&record);
    assert_eq!((results.comparisons[0].pairs, results.controls[0].pairs), (5, 5));
    assert_eq!(results.comparisons[0].verdict, Verdict::Unjudged);
}

#[test]
fn without_a_control_nothing_is_won_or_lost() {
    let mut record = record(3.0);
    record.slices.retain(|slice| !slice.series.starts_with("control"));
    let results = results(&record);
    assert!(results.controls.is_empty());
    assert_eq!(
        (results.comparisons[0].verdict, results.comparisons[0].band),
        (Verdict::Unjudged, None)
    );
}

#[test]
fn instability_is_that_of_whole_seconds() {
    let sample = |at_seconds, units| Sample {
        at_seconds,
        units: Some(units),
        ..Sample::default()
    };
    let samples = [
        sample(1.0, 100.0),
        sample(2.0, 50.0),
        sample(3.0, 100.0),
        sample(3.1, 0.0),
    ];
    assert_eq!(rates(&samples), [100.0, 50.0, 100.0]);
    let (slowest, deviation) = instability(&rates(&samples)).expect("there are seconds");
    assert_eq!(slowest, 0.5);
    assert!((deviation - 0.2828).abs() < 1e-3, "{deviation}");
    assert_eq!(instability(&[]), None);
    assert_eq!(instability(&[0.0, 0.0]), None);
}

#[test]
fn memory_is_what_idle_connections_cost() {
    let figures = |bytes| Figures {
        server_cpu_ns_per_unit: 7.0,
        bytes_per_connection: bytes,
        ..Figures::default()
    };
    assert_eq!(Judge::Memory.cost(&figures(Some(500.0))), Some(500.0));
    assert_eq!(Judge::Memory.cost(&figures(Some(0.0))), Some(1.0));
    assert_eq!(Judge::Memory.cost(&figures(None)), None);
    assert_eq!(Judge::Cpu.cost(&figures(None)), Some(7.0));
}
