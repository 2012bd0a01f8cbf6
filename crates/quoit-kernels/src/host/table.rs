//! The table of a run: kernel by check.

use comfy_table::{ContentArrangement, Table, presets};
use quoit_kernels::list::List;
use quoit_kernels::message::Outcome;
use quoit_kernels::results::{Cell, Results};

/// A row for each check, a column for each kernel.
pub(crate) fn print(list: &List, results: &Results) -> String {
    let kernels: Vec<_> = list
        .kernels
        .iter()
        .filter(|kernel| results.kernels.contains_key(&kernel.name))
        .collect();
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(std::iter::once("").chain(kernels.iter().map(|kernel| kernel.name.as_str())));
    for check in &list.checks {
        let cells = kernels
            .iter()
            .map(|kernel| results.kernels[&kernel.name].cells.get(&check.name));
        let row: Vec<_> = cells.map(|cell| cell.map_or_else(String::new, text)).collect();
        if row.iter().any(|cell| !cell.is_empty()) {
            table.add_row(std::iter::once(check.name.clone()).chain(row));
        }
    }
    table.to_string()
}

fn text(cell: &Cell) -> String {
    let words = cell.runs.iter().map(|run| {
        let seconds = run.seconds;
        match &run.outcome {
            Outcome::Passed if run.warnings.is_empty() => format!("{seconds:.0} s"),
            Outcome::Passed => "WARNED".to_owned(),
            Outcome::LeftOut(_) => "left out".to_owned(),
            Outcome::Failed(_) if run.failed_tests.is_empty() => "FAILED".to_owned(),
            Outcome::Failed(_) => format!("{} FAILED", run.failed_tests.len()),
            Outcome::Hung => "HUNG".to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(", ")
}
