//! `quoit lab demo`, where there is one engine, and `quoit lab list`.

use serde_json::Value;

use crate::support::{deny_io_uring, output, quoit};

#[test]
fn without_io_uring_the_demo_shows_epoll_and_says_why() {
    let mut command = quoit("lab demo --seconds 1 --json");
    deny_io_uring(&mut command);
    let output = output(command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let demo: Value = serde_json::from_slice(&output.stdout).unwrap();
    let case = &demo["cases"][0];
    let [epoll] = &case["servers"].as_array().unwrap()[..] else {
        panic!("{demo:#}");
    };
    assert_eq!(epoll["server"], "quoit-epoll");
    let rate = epoll["figures"]["units_per_second"].as_f64();
    assert!(rate > Some(0.0), "{epoll:#}");
    // Its own counters are those that `serve` shows.
    for counter in ["enters", "submissions", "completions", "system_calls", "sends"] {
        let rose = case["slices"][0]["counters"][counter].as_f64();
        assert!(rose > Some(0.0), "{counter}: {case:#}");
    }
    let [left_out] = &demo["left_out"].as_array().unwrap()[..] else {
        panic!("{demo:#}");
    };
    assert_eq!(left_out["what"], "quoit-uring");
    let reason = left_out["why"].as_str().unwrap();
    assert!(reason.contains("denied by a seccomp filter"), "{reason}");
}

#[test]
fn the_list_names_every_experiment_and_what_is_missing() {
    let mut command = quoit("lab list");
    command.env("QUOIT_LAB_PEERS", "/nowhere");
    command.env("QUOIT_LAB_URINGNET", "cat {listen}");
    deny_io_uring(&mut command);
    let output = output(command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "\nplaintext: ",
        "\nloops: ",
        "    gnet: there is no /nowhere/gnet; run `make lab-peers`",
        "    cannot run here: features: the baseline cannot run here",
        "denied by a seccomp filter",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("QUOIT_LAB_URINGNET is not set"), "{text}");
}

#[test]
fn a_mistake_in_a_command_from_the_environment_is_told() {
    let mut command = quoit("lab list");
    command.env("QUOIT_LAB_URINGNET", "cat {lisen}");
    let output = output(command);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("quoit lab: lab/servers.toml:"), "{text}");
    assert!(
        text.contains("`{lisen}` is not a placeholder; did you mean `listen`?"),
        "{text}"
    );
}
