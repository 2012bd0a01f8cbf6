//! The diary of a run, from which an interrupted one goes on: a JSON object a line, written as soon as a pair is
//! done.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use quoit_report::results::model::{Environment, ReadingCost, SCHEMA, Slice};
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};

/// The diary's name in the folder of a run.
pub(crate) const NAME: &str = "journal.jsonl";

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(crate) enum Entry {
    /// The first one.
    Begin {
        schema: u32,
        /// What is measured and how, as JSON: a run goes on only as it was begun.
        plan: String,
        environment: Box<Environment>,
    },
    /// What the baseline reaches in a closed loop.
    Peak {
        case: String,
        /// The case without its pace: cases that differ only in that share it.
        of: String,
        per_second: f64,
    },
    /// A finished pair, with the spoiled slices that it took.
    Pair {
        case: String,
        series: String,
        pair: u32,
        slices: Vec<Slice>,
        /// Wall-clock seconds that it took.
        seconds: f64,
    },
    /// What a server says of its version.
    Version { server: String, version: String },
    /// What reading a server's counters costs; `None` if it shows none.
    Reading {
        server: String,
        cost: Option<ReadingCost>,
    },
    /// System calls per unit, or why they were not counted.
    SystemCalls {
        case: String,
        server: String,
        per_unit: Option<f64>,
        reason: Option<String>,
    },
}

/// An open diary.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Begins a diary in a folder that has none.
    ///
    /// # Errors
    /// There is one already, or the file cannot be written.
    pub(crate) fn begin(folder: &Path, plan: &str, environment: &Environment) -> Result<Self> {
        let path = folder.join(NAME);
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let file = file.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => LabError::new(format!(
                "{} has a run already; go on with it by --resume, or choose another folder with --out",
                folder.display()
            )),
            _ => LabError::io(format!("making {}", path.display()))(error),
        })?;
        let mut journal = Self { path, file };
        journal.write(&Entry::Begin {
            schema: SCHEMA,
            plan: plan.to_owned(),
            environment: Box::new(environment.clone()),
        })?;
        Ok(journal)
    }

    /// Opens the diary of an earlier run of the same plan: what it says, and itself to go on. A last line that was cut
    /// off is removed.
    ///
    /// # Errors
    /// There is none, it cannot be understood, or it is of another plan.
    pub(crate) fn resume(folder: &Path, plan: &str) -> Result<(Self, Vec<Entry>)> {
        let path = folder.join(NAME);
        let doing = || format!("resuming the run in {}", folder.display());
        let text = std::fs::read_to_string(&path).map_err(LabError::io(doing()))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let entries = text[..whole]
            .lines()
            .enumerate()
            .map(|(index, line)| {
                serde_json::from_str(line).map_err(|error| {
                    let line = index + 1;
                    LabError::new(format!(
                        "{}: line {line} of {NAME} cannot be read: {error}",
                        doing()
                    ))
                })
            })
            .collect::<Result<Vec<Entry>>>()?;
        match entries.first() {
            Some(Entry::Begin { schema, .. }) if *schema != SCHEMA => {
                return Err(LabError::new(format!(
                    "{}: it has schema {schema}, and this program writes {SCHEMA}",
                    doing()
                )));
            }
            Some(Entry::Begin { plan: other, .. }) if other != plan => {
                return Err(LabError::new(format!(
                    "{}: it was begun with another experiment, other options, another build of the program, or on \
                     another kernel or other cores; give the same, or begin anew in another folder",
                    doing()
                )));
            }
            Some(Entry::Begin { .. }) => {}
            _ => return Err(LabError::new(format!("{}: {NAME} has no beginning", doing()))),
        }
        let mut file = OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(LabError::io(doing()))?;
        file.set_len(whole as u64)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(LabError::io(doing()))?;
        Ok((Self { path, file }, entries))
    }

    /// Adds a line.
    pub(crate) fn write(&mut self, entry: &Entry) -> Result<()> {
        let doing = || format!("writing {}", self.path.display());
        let mut line =
            serde_json::to_string(entry).map_err(|error| LabError::new(format!("{}: {error}", doing())))?;
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .map_err(LabError::io(doing()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::environment;

    fn pair(number: u32) -> Entry {
        Entry::Pair {
            case: "a case".to_owned(),
            series: "control x".to_owned(),
            pair: number,
            slices: vec![Slice::default()],
            seconds: 1.5,
        }
    }

    #[test]
    fn what_was_written_is_there_after_a_crash() {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = environment::read();
        let mut journal = Journal::begin(folder.path(), "plan", &environment).expect("it is new");
        journal.write(&pair(0)).expect("it is written");
        drop(journal);
        let path = folder.path().join(NAME);
        let mut text = fs::read_to_string(&path).expect("it is there");
        text.push_str("{\"entry\":\"pair\",\"cas");
        fs::write(&path, text).expect("it is written");

        let (mut journal, entries) =
            Journal::resume(folder.path(), "plan").expect("it is whole but for a line");
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[1], pair(0));
        journal.write(&pair(1)).expect("it is written");
        let (_, entries) = Journal::resume(folder.path(), "plan").expect("it is whole");
        assert_eq!(entries[1..], [pair(0), pair(1)]);
    }

    #[test]
    fn another_run_is_not_mixed_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let resumed = |plan: &str| {
            Journal::resume(folder.path(), plan)
                .err()
                .map(|error| error.to_string())
        };
        assert!(resumed("plan").is_some_and(|text| text.contains("No such file")));
        let environment = environment::read();
        drop(Journal::begin(folder.path(), "plan", &environment).expect("it is new"));
        assert!(resumed("other").is_some_and(|text| text.contains("another experiment")));
        let again = Journal::begin(folder.path(), "plan", &environment).err();
        assert!(again.is_some_and(|error| error.to_string().contains("--resume")));
        fs::write(folder.path().join(NAME), "nonsense\n").expect("it is written");
        assert!(resumed("plan").is_some_and(|text| text.contains("line 1")));
    }
}
