//! Requests on a timetable.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use serde_json::Value;

use super::servers::{echo, errors, number, report, serve};

/// How long a server stands still. Well beyond what a busy machine does to a test by itself.
const STILL: Duration = Duration::from_millis(400);

/// A timer that nothing ends early: the sender is kept and sends nothing.
fn stand_still(timer: &(Sender<()>, Receiver<()>)) {
    let _ended = timer.1.recv_timeout(STILL);
}

/// An echo server that stands still once, at message 50 of its second connection, which is the run's first.
fn stalling_server() -> String {
    serve(|number, stream| {
        let timer = mpsc::channel();
        let mut seen = 0;
        echo(stream, |bytes| {
            let before = seen;
            seen += bytes.len();
            if number == 1 && (before..seen).contains(&(50 * 64)) {
                stand_still(&timer);
            }
        });
    })
}

#[test]
fn a_server_that_stands_still_shows_in_the_open_loop_and_hides_from_the_closed_one() {
    let options = "--connections 1 --warmup 0";
    let still = STILL.as_nanos() as u64;

    // 400 of 1,000 requests fall due while the server stands still. Whether nothing counts as a gap of the generator's or
    // nearly every request overlaps one: they are in the percentiles.
    for slip in ["60000", "0.01"] {
        let (code, open) = report(&format!(
            "load echo --connect {} {options} --pipeline 64 --slip {slip} --rate 1000 --schedule fixed --requests 1000",
            stalling_server()
        ));
        assert_eq!(code, 0, "{open:#}");
        assert!(number(&open["latency"]["p99_ns"]) > still / 2, "{open:#}");
        assert!(number(&open["latency"]["max_ns"]) > still * 9 / 10, "{open:#}");
    }

    // In a closed loop it is one of 5,000.
    let (code, closed) = report(&format!(
        "load echo --connect {} {options} --requests 5000",
        stalling_server()
    ));
    assert_eq!(code, 0, "{closed:#}");
    assert!(number(&closed["latency"]["p99_ns"]) < still / 2, "{closed:#}");
    assert!(
        number(&closed["latency"]["max_ns"]) > still * 9 / 10,
        "{closed:#}"
    );
}

#[test]
fn every_request_of_the_timetable_is_sent_once() {
    for options in [
        "--connections 5 --rate 20000 --requests 1001",
        "--connections 5 --rate 20000 --requests 1001 --threads 2 --pipeline 4",
        "--connections 5 --rate 20000 --requests 1001 --schedule fixed --batch 7 --pipeline 4",
        // More than is answered: requests wait for the connection.
        "--connections 1 --rate 1e7 --requests 1001",
    ] {
        let bytes = Arc::new(AtomicU64::new(0));
        let count = bytes.clone();
        let address = serve(move |_, stream| {
            let count = count.clone();
            echo(stream, move |bytes| {
                count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            });
        });
        let (code, found) = report(&format!("load echo --connect {address} --warmup 0 {options}"));
        assert_eq!((code, errors(&found)), (0, 0), "{found:#}");
        assert_eq!(found["requests"], 1001, "{options}: {found:#}");
        // The check before the run is one more.
        assert_eq!(bytes.load(Ordering::Relaxed), 1002 * 64, "{options}");
        assert!(found["lag"]["count"].as_u64() <= Some(1001), "{found:#}");
    }
}

#[test]
fn what_fell_due_was_answered_or_is_said_to_be_missing() {
    for (server, rate) in [
        (serve(|_, stream| echo(stream, |_| {})), 2_000.0),
        // It stands still for most of the window.
        (stalling_server(), 20_000.0),
    ] {
        let (_, found) = report(&format!(
            "load echo --connect {server} --connections 1 --warmup 0 --seconds 0.5 --schedule fixed --rate {rate}"
        ));
        let parts = ["requests", "unanswered_requests", "unsent_requests"];
        let due: u64 = parts.iter().map(|part| number(&found[part])).sum();
        let elapsed = found["elapsed_seconds"].as_f64().expect("a number");
        let expected = elapsed * rate;
        // The timetable may begin moments before the window does.
        assert!(
            (due as f64 - expected).abs() <= 1.0 + rate / 1_000.0,
            "{due} of {expected}: {found:#}"
        );
        assert_eq!(found["offered_per_second"], rate, "{found:#}");
    }
}

#[test]
fn a_timetable_with_long_gaps_is_no_stall() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    // The second request falls due long after the patience with a silent server in a closed loop.
    let (code, found) = report(&format!(
        "load echo --connect {address} --connections 1 --warmup 0 --rate 0.4 --schedule fixed --requests 2 \
         --timeout 0.2"
    ));
    assert_eq!((code, errors(&found)), (0, 0), "{found:#}");
    assert_eq!(found["requests"], 2, "{found:#}");
}

#[test]
fn wrong_content_is_found_in_the_open_loop() {
    let address = serve(|number, stream| {
        let mut seen = 0;
        echo(stream, |bytes| {
            let target = 30 * 64 + 63;
            if number > 0 && (seen..seen + bytes.len()).contains(&target) {
                bytes[target - seen] ^= 0x80;
            }
            seen += bytes.len();
        });
    });
    let (code, found) = report(&format!(
        "load echo --connect {address} --connections 2 --warmup 0 --rate 5000 --requests 500"
    ));
    assert_eq!(code, 1, "{found:#}");
    let wrong = number(&found["errors"]["wrong_content"]);
    // The connections that are opened again meet the same server.
    assert!(wrong >= 2, "{found:#}");
    let lost = number(&found["errors"]["lost_requests"]);
    assert_eq!(number(&found["requests"]) + wrong + lost, 500, "{found:#}");
}

#[test]
fn a_generator_that_was_stopped_says_so_and_how_much_may_be_its_own() {
    let (sender, process) = mpsc::channel::<u32>();
    let process = std::sync::Mutex::new(process);
    let address = serve(move |number, stream| {
        let process = &process;
        let timer = mpsc::channel();
        let mut seen = 0;
        echo(stream, |bytes| {
            let before = seen;
            seen += bytes.len();
            if number == 1 && (before..seen).contains(&(100 * 64)) {
                let id = process
                    .lock()
                    .unwrap()
                    .recv()
                    .expect("the test tells the process");
                signal("STOP", id);
                stand_still(&timer);
                signal("CONT", id);
            }
        });
    });
    let child = Command::new(env!("CARGO_BIN_EXE_quoit"))
        .args(["load", "echo", "--connect", &address])
        .args(
            "--connections 1 --pipeline 600 --warmup 0 --rate 1000 --requests 600 --slip 100 --json"
                .split(' '),
        )
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    sender.send(child.id()).expect("the server waits for it");
    let output = child.wait_with_output().expect("the program ends");
    let found: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    assert_eq!(output.status.code(), Some(0), "{found:#}");
    let still = STILL.as_nanos() as u64;
    assert!(number(&found["slips"]["count"]) >= 1, "{found:#}");
    assert!(number(&found["slips"]["longest_ns"]) > still / 2, "{found:#}");
    assert!(found["slipped_share"].as_f64() > Some(0.1), "{found:#}");
    // It was the generator's fault: nothing kept it from sending more.
    assert!(number(&found["lag"]["max_ns"]) > still / 2, "{found:#}");
    // It is in the latencies, and said to be the generator's, perhaps.
    assert!(number(&found["latency"]["max_ns"]) > still / 2, "{found:#}");
    assert!(
        number(&found["latency_at_least"]["max_ns"]) < number(&found["latency"]["max_ns"]),
        "{found:#}"
    );
    assert_eq!(found["slipping"], true, "{found:#}");
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &process.to_string()])
        .status();
    assert!(sent.expect("kill can be started").success());
}
