//! What the shared library shows to the linker, and what it asks of the system.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use quoit_skipped::skip_this;
use support::{file, has, library, output};

/// The highest version of glibc's symbols that the library may need; the README names distributions that have it.
const GLIBC: (u32, u32) = (2, 34);

/// The functions that the header declares: a name, an opening bracket, and before it a type at the line's start.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(file("include/quoit.h")).unwrap();
    header
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| {
            let before = line.split_once('(')?.0;
            let name = before.rsplit([' ', '*']).next()?;
            name.starts_with("quoit_").then(|| name.to_owned())
        })
        .collect()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    if !has("nm") {
        skip_this("nm was not found");
        return;
    }
    let symbols = output(
        Command::new("nm")
            .args(["-D", "--defined-only", "-P"])
            .arg(library()),
    );
    let exported: BTreeSet<String> = symbols
        .lines()
        .map(|line| line.split([' ', '@']).next().unwrap().to_owned())
        .collect();
    assert_eq!(exported, declared());
    assert!(exported.contains("quoit_turn"));
}

#[test]
fn every_function_has_its_section_in_the_documentation() {
    let page = std::fs::read_to_string(file("../../docs/c-abi.md")).unwrap();
    let sections: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .map(str::to_owned)
        .collect();
    assert_eq!(sections, declared());
}

#[test]
fn the_library_is_named_and_runs_on_what_the_readme_says() {
    if !has("readelf") {
        skip_this("readelf was not found");
        return;
    }
    let dynamic = output(Command::new("readelf").args(["-W", "-d"]).arg(library()));
    assert!(dynamic.contains("[libquoit.so.0]"), "{dynamic}");
    let versions = output(Command::new("readelf").args(["-W", "-V"]).arg(library()));
    let highest = versions
        .split("GLIBC_")
        .skip(1)
        .filter_map(|rest| {
            let number: String = rest
                .chars()
                .take_while(|next| next.is_ascii_digit() || *next == '.')
                .collect();
            let mut parts = number.split('.').map(|part| part.parse::<u32>());
            Some((parts.next()?.ok()?, parts.next()?.ok()?))
        })
        .max()
        .unwrap();
    assert!(
        highest <= GLIBC,
        "the library needs glibc {highest:?}, but {GLIBC:?} is what it may"
    );
}
