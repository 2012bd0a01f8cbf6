//! The programs that the lab starts.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::{LabError, Result};
use super::experiment::template::Values;
use super::generator::Protocol;
use super::server::ServerCommand;

/// The engines that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Engine {
    Uring,
    Epoll,
}

impl Engine {
    /// As in arguments and ready lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

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

    /// Our server: one loop, so that it has what a floor has.
    pub(crate) fn quoit_server(&self, protocol: Protocol, engine: Engine) -> ServerCommand {
        let arguments = [
            "serve",
            protocol.name(),
            "--listen",
            "127.0.0.1:0",
            "--engine",
            engine.name(),
            "--loops",
            "1",
        ];
        ServerCommand {
            name: format!("quoit/{}", engine.name()),
            program: self.quoit.clone(),
            arguments: arguments.map(Into::into).to_vec(),
            engine: engine.name(),
            loops: 1,
        }
    }

    /// The hand-written floor of an engine.
    ///
    /// # Errors
    /// It has not been built.
    pub(crate) fn floor(&self, protocol: Protocol, engine: Engine) -> Result<ServerCommand> {
        let program = self.floors.join(format!("floor-{}", engine.name()));
        if !program.is_file() {
            return Err(LabError::new(format!(
                "there is no {}: the floors are built by `cargo build --release -p floor-uring -p floor-epoll` \
                 into the folder of the program `quoit`, which has to be a release build too",
                program.display()
            )));
        }
        Ok(ServerCommand {
            name: format!("floor/{}", engine.name()),
            program,
            arguments: [protocol.name(), "--listen", "127.0.0.1:0"]
                .map(Into::into)
                .to_vec(),
            engine: engine.name(),
            loops: 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_floor_says_how_to_build_it() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let programs = Programs {
            quoit: "quoit".into(),
            floors: folder.path().to_owned(),
        };
        let error = programs
            .floor(Protocol::Echo, Engine::Uring)
            .expect_err("the folder is empty");
        assert!(
            error.to_string().contains("cargo build --release -p floor-uring"),
            "{error}"
        );
        std::fs::write(folder.path().join("floor-uring"), "").expect("a file can be made");
        assert_eq!(
            programs
                .floor(Protocol::Echo, Engine::Uring)
                .expect("it is there")
                .name,
            "floor/uring"
        );
    }
}
