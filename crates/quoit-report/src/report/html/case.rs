//! One case of the page: its comparisons, charts and counters.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::{figure, legend};
use crate::error::Result;
use crate::report::charts::{self, colours};
use crate::report::client_figures;
use crate::report::datagrams;
use crate::report::steadiness;
use crate::report::view::{self, NONE, or_none};
use crate::results::model::{CaseResults, Results, ServerSummary, Verdict};
use crate::table;

/// Percentiles of the table beside the curves.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999];

/// The section of a case. `names` are all servers of the run: their places give their colours.
pub(super) fn case(results: &Results, case: &CaseResults, names: &[&str], id: &str) -> Result<Markup> {
    let percentiles = charts::lines::percentiles(case, names)?;
    let throughput = charts::lines::throughput(case, names)?;
    let cpu = charts::bars::cpu(case)?;
    let memory = charts::bars::memory(case)?;
    let legend = || {
        legend(names, |name| {
            case.servers.iter().any(|server| server.server == name)
        })
    };
    Ok(html! {
        section id=(id) {
            h2 { (case.name) }
            p {
                (case.workload)
                @if let Some(offered) = case.offered_per_second {
                    ", " (table::count(offered)) " " (case.unit) "s per second offered"
                }
            }
            @for control in view::controls(results, case) { p.quiet { (control) } }
            (comparisons(case))
            (datagram_table(case))
            (told_table(case))
            @for warning in view::warnings(case) { p.warning { (warning) } }
            @if let Some(chart) = percentiles {
                h3 { "Latency" }
                (figure(
                    &chart,
                    "Latency at every percentile, one line per server; both axes are logarithmic.",
                    html! {
                        p { "Every step to the right leaves out nine tenths of the requests that are left." }
                        (legend())
                    },
                    percentile_table(case),
                ))
            }
            @if let Some(chart) = throughput {
                h3 { "Throughput over time" }
                (figure(
                    &chart,
                    "Throughput in every second of every slice, in the order in which the slices ran.",
                    html! {
                        p { (case.unit) "s per second; a line is one slice, in which one server ran alone." }
                        (legend())
                    },
                    slice_table(case),
                ))
            }
            (steadiness_table(case))
            @if let Some(chart) = cpu {
                h3 { "CPU per " (case.unit) }
                (figure(
                    &chart,
                    "CPU of the server in user space and in the kernel, and of the generator, stacked.",
                    stack_legend(&["server, user space", "server, kernel", "generator"]),
                    cpu_table(case),
                ))
            }
            @if let Some(chart) = memory {
                h3 { "Memory" }
                (figure(
                    &chart,
                    "Memory of every server.",
                    if view::is_memory(case) {
                        html! { p { "Of one connection, beyond that of the server without any." } }
                    } else {
                        html! {
                            ul.legend {
                                li { span class=(colours::stack_class(0)) aria-hidden="true" { "■" } " resident" }
                                li { span class=(colours::stack_class(2)) aria-hidden="true" { "■" } " more at the peak" }
                            }
                        }
                    },
                    memory_table(case),
                ))
            }
            (explained(case))
            @if let Some(told) = view::reading_counters(case) { p.quiet { (told) } }
        }
    })
}

/// A table that scrolls by itself on a narrow page. The first column is the rows' heading.
pub(super) fn scrolled(label: &str, titles: &[String], rows: Vec<Vec<Markup>>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @for title in titles { th scope="col" { (title) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (column, cell) in row.into_iter().enumerate() {
                                @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A table of servers, with these figures of each.
fn by_server(
    case: &CaseResults,
    label: &str,
    titles: &[&str],
    cells: impl Fn(&ServerSummary) -> Vec<String>,
) -> Markup {
    let titles: Vec<String> = std::iter::once("server")
        .chain(titles.iter().copied())
        .map(str::to_owned)
        .collect();
    let rows = view::servers(case).into_iter().map(|server| {
        let cells = cells(server).into_iter().map(|cell| html! { (cell) });
        std::iter::once(html! { (server.server) }).chain(cells).collect()
    });
    scrolled(label, &titles, rows.collect())
}

fn comparisons(case: &CaseResults) -> Markup {
    let head = [
        "server",
        "against",
        "verdict",
        "cost ratio",
        "A/A band",
        "with the generator’s",
        "pairs",
    ];
    let titles: Vec<String> = head
        .map(str::to_owned)
        .into_iter()
        .chain(view::figure_titles(case))
        .collect();
    let judged = view::judged(case);
    let compared = judged.iter().map(|judged| {
        let comparison = judged.comparison;
        let server = case.servers.iter().find(|server| server.server == comparison.server);
        let own = view::figures(server).map(|cell| html! { (cell) });
        let head = [
            html! { (comparison.server) },
            html! { (comparison.against) },
            html! { span class={ "verdict " (verdict_class(judged.verdict)) } { (view::verdict_word(judged.verdict)) } },
            html! { (view::ratio(comparison.cost)) },
            html! { (view::band_of(case, comparison)) },
            html! { (or_none(comparison.total_cost, view::ratio)) },
            html! { (comparison.pairs) },
        ];
        head.into_iter().chain(own).collect()
    });
    let compared_with = view::servers(case)
        .into_iter()
        .filter(|server| {
            judged
                .iter()
                .all(|judged| judged.comparison.server != server.server)
        })
        .map(|server| {
            let role = if server.server == case.baseline {
                "baseline"
            } else {
                NONE
            };
            let head = [&server.server, NONE, role, NONE, NONE, NONE, NONE].map(|cell| html! { (cell) });
            let own = view::figures(Some(server)).map(|cell| html! { (cell) });
            head.into_iter().chain(own).collect()
        });
    scrolled("Comparisons", &titles, compared.chain(compared_with).collect())
}

/// The account of datagrams, if the case has one.
fn datagram_table(case: &CaseResults) -> Markup {
    let cells = |server: &ServerSummary| {
        datagrams::row(server)
            .unwrap_or_else(|| [NONE; datagrams::TITLES.len()].map(str::to_owned))
            .to_vec()
    };
    html! {
        @if datagrams::has_some(case) {
            h3 { "Datagrams" }
            p { (datagrams::ABOUT) }
            (by_server(case, "Datagrams", &datagrams::TITLES, cells))
        }
    }
}

/// What clients say beside, if they do.
fn told_table(case: &CaseResults) -> Markup {
    let servers = client_figures::servers(case);
    let names = servers.iter().map(|server| server.server.clone());
    let titles: Vec<String> = std::iter::once("figure".to_owned()).chain(names).collect();
    let rows = client_figures::rows(&servers).into_iter();
    let rows = rows.map(|cells| cells.into_iter().map(|cell| html! { (cell) }).collect());
    html! {
        @if !servers.is_empty() {
            h3 { "What the clients say" }
            p { (client_figures::ABOUT) }
            (scrolled("What the clients say", &titles, rows.collect()))
        }
    }
}

fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Loss => "loss",
        Verdict::Tie | Verdict::Unjudged => "tie",
        Verdict::Win => "win",
    }
}

fn stack_legend(parts: &[&str]) -> Markup {
    html! {
        ul.legend {
            @for (index, part) in parts.iter().enumerate() {
                li { span class=(colours::stack_class(index)) aria-hidden="true" { "■" } " " (part) }
            }
        }
    }
}

/// The figures of the chart of CPU against load, of all cases with a schedule.
pub(super) fn load_table(results: &Results) -> Markup {
    let titles = ["case", "offered per second", "server", "CPU"].map(str::to_owned);
    let mut rows = Vec::new();
    for case in &results.cases {
        let Some(offered) = case.offered_per_second else {
            continue;
        };
        for server in &case.servers {
            rows.push(vec![
                html! { (case.name) },
                html! { (table::count(offered)) },
                html! { (server.server) },
                html! { (table::nanoseconds(server.figures.server_cpu_ns_per_unit)) },
            ]);
        }
    }
    scrolled("CPU against offered load", &titles, rows)
}

fn percentile_table(case: &CaseResults) -> Markup {
    let titles = PERCENTILES.map(|percentile| format!("{percentile} %"));
    let titles: Vec<&str> = titles
        .iter()
        .map(String::as_str)
        .chain(["mean", "deviation", "max"])
        .collect();
    by_server(case, "Latency", &titles, |server| {
        let at = |percentile: f64| {
            let point = server
                .latency_curve
                .iter()
                .find(|(at, _)| (at - percentile).abs() < 1e-6);
            or_none(point, |(_, latency)| table::nanoseconds(*latency))
        };
        let latency = server.figures.latency;
        let rest = [
            latency.map(|latency| latency.mean_ns),
            latency.map(|latency| latency.standard_deviation_ns),
            latency.map(|latency| latency.max_ns),
        ];
        let rest = rest.map(|value| or_none(value, table::nanoseconds));
        PERCENTILES.into_iter().map(at).chain(rest).collect()
    })
}

/// Every slice, spoiled ones too.
fn slice_table(case: &CaseResults) -> Markup {
    let titles = [
        "slice".to_owned(),
        "series".to_owned(),
        "pair".to_owned(),
        "server".to_owned(),
        format!("{}s per second", case.unit),
        "slowest second".to_owned(),
        format!("CPU per {}", case.unit),
        "taken by the hypervisor".to_owned(),
        "taken by other processes".to_owned(),
        "thrown away".to_owned(),
    ];
    let percent = |share: Option<f64>| or_none(share, view::percent);
    let rows = case.slices.iter().enumerate().map(|(index, slice)| {
        let rates = charts::lines::rates(slice);
        let slowest = rates.iter().map(|(_, rate)| *rate).reduce(f64::min);
        vec![
            html! { (index + 1) },
            html! { (slice.series) },
            html! { (slice.pair + 1) },
            html! { (slice.server) },
            html! { (table::count(slice.figures.units_per_second)) },
            html! { (or_none(slowest, table::count)) },
            html! { (table::nanoseconds(slice.figures.server_cpu_ns_per_unit)) },
            html! { (percent(slice.stolen_share)) },
            html! { (percent(slice.foreign_share)) },
            html! { (slice.spoiled.as_deref().unwrap_or(NONE)) },
        ]
    });
    scrolled("Slices", &titles, rows.collect())
}

/// The slowest second of every server beside its median one; nothing where no second was sampled.
fn steadiness_table(case: &CaseResults) -> Markup {
    let titles = [
        "server".to_owned(),
        format!("{}s in its slowest second", case.unit),
        "in its median one".to_owned(),
        "deviation".to_owned(),
        "seconds".to_owned(),
        format!("CPU per {} in the slowest: user, kernel", case.unit),
        "in the median one".to_owned(),
        "packets dropped in the slowest".to_owned(),
        "what else was different in it".to_owned(),
    ];
    let both =
        |[user, kernel]: [f64; 2]| format!("{}, {}", table::nanoseconds(user), table::nanoseconds(kernel));
    let rows: Vec<Vec<Markup>> = view::servers(case)
        .into_iter()
        .filter_map(|server| {
            let steadiness = steadiness::of(case, &server.server)?;
            let share = view::percent(steadiness.slowest / steadiness.median);
            let cells = [
                server.server.clone(),
                format!("{} ({share})", table::count(steadiness.slowest)),
                table::count(steadiness.median),
                or_none(server.rate_deviation, view::percent),
                steadiness.seconds.to_string(),
                both(steadiness.cpu_ns),
                both(steadiness.usual_cpu_ns),
                steadiness.drops.to_string(),
                steadiness.differences().unwrap_or_else(|| NONE.to_owned()),
            ];
            Some(cells.into_iter().map(|cell| html! { (cell) }).collect())
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            h3 { "The slowest second" }
            (scrolled("The slowest second of every server", &titles, rows))
        }
    }
}

fn cpu_table(case: &CaseResults) -> Markup {
    let titles = ["server", "in user space", "generator", "of a kernel thread"];
    by_server(case, "CPU", &titles, |server| {
        let figures = &server.figures;
        vec![
            table::nanoseconds(figures.server_cpu_ns_per_unit),
            or_none(figures.server_user_share, |share| {
                format!("{:.0} %", share * 100.0)
            }),
            or_none(figures.generator_cpu_ns_per_unit, table::nanoseconds),
            or_none(figures.kernel_thread_cpu_ns_per_unit, table::nanoseconds),
        ]
    })
}

fn memory_table(case: &CaseResults) -> Markup {
    let titles = [
        "resident",
        "peak",
        "per connection",
        "client, resident",
        "client, peak",
    ];
    by_server(case, "Memory", &titles, |server| {
        let figures = &server.figures;
        let whole = |value: Option<u64>| or_none(value, |value| view::bytes(value as f64));
        vec![
            whole(figures.resident_bytes),
            whole(figures.peak_resident_bytes),
            or_none(figures.bytes_per_connection, view::bytes),
            whole(figures.client_resident_bytes),
            whole(figures.client_peak_resident_bytes),
        ]
    })
}

/// What explains the result: what the machine and the servers counted for one unit of work.
fn explained(case: &CaseResults) -> Markup {
    let servers = view::servers(case);
    let counters: Vec<_> = servers
        .iter()
        .map(|server| view::counters_per_unit(case, &server.server))
        .collect();
    type Figure = fn(&ServerSummary) -> Option<String>;
    let machine: [(&str, Figure); 5] = [
        ("system calls", |server| {
            server.system_calls_per_unit.map(table::per_unit)
        }),
        ("context switches", |server| {
            server.figures.context_switches_per_unit.map(table::per_unit)
        }),
        ("page faults in a slice, minor", |server| {
            server.figures.minor_faults.map(|faults| faults.to_string())
        }),
        ("page faults in a slice, major", |server| {
            server.figures.major_faults.map(|faults| faults.to_string())
        }),
        ("CPU per second when idle", |server| {
            server.figures.idle_cpu_ns_per_second.map(table::nanoseconds)
        }),
    ];
    let mut rows: Vec<Vec<Markup>> = Vec::new();
    for (name, figure) in machine {
        let values: Vec<Option<String>> = servers.iter().map(|server| figure(server)).collect();
        if values.iter().any(Option::is_some) {
            let values = values
                .into_iter()
                .map(|value| html! { (value.unwrap_or_else(|| NONE.to_owned())) });
            rows.push(std::iter::once(html! { (name) }).chain(values).collect());
        }
    }
    let names: BTreeSet<&String> = counters
        .iter()
        .flatten()
        .flat_map(|counters| counters.keys())
        .collect();
    for name in names {
        let value = |index: usize| {
            counters[index]
                .as_ref()
                .and_then(|counters| counters.get(name).copied())
        };
        if (0..servers.len()).all(|index| value(index).is_none_or(|value| value == 0.0)) {
            continue;
        }
        let values = (0..servers.len()).map(|index| html! { (or_none(value(index), table::per_unit)) });
        rows.push(std::iter::once(html! { code { (name) } }).chain(values).collect());
    }
    let titles: Vec<String> = std::iter::once(format!("for one {}, unless it says otherwise", case.unit))
        .chain(servers.iter().map(|server| server.server.clone()))
        .collect();
    html! {
        @if !rows.is_empty() {
            h3 { "What explains it" }
            (scrolled("Counters", &titles, rows))
        }
    }
}
