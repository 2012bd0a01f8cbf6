//! What a run prints and writes beside its table.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;

use super::servers::{echo, error_line, number, quoit, report, serve};

#[test]
fn intervals_add_up_to_the_window() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let output = quoit(&format!(
        "load echo --connect {address} --connections 4 --threads 2 --warmup 0.05 --seconds 0.6 --interval 0.2 --json"
    ));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = String::from_utf8_lossy(&output.stderr).into_owned();
    let starts: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.split(" s: ").next())
        .collect();
    assert_eq!(starts, ["0.2", "0.4", "0.6"], "{lines}");
    assert!(
        lines.lines().all(|line| line.contains("requests/s, p50 ")),
        "{lines}"
    );
    let found: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    let intervals = found["intervals"].as_array().expect("intervals are a list");
    assert_eq!(intervals.len(), 3, "{found:#}");
    let sum: u64 = intervals
        .iter()
        .map(|interval| number(&interval["requests"]))
        .sum();
    assert_eq!(sum, number(&found["requests"]), "{found:#}");
    let mean = found["rate"]["mean"].as_f64().expect("a number");
    assert!((mean * 0.6 - sum as f64).abs() < 1.0, "{found:#}");
    for share in [&found["rate"], &found["latency"]] {
        let share = share["within_standard_deviation"].as_f64();
        assert!(share > Some(0.0) && share <= Some(1.0), "{found:#}");
    }
}

#[test]
fn a_log_has_all_latencies_and_their_lower_bound() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("load.hlog");
    let (code, found) = report(&format!(
        "load echo --connect {address} --connections 4 --threads 2 --warmup 0 --requests 500 --hdr {}",
        path.display()
    ));
    assert_eq!(code, 0, "{found:#}");
    let log = std::fs::read(&path).expect("the log was written");
    let lines: Vec<_> = IntervalLogIterator::new(&log)
        .filter_map(|entry| match entry.expect("the log can be read") {
            LogEntry::Interval(interval) => Some((
                interval.tag().expect("it is tagged").as_str().to_owned(),
                interval.encoded_histogram().to_owned(),
                interval.start_timestamp().as_secs_f64(),
            )),
            _ => None,
        })
        .collect();
    let tags: Vec<&str> = lines.iter().map(|line| line.0.as_str()).collect();
    assert_eq!(tags, ["all", "at-least"]);
    assert_eq!(found["histogram"], lines[0].1.as_str(), "{found:#}");
    assert_eq!(found["histogram_at_least"], lines[1].1.as_str(), "{found:#}");
    let started = found["window_started_at"].as_f64().expect("a number");
    assert!((started - lines[0].2).abs() < 0.001, "{found:#}");

    let line = error_line(&quoit(&format!(
        "load echo --connect {address} --warmup 0 --requests 1 --connections 1 --hdr /nonexistent/load.hlog"
    )));
    assert!(line.contains("/nonexistent/load.hlog"), "{line}");
}

#[test]
fn a_window_begins_at_the_time_that_was_set() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let now = seconds_since_1970();
    let start = now + 2.0;
    let load = format!("load echo --connect {address} --connections 2 --warmup 0.1 --seconds 0.1");
    let (code, found) = report(&format!("{load} --start-at {start:.3}"));
    assert_eq!(code, 0, "{found:#}");
    let began = found["window_started_at"].as_f64().expect("a number");
    // Not before; and the window's end is where it was to be, so that it is shorter if it began late.
    let elapsed = found["elapsed_seconds"].as_f64().expect("a number");
    assert!(began >= start - 0.001, "{found:#}");
    assert!(began + elapsed <= start + 0.101, "{found:#}");

    let line = error_line(&quoit(&format!("{load} --start-at {now:.3}")));
    assert!(line.contains("--start-at a later time"), "{line}");
}

#[test]
fn connections_wait_for_their_time() {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let address = serve({
        let opened = opened.clone();
        move |number, stream| {
            if number > 0 {
                opened
                    .lock()
                    .expect("nobody panics with it")
                    .push(seconds_since_1970());
            }
            echo(stream, |_| {});
        }
    });
    let start = seconds_since_1970() + 4.0;
    let load = format!("load echo --connect {address} --connections 2 --warmup 0 --timeout 2 --seconds 0.1");
    let (code, found) = report(&format!("{load} --label one --start-at {start:.3}"));
    assert_eq!(code, 0, "{found:#}");
    assert_eq!(found["label"], "one");
    assert!(found["started_late_seconds"].as_f64() >= Some(0.0), "{found:#}");
    // A server would close those that do nothing for long.
    let opened = opened.lock().expect("nobody panics with it");
    assert_eq!(opened.len(), 2);
    assert!(
        opened.iter().all(|at| *at >= start - 2.001),
        "{opened:?} for {start}"
    );
}

fn seconds_since_1970() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs_f64()
}
