//! A C program, compiled as C11 and as C++17, one of whose threads sends on a connection while its loop sleeps on another.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::process::Command;

use support::{compile, compilers, engines, file, succeeded};

#[test]
fn another_thread_sends_while_the_loop_sleeps() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("direct");
        compile(compiler, options, &file("tests/c/direct.c"), &program);
        for engine in engines() {
            let output = Command::new(&program).arg(engine).output().unwrap();
            succeeded(&format!("{compiler} {engine}"), &output);
        }
    }
}
