//! The report as one page that needs nothing beside itself: no script, no font, no picture, no network.
//!
//! A policy in its head forbids the browser to load anything, so that a mistake here cannot either. All text of
//! files goes through the template's escaping.

mod case;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts::{self, Chart, colours};
use super::view;
use super::{ladder, published};
use crate::error::Result;
use crate::results::model::{Results, Verdict};

/// The page of one or more runs.
///
/// # Errors
/// A chart cannot be drawn.
pub fn page(runs: &[Results]) -> Result<String> {
    let sections = runs
        .iter()
        .enumerate()
        .map(|(index, results)| run(results, index))
        .collect::<Result<Vec<Markup>>>()?;
    let title = match runs {
        [one] => format!("{} · Quoit lab", one.experiment.title),
        _ => "Quoit lab".to_owned(),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) (PreEscaped(colours::style())) }
            }
            body {
                @if runs.len() > 1 { (contents(runs)) }
                main { @for section in sections { (section) } }
            }
        }
    };
    Ok(page.into_string())
}

/// The table of contents of several runs.
fn contents(runs: &[Results]) -> Markup {
    html! {
        nav aria-label="Contents" {
            h2 { "Contents" }
            ol {
                @for (index, results) in runs.iter().enumerate() {
                    li {
                        a href={ "#run" (index) } { (results.experiment.title) }
                        " " span.quiet {
                            (origin(results)) " · " (view::tally(&view::all_judged(results)))
                        }
                    }
                }
            }
        }
    }
}

/// What tells runs of one experiment apart.
fn origin(results: &Results) -> String {
    let commit = results.environment.commit.as_deref();
    let commit = view::or_none(commit, view::short_commit);
    format!(
        "{}, quoit {} at {commit}",
        results.experiment.name, results.environment.quoit_version
    )
}

/// All servers of a run, in the order in which they appear: their places give their colours.
fn server_names(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for server in results.cases.iter().flat_map(|case| &case.servers) {
        if !names.contains(&server.server.as_str()) {
            names.push(&server.server);
        }
    }
    names
}

/// One run.
fn run(results: &Results, index: usize) -> Result<Markup> {
    let experiment = &results.experiment;
    let names = server_names(results);
    let forest = charts::forest::forest(&results.cases)?;
    let load = charts::lines::cost_of_load(&results.cases, &names)?;
    let cases = results
        .cases
        .iter()
        .enumerate()
        .map(|(number, one)| case::case(results, one, &names, &format!("run{index}-case{number}")))
        .collect::<Result<Vec<Markup>>>()?;
    Ok(html! {
        article id={ "run" (index) } {
            header {
                p.quiet { "Quoit lab · " (origin(results)) }
                h1 { (experiment.title) }
                @if !experiment.about.is_empty() { p.lead { (experiment.about) } }
                @if let Some(why) = &results.incomplete {
                    p.alarm role="note" { strong { "Incomplete: " } (why) ". What was measured stands." }
                }
            }
            (losses(results))
            @if let Some(chart) = forest {
                section {
                    h2 { "Cost over the other server’s" }
                    (figure(
                        &chart,
                        "Cost ratio of every comparison with its 95 % interval, over the A/A band; the same \
                         figures are in the tables of the cases.",
                        html! {
                            p {
                                "Left of 1 the first server costs less than the second. The shaded band is what a \
                                 server differs from itself: an interval that touches it is a tie. Squares are \
                                 losses, rings ties, discs wins of the first server. The axis is logarithmic."
                            }
                        },
                        html! {},
                    ))
                }
            }
            @if let Some(chart) = load {
                section {
                    h2 { "CPU against offered load" }
                    (figure(
                        &chart,
                        "Server CPU for one unit of work at every offered rate, one line per server.",
                        html! { p { "Server CPU for one unit of work, at every rate that was offered." } (legend(&names, |name| offered(results, name))) },
                        case::load_table(results),
                    ))
                }
            }
            @if cases.len() > 1 {
                nav aria-label="Cases" {
                    h2 { "Cases" }
                    ul.across {
                        @for (number, one) in results.cases.iter().enumerate() {
                            li { a href={ "#run" (index) "-case" (number) } { (one.name) } }
                        }
                    }
                }
            }
            @for case in cases { (case) }
            (ladders(results))
            (claims(results))
            (published(results))
            (surroundings(results))
        }
    })
}

fn losses(results: &Results) -> Markup {
    let judged = view::all_judged(results);
    let losses: Vec<_> = judged
        .iter()
        .filter(|one| one.for_quoit() == Verdict::Loss)
        .collect();
    html! {
        section.losses[!losses.is_empty()] {
            h2 { "Losses" }
            @if losses.is_empty() {
                p { (view::no_loss(&judged)) }
            } @else {
                ul {
                    @for loss in &losses {
                        li {
                            strong { (loss.case.name) } ": " (loss.sentence()) " "
                            span.quiet { "A/A " (view::band_of(loss.case, loss.comparison)) }
                        }
                    }
                }
            }
            p.quiet {
                (view::tally(&judged)) " They are counted as Quoit’s: a rival that costs less than a server of ours \
                is our loss."
            }
        }
    }
}

fn claims(results: &Results) -> Markup {
    let claims = &results.experiment.claims;
    html! {
        @if !claims.is_empty() {
            section {
                h2 { "What was published, and what we found" }
                div.beside {
                    div {
                        h3 { "Published" }
                        @for (source, claim) in claims {
                            blockquote { p { (claim) } footer { (source) } }
                        }
                    }
                    div {
                        h3 { "Found" }
                        ul { @for judged in view::all_judged(results) { li { (view::finding(&judged)) } } }
                    }
                }
            }
        }
    }
}

/// What each server bears, if rates were tried for that.
fn ladders(results: &Results) -> Markup {
    html! {
        @for ladder in ladder::tables(results) {
            section {
                h2 { (ladder.title) }
                p { (ladder.about) }
                (text_table(&ladder.title, &ladder.titles, ladder.rows))
            }
        }
    }
}

/// Tables that were published, and ours beside them.
fn published(results: &Results) -> Markup {
    let ours = published::rows(results);
    html! {
        @for one in &results.experiment.published {
            section {
                h2 { (one.source) }
                p { (one.scale) }
                (text_table(&one.source, &one.titles, one.rows.clone()))
            }
        }
        @if !ours.is_empty() {
            section {
                h2 { "Beside it" }
                p { (published::ABOUT) }
                (text_table(
                    "Beside what was published",
                    &published::TITLES.map(str::to_owned),
                    ours.into_iter().map(Vec::from).collect(),
                ))
            }
        }
    }
}

fn text_table(label: &str, titles: &[String], rows: Vec<Vec<String>>) -> Markup {
    let rows = rows
        .into_iter()
        .map(|cells| cells.into_iter().map(|cell| html! { (cell) }).collect());
    case::scrolled(label, titles, rows.collect())
}

/// What stands around the figures: left out, notes, machine, the experiment's file.
fn surroundings(results: &Results) -> Markup {
    html! {
        @if !results.left_out.is_empty() {
            section {
                h2 { "Left out" }
                ul { @for left in &results.left_out { li { strong { (left.what) } ": " (left.why) } } }
            }
        }
        @if !results.notes.is_empty() {
            section {
                h2 { "Notes" }
                ul { @for note in &results.notes { li { (note) } } }
            }
        }
        section {
            h2 { "Environment" }
            p { (view::effort(results)) }
            dl {
                @for (name, value) in view::environment(&results.environment) {
                    div { dt { (name) } dd { (value) } }
                }
                div { dt { "began" } dd { (began(results.environment.started_at)) } }
            }
            details {
                summary { "The experiment’s file" }
                pre tabindex="0" { code { (results.experiment.file) } }
            }
        }
    }
}

/// The time at which a run began, as the header `Date` of HTTP writes it.
fn began(seconds: u64) -> String {
    // Times beyond the year 9999 have no such form.
    let seconds = seconds.min(253_402_300_799);
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
}

/// A chart with its description, and the same figures as a table for who cannot see it or wants to copy them.
fn figure(chart: &Chart, description: &str, caption: Markup, table: Markup) -> Markup {
    let [wide, narrow] = &chart.svg;
    html! {
        figure data-chart=(chart.kind) {
            figcaption { (caption) }
            div role="img" aria-label=(description) {
                (PreEscaped(wide))
                (PreEscaped(narrow))
            }
            @if !table.0.is_empty() {
                details { summary { "These figures as a table" } (table) }
            }
        }
    }
}

/// Whether a server took part in a case with a schedule.
fn offered(results: &Results, name: &str) -> bool {
    let mut scheduled = results
        .cases
        .iter()
        .filter(|case| case.offered_per_second.is_some());
    scheduled.any(|case| case.servers.iter().any(|server| server.server == name))
}

/// Which mark is which server, for those that are shown.
fn legend(names: &[&str], shown: impl Fn(&str) -> bool) -> Markup {
    html! {
        ul.legend {
            @for (index, name) in names.iter().enumerate() {
                @if shown(name) {
                    li {
                        span class=(colours::series_class(index)) aria-hidden="true" {
                            (charts::MARKS[index % charts::MARKS.len()])
                        }
                        " " (name)
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
