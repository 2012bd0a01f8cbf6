//! The program `quoit`, which lives in the library beside this file.

use std::process::ExitCode;

fn main() -> ExitCode {
    quoit_cli::main()
}
