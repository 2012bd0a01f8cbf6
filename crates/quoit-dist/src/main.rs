//! Packs Quoit, and tries the packages: `make dist`, `make dist-check`, `make dist-twice`.
//!
//! | module | what it does |
//! |---|---|
//! | `place` | the checkout: its version, its commit, and the folders that are written |
//! | `tools` | the programs that are started, and how to get one that is missing |
//! | `target` | what is built for: names that each ecosystem has for it |
//! | `compile` | the library and the program for each target, by cargo-zigbuild |
//! | `elf` | what a library shows, and what it asks of the system |
//! | `tree` | files of a package, in memory: the same files are the same bytes |
//! | `link` | the shared library with the versions of its functions |
//! | `library`, `program` | what a package of each holds |
//! | `manual` | pages and completions from the program's arguments |
//! | `archive`, `deb`, `rpm`, `image`, `crates` | the formats |
//! | `papers` | notices of others' licences, and bills of materials |
//! | `jni` | what Java 17 to 21 call the library by |
//! | `others` | the ecosystems that have a script of their own in `dist/` |
//! | `verify` | what has to be true of each artefact |
//! | `promises` | a test: what documents say of versions |
//! | `check` | the packages, installed and used in root file systems of distributions |

use std::process::ExitCode;

use clap::Parser;

mod archive;
mod arguments;
mod build;
mod check;
mod compile;
mod crates;
mod deb;
mod elf;
mod image;
mod jni;
mod library;
mod link;
mod manual;
mod others;
mod papers;
mod place;
mod program;
#[cfg(test)]
mod promises;
mod rpm;
mod sums;
mod target;
mod tools;
mod tree;
mod twice;
mod verify;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Build(build) => build::run(&build),
        Command::Verify => verify::run(),
        Command::Check(check) => check::run(&check),
        Command::Page => check::page::run(),
        Command::Twice => twice::run(),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("quoit-dist: {error}");
            ExitCode::from(1)
        }
    }
}
