//! Making the run that the arguments describe, and what it prints.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::UdpArguments;
use super::plan::UdpPlan;
use super::report::UdpReport;
use super::run::{Stage, run};
use crate::LoadError;
use crate::arguments::{print, progress_bar, stop_on_interrupt};

/// Makes the run and prints its report.
///
/// # Errors
/// The run could not be made, or its findings not be written.
pub(crate) fn execute(plan: &UdpPlan, arguments: &UdpArguments) -> Result<UdpReport, LoadError> {
    let stop: Arc<AtomicBool> = stop_on_interrupt()?;
    let bar = progress_bar(!arguments.no_progress)?;
    let report = run(plan, &stop, &mut |stage| {
        let (fraction, message) = match stage {
            Stage::Sending {
                fraction,
                sent,
                replies,
            } if plan.echo.is_some() => (fraction, format!("sending: {sent} datagrams, {replies} replies")),
            Stage::Sending { fraction, sent, .. } => (fraction, format!("sending: {sent} datagrams")),
            Stage::ShuttingDown { fraction } => (fraction, "saying that it is over".to_owned()),
        };
        bar.set_position((fraction * 1_000.0) as u64);
        bar.set_message(message);
    });
    bar.finish_and_clear();
    let report = report?;
    print(&report, UdpReport::to_table, arguments.json)?;
    Ok(report)
}
