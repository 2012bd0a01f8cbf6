//! The experiments that the program carries, so that they run wherever it is: the files of `lab/experiments`.

use quoit_report::pages;

use super::file::{self, StatedServer};
use super::model::Experiment;
use crate::error::{LabError, Result};

/// A file that was built in.
pub(super) struct File {
    pub(super) name: &'static str,
    /// Its path in the sources, for messages.
    path: &'static str,
    pub(super) text: &'static str,
}

impl File {
    pub(super) fn read(&self) -> Result<Experiment> {
        let experiment = file::read(self.path, self.name, self.text, catalogue()?)?;
        let lacking = experiment
            .servers
            .iter()
            .find(|server| server.ecosystems.is_none());
        match lacking {
            Some(server) if pages::shows(self.name) => Err(LabError::new(format!(
                "{}: server.ecosystem: {}",
                self.path,
                file::is_needed(&server.name)
            ))),
            _ => Ok(experiment),
        }
    }
}

macro_rules! embed {
    ($($part:literal),*) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/", $($part),*))
    };
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(File {
            name: $name,
            path: concat!("lab/experiments/", $name, ".toml"),
            text: embed!("experiments/", $name, ".toml"),
        },)*]
    };
}

/// In the order of `quoit lab list`.
pub(super) const EXPERIMENTS: &[File] = files![
    "plaintext",
    "async",
    "async-tls",
    "async-grpc",
    "async-websocket",
    "echo",
    "http-matrix",
    "open-loop",
    "rate-net-http",
    "rate-dns",
    "rate-fasthttp",
    "rate-gnet",
    "rate-axum",
    "rate-netty",
    "rate-kestrel",
    "rpc-backend",
    "rpc-batch",
    "rpc-periodic",
    "rpc-stream",
    "churn",
    "idle",
    "bulk",
    "rio",
    "rio-gro",
    "rio-rate",
    "rio-recovery",
    "dns",
    "floor",
    "cold-turn",
    "waiting",
    "features",
    "oldest",
    "loops",
    "spread",
    "kestrel",
    "kestrel-bodies",
    "kestrel-tls",
    "kestrel-client",
    "netty",
    "rsocket-backend",
    "rsocket-batch",
    "rsocket-periodic",
    "rsocket-stream",
];

/// What `quoit lab demo` runs. It is none of the experiments that are listed, kept and shown on pages.
pub(super) const DEMO: File = File {
    name: "demo",
    path: "lab/demo.toml",
    text: embed!("demo.toml"),
};

/// The servers that experiments take by name.
pub(super) fn catalogue() -> Result<Vec<StatedServer>> {
    file::read_catalogue("lab/servers.toml", embed!("servers.toml"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use clap::Parser;

    use quoit_report::pages::Ecosystem;

    use super::super::template::{Values, expand};
    use super::*;

    /// As much of the program as the servers of experiments call.
    #[derive(Parser)]
    enum Program {
        Serve(quoit_serve::ServeArguments),
    }

    #[test]
    fn every_file_of_the_folder_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/experiments");
        let entries = folder.read_dir().expect("the folder can be read");
        let files: BTreeSet<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("a name in ASCII")
            })
            .collect();
        let built_in = EXPERIMENTS.iter().map(|file| format!("{}.toml", file.name));
        assert_eq!(files, built_in.collect());
    }

    #[test]
    fn every_file_is_right() {
        for file in EXPERIMENTS.iter().chain([&DEMO]) {
            let experiment = file.read().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(experiment.name, file.name);
            assert!(experiment.servers.len() >= 2, "{}", file.name);
            let quick = experiment.quickened();
            assert!(!quick.cases.is_empty(), "{}", file.name);
        }
    }

    #[test]
    fn a_shown_server_has_to_say_whose_it_is() {
        let file = EXPERIMENTS
            .iter()
            .find(|file| file.name == "dns")
            .expect("it is there");
        let text = file.text.replacen("ecosystem = \"rust\"", "", 1).leak();
        let error = File { text, ..*file }.read().expect_err("one does not");
        let message = error.to_string();
        assert!(
            message.contains("lab/experiments/dns.toml")
                && message.contains("`recvfrom`")
                && message.contains("async-rust"),
            "{message}"
        );
    }

    /// Pages take our servers from rivals by their names, as these are all that results have.
    #[test]
    fn our_own_servers_are_known_by_their_names() {
        for experiment in EXPERIMENTS.iter().filter(|file| pages::shows(file.name)) {
            for server in experiment.read().expect("it is right").servers {
                let mut words = server.command.iter();
                // A program in async Rust has tokio's sockets and ours, and its engine says which.
                let runs_ours = if server.ecosystems.as_deref() == Some(&[Ecosystem::AsyncRust]) {
                    words.any(|word| word.starts_with("uring") || word.starts_with("epoll"))
                } else {
                    words.any(|word| word.contains("quoit"))
                };
                assert_eq!(
                    pages::is_ours(&server.name),
                    runs_ours,
                    "{}: {}",
                    experiment.name,
                    server.name
                );
            }
        }
    }

    #[test]
    fn our_own_servers_are_told_what_they_understand() {
        let mut values = Values::default();
        for (name, value) in [
            ("quoit", "quoit"),
            ("listen", "127.0.0.1:0"),
            ("metrics", "127.0.0.1:0"),
            ("work", "0"),
        ] {
            values.set(name, value);
        }
        for experiment in EXPERIMENTS.iter().map(|file| file.read().expect("it is right")) {
            let ours = experiment
                .servers
                .iter()
                .filter(|server| server.command.first().is_some_and(|word| word == "{quoit}"));
            let cases = || experiment.cases.iter();
            for (server, case) in ours.flat_map(|server| cases().map(move |case| (server, case))) {
                values.set("protocol", case.workload.protocol());
                let words = expand(&server.command, &values).expect("all is known");
                Program::try_parse_from(words).unwrap_or_else(|error| panic!("{}: {error}", server.name));
            }
        }
    }
}
