//! `make dist-twice`: the same commit gives the same bytes, wherever it is built.

use std::process::Command;
use std::time::Instant;

use crate::place::{self, Place};
use crate::{compile, sums, tools};

/// Builds in two copies of the commit, in folders of different names, from nothing; returns the exit status.
pub(crate) fn run() -> Result<u8, String> {
    let place = Place::find()?;
    if place.is_dirty {
        return Err("commit first: what is compared is a commit".to_owned());
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = place.root.join("target/dist-twice");
    let mut lists = Vec::new();
    for name in ["one", "the-other-one"] {
        let began = Instant::now();
        let copy = folder.join(name);
        place::make_empty(&copy)?;
        tools::output(
            Command::new("git")
                .args(["clone", "--quiet", "--no-hardlinks"])
                .arg(&place.root)
                .arg(&copy),
        )?;
        tools::output(Command::new("git").current_dir(&copy).args([
            "checkout",
            "--quiet",
            "--detach",
            &place.revision,
        ]))?;
        compile::forget_zig_cache()?;
        let mut build = Command::new(&program);
        build
            .current_dir(&copy)
            .env_remove("CARGO_TARGET_DIR")
            .arg("build");
        let said = tools::output(&mut build)?;
        print!("{said}");
        println!("dist-twice: {name} took {:.0} s", began.elapsed().as_secs_f64());
        lists.push(place::read(&copy.join("target/dist").join(sums::NAME))?);
    }
    let differences = sums::differences(&lists[0], &lists[1]);
    for line in &differences {
        println!("dist-twice: {line}");
    }
    if differences.is_empty() {
        println!(
            "dist-twice: {} files, each the same both times",
            lists[0].lines().count()
        );
    }
    Ok(u8::from(!differences.is_empty()))
}
