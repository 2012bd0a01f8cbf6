//! Wrong usage: one line, as of every other failure, where clap would write several.

use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};

use crate::console::say;

/// Ends the program for what `error` says: help and versions as clap prints them, wrong usage with one line and 2.
pub fn refuse(error: &clap::Error) -> ExitCode {
    let is_help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help {
        // Nobody may be listening.
        let _ = error.print();
    } else {
        say(format_args!(
            "error: {}{}; --help tells more",
            one_line(error),
            usage(error)
        ));
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// What is wrong, without clap's hints on usage and help.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let mut line = String::new();
    for said in text.lines().map(str::trim) {
        if said.starts_with("Usage:") || said.starts_with("For more information") {
            break;
        }
        if let Some(tip) = said.strip_prefix("tip: ") {
            line.push_str("; ");
            line.push_str(tip);
        } else if !said.is_empty() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(said);
        }
    }
    line
}

/// What may be said, behind something that may not: whoever gives an address by itself finds the option that it belongs to.
fn usage(error: &clap::Error) -> String {
    match (error.kind(), error.get(ContextKind::Usage)) {
        (ErrorKind::UnknownArgument, Some(usage)) => {
            let usage = usage.to_string();
            format!("; usage: {}", usage.trim_start_matches("Usage: "))
        }
        _ => String::new(),
    }
}
