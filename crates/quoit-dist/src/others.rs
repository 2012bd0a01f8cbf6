//! The ecosystems that have a script of their own: `dist/NAME/pack` makes their packages, `dist/NAME/check` tries them. What both
//! are given stands in `dist/README.md`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// What packing for them lacks on this machine, as each script says it.
pub(crate) fn missing(place: &Place) -> Result<Vec<String>, String> {
    let mut missing = Vec::new();
    for script in scripts(place, "pack")? {
        let asked = command(place, &script)
            .arg("--tools")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", script.display()))?;
        if !asked.status.success() {
            let said = String::from_utf8_lossy(&asked.stderr);
            missing.push(said.trim().replace('\n', "\n  "));
        }
    }
    Ok(missing)
}

/// Runs them all.
pub(crate) fn pack(place: &Place) -> Result<(), String> {
    for script in scripts(place, "pack")? {
        tools::output(&mut command(place, &script))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn what_scripts_lack_is_gathered() {
        let folder = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        tree.add_program("dist/a/pack", "#!/bin/sh\ntest \"$1\" = --tools\n");
        for name in ["b", "c"] {
            let script = format!("#!/bin/sh\necho no {name} >&2\nexit 1\n");
            tree.add_program(format!("dist/{name}/pack"), script);
        }
        tree.write_to(folder.path()).unwrap();
        let missing = missing(&Place::made_up(folder.path(), "1.2.3")).unwrap();
        assert_eq!(missing, ["no b", "no c"]);
    }

    /// Asked before an hour of building, each script names what it needs, and builds nothing.
    #[test]
    fn every_script_names_its_tool() {
        let place = Place::made_up(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), "1.2.3");
        // A machine with nothing but this.
        let programs = tempfile::tempdir().unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let dirname = std::env::split_paths(&path)
            .map(|folder| folder.join("dirname"))
            .find(|program| program.exists())
            .unwrap();
        std::os::unix::fs::symlink(dirname, programs.path().join("dirname")).unwrap();
        for (name, tool) in [("go", "go"), ("java", "mvn"), ("dotnet", "dotnet")] {
            let script = place.root.join("dist").join(name).join("pack");
            let asked = command(&place, &script)
                .arg("--tools")
                .env("PATH", programs.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&asked.stderr);
            let expected = format!("dist/{name}/pack: {tool} was not found; install ");
            assert!(!asked.status.success() && said.starts_with(&expected), "{said}");
        }
    }
}
