//! What clients under test say beside, of themselves and of their servers: a row a figure, a column a server.

use super::view;
use crate::results::model::{CaseResults, ServerSummary};
use crate::table;

/// What stands above the table.
pub(super) const ABOUT: &str =
    "What the clients say of themselves and of the servers; medians over the slices.";

/// The servers that have such figures, in the order of the other tables.
pub(super) fn servers(case: &CaseResults) -> Vec<&ServerSummary> {
    let mut servers = view::servers(case);
    servers.retain(|server| !server.figures.told.is_empty());
    servers
}

/// The rows, each beginning with the figure's name, for those servers.
pub(super) fn rows(servers: &[&ServerSummary]) -> Vec<Vec<String>> {
    let mut names: Vec<&String> = servers
        .iter()
        .flat_map(|server| server.figures.told.keys())
        .collect();
    names.sort_unstable();
    names.dedup();
    let cell = |server: &&ServerSummary, name: &str| {
        let value = server.figures.told.get(name);
        value.map_or_else(
            || view::NONE.to_owned(),
            |value| match value.abs() {
                // What is not whole is mostly small.
                ..1000.0 if value.fract() != 0.0 => table::per_unit(*value),
                _ => table::count(*value),
            },
        )
    };
    let row = |name: &String| {
        let cells = servers.iter().map(|server| cell(server, name));
        std::iter::once(name.clone()).chain(cells).collect()
    };
    names.into_iter().map(row).collect()
}
