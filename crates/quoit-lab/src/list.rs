//! `quoit lab list`: the experiments, what of them can run here, and how long they take.

use std::collections::BTreeMap;

use quoit_report::table;

use super::console;
use super::error::Result;
use super::experiment;
use super::experiment::model::{Effort, Experiment, LoadSpec, Pace, Workload};
use super::experiment::template::Values;
use super::preflight::{self, Machine};
use super::programs::Programs;

/// What a slice takes beside its load: starting the server, opening the connections, stopping. Seen on the
/// development machine, and good enough for a forecast.
const SLICE_SECONDS: f64 = 0.4;
/// How long a bulk slice is thought to last, whose end is a number of bytes: by mebibyte.
const SECONDS_A_MEBIBYTE: f64 = 0.0005;
/// Datagrams that senders make in a second, for the same.
const DATAGRAMS_A_SECOND: f64 = 400_000.0;

/// Prints all experiments.
///
/// # Errors
/// One of them has a mistake, this machine cannot be looked at, or standard output cannot be written to.
pub(crate) fn run() -> Result<()> {
    let values = Programs::find(None)?.values();
    console::print(&describe(&experiment::list()?, &Machine::read()?, &values))
}

fn describe(experiments: &[Experiment], machine: &Machine, values: &Values) -> String {
    let mut rows = table::table(&["experiment", "cases here", "servers here", "with --quick", "full"]);
    let mut obstacles = BTreeMap::new();
    let mut titles = String::new();
    for experiment in experiments {
        let (cases, servers) = (experiment.cases.len(), experiment.servers.len());
        titles += &format!("{}: {}\n", experiment.name, experiment.title);
        match preflight::leave_out(experiment.clone(), machine, values) {
            Ok((able, left_out)) => {
                let quick = able.clone().quickened();
                rows.add_row(vec![
                    experiment.name.clone(),
                    format!("{} of {cases}", able.cases.len()),
                    format!("{} of {servers}", able.servers.len()),
                    time(seconds(&quick, quick.effort.pairs)),
                    format!(
                        "{} to {}",
                        time(seconds(&able, able.effort.pairs)),
                        time(seconds(&able, able.effort.most_pairs))
                    ),
                ]);
                let names = able.servers.iter().map(|server| server.name.as_str());
                titles += &format!("    servers here: {}\n", names.collect::<Vec<_>>().join(", "));
                obstacles.extend(left_out.into_iter().map(|left| (left.what, left.why)));
            }
            Err(error) => {
                let dash = || "-".to_owned();
                rows.add_row(vec![experiment.name.clone(), dash(), dash(), dash(), dash()]);
                titles += &format!(
                    "    cannot run here: {}\n",
                    error.to_string().replace('\n', "\n    ")
                );
            }
        }
    }
    let mut text = format!("{rows}\nA full run adds pairs until the control is steady.\n\n{titles}");
    if !obstacles.is_empty() {
        text += "\nNot here:\n";
    }
    for (what, why) in obstacles {
        text += &format!("    {what}: {why}\n");
    }
    text
}

/// How long a run with so many pairs takes, about: two slices per pair, for every comparison and every control, and
/// one slice per server for its system calls.
pub(crate) fn seconds(experiment: &Experiment, pairs: u32) -> f64 {
    let cases = experiment.cases.iter().map(|case| {
        let servers = || {
            let servers = experiment.servers.iter();
            servers.filter(|server| !server.not_in.contains(&case.name))
        };
        let comparisons = servers().filter_map(|server| experiment.against(server));
        let mut controls: Vec<&str> = comparisons.clone().collect();
        controls.push(&experiment.baseline);
        controls.sort_unstable();
        controls.dedup();
        let series = comparisons.count() + controls.len();
        let slices = 2 * pairs as usize * series + servers().count();
        // Each client makes a case of it.
        let clients = match case.workload {
            Workload::Load(_) => experiment.clients.len().max(1),
            Workload::Bulk { .. } | Workload::Idle { .. } | Workload::Datagrams(_) => 1,
        };
        (clients * slices) as f64 * slice_seconds(&case.workload, &experiment.effort)
    });
    cases.sum()
}

fn slice_seconds(workload: &Workload, effort: &Effort) -> f64 {
    let load = match workload {
        Workload::Load(load) => ramp_up(load) + effort.warm_up + effort.seconds,
        Workload::Bulk { mebibytes, .. } => *mebibytes as f64 * SECONDS_A_MEBIBYTE,
        Workload::Idle { seconds, .. } => *seconds,
        Workload::Datagrams(datagrams) => match (datagrams.count, datagrams.pace) {
            (None, _) => effort.seconds,
            (Some(count), Pace::Rate(rate)) => count as f64 / rate,
            (Some(count), Pace::Closed | Pace::ShareOfPeak(_)) => count as f64 / DATAGRAMS_A_SECOND,
        },
    };
    load + SLICE_SECONDS
}

/// The time over which `quoit load` is told to open the connections.
fn ramp_up(load: &LoadSpec) -> f64 {
    let arguments = &load.arguments;
    let named = arguments.windows(2).find(|pair| pair[0] == "--ramp-up");
    named.and_then(|pair| pair[1].parse().ok()).unwrap_or_default()
}

fn time(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoit_host::DescriptorLimit;

    #[test]
    fn a_quick_run_with_all_servers_is_planned_for_two_minutes() {
        for experiment in experiment::list().expect("all are right") {
            let quick = experiment.quickened();
            let seconds = seconds(&quick, quick.effort.most_pairs);
            assert!(seconds <= 120.0, "{}: {seconds} s", quick.name);
        }
    }

    #[test]
    fn the_time_is_that_of_all_slices() {
        let (mut experiment, _) = experiment::find("floor").expect("it is built in");
        experiment.cases.truncate(1);
        experiment.effort.seconds = 1.0;
        experiment.effort.warm_up = 0.6;
        // Three comparisons, and the controls of both floors: 20 slices of 2 seconds in two pairs, and one of each
        // of the four servers.
        assert_eq!(seconds(&experiment, 2), 48.0);
        let (sizes, _) = experiment::find("rsocket-periodic").expect("it is built in");
        let one = |mut experiment: Experiment| {
            experiment.clients.truncate(1);
            experiment
        };
        assert_eq!(seconds(&sizes, 2), 2.0 * seconds(&one(sizes.clone()), 2));
        assert_eq!(
            (time(48.0), time(200.0), time(9000.0)),
            ("48 s".into(), "3 min".into(), "2.5 h".into())
        );
    }

    #[test]
    fn what_cannot_run_here_is_named_with_the_reason() {
        let machine = Machine {
            descriptors: 1 << 20,
            descriptor_limit: DescriptorLimit {
                soft: 1 << 20,
                hard: 1 << 20,
            },
            io_uring_denied: Some("io_uring is denied".to_owned()),
        };
        let mut values = Values::default();
        values
            .set("quoit", "/proc/self/exe")
            .set("bin", "/nowhere")
            .set("peers", "/nowhere");
        let text = describe(&experiment::list().expect("all are right"), &machine, &values);
        assert!(text.contains("    quoit-uring: io_uring is denied\n"), "{text}");
        assert!(
            text.contains("    gnet: there is no /nowhere/gnet; run `make lab-peers`"),
            "{text}"
        );
        assert!(text.contains("loops: 1, 2, 4 and 8 loops"), "{text}");
        assert!(
            text.contains("    cannot run here: bulk: nothing is left to be compared with"),
            "{text}"
        );
        assert!(
            text.contains("    cannot run here: features: the baseline cannot run here"),
            "{text}"
        );
    }
}
