//! `docs/kernels.md`, from what was kept.

use std::fmt::Write;

use serde_json::Value;

use crate::list::{Kernel, List};
use crate::message::Outcome;
use crate::results::{Cell, KernelResults, Results};

const HEAD: &str = "\
# Kernels

Which kernels Quoit was run on, what io_uring has there, what was run, and what fails. This page is generated: `make
kernels` boots the kernels of `lab/kernels/list.toml` in emulated machines and runs everything there, and `make kernels-page`
writes this from what it keeps in `lab/kernels/results.json`.
";

/// The page.
#[must_use]
pub fn write(list: &List, results: &Results) -> String {
    let tried: Vec<_> = list
        .kernels
        .iter()
        .filter_map(|kernel| Some((kernel, results.kernels.get(&kernel.name)?)))
        // Without a release it did not come up.
        .filter(|(_, found)| !found.release.is_empty())
        .collect();
    let sections = [
        HEAD.to_owned(),
        summary(&tried),
        calls(&tried),
        features(&tried),
        gains(&tried),
        checks(list, &tried),
        failures(&tried),
        notes(&list.kernels),
        wake_latency(&tried),
        not_run(list, results),
    ];
    let mut page = sections.join("\n");
    // Nothing was kept of some sections.
    while page.contains("\n\n\n") {
        page = page.replace("\n\n\n", "\n\n");
    }
    format!("{}\n", page.trim_end())
}

/// `6.12` of `6.12.118+deb13-cloud-amd64`.
#[must_use]
pub fn short(release: &str) -> &str {
    let mut dots = release.match_indices('.').map(|(place, _)| place);
    let end = dots.nth(1).unwrap_or(release.len());
    release[..end].trim_end_matches(|character: char| !character.is_ascii_digit())
}

fn row(page: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<_> = cells.into_iter().collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

fn header(page: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<_> = cells.into_iter().collect();
    let rule = "|---".repeat(cells.len());
    row(page, cells);
    let _ = writeln!(page, "{rule}|");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn summary(tried: &[(&Kernel, &KernelResults)]) -> String {
    let mut page = String::new();
    let columns = [
        "kernel",
        "release",
        "`Auto` takes",
        "checks that passed",
        "runs of each",
    ];
    header(&mut page, columns.map(str::to_owned));
    for (kernel, found) in tried {
        let well = found.cells.values().filter(|cell| cell.is_well()).count();
        let fewest = found
            .cells
            .values()
            .map(|cell| cell.runs.len())
            .min()
            .unwrap_or(0);
        let most = found
            .cells
            .values()
            .map(|cell| cell.runs.len())
            .max()
            .unwrap_or(0);
        let runs = if fewest == most {
            format!("{most}")
        } else {
            format!("{fewest} to {most}")
        };
        let engine = found
            .doctor
            .as_ref()
            .map_or("–", |doctor| match text(&doctor["engine"]) {
                "uring" => "io_uring",
                engine => engine,
            });
        row(
            &mut page,
            [
                kernel.title.clone(),
                found.release.clone(),
                engine.to_owned(),
                format!("{well} of {}", found.cells.len()),
                runs,
            ],
        );
    }
    page
}

fn calls(tried: &[(&Kernel, &KernelResults)]) -> String {
    let mut cases: Vec<&String> = tried.iter().flat_map(|(_, found)| found.calls.keys()).collect();
    cases.sort_unstable();
    cases.dedup();
    if cases.is_empty() {
        return String::new();
    }
    let mut page = "\
## System calls per request

Of the server, counted by the guest's kernel (io_uring / epoll), with `lab/kernels/calls.toml`: what is left of io_uring's gain
where the kernel has fewer features. An emulated machine is slow, so that a turn finds less to do than on a real one; the
two of one cell are of one run, and are what to compare.

"
    .to_owned();
    let cell = |found: &KernelResults, case: &String| {
        let engines = found.calls.get(case)?;
        let figure = |name: &str| {
            engines
                .get(name)
                .map_or_else(|| "–".to_owned(), |calls| format!("{calls:.2}"))
        };
        Some(format!("{} / {}", figure("uring"), figure("epoll")))
    };
    header(
        &mut page,
        std::iter::once("kernel".to_owned()).chain(cases.iter().map(|&case| case.clone())),
    );
    for (kernel, found) in tried.iter().filter(|(_, found)| !found.calls.is_empty()) {
        let cells = cases.iter().map(|case| cell(found, case).unwrap_or_default());
        row(&mut page, std::iter::once(kernel.title.clone()).chain(cells));
    }
    let worse: Vec<_> = tried
        .iter()
        .filter(|(_, found)| makes_more_calls(found))
        .collect();
    let _ = match worse.as_slice() {
        [] => writeln!(
            page,
            "\nOn none of them does io_uring make more calls than epoll, so `Auto` takes it wherever it is usable."
        ),
        worse => {
            let names: Vec<_> = worse.iter().map(|(kernel, _)| kernel.title.as_str()).collect();
            writeln!(
                page,
                "\n**io_uring makes more calls than epoll on {}.**",
                names.join(", ")
            )
        }
    };
    page
}

/// Whether io_uring makes more system calls than epoll in any of the cases, by more than such a count varies.
#[must_use]
pub fn makes_more_calls(found: &KernelResults) -> bool {
    const NOISE: f64 = 1.1;
    found
        .calls
        .values()
        .any(|engines| match (engines.get("uring"), engines.get("epoll")) {
            (Some(uring), Some(epoll)) => *uring > epoll * NOISE,
            _ => false,
        })
}

/// The features that `quoit doctor` found to be usable, by name.
fn usable(found: &KernelResults) -> Vec<&str> {
    let features = found
        .doctor
        .as_ref()
        .and_then(|doctor| doctor["features"].as_array());
    let on = features
        .into_iter()
        .flatten()
        .filter(|feature| feature["state"] == "on");
    on.map(|feature| text(&feature["name"])).collect()
}

fn features(tried: &[(&Kernel, &KernelResults)]) -> String {
    let all = tried
        .iter()
        .find_map(|(_, found)| found.doctor.as_ref()?["features"].as_array());
    let Some(all) = all else {
        return String::new();
    };
    let mut page = "\
## What io_uring has

As `quoit doctor` found it, by trying. [The engines](engines.md#io_uring) says what each is for.

"
    .to_owned();
    let kernels: Vec<_> = tried.iter().filter(|(_, found)| found.doctor.is_some()).collect();
    let titles = kernels
        .iter()
        .map(|(kernel, found)| format!("{} {}", kernel.title, short(&found.release)));
    header(&mut page, std::iter::once("feature".to_owned()).chain(titles));
    let is_usable = |found: &KernelResults| {
        found
            .doctor
            .as_ref()
            .is_some_and(|doctor| doctor["uring"]["usable"] == true)
    };
    let mark = |there: bool| if there { "yes" } else { "–" }.to_owned();
    let cells = kernels.iter().map(|(_, found)| mark(is_usable(found)));
    row(
        &mut page,
        std::iter::once("io_uring is usable".to_owned()).chain(cells),
    );
    for feature in all {
        let name = text(&feature["name"]);
        let cells = kernels
            .iter()
            .map(|(_, found)| mark(usable(found).contains(&name)));
        row(&mut page, std::iter::once(format!("`{name}`")).chain(cells));
    }
    page
}

fn gains(tried: &[(&Kernel, &KernelResults)]) -> String {
    let mut page = "## What a newer kernel brings\n\n".to_owned();
    for pair in tried.windows(2) {
        let [(_, before), (kernel, found)] = pair else {
            continue;
        };
        if before.doctor.is_none() || found.doctor.is_none() {
            continue;
        }
        let had = usable(before);
        let new = usable(found).into_iter().filter(|name| !had.contains(name));
        let new: Vec<_> = new.map(|name| format!("`{name}`")).collect();
        let what = if new.is_empty() {
            "nothing that Quoit uses".to_owned()
        } else {
            new.join(", ")
        };
        let _ = writeln!(page, "- {} ({}): {what}", kernel.title, short(&found.release));
    }
    page
}

fn checks(list: &List, tried: &[(&Kernel, &KernelResults)]) -> String {
    let mut page = "\
## What was run

Seconds of the longest run, emulated; `lab/kernels/list.toml` says what each check is. Some are for a few of the kernels, and have
no figure for the others.

"
    .to_owned();
    let titles = tried.iter().map(|(kernel, _)| kernel.title.clone());
    header(&mut page, std::iter::once("check".to_owned()).chain(titles));
    for check in &list.checks {
        let cells: Vec<_> = tried
            .iter()
            .map(|(_, found)| found.cells.get(&check.name))
            .collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells
                .into_iter()
                .map(|cell| cell.map_or_else(String::new, outcome));
            row(&mut page, std::iter::once(check.name.clone()).chain(cells));
        }
    }
    page
}

fn outcome(cell: &Cell) -> String {
    let longest = cell.runs.iter().map(|run| run.seconds).fold(0.0, f64::max);
    let left_out = |outcome: &Outcome| matches!(outcome, Outcome::LeftOut(_));
    if !cell.is_well() {
        let failed = cell.runs.iter().filter(|run| !run.is_well()).count();
        return format!("**{failed} of {} failed**", cell.runs.len());
    }
    if cell.runs.iter().all(|run| left_out(&run.outcome)) {
        return "left out".to_owned();
    }
    format!("{longest:.0}")
}

fn failures(tried: &[(&Kernel, &KernelResults)]) -> String {
    let mut page = "## What fails\n\n".to_owned();
    let mut some = false;
    for (kernel, found) in tried {
        for (check, cell) in found.cells.iter().filter(|(_, cell)| !cell.is_well()) {
            some = true;
            let mut words: Vec<String> = cell
                .failed_tests()
                .iter()
                .map(|test| format!("`{test}`"))
                .collect();
            for run in cell.runs.iter().filter(|run| !run.is_well()) {
                match &run.outcome {
                    Outcome::Failed(what) if run.failed_tests.is_empty() => words.push(what.clone()),
                    Outcome::Hung => words.push("did not end within its limit".to_owned()),
                    _ => {}
                }
                words.extend(run.warnings.iter().map(|line| format!("the kernel: {line}")));
            }
            words.dedup();
            let _ = writeln!(page, "- {}, {check}: {}", kernel.title, words.join("; "));
        }
    }
    if !some {
        page.push_str("Nothing.\n");
    }
    page
}

fn notes(kernels: &[Kernel]) -> String {
    let mut page = "## What is special about them\n\n".to_owned();
    for kernel in kernels {
        for note in &kernel.notes {
            let _ = writeln!(page, "- {}: {note}", kernel.title);
        }
    }
    page
}

fn wake_latency(tried: &[(&Kernel, &KernelResults)]) -> String {
    let mut page = "\
## How soon a loop is told

The median of 30 rounds on io_uring as a multiple of epoll's in the same run, with epoll's in microseconds: until a loop that
sleeps in its own turn, and one that is parked in a poller outside, sees what another thread does, or its timer. Emulated, so
that the microseconds mean little (`crates/quoit/examples/wake_latency.rs`).

"
    .to_owned();
    let with: Vec<_> = tried
        .iter()
        .filter_map(|(kernel, found)| Some((*kernel, found.wake_latency.as_ref()?)))
        .filter(|(_, measured)| measured["uring"].is_object())
        .collect();
    let Some(ways) = with
        .first()
        .and_then(|(_, measured)| measured["epoll"].as_object())
    else {
        return String::new();
    };
    header(
        &mut page,
        std::iter::once("kernel".to_owned()).chain(ways.keys().cloned()),
    );
    for (kernel, measured) in &with {
        let cells = ways.keys().map(|way| {
            let median = |engine: &str| measured[engine][way][0].as_f64().unwrap_or(f64::NAN);
            format!(
                "{:.1} ({:.0})",
                median("uring") / median("epoll"),
                median("epoll")
            )
        });
        row(&mut page, std::iter::once(kernel.title.clone()).chain(cells));
    }
    page
}

fn not_run(list: &List, results: &Results) -> String {
    let mut page = "## Not run\n\n".to_owned();
    for kernel in list.kernels.iter().filter(|kernel| {
        results
            .kernels
            .get(&kernel.name)
            .is_none_or(|found| found.release.is_empty())
    }) {
        let how = kernel
            .by_hand
            .as_deref()
            .unwrap_or("its results are not there yet");
        let _ = writeln!(page, "- {} ({}): {how}", kernel.title, kernel.version);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::CellRun;

    const LIST: &str = include_str!("../../../lab/kernels/list.toml");

    #[test]
    fn the_page_of_the_project_is_what_was_kept() {
        let list = List::read(LIST).expect("it is right");
        let results: Results =
            serde_json::from_str(include_str!("../../../lab/kernels/results.json")).expect("it is ours");
        let page = include_str!("../../../docs/kernels.md");
        assert!(write(&list, &results) == page, "run: make kernels-page");
    }

    /// Where this fails, `Auto` has to learn of another level that does not pay.
    #[test]
    fn auto_takes_io_uring_nowhere_where_it_makes_more_calls() {
        let results: Results =
            serde_json::from_str(include_str!("../../../lab/kernels/results.json")).expect("it is ours");
        for (name, found) in &results.kernels {
            let takes_it = found
                .doctor
                .as_ref()
                .is_some_and(|doctor| doctor["engine"] == "uring");
            assert!(!(takes_it && makes_more_calls(found)), "{name}");
        }
    }

    #[test]
    fn what_fails_is_said() {
        let list = List::read(LIST).expect("it is right");
        let mut results = Results::default();
        let kernel = results.kernels.entry("debian-12".to_owned()).or_default();
        kernel.release = "6.1.0-56-cloud-amd64".to_owned();
        kernel
            .cells
            .entry("units".to_owned())
            .or_default()
            .runs
            .push(CellRun {
                outcome: Outcome::Failed("x".to_owned()),
                seconds: 7.4,
                failed_tests: vec!["a::b".to_owned()],
                warnings: vec!["BUG: c".to_owned()],
            });
        let page = write(&list, &results);
        assert!(page.contains("| units | **1 of 1 failed** |"), "{page}");
        assert!(
            page.contains("- Debian 12, units: `a::b`; the kernel: BUG: c"),
            "{page}"
        );
        assert!(
            page.contains("| Debian 12 | 6.1.0-56-cloud-amd64 | – | 0 of 1 | 1 |"),
            "{page}"
        );
    }

    #[test]
    fn more_calls_than_epoll_are_seen() {
        let mut found = KernelResults::default();
        let counts = |uring| [("uring".to_owned(), uring), ("epoll".to_owned(), 2.0)].into();
        found.calls.insert("echo".to_owned(), counts(2.1));
        assert!(!makes_more_calls(&found), "that is noise");
        found.calls.insert("echo".to_owned(), counts(2.3));
        assert!(makes_more_calls(&found));
    }

    #[test]
    fn releases_are_shortened_to_what_people_say() {
        assert_eq!(short("6.12.118+deb13-cloud-amd64"), "6.12");
        assert_eq!(short("5.4.0-216-generic"), "5.4");
        assert_eq!(short("7.2"), "7.2");
    }
}
