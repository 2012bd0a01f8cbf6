//! `quoit lab run` with generators that its own command starts elsewhere: here in another network namespace.

use std::fs;
use std::process::{Command, Stdio};

use quoit_skipped::{needs_root, skip_this, this_test};
use serde_json::Value;

/// Makes two namespaces with a cable between them, and runs the program in the first one. `$1` is a folder, in which
/// `elsewhere` runs a command in the second namespace and writes it to `started`; the rest is the program's command
/// line. Namespaces without names end with the processes in them.
const SCRIPT: &str = r#"
set -eu
folder=$1
shift
mkfifo "$folder/ready"
unshare --net sh -c 'echo > "$0/ready"; exec tail --pid "$1" -f /dev/null' "$folder" $$ &
other=$!
trap 'kill $other' EXIT
read -r _ < "$folder/ready"
ip link set lo up
ip link add here type veth peer name there netns "$other"
ip address add 192.0.2.1/24 dev here
ip link set here up
nsenter --net="/proc/$other/ns/net" ip address add 192.0.2.2/24 dev there
nsenter --net="/proc/$other/ns/net" ip link set there up
printf '#!/bin/sh\necho "$*" >> "%s/started"\nexec nsenter --net=/proc/%s/ns/net "$@"\n' "$folder" "$other" \
    > "$folder/elsewhere"
chmod +x "$folder/elsewhere"
"$@"
"#;

const EXPERIMENT: &str = r#"
title = "T"
about = "A"
baseline = "quoit-epoll"
servers = ["quoit-epoll"]
placement = "remote"
host = "192.0.2.1"
generators = ["FOLDER/elsewhere {generator}", "FOLDER/elsewhere {generator}"]
[effort]
pairs = 2
most_pairs = 2
seconds = 0.2
warm_up = 0.05
[workload]
protocol = "echo"
connections = 5
"#;

#[test]
fn generators_in_another_namespace_are_measured_as_one() {
    let permitted = Command::new("unshare").args(["--net", "ip", "link"]).output();
    match permitted {
        Ok(output) if output.status.success() => {}
        refused => {
            let said = refused
                .as_ref()
                .map(|refused| String::from_utf8_lossy(&refused.stderr));
            return match said {
                Ok(said) if said.contains("not permitted") => needs_root(this_test(), "CAP_SYS_ADMIN"),
                _ => skip_this(format_args!("unshare --net ip link: {refused:?}")),
            };
        }
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().to_str().expect("text");
    let file = format!("{path}/x.toml");
    fs::write(&file, EXPERIMENT.replace("FOLDER", path)).expect("a file can be written");
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", SCRIPT, "sh", path])
        .args([
            env!("CARGO_BIN_EXE_quoit"),
            "lab",
            "run",
            &file,
            "--json",
            "--out",
        ])
        .arg(folder.path().join("out"))
        .stdin(Stdio::null())
        .output()
        .expect("unshare is there");
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    let results: Value = serde_json::from_slice(&output.stdout).expect("the results");
    assert_eq!(results["placement"]["kind"], "remote", "{results:#}");
    let case = &results["cases"][0];
    let slices = case["slices"].as_array().expect("a list");
    assert!(slices.len() >= 4, "{case:#}");
    for slice in slices {
        let figures = &slice["figures"];
        for name in ["units", "server_cpu_ns_per_unit", "generator_cpu_ns_per_unit"] {
            assert!(figures[name].as_f64() > Some(0.0), "{name}: {slice:#}");
        }
        assert!(figures["latency"]["p50_ns"].as_f64() > Some(0.0), "{slice:#}");
    }
    // Each of the two has its share of the connections, and finds the server where the file says.
    let started = fs::read_to_string(folder.path().join("started")).expect("generators were started");
    for share in ["--connections 3", "--connections 2"] {
        let times = started.lines().filter(|line| line.contains(share)).count();
        assert!(times >= slices.len(), "{share}: {started}");
    }
    assert!(
        started.lines().all(|line| line.contains("--connect 192.0.2.1:")),
        "{started}"
    );
}
