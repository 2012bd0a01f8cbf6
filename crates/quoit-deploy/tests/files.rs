//! The files of `deploy/`: those that are made are as they would be made now, and those that others read are read by these.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use quoit_deploy::profile::{IO_URING, Profile};
use quoit_deploy::{dashboard, restarts};

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(deploy(path)).unwrap()
}

/// What a program prints; `None` if it is not there, which is said.
fn run(command: &mut Command, package: &str) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            let program = command.get_program().to_string_lossy().into_owned();
            quoit_skipped::skip_this(format!("{program} ({package}): {error}"));
            None
        }
    }
}

#[test]
fn the_dashboard_is_made_of_the_counters_that_there_are() {
    assert!(
        text("grafana/dashboard.json") == dashboard::text(),
        "the counters have changed: `make dashboard` writes the dashboard again"
    );
}

#[test]
fn the_page_of_restarts_has_the_table_of_what_is_kept() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/restarts.md")).unwrap();
    assert!(
        page == restarts::write_page(&root).unwrap(),
        "the results have changed: `make restarts-page` writes the table again"
    );
}

#[test]
fn promtool_understands_the_rules_and_their_tests_hold() {
    for arguments in [
        ["check", "rules", "rules.yaml"],
        ["test", "rules", "rules.test.yaml"],
    ] {
        let mut promtool = Command::new("promtool");
        promtool.current_dir(deploy("prometheus")).args(arguments);
        let Some(output) = run(&mut promtool, "Debian's package prometheus") else {
            return;
        };
        assert!(output.status.success(), "{output:?}");
    }
}

/// The metric that pods are scaled by is the one that a rule records, from the rule to the autoscaler.
#[test]
fn the_adapter_and_the_autoscaler_read_what_a_rule_records() {
    let rules = text("prometheus/rules.yaml");
    let recorded: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- record: "))
        .collect();
    let [recorded] = recorded[..] else {
        panic!("{recorded:?}");
    };
    let adapter = text("kubernetes/prometheus-adapter.yaml");
    assert!(
        adapter.contains(&format!("seriesQuery: '{recorded}{{")),
        "{adapter}"
    );
    let autoscaler = text("kubernetes/components/autoscaling/horizontalpodautoscaler.yaml");
    assert!(
        autoscaler.contains(&format!("name: {recorded}\n")),
        "{autoscaler}"
    );
}

/// Each rule is tested where it fires and where it does not.
#[test]
fn every_rule_has_a_test_of_each_kind() {
    let (rules, tests) = (text("prometheus/rules.yaml"), text("prometheus/rules.test.yaml"));
    let alerts: BTreeSet<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert_eq!(alerts.len(), 5);
    let lines: Vec<&str> = tests.lines().map(str::trim).collect();
    for alert in alerts {
        let expected = |what: &str| {
            lines
                .windows(2)
                .any(|two| two[0] == format!("alertname: {alert}") && two[1] == what)
        };
        assert!(expected("exp_alerts:"), "{alert} is not tested to fire");
        assert!(expected("exp_alerts: []"), "{alert} is not tested to be silent");
    }
}

fn made(default: &Path, origin: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quoit-deploy"))
        .arg("add")
        .arg("--default")
        .arg(default)
        .args(["--origin", origin])
        .output()
        .unwrap()
}

/// A default profile differs from what is made of it by the three calls and nothing else.
#[track_caller]
fn adds_exactly_io_uring(default: &Path, origin: &str) {
    let output = made(default, origin);
    assert!(output.status.success(), "{output:?}");
    let before = Profile::parse(&std::fs::read_to_string(default).unwrap()).unwrap();
    let after = Profile::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let added: BTreeSet<&str> = after.allowed().difference(&before.allowed()).copied().collect();
    assert_eq!(added, BTreeSet::from(IO_URING), "{origin}");
    // What is left of both without these calls is the same.
    assert_eq!(after.without(&IO_URING), before.without(&IO_URING), "{origin}");
}

#[test]
fn the_defaults_of_docker_and_containerd_get_exactly_three_calls() {
    let folder = tempfile::tempdir().unwrap();
    for runtime in ["docker", "containerd"] {
        let mut go = Command::new("go");
        go.current_dir(deploy("seccomp/upstream"))
            .args(["run", ".", runtime]);
        let Some(output) = run(&mut go, "https://go.dev/dl") else {
            return;
        };
        if !output.status.success() {
            // Without a module proxy there is nothing to begin with.
            let said = String::from_utf8_lossy(&output.stderr);
            quoit_skipped::skip_this(format!(
                "the modules of {runtime}: {}",
                said.trim().replace('\n', "; ")
            ));
            return;
        }
        let default = folder.path().join(runtime);
        std::fs::write(&default, &output.stdout).unwrap();
        adds_exactly_io_uring(&default, runtime);
    }
}

#[test]
fn the_default_of_podman_gets_exactly_three_calls() {
    let default = Path::new("/usr/share/containers/seccomp.json");
    if default.exists() {
        adds_exactly_io_uring(default, "Podman's");
    } else {
        quoit_skipped::skip_this(
            "Podman's profile (Debian's package golang-github-containers-common) is not installed",
        );
    }
}

#[test]
fn what_is_no_profile_or_needs_nothing_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let own = deploy("seccomp/quoit.json");
    let text = folder.path().join("text");
    std::fs::write(&text, "no profile").unwrap();
    for (default, expected) in [
        (folder.path().join("nowhere"), "No such file or directory"),
        (text, "it is no seccomp profile: "),
        (own, "it allows io_uring already, so nothing is to be added"),
    ] {
        let output = made(&default, "x");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("quoit-deploy: ") && said.contains(expected),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn the_tools_of_security_modules_read_what_is_for_them() {
    let folder = tempfile::tempdir().unwrap();
    // Compiled, and neither loaded nor kept.
    let mut parser = Command::new("apparmor_parser");
    parser
        .args(["--skip-kernel-load", "--skip-cache"])
        .arg(deploy("apparmor/quoit"));
    if let Some(output) = run(&mut parser, "Debian's package apparmor") {
        assert!(output.status.success(), "{output:?}");
    }
    // The module's name has to be that of the file.
    let mut compiler = Command::new("checkmodule");
    compiler
        .args(["-M", "-m", "-o"])
        .arg(folder.path().join("quoit_uring.mod"))
        .arg(deploy("selinux/quoit_uring.te"));
    if let Some(output) = run(&mut compiler, "Debian's package checkpolicy") {
        assert!(output.status.success(), "{output:?}");
    }
}

/// A tracepoint that a kernel has not ends bpftrace of today, but for what a pattern stands for. arm64 has no `epoll_wait`, and
/// kernels before 5.11 have no `epoll_pwait2`.
#[test]
fn the_script_of_bpftrace_names_no_call_that_a_kernel_may_lack() {
    let script = text("bpftrace/loops.bt");
    let probes: BTreeSet<String> = script
        .lines()
        .filter_map(|line| line.strip_prefix("tracepoint:syscalls:sys_"))
        .map(|probe| probe.trim_end_matches(',').to_owned())
        .collect();
    let expected = ["io_uring_enter", "epoll_*wait*"];
    let expected: BTreeSet<String> = ["enter", "exit"]
        .iter()
        .flat_map(|end| expected.map(|call| format!("{end}_{call}")))
        .collect();
    assert_eq!(probes, expected);
}

/// The resource of the Security Profiles Operator names the calls of the program's own profile.
#[test]
fn the_operators_resource_has_the_calls_of_the_profile() {
    let resource = text("seccomp/kubernetes/profile-quoit.yaml");
    let named: BTreeSet<&str> = resource
        .lines()
        .filter_map(|line| line.strip_prefix("        - "))
        .collect();
    let profile = Profile::parse(&text("seccomp/quoit.json")).unwrap();
    assert_eq!(named, profile.allowed());
    let three = text("seccomp/kubernetes/profile-default-plus-io_uring.yaml");
    let named: Vec<&str> = three
        .lines()
        .filter_map(|line| line.strip_prefix("        - "))
        .collect();
    assert_eq!(named, IO_URING);
}
