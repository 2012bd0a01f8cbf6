//! What both forms of a report say, worked out once: verdicts, their order, figures in words.

use std::collections::BTreeMap;

use super::steadiness::{self, Steadiness};
use crate::pairs::{self, NoiseBand};
use crate::results;
use crate::results::model::{
    CaseResults, Comparison, Control, Environment, Judge, Ratio, Results, ServerSummary, Slice, Verdict,
};
use crate::table;

/// What stands where there is no figure.
pub(crate) const NONE: &str = "–";
/// Share of a p99 that the generator's own lag may have before it is said.
const LAG_SHARE: f64 = 0.1;
/// Share of requests left out of the percentiles before it is said.
const SLIPPED_SHARE: f64 = 0.001;

/// A comparison with the verdict that its own numbers give.
pub(crate) struct Judged<'a> {
    pub(crate) case: &'a CaseResults,
    pub(crate) comparison: &'a Comparison,
    /// About the server, as it stands to the one that it is compared with.
    pub(crate) verdict: Verdict,
}

/// What a comparison of a case says, as [`Verdict::of`] has it; without a control there is none.
fn verdict(case: &CaseResults, comparison: &Comparison) -> Verdict {
    match (comparison.band, control_of(case, comparison)) {
        (Some(factor), Some(control)) => {
            let pairs = control.pairs;
            Verdict::of(comparison.cost, comparison.pairs, NoiseBand { factor, pairs })
        }
        _ => Verdict::Unjudged,
    }
}

/// The control of what a server is compared with.
fn control_of<'a>(case: &'a CaseResults, comparison: &Comparison) -> Option<&'a Control> {
    case.controls
        .iter()
        .find(|control| control.server == comparison.against)
}

/// Whether a server is one of this project's. The experiments call these `quoit-ENGINE`, on Netty and Kestrel
/// `netty-quoit-ENGINE` (with TLS and as a client `tls-` and `client-quoit-ENGINE`), under tokio `async-WHAT-ENGINE` and `axum-ENGINE`, and in Go by the way in which its handlers are driven.
#[must_use]
pub fn is_ours(server: &str) -> bool {
    let mut words = server.split(['/', ' ', '-']);
    match (words.next(), words.next()) {
        (Some("quoit" | "async"), _) | (Some("netty" | "kestrel" | "tls" | "client"), Some("quoit")) => true,
        (Some("axum"), Some(engine)) => ["uring", "epoll"].contains(&engine),
        (Some("go"), Some(way)) => ["event", "fasthttp", "listener", "nethttp", "packet"].contains(&way),
        _ => false,
    }
}

impl Judged<'_> {
    /// What it means for Quoit: a rival that beats one of our servers is our loss. Between two rivals, and between
    /// two servers of ours, it is the verdict.
    pub(crate) fn for_quoit(&self) -> Verdict {
        if is_ours(&self.comparison.server) || !is_ours(&self.comparison.against) {
            return self.verdict;
        }
        match self.verdict {
            Verdict::Loss => Verdict::Win,
            Verdict::Tie => Verdict::Tie,
            Verdict::Win => Verdict::Loss,
            Verdict::Unjudged => Verdict::Unjudged,
        }
    }

    /// One sentence, such as `tokio costs 1.200 [1.182, 1.218] times as much as quoit/epoll`.
    pub(crate) fn sentence(&self) -> String {
        let Comparison { server, against, .. } = self.comparison;
        let ratio = ratio(self.comparison.cost);
        if is_memory(self.case) {
            return format!("{server} takes {ratio} times as much memory as {against}");
        }
        match self.case.judge {
            Judge::Handled => {
                format!(
                    "{server} takes {ratio} times as long as {against} for each {} that it handles",
                    self.case.unit
                )
            }
            Judge::Cpu | Judge::Memory => format!("{server} costs {ratio} times as much as {against}"),
        }
    }
}

/// All comparisons of a case, what is worst for us first.
pub(crate) fn judged(case: &CaseResults) -> Vec<Judged<'_>> {
    let judge = |comparison| Judged {
        case,
        comparison,
        verdict: verdict(case, comparison),
    };
    let mut all: Vec<Judged<'_>> = case.comparisons.iter().map(judge).collect();
    sort(&mut all);
    all
}

/// All comparisons of a run, what is worst for us first.
pub(crate) fn all_judged(results: &Results) -> Vec<Judged<'_>> {
    let mut all: Vec<Judged<'_>> = results.cases.iter().flat_map(judged).collect();
    sort(&mut all);
    all
}

/// Losses, ties, wins, and what was not judged; of each the clearest first.
fn sort(judged: &mut [Judged<'_>]) {
    let distance = |judged: &Judged<'_>| judged.comparison.cost.median.ln().abs();
    judged.sort_by(|a, b| {
        let standing = a.for_quoit().cmp(&b.for_quoit());
        standing.then_with(|| distance(b).total_cmp(&distance(a)))
    });
}

/// What stands in the place of losses where there is none. What was not judged is no proof of anything.
pub(crate) fn no_loss(judged: &[Judged<'_>]) -> &'static str {
    let unjudged = judged.iter().filter(|judged| judged.verdict == Verdict::Unjudged);
    match unjudged.count() {
        all if all == judged.len() => "Nothing could be judged, so nothing is known of losses.",
        0 => "None beyond the noise.",
        _ => "None beyond the noise among those that could be judged.",
    }
}

/// One line on how the comparisons came out, for Quoit.
pub(crate) fn tally(judged: &[Judged<'_>]) -> String {
    let count = |verdict| {
        judged
            .iter()
            .filter(|judged| judged.for_quoit() == verdict)
            .count()
    };
    let words =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let mut tally = format!(
        "{}: {}, {}, {}",
        words(judged.len(), "comparison", "comparisons"),
        words(count(Verdict::Loss), "loss", "losses"),
        words(count(Verdict::Tie), "tie", "ties"),
        words(count(Verdict::Win), "win", "wins"),
    );
    match count(Verdict::Unjudged) {
        0 => {}
        unjudged => tally += &format!(", {unjudged} not judged"),
    }
    tally + "."
}

/// The verdict in a table.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Loss => "LOSS",
        Verdict::Tie => "tie",
        Verdict::Win => "win",
        Verdict::Unjudged => "not judged",
    }
}

/// Whether the cost of a case is memory.
pub(crate) fn is_memory(case: &CaseResults) -> bool {
    let memory = |server: &ServerSummary| server.figures.bytes_per_connection.is_some();
    case.servers.iter().any(memory)
}

/// The servers of a case in the order of its comparisons, then those that are only compared with.
pub(crate) fn servers(case: &CaseResults) -> Vec<&ServerSummary> {
    let judged = judged(case);
    let place = |server: &str| judged.iter().position(|row| row.comparison.server == server);
    let mut servers: Vec<&ServerSummary> = case.servers.iter().collect();
    servers.sort_by_key(|server| place(&server.server).unwrap_or(usize::MAX));
    servers
}

/// `1.034 [1.021, 1.050]`.
pub(crate) fn ratio(ratio: Ratio) -> String {
    format!("{:.3} [{:.3}, {:.3}]", ratio.median, ratio.low, ratio.high)
}

/// `0.971–1.030`.
pub(crate) fn band(factor: f64) -> String {
    format!("{:.3}–{factor:.3}", 1.0 / factor)
}

/// The band of a comparison, and whether it is as narrow as was aimed at.
pub(crate) fn band_of(case: &CaseResults, comparison: &Comparison) -> String {
    let Some(factor) = comparison.band else {
        return "no control".to_owned();
    };
    let reached = control_of(case, comparison).is_none_or(|control| control.reached);
    format!("{}{}", band(factor), if reached { "" } else { ", too wide" })
}

/// One sentence for every control of a case.
pub(crate) fn controls(results: &Results, case: &CaseResults) -> Vec<String> {
    let aim = results.effort.band_aim * 100.0;
    case.controls
        .iter()
        .map(|control| {
            format!(
                "A/A: {} against itself over {} pairs: {}; ratios in {} are noise ({} than the {aim:.0} % that were \
                 aimed at).",
                control.server,
                control.pairs,
                ratio(control.cost),
                band(control.band),
                if control.reached { "no wider" } else { "wider" }
            )
        })
        .collect()
}

/// What a reader has to know about the figures of a case before they are believed.
pub(crate) fn warnings(case: &CaseResults) -> Vec<String> {
    let mut warnings: Vec<String> = too_few_pairs(case).into_iter().collect();
    for ServerSummary { server, figures, .. } in &case.servers {
        if figures.errors > 0 {
            let errors = table::count(figures.errors as f64);
            warnings.push(format!(
                "{server}: {errors} requests failed; its figures are those of a server that errs."
            ));
        }
        if let Some(share) = figures
            .compiling_share
            .filter(|share| *share > results::MOST_COMPILING)
        {
            let share = percent(share);
            warnings.push(format!(
                "{server}: its runtime was still compiling for {share} of the window, so its figures are not those of \
                 a server that is warmed up; it takes a longer warm-up."
            ));
        }
        if let (Some(lag), Some(latency)) = (figures.generator_lag_p99_ns, &figures.latency)
            && lag > latency.p99_ns * LAG_SHARE
        {
            let lag = table::nanoseconds(lag);
            warnings.push(format!(
                "{server}: the generator was late by {lag} (p99), so its latencies are partly the generator's."
            ));
        }
    }
    let slipped: Vec<String> = case.servers.iter().filter_map(slips).collect();
    if !slipped.is_empty() {
        warnings.push(format!(
            "Requests that fell into gaps of the generator are in the percentiles, which may be the generator's by as much: {}.",
            slipped.join("; ")
        ));
    }
    let spoiled = case.slices.iter().filter(|slice| slice.spoiled.is_some()).count();
    if spoiled > 0 {
        let all = case.slices.len();
        warnings.push(format!(
            "{spoiled} of {all} slices were disturbed, thrown away and repeated."
        ));
    }
    warnings
}

/// Which comparisons of a case have too few pairs to be judged.
fn too_few_pairs(case: &CaseResults) -> Option<String> {
    let few = |pairs: u32| pairs < pairs::LEAST_PAIRS;
    let controls = case
        .controls
        .iter()
        .map(|control| (format!("the control of {}", control.server), control.pairs));
    let comparisons = case
        .comparisons
        .iter()
        .map(|comparison| (comparison.server.clone(), comparison.pairs));
    let named: Vec<String> = comparisons
        .chain(controls)
        .filter(|(_, pairs)| few(*pairs))
        .map(|(name, pairs)| format!("{name} has {pairs}"))
        .collect();
    (!named.is_empty()).then(|| {
        format!(
            "Too few pairs to judge, whatever the ratio: a verdict needs {} of the comparison and of its \
             control; {}.",
            pairs::LEAST_PAIRS,
            named.join(", ")
        )
    })
}

/// One sentence on how steady the throughput of the servers was; `None` where no second was sampled.
pub(crate) fn unsteadiness(case: &CaseResults) -> Option<String> {
    let told = case.servers.iter().filter_map(|server| {
        let steadiness = steadiness::of(case, &server.server)?;
        let share = percent(steadiness.slowest / steadiness.median);
        let deviation = or_none(server.rate_deviation, percent);
        let different = steadiness
            .differences()
            .map_or_else(String::new, |words| format!("; in it {words}"));
        Some(format!(
            "{} {share} of its median one (deviation of all {}: {deviation}{different})",
            server.server, steadiness.seconds
        ))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("The slowest second had: {}.", told.join(", ")))
}

/// What it costs to read the counters of the servers of a case; `None` if none shows any.
pub(crate) fn reading_counters(case: &CaseResults) -> Option<String> {
    // A file that is kept has no slices, which alone say how often that was done.
    if case.slices.is_empty() {
        return None;
    }
    let told = case.servers.iter().filter_map(|server| {
        let cost = server.counter_reading?;
        let a_second = server.figures.server_cpu_ns_per_unit * server.figures.units_per_second;
        let often = match steadiness::of(case, &server.server) {
            Some(Steadiness { seconds, counted, .. }) => format!("read in {counted} of {seconds} seconds"),
            None => "read at the bounds of the window only".to_owned(),
        };
        Some(format!(
            "{} {} of its processor time ({:.2} % of what it uses in a second) and {} of the lab's, {often}",
            server.server,
            table::nanoseconds(cost.server_ns),
            cost.server_ns / a_second.max(f64::MIN_POSITIVE) * 100.0,
            table::nanoseconds(cost.observer_ns),
        ))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("Reading a server's own counters once takes: {}.", told.join("; ")))
}

/// How many of a server's requests overlapped gaps of the generator, if it is worth a word.
fn slips(server: &ServerSummary) -> Option<String> {
    let share = server
        .figures
        .slipped_share
        .filter(|share| *share > SLIPPED_SHARE)?;
    let at_least = server
        .figures
        .latency_at_least
        .map_or_else(String::new, |latency| {
            format!(
                " (without the gaps p99 is {} at least)",
                table::nanoseconds(latency.p99_ns)
            )
        });
    Some(format!("{} {:.1} %{at_least}", server.server, share * 100.0))
}

/// What a server's counters rose by for one unit of work, by name, over all slices that count; `None` for a
/// server without counters.
pub(crate) fn counters_per_unit(case: &CaseResults, server: &str) -> Option<BTreeMap<String, f64>> {
    let mut units = 0.0;
    let mut counters: BTreeMap<String, f64> = BTreeMap::new();
    let counts =
        |slice: &&Slice| slice.server == server && slice.spoiled.is_none() && !slice.counters.is_empty();
    for slice in case.slices.iter().filter(counts) {
        units += slice.figures.units;
        for (name, value) in &slice.counters {
            *counters.entry(name.clone()).or_default() += value;
        }
    }
    if units <= 0.0 {
        return None;
    }
    counters.values_mut().for_each(|value| *value /= units);
    // What io_uring is about: how much one system call carries.
    if let Some(enters) = counters.get("enters").copied().filter(|enters| *enters > 0.0) {
        for carried in ["submissions", "completions"] {
            if let Some(value) = counters.get(carried).copied() {
                counters.insert(format!("{carried} per enter"), value / enters);
            }
        }
    }
    Some(counters)
}

/// `12.3 %` of a share from 0 to 1.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// `8.6 MiB`; below zero for a difference in the noise.
pub(crate) fn bytes(value: f64) -> String {
    match value.abs() {
        ..1024.0 => format!("{value:.0} B"),
        ..1_048_576.0 => format!("{:.1} KiB", value / 1024.0),
        ..1_073_741_824.0 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.2} GiB", value / 1_073_741_824.0),
    }
}

/// A figure in words, or a dash.
pub(crate) fn or_none<T>(value: Option<T>, words: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), words)
}

/// The columns of a server's own figures, behind its comparison.
pub(crate) const FIGURES: usize = 6;

/// Their titles.
pub(crate) fn figure_titles(case: &CaseResults) -> [String; FIGURES] {
    let unit = &case.unit;
    [
        format!("CPU per {unit}"),
        format!("{unit}s per second"),
        "p50".to_owned(),
        "p99".to_owned(),
        format!("system calls per {unit}"),
        if is_memory(case) {
            "memory per connection"
        } else {
            "memory"
        }
        .to_owned(),
    ]
}

/// A server's own figures.
pub(crate) fn figures(server: Option<&ServerSummary>) -> [String; FIGURES] {
    let Some(server) = server else {
        return [NONE; FIGURES].map(str::to_owned);
    };
    let figures = &server.figures;
    // Nothing is asked of idle connections.
    let asked = figures.bytes_per_connection.is_none();
    let resident = figures.resident_bytes.map(|resident| resident as f64);
    [
        or_none(
            asked.then_some(figures.server_cpu_ns_per_unit),
            table::nanoseconds,
        ),
        or_none(asked.then_some(figures.units_per_second), table::count),
        or_none(figures.latency.map(|latency| latency.p50_ns), table::nanoseconds),
        or_none(figures.latency.map(|latency| latency.p99_ns), table::nanoseconds),
        or_none(server.system_calls_per_unit, table::per_unit),
        or_none(figures.bytes_per_connection.or(resident), bytes),
    ]
}

/// What a run found for one comparison, beside a published claim.
pub(crate) fn finding(judged: &Judged<'_>) -> String {
    let comparison = judged.comparison;
    let throughput = comparison.throughput.map_or_else(String::new, |throughput| {
        format!(", throughput {}", ratio(throughput))
    });
    format!(
        "{}, {} over {}: cost {}{throughput}: {}",
        judged.case.name,
        comparison.server,
        comparison.against,
        ratio(comparison.cost),
        verdict_word(judged.verdict)
    )
}

/// The machine and the program, as `(name, value)`.
pub(crate) fn environment(environment: &Environment) -> Vec<(&'static str, String)> {
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let versions: Vec<String> = environment
        .versions
        .iter()
        .map(|(server, version)| format!("{server} {version}"))
        .collect();
    let mut lines = vec![
        ("quoit", environment.quoit_version.clone()),
        (
            "commit",
            environment
                .commit
                .as_deref()
                .map_or_else(|| "unknown".to_owned(), short_commit),
        ),
        ("Linux", known(&environment.kernel)),
        ("processor", known(&environment.processor)),
        ("cores", environment.cores.to_string()),
        (
            "memory",
            or_none(environment.memory_bytes, |memory| bytes(memory as f64)),
        ),
        (
            "virtual machine",
            if environment.virtualised { "yes" } else { "no" }.to_owned(),
        ),
        ("congestion control", known(&environment.congestion_control)),
        (
            "load before",
            or_none(environment.load_average, |load| format!("{load:.2}")),
        ),
        (
            "taken by the hypervisor",
            or_none(environment.stolen_share, percent),
        ),
        (
            "taken by other processes",
            or_none(environment.foreign_share, percent),
        ),
    ];
    if !versions.is_empty() {
        lines.push(("versions", versions.join(", ")));
    }
    lines
}

/// The first digits of a commit, with `-dirty` kept.
pub(crate) fn short_commit(commit: &str) -> String {
    let (digits, rest) = commit.split_at(commit.find('-').unwrap_or(commit.len()));
    digits.chars().take(12).chain(rest.chars()).collect()
}

/// How much was measured, and where, in one sentence.
pub(crate) fn effort(results: &Results) -> String {
    let effort = &results.effort;
    let cores = |cores: &[u32]| cores.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "Slices of {} s after {} s of warm-up, {} to {} pairs, {:.0} s in all{}; {} (server on core {}, generator on \
         core {}); watching used {:.1} % of a core.",
        effort.seconds,
        effort.warm_up_seconds,
        effort.least_pairs,
        effort.most_pairs,
        effort.total_seconds,
        if results.experiment.quick {
            ", a quick run"
        } else {
            ""
        },
        results.placement.kind,
        cores(&results.placement.server_cores),
        cores(&results.placement.generator_cores),
        effort.observer_cpu_share * 100.0
    )
}

#[cfg(test)]
mod tests;
