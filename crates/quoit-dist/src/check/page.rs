//! The tables of `docs/install.md`, from what was kept of a check.

use std::fmt::Write as _;

use super::distribution::List;
use super::results::{CHECKS, Cell, Outcome, Results, Row};
use crate::place::{self, Place};

const KEPT: &str = "dist/results.json";
const PAGE: &str = "docs/install.md";
const BEGIN: &str = "<!-- What `make dist-check` found, written by `make dist-page` -->\n";
const END: &str = "<!-- The end of what was found -->\n";

/// Keeps the newest results and writes the page; returns the exit status.
pub(crate) fn run() -> Result<u8, String> {
    let place = Place::find()?;
    let found = place::read(&place.root.join("target/dist-check/results.json"))
        .map_err(|error| format!("{error}; run make dist-check"))?;
    let results = parse(&found)?;
    let list = place::read(&place.root.join("dist/distributions.toml"))?;
    let lacking = lacking(&List::read(&list)?, &results);
    if !lacking.is_empty() {
        return Err(format!(
            "the check was not one of everything, it has nothing of {}: run make dist-check without --only",
            lacking.join(", ")
        ));
    }
    let page = place.root.join(PAGE);
    let text = with_tables(&place::read(&page)?, &results)?;
    place::write(&place.root.join(KEPT), found)?;
    place::write(&page, text)?;
    println!("wrote {KEPT} and {PAGE}");
    Ok(0)
}

fn parse(text: &str) -> Result<Results, String> {
    serde_json::from_str(text).map_err(|error| format!("the results: {error}"))
}

/// The distributions that are in the list, and of which nothing was found.
fn lacking(list: &List, results: &Results) -> Vec<String> {
    let lacking = list.distributions.iter().filter(|distribution| {
        let is_there = |row: &Row| row.distribution == distribution.name;
        !results.rows.iter().any(is_there)
    });
    lacking.map(|distribution| distribution.name.clone()).collect()
}

/// The page, with the tables between the marks.
fn with_tables(page: &str, results: &Results) -> Result<String, String> {
    let marked = page
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = marked.ok_or_else(|| format!("{PAGE} has lost its marks: {BEGIN}{END}"))?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", tables(results)))
}

fn tables(results: &Results) -> String {
    let mut page = format!(
        "Version {}, commit {}, on Linux {}.\n\n",
        results.version,
        results.revision.get(..12).unwrap_or(&results.revision),
        results.kernel
    );
    let names = [
        "installs",
        "`Auto` takes",
        "serves on epoll",
        "on io_uring",
        "C by pkg-config",
        "static",
        "CMake",
        "taken away",
        "first request",
    ];
    let _ = writeln!(page, "| where | package | {} |", names.join(" | "));
    let _ = writeln!(page, "|---|---|{}", "---|".repeat(names.len()));
    let (tables, others): (Vec<_>, Vec<_>) = results.rows.iter().partition(|row| row.is_of_a_distribution());
    for row in &tables {
        let cells = CHECKS.map(|name| row.checks.get(name).map_or_else(String::new, cell));
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            row.title,
            row.packages,
            cells.join(" | "),
            seconds(first_request(row))
        );
    }
    page.push_str(
        "\n`first request` is the time from nothing but the package to the first request that was served, in seconds.",
    );
    let languages: Vec<_> = FIRST
        .iter()
        .filter_map(|first| of_a_language(first, results))
        .collect();
    if !languages.is_empty() {
        let _ = write!(
            page,
            " For a\nprogram in an empty folder, with what had to be fetched: {}.",
            languages.join(", ")
        );
    }
    page.push_str(
        "\n\n| package, and where | check | result | seconds | what it said |\n|---|---|---|---|---|\n",
    );
    for row in &others {
        for (name, found) in &row.checks {
            let said = found
                .found
                .as_deref()
                .unwrap_or_default()
                .trim()
                .replace('|', "\\|");
            let time = (found.outcome == Outcome::Passed).then_some(found.seconds);
            let _ = writeln!(
                page,
                "| {}, {} | {name} | {} | {} | {said} |",
                row.packages,
                row.title,
                word(found),
                seconds(time)
            );
        }
    }
    let reasons = reasons(results);
    if !reasons.is_empty() {
        page.push_str("\nWhat was left out, and why:\n\n");
        for reason in reasons {
            let _ = writeln!(page, "- {reason}");
        }
    }
    page.push_str("\nNotes:\n\n");
    let mut noted: Vec<&str> = Vec::new();
    for row in &results.rows {
        if let Some(note) = row.note.as_deref()
            && !noted.contains(&note)
        {
            noted.push(note);
            let of = if row.is_of_a_distribution() {
                &row.title
            } else {
                &row.packages
            };
            let _ = writeln!(page, "- {of}: {note}");
        }
    }
    page
}

fn word(cell: &Cell) -> String {
    match &cell.outcome {
        Outcome::Passed => "yes".to_owned(),
        Outcome::LeftOut(_) => "–".to_owned(),
        Outcome::Failed(_) => "**no**".to_owned(),
    }
}

fn cell(cell: &Cell) -> String {
    match (&cell.outcome, &cell.found) {
        (Outcome::Passed, Some(found)) => found.clone(),
        _ => word(cell),
    }
}

fn seconds(time: Option<f64>) -> String {
    time.map(|time| format!("{time:.1}")).unwrap_or_default()
}

/// How long it took until a request was served, with what has to come before.
fn first_request(row: &Row) -> Option<f64> {
    let passed = |name: &str| {
        let cell = row.checks.get(name)?;
        (cell.outcome == Outcome::Passed).then_some(cell.seconds)
    };
    Some(passed("install")? + passed("uring").or_else(|| passed("epoll"))?)
}

/// The checks that are a user's way to a served request, by package.
const FIRST: [(&str, &[&str]); 4] = [
    ("crates", &["build", "run"]),
    ("Go modules", &["get", "cgo"]),
    ("Maven", &["build", "run"]),
    ("NuGet", &["plain"]),
];

/// How long it took there, if all of it passed.
fn of_a_language((package, checks): &(&str, &[&str]), results: &Results) -> Option<String> {
    let row = results
        .rows
        .iter()
        .find(|row| row.packages == *package && row.title == "this machine")?;
    let mut sum = 0.0;
    for name in *checks {
        let cell = row.checks.get(*name)?;
        if cell.outcome != Outcome::Passed {
            return None;
        }
        sum += cell.seconds;
    }
    Some(format!("{package} {sum:.1}"))
}

/// Each reason why something was left out or failed, once, with what it stopped.
fn reasons(results: &Results) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for row in &results.rows {
        for (name, found) in &row.checks {
            let why = match &found.outcome {
                Outcome::Passed => continue,
                Outcome::LeftOut(why) => why.clone(),
                Outcome::Failed(why) => format!("**failed**: {why}"),
            };
            let why = why.lines().next().unwrap_or_default().trim().to_owned();
            let what = if row.checks.len() == 1 {
                format!("{}, {}", row.title, row.packages)
            } else {
                format!("{}, {}, {name}", row.title, row.packages)
            };
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, stopped)) => stopped.push(what),
                None => reasons.push((why, vec![what])),
            }
        }
    }
    let lines = reasons
        .into_iter()
        .map(|(why, stopped)| format!("{}: {why}", stopped.join("; ")));
    lines.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/install.md");
    const LIST: &str = include_str!("../../../../dist/distributions.toml");

    fn kept() -> Results {
        parse(include_str!("../../../../dist/results.json")).unwrap()
    }

    #[test]
    fn the_page_of_the_project_is_what_was_kept() {
        assert!(with_tables(PAGE, &kept()).unwrap() == PAGE, "run: make dist-page");
    }

    #[test]
    fn what_was_kept_has_every_distribution_of_the_list() {
        assert_eq!(lacking(&List::read(LIST).unwrap(), &kept()), [""; 0]);
    }

    #[test]
    fn a_page_without_marks_is_refused() {
        with_tables("# Install\n", &kept()).unwrap_err();
    }

    fn row(title: &str, checks: &[(&str, Outcome)]) -> Row {
        let cell = |outcome: &Outcome| Cell {
            outcome: outcome.clone(),
            seconds: 1.5,
            found: None,
        };
        let checks: BTreeMap<_, _> = checks
            .iter()
            .map(|(name, outcome)| ((*name).to_owned(), cell(outcome)))
            .collect();
        Row {
            distribution: title.to_lowercase(),
            title: title.to_owned(),
            packages: "deb".to_owned(),
            note: None,
            checks,
        }
    }

    #[test]
    fn the_way_of_a_language_is_summed_up() {
        let mut go = row(
            "this machine",
            &[("get", Outcome::Passed), ("cgo", Outcome::Passed)],
        );
        go.packages = "Go modules".to_owned();
        let mut maven = row("this machine", &[("build", Outcome::Passed)]);
        maven.packages = "Maven".to_owned();
        let results = Results {
            rows: vec![go, maven],
            ..Results::default()
        };
        assert!(tables(&results).contains("fetched: Go modules 3.0.\n"));
    }

    #[test]
    fn what_failed_or_was_left_out_is_seen() {
        let out = |why: &str| Outcome::LeftOut(why.to_owned());
        let results = Results {
            rows: vec![
                row(
                    "X",
                    &[
                        ("install", Outcome::Passed),
                        ("doctor", Outcome::Passed),
                        ("epoll", Outcome::Passed),
                        ("static", out("no unwinder")),
                        ("cmake", Outcome::Failed("too old\nmore".to_owned())),
                    ],
                ),
                row("Y", &[("install", out("no root"))]),
                row("Z", &[("install", out("no root"))]),
            ],
            ..Results::default()
        };
        let page = tables(&results);
        for text in [
            "| X | deb | yes | yes | yes |  |  | – | **no** |  | 3.0 |",
            "- X, deb, cmake: **failed**: too old\n",
            "- X, deb, static: no unwinder\n",
            "- Y, deb; Z, deb: no root\n",
        ] {
            assert!(page.contains(text), "{text:?} is not in:\n{page}");
        }
    }
}
