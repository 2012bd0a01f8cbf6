//! Making the run that the arguments describe, and what it prints.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use quoit_host::console::{self, say};
use quoit_host::monotonic_now;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::{Findings, LoadError, LogFile, Plan, Progress, run};

/// What is shown and written of a run beside its report.
#[derive(Debug, Default)]
pub(super) struct Output<'a> {
    /// The report is a JSON object.
    pub(super) json: bool,
    /// There is no progress bar.
    pub(super) no_progress: bool,
    /// When the window will be is said once that is known.
    pub(super) announce: bool,
    /// A line for each interval.
    pub(super) lines: bool,
    /// Where the latencies are logged.
    pub(super) hdr: Option<&'a Path>,
}

/// Makes a run and prints its report. Returns why its figures must not be used, if so.
///
/// # Errors
/// The run could not be made, or its findings not be written.
pub(super) fn execute(plan: &Plan, output: &Output<'_>) -> Result<Option<String>, LoadError> {
    let stop = stop_on_signal()?;
    let log = output.hdr.map(LogFile::create).transpose()?;
    let bar = progress_bar(!output.no_progress)?;
    let findings = run(plan, &stop, &mut |progress| match progress {
        Progress::Scheduled {
            opens_in,
            lasts: Some(lasts),
        } if output.announce => announce(opens_in, lasts),
        Progress::Interval(interval) if output.lines => {
            bar.suspend(|| say(format_args!("{}", interval.to_line())));
        }
        progress => {
            if let Some((fraction, message)) = progress.text() {
                bar.set_position((fraction * 1_000.0) as u64);
                bar.set_message(message);
            }
        }
    });
    bar.finish_and_clear();
    publish(findings?, output.json, log)
}

/// Prints a report, and writes the latencies to `log`. Returns why the figures must not be used, if so.
///
/// # Errors
/// They cannot be written.
pub(super) fn publish(
    Findings { report, latencies }: Findings,
    json: bool,
    log: Option<LogFile>,
) -> Result<Option<String>, LoadError> {
    let text = if json {
        serde_json::to_string(&report).map_err(io::Error::from)
    } else {
        Ok(report.to_table())
    };
    let printed = text
        .and_then(|text| console::print(&format!("{text}\n")))
        .map_err(|error| LoadError::new(format!("cannot write the report to standard output: {error}")));
    // Where one of the two cannot be written, the other is what is left of the run.
    let logged = match (log, latencies) {
        (Some(mut log), Some(latencies)) => latencies.write_to(&mut log),
        _ => Ok(()),
    };
    printed.and(logged)?;
    Ok(report.ended.invalid)
}

/// A flag that an interrupt sets, or who ends processes (`timeout`, a service manager, Kubernetes). A second interrupt ends the
/// program at once. A second SIGTERM does not: timeout(1) sends it to its command, and then to its process group, which that is in.
fn stop_on_signal() -> Result<Arc<AtomicBool>, LoadError> {
    let stop = Arc::new(AtomicBool::new(false));
    // Registered first, it sees the flag of the first one.
    flag::register_conditional_shutdown(SIGINT, 130, stop.clone())
        .and_then(|_| flag::register(SIGINT, stop.clone()))
        .and_then(|_| flag::register(SIGTERM, stop.clone()))
        .map_err(|error| LoadError::new(format!("cannot handle SIGINT and SIGTERM: {error}")))?;
    Ok(stop)
}

/// A bar of 1,000 steps, which shows on a terminal alone, and only if it is wanted.
fn progress_bar(wanted: bool) -> Result<ProgressBar, LoadError> {
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
