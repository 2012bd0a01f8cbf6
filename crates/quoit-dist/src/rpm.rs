//! Packages of Red Hat's and SUSE's, by rpmbuild: it finds out itself what a library gives and needs.

use std::process::Command;

use crate::place::{self, Place};
use crate::target::Target;
use crate::tools;
use crate::tree::Tree;

/// Builds the packages of `dist/quoit.spec` from a tree below `/`, and returns their names.
pub(crate) fn write(place: &Place, target: Target, tree: &Tree) -> Result<Vec<String>, String> {
    let work = place.work().join("rpm").join(target.arch);
    place::make_empty(&work)?;
    let files = work.join("files");
    tree.write_to(&files)?;
    let define = |name: &str, value: &str| format!("{name} {value}");
    let mut build = Command::new("rpmbuild");
    build
        .current_dir(&work)
        .env("SOURCE_DATE_EPOCH", place.epoch.to_string())
        // Nothing of the machine or of whoever builds: not its folders, its name, its macros or its language.
        .env("LC_ALL", "C")
        .env("HOME", &work)
        .args(["-bb", "--quiet", "--target", &format!("{}-linux", target.arch)]);
    let epoch = place.epoch.to_string();
    for (name, value) in [
        ("_topdir", work.to_string_lossy().as_ref()),
        ("_rpmdir", work.join("out").to_string_lossy().as_ref()),
        ("_dbpath", work.join("db").to_string_lossy().as_ref()),
        ("_buildhost", "localhost"),
        ("use_source_date_epoch_as_buildtime", "1"),
        ("clamp_mtime_to_source_date_epoch", "1"),
        ("source_date_epoch_from_changelog", "0"),
        ("quoit_version", &place.version),
        ("quoit_files", files.to_string_lossy().as_ref()),
        ("quoit_epoch", &epoch),
    ] {
        build.arg("--define").arg(define(name, value));
    }
    build.arg(place.root.join("dist/quoit.spec"));
    tools::quiet_output(&mut build)?;
    let mut names = Vec::new();
    let built = work.join("out").join(target.arch);
    let entries = std::fs::read_dir(&built).map_err(|error| format!("{}: {error}", built.display()))?;
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        place::write(&place.out().join(&name), place::bytes(&entry.path())?)?;
        names.push(name);
    }
    names.sort();
    Ok(names)
}
