//! `make dist-check`: only the packages, in root file systems that have nothing of ours.

mod cargo;
mod distribution;
mod kit;
pub(crate) mod page;
mod results;
mod root;
mod steps;
mod traffic;

use std::collections::BTreeMap;
use std::process::Command;

use crate::arguments::CheckArguments;
use crate::place::{self, Place};
use crate::{others, tools};
use distribution::{Distribution, List};
use results::{CHECKS, Cell, Outcome, Results, Row};
use root::Root;

/// Tries everything; returns the exit status.
pub(crate) fn run(arguments: &CheckArguments) -> Result<u8, String> {
    let place = Place::find()?;
    let text = place::read(&place.root.join("dist/distributions.toml"))?;
    let mut list = List::read(&text).map_err(|error| format!("dist/distributions.toml: {error}"))?;
    for name in &arguments.only {
        if name != cargo::NAME && !list.distributions.iter().any(|known| known.name == *name) {
            return Err(format!(
                "{name} is not in dist/distributions.toml; --list says what is"
            ));
        }
    }
    let is_wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    list.distributions
        .retain(|distribution| is_wanted(&distribution.name));
    if arguments.list {
        for distribution in &list.distributions {
            println!("{}: {}", distribution.name, distribution.title);
        }
        return Ok(0);
    }
    tools::require_for_checking()?;
    let mut results = Results {
        version: place.version.clone(),
        revision: place.revision.clone(),
        kernel: tools::output(Command::new("uname").arg("-r"))?.trim().to_owned(),
        rows: Vec::new(),
    };
    for distribution in &list.distributions {
        results.rows.extend(tried(&place, distribution)?);
    }
    if is_wanted(cargo::NAME) {
        results.rows.push(cargo::tried(&place));
    }
    if arguments.only.is_empty() {
        results.rows.push(image(&place));
        for script in others::scripts(&place, "check")? {
            let printed = tools::output(
                others::command(&place, &script).env("QUOIT_ROOTS", place.root.join("target/dist-roots")),
            )?;
            results.rows.extend(foreign_rows(&printed)?);
        }
    }
    let mut text = serde_json::to_string_pretty(&results).map_err(|error| error.to_string())?;
    text.push('\n');
    place::write(&place.root.join("target/dist-check/results.json"), text)?;
    println!("{}", results.table());
    Ok(results.exit_code())
}

fn tried(place: &Place, distribution: &Distribution) -> Result<Vec<Row>, String> {
    let root = Root::of(place, distribution)?;
    let rows = distribution.packages.iter().map(|kind| {
        println!("dist-check: {}, {}", distribution.title, kind.name());
        let checks = match &root {
            Ok(root) => steps::run(place, root, *kind),
            Err(why) => left_out(why),
        };
        Row {
            distribution: distribution.name.clone(),
            title: distribution.title.clone(),
            packages: kind.name().to_owned(),
            note: distribution.note.clone(),
            checks,
        }
    });
    Ok(rows.collect())
}

fn left_out(why: &str) -> BTreeMap<String, Cell> {
    let cell = Cell {
        outcome: Outcome::LeftOut(why.to_owned()),
        seconds: 0.0,
        found: None,
    };
    BTreeMap::from([(CHECKS[0].to_owned(), cell)])
}

/// The image, as other tools read it.
fn image(place: &Place) -> Row {
    let checks = steps::timed(|| {
        let archive = format!(
            "oci-archive:{}/quoit-{}-oci.tar",
            place.out().display(),
            place.version
        );
        for processor in ["amd64", "arm64"] {
            let mut skopeo = Command::new("skopeo");
            skopeo.args([
                "--override-os",
                "linux",
                "--override-arch",
                processor,
                "inspect",
                "--config",
                &archive,
            ]);
            let printed = tools::quiet_output(&mut skopeo)?;
            let read: serde_json::Value =
                serde_json::from_str(&printed).map_err(|error| format!("skopeo: {error}"))?;
            let user = read["config"]["User"].as_str().unwrap_or_default();
            if read["architecture"] != processor || user.is_empty() || user.starts_with('0') {
                return Err(format!(
                    "{processor}: the image is for {}, user {user:?}",
                    read["architecture"]
                ));
            }
        }
        Ok(Some("2 processors".to_owned()))
    });
    Row {
        distribution: "image".to_owned(),
        title: "this machine".to_owned(),
        packages: "image".to_owned(),
        note: Some("Read by skopeo; no daemon runs it here.".to_owned()),
        checks: BTreeMap::from([("read".to_owned(), checks)]),
    }
}

/// What a script of another ecosystem prints: a line for each check, of six fields with tabs between them.
fn foreign_rows(printed: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for line in printed.lines().filter(|line| line.contains('\t')) {
        let fields: Vec<_> = line.split('\t').collect();
        let [title, packages, check, outcome, seconds, why] = fields[..] else {
            return Err(format!(
                "a check printed {} fields, and not six: {line}",
                fields.len()
            ));
        };
        let outcome = match outcome {
            "passed" => Outcome::Passed,
            "left out" => Outcome::LeftOut(why.to_owned()),
            "failed" => Outcome::Failed(why.to_owned()),
            _ => return Err(format!("a check ended with {outcome:?}: {line}")),
        };
        let seconds = seconds
            .parse()
            .map_err(|error| format!("a check took {seconds:?}: {error}"))?;
        let found = (outcome == Outcome::Passed && !why.is_empty()).then(|| why.to_owned());
        let cell = Cell {
            outcome,
            seconds,
            found,
        };
        let known = rows
            .iter_mut()
            .find(|row| row.title == title && row.packages == packages);
        if let Some(row) = known {
            row.checks.insert(check.to_owned(), cell);
        } else {
            rows.push(Row {
                distribution: title.to_owned(),
                title: title.to_owned(),
                packages: packages.to_owned(),
                note: None,
                checks: BTreeMap::from([(check.to_owned(), cell)]),
            });
        }
    }
    Ok(rows)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_ecosystems_become_rows() {
        let printed =
            "noise\nDebian 12\tgo\tinstall\tpassed\t3.5\t\nDebian 12\tgo\truns\tfailed\t1\tno library\n";
        let rows = foreign_rows(printed).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].checks["install"].outcome, Outcome::Passed);
        assert_eq!(
            rows[0].checks["runs"].outcome,
            Outcome::Failed("no library".to_owned())
        );
        foreign_rows("a\tb\n").unwrap_err();
        foreign_rows("a\tb\tc\twell\t1\t\n").unwrap_err();
    }
}
