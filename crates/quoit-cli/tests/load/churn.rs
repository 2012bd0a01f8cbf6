//! A connection for every request.

use std::io::{ErrorKind, Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use serde_json::Value;

use super::servers::{answer, echo, errors, number, plain, report, serve};

#[test]
fn every_request_has_a_connection_of_its_own_and_leaves_no_descriptor() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let address = serve(move |_, stream| {
        count.fetch_add(1, Ordering::Relaxed);
        answer(stream, |_| plain("Hello"));
    });
    for (options, requests) in [
        ("--connections 8", 1_000),
        ("--connections 8 --threads 2 --rate 20000", 1_001),
    ] {
        connections.store(0, Ordering::Relaxed);
        // Far fewer descriptors than connections.
        let load = format!(
            "load http --connect {address} --churn --warmup 0 --requests {requests} --json {options}"
        );
        let output = Command::new("sh")
            .args(["-c", &format!("ulimit -n 100 && exec \"$0\" {load}")])
            .arg(env!("CARGO_BIN_EXE_quoit"))
            .output()
            .expect("a shell can be started");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
        assert_eq!(
            (number(&found["requests"]), errors(&found)),
            (requests, 0),
            "{found:#}"
        );
        assert_eq!(number(&found["connects"]["count"]), requests, "{found:#}");
        assert_eq!(found["churn"], true, "{found:#}");
        // The check before the run is one more.
        assert_eq!(connections.load(Ordering::Relaxed) as u64, requests + 1);
        // A request's latency includes its connecting.
        assert!(
            found["latency"]["mean_ns"].as_f64() > found["connects"]["mean_ns"].as_f64(),
            "{found:#}"
        );
    }
}

#[test]
fn connections_end_in_a_reset_which_keeps_no_port() {
    let (sender, ends) = mpsc::channel();
    let address = serve(move |_, mut stream| {
        let mut buffer = [0; 64];
        let end = loop {
            match stream.read(&mut buffer) {
                Ok(0) => break None,
                Ok(length) => stream.write_all(&buffer[..length]).expect("the client reads"),
                Err(error) => break Some(error.kind()),
            }
        };
        sender.send(end).expect("the test waits for all");
    });
    let (code, found) = report(&format!(
        "load echo --connect {address} --churn --connections 2 --warmup 0 --requests 20"
    ));
    assert_eq!(code, 0, "{found:#}");
    let ends: Vec<_> = ends.iter().take(21).collect();
    let reset = ends
        .iter()
        .filter(|end| **end == Some(ErrorKind::ConnectionReset));
    // All but that of the check before the run.
    assert_eq!(reset.count(), 20, "{ends:?}");
}

#[test]
fn a_warm_up_comes_before_and_a_time_limits_it() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    for window in ["--requests 100", "--seconds 0.2"] {
        let (code, found) = report(&format!(
            "load echo --connect {address} --churn --connections 4 --warmup 0.05 {window}"
        ));
        assert_eq!((code, errors(&found)), (0, 0), "{found:#}");
        assert!(number(&found["requests"]) > 0, "{found:#}");
    }
}

#[test]
fn wrong_content_and_early_ends_are_found() {
    let address = serve(|number, stream| {
        answer(stream, |_| match number % 10 {
            3 => plain("Hellx"),
            5 => None,
            _ => plain("Hello"),
        });
    });
    let (code, found) = report(&format!(
        "load http --connect {address} --churn --connections 3 --warmup 0 --requests 100"
    ));
    assert_eq!(code, 1, "{found:#}");
    // Connections 1 to 100, of which ten end in 3 and ten in 5.
    assert_eq!(found["errors"]["wrong_content"], 10, "{found:#}");
    assert_eq!(found["errors"]["closed_early"], 10, "{found:#}");
    assert_eq!(found["errors"]["lost_requests"], 10, "{found:#}");
    assert_eq!(found["requests"], 80, "{found:#}");
}
