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
            let output = Command::new(&program).arg(engine).output().unwrap();
            succeeded(&format!("{compiler} {engine}"), &output);
        }
    }
}
