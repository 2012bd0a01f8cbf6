//! A C program, compiled as C11 and as C++17, that uses listeners of every origin through the ABI: Unix sockets, what a
//! service manager has passed, and the ways to share one among loops; and that asks what io_uring can do.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::process::Command;

use support::{compile, compilers, engines, file, succeeded};

#[test]
fn listeners_do_what_the_header_says() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("listeners");
        compile(compiler, options, &file("tests/c/listeners.c"), &program);
        for engine in engines() {
            let output = Command::new(&program)
                .arg(engine)
                .arg(folder.path())
                .output()
                .unwrap();
            succeeded(&format!("{compiler} {engine}"), &output);
        }
    }
}
