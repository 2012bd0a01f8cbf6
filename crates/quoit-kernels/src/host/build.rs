//! What is run in the machines: built once, without debug information.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use quoit_kernels::list::{Check, Run};
use serde_json::Value;

use crate::tools;

/// What was built: files by the name that the plan has for them.
pub(crate) struct Built {
    pub(crate) programs: BTreeMap<String, PathBuf>,
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
    let packages = ["quoit", "quoit-capi"];
    let mut cargo = cargo(root);
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    packages.iter().for_each(|package| {
        cargo.args(["--package", package]);
    });
    let mut built = Artifacts::default();
    built.read(&tools::output(&mut cargo)?);
    let mut cargo = self::cargo(root);
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
        let name = format!("go {}", check.package);
        if let Entry::Vacant(place) = built.programs.entry(name) {
            place.insert(go_tests(root, work, &check.package)?);
        }
    }
    Ok(Built {
        programs: built.programs,
        library,
        guest,
        c_programs,
        examples: built.examples,
    })
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
        if has_kind("example") {
            self.examples.push(program);
        } else if message["profile"]["test"] == true {
            // Such as `path+file:///a/b/quoit-capi#0.1.0`.
            let package = text(&message["package_id"]);
            let package = package.split(['#', '?']).next().unwrap_or_default();
            let package = package.rsplit('/').next().unwrap_or_default();
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

fn go_tests(root: &Path, work: &Path, package: &str) -> Result<PathBuf, String> {
    let words: Vec<_> = package
        .split(['.', '/'])
        .filter(|word| !word.is_empty())
        .collect();
    let program = work.join(format!("go-{}.test", words.join("-")));
    let mut go = Command::new("go");
    go.current_dir(root.join("go"))
        .args(["test", "-c", "-o"])
        .arg(&program)
        .arg(package);
    tools::output(&mut go).map_err(|error| format!("{error} (https://go.dev/dl, 1.25 or newer)"))?;
    Ok(program)
}
