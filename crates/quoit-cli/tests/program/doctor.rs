//! `quoit doctor`, where io_uring is usable and where it is not.

use serde_json::Value;

use crate::support::{deny_io_uring, engines, output, quoit, run};

fn json(command: std::process::Command) -> Value {
    let output = output(command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn denied_io_uring_is_told_with_a_remedy() {
    let mut command = quoit("doctor");
    deny_io_uring(&mut command);
    let output = output(command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let verdict = text.lines().next().unwrap();
    assert!(
        verdict.starts_with(
            "engine: epoll, because making a ring (io_uring_setup) is denied by a seccomp filter"
        ) && verdict.contains("; remedy: use a seccomp profile that allows io_uring_setup"),
        "{verdict}"
    );
    assert!(text.contains("RLIMIT_MEMLOCK"), "{text}");

    let mut command = quoit("doctor --json");
    deny_io_uring(&mut command);
    let found = json(command);
    assert_eq!(found["engine"], "epoll");
    assert_eq!(found["uring"]["usable"], false);
    assert!(found["uring"]["remedy"].as_str().unwrap().contains("seccomp"));
    assert!(
        found["features"]
            .as_array()
            .unwrap()
            .iter()
            .all(|feature| feature["state"] == "unknown")
    );
}

#[test]
fn scripts_can_require_io_uring() {
    let mut command = quoit("doctor --require uring");
    deny_io_uring(&mut command);
    assert_eq!(output(command).status.code(), Some(1));
    let found = run("doctor --require uring");
    assert_eq!(found.status.success(), engines().contains(&"uring"), "{found:?}");
}

#[test]
fn the_findings_are_those_that_a_server_starts_with() {
    let found = json(quoit("doctor --json"));
    assert_eq!(found["engine"], engines()[0]);
    let memory = &found["memory_a_loop"];
    assert_eq!(memory["registered_pool_bytes"], 0);
    assert!(memory["locked_bytes"].as_u64() > Some(0));
    let registered = json(quoit("doctor --json --register-pool"));
    assert_eq!(
        registered["memory_a_loop"]["registered_pool_bytes"],
        memory["receive_pool_bytes"]
    );
    for setting in found["settings"].as_array().unwrap() {
        assert!(
            setting["name"].is_string() && setting["value"].is_string(),
            "{setting}"
        );
    }
    let text = String::from_utf8(run("doctor").stdout).unwrap();
    let verdict = format!("engine: {}", engines()[0]);
    assert!(text.starts_with(&verdict), "{text}");
}
