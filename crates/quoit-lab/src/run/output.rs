//! The results of a run, and where they are written.

use std::path::Path;
use std::slice;

use quoit_report::report;
use quoit_report::results;
use quoit_report::results::model::{
    EffortUsed, Environment, ExperimentInfo, LeftOut, Placement, Results, SCHEMA, Slice,
};

use super::plan::Work;
use super::record::Records;
use super::summary;
use crate::console;
use crate::error::{LabError, Result};
use crate::experiment::model::Experiment;
use crate::placement::site::Site;

/// The raw results' name in the folder of a run.
const RESULTS: &str = "results.json";
/// The name of the page.
const PAGE: &str = "report.html";

/// All that a run found.
pub(crate) struct Found<'a> {
    pub(crate) experiment: &'a Experiment,
    /// The text of its file.
    pub(crate) file: String,
    pub(crate) quick: bool,
    pub(crate) site: &'a Site,
    pub(crate) environment: Environment,
    pub(crate) works: &'a [Work<'a>],
    pub(crate) records: &'a Records,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) notes: Vec<String>,
    pub(crate) incomplete: Option<String>,
    pub(crate) seconds: f64,
}

impl Found<'_> {
    /// The results as they are written.
    pub(crate) fn results(self) -> Results {
        let Self {
            experiment, records, ..
        } = self;
        let effort = experiment.effort;
        let mean = |share: fn(&Slice) -> Option<f64>| {
            let shares: Vec<f64> = records.slices().filter_map(share).collect();
            (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
        };
        let mut notes = self.notes;
        for work in self.works {
            let Some(record) = records.of(work) else { continue };
            if let Some(peak) = record.peak {
                notes.push(format!(
                    "{}: the baseline's peak{} is {peak:.0} {}s/s, the median of some slices",
                    work.name,
                    if work.is_watched() {
                        " in a closed loop"
                    } else {
                        ""
                    },
                    work.unit()
                ));
            }
            for reason in record
                .system_calls
                .values()
                .filter_map(|counted| counted.as_ref().err())
            {
                let note = format!("system calls were not counted: {reason}");
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        let cores = |cores: &[usize]| cores.iter().map(|core| *core as u32).collect();
        Results {
            schema: SCHEMA,
            experiment: ExperimentInfo {
                name: experiment.name.clone(),
                title: experiment.title.clone(),
                about: experiment.about.clone(),
                claims: experiment
                    .claims
                    .iter()
                    .map(|claim| (claim.source.clone(), claim.says.clone()))
                    .collect(),
                published: experiment.published.clone(),
                quick: self.quick,
                file: self.file,
            },
            environment: Environment {
                stolen_share: mean(|slice| slice.stolen_share),
                foreign_share: mean(|slice| slice.foreign_share),
                ..self.environment
            },
            placement: Placement {
                kind: experiment.placement.name().to_owned(),
                server_cores: cores(self.site.server_cores()),
                generator_cores: cores(self.site.generator_cores()),
            },
            effort: EffortUsed {
                seconds: effort.seconds,
                warm_up_seconds: effort.warm_up,
                least_pairs: effort.pairs,
                most_pairs: effort.most_pairs,
                band_aim: effort.band,
                spoiled_slices: records.slices().filter(|slice| slice.spoiled.is_some()).count() as u32,
                total_seconds: self.seconds,
                observer_cpu_share: mean(|slice| slice.observer_cpu_share).unwrap_or(0.0),
            },
            cases: self
                .works
                .iter()
                .filter_map(|work| {
                    let record = records.of(work)?;
                    summary::of_case(work, record, &records.readings, &effort, &experiment.baseline)
                })
                .collect(),
            left_out: self.left_out,
            notes,
            incomplete: self.incomplete,
        }
    }
}

/// Writes the results and the page into the folder of the run.
///
/// # Errors
/// The folder cannot be written to.
pub(crate) fn write(folder: &Path, results: &Results) -> Result<()> {
    let (raw, page) = (folder.join(RESULTS), folder.join(PAGE));
    results::write(&raw, results)?;
    results::replace(&page, report::page(slice::from_ref(results))?.as_bytes())?;
    console::say(format_args!("raw results: {}", raw.display()));
    console::say(format_args!("page:        {}", page.display()));
    Ok(())
}

/// Prints the results.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) fn print(results: &Results, as_json: bool) -> Result<()> {
    if as_json {
        let json = serde_json::to_string_pretty(results)
            .map_err(|error| LabError::new(format!("writing the results as JSON: {error}")))?;
        console::print(&(json + "\n"))
    } else {
        console::print(&report::markdown(results))
    }
}
