//! Making the run that the arguments describe, and what it prints.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use quoit_host::console::{self, say};
use quoit_host::monotonic_now;
use serde::Serialize;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::super::{Findings, LoadError, LogFile, Plan, Progress, Report, run};
use super::CommonArguments;

/// Makes the run and prints its report.
///
/// # Errors
/// The run could not be made, or its findings not be written.
pub(super) fn execute(plan: &Plan, common: &CommonArguments) -> Result<Report, LoadError> {
    let stop = stop_on_interrupt()?;
    let mut log = common.hdr.as_deref().map(LogFile::create).transpose()?;
    let bar = progress_bar(!common.no_progress)?;
    let lines = common.interval.is_some();
    let findings = run(plan, &stop, &mut |progress| match progress {
        Progress::Scheduled {
            opens_in,
            lasts: Some(lasts),
        } if common.announce => announce(opens_in, lasts),
        Progress::Interval(interval) if lines => bar.suspend(|| say(format_args!("{}", interval.to_line()))),
        progress => show(&bar, progress),
    });
    bar.finish_and_clear();
    let Findings { report, latencies } = findings?;
    if let Some(log) = &mut log {
        latencies.write_to(log)?;
    }
    print(&report, Report::to_table, common.json)?;
    Ok(report)
}

/// Writes a report to standard output: for machines, or as its table.
pub(crate) fn print<R: Serialize>(
    report: &R,
    to_table: impl FnOnce(&R) -> String,
    json: bool,
) -> Result<(), LoadError> {
    let text = if json {
        serde_json::to_string(report).map_err(io::Error::from)
    } else {
        Ok(to_table(report))
    };
    text.and_then(|text| console::print(&format!("{text}\n")))
        .map_err(|error| LoadError::new(format!("cannot write the report to standard output: {error}")))
}

/// A flag that an interrupt sets; a second one ends the program at once.
pub(crate) fn stop_on_interrupt() -> Result<Arc<AtomicBool>, LoadError> {
    let stop = Arc::new(AtomicBool::new(false));
    // Registered first, it sees the flag of the first one.
    flag::register_conditional_shutdown(SIGINT, 130, stop.clone())
        .and_then(|_| flag::register(SIGINT, stop.clone()))
        .map_err(|error| LoadError::new(format!("cannot handle SIGINT: {error}")))?;
    Ok(stop)
}

/// A bar of 1,000 steps, which shows on a terminal alone, and only if it is wanted.
pub(crate) fn progress_bar(wanted: bool) -> Result<ProgressBar, LoadError> {
    if !wanted || !io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("[{bar:40}] {percent:>3}% {msg}")
        .map_err(|error| LoadError::new(format!("cannot draw the progress bar: {error}")))?
        .progress_chars("=> ");
    Ok(ProgressBar::new(1_000).with_style(style))
}

/// Tells when the window will be, on the clock that other processes of the machine share.
fn announce(opens_in: Duration, lasts: Duration) {
    let opens = monotonic_now() + opens_in;
    say(format_args!(
        "window opens_ns={} lasts_ns={} in_ns={}",
        opens.as_nanos(),
        lasts.as_nanos(),
        opens_in.as_nanos()
    ));
}

fn show(bar: &ProgressBar, progress: Progress) {
    let (fraction, message) = match progress {
        Progress::Interval(_) | Progress::Scheduled { .. } => return,
        Progress::Opening { open, connections } => {
            let fraction = open as f64 / connections.max(1) as f64;
            (fraction, format!("opening: {open} of {connections} connections"))
        }
        Progress::WarmUp { fraction, replies } => (fraction, format!("warming up: {replies} replies")),
        Progress::Measuring { fraction, replies } => (fraction, format!("measuring: {replies} replies")),
    };
    bar.set_position((fraction * 1_000.0) as u64);
    bar.set_message(message);
}
