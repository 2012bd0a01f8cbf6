//! How far a run has come: a bar with the remaining time on a terminal, a line a pair otherwise.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use crate::console;

/// Drawn between slices only: while one runs, the lab sleeps.
pub(crate) struct Progress {
    /// Without a terminal there is none.
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            // The template is a constant; should it be refused, the default one does.
            if let Ok(style) = ProgressStyle::with_template(
                "{bar:24} {pos}/{len} pairs, {elapsed_precise} (left {eta}) {msg}",
            ) {
                bar.set_style(style);
            }
            bar
        });
        Self { bar }
    }

    /// So many pairs are to be measured at least.
    pub(crate) fn begin(&self, pairs: u32) {
        match &self.bar {
            Some(bar) => bar.set_length(pairs.into()),
            None => console::say(format_args!("{pairs} pairs at least")),
        }
    }

    /// A control needs one more.
    pub(crate) fn grown(&self) {
        if let Some(bar) = &self.bar {
            bar.inc_length(1);
        }
    }

    pub(crate) fn working_on(&self, case: &str, what: &str, pair: u32) {
        if let Some(bar) = &self.bar {
            let number = if pair == 0 {
                String::new()
            } else {
                format!(" #{}", pair + 1)
            };
            bar.set_message(format!("{case}: {what}{number}"));
        }
    }

    /// `told` is how the series stands.
    pub(crate) fn pair_done(&self, case: &str, series: &str, pair: u32, told: &str) {
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => console::say(format_args!("{case}: {series}: pair {}: {told}", pair + 1)),
        }
    }

    /// Something that the user has to know.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => console::say(line),
        }
    }

    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
