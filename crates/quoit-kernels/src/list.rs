//! The list of kernels and checks: `lab/kernels/list.toml`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What the file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// From the oldest to the newest.
    #[serde(rename = "kernel")]
    pub kernels: Vec<Kernel>,
    /// In the order in which they are run.
    #[serde(rename = "check")]
    pub checks: Vec<Check>,
    /// What serves, and what loads it.
    pub traffic: Vec<Traffic>,
}

/// A kernel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// As in arguments, such as `debian-12`.
    pub name: String,
    /// As in tables, such as `Debian 12`.
    pub title: String,
    /// Its package's version.
    pub version: String,
    /// The address of its package, a `.deb` with `vmlinuz` inside.
    pub from: Option<String>,
    /// The package's checksum, SHA-256 in hexadecimal.
    pub sha256: Option<String>,
    /// How to get it, if no package can be fetched.
    pub by_hand: Option<String>,
    /// The engines that it has: tests fail that would leave one of them out.
    #[serde(default)]
    pub engines: Vec<String>,
    /// What is special about it: sentences for the page.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whether it is one of those of `--quick`.
    #[serde(default)]
    pub quick: bool,
}

/// What a check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Run {
    /// `quoit doctor --json`, which is kept.
    Doctor,
    /// Test binaries of a package of the workspace, one after the other.
    Rust,
    /// The tests of a package of a Go module.
    Go,
    /// Classes of the tests of a Maven project below `java`, on one engine.
    Java,
    /// Classes of the tests of a project below `dotnet`, on each engine.
    Dotnet,
    /// How soon a loop is told of what happens, on each engine.
    WakeLatency,
    /// Servers, each under a load that checks every reply.
    Traffic,
    /// System calls per request.
    Calls,
}

impl Run {
    /// Whether it needs a runtime. A machine has at most one, and no other checks: it takes much of its memory.
    #[must_use]
    pub fn needs_runtime(self) -> bool {
        matches!(self, Self::Java | Self::Dotnet)
    }
}

/// Something that is tried on every kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// As in arguments and tables.
    pub name: String,
    /// What it runs.
    pub run: Run,
    /// With [`Run::Rust`] a package of the workspace, with [`Run::Go`] one of the module, with [`Run::Java`] and
    /// [`Run::Dotnet`] the project.
    #[serde(default)]
    pub package: String,
    /// With [`Run::Go`]: the folder of the module, if that is not `go`.
    #[serde(default = "go_module")]
    pub module: String,
    /// With [`Run::Rust`]: names of test binaries; `lib` is that of the unit tests. With [`Run::Java`] and [`Run::Dotnet`]:
    /// full names of classes.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Given to each test binary.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Added to the environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// With [`Run::Traffic`]: `uring`, `epoll`, or `auto` for what doctor names. With [`Run::Java`]: `uring` or `epoll`.
    #[serde(default)]
    pub engine: String,
    /// With [`Run::Traffic`]: the engine that doctor has to name.
    #[serde(default)]
    pub expects: String,
    /// With [`Run::Traffic`]: the names of the rows, or all.
    #[serde(default)]
    pub rows: Vec<String>,
    /// Kernels that it is run on, or all.
    #[serde(default)]
    pub only: Vec<String>,
    /// Whether an ordinary user runs it, with the limits that distributions set: 8 MiB of locked memory, 1,024 open
    /// files that the user may raise.
    #[serde(default)]
    pub user: bool,
    /// Bytes that may be locked, in place of those.
    pub memlock: Option<u64>,
    /// Settings of the kernel for as long as it runs. Where the kernel has no such setting, it is left out.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Whether a seccomp filter refuses io_uring, as container engines' do.
    #[serde(default)]
    pub seccomp: bool,
    /// Whether it is one of those of `--quick`.
    #[serde(default)]
    pub quick: bool,
    /// Seconds after which it has hung.
    pub limit: u64,
}

fn go_module() -> String {
    "go".to_owned()
}

impl Check {
    /// Whether it is run on this kernel.
    #[must_use]
    pub fn is_for(&self, kernel: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == kernel)
    }

    /// The names that the plan has for the programs that are its tests.
    #[must_use]
    pub fn test_programs(&self) -> Vec<String> {
        let package = &self.package;
        match self.run {
            Run::Rust => self
                .tests
                .iter()
                .map(|test| format!("rust {package} {test}"))
                .collect(),
            Run::Go => vec![format!("go {} {package}", self.module)],
            Run::Java => vec![format!("java {package} {}", self.engine)],
            Run::Dotnet => vec![format!("dotnet {package}")],
            _ => Vec::new(),
        }
    }

    /// The name of its log: letters, digits and dashes.
    #[must_use]
    pub fn file_name(&self) -> String {
        let words = self
            .name
            .split(|character: char| !character.is_ascii_alphanumeric());
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        words.join("-").to_lowercase()
    }
}

/// A server and its load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// As in messages.
    pub name: String,
    /// What follows `quoit serve`, as a shell would split it.
    pub serve: String,
    /// What follows `quoit load`.
    pub load: String,
}

impl List {
    /// Reads the file's text.
    ///
    /// # Errors
    /// What is wrong, as a sentence with the name that it is wrong at.
    pub fn read(text: &str) -> Result<Self, String> {
        let list: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        unique("kernel", list.kernels.iter().map(|kernel| &kernel.name))?;
        unique("check", list.checks.iter().map(|check| &check.name))?;
        unique("traffic", list.traffic.iter().map(|row| &row.name))?;
        for kernel in &list.kernels {
            let fetched = kernel.from.is_some() && kernel.sha256.as_ref().is_some_and(|sum| sum.len() == 64);
            if fetched == kernel.by_hand.is_some() {
                let name = &kernel.name;
                return Err(format!(
                    "kernel {name}: it needs `from` and `sha256`, or `by_hand`"
                ));
            }
            let is_engine = |name: &&String| ["uring", "epoll"].contains(&name.as_str());
            if let Some(unknown) = kernel.engines.iter().find(|name| !is_engine(name)) {
                return Err(format!(
                    "kernel {}: there is no engine {unknown}; uring and epoll are",
                    kernel.name
                ));
            }
        }
        for check in &list.checks {
            list.examine(check)
                .map_err(|error| format!("check {}: {error}", check.name))?;
        }
        Ok(list)
    }

    fn examine(&self, check: &Check) -> Result<(), String> {
        let known = |name: &String| self.kernels.iter().any(|kernel| kernel.name == *name);
        if let Some(unknown) = check.only.iter().find(|name| !known(name)) {
            return Err(format!("there is no kernel {unknown}"));
        }
        let row = |name: &String| self.traffic.iter().any(|row| row.name == *name);
        if let Some(unknown) = check.rows.iter().find(|name| !row(name)) {
            return Err(format!("there is no traffic {unknown}"));
        }
        let lacks = match check.run {
            Run::Rust | Run::Java | Run::Dotnet if check.package.is_empty() || check.tests.is_empty() => {
                "`package` and `tests`"
            }
            Run::Go if check.package.is_empty() => "`package`",
            Run::Java if !["uring", "epoll"].contains(&check.engine.as_str()) => "`engine`, uring or epoll",
            Run::Traffic if !["uring", "epoll", "auto"].contains(&check.engine.as_str()) => {
                "`engine`, one of uring, epoll and auto"
            }
            _ => return Ok(()),
        };
        Err(format!("it needs {lacks}"))
    }
}

fn unique<'a>(kind: &str, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("there are two of {kind} {name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "[[kernel]]\nname = \"a\"\ntitle = \"A\"\nversion = \"1\"\nby_hand = \"x\"\n";
    const ROW: &str = "[[traffic]]\nname = \"t\"\nserve = \"echo\"\nload = \"echo\"\n";

    fn refused(kernel: &str, check: &str) -> String {
        List::read(&format!(
            "{kernel}{ROW}[[check]]\nname = \"c\"\nlimit = 1\n{check}"
        ))
        .expect_err("it is wrong")
    }

    #[test]
    fn the_list_of_the_project_is_right() {
        let list = List::read(include_str!("../../../lab/kernels/list.toml")).expect("it is right");
        assert_eq!(list.kernels.iter().filter(|kernel| kernel.quick).count(), 2);
        let files: BTreeSet<_> = list.checks.iter().map(Check::file_name).collect();
        assert_eq!(files.len(), list.checks.len(), "no two checks share a log");
    }

    #[test]
    fn mistakes_are_named() {
        assert!(refused(KERNEL, "run = \"rust\"").contains("check c: it needs `package` and `tests`"));
        assert!(refused(KERNEL, "run = \"go\"").contains("it needs `package`"));
        assert!(refused(KERNEL, "run = \"dotnet\"\npackage = \"p\"").contains("`package` and `tests`"));
        assert!(
            refused(KERNEL, "run = \"java\"\npackage = \"p\"\ntests = [\"t\"]").contains("it needs `engine`")
        );
        assert!(refused(KERNEL, "run = \"traffic\"").contains("it needs `engine`"));
        assert!(refused(KERNEL, "run = \"wake-latency\"\nonly = [\"b\"]").contains("no kernel b"));
        assert!(refused(KERNEL, "run = \"wake-latency\"\nrows = [\"u\"]").contains("no traffic u"));
        assert!(refused(KERNEL, "run = \"wake-latency\"\ncolour = 1").contains("colour"));
        assert!(refused(&KERNEL.repeat(2), "run = \"wake-latency\"").contains("two of kernel a"));
        let engine = format!("{KERNEL}engines = [\"epoll\", \"io_uring\"]\n");
        assert!(refused(&engine, "run = \"wake-latency\"").contains("kernel a: there is no engine io_uring"));
        let nowhere = KERNEL.replace("by_hand = \"x\"\n", "");
        assert!(refused(&nowhere, "run = \"wake-latency\"").contains("kernel a: it needs `from`"));
    }
}
