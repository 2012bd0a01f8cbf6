//! What was found: the table, and the file that pages are written from.

use std::collections::BTreeMap;

use comfy_table::{ContentArrangement, Table, presets};
use serde::{Deserialize, Serialize};

use super::distribution::Kind;

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Passed,
    /// It is not for this place, for this reason.
    LeftOut(String),
    Failed(String),
}

/// A check, ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) outcome: Outcome,
    pub(crate) seconds: f64,
    /// What it found: an engine, a version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) found: Option<String>,
}

/// A way of installing, in one distribution.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) distribution: String,
    pub(crate) title: String,
    pub(crate) packages: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// By the name of the check.
    pub(crate) checks: BTreeMap<String, Cell>,
}

impl Row {
    /// Whether it is one of a distribution's packages, with the checks of these.
    pub(crate) fn is_of_a_distribution(&self) -> bool {
        [Kind::Deb, Kind::Rpm, Kind::Archive, Kind::Musl]
            .iter()
            .any(|kind| kind.name() == self.packages)
    }
}

/// All of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) version: String,
    pub(crate) revision: String,
    pub(crate) kernel: String,
    pub(crate) rows: Vec<Row>,
}

/// The checks, in the order in which they are made.
pub(crate) const CHECKS: [&str; 8] = [
    "install",
    "doctor",
    "epoll",
    "uring",
    "pkg-config",
    "static",
    "cmake",
    "uninstall",
];

impl Results {
    /// For whoever ran it.
    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["", "packages"].iter().chain(&CHECKS));
        for row in self.rows.iter().filter(|row| row.is_of_a_distribution()) {
            let cells = CHECKS.map(|name| row.checks.get(name).map_or_else(String::new, text));
            table.add_row([row.title.clone(), row.packages.clone()].into_iter().chain(cells));
        }
        let mut lines = table.to_string();
        for (row, name, cell) in self.cells() {
            let (what, why) = match &cell.outcome {
                Outcome::Passed if row.is_of_a_distribution() => continue,
                Outcome::Passed => {
                    let found = cell.found.as_deref().unwrap_or_default();
                    lines.push_str(&format!(
                        "\n{}, {}, {name}: {:.1} s {found}",
                        row.title, row.packages, cell.seconds
                    ));
                    continue;
                }
                Outcome::LeftOut(why) => ("left out", why),
                Outcome::Failed(why) => ("FAILED", why),
            };
            lines.push_str(&format!(
                "\n{}, {}, {name}: {what}: {why}",
                row.title, row.packages
            ));
        }
        lines
    }

    fn cells(&self) -> impl Iterator<Item = (&Row, &str, &Cell)> {
        self.rows.iter().flat_map(|row| {
            row.checks
                .iter()
                .map(move |(name, cell)| (row, name.as_str(), cell))
        })
    }

    /// 0 if nothing failed and something passed.
    pub(crate) fn exit_code(&self) -> u8 {
        let mut passed = false;
        for (_, _, cell) in self.cells() {
            match cell.outcome {
                Outcome::Passed => passed = true,
                Outcome::LeftOut(_) => {}
                Outcome::Failed(_) => return 1,
            }
        }
        u8::from(!passed)
    }
}

fn text(cell: &Cell) -> String {
    match (&cell.outcome, &cell.found) {
        (Outcome::Passed, Some(found)) => found.clone(),
        (Outcome::Passed, None) => format!("{:.1} s", cell.seconds),
        (Outcome::LeftOut(_), _) => "left out".to_owned(),
        (Outcome::Failed(_), _) => "FAILED".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(outcomes: &[Outcome]) -> Results {
        let cell = |outcome: &Outcome| Cell {
            outcome: outcome.clone(),
            seconds: 1.5,
            found: None,
        };
        let row = Row {
            distribution: "x-1".to_owned(),
            title: "X 1".to_owned(),
            packages: "deb".to_owned(),
            note: None,
            checks: CHECKS
                .iter()
                .zip(outcomes)
                .map(|(name, outcome)| ((*name).to_owned(), cell(outcome)))
                .collect(),
        };
        Results {
            rows: vec![row],
            ..Results::default()
        }
    }

    #[test]
    fn a_failure_is_seen_and_told() {
        let left_out = Outcome::LeftOut("no root".to_owned());
        assert_eq!(results(&[Outcome::Passed, left_out.clone()]).exit_code(), 0);
        let failed = results(&[Outcome::Passed, left_out, Outcome::Failed("too old".to_owned())]);
        assert_eq!(failed.exit_code(), 1);
        let table = failed.table();
        assert!(table.contains("X 1, deb, epoll: FAILED: too old"), "{table}");
        assert!(table.contains("X 1, deb, doctor: left out: no root"), "{table}");
    }

    #[test]
    fn nothing_done_is_no_success() {
        assert_eq!(Results::default().exit_code(), 1);
        assert_eq!(results(&[Outcome::LeftOut("no root".to_owned())]).exit_code(), 1);
    }
}
