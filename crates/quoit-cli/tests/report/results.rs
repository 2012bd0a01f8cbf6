//! Made-up results as files: the example of `quoit-report`'s own tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use quoit_report::results::model;
use tempfile::TempDir;

#[path = "../../../quoit-report/src/results/example.rs"]
pub(crate) mod example;

/// A folder with files of results.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes results and gives the file.
    pub(crate) fn write(&self, name: &str, results: &model::Results) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, serde_json::to_string(results).unwrap()).unwrap();
        path
    }
}

/// Runs `quoit lab COMMAND` with these files and further arguments.
pub(crate) fn lab(command: &str, files: &[&Path], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quoit"))
        .args(["lab", command])
        .args(files)
        .args(arguments)
        .output()
        .unwrap()
}
