//! What is looked at before anything runs: what cannot take part is left out with the reason, what makes the run
//! pointless ends it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use quoit::{Config, try_uring};
use quoit_host::DescriptorLimit;

use super::error::{LabError, Result};
use super::experiment::model::{Case, Experiment, PlacementKind, ServerSpec, Workload};
use super::experiment::template::{self, Values};
use super::placement::site::Site;

/// Descriptors that a server or a generator needs beside its connections: streams, rings, files, listeners, and
/// some for each thread.
const SPARE_DESCRIPTORS: u64 = 256;

/// A server, client or case that does not take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) what: String,
    /// The reason, and what to do about it.
    pub(crate) why: String,
}

/// What this machine allows.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// How far the limit of open descriptors can be raised, which servers and generators inherit.
    pub(crate) descriptors: u64,
    /// What the limit is, and what this process may raise it to without a privilege.
    pub(crate) descriptor_limit: DescriptorLimit,
    /// Why io_uring cannot be used, with the remedy.
    pub(crate) io_uring_denied: Option<String>,
}

impl Machine {
    /// Looks at this machine; makes a ring, and drops it.
    ///
    /// # Errors
    /// The limit of descriptors cannot be read.
    pub(crate) fn read() -> Result<Self> {
        let reachable = DescriptorLimit::reachable();
        let denied = try_uring(&Config::default()).err();
        Ok(Self {
            descriptors: reachable.map_err(LabError::io("reading the limit of open descriptors"))?,
            descriptor_limit: DescriptorLimit::read(),
            io_uring_denied: denied.map(|diagnosis| diagnosis.to_string()),
        })
    }

    /// Why a server cannot run here, and what to do. `values` has `{quoit}`, `{bin}` and `{peers}`.
    pub(crate) fn obstacle(&self, server: &ServerSpec, values: &Values) -> Option<String> {
        if let (Some(variable), true) = (&server.command_from, server.command.is_empty()) {
            return Some(advise(
                &format!("the environment variable {variable} is not set"),
                &server.remedy,
            ));
        }
        let missing = missing_program(&server.command, &server.needs, values);
        if let Some(missing) = missing {
            return Some(advise(&missing, &server.remedy));
        }
        self.io_uring_denied.clone().filter(|_| server.io_uring)
    }

    /// Why a case cannot run here, and what to do.
    fn obstacle_of_case(&self, case: &Case, placement: PlacementKind) -> Option<String> {
        if placement == PlacementKind::Remote && !matches!(case.workload, Workload::Load(_)) {
            return Some(
                "the placement remote starts `quoit load` elsewhere, and the lab makes this load itself; take \
                 same-core, split-core or veth"
                    .to_owned(),
            );
        }
        let connections = case.workload.connections();
        let needed = descriptors(case);
        (self.descriptors < needed).then(|| {
            format!(
                "{connections} connections need {needed} descriptors at each end, but the limit (soft {}, hard {}) can \
                 be raised to {} only; {}",
                self.descriptor_limit.soft,
                self.descriptor_limit.hard,
                self.descriptors,
                DescriptorLimit::remedy(needed)
            )
        })
    }
}

/// Descriptors that a server or a generator needs for a case.
fn descriptors(case: &Case) -> u64 {
    u64::from(case.workload.connections()) + SPARE_DESCRIPTORS
}

/// Raises the limit of open descriptors of this process, which opens idle connections itself, and whose servers inherit
/// it: as far as the case with the most connections asks for.
///
/// # Errors
/// The limit cannot be raised as far as [`Machine::read`] found, because something else has changed it.
pub(crate) fn raise_descriptor_limit(experiment: &Experiment) -> Result<()> {
    let needed = experiment.cases.iter().map(descriptors).max().unwrap_or(0);
    let limit =
        DescriptorLimit::raise(needed).map_err(LabError::io("raising the limit of open descriptors"))?;
    if limit.soft < needed {
        return Err(LabError::new(format!(
            "a limit of {needed} open descriptors is needed, but it could be raised to {} only (the hard limit is {}); \
             {}",
            limit.soft,
            limit.hard,
            DescriptorLimit::remedy(needed)
        )));
    }
    Ok(())
}

/// An experiment that can run.
#[derive(Debug)]
pub(crate) struct Checked {
    /// Without what is left out.
    pub(crate) experiment: Experiment,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) site: Site,
}

/// Checks everything that can be known before the first server starts, and prepares the place. `values` has
/// `{quoit}`, `{bin}` and `{peers}`.
///
/// # Errors
/// A port is taken, the baseline cannot run, nothing is left to be measured, or the placement is not possible here:
/// all that was found of this.
pub(crate) fn check(experiment: Experiment, machine: &Machine, values: &Values) -> Result<Checked> {
    let (experiment, left_out) = leave_out(experiment, machine, values)?;
    let site = Site::prepare(&experiment)?;
    check_ports(&experiment, &site)?;
    Ok(Checked {
        experiment,
        left_out,
        site,
    })
}

/// Takes out what cannot run here. `values` has `{quoit}`, `{bin}` and `{peers}`.
///
/// # Errors
/// What remains is nothing that can be measured.
pub(crate) fn leave_out(
    experiment: Experiment,
    machine: &Machine,
    values: &Values,
) -> Result<(Experiment, Vec<LeftOut>)> {
    let placement = experiment.placement;
    take_out(
        experiment,
        values,
        |case| machine.obstacle_of_case(case, placement),
        |server| machine.obstacle(server, values),
    )
}

/// Takes out the servers that `failed` names, with the reason. `values` has `{quoit}`, `{bin}` and `{peers}`.
///
/// # Errors
/// What remains is nothing that can be measured.
pub(crate) fn leave_out_failed(
    experiment: Experiment,
    values: &Values,
    failed: &BTreeMap<String, String>,
) -> Result<(Experiment, Vec<LeftOut>)> {
    take_out(
        experiment,
        values,
        |_| None,
        |server| failed.get(&server.name).cloned(),
    )
}

/// Takes out the cases and the servers that have an obstacle, and what is nothing without them.
fn take_out(
    mut experiment: Experiment,
    values: &Values,
    obstacle_of_case: impl Fn(&Case) -> Option<String>,
    obstacle: impl Fn(&ServerSpec) -> Option<String>,
) -> Result<(Experiment, Vec<LeftOut>)> {
    let mut left_out = Vec::new();
    let stated = experiment.servers.len();
    let asked_for: Vec<String> = experiment
        .servers
        .iter()
        .filter(|server| server.asked_for)
        .map(|server| server.name.clone())
        .collect();
    let placement = experiment.placement;
    experiment.cases.retain(|case| {
        let why = obstacle_of_case(case);
        keep(&mut left_out, &case.name, why)
    });
    experiment.servers.retain(|server| {
        let why = obstacle(server);
        keep(&mut left_out, &server.name, why)
    });
    // A counterpart may have one itself, so this goes on until nothing changes.
    loop {
        let names: Vec<String> = experiment
            .servers
            .iter()
            .map(|server| server.name.clone())
            .collect();
        let whole = experiment.clone();
        experiment.servers.retain(|server| {
            let against = whole
                .against(server)
                .filter(|name| !names.iter().any(|other| other == name));
            let why = against.map(|name| format!("it is compared with `{name}`, which is left out"));
            keep(&mut left_out, &server.name, why)
        });
        if experiment.servers.len() == whole.servers.len() {
            break;
        }
    }
    let had_clients = !experiment.clients.is_empty();
    experiment.clients.retain(|client| {
        let why = if placement == PlacementKind::Remote {
            Some("a client under test runs on this machine; take same-core, split-core or veth".to_owned())
        } else {
            let missing = missing_program(&client.command, &client.needs, values);
            missing.map(|missing| advise(&missing, &client.remedy))
        };
        keep(&mut left_out, &client.name, why)
    });
    if experiment.placement == PlacementKind::Remote {
        for command in &experiment.generators {
            if let Some(missing) = missing_program(command, &[], values) {
                return Err(LabError::new(format!(
                    "the remote generator cannot be started: {missing}"
                )));
            }
        }
    }
    let is_missing = |name: &String| !experiment.servers.iter().any(|server| server.name == *name);
    let asked_and_missing: Vec<&String> = asked_for.iter().filter(|name| is_missing(name)).collect();
    let nothing = if experiment.cases.is_empty() {
        Some("no case can run here")
    } else if !experiment
        .servers
        .iter()
        .any(|server| server.name == experiment.baseline)
    {
        Some("the baseline cannot run here")
    } else if experiment.servers.len() == 1 && stated > 1 {
        Some("nothing is left to be compared with the baseline")
    } else if !asked_and_missing.is_empty() {
        left_out.retain(|left| asked_and_missing.contains(&&left.what));
        Some("not every server that the command line names can run here")
    } else if had_clients && experiment.clients.is_empty() {
        Some("no client can run here")
    } else {
        None
    };
    match nothing {
        None => Ok((experiment, left_out)),
        Some(nothing) => {
            let reasons = left_out
                .iter()
                .map(|left| format!("\n  {}: {}", left.what, left.why));
            let error = LabError::new(format!(
                "{}: {nothing}{}",
                experiment.name,
                reasons.collect::<String>()
            ));
            Err(if asked_and_missing.is_empty() {
                error.into_not_here()
            } else {
                error
            })
        }
    }
}

fn keep(left_out: &mut Vec<LeftOut>, what: &str, why: Option<String>) -> bool {
    let keep = why.is_none();
    left_out.extend(why.map(|why| LeftOut {
        what: what.to_owned(),
        why,
    }));
    keep
}

/// Ports that cannot be chosen have to be free.
fn check_ports(experiment: &Experiment, site: &Site) -> Result<()> {
    let mut taken = Vec::new();
    for server in &experiment.servers {
        if let Some(port) = server.port
            && let Err(error) = site.near_server(|| bind(site.server_host(), port))
        {
            taken.push(format!("port {port} of `{}`: {error}", server.name));
        }
    }
    if taken.is_empty() {
        return Ok(());
    }
    Err(LabError::new(format!(
        "{}; end what listens there (`ss -ltnp`), or give the server another port",
        taken.join("; ")
    )))
}

fn bind(host: IpAddr, port: u16) -> io::Result<()> {
    TcpListener::bind((host, port)).map(drop)
}

/// The first of the programs and files that a command needs and that is not there, in words. A word with a
/// placeholder that is not known yet cannot be checked.
fn missing_program(command: &[String], needs: &[String], values: &Values) -> Option<String> {
    let expand = |word: &String| template::expand_word(word, values).ok();
    let missing = needs.iter().filter_map(expand).find(|name| !is_there(name));
    if let Some(name) = missing {
        return Some(absence(&name));
    }
    let program = command.first().and_then(expand)?;
    if !is_there(&program) {
        return Some(absence(&program));
    }
    let is_startable = !program.contains('/') || is_program(Path::new(&program));
    (!is_startable).then(|| format!("{program} is not executable"))
}

fn absence(name: &str) -> String {
    if name.contains('/') {
        format!("there is no {name}")
    } else {
        format!("there is no program `{name}` in PATH")
    }
}

/// A path has to be there; a name has to be a program in PATH.
fn is_there(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).exists();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| is_program(&folder.join(name)))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn advise(why: &str, remedy: &str) -> String {
    if remedy.is_empty() {
        why.to_owned()
    } else {
        format!("{why}; {remedy}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::find;
    use super::*;

    const ENOUGH: Machine = Machine {
        descriptors: 1 << 20,
        descriptor_limit: DescriptorLimit {
            soft: 1024,
            hard: 2000,
        },
        io_uring_denied: None,
    };

    /// An experiment from a file with these servers, the first being the baseline, and the workload's connections.
    fn experiment(connections: u32, servers: &str) -> Experiment {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("x.toml");
        let text = format!(
            "title = \"T\"\nabout = \"A\"\nbaseline = \"base\"\n[workload]\nprotocol = \"echo\"\n\
             connections = [1, {connections}]\n[[server]]\nname = \"base\"\ncommand = \"{{bin}} {{listen}}\"\n{servers}"
        );
        fs::write(&path, text).expect("a file can be written");
        find(path.to_str().expect("text"))
            .unwrap_or_else(|error| panic!("{error}"))
            .0
    }

    fn values(bin: &str) -> Values {
        let mut values = Values::default();
        values
            .set("quoit", "/proc/self/exe")
            .set("bin", bin)
            .set("peers", "/nowhere");
        values
    }

    fn left_out(experiment: Experiment, machine: &Machine) -> Vec<(String, String)> {
        let checked = check(experiment, machine, &values("sh")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(checked.experiment.servers[0].name, "base");
        let left_out = checked.left_out.into_iter();
        left_out.map(|left| (left.what, left.why)).collect()
    }

    #[test]
    fn what_cannot_run_is_left_out_with_the_remedy() {
        let servers = r#"
            [[server]]
            name = "there"
            command = "cat {listen}"
            [[server]]
            name = "file"
            command = "{peers}/x {listen}"
            remedy = "build it"
            [[server]]
            name = "program"
            command = "cat {listen}"
            needs = ["no-such-program-of-quoit"]
            remedy = "install it"
            [[server]]
            name = "text"
            command = "/proc/self/status {listen}"
            remedy = "make it executable"
            [[server]]
            name = "variable"
            command_from = "QUOIT_TEST_NOT_SET"
            remedy = "set it"
            [[server]]
            name = "ring"
            command = "cat {listen}"
            io_uring = true
            [[server]]
            name = "paired"
            command = "cat {listen}"
            against = "ring"
        "#;
        let pair = |what: &str, why: &str| (what.to_owned(), why.to_owned());
        let missing = [
            pair("file", "there is no /nowhere/x; build it"),
            pair(
                "program",
                "there is no program `no-such-program-of-quoit` in PATH; install it",
            ),
            pair("text", "/proc/self/status is not executable; make it executable"),
            pair(
                "variable",
                "the environment variable QUOIT_TEST_NOT_SET is not set; set it",
            ),
        ];
        assert_eq!(left_out(experiment(2, servers), &ENOUGH), missing);
        let denied = Machine {
            io_uring_denied: Some("denied; allow it".to_owned()),
            ..ENOUGH
        };
        let mut expected = missing.to_vec();
        expected.push(pair("ring", "denied; allow it"));
        expected.push(pair("paired", "it is compared with `ring`, which is left out"));
        assert_eq!(left_out(experiment(2, servers), &denied), expected);
    }

    #[test]
    fn a_case_beyond_the_descriptors_is_left_out() {
        let machine = Machine {
            descriptors: 2000,
            ..ENOUGH
        };
        let [(case, why)] = &left_out(experiment(1900, ""), &machine)[..] else {
            panic!("one case is left out");
        };
        assert!(
            case.contains("1900") && why.contains("need 2156 descriptors"),
            "{case}: {why}"
        );
        assert!(
            why.contains(
                "(soft 1024, hard 2000) can be raised to 2000 only; raise the hard limit (`ulimit -Hn 2156`"
            ),
            "{why}"
        );
    }

    #[test]
    fn a_run_without_sense_ends_with_all_reasons() {
        let error = |experiment, machine: &Machine, bin| {
            check(experiment, machine, &values(bin))
                .expect_err("it makes no sense")
                .to_string()
        };
        let none = Machine {
            descriptors: 10,
            ..ENOUGH
        };
        let text = error(experiment(5, ""), &none, "sh");
        assert!(
            text.contains("no case can run here\n  x, connections 1: "),
            "{text}"
        );
        let text = error(experiment(5, ""), &ENOUGH, "/nowhere/base");
        assert!(
            text.contains("the baseline cannot run here\n  base: there is no /nowhere/base"),
            "{text}"
        );
        let other = "[[server]]\nname = \"other\"\ncommand = \"/nowhere/other {listen}\"\n";
        let text = error(experiment(5, other), &ENOUGH, "sh");
        assert!(
            text.contains("nothing is left to be compared with the baseline\n  other: there is no"),
            "{text}"
        );
    }

    #[test]
    fn what_the_command_line_names_is_not_left_out_silently() {
        let server = |name: &str, command: &str| {
            format!("[[server]]\nname = \"{name}\"\ncommand = \"{command} {{listen}}\"\n")
        };
        let servers = [
            ("other", "cat"),
            ("absent", "/nowhere/absent"),
            ("mine", "/nowhere/mine"),
        ]
        .map(|(name, command)| server(name, command))
        .concat();
        let mut experiment = experiment(2, &servers);
        left_out(experiment.clone(), &ENOUGH);
        for server in &mut experiment.servers {
            server.asked_for = server.name == "mine";
        }
        let error = check(experiment, &ENOUGH, &values("sh")).expect_err("it was asked for");
        let text = error.to_string();
        assert!(
            text.ends_with("the command line names can run here\n  mine: there is no /nowhere/mine"),
            "{text}"
        );
    }

    #[test]
    fn what_cannot_be_made_elsewhere_is_left_out() {
        for name in ["idle", "bulk"] {
            let (experiment, _) = find(name).expect("it is built in");
            let remote = Experiment {
                placement: PlacementKind::Remote,
                generators: vec![vec!["cat".to_owned(), "{generator}".to_owned()]],
                host: Some("192.0.2.1".parse().expect("an address")),
                ..experiment
            };
            let error = leave_out(remote, &ENOUGH, &values("sh")).expect_err("no case remains");
            let text = error.to_string();
            assert!(
                text.contains("no case can run here") && text.contains("the lab makes this load itself"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_taken_port_is_told_before_anything_runs() {
        let host = IpAddr::from([127, 0, 0, 1]);
        // The kernel's choice, as another program may take a free one just then.
        let listener = TcpListener::bind((host, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let servers =
            format!("[[server]]\nname = \"fixed\"\ncommand = \"cat\"\nready = \"port\"\nport = {port}\n");
        let error = check(experiment(2, &servers), &ENOUGH, &values("sh")).expect_err("the port is taken");
        let text = error.to_string();
        assert!(
            text.contains(&format!("port {port} of `fixed`")) && text.contains("ss -ltnp"),
            "{text}"
        );
        drop(listener);
        check(experiment(2, &servers), &ENOUGH, &values("sh")).expect("the port is free again");
    }
}
