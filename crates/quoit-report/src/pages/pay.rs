//! `docs/does-it-pay.md`: for whoever has five minutes. A chart for each language, with what is won and what is lost in
//! the same picture.

use std::fmt::Write as _;

use super::{Ecosystem, Known, origin};
use crate::error::Result;
use crate::report::view::{self, Judged};
use crate::report::{charts, plain};
use crate::results::model::{CaseResults, Comparison, Control, Ratio, Results, Verdict};

/// The users of one ecosystem: what they have today, and which experiments are about that.
struct Users {
    name: &'static str,
    /// Of its picture.
    file: &'static str,
    guide: &'static str,
    /// The first case of the first one is what the summary shows.
    experiments: &'static [&'static str],
    /// Servers of it are shown, ours and rivals.
    ecosystem: Ecosystem,
    about: &'static str,
}

/// In the order of the page.
const USERS: [Users; 5] = [
    Users {
        name: "Async Rust",
        file: "pay-async",
        guide: "async.md",
        experiments: &[
            "async",
            "async-tls",
            "async-grpc",
            "async-websocket",
            "echo",
            "churn",
            "open-loop",
            "rate-axum",
            "idle",
        ],
        ecosystem: Ecosystem::AsyncRust,
        about: "The same programs on tokio's sockets and on ours: hyper on a loop and a runtime per thread, axum with its \
                listener replaced and nothing else (`axum-uring`), and axum on a loop and a runtime per thread \
                (`axum-uring-loops`).",
    },
    Users {
        name: "Rust",
        file: "pay-rust",
        guide: "rust.md",
        experiments: &[
            "plaintext",
            "echo",
            "churn",
            "open-loop",
            "waiting",
            "bulk",
            "idle",
            "dns",
        ],
        ecosystem: Ecosystem::Rust,
        about: "Our servers, on io_uring and on our own epoll engine, against servers on tokio, hyper and monoio, and \
                nginx. `quoit-uring : quoit-epoll` is what the kernel interface alone brings, with all else the same.",
    },
    Users {
        name: "Go",
        file: "pay-go",
        guide: "go.md",
        experiments: &[
            "plaintext",
            "echo",
            "rate-gnet",
            "rate-net-http",
            "rate-fasthttp",
            "rate-dns",
        ],
        ecosystem: Ecosystem::Go,
        about: "The same handlers, each on the loops and on what a Go program would use otherwise: gnet, fasthttp and \
                net/http. `listener` is net/http over our `net.Listener`, and `packet` a DNS library over our \
                `net.PacketConn`.",
    },
    Users {
        name: "Netty",
        file: "pay-netty",
        guide: "netty.md",
        experiments: &[
            "netty",
            "rate-netty",
            "rsocket-backend",
            "rsocket-batch",
            "rsocket-periodic",
            "rsocket-stream",
        ],
        ecosystem: Ecosystem::Netty,
        about: "One Netty server with its transport changed, against Netty's own epoll transport.",
    },
    Users {
        name: "Kestrel",
        file: "pay-kestrel",
        guide: "kestrel.md",
        experiments: &[
            "kestrel",
            "rate-kestrel",
            "kestrel-bodies",
            "kestrel-tls",
            "kestrel-client",
        ],
        ecosystem: Ecosystem::Kestrel,
        about: "One application of ASP.NET Core with its transport changed, against Kestrel's sockets. `inline` runs the \
                handlers on the loop.",
    },
];

/// Whether the page shows an experiment: then each of its servers has to say whom it concerns.
#[must_use]
pub fn shows(experiment: &str) -> bool {
    USERS.iter().any(|users| users.experiments.contains(&experiment))
}

/// The ecosystems of a server in an experiment; `None` if it does not say.
fn ecosystems<'a>(known: &'a [Known], experiment: &str, server: &str) -> Option<&'a [Ecosystem]> {
    let of = |known: &&Known| known.name == experiment;
    let servers = &known.iter().find(of)?.servers;
    servers.get(server).map(Vec::as_slice)
}

/// The first server of shown results that does not say whom it concerns.
pub(super) fn undeclared<'a>(results: &'a Results, known: &[Known]) -> Option<&'a str> {
    let experiment = &results.experiment.name;
    let mut servers = results
        .cases
        .iter()
        .flat_map(|case| &case.servers)
        .map(|server| server.server.as_str());
    servers.find(|server| shows(experiment) && ecosystems(known, experiment, server).is_none())
}

fn first_word(server: &str) -> &str {
    server.split(['-', ' ', '/']).next().unwrap_or_default()
}

/// The page's own words; figures come behind them.
const ABOUT: &str = "\
Sometimes. It depends on the load, so this page shows where Quoit costs less than what you have, and where it costs more.

**How to read the pictures.** A row compares two servers, `ours : theirs`. The number is our processor time over theirs, \
for the same work: 0.8 means a fifth less, 1.2 a fifth more. Left of 1 we win, right of it we lose. The grey field is what a \
server differs from itself. What touches it is a tie. The line is the 95 % interval. For idle connections the number \
is memory, not processor time.

**What is in them.** Every comparison with us on io_uring, and every loss on either engine. The pages behind the links \
have everything.
";

const AFTER: &str = "\
## Before you decide

- **Measure your own server.** `quoit lab run plaintext --server 'mine=./my-server {listen}'` puts it beside these on your \
machine ([experiments](experiments.md)).
- **It pays where a turn has much to do.** One system call then serves many connections. At a low rate each turn has one \
request, and there is little to share.
- **These are ratios, not capacity.** Server and load share a machine over loopback. There is no network card in the \
figures.
- **You may get no io_uring at all.** Containers deny it by default. Then Quoit runs on epoll, and says so ([why, and what to \
do](troubleshooting.md#io_uring-is-denied)).
- **What you give up** is in [the questions](faq.md#what-do-i-lose).
";

/// The comparisons of one case that are shown, each as ours over theirs.
struct Shown {
    experiment: String,
    case: CaseResults,
}

impl Users {
    fn kept<'a>(&self, all: &'a [Results]) -> Vec<&'a Results> {
        let of = |name: &&str| all.iter().find(|results| results.experiment.name == **name);
        self.experiments.iter().filter_map(of).collect()
    }

    /// All comparisons of this ecosystem, case by case, as ours over theirs.
    fn comparisons(&self, all: &[Results], known: &[Known]) -> Vec<Shown> {
        let kept = self.kept(all);
        let cases = kept
            .iter()
            .flat_map(|results| results.cases.iter().map(|case| (&results.experiment.name, case)));
        cases
            .filter_map(|(experiment, case)| {
                let mut shown = CaseResults {
                    name: format!("{experiment}: {}", case.name),
                    controls: Vec::new(),
                    comparisons: Vec::new(),
                    servers: Vec::new(),
                    slices: Vec::new(),
                    ..case.clone()
                };
                let concerns_us = |server: &str| {
                    ecosystems(known, experiment, server)
                        .is_some_and(|ecosystems| ecosystems.contains(&self.ecosystem))
                };
                let pairs = case
                    .comparisons
                    .iter()
                    .filter(|comparison| concerns_us(&comparison.server) && concerns_us(&comparison.against));
                for comparison in pairs {
                    if let Some((comparison, control)) = ours_over_theirs(case, comparison) {
                        shown.comparisons.push(comparison);
                        shown.controls.extend(control);
                    }
                }
                (!shown.comparisons.is_empty()).then(|| Shown {
                    experiment: experiment.clone(),
                    case: shown,
                })
            })
            .collect()
    }
}

/// A comparison as ours over theirs, with the control that it is judged by; `None` if it is not about us.
fn ours_over_theirs(case: &CaseResults, comparison: &Comparison) -> Option<(Comparison, Option<Control>)> {
    let (server, against) = (&comparison.server, &comparison.against);
    let control = case.controls.iter().find(|control| control.server == *against);
    let turned = match (view::is_ours(server), view::is_ours(against)) {
        (true, false) => comparison.clone(),
        (false, true) => Comparison {
            server: against.clone(),
            against: server.clone(),
            cost: inverse(comparison.cost),
            total_cost: comparison.total_cost.map(inverse),
            throughput: comparison.throughput.map(inverse),
            latency_p99: comparison.latency_p99.map(inverse),
            ..comparison.clone()
        },
        // What io_uring itself brings.
        (true, true) if on_io_uring(server) && !on_io_uring(against) => comparison.clone(),
        _ => return None,
    };
    let control = control.map(|control| Control {
        server: turned.against.clone(),
        ..control.clone()
    });
    Some((turned, control))
}

fn inverse(ratio: Ratio) -> Ratio {
    Ratio {
        median: 1.0 / ratio.median,
        low: 1.0 / ratio.high,
        high: 1.0 / ratio.low,
    }
}

fn on_io_uring(server: &str) -> bool {
    server.split(['-', ' ', '/']).any(|word| word == "uring")
}

/// What the picture has of these comparisons.
fn in_picture(mut shown: Vec<Shown>) -> Vec<CaseResults> {
    for one in &mut shown {
        let losses: Vec<bool> = one
            .case
            .comparisons
            .iter()
            .map(|comparison| verdict(&one.case, comparison) == Verdict::Loss)
            .collect();
        let mut losses = losses.into_iter();
        one.case.comparisons.retain(|comparison| {
            losses.next() == Some(true)
                || on_io_uring(&comparison.server)
                // Rivals are compared with the baseline, which is on epoll.
                || !view::is_ours(&comparison.against) && first_word(&comparison.server) == "quoit"
        });
    }
    shown.retain(|one| !one.case.comparisons.is_empty());
    shown.into_iter().map(|one| one.case).collect()
}

fn verdict(case: &CaseResults, comparison: &Comparison) -> Verdict {
    let judged = view::judged(case);
    let is_it = |judged: &&Judged<'_>| std::ptr::eq(judged.comparison, comparison);
    judged
        .iter()
        .find(is_it)
        .map_or(Verdict::Unjudged, |judged| judged.verdict)
}

/// What the summary has of an ecosystem: its first case, and the worst comparison of all.
fn summary(users: &Users, all: &[Results], known: &[Known]) -> Vec<CaseResults> {
    let cases = in_picture(users.comparisons(all, known));
    let worst = cases
        .iter()
        .flat_map(view::judged)
        .filter(|judged| judged.verdict == Verdict::Loss)
        .max_by(|a, b| a.comparison.cost.median.total_cmp(&b.comparison.cost.median));
    let named = |case: &CaseResults| CaseResults {
        name: format!("{}: {}", users.name, case.name),
        ..case.clone()
    };
    let mut summary: Vec<CaseResults> = cases.first().map(named).into_iter().collect();
    if let Some(worst) = worst
        && cases.first().is_some_and(|first| first.name != worst.case.name)
    {
        let mut case = named(worst.case);
        case.name += " (our worst)";
        case.comparisons = vec![worst.comparison.clone()];
        summary.push(case);
    }
    summary
}

/// All pictures, by name. One that has nothing to show says so, so that no link to it is broken.
pub(super) fn pictures(all: &[Results], known: &[Known]) -> Result<Vec<(&'static str, String)>> {
    let mut pictures = Vec::new();
    let mut summaries = Vec::new();
    for users in &USERS {
        let chart = charts::forest::forest(&in_picture(users.comparisons(all, known)))?;
        let picture = chart.map_or_else(
            || {
                charts::nothing(&format!(
                    "{}: not measured yet. `make result NAME={}` does it.",
                    users.name, users.experiments[0]
                ))
            },
            |chart| chart.file(),
        );
        pictures.push((users.file, picture));
        summaries.extend(summary(users, all, known));
    }
    let summary = charts::forest::forest(&summaries)?;
    let nothing = || charts::nothing("Not measured yet: `make results` does it, in some hours.");
    pictures.push(("pay", summary.map_or_else(nothing, |chart| chart.file())));
    Ok(pictures)
}

pub(super) fn page(all: &[Results], known: &[Known]) -> String {
    let mut text = format!(
        "# Does it pay?\n\n{}{ABOUT}\n",
        origin::mark("lab/results/*.json")
    );
    for users in &USERS {
        section(&mut text, users, all, known);
    }
    text + AFTER
}

fn section(text: &mut String, users: &Users, all: &[Results], known: &[Known]) {
    let Users {
        name,
        file,
        guide,
        about,
        ..
    } = users;
    let _ = write!(
        text,
        "## {name}\n\n{about} [The guide]({guide}).\n\n![{name}: our cost over theirs](results/{file}.svg)\n\n"
    );
    let shown = users.comparisons(all, known);
    let judged: Vec<Judged<'_>> = shown.iter().flat_map(|one| view::judged(&one.case)).collect();
    if !judged.is_empty() {
        let _ = writeln!(text, "{}\n", view::tally(&judged));
    }
    let losses: Vec<String> = shown
        .iter()
        .flat_map(|one| {
            let losses = view::judged(&one.case)
                .into_iter()
                .filter(|judged| judged.verdict == Verdict::Loss);
            losses.map(|loss| {
                let experiment = &one.experiment;
                let case = loss
                    .case
                    .name
                    .strip_prefix(&format!("{experiment}: "))
                    .unwrap_or_default();
                format!(
                    "[{experiment}](results/{experiment}.md), {}: {}",
                    plain(case),
                    plain(&loss.sentence())
                )
            })
        })
        .collect();
    if !losses.is_empty() {
        text.push_str("What we lose:\n\n");
        for loss in losses {
            let _ = writeln!(text, "- {loss}");
        }
        text.push('\n');
    }
    for results in users.kept(all) {
        let name = &results.experiment.name;
        let _ = writeln!(
            text,
            "- [{name}](results/{name}.md): {}",
            origin::measured(results)
        );
    }
    let kept = users.kept(all);
    let missing: Vec<String> = users
        .experiments
        .iter()
        .filter(|name| known.iter().any(|experiment| experiment.name == ***name))
        .filter(|name| !kept.iter().any(|results| results.experiment.name == ***name))
        .map(|name| format!("`{name}`"))
        .collect();
    if !missing.is_empty() {
        let _ = writeln!(
            text,
            "- Not measured yet: {}. [Earlier figures](results-history.md) are of other machines and commits.",
            missing.join(", ")
        );
    }
    text.push('\n');
}
