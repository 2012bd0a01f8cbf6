//! A C program, compiled as C11 and as C++17, whose connections do what they can to keep others from being served: they send
//! and never read, read a response that has no end, take nothing while memory is short.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::process::Command;

use support::{compile, compilers, engines, file, succeeded};

#[test]
fn no_connection_holds_up_another() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("fairness");
        compile(compiler, options, &file("tests/c/fairness.c"), &program);
        for engine in engines() {
            let output = Command::new(&program).arg(engine).output().unwrap();
            succeeded(&format!("{compiler} {engine}"), &output);
        }
    }
}
