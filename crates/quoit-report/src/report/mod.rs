//! `quoit lab report`: results of runs as Markdown and as one self-contained page.

pub(crate) mod charts;
mod client_figures;
mod datagrams;
mod html;
mod ladder;
mod markdown;
mod published;
mod steadiness;
pub(crate) mod view;

use std::path::PathBuf;

use clap::Args;

use super::console;
use super::error::{ReportError, Result};
use super::results;

pub use html::page;
pub use markdown::markdown;
pub(crate) use markdown::plain;

/// Arguments of `quoit lab report`.
#[derive(Args)]
pub struct ReportArguments {
    /// The results.json of one or more runs
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write one page with charts, which needs nothing beside itself
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print Markdown; this is what happens without --html
    #[arg(long)]
    markdown: bool,
}

/// Writes or prints the report.
///
/// # Errors
/// A file holds no results of a run, the page was to replace such, or it or standard output cannot be written.
pub fn run(arguments: &ReportArguments) -> Result<()> {
    let read = |path: &PathBuf| results::read(path);
    let runs = arguments.files.iter().map(read).collect::<Result<Vec<_>>>()?;
    if let Some(path) = &arguments.html {
        // Of a pipe, looking would take what is in it.
        if path.is_file() && results::read(path).is_ok() {
            return Err(ReportError::new(format!(
                "{} holds results of a run, and is left alone; name another file for the page",
                path.display()
            )));
        }
        results::replace(path, page(&runs)?.as_bytes())?;
        console::say(format_args!("wrote {}", path.display()));
    }
    if arguments.markdown || arguments.html.is_none() {
        let reports: Vec<String> = runs.iter().map(markdown).collect();
        console::print(&reports.join("\n"))?;
    }
    Ok(())
}
