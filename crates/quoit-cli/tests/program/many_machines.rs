//! `quoit load` in many processes that begin together, merged: as from many machines.

use std::process::{Child, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Client, Server, connect, engines, error_line, quoit, run};

const PROCESSES: u64 = 8;

/// The longest that a beginning is put ahead. The processes of a machine that does much else need time to be ready.
const FURTHEST_SECONDS: f64 = 100.0;

/// A server, what it counts at, and the reports of processes that began together on it, as files in `folder`. They begin
/// so soon that not all may be ready: then all is tried again with more time.
fn load(server: &str, options: &str, folder: &TempDir) -> (Server, String, Vec<String>) {
    let mut ahead = 2.0;
    loop {
        let mut command = quoit(server);
        command.args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        let server = Server::start_command(command, 1);
        let metrics = server.message("metrics on ");
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        let start = now + ahead;
        let begin = |number: u64| {
            let address = server.address();
            let mut command = quoit(&format!(
                "load {options} --connect {address} --start-at {start:.3} --label {number} --seed {number} --json"
            ));
            command
                .arg("--hdr")
                .arg(folder.path().join(format!("{number}.hlog")));
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let processes: Vec<Child> = (0..PROCESSES).map(begin).collect();
        let ended: Vec<_> = processes
            .into_iter()
            .map(|process| process.wait_with_output().unwrap())
            .collect();
        let is_late = |said: &[u8]| String::from_utf8_lossy(said).contains("give --start-at a later time");
        if ended.iter().any(|output| is_late(&output.stderr)) && ahead < FURTHEST_SECONDS {
            ahead *= 2.0;
            continue;
        }
        let reports = ended.iter().enumerate().map(|(number, output)| {
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let path = folder.path().join(format!("{number}.json"));
            std::fs::write(&path, &output.stdout).unwrap();
            path.display().to_string()
        });
        return (server, metrics, reports.collect());
    }
}

fn read(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The latencies of all logs that the processes wrote, value by value in one histogram.
fn logged(logs: impl Iterator<Item = std::path::PathBuf>) -> Histogram<u64> {
    let mut all = Histogram::new(3).unwrap();
    for log in logs {
        let text = std::fs::read(log).unwrap();
        for entry in IntervalLogIterator::new(&text) {
            let LogEntry::Interval(interval) = entry.unwrap() else {
                continue;
            };
            if interval.tag().unwrap().as_str() == "all" {
                let bytes = base64_of(interval.encoded_histogram());
                let one: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
                for value in one.iter_recorded() {
                    all.record_n(value.value_iterated_to(), value.count_at_value())
                        .unwrap();
                }
            }
        }
    }
    all
}

fn base64_of(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.decode(text).unwrap()
}

/// A counter of the server, over all its loops.
fn counter(metrics: &str, name: &str) -> u64 {
    let text = Client::new(connect(metrics)).get("/metrics").text().to_owned();
    let of = format!("quoit_{name}_total{{");
    let counts = text.lines().filter(|line| line.starts_with(&of)).map(|line| {
        let (_, count) = line.rsplit_once(' ').unwrap();
        count.parse::<u64>().unwrap()
    });
    counts.sum()
}

#[test]
fn eight_processes_merged_agree_with_the_server_and_with_one_histogram() {
    const SIZE: u64 = 100;
    const REQUESTS: u64 = 2_000;
    for engine in engines() {
        let folder = tempfile::tempdir().unwrap();
        // The windows last two seconds, so that they overlap on a machine that does much else.
        let options = format!(
            "echo --size {SIZE} --connections 4 --pipeline 64 --rate 1000 --requests {REQUESTS} --warmup 0.1"
        );
        let server = format!("serve echo --engine {engine} --loops 2");
        let (_server, metrics, files) = load(&server, &options, &folder);
        let log = folder.path().join("all.hlog");
        let output = run(&format!(
            "load merge {} --json --hdr {}",
            files.join(" "),
            log.display()
        ));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let merged: Value = serde_json::from_slice(&output.stdout).unwrap();
        let parts: Vec<Value> = files.iter().map(|file| read(file)).collect();

        for name in [
            "requests",
            "sent_requests",
            "received_replies",
            "received_bytes",
            "connections",
        ] {
            let sum: u64 = parts.iter().map(|part| number(part, name)).sum();
            assert_eq!(number(&merged, name), sum, "{name}");
        }
        assert_eq!(number(&merged, "requests"), REQUESTS * PROCESSES);
        assert_eq!(
            number(&merged, "sent_requests"),
            number(&merged, "received_replies")
        );
        // The warm-up is in it.
        assert!(number(&merged, "sent_requests") > REQUESTS * PROCESSES);
        // The server's own counts have the check before each run, too.
        let messages = number(&merged, "sent_requests") + PROCESSES;
        assert_eq!(counter(&metrics, "accepted"), (4 + 1) * PROCESSES);
        assert_eq!(counter(&metrics, "received_bytes"), SIZE * messages);
        assert_eq!(counter(&metrics, "sent_bytes"), SIZE * messages);

        let logs = (0..PROCESSES).map(|number| folder.path().join(format!("{number}.hlog")));
        let one = logged(logs);
        assert_eq!(one.len(), REQUESTS * PROCESSES);
        assert_eq!(logged(std::iter::once(log)), one);
        for (name, quantile) in [
            ("p50_ns", 0.5),
            ("p90_ns", 0.9),
            ("p99_ns", 0.99),
            ("p99_9_ns", 0.999),
        ] {
            assert_eq!(
                number(&merged["latency"], name),
                one.value_at_quantile(quantile),
                "{name}"
            );
        }
        assert_eq!(number(&merged["latency"], "max_ns"), one.max());
        assert_eq!(merged["offered_per_second"], 1_000.0 * PROCESSES as f64);

        let runs = merged["merged"]["reports"].as_array().unwrap();
        assert_eq!(runs.len() as u64, PROCESSES);
        for (index, (run, part)) in runs.iter().zip(&parts).enumerate() {
            assert_eq!(run["name"], index.to_string());
            let [start, late, began] = ["start_at", "started_late_seconds", "window_started_at"]
                .map(|name| part[name].as_f64().unwrap());
            assert_eq!(part["start_at"], parts[0]["start_at"]);
            assert!(late >= 0.0 && (began - start - late).abs() < 1e-5, "{part:#}");
        }

        let table = run(&format!("load merge {}", files.join(" ")));
        assert_eq!(table.status.code(), Some(0), "{table:?}");
        let table = String::from_utf8_lossy(&table.stdout).into_owned();
        assert!(table.contains("8 reports, all measuring for"), "{table}");
    }
}

fn number(report: &Value, name: &str) -> u64 {
    report[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {report:#}"))
}

#[test]
fn merging_ends_with_codes_that_mean_something() {
    let output = run("load merge");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let line = error_line(&run("load merge /nonexistent/a.json"), 1);
    assert!(
        line.starts_with("quoit load: cannot read /nonexistent/a.json"),
        "{line}"
    );
}

#[test]
fn a_beginning_that_cannot_be_is_refused_before_anything_is_sent() {
    for (start, expected) in [
        ("2001-09-09T01:46:40Z", "give --start-at a later time"),
        ("1000000000", "give --start-at a later time"),
        ("99999999999999", "days ahead"),
        ("2999-01-01T00:00:00+01:00", "days ahead"),
    ] {
        // Nobody listens there.
        let line = error_line(
            &run(&format!("load http --connect 127.0.0.1:1 --start-at {start}")),
            1,
        );
        assert!(line.contains(expected), "{line}");
    }
}
