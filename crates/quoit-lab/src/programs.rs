//! The programs that the lab starts.

use std::path::{Path, PathBuf};

use super::error::{LabError, Result};
use super::experiment::template::Values;

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The program `quoit`, which serves and loads.
    pub(crate) quoit: PathBuf,
    /// The folder that the floors are in.
    floors: PathBuf,
}

impl Programs {
    /// `program`, or else the program that is running; the floors are looked for next to the one that is
    /// running, since they are built into the same folder.
    pub(crate) fn find(program: Option<&Path>) -> Result<Self> {
        let this = std::env::current_exe().map_err(LabError::io("finding the program that is running"))?;
        let floors = this.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self {
            quoit: program.map_or(this, Path::to_owned),
            floors,
        })
    }

    /// The folder of the built rivals: what QUOIT_LAB_PEERS names, or else where `make lab-peers` puts them, beside
    /// the folder of the program.
    pub(crate) fn peers(&self) -> PathBuf {
        match std::env::var_os("QUOIT_LAB_PEERS") {
            Some(folder) => folder.into(),
            None => self.floors.parent().unwrap_or(&self.floors).join("peers"),
        }
    }

    /// The file of the program `quoit`: a bare name is looked for in PATH, as it is when it is started.
    pub(crate) fn quoit_file(&self) -> PathBuf {
        let is_name = self
            .quoit
            .parent()
            .is_some_and(|parent| parent.as_os_str().is_empty());
        let folders = std::env::var_os("PATH").filter(|_| is_name).unwrap_or_default();
        std::env::split_paths(&folders)
            .map(|folder| folder.join(&self.quoit))
            .find(|file| file.is_file())
            .unwrap_or_else(|| self.quoit.clone())
    }

    /// What `{quoit}`, `{bin}` and `{peers}` stand for in the commands of experiments.
    pub(crate) fn values(&self) -> Values {
        let mut values = Values::default();
        values
            .set("quoit", self.quoit.display().to_string())
            .set("bin", self.floors.display().to_string())
            .set("peers", self.peers().display().to_string());
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_it_is_started() {
        let file = |program: &str| {
            let programs = Programs::find(Some(Path::new(program))).expect("this program has a file");
            programs.quoit_file()
        };
        let shell = file("sh");
        assert!(shell.is_absolute() && shell.ends_with("sh"), "{shell:?}");
        assert_eq!(file("./sh"), Path::new("./sh"));
        assert_eq!(file("no program"), Path::new("no program"));
    }
}
