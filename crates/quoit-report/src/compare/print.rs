//! The changes as a table for people.

use std::fmt::Write as _;

use super::changes::{Change, Changes, Direction};
use crate::report::view::{self, NONE, or_none};
use crate::table;

/// What got worse first, and one line that sums it up.
pub(super) fn text(changes: &Changes) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {} → {}", changes.experiment, changes.old, changes.new);
    let mut rows = table::table(&[
        "case",
        "server",
        "",
        "relative cost",
        "change",
        "band",
        "absolute change",
        "band",
        "system calls",
    ]);
    let band = |change: &Change| or_none(change.band, view::band);
    for server in &changes.servers {
        let relative = server.relative.as_ref();
        let absolute = server.absolute.as_ref();
        let [old_calls, new_calls] = server
            .system_calls_per_unit
            .map(|calls| or_none(calls, table::per_unit));
        let word = match (server.direction, server.errors) {
            (_, [0, errors]) if errors > 0 => format!("WORSE: {errors} errors"),
            (Direction::Worse, _) => "WORSE".to_owned(),
            (Direction::Same, _) => "same".to_owned(),
            (Direction::Better, _) => "better".to_owned(),
        };
        rows.add_row(vec![
            server.case.clone(),
            server.server.clone(),
            word,
            or_none(relative, |change| {
                format!("{:.3} → {:.3}", change.old, change.new)
            }),
            or_none(relative, |change| view::ratio(change.change)),
            or_none(relative, band),
            or_none(absolute, |change| view::ratio(change.change)),
            or_none(absolute, band),
            if old_calls == NONE && new_calls == NONE {
                NONE.to_owned()
            } else {
                format!("{old_calls} → {new_calls}")
            },
        ]);
    }
    let _ = writeln!(text, "{rows}");
    for note in &changes.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    let same = changes.servers.len() - changes.worse - changes.better;
    let _ = writeln!(
        text,
        "{} worse, {} better, {same} the same.",
        changes.worse, changes.better
    );
    text
}
