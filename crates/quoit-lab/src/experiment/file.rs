//! From the text of a file to a checked [`Experiment`]: see `docs/experiments.md`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use quoit_report::pages::Ecosystem;
use quoit_report::results::model::Published;

use super::cases;
use super::model::{
    CLIENTS_OWN, Case, Claim, ClientSpec, Effort, Experiment, Metrics, PlacementKind, Ready, ServerSpec,
    Workload,
};
use super::nearest::nearest;
use super::reader::{Item, Problems, Section};
use super::template;
use crate::error::Result;

/// The fields of the file itself.
const FIELDS: &[&str] = &[
    "title",
    "about",
    "placement",
    "generators",
    "host",
    "baseline",
    "servers",
    "effort",
    "quick",
    "workload",
    "case",
    "server",
    "client",
    "claim",
    "published",
];
const EFFORT_FIELDS: &[&str] = &["pairs", "most_pairs", "band", "seconds", "warm_up"];
const SERVER_FIELDS: &[&str] = &[
    "name",
    "ecosystem",
    "command",
    "command_from",
    "environment",
    "ready",
    "port",
    "expects",
    "metrics",
    "against",
    "io_uring",
    "speaks",
    "not_in",
    "needs",
    "remedy",
    "quick",
];
const CLIENT_FIELDS: &[&str] = &[
    "name",
    "command",
    "announces",
    "environment",
    "needs",
    "remedy",
    "quick",
];

/// What is measured unless the file says otherwise: enough for a band of 5 % on a quiet machine. More pairs narrow it;
/// longer slices do not.
const EFFORT: Effort = Effort {
    pairs: 10,
    most_pairs: 40,
    band: 0.05,
    seconds: 1.0,
    warm_up: 0.3,
};

/// What a quick run measures unless the file says otherwise: enough to see that everything works.
const QUICK: Effort = Effort {
    pairs: 2,
    most_pairs: 2,
    band: 0.05,
    seconds: 1.0,
    warm_up: 0.3,
};

/// A server as the file states it, before the cases are known.
pub(super) struct StatedServer {
    pub(super) spec: ServerSpec,
    /// What it speaks; `None` for everything.
    speaks: Option<Vec<String>>,
}

/// Reads the servers of the shared catalogue, a file with nothing but `[[server]]` tables.
///
/// # Errors
/// The mistakes in it.
pub(super) fn read_catalogue(file: &str, text: &str) -> Result<Vec<StatedServer>> {
    let problems = Problems::of(file, text);
    let table = problems.parse()?;
    let section = Section::of_file(&table, &problems);
    section.allow_only(&["server"]);
    let read = |section: &Section<'_>| {
        let server = read_server(section)?;
        if server.spec.ecosystems.is_none() {
            section.add("ecosystem", is_needed(&server.spec.name));
        }
        Some(server)
    };
    let servers = section.sections("server").iter().filter_map(read).collect();
    problems.finish(Some(servers))
}

/// Reads an experiment. `file` is what messages call it, `name` what it is called in results, and `catalogue` are
/// the servers that it may take by name.
///
/// # Errors
/// All mistakes, each with file, line and field.
pub(super) fn read(
    file: &str,
    name: &str,
    text: &str,
    mut catalogue: Vec<StatedServer>,
) -> Result<Experiment> {
    let problems = Problems::of(file, text);
    let table = problems.parse()?;
    let section = Section::of_file(&table, &problems);
    section.allow_only(FIELDS);

    let cases = cases::read(&section, name);
    let mut servers = Vec::new();
    for (item, wanted) in section
        .field("servers")
        .map_or_else(Vec::new, |field| field.texts())
    {
        match catalogue.iter().position(|server| server.spec.name == wanted) {
            Some(index) => servers.push(catalogue.remove(index)),
            None => item.add(format!(
                "`{wanted}` is not a server of the catalogue, or is listed twice{}; describe other servers with [[server]]",
                nearest(&wanted, catalogue.iter().map(|server| server.spec.name.as_str()))
            )),
        }
    }
    for section in section.sections("server") {
        let Some(server) = read_server(&section) else {
            continue;
        };
        if servers.iter().any(|other| other.spec.name == server.spec.name) {
            section.add(
                "name",
                format!("`{}` is the name of another server too", server.spec.name),
            );
        }
        if problems.is_empty() {
            check_cases(&section, &server.spec, &cases);
        }
        servers.push(server);
    }
    let names: Vec<String> = servers.iter().map(|server| server.spec.name.clone()).collect();
    let baseline = section.need("baseline").and_then(|field| {
        let baseline = field.name()?;
        check_server(&names, &baseline, |message| field.add(message));
        Some(baseline)
    });
    for section in section.sections("server") {
        if let Some(field) = section.field("against")
            && let Some(against) = field.text()
        {
            check_server(&names, against, |message| field.add(message));
        }
    }
    let placement = section
        .field("placement")
        .and_then(|field| {
            field.one_of(&[
                ("same-core", PlacementKind::SameCore),
                ("split-core", PlacementKind::SplitCore),
                ("veth", PlacementKind::Veth),
                ("remote", PlacementKind::Remote),
            ])
        })
        .unwrap_or(PlacementKind::SameCore);
    let (generators, host) = read_remote(&section, placement);
    check_shares(&section, &generators, &cases);
    let clients = read_clients(&section);
    let mut protocols = cases.iter().map(|case| case.workload.protocol());
    if clients.is_empty()
        && let Some(protocol) = protocols.find(|protocol| CLIENTS_OWN.contains(protocol))
    {
        section.add(
            "client",
            format!("is missing: `quoit load` does not speak `{protocol}`, so that a client has to"),
        );
    }
    let experiment = Experiment {
        name: name.to_owned(),
        title: section
            .need("title")
            .and_then(|field| field.name())
            .unwrap_or_default(),
        about: section
            .need("about")
            .and_then(|field| field.name())
            .unwrap_or_default(),
        claims: section.sections("claim").iter().filter_map(read_claim).collect(),
        published: section
            .sections("published")
            .iter()
            .filter_map(read_published)
            .collect(),
        placement,
        generators,
        host,
        effort: read_effort(&section, "effort", EFFORT),
        quick: read_effort(&section, "quick", QUICK),
        servers: servers.into_iter().map(|server| server.resolve(&cases)).collect(),
        baseline: baseline.unwrap_or_default(),
        clients,
        cases,
        own_programs: false,
    };
    if problems.is_empty() {
        check_quick(&section, &experiment);
    }
    problems.finish(Some(experiment))
}

impl StatedServer {
    /// The server with the cases that it does not serve because it does not speak their protocol.
    fn resolve(mut self, cases: &[Case]) -> ServerSpec {
        if let Some(speaks) = &self.speaks {
            let foreign = cases.iter().filter(|case| {
                let protocol = case.workload.protocol();
                !speaks.iter().any(|spoken| spoken == protocol)
            });
            for case in foreign {
                if !self.spec.not_in.contains(&case.name) {
                    self.spec.not_in.push(case.name.clone());
                }
            }
        }
        self.spec
    }
}

fn check_server(names: &[String], wanted: &str, add: impl Fn(String)) {
    if !names.iter().any(|name| name == wanted) {
        add(format!(
            "`{wanted}` is not a server of this experiment{}; it has {}",
            nearest(wanted, names.iter().map(String::as_str)),
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            }
        ));
    }
}

fn check_cases(section: &Section<'_>, server: &ServerSpec, cases: &[Case]) {
    for unknown in server
        .not_in
        .iter()
        .filter(|name| !cases.iter().any(|case| case.name == **name))
    {
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        section.add(
            "not_in",
            format!(
                "`{unknown}` is not a case of this experiment{}; it has {}",
                nearest(unknown, names.iter().copied()),
                names.join(", ")
            ),
        );
    }
}

/// A quick run has to have something to measure, and what it is measured against.
fn check_quick(section: &Section<'_>, experiment: &Experiment) {
    if !experiment.cases.is_empty() && experiment.cases.iter().all(|case| !case.in_quick) {
        section.add(
            "case",
            "no case takes part in a quick run; leave `quick = false` out of one",
        );
    }
    for server in &experiment.servers {
        let needed_by = experiment
            .servers
            .iter()
            .find(|other| other.in_quick && experiment.against(other) == Some(&server.name));
        if let Some(other) = needed_by.filter(|_| !server.in_quick) {
            section.add(
                "server",
                format!(
                    "`{}` takes part in a quick run, but not `{}`, with which it is compared",
                    other.name, server.name
                ),
            );
        }
    }
}

fn read_claim(section: &Section<'_>) -> Option<Claim> {
    section.allow_only(&["source", "says"]);
    let (source, says) = (section.need("source"), section.need("says"));
    Some(Claim {
        source: source?.name()?,
        says: says?.name()?,
    })
}

fn read_published(section: &Section<'_>) -> Option<Published> {
    section.allow_only(&["source", "scale", "titles", "rows"]);
    let [source, scale, titles, rows] = ["source", "scale", "titles", "rows"].map(|name| section.need(name));
    let texts = |item: &Item<'_>| item.texts().into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    let titles = texts(&titles?);
    let mut table = Vec::new();
    for row in rows?.alternatives() {
        let cells = texts(&row);
        if cells.len() != titles.len() {
            row.add(format!("has {} cells below {} titles", cells.len(), titles.len()));
        }
        table.push(cells);
    }
    Some(Published {
        source: source?.name()?,
        scale: scale?.name()?,
        titles,
        rows: table,
    })
}

fn read_effort(section: &Section<'_>, name: &str, default: Effort) -> Effort {
    let Some(section) = section.section(name) else {
        return default;
    };
    section.allow_only(EFFORT_FIELDS);
    let number = |name, range, default| {
        section
            .field(name)
            .and_then(|field| field.number(range))
            .unwrap_or(default)
    };
    let pairs = section.field("pairs").and_then(|field| field.whole(2..=1000));
    let pairs = pairs.unwrap_or(default.pairs);
    let most_pairs = section
        .field("most_pairs")
        .and_then(|field| field.whole(2..=1000));
    if most_pairs.is_some_and(|most| most < pairs) {
        section.add(
            "most_pairs",
            format!("has to be at least `pairs`, which is {pairs}"),
        );
    }
    Effort {
        pairs,
        most_pairs: most_pairs.unwrap_or(default.most_pairs.max(pairs)),
        band: number("band", 0.001..=1.0, default.band),
        seconds: number("seconds", 0.1..=3600.0, default.seconds),
        warm_up: number("warm_up", 0.0..=600.0, default.warm_up),
    }
}

fn read_remote(section: &Section<'_>, placement: PlacementKind) -> (Vec<Vec<String>>, Option<IpAddr>) {
    let generators = section.field("generators");
    let host = section.field("host");
    if placement != PlacementKind::Remote {
        for field in [&generators, &host].into_iter().flatten() {
            field.add("is of use only with `placement = \"remote\"`");
        }
        return (Vec::new(), None);
    }
    if generators.is_none() {
        section.add(
            "generators",
            "is missing: the commands that start the generators, such as `ssh host {generator}`",
        );
    }
    let commands = generators.map_or_else(Vec::new, |field| field.alternatives());
    let commands = commands.iter().filter_map(|item| {
        let command = item.command(template::GENERATOR_NAMES)?;
        if !command.iter().any(|word| word.contains('{')) {
            item.add("has neither {generator} nor {arguments}, and so starts no generator");
        }
        Some(command)
    });
    let host = host.or_else(|| section.need("host")).and_then(|field| {
        let text = field.text()?;
        let parsed = text.parse();
        parsed
            .map_err(|_| {
                field.add(format!(
                    "`{text}` is not an IP address: it is where the generators reach this machine"
                ))
            })
            .ok()
    });
    (commands.collect(), host)
}

/// Every generator has to have a connection.
fn check_shares(section: &Section<'_>, generators: &[Vec<String>], cases: &[Case]) {
    for case in cases
        .iter()
        .filter(|case| matches!(case.workload, Workload::Load(_)))
    {
        let connections = case.workload.connections() as usize;
        if connections < generators.len() {
            section.add(
                "generators",
                format!(
                    "are {}, but the case `{}` has fewer connections to share out: {connections}",
                    generators.len(),
                    case.name
                ),
            );
        }
    }
}

fn read_environment(section: &Section<'_>, known: &[&str]) -> BTreeMap<String, String> {
    let Some(variables) = section.section("environment") else {
        return BTreeMap::new();
    };
    let items = variables.items();
    items
        .filter_map(|(name, item)| item.template(known).map(|value| (name, value)))
        .collect()
}

fn read_needs(section: &Section<'_>) -> (Vec<String>, String) {
    let items = section
        .field("needs")
        .map_or_else(Vec::new, |field| field.alternatives());
    let needs = items
        .iter()
        .filter_map(|item| item.template(template::NEEDS_NAMES));
    let remedy = section.field("remedy").and_then(|field| field.name());
    (needs.collect(), remedy.unwrap_or_default())
}

/// What is wrong with a server that does not say whose it is.
pub(super) fn is_needed(server: &str) -> String {
    let names: Vec<&str> = Ecosystem::NAMES.iter().map(|(name, _)| *name).collect();
    format!(
        "is missing: on whose pictures of `does-it-pay.md` is `{server}`? One or several of {}, or {NOBODYS}",
        names.join(", ")
    )
}

/// In place of an ecosystem: on no picture.
const NOBODYS: &str = "none";

fn read_ecosystems(item: Item<'_>) -> Vec<Ecosystem> {
    let known = Ecosystem::NAMES.map(|(name, ecosystem)| (name, Some(ecosystem)));
    let known: Vec<_> = known.into_iter().chain([(NOBODYS, None)]).collect();
    let items = item.alternatives().into_iter();
    items.filter_map(|item| item.one_of(&known)).flatten().collect()
}

fn read_server(section: &Section<'_>) -> Option<StatedServer> {
    section.allow_only(SERVER_FIELDS);
    let name = section.need("name").and_then(|field| field.name());
    let command_from = section.field("command_from").and_then(|field| field.name());
    let command = match &command_from {
        None => section.need("command")?.command(template::SERVER_NAMES)?,
        Some(variable) => {
            if section.field("command").is_some() {
                section.add(
                    "command",
                    "is given together with `command_from`; give one of them",
                );
            }
            match std::env::var(variable) {
                Ok(command) => template::split(&command)
                    .and_then(|words| {
                        words
                            .iter()
                            .try_for_each(|word| template::check(word, template::SERVER_NAMES).map(drop))?;
                        Ok(words)
                    })
                    .map_err(|message| {
                        section.add("command_from", format!("the command in {variable}: {message}"))
                    })
                    .ok()?,
                Err(_) => Vec::new(),
            }
        }
    };
    let texts = |name: &str| -> Vec<String> {
        let items = section.field(name).map_or_else(Vec::new, |field| field.texts());
        items.into_iter().map(|(_, text)| text).collect()
    };
    let ready = section
        .field("ready")
        .and_then(|field| field.one_of(&[("line", Ready::Line), ("port", Ready::Port)]));
    let ready = ready.unwrap_or(Ready::Line);
    let metrics = section
        .field("metrics")
        .and_then(|field| field.one_of(&[("served", Metrics::Served), ("apart", Metrics::Apart)]));
    let port = section.field("port").and_then(|field| field.whole(1..=u16::MAX));
    let environment = read_environment(section, template::SERVER_NAMES);
    let mentions = |name: &str| {
        let placeholder = format!("{{{name}}}");
        let mut templates = command.iter().chain(environment.values());
        templates.any(|word| word.contains(&placeholder))
    };
    if !command.is_empty() {
        let told = mentions("listen") || mentions("port");
        if !told && port.is_none() {
            section.add(
                "command",
                "has neither {listen} nor {port}: the lab chooses where a server listens; give one that cannot be \
                 told its port in `port`",
            );
        }
        if told && port.is_some() {
            section.add("port", "is of use only for a server that cannot be told its port, but the command has {listen} or {port}");
        }
        if metrics == Some(Metrics::Apart) && !mentions("metrics") {
            section.add(
                "metrics",
                "is `apart`, but the command does not say where with {metrics}",
            );
        }
        if metrics != Some(Metrics::Apart) && mentions("metrics") {
            section.add("command", "has {metrics}, which needs `metrics = \"apart\"`");
        }
    }
    if ready == Ready::Port && section.field("expects").is_some() {
        section.add(
            "expects",
            "needs `ready = \"line\"`: it is looked for in the line",
        );
    }
    let speaks = section.field("speaks").map(|field| {
        let items = field.alternatives().into_iter();
        let known = cases::SPOKEN.map(|name| (name, name));
        items
            .filter_map(|item| item.one_of(&known))
            .map(str::to_owned)
            .collect()
    });
    let (needs, remedy) = read_needs(section);
    let flag = |name, default| {
        section
            .field(name)
            .and_then(|field| field.flag())
            .unwrap_or(default)
    };
    let ecosystems = section.field("ecosystem").map(read_ecosystems);
    Some(StatedServer {
        speaks,
        spec: ServerSpec {
            name: name?,
            ecosystems,
            against: section.field("against").and_then(|field| field.name()),
            io_uring: flag("io_uring", false),
            in_quick: flag("quick", true),
            asked_for: false,
            expects: texts("expects"),
            not_in: texts("not_in"),
            command,
            command_from,
            environment,
            ready,
            port,
            metrics,
            needs,
            remedy,
        },
    })
}

fn read_clients(section: &Section<'_>) -> Vec<ClientSpec> {
    let mut clients: Vec<ClientSpec> = Vec::new();
    for section in section.sections("client") {
        section.allow_only(CLIENT_FIELDS);
        let (name, command) = (section.need("name"), section.need("command"));
        let environment = read_environment(&section, template::CLIENT_NAMES);
        let (needs, remedy) = read_needs(&section);
        let command = command.and_then(|field| {
            let command = field.command(template::CLIENT_NAMES)?;
            if !command.iter().any(|word| word.contains("{connect}")) {
                field.add("has no {connect}, and so cannot know where the server is");
            }
            Some(command)
        });
        let (Some(name), Some(command)) = (name.and_then(|field| field.name()), command) else {
            continue;
        };
        if clients.iter().any(|other| other.name == name) {
            section.add("name", format!("`{name}` is the name of another client too"));
        }
        let flag = |name: &str| section.field(name).and_then(|field| field.flag());
        let announces = flag("announces").unwrap_or(false);
        if !announces && command.iter().any(|word| word.contains("{warm_up}")) {
            section.add(
                "command",
                "has {warm_up}, but only a client that `announces` its window warms up itself",
            );
        }
        clients.push(ClientSpec {
            name,
            command,
            announces,
            environment,
            needs,
            remedy,
            in_quick: flag("quick").unwrap_or(true),
        });
    }
    clients
}
