//! A user's own servers in an experiment: `quoit lab run plaintext --server 'mine=./my-server {listen}'`.

use std::collections::BTreeMap;

use super::model::{Experiment, Ready, ServerSpec};
use super::nearest::nearest;
use super::template;
use crate::error::{LabError, Result};

/// Puts servers from the command line into an experiment. Each is `COMMAND` or `NAME=COMMAND`, a name being letters,
/// digits, `-` and `_`; without one the servers are called `mine`, `mine-2` and so on. A server takes the place of
/// one with the same name, or comes after the others, and serves all cases. It is ready when its port is open, and
/// its command has to say with `{listen}` or `{port}` where it listens. Without `baseline` the file's stays.
///
/// # Errors
/// A command that cannot be split or has an unknown placeholder or none for the port, or a baseline that does not
/// take part.
pub(crate) fn with_servers(
    mut experiment: Experiment,
    servers: &[String],
    baseline: Option<&str>,
) -> Result<Experiment> {
    let mut unnamed = 0;
    experiment.own_programs |= !servers.is_empty();
    for stated in servers {
        let (name, command) = match stated.split_once('=') {
            Some((name, command)) if is_name(name) => (name.to_owned(), command),
            _ => {
                unnamed += 1;
                let name = if unnamed == 1 {
                    "mine".to_owned()
                } else {
                    format!("mine-{unnamed}")
                };
                (name, stated.as_str())
            }
        };
        let server = own(&name, command)
            .map_err(|message| LabError::new(format!("--server '{stated}': the command: {message}")))?;
        match experiment.servers.iter_mut().find(|other| other.name == name) {
            Some(other) => *other = server,
            None => experiment.servers.push(server),
        }
    }
    if let Some(baseline) = baseline {
        let names: Vec<&str> = experiment
            .servers
            .iter()
            .map(|server| server.name.as_str())
            .collect();
        if !names.contains(&baseline) {
            return Err(LabError::new(format!(
                "--baseline {baseline}: no server has this name{}; there are {}",
                nearest(baseline, names.iter().copied()),
                names.join(", ")
            )));
        }
        experiment.baseline = baseline.to_owned();
        // Whoever asks for a baseline wants all compared with it, and with it in a quick run too.
        for server in &mut experiment.servers {
            server.against = None;
            server.in_quick |= server.name == baseline;
        }
    }
    Ok(experiment)
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.bytes().all(allowed)
}

fn own(name: &str, command: &str) -> std::result::Result<ServerSpec, String> {
    let command = template::split(command)?;
    let mut told = false;
    for word in &command {
        let names = template::check(word, template::SERVER_NAMES)?;
        if names.contains(&"metrics") {
            return Err("it has {metrics}, which only a server of a file can have".to_owned());
        }
        told |= names.contains(&"listen") || names.contains(&"port");
    }
    if !told {
        return Err(
            "it has to say with {listen} (HOST:PORT) or {port} where to listen, because every measurement starts it \
             anew; a server with a fixed port is described in a file (docs/experiments.md)"
                .to_owned(),
        );
    }
    Ok(ServerSpec {
        name: name.to_owned(),
        ecosystems: None,
        command,
        command_from: None,
        environment: BTreeMap::new(),
        ready: Ready::Port,
        port: None,
        against: None,
        io_uring: false,
        in_quick: true,
        asked_for: true,
        expects: Vec::new(),
        metrics: None,
        not_in: Vec::new(),
        needs: Vec::new(),
        remedy: String::new(),
    })
}
