//! A C program, compiled as C11 and as C++17, that has too little address space.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::process::Command;

use support::{compile, compilers, engines, file, succeeded};

#[test]
fn what_cannot_be_reserved_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("address_space");
        compile(compiler, options, &file("tests/c/address_space.c"), &program);
        for engine in engines() {
            // glibc maps 128 MiB for the memory of a thread, and gives most of it back: in between, what was found to be there
            // is not. One that is made for the probe would do so at any time.
            let output = Command::new(&program)
                .arg(engine)
                .env("MALLOC_ARENA_MAX", "1")
                .output()
                .unwrap();
            succeeded(&format!("{compiler} {engine}"), &output);
        }
    }
}
