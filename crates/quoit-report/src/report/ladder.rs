//! The rungs of a ladder of rates: how fast datagrams may come at which next to none is lost.
//!
//! As RFC 2544 has it for throughput (section 26.1), with a loss of [`LOST`] in place of none: of all rates that were
//! tried, the highest that a server bears.

use super::datagrams;
use super::view::{self, NONE, percent};
use crate::results::model::{CaseResults, DatagramFigures, Results};
use crate::table;

/// The share that may be lost.
const LOST: f64 = 0.01;

/// One ladder as a table.
pub(super) struct Table {
    pub(super) title: String,
    pub(super) about: &'static str,
    pub(super) titles: Vec<String>,
    /// As many cells in each as titles.
    pub(super) rows: Vec<Vec<String>>,
}

const ABOUT: &str = "The highest rate at which a server lost 1 % of the datagrams or less, of all rates that were offered: \
    medians over the slices, as the sender reached them. Behind it the share that was handled at each rate; the ratio \
    is to the server that each is compared with. “At least” stands where nothing faster was sent to a server: none was offered, \
    or the sender made no more. A receive buffer may hold back what comes of a short slice too fast: longer ones show less of that.";

/// The tables of all ladders of a run, in the order of their first rungs.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    let mut names: Vec<&str> = Vec::new();
    for case in &results.cases {
        if let Some(name) = case.ladder.as_deref().filter(|name| !names.contains(name)) {
            names.push(name);
        }
    }
    let rungs = |name| {
        let of_it = results.cases.iter();
        of_it.filter(move |case: &&CaseResults| case.ladder.as_deref() == Some(name))
    };
    names
        .into_iter()
        .map(|name| table_of(name, &rungs(name).collect::<Vec<_>>()))
        .collect()
}

fn table_of(name: &str, rungs: &[&CaseResults]) -> Table {
    let mut servers: Vec<&str> = Vec::new();
    for server in rungs.iter().flat_map(|case| view::servers(case)) {
        if !servers.contains(&server.server.as_str()) {
            servers.push(&server.server);
        }
    }
    let head = [
        "server",
        "highest rate",
        "of",
        "ratio",
        "socket memory there, peak of bound",
    ];
    let offered = rungs.iter().map(|case| {
        case.offered_per_second.map_or_else(
            || "flat out".to_owned(),
            |rate| format!("{} per second", table::count(rate)),
        )
    });
    let titles = head.map(str::to_owned).into_iter().chain(offered).collect();
    let mut rows: Vec<(f64, Vec<String>)> = servers
        .into_iter()
        .map(|server| {
            let highest = highest(rungs, server);
            let against = against(rungs, server);
            let other = against.and_then(|other| self::highest(rungs, other));
            let mut cells = vec![
                server.to_owned(),
                highest.as_ref().map_or_else(|| "none".to_owned(), Highest::shown),
                against.unwrap_or(NONE).to_owned(),
                highest
                    .as_ref()
                    .zip(other)
                    .map_or_else(|| NONE.to_owned(), |(one, other)| one.over(&other)),
                highest.as_ref().map_or_else(
                    || NONE.to_owned(),
                    |highest| datagrams::socket_memory(&highest.figures),
                ),
            ];
            cells.extend(rungs.iter().map(|case| {
                figures(case, server)
                    .map_or_else(|| NONE.to_owned(), |figures| percent(figures.handled_share))
            }));
            (highest.map_or(0.0, |highest| highest.rate()), cells)
        })
        .collect();
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    Table {
        title: format!("The highest rate at a loss of 1 % or less: {name}"),
        about: ABOUT,
        titles,
        rows: rows.into_iter().map(|(_, cells)| cells).collect(),
    }
}

/// What a server bears.
struct Highest {
    figures: DatagramFigures,
    /// Nothing faster was sent to it.
    open: bool,
}

impl Highest {
    /// Sent per second.
    fn rate(&self) -> f64 {
        self.figures.sent_per_second
    }

    fn shown(&self) -> String {
        let at_least = if self.open { "at least " } else { "" };
        format!("{at_least}{} per second", table::count(self.rate()))
    }

    fn over(&self, other: &Self) -> String {
        let ratio = self.rate() / other.rate();
        match (self.open, other.open) {
            (false, false) => format!("{ratio:.2}"),
            (true, false) => format!("at least {ratio:.2}"),
            (false, true) => format!("at most {ratio:.2}"),
            (true, true) => format!("{ratio:.2}, neither at its limit"),
        }
    }
}

fn highest(rungs: &[&CaseResults], server: &str) -> Option<Highest> {
    let all: Vec<DatagramFigures> = rungs.iter().filter_map(|case| figures(case, server)).collect();
    let fastest = |all: &mut dyn Iterator<Item = &DatagramFigures>| {
        all.copied()
            .max_by(|one, other| one.sent_per_second.total_cmp(&other.sent_per_second))
    };
    let figures = fastest(&mut all.iter().filter(|figures| figures.handled_share >= 1.0 - LOST))?;
    let most = fastest(&mut all.iter())?;
    Some(Highest {
        figures,
        open: most.sent_per_second <= figures.sent_per_second,
    })
}

fn figures(case: &CaseResults, server: &str) -> Option<DatagramFigures> {
    let server = case.servers.iter().find(|one| one.server == server)?;
    server.figures.datagrams
}

/// The server that one is compared with.
fn against<'a>(rungs: &[&'a CaseResults], server: &str) -> Option<&'a str> {
    let mut comparisons = rungs.iter().flat_map(|case| &case.comparisons);
    let comparison = comparisons.find(|comparison| comparison.server == server)?;
    Some(&comparison.against)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    /// The rungs of a ladder: rates, and what the two servers handle at each.
    fn ladder(rungs: &[(f64, f64, f64)]) -> Results {
        let mut results = example::results();
        results.cases = rungs
            .iter()
            .map(|&(rate, ours, theirs)| {
                let mut case = example::datagrams();
                case.ladder = Some("1,024 bytes".to_owned());
                case.offered_per_second = Some(rate);
                for server in &mut case.servers {
                    let share = if server.server == case.baseline {
                        theirs
                    } else {
                        ours
                    };
                    let figures = server.figures.datagrams.as_mut().expect("it has some");
                    (figures.sent_per_second, figures.handled_share) = (rate, share);
                }
                case
            })
            .collect();
        results
    }

    fn cells(results: &Results) -> Vec<Vec<String>> {
        let [table] = &tables(results)[..] else {
            panic!("one ladder");
        };
        for row in &table.rows {
            assert_eq!(row.len(), table.titles.len());
        }
        let shown = |row: &Vec<String>| row[..4].to_vec();
        table.rows.iter().map(shown).collect()
    }

    #[test]
    fn the_highest_rate_that_is_borne_is_told_and_how_many_times_the_others() {
        // At 2 million the baseline loses exactly what it may.
        let results = ladder(&[
            (1e6, 1.0, 1.0),
            (2e6, 0.98, 0.99),
            (4e6, 0.995, 0.6),
            (6e6, 0.9, 0.4),
        ]);
        let cells = cells(&results);
        assert_eq!(
            cells,
            [
                ["quoit/uring", "4,000,000 per second", "quoit/epoll", "2.00"],
                ["quoit/epoll", "2,000,000 per second", NONE, NONE],
            ]
        );
        let table = &tables(&results)[0];
        assert_eq!(table.titles[5], "1,000,000 per second");
        assert_eq!(table.rows[0][5..], ["100.0 %", "98.0 %", "99.5 %", "90.0 %"]);
    }

    #[test]
    fn the_end_of_the_ladder_is_no_limit_of_the_server() {
        let results = ladder(&[(1e6, 1.0, 1.0), (2e6, 1.0, 0.5)]);
        let cells = cells(&results);
        assert_eq!(
            cells[0][1..],
            ["at least 2,000,000 per second", "quoit/epoll", "at least 2.00"]
        );
        let results = ladder(&[(1e6, 1.0, 1.0)]);
        assert_eq!(self::cells(&results)[0][3], "1.00, neither at its limit");
        let results = ladder(&[(1e6, 0.9, 0.5)]);
        assert_eq!(self::cells(&results)[0][1..], ["none", "quoit/epoll", NONE]);
    }

    #[test]
    fn without_a_ladder_there_is_no_table() {
        assert!(tables(&example::results()).is_empty());
    }
}
