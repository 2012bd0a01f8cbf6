//! Commands of an experiment, filled in and placed.

use std::net::SocketAddr;
use std::process::Command;

use quoit_host::ports;
use tempfile::TempDir;

use super::Halt;
use super::interrupt::Interrupts;
use crate::error::{LabError, Result};
use crate::experiment::model::{Case, ClientSpec, LoadSpec, Metrics, Ready, ServerSpec, Workload};
use crate::experiment::template::{self, Values};
use crate::placement::site::Site;
use crate::programs::Programs;
use crate::server::{self, READY_PATIENCE, ReadySign, Server, ServerCommand};
use crate::sockets;

/// A server under test that is ready.
pub(crate) struct Launched {
    pub(crate) server: Server,
    /// Where it shows its counters, if it does.
    pub(crate) metrics: Option<SocketAddr>,
    /// Its `{folder}`, removed when this is dropped, after the server.
    _folder: TempDir,
}

/// Starts a server for a case.
///
/// # Errors
/// Those of [`Server::start`]; no free port, no folder for it, or a command that cannot be filled in.
pub(crate) fn start_server(
    spec: &ServerSpec,
    case: &Case,
    programs: &Programs,
    site: &Site,
    interrupts: &Interrupts,
) -> std::result::Result<Launched, Halt> {
    let host = site.server_host();
    let port = match (spec.port, spec.ready) {
        (Some(port), _) => port,
        // It says which one it got.
        (None, Ready::Line) => 0,
        (None, Ready::Port) => free_port(site)?,
    };
    let listen = SocketAddr::new(host, port);
    let folder = tempfile::tempdir().map_err(LabError::io(format!("making a folder for {}", spec.name)))?;
    let mut values = programs.values();
    values
        .set("host", host.to_string())
        .set("port", port.to_string())
        .set("listen", listen.to_string())
        .set("protocol", case.workload.protocol())
        .set("work", work(&case.workload).to_string())
        .set("cores", site.server_cores().len().to_string())
        .set("folder", folder.path().display().to_string());
    let apart = match spec.metrics {
        Some(Metrics::Apart) => {
            let address = SocketAddr::new(host, free_port(site)?);
            values.set("metrics", address.to_string());
            Some(address)
        }
        Some(Metrics::Served) | None => None,
    };
    let words = expand(&spec.name, &spec.command, &values)?;
    let environment = spec
        .environment
        .iter()
        .map(|(name, value)| {
            let value =
                template::expand_word(value, &values).map_err(|error| in_command(&spec.name, &error))?;
            Ok((name.clone(), value))
        })
        .collect::<Result<Vec<_>>>()?;
    let command = ServerCommand {
        name: spec.name.clone(),
        program: words[0].clone().into(),
        arguments: words[1..].iter().map(Into::into).collect(),
        environment,
        ready: match spec.ready {
            Ready::Line => ReadySign::Line,
            Ready::Port => ReadySign::Port(listen),
        },
        expects: spec.expects.clone(),
    };
    let place = |process: &mut Command| site.place_server(process);
    let is_open = |process: u32, address: SocketAddr, patience| {
        if case.workload.is_of_datagrams() {
            return sockets::has_datagram_socket(process, address.port());
        }
        site.near_server(|| Ok(server::accepts(address, patience)))
            .unwrap_or(false)
    };
    let server = Server::start(
        &command,
        place,
        READY_PATIENCE,
        &|| interrupts.arrived(),
        &is_open,
    );
    let server = match server {
        Err(_) if interrupts.arrived() => return Err(Halt::Interrupted),
        server => server?,
    };
    Ok(Launched {
        metrics: match spec.metrics {
            Some(Metrics::Served) => Some(server.address()),
            _ => apart,
        },
        server,
        _folder: folder,
    })
}

/// Nanoseconds that a server is to work for each datagram.
fn work(workload: &Workload) -> u64 {
    match workload {
        Workload::Datagrams(datagrams) => datagrams.work,
        Workload::Load(_) | Workload::Bulk { .. } | Workload::Idle { .. } => 0,
    }
}

/// The command line of `quoit load` for a workload. `rate` is in requests per second over all connections; without
/// one the loop is closed.
pub(crate) fn load_arguments(
    load: &LoadSpec,
    server: SocketAddr,
    rate: Option<f64>,
    seconds: f64,
    warm_up: f64,
) -> Vec<String> {
    let mut words = vec!["load".to_owned(), load.protocol.clone()];
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("--connect", server.to_string());
    option("--connections", load.connections.to_string());
    option("--threads", load.threads.to_string());
    if load.pipeline != 1 {
        option("--pipeline", load.pipeline.to_string());
    }
    if let Some(rate) = rate {
        option("--rate", rate.to_string());
    }
    option("--seconds", seconds.to_string());
    option("--warmup", warm_up.to_string());
    words.extend(["--json", "--no-progress", "--announce"].map(str::to_owned));
    words.extend_from_slice(&load.arguments);
    words
}

/// The command of a client under test.
pub(crate) fn client(
    spec: &ClientSpec,
    case: &Case,
    server: &Server,
    programs: &Programs,
    site: &Site,
    warm_up: f64,
    seconds: f64,
) -> Result<(Command, TempDir)> {
    let folder = tempfile::tempdir().map_err(LabError::io(format!("making a folder for {}", spec.name)))?;
    let mut values = programs.values();
    values
        .set(
            "connect",
            site.address_for_generator(server.address()).to_string(),
        )
        .set("connections", case.workload.connections().to_string())
        .set("seconds", seconds.to_string())
        .set("warm_up", warm_up.to_string())
        .set("server", server.name())
        .set("protocol", case.workload.protocol())
        .set("cores", site.generator_cores().len().to_string())
        .set("folder", folder.path().display().to_string());
    let words = expand(&spec.name, &spec.command, &values)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    for (name, value) in &spec.environment {
        let value = template::expand_word(value, &values).map_err(|error| in_command(&spec.name, &error))?;
        command.env(name, value);
    }
    site.place_generator(&mut command);
    Ok((command, folder))
}

/// At least one word.
fn expand(name: &str, words: &[String], values: &Values) -> Result<Vec<String>> {
    let words = template::expand(words, values).map_err(|error| in_command(name, &error))?;
    if words.is_empty() {
        return Err(in_command(name, "it is empty"));
    }
    Ok(words)
}

fn in_command(name: &str, problem: &str) -> LabError {
    LabError::new(format!("the command of {name} cannot be used: {problem}"))
}

fn free_port(site: &Site) -> Result<u16> {
    let host = site.server_host();
    site.near_server(|| ports::free(host))
        .map_err(LabError::io(format!("looking for a free port of {host}")))
}
