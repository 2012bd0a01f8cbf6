//! Experiments: files that say which servers are put under which load.

mod built_in;
mod cases;
mod file;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
pub(crate) mod model;
mod nearest;
pub(crate) mod own;
mod reader;
pub(crate) mod template;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use model::Experiment;

use super::error::{LabError, Result};

/// The experiment that is called so or that the file at this path says, with the file's text.
///
/// # Errors
/// There is none, or it has mistakes: all of them, each with file, line and field.
pub(crate) fn find(name_or_path: &str) -> Result<(Experiment, String)> {
    if let Some(file) = built_in::EXPERIMENTS
        .iter()
        .find(|file| file.name == name_or_path)
    {
        return Ok((file.read()?, file.text.to_owned()));
    }
    let path = Path::new(name_or_path);
    let is_path = name_or_path.contains('/') || path.extension().is_some_and(|ending| ending == "toml");
    if !is_path {
        let names = || built_in::EXPERIMENTS.iter().map(|file| file.name);
        return Err(LabError::new(format!(
            "there is no experiment `{name_or_path}`{}; there are {}, and any path to a file with the ending .toml",
            nearest::nearest(name_or_path, names()),
            names().collect::<Vec<_>>().join(", ")
        )));
    }
    let text = fs::read_to_string(path).map_err(|error| {
        LabError::new(format!(
            "reading the experiment {name_or_path}: {error}; `quoit lab list` names those that are built in, \
             and docs/experiments.md says how to write one"
        ))
    })?;
    let name = path
        .file_stem()
        .map_or_else(|| name_or_path.into(), |stem| stem.to_string_lossy());
    let experiment = Experiment {
        own_programs: true,
        ..file::read(name_or_path, &name, &text, built_in::catalogue()?)?
    };
    Ok((experiment, text))
}

/// The experiment of `quoit lab demo`, with the file's text.
///
/// # Errors
/// It has mistakes, against which it is tested.
pub(crate) fn demo() -> Result<(Experiment, String)> {
    Ok((built_in::DEMO.read()?, built_in::DEMO.text.to_owned()))
}

/// All experiments of the program, in the order in which they are worth reading.
///
/// # Errors
/// One of them has a mistake, as can happen through the environment variables that commands are read from.
pub(crate) fn list() -> Result<Vec<Experiment>> {
    built_in::EXPERIMENTS.iter().map(built_in::File::read).collect()
}
