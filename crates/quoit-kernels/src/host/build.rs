//! What is run in the machines: built once, without debug information.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use quoit_kernels::list::{Check, Run};
use serde_json::Value;

use crate::runtimes::{self, Runtime};
use crate::tools;

/// What was built: files by the name that the plan has for them.
pub(crate) struct Built {
    pub(crate) programs: BTreeMap<String, PathBuf>,
    pub(crate) runtimes: Vec<Runtime>,
    /// What is missing, by what cannot be run for it.
    pub(crate) lacking: Vec<(Run, String)>,
    /// libquoit, which Go's tests load and C programs are linked with.
    pub(crate) library: PathBuf,
    /// The first process.
    pub(crate) guest: PathBuf,
    /// The programs that the C ABI's tests have compiled.
    pub(crate) c_programs: PathBuf,
    /// The examples of the core, which its tests start.
    pub(crate) examples: Vec<PathBuf>,
}

/// Builds what the checks need.
pub(crate) fn build(checks: &[Check], root: &Path, work: &Path) -> Result<Built, String> {
    eprintln!("building the tests and the programs");
    let mut built = Artifacts::default();
    let always = ["quoit", "quoit-capi"];
    built.read(&test_binaries(root, &always)?);
    let of_rust = checks.iter().filter(|check| check.run == Run::Rust);
    let others: BTreeSet<_> = of_rust.map(|check| check.package.as_str()).collect();
    // One by one: what a package needs of others changes how these are built, and so would the choice of checks.
    for package in others.into_iter().filter(|package| !always.contains(package)) {
        built.read(&test_binaries(root, &[package])?);
    }
    let mut cargo = cargo(root);
    cargo.args([
        "build",
        "--profile",
        "test",
        "--message-format=json-render-diagnostics",
    ]);
    for package in ["quoit-cli", "quoit-capi", "quoit-kernels"] {
        cargo.args(["--package", package]);
    }
    built.read(&tools::output(&mut cargo)?);
    let library = built.library.ok_or("cargo has built no libquoit_capi.so")?;
    let guest = built
        .programs
        .remove("quoit-kernels-guest")
        .ok_or("cargo has built no quoit-kernels-guest")?;
    if let Some(example) = built.examples.iter().find(|path| path.ends_with("wake_latency")) {
        built.programs.insert("wake_latency".to_owned(), example.clone());
    }
    let c_programs = work.join("c");
    let of_c: BTreeSet<_> = checks
        .iter()
        .filter(|check| check.package == "quoit-capi")
        .flat_map(|check| &check.tests)
        .filter(|test| *test != "lib")
        .collect();
    if !of_c.is_empty() {
        compile_c_programs(root, &of_c, &c_programs)?;
    }
    for check in checks.iter().filter(|check| check.run == Run::Go) {
        for program in check.test_programs() {
            if let Entry::Vacant(place) = built.programs.entry(program) {
                let tests = go_tests(root, work, check, place.key())?;
                place.insert(tests);
            }
        }
    }
    let (runtimes, lacking) = runtimes::build(checks, root, work);
    Ok(Built {
        programs: built.programs,
        runtimes,
        lacking,
        library,
        guest,
        c_programs,
        examples: built.examples,
    })
}

/// Builds the tests of packages; returns what cargo printed.
fn test_binaries(root: &Path, packages: &[&str]) -> Result<String, String> {
    let mut cargo = cargo(root);
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    packages.iter().for_each(|package| {
        cargo.args(["--package", package]);
    });
    tools::output(&mut cargo)
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

#[derive(Default)]
struct Artifacts {
    programs: BTreeMap<String, PathBuf>,
    examples: Vec<PathBuf>,
    library: Option<PathBuf>,
}

impl Artifacts {
    /// Reads what cargo printed: a JSON object per line.
    fn read(&mut self, printed: &str) {
        for line in printed.lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            if message["reason"] == "compiler-artifact" {
                self.add(&message);
            }
        }
    }

    fn add(&mut self, message: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let target = &message["target"];
        let name = text(&target["name"]);
        let has_kind = |kind: &str| {
            let kinds = target["kind"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|one| one == kind))
        };
        for file in message["filenames"].as_array().into_iter().flatten() {
            let file = PathBuf::from(text(file));
            if has_kind("cdylib") && file.extension().is_some_and(|ending| ending == "so") {
                self.library = Some(file);
            }
        }
        let Some(program) = message["executable"].as_str().map(PathBuf::from) else {
            return;
        };
        // Such as `path+file:///a/b/quoit-capi#0.1.0`.
        let package = text(&message["package_id"]);
        let package = package.split(['#', '?']).next().unwrap_or_default();
        let package = package.rsplit('/').next().unwrap_or_default();
        if has_kind("example") {
            // Those of others are large, and none of the checks starts them.
            if package == "quoit" {
                self.examples.push(program);
            }
        } else if message["profile"]["test"] == true {
            let test = if has_kind("test") { name.as_str() } else { "lib" };
            self.programs.insert(format!("rust {package} {test}"), program);
        } else if has_kind("bin") {
            self.programs.insert(name, program);
        }
    }
}

/// The tests of the C ABI compile their programs; with this variable they keep them, and take them from there where there
/// is no compiler.
fn compile_c_programs(root: &Path, tests: &BTreeSet<&String>, folder: &Path) -> Result<(), String> {
    let _absent = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut cargo = cargo(root);
    cargo.args(["test", "--quiet", "--package", "quoit-capi"]);
    for test in tests {
        cargo.args(["--test", test]);
    }
    cargo.env("QUOIT_C_PROGRAMS", folder);
    tools::output(&mut cargo).map(drop)
}

fn go_tests(root: &Path, work: &Path, check: &Check, name: &str) -> Result<PathBuf, String> {
    let words: Vec<_> = name
        .split(['.', '/', ' '])
        .filter(|word| !word.is_empty())
        .collect();
    let program = work.join(format!("{}.test", words.join("-")));
    let mut go = Command::new("go");
    go.current_dir(root.join(&check.module))
        .args(["test", "-c", "-o"])
        .arg(&program)
        .arg(&check.package);
    tools::output(&mut go).map_err(|error| format!("{error} (https://go.dev/dl, 1.25 or newer)"))?;
    Ok(program)
}
