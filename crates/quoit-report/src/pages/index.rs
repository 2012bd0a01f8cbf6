//! `docs/results.md`: all experiments, and what was lost in any of them.

use std::fmt::Write as _;

use super::{Known, origin};
use crate::report::plain;
use crate::report::view;
use crate::results::model::{Results, Verdict};

/// What stands above the list.
const ABOUT: &str = "\
What the lab found, losses first. Each experiment has a page with all of its figures. [How to read \
them](lab-report.md), [how they are measured](lab.md), and [in five minutes](does-it-pay.md).

Figures of before these pages were generated are in [the history](results-history.md). They came from other machines and \
commits, so they cannot be put beside these.
";

pub(super) fn page(all: &[Results], known: &[Known]) -> String {
    let mut text = format!("# Results\n\n{}{ABOUT}\n", origin::mark("lab/results/*.json"));
    if !all.is_empty() {
        losses(&mut text, all);
        text.push_str("## Experiments\n\n| experiment | what it asks | measured | commit | outcome |\n|---|---|---|---|---|\n");
    }
    for results in all {
        let name = &results.experiment.name;
        let quick = if results.experiment.quick { ", quickly" } else { "" };
        let _ = writeln!(
            text,
            "| [{name}](results/{name}.md) | {} | {}{quick} | {} | {} |",
            plain(&results.experiment.title),
            origin::date(results),
            origin::commit(results),
            view::tally(&view::all_judged(results))
        );
    }
    if !all.is_empty() {
        text.push('\n');
    }
    missing(&mut text, all, known);
    text
}

/// Every comparison in which one of our servers costs more, the largest first.
fn losses(text: &mut String, all: &[Results]) {
    text.push_str("## Losses\n\n");
    let mut losses: Vec<(f64, String)> = Vec::new();
    for results in all {
        let name = &results.experiment.name;
        for judged in view::all_judged(results) {
            let comparison = judged.comparison;
            let about_us = view::is_ours(&comparison.server) || view::is_ours(&comparison.against);
            if !about_us || judged.for_quoit() != Verdict::Loss {
                continue;
            }
            let line = format!(
                "[{name}](results/{name}.md), {}: {} (A/A {})",
                plain(&judged.case.name),
                plain(&judged.sentence()),
                view::band_of(judged.case, comparison)
            );
            losses.push((comparison.cost.median.ln().abs(), line));
        }
    }
    losses.sort_by(|a, b| b.0.total_cmp(&a.0));
    if losses.is_empty() {
        text.push_str("None beyond the noise, in what is measured below.\n");
    }
    for (_, line) in losses {
        let _ = writeln!(text, "- {line}");
    }
    text.push('\n');
}

fn missing(text: &mut String, all: &[Results], known: &[Known]) {
    let is_there = |name: &str| all.iter().any(|results| results.experiment.name == name);
    let mut missing = known
        .iter()
        .filter(|experiment| !is_there(&experiment.name))
        .peekable();
    if missing.peek().is_none() {
        return;
    }
    text.push_str(
        "## Not measured yet\n\nNo result file is kept of these. `make result NAME=...` runs one of them and writes its page.\n\n",
    );
    for experiment in missing {
        let _ = writeln!(text, "- `{}`: {}", experiment.name, plain(&experiment.title));
    }
}
