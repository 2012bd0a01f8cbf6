//! What is kept of the outcomes, and the table that is made of it.

use std::fmt::Write as _;
use std::path::Path;

use super::Outcome;

/// Where the outcomes are kept, and the page that has their table.
const RESULTS: &str = "lab/restarts/results.json";
const PAGE: &str = "docs/restarts.md";

const BEGIN: &str = "<!-- restarts: begin -->";
const END: &str = "<!-- restarts: end -->";

/// One outcome, for people.
pub(super) fn line(outcome: &Outcome) -> String {
    format!(
        "{}: {} restarts in {} s at {} of {} requests per second: {} sent, {} answered, {} errors, {} repeated; p99 {} ms, \
         longest {} ms; a start took up to {} ms, a drain {} ms",
        outcome.server,
        outcome.restarts,
        outcome.seconds,
        outcome.offered_per_second,
        outcome.peak_per_second,
        outcome.sent_requests,
        outcome.received_replies,
        outcome.errors,
        outcome.repeated_requests,
        outcome.p99_ms,
        outcome.longest_ms,
        outcome.longest_start_ms,
        outcome.longest_drain_ms,
    )
}

fn read(path: &Path) -> Result<Vec<Outcome>, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| named(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(named(&error)),
    }
}

/// Adds an outcome to those of the file, in the place of an earlier one of the same server.
pub(super) fn keep(path: &Path, outcome: &Outcome) -> Result<(), String> {
    let mut all = read(path)?;
    match all.iter_mut().find(|other| other.server == outcome.server) {
        Some(other) => *other = outcome.clone(),
        None => all.push(outcome.clone()),
    }
    let mut text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
    text.push('\n');
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| server | restarts | offered per second | requests | failed, reset or wrong | repeated | connections made anew | p99 | \
         longest | kernel, processors, commit |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for outcome in outcomes {
        let lost = outcome.errors + outcome.sent_requests.saturating_sub(outcome.received_replies);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {:.1} ms | {:.0} ms | {}, {}, `{}` |",
            outcome.server,
            outcome.restarts,
            grouped(outcome.offered_per_second as u64),
            grouped(outcome.sent_requests),
            lost,
            outcome.repeated_requests,
            grouped(outcome.reconnects),
            outcome.p99_ms,
            outcome.longest_ms,
            outcome.kernel,
            outcome.processors,
            outcome.commit,
        );
    }
    text
}

/// The page with the table of the outcomes in it; `root` is the folder of the project.
///
/// # Errors
/// The outcomes cannot be read, or the page has no place for a table.
pub fn write_page(root: &Path) -> Result<String, String> {
    let outcomes = read(&root.join(RESULTS))?;
    let page = root.join(PAGE);
    let text = std::fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
    let place = || {
        let (before, rest) = text.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    };
    let (before, after) = place().ok_or_else(|| format!("{} has no place for the table", page.display()))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n{END}{after}", table(&outcomes)))
}
