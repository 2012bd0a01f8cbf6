//! Many connections that end at once, with every server.

use std::collections::BTreeSet;
use std::process::Command;

/// As many as there are, and more than a turn handles.
const CONNECTIONS: u64 = 150;

#[test]
fn every_server_closes_what_its_peers_end() {
    let output = Command::new(env!("CARGO_BIN_EXE_quoit-cold-turn"))
        .args(["ends", "--rounds", "2", "--json"])
        .args(["--connections", &CONNECTIONS.to_string()])
        .output()
        .expect("the program runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cases = results["cases"].as_array().expect("a list of cases");
    let mut seen = BTreeSet::new();
    for case in cases {
        assert_eq!(case["connections"], CONNECTIONS);
        let (least, most) = (case["range"][0].as_f64(), case["range"][1].as_f64());
        let median = case["nanoseconds"].as_f64();
        assert!(Some(0.0) < least && least <= median && median <= most, "{case}");
        assert!(case["turns"].as_f64() > Some(1.0), "{case}");
        seen.insert((case["server"].to_string(), case["end"].to_string()));
    }
    assert_eq!(seen.len(), 8, "four servers and two ends: {seen:?}");
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_quoit-cold-turn"))
        .args(["peers", "--connect", "127.0.0.1:1", "--end", "close"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .and_then(|mut peers| {
            use std::io::Write;
            peers.stdin.take().expect("a pipe").write_all(b"1\n")?;
            peers.wait_with_output()
        })
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("connecting to 127.0.0.1:1: "), "{message}");
}
