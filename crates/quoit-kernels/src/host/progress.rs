//! What is said while machines run: a line for each cell, and a bar on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use quoit_kernels::message::Outcome;
use quoit_kernels::results::CellRun;

/// Shared by the machines that run side by side.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Of this many cells.
    pub(crate) fn new(cells: u64) -> Self {
        let bar = ProgressBar::new(cells);
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {pos} of {len} cells")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar }
    }

    /// A line.
    pub(crate) fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// A cell has ended.
    pub(crate) fn tell(&self, kernel: &str, check: &str, run: &CellRun) {
        let how = match &run.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::LeftOut(why) => format!("left out: {why}"),
            Outcome::Failed(what) => format!("FAILED: {what}"),
            Outcome::Hung => "HUNG".to_owned(),
        };
        self.say(&format!("{kernel}: {check}: {how}, {:.0} s", run.seconds));
        for test in &run.failed_tests {
            self.say(&format!("    {test}"));
        }
        for warning in &run.warnings {
            self.say(&format!("    the kernel: {warning}"));
        }
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
