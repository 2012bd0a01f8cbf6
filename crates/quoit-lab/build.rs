//! Tells the lab which commit the program is built from, for the results of measurements: `-dirty` if what it is made of was
//! changed since. It never fails a build: without git, or outside the project's own repository, the commit is unknown.
//!
//! Only where the build is optimised, because nobody measures another one, and recompiling for every commit costs.
//! QUOIT_COMMIT in the environment takes precedence, for who builds from an archive.

use std::path::Path;
use std::process::Command;

/// What the program is made of, from this folder.
const SOURCES: [&str; 13] = [
    "src",
    "../quoit/src",
    "../quoit-cli/src",
    "../quoit-host/src",
    "../quoit-load/src",
    "../quoit-namespace/src",
    "../quoit-report/src",
    "../quoit-serve/src",
    "../quoit-workload/src",
    "../../lab/experiments",
    "../../lab/servers.toml",
    "../../Cargo.toml",
    "../../Cargo.lock",
];
/// Where this folder is in the repository. A copy within another repository has none of its commits.
const PLACE: &str = "crates/quoit-lab/";

fn main() {
    println!("cargo::rerun-if-env-changed=QUOIT_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("QUOIT_COMMIT").is_ok_and(|commit| !commit.is_empty());
    let optimised = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if given || !optimised || git(&["rev-parse", "--show-prefix"]).as_deref() != Some(PLACE) {
        return;
    }
    let Some(mut commit) = git(&["rev-parse", "--verify", "--short=12", "HEAD"]) else {
        return;
    };
    let mut status = vec!["status", "--porcelain", "--"];
    status.extend(SOURCES);
    if git(&status).is_none_or(|changed| !changed.is_empty()) {
        commit += "-dirty";
    }
    println!("cargo::rustc-env=QUOIT_COMMIT={commit}");
    // The log of HEAD grows with every commit and change of branch. What is not there must not be named: cargo would
    // run this every time.
    let logs = ["HEAD", "logs/HEAD"].map(|file| git(&["rev-parse", "--git-path", file]));
    for path in logs.iter().flatten().map(String::as_str).chain(SOURCES) {
        if Path::new(path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// What git says, without the end of the line; `None` if it fails. It takes no locks: another may be at work.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("--no-optional-locks")
        .args(arguments)
        .output()
        .ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    String::from_utf8(text)
        .ok()
        .map(|text| text.trim_end().to_owned())
}
