//! Where the figures of a page come from: date, commit and machine.

use std::time::{Duration, UNIX_EPOCH};

use crate::report::view;
use crate::results::model::Results;

/// What stands in a generated page for whoever opens its file.
pub(super) fn mark(sources: &str) -> String {
    format!("<!-- Written by `quoit lab pages` from {sources}. Do not edit: run `make result-pages`. -->\n\n")
}

/// `26 Nov 2026`.
pub(super) fn date(results: &Results) -> String {
    let started = UNIX_EPOCH + Duration::from_secs(results.environment.started_at);
    let words = httpdate::fmt_http_date(started);
    words.split(' ').skip(1).take(3).collect::<Vec<_>>().join(" ")
}

pub(super) fn commit(results: &Results) -> String {
    let commit = results.environment.commit.as_deref();
    commit.map_or_else(|| "unknown".to_owned(), view::short_commit)
}

/// One sentence: when, what, where.
pub(super) fn measured(results: &Results) -> String {
    format!(
        "Measured on {} at commit {}. {}.{}",
        date(results),
        commit(results),
        results.environment.summary(),
        if results.experiment.quick {
            " **A quick run**: it shows that everything runs, and judges little."
        } else {
            ""
        }
    )
}
