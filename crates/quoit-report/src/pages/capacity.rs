//! `docs/capacity.md`: what a test of ten million requests per second takes, by calculation from what was measured per
//! request.

use std::fmt::Write as _;

use super::origin;
use crate::report::plain;
use crate::results::model::{CaseResults, Figures, Results};
use crate::table::{count, nanoseconds};

/// Requests per second of the test.
const RATE: f64 = 1e7;

/// Cores of a machine that makes load.
const CORES: f64 = 16.0;

/// The share of a core's time that the generator may take.
const UTILIZATION: f64 = 0.7;

/// The experiments whose load is that of `quoit load` against `quoit serve`, and of the latter the names.
const EXPERIMENTS: [&str; 2] = ["plaintext", "echo"];
const SERVERS: [&str; 2] = ["quoit-uring", "quoit-epoll"];

/// What a load takes, of one case and one server.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Needs {
    /// Requests per second that one core of a generator could make at most.
    per_core: f64,
    /// Cores of generators, each busy for no more than its share of the time.
    generator_cores: f64,
    machines: f64,
    /// Cores of the server, all of their time.
    server_cores: f64,
}

impl Needs {
    /// Of requests that take a generator and a server so many nanoseconds each.
    fn of(generator_ns: f64, server_ns: f64) -> Self {
        let cores = |ns: f64| RATE * ns / 1e9;
        let generator_cores = (cores(generator_ns) / UTILIZATION).ceil();
        Needs {
            per_core: 1e9 / generator_ns,
            generator_cores,
            machines: (generator_cores / CORES).ceil(),
            server_cores: cores(server_ns).ceil(),
        }
    }
}

pub(super) fn page(all: &[Results]) -> String {
    let mut text = format!(
        "# Capacity planning: ten million requests per second\n\n{}{}\n",
        origin::mark("lab/results/plaintext.json and lab/results/echo.json"),
        about()
    );
    let kept = EXPERIMENTS
        .iter()
        .filter_map(|name| all.iter().find(|results| results.experiment.name == *name));
    for results in kept {
        experiment(&mut text, results);
    }
    text.push_str(AFTER);
    text
}

fn experiment(text: &mut String, results: &Results) {
    let rows: String = results.cases.iter().flat_map(rows).collect();
    if rows.is_empty() {
        return;
    }
    let name = &results.experiment.name;
    let _ = write!(
        text,
        "## By the figures of {name}\n\nThe processor times are those of `lab/results/{name}.json` ([all of its \
         figures](results/{name}.md)). {}\n\n| load | server | generator CPU per request | requests/s of one core | generator \
         cores | machines | server CPU per request | server cores |\n|---|---|---:|---:|---:|---:|---:|---:|\n{rows}\n",
        origin::measured(results)
    );
}

fn rows(case: &CaseResults) -> impl Iterator<Item = String> {
    SERVERS.iter().filter_map(|name| {
        let server = case.servers.iter().find(|server| server.server == *name)?;
        row(case, name, &server.figures)
    })
}

fn row(case: &CaseResults, server: &str, figures: &Figures) -> Option<String> {
    let generator_ns = figures.generator_cpu_ns_per_unit.filter(|ns| *ns > 0.0)?;
    let server_ns = figures.server_cpu_ns_per_unit;
    let needs = Needs::of(generator_ns, server_ns);
    Some(format!(
        "| {} | {server} | {} | {} | {} | {} | {} | {} |\n",
        plain(&case.name),
        nanoseconds(generator_ns),
        count(needs.per_core),
        count(needs.generator_cores),
        count(needs.machines),
        nanoseconds(server_ns),
        count(needs.server_cores)
    ))
}

/// What stands above the tables.
fn about() -> String {
    format!(
        "\
A calculation, not a measurement: nobody has run this test here. It takes the processor time that [`quoit load`](load.md) was \
measured to need per request, and says how many cores and machines {rate} requests per second take. [From many \
machines](load.md#from-many-machines) says how they begin together, and how their reports become one.

- **Requests/s of one core** is a second by the generator's processor time per request.
- **Generator cores** is {rate} times that processor time, at {share:.0} % use. At full use a request that is due would wait for \
those before it, without end. At {share:.0} % it waits {wait:.1} times its own processor time on average (one server, random \
arrivals, equal work: {use_of} / (2 x (1 - {use_of}))). The report's `generator_cpu_utilization` says what it was, and `lag` what \
the wait was.
- **Machines** have {cores:.0} cores each.
- **Server cores** is {rate} times the server's processor time, at full use: the least that it takes.
",
        rate = count(RATE),
        share = UTILIZATION * 100.0,
        use_of = UTILIZATION,
        wait = UTILIZATION / (2.0 * (1.0 - UTILIZATION)),
        cores = CORES,
    )
}

/// What stands below them.
const AFTER: &str = "\
## What the figures leave out

- **The network card.** They come from one core over loopback, where whoever sends also does the receiver's part of TCP. With a \
card, the two ends divide that work anew, and interrupts come on top. So measure first: one run of one generator against your \
server, and `generator_cpu_ns_per_request` of its report in place of the column.
- **Packets.** Without pipelining, each request and each response is a packet at least, so ten million per second each way, \
over all machines. What a card and its queues take is the first limit of the server's machine.
- **Connections.** Outstanding requests are the rate times the latency (Little's law): at a millisecond, ten million per second \
are 10,000 outstanding. Connections times `--pipeline` has to be well above that, or requests wait for a connection, which is in \
their latency. A source address has about 28,000 ports towards one server.
- **The rate of one run** is `--rate` by the number of runs. Each has a `--seed` of its own, so that their random arrivals are \
independent. Together they are then random arrivals of the whole rate.
- **Clocks.** The machines begin by their own clocks. Let chrony or the like keep them together. A machine whose clock is \
wrong begins early or late by as much, and no report can show it.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    #[test]
    fn cores_are_the_rate_by_the_time_of_a_request() {
        let needs = Needs::of(7_000.0, 5_000.0);
        assert_eq!(needs.generator_cores, 100.0);
        assert_eq!(needs.machines, 7.0);
        assert_eq!(needs.server_cores, 50.0);
        assert_eq!(needs.per_core.round(), 142_857.0);
    }

    #[test]
    fn a_row_has_the_figures_of_its_file() {
        let mut results = example::results();
        results.experiment.name = "plaintext".to_owned();
        let case = &mut results.cases[0];
        case.servers[0].server = "quoit-uring".to_owned();
        case.servers[0].figures.generator_cpu_ns_per_unit = Some(7_000.0);
        case.servers[0].figures.server_cpu_ns_per_unit = 5_000.0;
        let page = page(&[results]);
        let row = "| quoit-uring | 7.0 µs | 142,857 | 100 | 7 | 5.0 µs | 50 |";
        assert!(
            page.contains(row) && page.contains("`lab/results/plaintext.json`"),
            "{page}"
        );
        assert!(!page.contains("figures of echo"), "{page}");
    }
}
