//! What was counted: kept as JSON, and shown as tables.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ends::EndsCase;
use crate::steps::{Counted, Counts, Step};
use crate::subject::{Server, Work};

/// All cases of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results<C> {
    /// Of the program that was traced or measured.
    pub(crate) version: String,
    /// Of the kernel: what it offers decides which way a turn takes.
    pub(crate) kernel: String,
    pub(crate) cases: Vec<C>,
}

/// A server with one kind of work, and as many requests at once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) server: Server,
    pub(crate) work: Work,
    pub(crate) requests: u32,
    /// The turns that they took.
    pub(crate) turns: f64,
    /// Of these turns, the handler apart.
    pub(crate) total: Counts,
    pub(crate) steps: BTreeMap<Step, Counts>,
}

impl Case {
    pub(crate) fn new(server: Server, work: Work, requests: u32, counted: Counted) -> Self {
        Self {
            server,
            work,
            requests,
            turns: counted.turns,
            total: counted.total,
            steps: counted.steps,
        }
    }

    pub(crate) fn title(&self) -> String {
        format!("{}, {}, {} at once", self.server, self.work, self.requests)
    }

    pub(crate) fn steps_table(&self) -> Table {
        let mut table = table(&["step", "instructions", "lines of code", "lines of data"]);
        for (step, counts) in &self.steps {
            table.add_row(row(step.to_string(), counts));
        }
        table.add_row(row("all, without the handler".to_owned(), &self.total));
        table
    }
}

impl<C> Results<C> {
    /// None yet, of this program on this kernel.
    pub(crate) fn here() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel.trim().to_owned(),
            cases: Vec::new(),
        }
    }
}

impl Results<Case> {
    pub(crate) fn table(&self) -> Table {
        let mut table = table(&[
            "work",
            "server",
            "requests at once",
            "turns",
            "instructions",
            "lines of code",
            "lines of data",
            "lines",
        ]);
        for case in &self.cases {
            table.add_row([
                case.work.to_string(),
                case.server.to_string(),
                case.requests.to_string(),
                format!("{:.1}", case.turns),
                case.total.instructions.to_string(),
                case.total.code_lines.to_string(),
                case.total.data_lines.to_string(),
                (case.total.code_lines + case.total.data_lines).to_string(),
            ]);
        }
        align_right(&mut table, 2..8);
        table
    }
}

impl Results<EndsCase> {
    pub(crate) fn table(&self) -> Table {
        let mut table = table(&[
            "end",
            "server",
            "connections",
            "turns",
            "µs for each",
            "least",
            "most",
        ]);
        let microseconds = |nanoseconds: f64| format!("{:.2}", nanoseconds / 1_000.0);
        for case in &self.cases {
            table.add_row([
                case.end.to_string(),
                case.server.to_string(),
                case.connections.to_string(),
                format!("{:.0}", case.turns),
                microseconds(case.nanoseconds),
                microseconds(case.range.0),
                microseconds(case.range.1),
            ]);
        }
        align_right(&mut table, 2..7);
        table
    }
}

/// Results that were kept.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}

pub(crate) fn json(results: &impl Serialize) -> Result<String, String> {
    serde_json::to_string_pretty(results).map_err(|error| error.to_string())
}

/// Writes results to a file, if one is given, for [`read`].
pub(crate) fn keep(results: &impl Serialize, file: Option<&Path>) -> Result<(), String> {
    let Some(file) = file else {
        return Ok(());
    };
    std::fs::write(file, json(results)? + "\n").map_err(|error| format!("{}: {error}", file.display()))
}

fn align_right(table: &mut Table, columns: Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn row(name: String, counts: &Counts) -> [String; 4] {
    [
        name,
        counts.instructions.to_string(),
        counts.code_lines.to_string(),
        counts.data_lines.to_string(),
    ]
}

/// A table in Markdown, which is as good to read in a terminal.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table
}
