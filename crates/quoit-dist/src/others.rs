//! The ecosystems that have a script of their own: `dist/NAME/pack` makes their packages, `dist/NAME/check` tries them. What both
//! are given stands in `dist/README.md`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::Place;
use crate::tools;

/// The scripts of that name, sorted: `pack` or `check`.
pub(crate) fn scripts(place: &Place, name: &str) -> Result<Vec<PathBuf>, String> {
    let dist = place.root.join("dist");
    let entries = std::fs::read_dir(&dist).map_err(|error| format!("{}: {error}", dist.display()))?;
    let mut scripts: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path().join(name)))
        .filter(|path| path.is_file())
        .collect();
    scripts.sort();
    Ok(scripts)
}

/// A script, with what it is given.
pub(crate) fn command(place: &Place, script: &Path) -> Command {
    let mut command = Command::new(script);
    command
        .current_dir(&place.root)
        .env("QUOIT_VERSION", &place.version)
        .env("QUOIT_REVISION", &place.revision)
        .env("SOURCE_DATE_EPOCH", place.epoch.to_string())
        .env("QUOIT_DIST", place.out())
        .env("QUOIT_LIBRARIES", place.work().join("library"));
    command
}

/// Runs them all.
pub(crate) fn pack(place: &Place) -> Result<(), String> {
    for script in scripts(place, "pack")? {
        tools::output(&mut command(place, &script))?;
    }
    Ok(())
}
