//! The chart alone, and what is made of it.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::tools::{SERVERS, deploy, printed, program, rendered};

fn text(path: &str) -> String {
    fs::read_to_string(deploy(path)).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(&text("chart/values.schema.json")).unwrap()
}

#[test]
fn the_chart_has_the_version_of_the_project() {
    let chart = text("chart/Chart.yaml");
    for field in ["version", "appVersion"] {
        let expected = format!("{field}: {}", env!("CARGO_PKG_VERSION"));
        assert!(chart.lines().any(|line| line == expected), "{expected}");
    }
}

/// The values of a file of YAML, as paths: what is indented by two belongs to the line before that is not.
fn paths(values: &str) -> BTreeSet<String> {
    let (mut paths, mut parent) = (BTreeSet::new(), String::new());
    for line in values.lines() {
        let indented = line.starts_with("  ");
        let Some((name, value)) = line.trim().split_once(':') else {
            continue;
        };
        if name.starts_with('#') {
            continue;
        }
        if !indented {
            parent = name.to_owned();
        }
        let path = if indented {
            format!("{parent}.{name}")
        } else {
            name.to_owned()
        };
        if !value.is_empty() {
            paths.insert(path);
        }
    }
    paths
}

/// Every value has bounds, and what has bounds is a value.
#[test]
fn every_value_has_bounds_and_stands_in_the_document() {
    let mut bounded = BTreeSet::new();
    let schema = schema();
    let properties = |of: &Value| -> Vec<(String, Value)> {
        let properties = of["properties"].as_object().unwrap();
        assert_eq!(of["additionalProperties"], false, "{of}");
        properties
            .iter()
            .map(|(name, of)| (name.clone(), of.clone()))
            .collect()
    };
    for (name, of) in properties(&schema) {
        if of.get("properties").is_some() {
            bounded.extend(properties(&of).iter().map(|(inner, _)| format!("{name}.{inner}")));
        } else {
            bounded.insert(name);
        }
    }
    // Helm's own.
    assert!(bounded.remove("global"));
    let values = paths(&text("chart/values.yaml"));
    assert!(values.len() > 30, "{values:?}");
    assert_eq!(values, bounded);
    let document = fs::read_to_string(crate::tools::repository().join("docs/kubernetes.md")).unwrap();
    for value in values {
        assert!(
            document.contains(&format!("`{value}`")),
            "docs/kubernetes.md does not name {value}"
        );
    }
}

#[test]
fn helm_finds_no_fault_in_it_whatever_it_serves() {
    let Some(helm) = program("helm") else { return };
    for (server, values) in SERVERS {
        let mut helm = Command::new(&helm);
        helm.args(["lint", "--strict", "--kube-version", "1.36.0"])
            .arg(deploy("chart"))
            .args(["--set", &format!("server={server}")]);
        for value in values {
            helm.args(["--set", value]);
        }
        let said = printed(helm.output().unwrap());
        assert!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{said}");
    }
}

/// What kustomize has says nothing that the chart does not say.
#[test]
fn the_base_is_what_the_chart_makes_of_its_defaults() {
    let Some(helm) = program("helm") else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(deploy("write-base"))
        .arg(helm)
        .arg(folder.path())
        .output()
        .unwrap();
    printed(output);
    for file in [
        "base/server.yaml",
        "components/monitoring/servicemonitor.yaml",
        "components/autoscaling/horizontalpodautoscaler.yaml",
    ] {
        let made = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(
            made == text(file),
            "the chart has changed: `make kubernetes-base` writes {file} again"
        );
    }
}

/// The one line that says what is wrong with these values.
#[track_caller]
fn refused(values: &[&str]) -> Option<String> {
    let output = rendered(values)?;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{values:?} are taken");
    assert!(output.stdout.is_empty());
    let around = [
        "Error: values don't meet the specifications of the schema(s) in the following chart(s):",
        "quoit-server:",
        "Use --debug flag to render out invalid YAML",
    ];
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.is_empty() && !around.contains(line))
        .collect();
    let [line] = lines[..] else {
        panic!("{values:?}: {said}");
    };
    let line = line.trim_start_matches("- ");
    // Where in a template it was noticed is of no use to whoever set the value.
    let line = match line.split_once("execution error at (") {
        Some((_, rest)) => rest.split_once("): ").unwrap().1,
        None => line,
    };
    Some(line.to_owned())
}

#[test]
fn a_value_out_of_its_range_is_one_message() {
    for (values, message) in [
        (&["loops=0"][..], "at '/loops': minimum: got 0, want 1"),
        (&["loops=1025"], "at '/loops': maximum: got 1,025, want 1,024"),
        (&["loops=two"], "at '/loops': got string, want integer"),
        (&["memoryMiB=8"], "at '/memoryMiB': minimum: got 8, want 16"),
        (&["port=80"], "at '/port': minimum: got 80, want 1,024"),
        (
            &["drainSeconds=-1"],
            "at '/drainSeconds': minimum: got -1, want 0",
        ),
        (
            &["preStopSeconds=4000"],
            "at '/preStopSeconds': maximum: got 4,000, want 3,600",
        ),
        (
            &["engine=iouring"],
            "at '/engine': value must be one of 'auto', 'uring', 'epoll'",
        ),
        (
            &["server=rails"],
            "at '/server': value must be one of 'serve', 'axum', 'go', 'kestrel', 'netty'",
        ),
        (
            &["drainSecond=5"],
            "at '': additional properties 'drainSecond' not allowed",
        ),
        (
            &["autoscaling.targetPercent=150"],
            "at '/autoscaling/targetPercent': maximum: got 150, want 100",
        ),
    ] {
        let Some(said) = refused(values) else { return };
        assert_eq!(said, message, "{values:?}");
    }
}

#[test]
fn values_that_do_not_go_together_are_one_message() {
    const EXCLUSIVE: &str = "exclusiveCpus=true";
    const GO: [&str; 2] = ["server=go", "image.repository=example.test/go"];
    const AXUM: [&str; 2] = ["server=axum", "image.repository=example.test/axum"];
    for (values, message) in [
        (
            &["terminationGracePeriodSeconds=29"][..],
            "terminationGracePeriodSeconds is 29, but preStopSeconds (5), drainSeconds (20) and 5 s to end take 30: raise it, or leave \
             it out",
        ),
        (
            &["loops=4"],
            "memoryMiB is 256, and 4 loops with 4096 connections each may take 368: raise it, or lower loops or connections",
        ),
        (
            &["pinLoops=true"],
            "pinLoops needs exclusiveCpus: pods that share processors would pin their loops to the same ones",
        ),
        (
            &[GO[0], GO[1], "pinLoops=true", EXCLUSIVE],
            "pinLoops is not for go, which cannot pin its loops: leave it out",
        ),
        (
            &[EXCLUSIVE, "cpuMillis=1500"],
            "cpuMillis is 1500, and exclusiveCpus gives whole processors: make it a multiple of 1000",
        ),
        (
            &[EXCLUSIVE, "loops=2"],
            "cpuMillis is 1000, and 2 loops with exclusiveCpus need a processor each: raise it, or lower loops",
        ),
        (
            &["seccomp.type=Localhost"],
            "seccomp.type is Localhost, and seccomp.localhostProfile names no file: name one, such as profiles/quoit.json",
        ),
        (
            &["seccomp.localhostProfile=profiles/quoit.json"],
            "seccomp.localhostProfile is for the type Localhost, and seccomp.type is RuntimeDefault",
        ),
        (
            &["metricsPort=8080"],
            "port and metricsPort are both 8080: each needs its own",
        ),
        (
            &["server=netty"],
            "image.repository is quoit, whose image has no netty in it: name the image that you built",
        ),
        (
            &[AXUM[0], AXUM[1], "serviceMonitor.enabled=true"],
            "serviceMonitor is not for axum, which serves no metrics",
        ),
        (
            &[GO[0], GO[1], "autoscaling.enabled=true"],
            "autoscaling.metric is loops, which go does not tell of: take cpu",
        ),
        (
            &["autoscaling.enabled=true", "autoscaling.minReplicas=11"],
            "autoscaling.minReplicas is 11, and maxReplicas 10: the first may not be more",
        ),
    ] {
        let Some(said) = refused(values) else { return };
        assert_eq!(said, message, "{values:?}");
    }
}

/// Longer than what the pod does when it is told to end, whatever that is set to.
#[test]
fn a_pod_has_time_for_its_drain() {
    for (values, period) in [
        (&[][..], 30),
        (&["preStopSeconds=0", "drainSeconds=0"], 5),
        (&["preStopSeconds=15", "drainSeconds=600"], 620),
        (&["terminationGracePeriodSeconds=60"], 60),
    ] {
        let Some(output) = rendered(values) else { return };
        let made = printed(output);
        let expected = format!("      terminationGracePeriodSeconds: {period}\n");
        assert!(made.contains(&expected), "{values:?}: {made}");
        // A sleep of no seconds is none.
        assert_eq!(made.contains("preStop:"), !values.contains(&"preStopSeconds=0"));
    }
}

/// A pod of the highest class of service has what it asks for and no more, which is what exclusive processors are given by.
#[test]
fn exclusive_processors_are_asked_for_in_whole_ones() {
    let resources = |values: &[&str]| {
        let made = printed(rendered(values)?);
        let (_, resources) = made.split_once("          resources:\n").unwrap();
        let (resources, _) = resources.split_once("          securityContext:").unwrap();
        let lines = resources.lines().map(str::trim);
        let lines: Vec<String> = lines
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        Some(lines)
    };
    let Some(shared) = resources(&[]) else { return };
    assert_eq!(
        shared,
        [
            "requests:",
            "cpu: 1000m",
            "memory: 256Mi",
            "limits:",
            "memory: 256Mi"
        ]
    );
    let exclusive = resources(&["exclusiveCpus=true", "cpuMillis=2000", "loops=2", "pinLoops=true"]).unwrap();
    assert_eq!(
        exclusive,
        [
            "requests:",
            "cpu: 2000m",
            "memory: 256Mi",
            "limits:",
            "cpu: 2000m",
            "memory: 256Mi"
        ]
    );
}
