//! `quoit lab run` with datagrams: the accounts of both ends are held against each other.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{output, quoit};

const SINK: &str =
    "{quoit} serve {protocol} --listen {listen} --engine epoll --work {work} --max-datagram 2048";

/// Runs an experiment with the sink and another server, given by its command. Returns how it ended, the results, and
/// what was printed.
fn run(case: &str, other: &str) -> (Option<i32>, Value, String) {
    run_for("0.1", case, other, &[])
}

/// The same with slices of so many seconds, and further arguments.
fn run_for(seconds: &str, case: &str, other: &str, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let (file, out) = (folder.path().join("test.toml"), folder.path().join("out"));
    let text = format!(
        "title = \"A test\"\nabout = \"For the tests.\"\nbaseline = \"base\"\n\
         [effort]\npairs = 2\nmost_pairs = 2\nseconds = {seconds}\nwarm_up = 0\n\
         [workload]\nkind = \"datagrams\"\nsize = 200\nmode = \"sendmmsg\"\n{case}\n\
         [[server]]\nname = \"base\"\ncommand = '''{SINK}'''\nexpects = [\"engine=epoll\"]\n\
         [[server]]\nname = \"other\"\ncommand = '''{other}'''\n"
    );
    fs::write(&file, text).expect("the file can be written");
    let mut command = quoit("lab run");
    command.args([&file, std::path::Path::new("--out"), &out]);
    command.args(arguments);
    let output = output(command);
    let results = fs::read(out.join("results.json")).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let printed = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        serde_json::from_slice(&results).expect("the results are JSON"),
        String::from_utf8(printed).expect("text"),
    )
}

#[test]
fn every_datagram_of_a_run_is_accounted_for() {
    for case in [
        "rate = 20000\nwork = 300",
        "judge = \"handled\"\ncount = 3000\nsenders = 2",
    ] {
        let (code, results, printed) = run(case, SINK);
        assert_eq!(code, Some(0), "{printed}");
        let measured = &results["cases"][0];
        assert_eq!(measured["unit"], "datagram", "{measured:#}");
        let slices = measured["slices"].as_array().expect("slices are a list");
        assert!(slices.len() >= 8, "{measured:#}");
        for figures in slices
            .iter()
            .filter(|slice| slice["spoiled"].is_null())
            .map(|slice| &slice["figures"])
        {
            let datagrams = &figures["datagrams"];
            let number = |value: &Value| value.as_f64().expect("a number");
            assert_eq!(
                number(&datagrams["sent"]),
                number(&figures["units"]) + number(&datagrams["missing"])
            );
            assert!(number(&datagrams["pool_bytes"]) > 0.0, "{figures:#}");
        }
        assert!(printed.contains("packets dropped"), "{printed}");
    }
}

#[test]
fn what_follows_an_overload_is_shown_and_seconds_are_sampled() {
    // The sink is slower than the overload, and faster than what follows it.
    let case = "rate = 2000\nwork = 20000\noverload = 100\njudge = \"handled\"";
    let (code, results, printed) = run_for("3.3", case, SINK, &[]);
    assert_eq!(code, Some(0), "{printed}");
    let workload = results["cases"][0]["workload"].as_str().expect("a text");
    assert!(workload.contains("behind 100 times as many"), "{workload}");
    let slices = results["cases"][0]["slices"]
        .as_array()
        .expect("slices are a list");
    for slice in slices.iter().filter(|slice| slice["spoiled"].is_null()) {
        let number = |value: &Value| value.as_f64().expect("a number");
        let recovery = &slice["figures"]["datagrams"]["recovery"];
        assert!((number(&recovery["of_seconds"]) - 2.2).abs() < 0.01, "{slice:#}");
        assert!(number(&recovery["handled_share_before"]) < 1.0, "{slice:#}");
        assert!(number(&recovery["seconds"]) <= 2.2, "{slice:#}");
        let samples = slice["samples"].as_array().expect("samples are a list");
        assert!(samples.len() >= 2, "{slice:#}");
        let drops: f64 = samples.iter().map(|sample| number(&sample["drops"])).sum();
        assert!(drops > 0.0, "{slice:#}");
        for sample in samples {
            assert!(number(&sample["units"]) <= number(&sample["sent"]), "{slice:#}");
            assert!(sample["socket_bytes"].is_u64(), "{slice:#}");
        }
    }
    assert!(printed.contains("recovered after"), "{printed}");
}

#[test]
fn a_share_of_what_the_baseline_handles_is_measured_first() {
    let (code, results, printed) = run("share_of_peak = 0.01", SINK);
    assert_eq!(code, Some(0), "{printed}");
    let offered = results["cases"][0]["offered_per_second"]
        .as_f64()
        .expect("there is a rate");
    let note = format!("the baseline's peak is {:.0} datagrams/s", offered / 0.01);
    assert!(
        results["notes"].to_string().contains(&note),
        "{note}: {results:#}"
    );
}

#[test]
fn a_run_fails_whose_sums_do_not_close() {
    // The socket is said to have dropped more than is missing.
    let liar = format!("sh -c \"{SINK} | sed -u s/.drops.:/\\\\\\\"drops\\\\\\\":9/\"");
    let (code, results, printed) = run("rate = 5000", &liar);
    assert_eq!(code, Some(1), "{printed}");
    let why = results["incomplete"].as_str().expect("it says why");
    assert!(
        why.contains("other") && why.contains("the sums do not add up"),
        "{why}"
    );
}

/// One that says nothing is known to be ready by its port, which takes no connection.
#[test]
fn a_server_of_ones_own_takes_datagrams() {
    let quoit = env!("CARGO_BIN_EXE_quoit");
    let mine = format!(
        "mine=sh -c '{quoit} serve udp-sink --engine epoll --max-datagram 2048 --listen $0 | grep -v listening' {{listen}}"
    );
    let (code, results, printed) = run_for("0.1", "rate = 20000", SINK, &["--server", &mine]);
    assert_eq!(code, Some(0), "{printed}");
    let slices = results["cases"][0]["slices"]
        .as_array()
        .expect("slices are a list");
    let mine: Vec<&Value> = slices.iter().filter(|slice| slice["server"] == "mine").collect();
    assert!(!mine.is_empty(), "{printed}");
    for slice in mine {
        assert!(slice["figures"]["units"].as_f64() > Some(0.0), "{slice:#}");
    }
}
