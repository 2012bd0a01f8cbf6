//! The cases of an experiment: what the file states once, what each case changes, and its sweeps.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use quoit_report::results::model::Judge;

use super::model::{Case, DatagramSpec, LoadSpec, Pace, Workload};
use super::reader::{Item, Section};
use super::template::{self, Values};

/// What `quoit load` speaks over connections, and what clients under test do besides.
const PROTOCOLS: [&str; 5] = ["echo", "http", "rpc", "dns", "rsocket"];

/// What a server can be asked to speak.
pub(super) const SPOKEN: [&str; 6] = ["echo", "http", "rpc", "dns", "rsocket", "udp-sink"];

/// The kinds of workloads.
const KINDS: [&str; 4] = ["load", "bulk", "idle", "datagrams"];

/// The fields of a workload, each with the kinds that have a use for it.
const FIELDS: [(&str, &[&str]); 20] = [
    ("kind", &KINDS),
    ("protocol", &["load"]),
    ("connections", &["load", "idle"]),
    ("threads", &["load"]),
    ("pipeline", &["load"]),
    ("rate", &["load", "datagrams"]),
    ("share_of_peak", &["load", "datagrams"]),
    ("size", &["load", "datagrams"]),
    ("path", &["load", "bulk"]),
    ("arguments", &["load", "datagrams"]),
    ("mebibytes", &["bulk"]),
    ("seconds", &["idle"]),
    ("count", &["datagrams"]),
    ("senders", &["datagrams"]),
    ("mode", &["datagrams"]),
    ("work", &["datagrams"]),
    ("judge", &["datagrams"]),
    ("overload", &["datagrams"]),
    ("ladder", &["datagrams"]),
    ("quick", &KINDS),
];

/// The largest share of the baseline's peak that can be offered: of datagrams, which are lost and not waited for.
const MOST_OF_PEAK: f64 = 100.0;

/// Cases that one file may come to: more is a sweep gone wrong.
const MOST_CASES: usize = 200;

/// The values of one case: the file's `[workload]` with what the case changes.
type Stated<'a> = BTreeMap<&'static str, Item<'a>>;

/// Reads the cases of a file. Without a `[[case]]`, `[workload]` is the only one, called as the experiment is.
pub(super) fn read(file: &Section<'_>, experiment: &str) -> Vec<Case> {
    let known = FIELDS.map(|(name, _)| name);
    let shared = file.section("workload");
    if let Some(shared) = &shared {
        shared.allow_only(&known);
    }
    let stated_cases = file.sections("case");
    let mut cases = Vec::new();
    if stated_cases.is_empty() {
        match &shared {
            Some(shared) => expand(shared, &stated(shared), Some(experiment), &mut cases),
            None => file.add("workload", "is missing: what is done to the servers"),
        }
    }
    let mut with_name = known.to_vec();
    with_name.push("name");
    for section in &stated_cases {
        section.allow_only(&with_name);
        let mut values = shared.as_ref().map(stated).unwrap_or_default();
        let own = stated(section);
        // The two say the same thing in two ways: the case's own word replaces either.
        if own.contains_key("rate") || own.contains_key("share_of_peak") {
            values.remove("rate");
            values.remove("share_of_peak");
        }
        check_use(&own, &values);
        values.extend(own);
        expand(section, &values, None, &mut cases);
    }
    if cases.len() > MOST_CASES {
        file.add(
            "case",
            format!(
                "the sweeps come to {} cases; at most {MOST_CASES} are allowed",
                cases.len()
            ),
        );
    }
    cases
}

fn stated<'a>(section: &Section<'a>) -> Stated<'a> {
    let fields = FIELDS
        .iter()
        .filter_map(|(name, _)| Some((*name, section.field(name)?)));
    fields.collect()
}

/// Notes what a case states and its kind has no use for. What it inherits may be of no use.
fn check_use(own: &Stated<'_>, inherited: &Stated<'_>) {
    let kind = own.get("kind").or_else(|| inherited.get("kind"));
    let kind = kind.and_then(|item| item.text()).unwrap_or("load");
    for (name, kinds) in FIELDS {
        if let Some(item) = own.get(name).filter(|_| !kinds.contains(&kind)) {
            item.add(format!("is of no use to a workload of the kind `{kind}`"));
        }
    }
}

/// Makes the cases that the lists in `values` come to, and adds those that are right.
fn expand(section: &Section<'_>, values: &Stated<'_>, fallback_name: Option<&str>, cases: &mut Vec<Case>) {
    let template = match fallback_name {
        Some(name) => Some(name.to_owned()),
        None => section.need("name").and_then(|field| {
            let known = FIELDS.map(|(name, _)| name);
            field.template(&known)?;
            field.name()
        }),
    };
    let mut combinations: Vec<Stated<'_>> = vec![Stated::new()];
    let mut swept = Vec::new();
    for (name, item) in values {
        let alternatives = item.alternatives();
        if alternatives.len() > 1 {
            swept.push(*name);
        }
        if combinations.len() * alternatives.len() > MOST_CASES {
            section.add("", format!("the lists come to more than {MOST_CASES} cases"));
            return;
        }
        combinations = combinations
            .iter()
            .flat_map(|combination| {
                alternatives.iter().map(|value| {
                    let mut combination = combination.clone();
                    combination.insert(name, value.clone());
                    combination
                })
            })
            .collect();
    }
    for combination in combinations {
        let workload = read_workload(section, &combination);
        let in_quick = combination
            .get("quick")
            .is_none_or(|item| item.flag().unwrap_or(true));
        let (Some(workload), Some(template)) = (workload, &template) else {
            continue;
        };
        let Some(name) = generated_name(template, &combination, &swept) else {
            continue;
        };
        if cases.iter().any(|case| case.name == name) {
            section.add("name", format!("`{name}` is the name of another case too"));
        }
        cases.push(Case {
            name,
            in_quick,
            workload,
        });
    }
}

/// The name with its placeholders filled in. What is swept and not in it is added, so that names differ.
fn generated_name(template: &str, values: &Stated<'_>, swept: &[&'static str]) -> Option<String> {
    let mut shown = Values::default();
    for (name, item) in values {
        let text = match *name {
            "share_of_peak" => format!("{:.0} %", item.number(0.0..=MOST_OF_PEAK)? * 100.0),
            _ => item.shown(),
        };
        shown.set(name, text);
    }
    let mut name = match template::expand_word(template, &shown) {
        Ok(name) => name,
        Err(message) => {
            values
                .values()
                .next()?
                .add(format!("the case's name `{template}`: {message}"));
            return None;
        }
    };
    for key in swept {
        let placeholder = format!("{{{key}}}");
        if !template.contains(&placeholder) {
            let value = template::expand_word(&placeholder, &shown).ok()?;
            name = format!("{name}, {key} {value}");
        }
    }
    Some(name)
}

fn read_workload(section: &Section<'_>, values: &Stated<'_>) -> Option<Workload> {
    let get = |name: &str| values.get(name);
    let need = |name: &'static str| {
        let item = get(name);
        if item.is_none() {
            section.add(name, "is missing");
        }
        item
    };
    let kind = match get("kind") {
        Some(item) => item.one_of(&KINDS.map(|kind| (kind, kind)))?,
        None => "load",
    };
    let connections = |default| match get("connections") {
        Some(item) => item.whole(1..=1_000_000),
        None => Some(default),
    };
    match kind {
        "bulk" => {
            // 1 TiB at most: more is a mistake of the unit.
            let mebibytes: u64 = need("mebibytes")?.whole(1..=1 << 20)?;
            let path = match get("path") {
                Some(item) => read_path(item)?,
                None => "/bytes/{bytes}".to_owned(),
            };
            Some(Workload::Bulk {
                path: path.replace("{bytes}", &(mebibytes << 20).to_string()),
                mebibytes,
            })
        }
        "idle" => Some(Workload::Idle {
            connections: connections(10_000)?,
            seconds: match get("seconds") {
                Some(item) => item.number(0.1..=3600.0)?,
                None => 5.0,
            },
        }),
        "datagrams" => read_datagrams(section, values).map(Workload::Datagrams),
        _ => {
            let protocol = need("protocol")?.one_of(&PROTOCOLS.map(|name| (name, name)))?;
            let whole = |name, most| match get(name) {
                Some(item) => item.whole(1..=most),
                None => Some(1),
            };
            let connections = connections(64)?;
            let threads = whole("threads", 1024)?;
            if threads > connections {
                let at = get("threads").or_else(|| get("connections"))?;
                at.add(format!(
                    "{threads} threads need at least as many connections, not {connections}"
                ));
            }
            let load = LoadSpec {
                protocol: protocol.to_owned(),
                connections,
                threads,
                pipeline: whole("pipeline", 65_536)?,
                pace: read_pace(values, 1.0)?,
                arguments: read_arguments(protocol, values)?,
            };
            if load.protocol == "rpc" && matches!(load.pace, Pace::ShareOfPeak(_)) && !asks_one_message(&load)
            {
                section.add(
                    "share_of_peak",
                    "is of messages per second, and `rate` is of requests; the two are the same with `arguments = \"--messages 1\"`",
                );
            }
            if section.problems.is_empty()
                && !load.is_for_clients()
                && let Err(message) = understood(&load)
            {
                section.add(
                    "arguments",
                    format!("`quoit load` would not understand the case: {message}"),
                );
            }
            Some(Workload::Load(load))
        }
    }
}

/// Whether each request is for a single message.
fn asks_one_message(load: &LoadSpec) -> bool {
    let text = load.arguments.join(" ").replace('=', " ");
    let words: Vec<&str> = text.split(' ').collect();
    words.windows(2).any(|pair| pair == ["--messages", "1"])
}

/// Whether `quoit load` understands what it will be told.
fn understood(load: &LoadSpec) -> Result<(), String> {
    // Any address and, where it is known only later, any rate.
    let mut words = vec![load.protocol.clone(), "--connect=127.0.0.1:1".to_owned()];
    words.push(format!("--connections={}", load.connections));
    words.push(format!("--threads={}", load.threads));
    if load.pipeline != 1 {
        words.push(format!("--pipeline={}", load.pipeline));
    }
    match load.pace {
        Pace::Closed => {}
        Pace::Rate(rate) => words.push(format!("--rate={rate}")),
        Pace::ShareOfPeak(_) => words.push("--rate=1000".to_owned()),
    }
    // What the lab sets itself goes with not all options either.
    words.extend(
        [
            "--seconds=1",
            "--warmup=0",
            "--json",
            "--no-progress",
            "--announce",
        ]
        .map(str::to_owned),
    );
    words.extend_from_slice(&load.arguments);
    quoit_load::check(&words)
}

/// `most`: the largest share of the peak.
fn read_pace(values: &Stated<'_>, most: f64) -> Option<Pace> {
    match (values.get("rate"), values.get("share_of_peak")) {
        (None, None) => Some(Pace::Closed),
        (Some(rate), None) => rate.number(0.001..=1e9).map(Pace::Rate),
        (None, Some(share)) => share.number(0.001..=most).map(Pace::ShareOfPeak),
        (Some(rate), Some(_)) => {
            rate.add("is given together with `share_of_peak`; give one of them");
            None
        }
    }
}

fn read_datagrams(section: &Section<'_>, values: &Stated<'_>) -> Option<DatagramSpec> {
    let get = |name: &str| values.get(name);
    let count = match get("count") {
        Some(item) => Some(item.whole(1..=1_000_000_000)?),
        None => None,
    };
    let datagrams = DatagramSpec {
        count,
        senders: match get("senders") {
            Some(item) => item.whole(1..=quoit_workload::MOST_SENDERS)?,
            None => 1,
        },
        pace: read_pace(values, MOST_OF_PEAK)?,
        overload: match get("overload") {
            Some(item) => Some(read_overload(item, values)?),
            None => None,
        },
        work: match get("work") {
            // A second at most: more is a mistake of the unit.
            Some(item) => item.whole(0..=1_000_000_000)?,
            None => 0,
        },
        judge: match get("judge") {
            Some(item) => item.one_of(&[("cpu", Judge::Cpu), ("handled", Judge::Handled)])?,
            None => Judge::Cpu,
        },
        ladder: match get("ladder") {
            Some(item) => Some(item.name()?),
            None => None,
        },
        arguments: read_datagram_arguments(values)?,
    };
    // Any address and, where it is known only later, any rate.
    let rate = match datagrams.pace {
        Pace::Closed => None,
        Pace::Rate(rate) => Some(rate),
        Pace::ShareOfPeak(_) => Some(1000.0),
    };
    let words = datagrams.load_arguments(SocketAddr::from(([127, 0, 0, 1], 1)), rate, 1.0);
    if section.problems.is_empty()
        && let Err(message) = quoit_load::check(&words)
    {
        section.add(
            "arguments",
            format!("`quoit load` would not understand the case: {message}"),
        );
    }
    Some(datagrams)
}

/// How many times the rate an overload is: there has to be a rate, and no count.
fn read_overload(item: &Item<'_>, values: &Stated<'_>) -> Option<f64> {
    if values.contains_key("count") {
        item.add("cannot be given together with `count`: an overload and what follows it take a time");
        return None;
    }
    if !values.contains_key("rate") && !values.contains_key("share_of_peak") {
        item.add("needs `rate` or `share_of_peak`: what is offered after the overload");
        return None;
    }
    item.number(1.0..=1000.0)
}

/// The further arguments of `quoit load udp`.
fn read_datagram_arguments(values: &Stated<'_>) -> Option<Vec<String>> {
    let mut arguments = Vec::new();
    if let Some(item) = values.get("size") {
        let size: u32 = item.whole(40..=65_527)?;
        arguments.extend(["--size".to_owned(), size.to_string()]);
    }
    if let Some(item) = values.get("mode") {
        let mode = item.one_of(&["sendto", "sendmmsg", "gso"].map(|mode| (mode, mode)))?;
        arguments.extend(["--mode".to_owned(), mode.to_owned()]);
    }
    let taken = [
        ("--count", "count"),
        ("--senders", "senders"),
        ("--rate", "rate"),
        ("--phase", "overload"),
        ("--size", "size"),
        ("--mode", "mode"),
        ("--connect", ""),
        ("--seconds", ""),
        ("--shutdowns", ""),
        ("--shutdown-every", ""),
        ("--echo", ""),
        ("--json", ""),
    ];
    arguments.extend(further_arguments(values, &taken)?);
    Some(arguments)
}

fn read_path(item: &Item<'_>) -> Option<String> {
    let path = item.text()?;
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        item.add("has to start with `/` and to have visible ASCII characters only");
        return None;
    }
    Some(path.to_owned())
}

/// The further arguments of `quoit load`: from the fields that have a name here, then as they stand.
fn read_arguments(protocol: &str, values: &Stated<'_>) -> Option<Vec<String>> {
    let mut arguments = Vec::new();
    if let Some(item) = values.get("size") {
        if protocol == "http" {
            item.add("is of no use to the protocol `http`");
        }
        let size: u32 = item.whole(1..=16 << 20)?;
        arguments.extend(["--size".to_owned(), size.to_string()]);
    }
    if let Some(item) = values.get("path") {
        if protocol != "http" {
            item.add(format!("is of no use to the protocol `{protocol}`"));
        }
        arguments.extend(["--path".to_owned(), read_path(item)?]);
    }
    let taken = [
        ("--connections", "connections"),
        ("--threads", "threads"),
        ("--pipeline", "pipeline"),
        ("--rate", "rate"),
        ("--connect", ""),
        ("--seconds", ""),
        ("--warmup", ""),
        ("--json", ""),
    ];
    arguments.extend(further_arguments(values, &taken)?);
    Some(arguments)
}

/// The arguments as they stand, but for `taken`: options that have a field of their own, or that the lab sets.
fn further_arguments(values: &Stated<'_>, taken: &[(&str, &str)]) -> Option<Vec<String>> {
    let Some(item) = values.get("arguments") else {
        return Some(Vec::new());
    };
    let text = item.text()?;
    let further = template::split(text).map_err(|message| item.add(message)).ok()?;
    for word in &further {
        let option = word.split('=').next().unwrap_or_default();
        match taken.iter().find(|(name, _)| *name == option) {
            Some((_, "")) => item.add(format!("{option} is set by the lab")),
            Some((_, field)) => item.add(format!("{option} has a field of its own: `{field}`")),
            None => {}
        }
    }
    Some(further)
}
