use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::merge;
use crate::encoded::{decode, encode};
use crate::histograms::Latencies;
use crate::report::{Ending, Report};
use crate::tally::{Tally, new_histogram};

/// A second, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// When the runs begin.
const START: Duration = Duration::from_secs(1_700_000_000);

/// What a run with these words prints that found `tally`, and whose window began so much after [`START`].
fn printed(words: &str, tally: &Tally, late: Duration) -> Value {
    let words: Vec<&str> = words.split(' ').collect();
    let plan = crate::arguments::plan(&words).unwrap();
    let latencies = Latencies::new(tally, Some(START + late)).unwrap();
    let report = Report::of_streams(&plan, tally, &latencies, Vec::new(), Ending::Complete).unwrap();
    serde_json::to_value(report).unwrap()
}

/// What a thread found in a second with these latencies, of which every third overlapped a slip.
fn tally(longest: u64, latencies: &[u64]) -> Tally {
    let mut tally = Tally::new(longest).unwrap();
    for (number, &latency) in latencies.iter().enumerate() {
        if number % 3 == 0 {
            tally.slipped.record(latency).unwrap();
            tally.slipped_at_least.record(latency / 2).unwrap();
        } else {
            tally.latencies.record(latency).unwrap();
        }
    }
    tally.requests = latencies.len() as u64;
    tally.window = Some((0, SECOND));
    tally
}

/// A run of a second in which 2,000 replies took a millisecond each.
fn usual(label: &str) -> Value {
    let found = tally(SECOND, &[1_000_000; 2_000]);
    printed(&http(label), &found, Duration::ZERO)
}

fn http(label: &str) -> String {
    // The seed is the number in the label.
    let seed: String = label.chars().filter(char::is_ascii_digit).collect();
    format!("http --connect 127.0.0.1:80 --rate 2000 --seed {seed} --label {label}")
}

/// Files of reports.
struct Files {
    folder: TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn of(reports: &[Value]) -> Self {
        Self::with(reports.iter().map(Value::to_string))
    }

    fn with(texts: impl IntoIterator<Item = String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = texts.into_iter().enumerate().map(|(number, text)| {
            let path = folder.path().join(format!("{number}.json"));
            fs::write(&path, text).unwrap();
            path
        });
        Files {
            paths: files.collect(),
            folder,
        }
    }

    fn merged(&self) -> Value {
        serde_json::to_value(merge(&self.paths).unwrap().report).unwrap()
    }

    /// What is said of them that cannot be merged, without the name of their folder.
    fn refused(&self) -> String {
        let said = merge(&self.paths).unwrap_err().to_string();
        assert_eq!(said.lines().count(), 1, "{said}");
        said.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn stragglers(merged: &Value) -> Vec<Value> {
    let runs = merged["merged"]["reports"].as_array().unwrap();
    runs.iter().map(|run| run["straggler"].clone()).collect()
}

/// Times from nanoseconds to ten seconds, of each magnitude alike.
fn latency() -> impl Strategy<Value = u64> {
    (0u32..34, any::<u64>()).prop_map(|(bits, random)| (1 << bits) + random % (1 << bits))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn merged_latencies_are_those_of_one_histogram(
        runs in prop::collection::vec((prop::collection::vec(latency(), 0..200), 1u64..100), 1..9),
    ) {
        let mut one = new_histogram(100 * SECOND).unwrap();
        let mut at_least = one.clone();
        let reports: Vec<Value> = runs
            .iter()
            .enumerate()
            .map(|(number, (latencies, timeout))| {
                // What histograms have room for differs.
                let mut found = tally(20 * SECOND + timeout * SECOND, latencies);
                found.sent = latencies.len() as u64 + 7;
                found.errors.reset = number as u64;
                for (number, &latency) in latencies.iter().enumerate() {
                    one.record(latency).unwrap();
                    at_least.record(if number % 3 == 0 { latency / 2 } else { latency }).unwrap();
                    found.lag.record(latency / 3 + 1).unwrap();
                }
                printed(&http(&number.to_string()), &found, Duration::ZERO)
            })
            .collect();
        let merged = Files::of(&reports).merged();
        let histogram = |name: &str| merged[name].as_str().map(|text| decode(text).unwrap());
        let expected = |histogram: &Histogram<u64>| encode(histogram).unwrap().map(|text| decode(&text).unwrap());
        prop_assert_eq!(histogram("histogram"), expected(&one));
        prop_assert_eq!(histogram("histogram_at_least"), expected(&at_least));
        for (name, quantile) in [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p99_9_ns", 0.999)] {
            let at = |one: &Histogram<u64>| (!one.is_empty()).then(|| one.value_at_quantile(quantile));
            prop_assert_eq!(merged["latency"][name].as_u64(), at(&one));
            prop_assert_eq!(merged["latency_at_least"][name].as_u64(), at(&at_least));
        }
        prop_assert_eq!(merged["latency"]["max_ns"].as_u64(), (!one.is_empty()).then(|| one.max()));
        let sum: usize = runs.iter().map(|(latencies, _)| latencies.len()).sum();
        prop_assert_eq!(&merged["requests"], &json!(sum));
        prop_assert_eq!(&merged["sent_requests"], &json!(sum + 7 * runs.len()));
        prop_assert_eq!(merged["lag"]["count"].as_u64().unwrap_or(0), sum as u64);
        prop_assert_eq!(&merged["errors"]["reset"], &json!(runs.len() * (runs.len() - 1) / 2));
        prop_assert_eq!(&merged["offered_per_second"], &json!(2000.0 * runs.len() as f64));
    }
}

#[test]
fn one_report_stays_as_it_is() {
    let report = usual("4");
    let mut merged = Files::of(std::slice::from_ref(&report)).merged();
    let reports = merged["merged"]["reports"].take();
    assert_eq!(reports.as_array().unwrap().len(), 1);
    assert_eq!(reports[0]["straggler"], json!([]), "{reports:#}");
    let merged = merged.as_object_mut().unwrap();
    merged.remove("merged");
    // It is in the list of reports.
    merged.insert("label".to_owned(), json!("4"));
    assert_eq!(Value::Object(merged.clone()), report);
}

#[test]
fn reports_may_stand_in_one_file() {
    let lines = [usual("0").to_string(), usual("1").to_string(), String::new()].join("\n");
    let merged = Files::with([lines, usual("2").to_string()]).merged();
    assert_eq!(merged["requests"], 6_000);
    assert_eq!(merged["connections"], 3 * 64);
    assert_eq!(merged["seed"], Value::Null);
    assert_eq!(merged["invalid"], Value::Null);
    assert_eq!(stragglers(&merged), [json!([]), json!([]), json!([])]);
}

#[test]
fn what_cannot_be_merged_is_refused_in_one_line() {
    let good = usual("0");
    let other = |change: fn(&mut Value)| {
        let mut other = usual("1");
        change(&mut other);
        other.to_string()
    };
    let words = |words: &str| printed(words, &tally(SECOND, &[5; 10]), Duration::ZERO).to_string();
    let whole = usual("1").to_string();
    for (second, expected) in [
        (String::new(), "1.json is empty"),
        (
            whole[..whole.len() / 2].to_owned(),
            "1.json ends in the middle of a report",
        ),
        (
            format!("{whole}{{\"protocol\""),
            "1.json ends in the middle of a report",
        ),
        (
            format!("{whole}\nquoit load: cannot connect\nx"),
            "1.json has something else than reports of `quoit load --json`: quoit load: cannot connect",
        ),
        ("5".to_owned(), "1.json is no report of `quoit load --json`"),
        ("{}".to_owned(), "1.json is no report of `quoit load --json`"),
        (
            "#[Histogram log format version 1.3]".to_owned(),
            "1.json is a log of HdrHistogram",
        ),
        (good.to_string(), "0.json and 1.json are the same report"),
        (
            other(|it| it["label"] = json!("0")),
            "0.json and 1.json both have the label 0",
        ),
        (
            other(|it| it["protocol"] = json!("udp")),
            "1.json is a report of `quoit load udp`",
        ),
        (
            other(|it| it["version"] = json!("9.9.9")),
            "version is \"0.1.0\" in one and \"9.9.9\" in the other",
        ),
        (
            other(|it| it["version"] = Value::Null),
            "1.json does not say which version wrote it",
        ),
        (
            other(|it| it["histogram_unit"] = json!("us")),
            "the unit of the histograms in 1.json is us",
        ),
        (
            other(|it| it["target"] = json!("[::1]:80")),
            "target is \"127.0.0.1:80\" in one and \"[::1]:80\"",
        ),
        (
            words("echo --connect 127.0.0.1:80 --rate 9"),
            "protocol is \"http\" in one and \"echo\" in the other",
        ),
        (
            words("http --connect 127.0.0.1:80"),
            "schedule is \"poisson\" in one and null in the other",
        ),
        (
            words("http --connect 127.0.0.1:80 --rate 9 --path /x"),
            "path is \"/plaintext\" in one",
        ),
        (
            words("http --connect 127.0.0.1:80 --rate 9 --churn"),
            "churn is false in one",
        ),
        (other(|it| it["merged"] = json!({})), "1.json is a merged report"),
        (
            other(|it| it["requests"] = json!(-1)),
            "1.json, of version 0.1.0, cannot be understood",
        ),
        (
            other(|it| it["errors"] = json!({})),
            "1.json, of version 0.1.0, cannot be understood: missing field",
        ),
        (
            other(|it| it["requests"] = json!(1_999)),
            "the histogram of 1.json is damaged: it has 2000 values, of 1999",
        ),
        (
            other(|it| it["histogram"] = json!("%")),
            "the histogram of 1.json is damaged",
        ),
        (
            other(|it| it["lag_histogram"] = json!("AAAA")),
            "the lag_histogram of 1.json is damaged",
        ),
        (
            other(|it| it["window_started_at"] = json!(-5.0)),
            "the times in 1.json are none",
        ),
    ] {
        let said = Files::with([good.to_string(), second]).refused();
        assert!(said.contains(expected), "{said}\nand not\n{expected}");
    }
    let said = merge(&[PathBuf::from("/nonexistent/a.json")])
        .unwrap_err()
        .to_string();
    assert!(said.starts_with("cannot read /nonexistent/a.json: "), "{said}");
    assert!(merge(&[]).is_err());
}

#[test]
fn a_file_is_merged_once() {
    let mut files = Files::of(&[usual("0"), usual("1")]);
    files.paths.push(files.paths[0].clone());
    assert_eq!(files.refused(), "0.json is given twice");
    let link = files.folder.path().join("link.json");
    std::os::unix::fs::symlink(&files.paths[0], &link).unwrap();
    files.paths[2] = link;
    assert_eq!(files.refused(), "0.json and link.json are the same file");
}

#[test]
fn stragglers_are_named() {
    let run = |label: &str, change: fn(&mut Tally), late: u64| {
        let mut found = tally(SECOND, &[1_000_000; 2_000]);
        change(&mut found);
        printed(&http(label), &found, Duration::from_millis(late))
    };
    let merged = |run: Value| {
        let merged = Files::of(&[usual("0"), run, usual("2")]).merged();
        assert_eq!(
            (&stragglers(&merged)[0], &stragglers(&merged)[2]),
            (&json!([]), &json!([]))
        );
        (stragglers(&merged)[1].clone(), merged)
    };
    // Of 2,000 latencies, 21 are the slowest hundredth.
    let slow = |latency: u64| {
        let mut latencies = [1_000_000; 2_000];
        latencies[..30].fill(latency);
        printed(&http("1"), &tally(SECOND, &latencies), Duration::ZERO)
    };
    assert_eq!(merged(slow(1_990_000)).0, json!([]));
    let (reasons, whole) = merged(slow(2_100_000));
    assert_eq!(reasons, json!(["slow"]));
    let one = &whole["merged"]["reports"][1];
    let near = |value: &Value, expected: f64| (value.as_f64().unwrap() / expected - 1.0).abs() < 0.001;
    assert!(
        near(&one["p99_ns"], 2_100_000.0) && near(&one["others_p99_ns"], 1_000_000.0),
        "{one:#}"
    );

    assert_eq!(merged(run("1", |_| (), 10)).0, json!([]));
    assert_eq!(
        merged(run(
            "1",
            |found| found.window = Some((0, SECOND - 11_000_000)),
            11
        ))
        .0,
        json!(["started_late"])
    );
    let early = run("1", |found| found.window = Some((0, SECOND / 2)), 0);
    let (reasons, whole) = merged(early);
    assert_eq!(reasons, json!(["ended_early"]));
    assert!(near(&whole["merged"]["common_seconds"], 0.5), "{whole:#}");
    assert_eq!(whole["invalid"], Value::Null);
    assert_eq!(merged(run("1", |found| found.unsent = 20, 0)).0, json!([]));
    assert_eq!(
        merged(run("1", |found| found.unsent = 21, 0)).0,
        json!(["fell_behind"])
    );
    let lagging = run("1", |found| found.lag.record_n(600_000, 9).unwrap(), 0);
    let (reasons, whole) = merged(lagging);
    assert_eq!((reasons, &whole["lagging"]), (json!(["lagging"]), &json!(true)));

    // Late is what began after the time that was given, also if all did.
    let with = |label: &str, late: u64| {
        let words = format!("{} --start-at 1700000000", http(label));
        let found = tally(SECOND, &[1_000_000; 2_000]);
        printed(&words, &found, Duration::from_millis(late))
    };
    let both = Files::of(&[with("0", 500), with("1", 500)]).merged();
    assert_eq!(
        stragglers(&both),
        [json!(["started_late"]), json!(["started_late"])]
    );
    assert!(near(&both["started_late_seconds"], 0.5), "{both:#}");
}

#[test]
fn windows_that_do_not_overlap_are_said_and_so_are_runs_that_failed() {
    let later = printed(&http("1"), &tally(SECOND, &[5; 9]), Duration::from_secs(3));
    let merged = Files::of(&[usual("0"), later]).merged();
    assert_eq!(
        merged["invalid"],
        "the windows do not overlap: that of 0 was over 2.000 s before that of 1 began"
    );
    assert_eq!(merged["merged"]["common_seconds"], 0.0);
    assert_eq!(merged["elapsed_seconds"].as_f64().unwrap().round(), 4.0);

    let failed = |label: &str| {
        let mut found = tally(SECOND, &[5; 9]);
        found.errors.reset = 2;
        found.first_error = Some("a connection failed".to_owned());
        printed(&http(label), &found, Duration::ZERO)
    };
    let merged = Files::of(&[usual("0"), failed("1"), failed("2")]).merged();
    assert_eq!(merged["invalid"], "1: errors occurred; and 1 more");
    assert_eq!(merged["first_error"], "1: a connection failed");
    assert_eq!(merged["errors"]["reset"], 4);

    // A window that never began is part of none.
    let mut nothing = Tally::new(SECOND).unwrap();
    nothing.first_error = Some("stopped".to_owned());
    let words: Vec<String> = http("1").split(' ').map(str::to_owned).collect();
    let plan = crate::arguments::plan(&words).unwrap();
    let latencies = Latencies::new(&nothing, None).unwrap();
    let report = Report::of_streams(&plan, &nothing, &latencies, Vec::new(), Ending::Interrupted).unwrap();
    let merged = Files::of(&[usual("0"), serde_json::to_value(report).unwrap()]).merged();
    assert_eq!(merged["elapsed_seconds"].as_f64().unwrap().round(), 1.0);
    assert_eq!(
        (&merged["invalid"], &merged["interrupted"]),
        (&json!("1: no reply was measured"), &json!(true))
    );
    assert_eq!(stragglers(&merged)[1], json!(["ended_early"]));
}

#[test]
fn runs_with_one_seed_are_warned_of() {
    let with = |label: &str| {
        let words = format!("http --connect 127.0.0.1:80 --rate 9 --label {label}");
        printed(&words, &tally(SECOND, &[5; 9]), Duration::ZERO)
    };
    let merged = Files::of(&[usual("3"), with("0"), with("1")]).merged();
    let warnings = merged["merged"]["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0]
            .as_str()
            .unwrap()
            .starts_with("2 reports have the seed 0, "),
        "{warnings:?}"
    );
    assert_eq!(
        Files::of(&[usual("3"), usual("4")]).merged()["merged"]["warnings"],
        json!([])
    );
}

#[test]
fn streams_of_rpc_are_merged_too() {
    let run = |label: &str, stream: u64| {
        let mut found = tally(SECOND, &[1_000_000; 6]);
        // Messages without a send time have no latency.
        found.requests = 9;
        found.stream_latencies.record_n(stream, 3).unwrap();
        let words = format!("rpc --connect 127.0.0.1:80 --messages 3 --label {label}");
        printed(&words, &found, Duration::ZERO)
    };
    let merged = Files::of(&[run("0", 1_000), run("1", 500_000)]).merged();
    assert_eq!(
        (&merged["requests"], &merged["rpc"]["streams_ended"]),
        (&json!(18), &json!(6))
    );
    assert_eq!(merged["rpc"]["stream_latency"]["p50_ns"], 1_000);
    let streams = decode(merged["rpc"]["stream_histogram"].as_str().unwrap()).unwrap();
    assert_eq!(
        (streams.len(), streams.value_at_quantile(0.6)),
        (6, streams.max())
    );

    let mut other = run("1", 5);
    other["rpc"]["credit"] = json!(7);
    let said = Files::of(&[run("0", 5), other]).refused();
    assert!(
        said.contains("rpc.credit is 1024 in one and 7 in the other"),
        "{said}"
    );
}

#[test]
fn the_table_names_stragglers() {
    let late = printed(
        &http("machine-7"),
        &tally(SECOND, &[1_000_000; 10]),
        Duration::from_millis(250),
    );
    let files = Files::of(&[usual("0"), late]);
    let table = merge(&files.paths).unwrap().report.to_table();
    assert!(table.contains("2 reports, all measuring for 0.750 s"), "{table}");
    assert!(table.contains("machine-7: started 0.250 s late"), "{table}");
}
