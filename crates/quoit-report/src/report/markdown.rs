//! The report as Markdown, for a terminal, a pull request or a page of documentation.

use std::fmt::Write as _;

use super::view::{self, NONE};
use super::{client_figures, datagrams, ladder, published};
use crate::results::model::{CaseResults, Results, Verdict};

/// The whole report: what we lose first, then every case, then what stands around the figures.
pub fn markdown(results: &Results) -> String {
    let mut text = String::new();
    let experiment = &results.experiment;
    let title = format!("# {} ({})", plain(&experiment.title), plain(&experiment.name));
    paragraph(&mut text, &title);
    if !experiment.about.is_empty() {
        paragraph(&mut text, &plain(&experiment.about));
    }
    if let Some(why) = &results.incomplete {
        paragraph(
            &mut text,
            &format!("**Incomplete: {}.** What was measured stands.", plain(why)),
        );
    }
    losses(&mut text, results);
    for case in &results.cases {
        one_case(&mut text, results, case);
    }
    ladders(&mut text, results);
    claims(&mut text, results);
    published(&mut text, results);
    let left_out = results
        .left_out
        .iter()
        .map(|left| format!("{}: {}", left.what, left.why));
    list(&mut text, "## Left out", left_out);
    list(&mut text, "## Notes", results.notes.iter().cloned());
    paragraph(&mut text, &plain(&view::effort(results)));
    let environment: Vec<String> = view::environment(&results.environment)
        .into_iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    text += &plain(&environment.join(", "));
    text.push('\n');
    text
}

fn losses(text: &mut String, results: &Results) {
    let judged = view::all_judged(results);
    let losses: Vec<String> = judged
        .iter()
        .filter(|judged| judged.for_quoit() == Verdict::Loss)
        .map(|loss| {
            let band = view::band_of(loss.case, loss.comparison);
            format!("{}: {} (A/A {band})", loss.case.name, loss.sentence())
        })
        .collect();
    if losses.is_empty() {
        paragraph(text, "## Losses");
        paragraph(text, view::no_loss(&judged));
    }
    list(text, "## Losses", losses.into_iter());
    paragraph(text, &view::tally(&judged));
}

fn one_case(text: &mut String, results: &Results, case: &CaseResults) {
    paragraph(text, &format!("## {}", plain(&case.name)));
    paragraph(text, &plain(&case.workload));
    for control in view::controls(results, case) {
        paragraph(text, &plain(&control));
    }
    let titles = [
        "server",
        "against",
        "verdict",
        "cost ratio",
        "A/A band",
        "with the generator's",
    ];
    let own = view::figure_titles(case).map(|title| plain(&title));
    row(text, titles.map(str::to_owned).into_iter().chain(own));
    text.push_str("|---|---|---|");
    text.push_str(&"---:|".repeat(titles.len() - 3 + view::FIGURES));
    text.push('\n');
    let judged = view::judged(case);
    for judged in &judged {
        let comparison = judged.comparison;
        let server = case
            .servers
            .iter()
            .find(|server| server.server == comparison.server);
        let word = view::verdict_word(judged.verdict);
        let head = [
            plain(&comparison.server),
            plain(&comparison.against),
            if matches!(judged.verdict, Verdict::Tie | Verdict::Unjudged) {
                word.to_owned()
            } else {
                format!("**{word}**")
            },
            view::ratio(comparison.cost),
            view::band_of(case, comparison),
            view::or_none(comparison.total_cost, view::ratio),
        ];
        row(text, head.into_iter().chain(view::figures(server)));
    }
    for server in view::servers(case) {
        if judged
            .iter()
            .any(|judged| judged.comparison.server == server.server)
        {
            continue;
        }
        let role = if server.server == case.baseline {
            "baseline"
        } else {
            NONE
        };
        let head = [&plain(&server.server), NONE, role, NONE, NONE, NONE].map(str::to_owned);
        row(text, head.into_iter().chain(view::figures(Some(server))));
    }
    text.push('\n');
    datagrams_of(text, case);
    told_of(text, case);
    for warning in view::warnings(case) {
        paragraph(text, &plain(&warning));
    }
    let told = view::unsteadiness(case)
        .into_iter()
        .chain(view::reading_counters(case));
    for told in told {
        paragraph(text, &plain(&told));
    }
}

/// The account of datagrams, if the case has one.
fn datagrams_of(text: &mut String, case: &CaseResults) {
    if !datagrams::has_some(case) {
        return;
    }
    paragraph(text, &plain(datagrams::ABOUT));
    row(
        text,
        std::iter::once("server")
            .chain(datagrams::TITLES)
            .map(str::to_owned),
    );
    text.push_str("|---|");
    text.push_str(&"---:|".repeat(datagrams::TITLES.len()));
    text.push('\n');
    for server in view::servers(case) {
        if let Some(cells) = datagrams::row(server) {
            row(text, std::iter::once(plain(&server.server)).chain(cells));
        }
    }
    text.push('\n');
}

/// What clients say beside, if they do.
fn told_of(text: &mut String, case: &CaseResults) {
    let servers = client_figures::servers(case);
    if servers.is_empty() {
        return;
    }
    paragraph(text, &plain(client_figures::ABOUT));
    let names = servers.iter().map(|server| plain(&server.server));
    row(text, std::iter::once("figure".to_owned()).chain(names));
    text.push_str("|---|");
    text.push_str(&"---:|".repeat(servers.len()));
    text.push('\n');
    for cells in client_figures::rows(&servers) {
        row(text, cells.iter().map(|cell| plain(cell)));
    }
    text.push('\n');
}

fn claims(text: &mut String, results: &Results) {
    let claims = &results.experiment.claims;
    if claims.is_empty() {
        return;
    }
    let published = claims
        .iter()
        .map(|(source, claim)| format!("{source}: “{claim}”"));
    list(text, "## What was published", published);
    let found: Vec<String> = view::all_judged(results).iter().map(view::finding).collect();
    list(text, "### What we found", found.into_iter());
}

/// What each server bears, if rates were tried for that.
fn ladders(text: &mut String, results: &Results) {
    for ladder in ladder::tables(results) {
        paragraph(text, &format!("## {}", plain(&ladder.title)));
        paragraph(text, &plain(ladder.about));
        table(text, &ladder.titles, ladder.rows);
    }
}

/// Tables that were published, and ours beside them.
fn published(text: &mut String, results: &Results) {
    for one in &results.experiment.published {
        paragraph(text, &format!("### {}", plain(&one.source)));
        paragraph(text, &plain(&one.scale));
        table(text, &one.titles, one.rows.iter().cloned());
    }
    let ours = published::rows(results);
    if !ours.is_empty() {
        paragraph(text, "### Beside it");
        paragraph(text, &plain(published::ABOUT));
        table(
            text,
            &published::TITLES.map(str::to_owned),
            ours.into_iter().map(Vec::from),
        );
    }
}

/// A table whose cells are text; the first column is aligned to the left.
fn table(text: &mut String, titles: &[String], rows: impl IntoIterator<Item = Vec<String>>) {
    row(text, titles.iter().map(|title| plain(title)));
    text.push_str("|---|");
    text.push_str(&"---:|".repeat(titles.len().saturating_sub(1)));
    text.push('\n');
    for cells in rows {
        row(text, cells.iter().map(|cell| plain(cell)));
    }
    text.push('\n');
}

/// A heading with a list, if there is anything to list. The entries are text of files.
fn list(text: &mut String, heading: &str, entries: impl Iterator<Item = String>) {
    let mut entries = entries.peekable();
    if entries.peek().is_none() {
        return;
    }
    paragraph(text, heading);
    for entry in entries {
        let _ = writeln!(text, "- {}", plain(&entry));
    }
    text.push('\n');
}

fn paragraph(text: &mut String, paragraph: &str) {
    text.push_str(paragraph);
    text.push_str("\n\n");
}

fn row(text: &mut String, cells: impl IntoIterator<Item = String>) {
    text.push('|');
    for cell in cells {
        let _ = write!(text, " {cell} |");
    }
    text.push('\n');
}

/// Text from a file as nothing but text: on one line, without a meaning in Markdown or HTML.
pub(crate) fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => escaped.extend(['\\', character]),
            _ if character.is_control() => escaped.push(' '),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;
    use crate::results::model::{Published, Ratio};

    /// The lines of the table under a heading.
    fn rows<'a>(text: &'a str, case: &str) -> Vec<&'a str> {
        text.split(&format!("## {case}\n"))
            .nth(1)
            .expect("the case is there")
            .lines()
            .take_while(|line| !line.starts_with("## "))
            .filter(|line| line.starts_with('|'))
            .collect()
    }

    #[test]
    fn losses_come_before_everything_else_and_first_in_each_table() {
        let text = markdown(&example::results());
        let losses = text.find("## Losses").expect("there are losses");
        assert!(losses < text.find("## 128 connections").expect("the case is there"));
        let table = rows(&text, "128 connections");
        let server = |row: &&str| row.split(" | ").next().expect("a cell").to_owned();
        let servers: Vec<String> = table[2..].iter().map(server).collect();
        // The floor beats our baseline: our loss. Tokio does not: a win of ours.
        assert_eq!(
            servers,
            [
                "| floor/epoll",
                "| gnet",
                "| tokio",
                "| quoit/uring",
                "| quoit/epoll"
            ]
        );
        assert!(
            table[2].contains("**win**") && table[4].contains("**LOSS**"),
            "{table:#?}"
        );
        let first = text[losses..].lines().nth(2).expect("a loss");
        assert!(first.contains("quoit/uring takes 1.760 "), "{first}");
        let cells = table[0].matches(" |").count();
        assert!(
            table[2..].iter().all(|row| row.matches(" |").count() == cells),
            "{table:#?}"
        );
    }

    #[test]
    fn inside_the_band_is_a_tie_and_never_a_win() {
        let mut results = example::results();
        results.cases.truncate(1);
        let case = &mut results.cases[0];
        case.comparisons
            .retain(|comparison| comparison.server == "quoit/uring");
        let comparison = &mut case.comparisons[0];
        assert_eq!(comparison.verdict, Verdict::Win);
        comparison.cost = Ratio {
            median: 0.98,
            low: 0.975,
            high: 0.985,
        };
        let text = markdown(&results);
        assert!(rows(&text, "128 connections")[2].contains("| tie |"), "{text}");
        assert!(!text.contains("**win**"), "{text}");
        assert!(text.contains("1 comparison: 0 losses, 1 tie, 0 wins."), "{text}");
        assert!(text.contains("None beyond the noise."), "{text}");
    }

    #[test]
    fn datagrams_have_an_account_of_their_own() {
        let mut results = example::results();
        results.cases = vec![example::datagrams()];
        let text = markdown(&results);
        for part in [
            "| server | sent | handled | share |",
            "| quoit/uring | 1,000,000 | 800,000 | 80.0 % |",
            "207.0 KiB of 208.0 KiB | 256.0 KiB | 128.0 KiB, 4.0 KiB | 0.2 s | 0.1 s | 99.900 % |",
            "128.0 KiB, 4.0 KiB | not within 6.0 s in 25.0 % of the runs | none | 99.900 % |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let sentence = view::all_judged(&results)[0].sentence();
        assert!(
            sentence.contains("takes 0.800 ") && sentence.ends_with("for each datagram that it handles"),
            "{sentence}"
        );
    }

    #[test]
    fn what_was_published_and_what_is_borne_are_tables() {
        let mut results = example::results();
        let mut case = example::datagrams();
        case.ladder = Some("no work".to_owned());
        results.cases = vec![case];
        results.experiment.published = vec![Published {
            source: "An article".to_owned(),
            scale: "Other work.".to_owned(),
            titles: vec!["server".to_owned(), "share".to_owned()],
            rows: vec![vec!["RIO".to_owned(), "99 %".to_owned()]],
        }];
        let text = markdown(&results);
        for part in [
            "## The highest rate at a loss of 1 % or less: no work\n",
            "### An article\n\nOther work.\n\n| server | share |\n|---|---:|\n| RIO | 99 % |\n",
            "### Beside it\n",
            "| datagrams, overrun | quoit/uring | 1,000,000 | 800,000 | 80.0 % |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_clients_say_is_a_table_of_its_own() {
        let mut results = example::results();
        assert!(!markdown(&results).contains("What the clients say"));
        let servers = &mut results.cases[0].servers;
        let told = [
            ("server_heap_peak_bytes", 31_457_280.0),
            ("client_gc_seconds", 0.25),
        ];
        servers[0].figures.told = told.map(|(name, value)| (name.to_owned(), value)).into();
        servers[1].figures.told = [("server_heap_peak_bytes".to_owned(), 7.0)].into();
        let servers = client_figures::servers(&results.cases[0]);
        let names = servers.iter().map(|server| plain(&server.server));
        let head = format!("| figure | {} |", names.collect::<Vec<_>>().join(" | "));
        let text = markdown(&results);
        let table = text.split("What the clients say").nth(1).expect("it is there");
        let lines: Vec<&str> = table.lines().skip(2).take(4).collect();
        assert_eq!(lines[0], head);
        assert!(
            lines[2].starts_with("| client\\_gc\\_seconds | ") && lines[2].contains(" 0.250 "),
            "{lines:?}"
        );
        assert!(lines[2].contains(" – |"), "{lines:?}");
        assert!(
            lines[3].contains(" 31,457,280 ") && lines[3].contains(" 7 "),
            "{lines:?}"
        );
    }

    #[test]
    fn what_a_file_says_stays_text() {
        let mut results = example::results();
        results.cases[0].comparisons[0].server = "a|b\n# <script>`*x*`".to_owned();
        results.experiment.title = "[link](javascript:x)".to_owned();
        let text = markdown(&results);
        assert!(text.contains("a\\|b \\# &lt;script>\\`\\*x\\*\\`"), "{text}");
        assert!(text.starts_with("# \\[link\\](javascript:x)"), "{text}");
    }

    #[test]
    fn everything_around_the_figures_is_there() {
        let mut results = example::results();
        results.incomplete = Some("interrupted after 3 of 7 cases".to_owned());
        results.cases[0].controls[0].reached = false;
        let text = markdown(&results);
        let spoiled = format!("1 of {} slices", results.cases[0].slices.len());
        for part in [
            "**Incomplete: interrupted after 3 of 7 cases.**",
            "doubles the requests",
            "nginx: the program",
            "load average 0.7",
            "Linux 6.18.0, processor Example Processor 9000, cores 2, memory 8.00 GiB",
            "commit 0123456789ab,",
            "0.971–1.030, too wide",
            "wider than the 5 %",
            "| 864 B |",
            &spoiled,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"));
    }
}
