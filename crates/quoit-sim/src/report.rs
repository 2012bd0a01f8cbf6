//! What the program prints of runs.

use quoit_sim::options::{Options, Workload};
use quoit_sim::plan::Plan;
use quoit_sim::run::run;
use quoit_sim_kernel::faults::{FaultCounts, Incidents};

/// Runs once more, and prints all that happened, what was wrong, and the command that does the same. Returns whether
/// anything was wrong.
pub(crate) fn print_trace(options: &Options) -> bool {
    let traced = Options {
        trace: true,
        ..options.clone()
    };
    let plan = Plan::draw(options);
    println!("faults of this run: {}", plan.profile.present());
    println!("features: {}", plan.features);
    println!("{:?}", plan.config);
    let outcome = run(&traced);
    for line in &outcome.trace {
        println!("{line}");
    }
    match &outcome.result {
        Ok(summary) => println!("no failure: {} turns, {} lives", summary.turns, summary.lives),
        Err(message) => println!("FAILED: {message}"),
    }
    println!("again: {}", command(options));
    outcome.result.is_err()
}

/// The command that replays a run.
fn command(options: &Options) -> String {
    let mut command = format!(
        "quoit-sim replay --seed {} --engine {}",
        options.seed, options.engine
    );
    if options.workload == Workload::Async {
        command += " --workload async";
    }
    if let Some(only) = &options.only {
        let only: Vec<_> = only.iter().map(ToString::to_string).collect();
        command += &format!(" --only {}", only.join(","));
    }
    let without = options.without.to_string();
    if !without.is_empty() {
        command += &format!(" --without {without}");
    }
    if let Some(turns) = options.turns {
        command += &format!(" --turns {turns}");
    }
    command
}

/// Prints how often each fault struck, which errors calls returned, and what else came about.
pub(crate) fn print_faults(counts: &FaultCounts) {
    println!("faults:");
    for (fault, count) in counts.iter() {
        println!("  {:32} {count:>14}", fault.name());
    }
    println!("errors returned:");
    for (errno, count) in counts.errors() {
        println!("  {:32} {count:>14}", errno.to_string());
    }
    println!("what came about besides:");
    let Incidents {
        completion_overflows,
        submission_queue_full,
        no_buffers,
        descriptors_reused,
        full_sockets,
        resets_by_unread_data,
        other_threads,
        direct_sends,
        datagrams_received,
        datagrams_truncated,
        datagrams_sent,
        datagrams_dropped,
    } = counts.incidents;
    for (name, count) in [
        ("completion queue overflows", completion_overflows),
        ("submission queue full", submission_queue_full),
        ("receives without a buffer", no_buffers),
        ("descriptors used again", descriptors_reused),
        ("sends to a full socket", full_sockets),
        ("resets by unread data", resets_by_unread_data),
        ("acts of other threads", other_threads),
        ("sends of other threads", direct_sends),
        ("datagrams received", datagrams_received),
        ("datagrams received cut", datagrams_truncated),
        ("datagrams sent", datagrams_sent),
        ("datagrams dropped by full sockets", datagrams_dropped),
    ] {
        println!("  {name:32} {count:>14}");
    }
}
