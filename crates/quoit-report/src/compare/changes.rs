//! What changed, case by case and server by server.
//!
//! Two costs are compared. The *relative* one is a server's cost over that of the server that it is paired with,
//! in its own run: it survives another machine and another day. The *absolute* one is the cost itself; it also
//! shows what hit both sides of the pairs, but only where machine and placement are the same.

use serde::Serialize;

use super::bootstrap::ratio_of_medians;
use crate::pairs;
use crate::report::view;
use crate::results::model::{CaseResults, Comparison, Judge, Ratio, Results, ServerSummary};

/// What a change is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Direction {
    Worse,
    Same,
    Better,
}

/// A cost in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    /// Over the paired server's cost, or nanoseconds (for `idle`, bytes) a unit.
    pub(super) old: f64,
    pub(super) new: f64,
    /// New over old: above 1 it costs more than it did.
    pub(super) change: Ratio,
    /// Changes between `1 / band` and `band` are noise; `null` without a control, or where either run has too few pairs
    /// to judge by, and then nothing is called.
    pub(super) band: Option<f64>,
    pub(super) direction: Direction,
}

/// One server in one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ServerChange {
    pub(super) case: String,
    pub(super) server: String,
    /// The worst of the directions, errors included.
    pub(super) direction: Direction,
    /// `null` for a server that is only compared with.
    pub(super) relative: Option<Change>,
    /// `null` where the machines differ.
    pub(super) absolute: Option<Change>,
    /// Counted, without an interval; they take no part in the direction.
    pub(super) system_calls_per_unit: [Option<f64>; 2],
    pub(super) errors: [u64; 2],
}

/// Two runs of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Changes {
    pub(super) experiment: String,
    pub(super) old: String,
    pub(super) new: String,
    /// How many servers got worse, counted once per case.
    pub(super) worse: usize,
    pub(super) better: usize,
    /// What was not compared, and what to keep in mind.
    pub(super) notes: Vec<String>,
    /// What got worse first.
    pub(super) servers: Vec<ServerChange>,
}

/// Compares two runs.
///
/// # Errors
/// They are of different experiments, or have no server in a case in common.
pub(super) fn changes(old: &Results, new: &Results) -> Result<Changes, String> {
    if old.experiment.name != new.experiment.name {
        return Err(format!(
            "one is of the experiment {:?}, the other of {:?}; give two runs of one experiment",
            old.experiment.name, new.experiment.name
        ));
    }
    let mut notes = Vec::new();
    let difference = machine_difference(old, new);
    if let Some(difference) = &difference {
        notes.push(format!(
            "absolute costs are not compared: {difference}; relative ones are"
        ));
    }
    for (name, run) in [("old", old), ("new", new)] {
        if let Some(why) = &run.incomplete {
            notes.push(format!("the {name} run is incomplete: {why}"));
        }
        if run.experiment.quick {
            notes.push(format!("the {name} run is a quick one"));
        }
    }
    let mut servers = Vec::new();
    for old_case in &old.cases {
        match new.cases.iter().find(|case| case.name == old_case.name) {
            None => notes.push(format!("{}: only in the old run", old_case.name)),
            Some(new_case) if new_case.workload != old_case.workload || new_case.unit != old_case.unit => {
                notes.push(format!(
                    "{}: not compared, because its workload is another now",
                    old_case.name
                ))
            }
            Some(new_case) => {
                compare_case(old_case, new_case, difference.is_none(), &mut servers, &mut notes)
            }
        }
    }
    for case in &new.cases {
        if !old.cases.iter().any(|old| old.name == case.name) {
            notes.push(format!("{}: only in the new run", case.name));
        }
    }
    if servers.is_empty() {
        return Err("they have no server in a case in common; give two runs of one experiment".to_owned());
    }
    servers.sort_by_key(|server| server.direction as u8);
    let count = |direction| {
        servers
            .iter()
            .filter(|server| server.direction == direction)
            .count()
    };
    Ok(Changes {
        experiment: old.experiment.name.clone(),
        old: origin(old),
        new: origin(new),
        worse: count(Direction::Worse),
        better: count(Direction::Better),
        notes,
        servers,
    })
}

fn origin(results: &Results) -> String {
    let environment = &results.environment;
    let commit = view::or_none(environment.commit.as_deref(), view::short_commit);
    format!("quoit {} at {commit}", environment.quoit_version)
}

/// What makes absolute costs of the two runs incomparable, if anything.
fn machine_difference(old: &Results, new: &Results) -> Option<String> {
    let facts = |results: &Results| {
        let machine = &results.environment;
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        [
            ("processors", known(&machine.processor)),
            ("kernels", known(&machine.kernel)),
            ("numbers of cores", machine.cores.to_string()),
            ("congestion controls", known(&machine.congestion_control)),
            ("placements", format!("{:?}", results.placement)),
        ]
    };
    let pairs = facts(old).into_iter().zip(facts(new));
    let mut different = pairs.filter(|((_, old), (_, new))| old != new);
    different
        .next()
        .map(|((name, _), _)| format!("the {name} differ"))
}

fn compare_case(
    old: &CaseResults,
    new: &CaseResults,
    same_machine: bool,
    servers: &mut Vec<ServerChange>,
    notes: &mut Vec<String>,
) {
    for old_server in &old.servers {
        let name = &old_server.server;
        let Some(new_server) = new.servers.iter().find(|server| server.server == *name) else {
            notes.push(format!("{}: {name} is only in the old run", old.name));
            continue;
        };
        let absolute = same_machine.then(|| absolute(old, new, name)).flatten();
        servers.push(server_change(old, new, [old_server, new_server], absolute));
    }
    for server in &new.servers {
        if !old.servers.iter().any(|old| old.server == server.server) {
            notes.push(format!("{}: {} is only in the new run", new.name, server.server));
        }
    }
}

fn server_change(
    old: &CaseResults,
    new: &CaseResults,
    [old_server, new_server]: [&ServerSummary; 2],
    absolute: Option<Change>,
) -> ServerChange {
    let relative = relative(old, new, &old_server.server);
    let errors = [old_server.figures.errors, new_server.figures.errors];
    let directions: Vec<Direction> = [&relative, &absolute]
        .into_iter()
        .flatten()
        .map(|change| change.direction)
        .collect();
    let direction = if directions.contains(&Direction::Worse) || (errors[0] == 0 && errors[1] > 0) {
        Direction::Worse
    } else if directions.contains(&Direction::Better) {
        Direction::Better
    } else {
        Direction::Same
    };
    ServerChange {
        case: old.name.clone(),
        server: old_server.server.clone(),
        direction,
        relative,
        absolute,
        system_calls_per_unit: [old_server.system_calls_per_unit, new_server.system_calls_per_unit],
        errors,
    }
}

/// How a server's cost over its paired server's changed. The interval takes both runs' intervals at their worst.
fn relative(old_case: &CaseResults, new_case: &CaseResults, server: &str) -> Option<Change> {
    let of = |case: &CaseResults| -> Option<Comparison> {
        case.comparisons
            .iter()
            .find(|comparison| comparison.server == server)
            .cloned()
    };
    let (old, new) = (of(old_case)?, of(new_case)?);
    if old.against != new.against {
        return None;
    }
    let change = Ratio {
        median: new.cost.median / old.cost.median,
        low: new.cost.low / old.cost.high,
        high: new.cost.high / old.cost.low,
    };
    let band = wider(band_of(old_case, &old), band_of(new_case, &new));
    Some(called(old.cost.median, new.cost.median, change, band))
}

/// The band that a comparison is judged by, if it is judged at all.
fn band_of(case: &CaseResults, comparison: &Comparison) -> Option<f64> {
    let control = case
        .controls
        .iter()
        .find(|control| control.server == comparison.against)?;
    let pairs = comparison.pairs.min(control.pairs);
    comparison.band.filter(|_| pairs >= pairs::LEAST_PAIRS)
}

/// How a server's cost changed, over all slices that count.
fn absolute(old: &CaseResults, new: &CaseResults, server: &str) -> Option<Change> {
    let costs = |case: &CaseResults| -> Vec<f64> {
        // Files that are older than the field have only these two.
        let judge = if view::is_memory(case) {
            Judge::Memory
        } else {
            case.judge
        };
        let slices = case
            .slices
            .iter()
            .filter(|slice| slice.server == server && slice.spoiled.is_none());
        slices.filter_map(|slice| judge.cost(&slice.figures)).collect()
    };
    let (mut old_costs, mut new_costs) = (costs(old), costs(new));
    let change = ratio_of_medians(&old_costs, &new_costs)?;
    let widest = |case: &CaseResults| {
        let judged = (case.controls.iter()).filter(|control| control.pairs >= pairs::LEAST_PAIRS);
        judged.map(|control| control.band).reduce(f64::max)
    };
    let band = wider(widest(old), widest(new));
    let medians = [&mut old_costs, &mut new_costs].map(|costs| pairs::median(costs));
    Some(called(medians[0], medians[1], change, band))
}

/// The wider of two bands; none if one is missing.
fn wider(old: Option<f64>, new: Option<f64>) -> Option<f64> {
    Some(old?.max(new?))
}

/// As the verdict of a run: a change lies outside the band with its whole interval.
fn called(old: f64, new: f64, change: Ratio, band: Option<f64>) -> Change {
    let direction = match band {
        Some(band) if change.low > band => Direction::Worse,
        Some(band) if change.high < 1.0 / band => Direction::Better,
        _ => Direction::Same,
    };
    Change {
        old,
        new,
        change,
        band,
        direction,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    fn of<'a>(changes: &'a Changes, case: &str, server: &str) -> &'a ServerChange {
        let found = changes
            .servers
            .iter()
            .find(|change| change.case == case && change.server == server);
        found.expect("it is compared")
    }

    #[test]
    fn a_run_beside_itself_changed_nothing() {
        let results = example::results();
        let changes = changes(&results, &results).expect("they are one experiment");
        assert_eq!((changes.worse, changes.better), (0, 0), "{changes:#?}");
        assert!(changes.notes.is_empty());
    }

    #[test]
    fn a_dearer_server_is_worse_and_comes_first() {
        let old = example::results();
        let mut new = old.clone();
        let comparisons = &mut new.cases[1].comparisons;
        let comparison = comparisons
            .iter_mut()
            .find(|one| one.server == "quoit/uring")
            .expect("it is there");
        comparison.cost = example::around(1.35);
        let changes = changes(&old, &new).expect("they are one experiment");
        assert_eq!(changes.worse, 1);
        assert_eq!(changes.servers[0].server, "quoit/uring");
        let relative = changes.servers[0].relative.as_ref().expect("both have it");
        assert_eq!(relative.direction, Direction::Worse);
        // The cost itself is what it was.
        let absolute = changes.servers[0]
            .absolute
            .as_ref()
            .expect("the machine is the same");
        assert_eq!(absolute.direction, Direction::Same);
    }

    #[test]
    fn inside_the_noise_nothing_is_called() {
        let old = example::results();
        let mut new = old.clone();
        for case in &mut new.cases {
            for comparison in &mut case.comparisons {
                comparison.cost = example::around(comparison.cost.median * 1.04);
            }
        }
        // 4 % is more than the band of 3 %, but the two intervals of 1.5 % eat it up.
        assert_eq!(changes(&old, &new).expect("one experiment").worse, 0);
        for case in &mut new.cases {
            for comparison in &mut case.comparisons {
                comparison.cost = example::around(comparison.cost.median * 2.0);
                comparison.band = None;
            }
        }
        assert_eq!(
            changes(&old, &new).expect("one experiment").worse,
            0,
            "without a control"
        );
    }

    #[test]
    fn too_few_pairs_call_nothing() {
        let old = example::results();
        for few in [0, 1, 2] {
            let mut new = old.clone();
            let case = &mut new.cases[0];
            for comparison in &mut case.comparisons {
                comparison.cost = example::around(comparison.cost.median * 2.0);
                if few == 0 {
                    comparison.pairs = 5;
                }
            }
            for control in &mut case.controls {
                if few == 1 {
                    control.pairs = 5;
                }
            }
            for slice in case.slices.iter_mut().filter(|_| few > 0) {
                slice.figures.server_cpu_ns_per_unit *= 2.0;
            }
            let worse = changes(&old, &new).expect("one experiment").worse;
            assert_eq!(worse > 0, few == 2, "{few}: {worse}");
        }
    }

    #[test]
    fn the_cost_is_what_the_case_is_judged_by() {
        let mut old = example::results();
        old.cases.truncate(1);
        old.cases[0].judge = Judge::Handled;
        let mut new = old.clone();
        for slice in &mut new.cases[0].slices {
            slice.figures.server_cpu_ns_per_unit *= 2.0;
        }
        assert_eq!(changes(&old, &new).expect("one experiment").worse, 0);
        let mut new = old.clone();
        for slice in &mut new.cases[0].slices {
            slice.figures.units_per_second /= 2.0;
        }
        assert_eq!(
            changes(&old, &new).expect("one experiment").worse,
            old.cases[0].servers.len()
        );
    }

    #[test]
    fn what_hits_both_sides_is_seen_on_the_same_machine_only() {
        let old = example::results();
        let mut new = old.clone();
        for slice in &mut new.cases[0].slices {
            slice.figures.server_cpu_ns_per_unit *= 1.3;
        }
        let same = changes(&old, &new).expect("one experiment");
        let case = &old.cases[0].name;
        assert_eq!(of(&same, case, example::BASELINE).direction, Direction::Worse);
        assert_eq!(same.worse, old.cases[0].servers.len());
        new.environment.processor = Some("Another".to_owned());
        let other = changes(&old, &new).expect("one experiment");
        assert_eq!(other.worse, 0);
        assert!(
            other.notes[0].contains("the processors differ"),
            "{:?}",
            other.notes
        );
    }

    #[test]
    fn new_errors_are_worse_and_what_is_missing_is_noted() {
        let old = example::results();
        let mut new = old.clone();
        new.cases[0].servers[0].figures.errors = 1;
        new.cases.remove(1);
        new.cases[1].workload.push_str(", changed");
        new.cases[0].servers.pop();
        let changes = changes(&old, &new).expect("one experiment");
        assert_eq!(changes.worse, 1);
        assert_eq!(changes.notes.len(), 3, "{:?}", changes.notes);
    }

    #[test]
    fn different_experiments_are_refused() {
        let old = example::results();
        let mut new = old.clone();
        new.cases.clear();
        assert!(
            changes(&old, &new)
                .expect_err("nothing in common")
                .contains("no server")
        );
        new.experiment.name = "idle".to_owned();
        assert!(changes(&old, &new).expect_err("another").contains("\"idle\""));
    }
}
