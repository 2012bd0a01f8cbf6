//! `quoit lab pages`: the pages of `docs` that show results.
//!
//! They are made of the files in `lab/results`, one for each experiment, and of nothing else. So a new run replaces what
//! is told of an experiment, and nobody has to copy a figure.

mod capacity;
mod index;
mod origin;
mod pay;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::console;
use crate::error::{ReportError, Result};
pub use crate::report::view::is_ours;
use crate::report::{charts, markdown};
use crate::results;
use crate::results::model::Results;

pub use pay::shows;

/// The folder of what is generated, below the folder of the documents. All files in it are generated.
const FOLDER: &str = "results";

/// Arguments of `quoit lab pages`.
#[derive(Args)]
pub struct PagesArguments {
    /// The results.json of runs to keep before: each takes the place of its experiment's file
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The folder of the result files
    #[arg(long, value_name = "FOLDER", default_value = "lab/results")]
    results: PathBuf,
    /// The folder of the pages
    #[arg(long, value_name = "FOLDER", default_value = "docs")]
    docs: PathBuf,
    /// Write nothing, and fail if a page is not what it would be
    #[arg(long, conflicts_with = "files")]
    check: bool,
}

/// An experiment of the program.
pub struct Known {
    /// As `quoit lab run` takes it.
    pub name: String,
    /// What it asks.
    pub title: String,
    /// The ecosystems of its servers, by name; none for a server that does not say.
    pub servers: BTreeMap<String, Vec<Ecosystem>>,
}

/// The users whom a server concerns: what they have today, or what it would be with Quoit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecosystem {
    /// A server in Rust, or one that anybody may run.
    Rust,
    /// One on tokio or another runtime.
    AsyncRust,
    /// One in Go.
    Go,
    /// One on Netty.
    Netty,
    /// One on Kestrel.
    Kestrel,
}

impl Ecosystem {
    /// All, with the names that experiments have for them.
    pub const NAMES: [(&str, Self); 5] = [
        ("rust", Self::Rust),
        ("async-rust", Self::AsyncRust),
        ("go", Self::Go),
        ("netty", Self::Netty),
        ("kestrel", Self::Kestrel),
    ];
}

/// Keeps result files and writes the pages, or compares them with those that are there.
///
/// # Errors
/// A file holds no results of a whole run of a known experiment, a folder cannot be read or written, or a page is not
/// what it would be.
pub fn run(arguments: &PagesArguments, known: &[Known]) -> Result<()> {
    for file in &arguments.files {
        keep(file, &arguments.results, known)?;
    }
    let all = read_all(&arguments.results, known)?;
    let pages = pages(&all, known)?;
    let stale = stale(&arguments.docs, &pages)?;
    if arguments.check {
        return check(&arguments.docs, &pages, &stale);
    }
    let folder = arguments.docs.join(FOLDER);
    fs::create_dir_all(&folder).map_err(ReportError::io(format_args!(
        "making the folder {}",
        folder.display()
    )))?;
    for path in &stale {
        fs::remove_file(path).map_err(ReportError::io(format_args!("removing {}", path.display())))?;
    }
    for (path, content) in &pages {
        results::replace(&arguments.docs.join(path), content.as_bytes())?;
    }
    console::say(format_args!(
        "wrote {} files below {}, of {} result files",
        pages.len(),
        arguments.docs.display(),
        all.len()
    ));
    Ok(())
}

/// Puts the results of a run in the place of those that are kept of its experiment.
///
/// The single slices stay in the folder of the run: the pages take medians and pairs' ratios, and the slices of all
/// experiments would be tens of megabytes in each copy of the repository.
fn keep(file: &Path, folder: &Path, known: &[Known]) -> Result<()> {
    let mut run = results::read(file)?;
    let name = run.experiment.name.clone();
    let refuse = |why: String| {
        Err(ReportError::new(format!(
            "{} was not kept: {why}",
            file.display()
        )))
    };
    if !known.iter().any(|experiment| experiment.name == name) {
        return refuse(format!(
            "the program has no experiment `{}`; pages show those that `quoit lab list` names",
            name.escape_debug()
        ));
    }
    if let Some(server) = pay::undeclared(&run, known) {
        return refuse(undeclared(&name, server));
    }
    if let Some(why) = &run.incomplete {
        return refuse(format!(
            "its run did not end ({why}); go on with `quoit lab run {name} --resume`"
        ));
    }
    for case in &mut run.cases {
        case.slices.clear();
    }
    fs::create_dir_all(folder).map_err(ReportError::io(format_args!(
        "making the folder {}",
        folder.display()
    )))?;
    let path = folder.join(format!("{name}.json"));
    results::write(&path, &run)?;
    console::say(format_args!("kept {}", path.display()));
    Ok(())
}

/// Why results cannot be shown that have such a server.
fn undeclared(experiment: &str, server: &str) -> String {
    format!(
        "its server `{server}` has no ecosystem in the experiment `{experiment}`; give it `ecosystem` in lab/servers.toml \
         or, if it is described there, in lab/experiments/{experiment}.toml"
    )
}

/// All results that are kept, in the order of the experiments. The folder must be there: all pages would go that are made
/// of what is in it.
fn read_all(folder: &Path, known: &[Known]) -> Result<Vec<Results>> {
    if !folder.is_dir() {
        return Err(ReportError::new(format!(
            "there is no folder {} of result files; start it where the repository is, or name the folder with --results",
            folder.display()
        )));
    }
    let mut files = files_of(folder)?;
    let mut all = Vec::new();
    for experiment in known {
        let path = folder.join(format!("{}.json", experiment.name));
        let Some(place) = files.iter().position(|file| *file == path) else {
            continue;
        };
        files.remove(place);
        let results = results::read(&path)?;
        if results.experiment.name != experiment.name {
            return Err(ReportError::new(format!(
                "{} holds results of the experiment `{}`; give the file that name, or run `quoit lab pages` with it",
                path.display(),
                results.experiment.name.escape_debug()
            )));
        }
        if let Some(server) = pay::undeclared(&results, known) {
            return Err(ReportError::new(format!(
                "{}: {}",
                path.display(),
                undeclared(&experiment.name, server)
            )));
        }
        all.push(results);
    }
    match files
        .iter()
        .find(|file| file.extension().is_some_and(|end| end == "json"))
    {
        Some(file) => Err(ReportError::new(format!(
            "{} is named after no experiment of the program; remove it or rename it",
            file.display()
        ))),
        None => Ok(all),
    }
}

/// The files of a folder, in their order; of one that is not there, none.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("reading the folder {}", folder.display());
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(ReportError::io(failed()))?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(ReportError::io(failed()))?;
    files.sort();
    Ok(files)
}

/// What is in the folder of generated files and is not one of them.
fn stale(docs: &Path, pages: &BTreeMap<PathBuf, String>) -> Result<Vec<PathBuf>> {
    let mut files = files_of(&docs.join(FOLDER))?;
    files.retain(|file| {
        file.strip_prefix(docs)
            .is_ok_and(|path| !pages.contains_key(path))
    });
    Ok(files)
}

fn check(docs: &Path, pages: &BTreeMap<PathBuf, String>, stale: &[PathBuf]) -> Result<()> {
    let mut wrong: Vec<String> = stale
        .iter()
        .map(|path| format!("{} belongs to no result file", path.display()))
        .collect();
    for (path, content) in pages {
        let path = docs.join(path);
        match fs::read_to_string(&path) {
            Ok(there) if there == *content => {}
            Ok(_) => wrong.push(format!("{} is not what its result files give", path.display())),
            Err(error) => wrong.push(format!("{}: {error}", path.display())),
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(ReportError::new(format!(
        "{}; run `make result-pages`",
        wrong.join("; ")
    )))
}

/// All that is generated: paths below the folder of the documents, and what stands there.
fn pages(all: &[Results], known: &[Known]) -> Result<BTreeMap<PathBuf, String>> {
    let folder = Path::new(FOLDER);
    let mut pages = BTreeMap::new();
    pages.insert(PathBuf::from("results.md"), index::page(all, known));
    pages.insert(PathBuf::from("does-it-pay.md"), pay::page(all, known));
    pages.insert(PathBuf::from("capacity.md"), capacity::page(all));
    for (name, picture) in pay::pictures(all, known)? {
        pages.insert(folder.join(format!("{name}.svg")), picture);
    }
    for results in all {
        let name = &results.experiment.name;
        let chart = charts::forest::forest(&results.cases)?;
        pages.insert(
            folder.join(format!("{name}.md")),
            experiment_page(results, chart.is_some()),
        );
        if let Some(chart) = chart {
            pages.insert(folder.join(format!("{name}.svg")), chart.file());
        }
    }
    Ok(pages)
}

/// The page of one experiment: its report, with where it comes from and its chart before the figures.
fn experiment_page(results: &Results, with_chart: bool) -> String {
    let name = &results.experiment.name;
    let report = markdown(results);
    let (title, rest) = report.split_once("\n\n").unwrap_or((&report, ""));
    let chart = if with_chart {
        format!(
            "![Cost ratio of every comparison, with its interval, over the band of noise]({name}.svg)\n\n"
        )
    } else {
        String::new()
    };
    format!(
        "{title}\n\n{}{}\n\n[How to read this](../lab-report.md). [All results](../results.md). To measure it again: `make \
         result NAME={name}`.\n\n{chart}{rest}",
        origin::mark(&format!("lab/results/{name}.json")),
        origin::measured(results),
    )
}
