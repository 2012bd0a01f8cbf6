//! The program `quoit`. All of it is in the library beside.

use std::process::ExitCode;

fn main() -> ExitCode {
    quoit_cli::run()
}
