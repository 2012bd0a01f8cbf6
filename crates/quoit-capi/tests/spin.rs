//! Random calls through the ABI: under AddressSanitizer, which also sees leaks, and for epoll under valgrind, which also
//! sees what is read before it was written.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::path::Path;
use std::process::Command;

use quoit_skipped::skip_this;
use support::{compile, engines, file, has, succeeded};

const SEEDS: u64 = 4;

fn spin(mut command: Command, engine: &str, seed: u64, calls: u32) {
    command
        .args([engine, &seed.to_string(), &calls.to_string()])
        .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=1");
    let output = command.output().unwrap();
    succeeded(&format!("{command:?}"), &output);
}

/// The largest number that the header gives to a name that starts so.
fn last_of(start: &str) -> u16 {
    std::fs::read_to_string(file("include/quoit.h"))
        .unwrap()
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix(start)?.split_once(" = "))
        .map(|(_, number)| {
            number
                .split(|other: char| !other.is_ascii_digit())
                .next()
                .unwrap()
                .parse()
                .unwrap()
        })
        .max()
        .unwrap()
}

fn compiled(folder: &Path, options: &[&str]) -> Option<std::path::PathBuf> {
    if !has("cc") {
        skip_this("cc was not found");
        return None;
    }
    let program = folder.join("spin");
    let last_event = format!("-DLAST_EVENT={}", last_of("QUOIT_EVENT_"));
    let last_command = format!("-DLAST_COMMAND={}", last_of("QUOIT_COMMAND_"));
    let mut all = vec!["-std=c11", "-pedantic", &last_event, &last_command];
    all.extend(options);
    compile("cc", &all, &file("tests/c/spin.c"), &program);
    Some(program)
}

#[test]
fn random_calls_under_address_sanitizer() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path(), &["-fsanitize=address,undefined"]) else {
        return;
    };
    for engine in engines() {
        for seed in 0..SEEDS {
            spin(Command::new(&program), engine, seed, 3000);
        }
    }
}

#[test]
fn random_calls_under_valgrind() {
    if !has("valgrind") {
        skip_this("valgrind was not found");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path(), &[]) else {
        return;
    };
    let mut command = Command::new("valgrind");
    command
        .args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--show-leak-kinds=definite",
        ])
        .args(["--errors-for-leak-kinds=definite", "--fair-sched=yes"])
        .arg(program);
    spin(command, "epoll", 1, 300);
}
