//! `quoit lab run` leaves the machine's settings alone, however it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use quoit_namespace::Namespace;
use quoit_skipped::{needs_root, skip_this, this_test};
use serde_json::Value;

use crate::support::{output, quoit, signal};

const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// What namespaces may have.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// What every kernel has, and no lab wants.
const ITS_OWN: &str = "reno";

/// A network namespace in the place of a machine whose congestion control is not what a lab wants.
struct Machine(Namespace);

impl Machine {
    fn make() -> Option<Self> {
        let namespace = Namespace::make()
            .inspect_err(|error| needs_root(format_args!("{}: {error}", this_test()), "CAP_SYS_ADMIN"))
            .ok()?;
        namespace.run("ip link set lo up").unwrap();
        namespace
            .within(|| fs::write(CONGESTION_CONTROL, ITS_OWN))
            .unwrap()
            .unwrap();
        Some(Self(namespace))
    }

    fn congestion_control(&self) -> String {
        let read = self.0.within(|| fs::read_to_string(CONGESTION_CONTROL));
        read.unwrap().unwrap().trim().to_owned()
    }

    /// A short run, but for the time of each measurement.
    fn lab(&self, out: &Path, seconds: f64) -> Command {
        let mut command = quoit(&format!(
            "lab run plaintext --only quoit-epoll --case deep --pairs 1 --most-pairs 1 --seconds {seconds}"
        ));
        command.arg("--out").arg(out);
        self.0.confine(&mut command);
        command
    }
}

#[test]
fn a_run_has_its_congestion_control_and_the_machine_keeps_its_own() {
    let Some(machine) = Machine::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let used = |out: &str, arguments: &[&str]| {
        let out = folder.path().join(out);
        let mut command = machine.lab(&out, 0.2);
        command.args(arguments);
        let output = output(command);
        // Whether it succeeds is no matter: a machine that is busy with other tests may not let it measure.
        assert!(out.join("results.json").exists(), "{output:?}");
        let results: Value = serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap();
        assert_eq!(machine.congestion_control(), ITS_OWN);
        results["environment"]["congestion_control"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let allowed = fs::read_to_string(ALLOWED).unwrap();
    if allowed.split_whitespace().any(|one| one == "cubic") {
        assert_eq!(used("built-in", &[]), "cubic");
    } else {
        // Nor may a namespace that the lab makes have it.
        assert_eq!(used("built-in", &[]), ITS_OWN);
        skip_this(format_args!("{ALLOWED} has no cubic"));
    }
    // What is the user's may need what else is on the machine's network.
    let own = "mine={quoit} serve http --engine epoll --listen {listen}";
    assert_eq!(used("own", &["--server", own]), ITS_OWN);
}

#[test]
fn a_run_that_is_killed_leaves_the_machine_as_it_was() {
    let Some(machine) = Machine::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut lab = machine
        .lab(&folder.path().join("out"), 600.0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(lab.stderr.take().unwrap()).lines();
    let begun = lines
        .map_while(Result::ok)
        .any(|line| line.contains("pairs at least"));
    assert!(begun, "{:?}", lab.wait());
    assert_eq!(machine.congestion_control(), ITS_OWN);
    signal(&lab, libc::SIGKILL);
    assert_eq!(lab.wait().unwrap().code(), None);
    assert_eq!(machine.congestion_control(), ITS_OWN);
}
