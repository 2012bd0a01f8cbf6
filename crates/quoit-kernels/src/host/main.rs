//! Boots other kernels in virtual machines and runs the checks there: `make kernels`.

use std::process::ExitCode;

use clap::Parser;

mod arguments;
mod build;
mod conduct;
mod fetch;
mod image;
mod machine;
mod progress;
mod runtimes;
mod table;
mod tools;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    match conduct::run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("quoit-kernels: {error}");
            ExitCode::from(1)
        }
    }
}
