//! What came of the runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::list::List;
use crate::message::{Finding, Outcome};

/// Runs of each check that are kept.
const KEPT_RUNS: usize = 2;

/// What was kept, of all kernels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The commit that was run last.
    pub commit: String,
    /// By the name of the kernel.
    pub kernels: BTreeMap<String, KernelResults>,
}

/// What was kept of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelResults {
    /// As in tables.
    pub title: String,
    /// The package's version.
    pub version: String,
    /// As `uname -r` prints it.
    pub release: String,
    /// What `quoit doctor --json` printed.
    pub doctor: Option<serde_json::Value>,
    /// What the example `wake_latency` printed.
    pub wake_latency: Option<serde_json::Value>,
    /// System calls per request, by case and engine.
    #[serde(default)]
    pub calls: BTreeMap<String, BTreeMap<String, f64>>,
    /// By the name of the check.
    pub cells: BTreeMap<String, Cell>,
}

/// One check on one kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// From the first to the last.
    pub runs: Vec<CellRun>,
}

/// One run of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRun {
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, emulated.
    pub seconds: f64,
    /// Tests that failed, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_tests: Vec<String>,
    /// What the kernel warned of meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl CellRun {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_well(&self) -> bool {
        matches!(self.outcome, Outcome::Passed | Outcome::LeftOut(_)) && self.warnings.is_empty()
    }
}

impl Cell {
    /// The tests that failed in any run, each once.
    #[must_use]
    pub fn failed_tests(&self) -> Vec<&str> {
        let mut names: Vec<_> = self
            .runs
            .iter()
            .flat_map(|run| run.failed_tests.iter().map(String::as_str))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether it was well in each run.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.runs.iter().all(CellRun::is_well)
    }
}

impl KernelResults {
    /// Keeps a finding, in place of an earlier one.
    pub fn keep(&mut self, finding: Finding) {
        match finding {
            Finding::Doctor(found) => self.doctor = Some(found),
            Finding::WakeLatency(found) => self.wake_latency = Some(found),
            Finding::Calls(found) => self.calls = found,
        }
    }

    fn add(&mut self, later: Self) {
        if later.version != self.version || later.release != self.release {
            *self = later;
            return;
        }
        self.title = later.title;
        self.doctor = later.doctor.or(self.doctor.take());
        self.wake_latency = later.wake_latency.or(self.wake_latency.take());
        if !later.calls.is_empty() {
            self.calls = later.calls;
        }
        for (name, cell) in later.cells {
            self.cells.entry(name).or_default().runs.extend(cell.runs);
        }
    }
}

impl Results {
    /// Whether every cell was well in each run.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.kernels
            .values()
            .all(|kernel| kernel.cells.values().all(Cell::is_well))
    }

    /// Adds a later run's. Runs of another version of the same kernel are replaced; of the same, they are added.
    pub fn add(&mut self, later: Self) {
        self.commit = later.commit;
        for (name, kernel) in later.kernels {
            self.kernels.entry(name).or_default().add(kernel);
        }
    }

    /// Forgets kernels and checks that are no longer in the list, and of each check all but the last two runs: what was
    /// mended has to pass twice until the page says so.
    pub fn retain(&mut self, list: &List) {
        self.kernels
            .retain(|name, _| list.kernels.iter().any(|kernel| kernel.name == *name));
        for kernel in self.kernels.values_mut() {
            kernel
                .cells
                .retain(|name, _| list.checks.iter().any(|check| check.name == *name));
            for cell in kernel.cells.values_mut() {
                let surplus = cell.runs.len().saturating_sub(KEPT_RUNS);
                cell.runs.drain(..surplus);
            }
        }
    }
}

/// The name of a test that failed, if a line of output says so: of Rust's tests, of Go's, of Java's and .NET's, of
/// traffic's.
#[must_use]
pub fn failed_test(line: &str) -> Option<&str> {
    let line = line.trim();
    let rust = line
        .strip_prefix("test ")
        .and_then(|rest| rest.strip_suffix(" ... FAILED"));
    let go = line
        .strip_prefix("--- FAIL: ")
        .and_then(|rest| rest.split(' ').next());
    let java = line.strip_suffix(" :: FAILED");
    let dotnet = line
        .strip_prefix("Failed ")
        .and_then(|rest| rest.rsplit_once(" ["))
        .map(|(test, _)| test);
    let test = rust.or(go).or(java).or(dotnet);
    test.or(line.strip_prefix("failed: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(outcome: Outcome, test: &str) -> CellRun {
        CellRun {
            outcome,
            seconds: 1.0,
            failed_tests: vec![test.to_owned()],
            warnings: Vec::new(),
        }
    }

    fn results(version: &str, outcome: Outcome, test: &str) -> Results {
        let mut kernel = KernelResults {
            version: version.to_owned(),
            ..KernelResults::default()
        };
        let cell = kernel.cells.entry("units".to_owned()).or_default();
        cell.runs.push(run(outcome, test));
        Results {
            commit: "c".to_owned(),
            kernels: BTreeMap::from([("k".to_owned(), kernel)]),
        }
    }

    #[test]
    fn runs_of_one_kernel_are_added_and_those_of_another_replace_it() {
        let mut kept = results("1", Outcome::Hung, "a");
        kept.add(results("1", Outcome::Passed, "b"));
        assert_eq!(kept.kernels["k"].cells["units"].failed_tests(), ["a", "b"]);
        assert!(!kept.is_well(), "it was not well once");
        kept.add(results("2", Outcome::Passed, "c"));
        assert_eq!(kept.kernels["k"].cells["units"].failed_tests(), ["c"]);
        assert!(kept.is_well());
    }

    #[test]
    fn what_was_mended_has_to_pass_twice() {
        let text = include_str!("../../../lab/kernels/list.toml").replace("\"ubuntu-20.04\"", "\"k\"");
        let list = List::read(&text).expect("it is right");
        let mut kept = results("1", Outcome::Hung, "a");
        for well in [false, true] {
            kept.add(results("1", Outcome::Passed, ""));
            kept.retain(&list);
            assert_eq!(kept.is_well(), well);
        }
        assert_eq!(kept.kernels["k"].cells["units"].runs.len(), 2);
    }

    #[test]
    fn a_warning_of_the_kernel_is_a_failure() {
        let mut run = run(Outcome::Passed, "a");
        assert!(run.is_well());
        run.warnings.push("WARNING: CPU: 0".to_owned());
        assert!(!run.is_well());
    }

    #[test]
    fn failed_tests_are_read_from_what_programs_print() {
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
        assert_eq!(
            failed_test("    --- FAIL: TestX/uring (0.1s)"),
            Some("TestX/uring")
        );
        assert_eq!(
            failed_test("JUnit Jupiter > TracesTest > scenario(String) > [1] ends :: FAILED"),
            Some("JUnit Jupiter > TracesTest > scenario(String) > [1] ends")
        );
        assert_eq!(failed_test("JUnit Jupiter > TracesTest :: SUCCESSFUL"), None);
        assert_eq!(
            failed_test("  Failed A.B.C(transport: quoit-epoll) [1 m 2 s]"),
            Some("A.B.C(transport: quoit-epoll)")
        );
        assert_eq!(
            failed_test("failed: churn: exit status 1"),
            Some("churn: exit status 1")
        );
    }
}
