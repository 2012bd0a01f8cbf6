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
