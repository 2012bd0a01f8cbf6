//! `quoit lab run`: measures the servers of an experiment against each other.
//!
//! The parts: a [`plan`] says what is compared with what; the [`schedule`] whose turn it is; a [`slice`](mod@slice)
//! starts a server, lets a [`generator`] load it and a [`watch`] look at it; the [`journal`] keeps what is done, so
//! that an [`interrupt`](mod@interrupt) costs at most a pair; a [`summary`] makes ratios and verdicts of it.

mod arguments;
mod budget;
mod conduct;
mod datagrams;
mod disturbed;
mod generator;
mod idle;
mod interrupt;
mod journal;
mod latency;
mod launch;
mod machine;
mod output;
mod plan;
mod process_tree;
mod progress;
mod reading;
mod record;
mod schedule;
mod sink_watch;
mod slice;
mod stream;
mod summary;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

pub(crate) use arguments::{Chosen, RunArguments};
pub(crate) use stream::{ReadArguments, run as read};

use budget::Budget;
use conduct::Conductor;
use interrupt::Interrupts;
use journal::{Entry, Journal};
use output::Found;
use quoit_report::results::model::{LeftOut, Results};
use record::Records;
use slice::Rig;

use super::console;
use super::environment;
use super::error::{LabError, Result};
use super::experiment::model::Experiment;
use super::placement;
use super::placement::site::Site;
use super::preflight::{self, Checked, Machine};
use super::programs::Programs;

/// Why a run does not go on.
#[derive(Debug)]
pub(crate) enum Halt {
    /// It was asked to end.
    Interrupted,
    Failed(LabError),
}

impl From<LabError> for Halt {
    fn from(error: LabError) -> Self {
        Self::Failed(error)
    }
}

/// What a run came to.
pub(crate) struct Ran {
    pub(crate) results: Results,
    /// Where its journal is.
    pub(crate) folder: PathBuf,
    /// Why it did not go on to its end.
    pub(crate) halted: Option<Halt>,
}

/// Runs an experiment, writes its results and prints them.
///
/// # Errors
/// Those of [`measure`]; the results cannot be written or printed, of which either is done all the same. What goes wrong while
/// it is measured is in the results, and the exit code says so.
pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let folder = |experiment: &str| arguments.folder(experiment);
    let Ran {
        results,
        folder,
        halted,
    } = measure(
        arguments.choose()?,
        arguments.program(),
        arguments.resumes(),
        folder,
    )?;
    let written = output::write(&folder, &results);
    let printed = output::print(&results, arguments.prints_json());
    let goes_on = format!(
        "what was measured is kept, and the same command with --out {} --resume goes on",
        folder.display()
    );
    match &halted {
        None => {}
        Some(Halt::Interrupted) => console::say(format_args!("quoit lab: interrupted; {goes_on}")),
        Some(Halt::Failed(error)) => console::say(format_args!("quoit lab: {error}")),
    }
    // Where the disk is full, what was measured is in the journal, but for the pair that was the last.
    written.map_err(|error| LabError::new(format!("{error}; {goes_on}")))?;
    printed?;
    Ok(match halted {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}

/// Measures an experiment, with its journal in the folder that `folder` makes for one of its name.
///
/// # Errors
/// Wrong usage, or something is missing before anything was measured.
pub(crate) fn measure(
    chosen: Chosen,
    program: Option<&Path>,
    resumes: bool,
    folder: impl FnOnce(&str) -> Result<PathBuf>,
) -> Result<Ran> {
    let Chosen {
        experiment,
        file,
        quick,
        within,
    } = chosen;
    let began = Instant::now();
    let interrupts = Interrupts::listen()?;
    let programs = Programs::find(program)?;
    let Checked {
        experiment,
        left_out,
        site,
    } = preflight::check(experiment, &Machine::read()?, &programs.values())?;
    preflight::raise_descriptor_limit(&experiment)?;
    let failed = match try_starting(&experiment, &programs, &site, &interrupts) {
        Ok(failed) => failed,
        Err(Halt::Failed(error)) => return Err(error),
        Err(Halt::Interrupted) => return Err(LabError::new("interrupted before anything was measured")),
    };
    let (experiment, not_started) = preflight::leave_out_failed(experiment, &programs.values(), &failed)?;
    let (works, not_compared) = plan::works(&experiment);
    let mut left_out: Vec<LeftOut> = left_out
        .into_iter()
        .chain(not_started)
        .map(|left| LeftOut {
            what: left.what,
            why: left.why,
        })
        .chain(not_compared)
        .collect();
    for left in &left_out {
        console::say(format_args!("quoit lab: {} is left out: {}", left.what, left.why));
    }
    if works.is_empty() {
        return Err(LabError::new("nothing is left to be measured").into_not_here());
    }
    let out = folder(&experiment.name)?;
    let identity = identity(&experiment, &site, &programs.quoit_file())?;
    let (mut environment, journal, records) = if resumes {
        let (journal, entries) = Journal::resume(&out, &identity)?;
        let began = entries.iter().find_map(|entry| match entry {
            Entry::Begin { environment, .. } => Some((**environment).clone()),
            _ => None,
        });
        let began = began.unwrap_or_else(|| environment::at(&site));
        (began, journal, Records::from_entries(entries))
    } else {
        let environment = environment::at(&site);
        let journal = Journal::begin(&out, &identity, &environment)?;
        (environment, journal, Records::default())
    };
    // The lab runs where it disturbs least.
    placement::pin_thread(&site.observer_cores()?).map_err(LabError::io("placing the lab itself"))?;

    let mut conductor = Conductor {
        rig: Rig {
            programs: &programs,
            site: &site,
            interrupts: &interrupts,
            seconds: experiment.effort.seconds,
            warm_up: experiment.effort.warm_up,
        },
        effort: experiment.effort,
        baseline: &experiment.baseline,
        journal,
        records,
        progress: progress::Progress::new(),
        budget: Budget::new(within, began),
        left_out: Vec::new(),
    };
    let halted = conductor.conduct(&works).err();
    let Conductor {
        records,
        progress,
        left_out: not_measured,
        ..
    } = conductor;
    left_out.extend(not_measured);
    progress.finish();
    let mut notes = Vec::from_iter(site.note().map(str::to_owned));
    notes.extend(environment.notes());
    environment.versions.clone_from(&records.versions);
    let found = Found {
        experiment: &experiment,
        file,
        quick,
        site: &site,
        environment,
        works: &works,
        records: &records,
        left_out,
        notes,
        incomplete: halted.as_ref().map(|halt| match halt {
            Halt::Interrupted => "interrupted".to_owned(),
            Halt::Failed(error) => error.to_string(),
        }),
        // Those of the part that was resumed, too.
        seconds: records.seconds.max(began.elapsed().as_secs_f64()),
    };
    Ok(Ran {
        results: found.results(),
        folder: out,
        halted,
    })
}

/// Starts each rival once, for the first case that it serves: of those that do not get ready, why. The baseline, the
/// servers that the command line names, and our own are not tried: without them the run ends when their turn comes.
fn try_starting(
    experiment: &Experiment,
    programs: &Programs,
    site: &Site,
    interrupts: &Interrupts,
) -> std::result::Result<BTreeMap<String, String>, Halt> {
    let (works, _) = plan::works(experiment);
    let mut tried = BTreeSet::from([experiment.baseline.as_str()]);
    let mut failed = BTreeMap::new();
    for work in &works {
        for server in &work.servers {
            let is_ours = server.command.first().is_some_and(|word| word == "{quoit}");
            if server.asked_for || is_ours || !tried.insert(&server.name) {
                continue;
            }
            match launch::start_server(server, work.case, programs, site, interrupts) {
                Ok(_) => {}
                Err(Halt::Failed(error)) => {
                    // It ends with the last output of the server.
                    let text = error.to_string();
                    let lines: Vec<&str> = text
                        .lines()
                        .map(str::trim)
                        .filter(|line| !line.is_empty())
                        .collect();
                    failed.insert(server.name.clone(), lines.join("; "));
                }
                Err(halt @ Halt::Interrupted) => return Err(halt),
            }
        }
    }
    Ok(failed)
}

/// What makes two runs the same: the experiment as it is run, where, and what `{quoit}` is: slices of two builds, or on
/// two kernels, are no pairs. A build is told by the program's file, as not every build knows its commit.
fn identity(experiment: &Experiment, site: &Site, quoit: &Path) -> Result<String> {
    let file = std::fs::metadata(quoit).map_err(LabError::io(format!("looking at {}", quoit.display())))?;
    let build = (file.size(), file.mtime(), file.mtime_nsec());
    let kernel = environment::read().kernel;
    serde_json::to_string(&(
        experiment,
        site.server_cores(),
        site.generator_cores(),
        site.congestion_control(),
        build,
        kernel,
    ))
    .map_err(|error| LabError::new(format!("writing down what is measured: {error}")))
}

#[cfg(test)]
mod tests {
    use super::super::experiment;
    use super::*;

    #[test]
    fn another_build_is_another_run() {
        let (experiment, _) = experiment::find("floor").expect("it is built in");
        let site = Site::prepare(&experiment).expect("there is a core");
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("quoit");
        let identity = || identity(&experiment, &site, &program).map_err(|error| error.to_string());
        assert!(identity().expect_err("it is not there").contains("quoit"));
        std::fs::write(&program, "one build").expect("it is written");
        let one = identity().expect("it is there");
        assert_eq!(identity().expect("it is there"), one);
        std::fs::write(&program, "another build").expect("it is written");
        assert_ne!(identity().expect("it is there"), one);
    }
}
