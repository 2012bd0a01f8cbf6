//! A C program, compiled as C11 and as C++17, that is told through the ABI of files that are too short, and of accepting
//! without descriptors.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::process::Command;

use support::{compile, compilers, engines, file, succeeded};

#[test]
fn failures_are_told_as_the_header_says() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("failures");
        compile(compiler, options, &file("tests/c/failures.c"), &program);
        for engine in engines() {
            let output = Command::new(&program).arg(engine).output().unwrap();
            succeeded(&format!("{compiler} {engine}"), &output);
        }
    }
}
