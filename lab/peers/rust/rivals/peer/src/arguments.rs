//! The command line: `NAME echo|http|… --listen HOST:PORT --loops N`.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::Rival;

/// What a server answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The bytes that it receives.
    Echo,
    /// `/plaintext` and `/json`.
    Http,
    /// HTTP/2 in clear text: every request's body is read, and answered shortly.
    H2c,
    /// WebSocket: the messages that it receives.
    WebSocket,
    /// `/plaintext` and `/json` over TLS.
    Https,
    /// gRPC in clear text: the square of a number.
    Grpc,
    /// gRPC's own service for tests of interoperability.
    GrpcInterop,
}

/// What was asked for on the command line.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// What to serve.
    pub service: Service,
    /// Where to listen; port 0 for any.
    pub listen: SocketAddr,
    /// Threads, each with a loop of its own.
    pub loops: usize,
    /// The engine, if the rival has a choice of them.
    pub engine: Option<&'static str>,
}

impl Arguments {
    pub(crate) fn parse(rival: &Rival, words: impl Iterator<Item = String>) -> Result<Self, String> {
        let usage = || usage(rival);
        let mut words = words;
        let service = match words.next().as_deref() {
            Some("echo") => Service::Echo,
            Some("http") => Service::Http,
            Some("h2c") => Service::H2c,
            Some("websocket") => Service::WebSocket,
            Some("https") => Service::Https,
            Some("grpc") => Service::Grpc,
            Some("grpc-interop") => Service::GrpcInterop,
            _ => return Err(usage()),
        };
        if !rival.services.contains(&service) {
            return Err(usage());
        }
        let mut arguments = Self {
            service,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            loops: 1,
            engine: rival.engines.first().copied(),
        };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(usage)?;
            match option.as_str() {
                "--listen" => {
                    arguments.listen = value
                        .to_socket_addrs()
                        .ok()
                        .and_then(|mut addresses| addresses.next())
                        .ok_or_else(|| format!("--listen takes HOST:PORT, and {value:?} is none"))?;
                }
                "--loops" => {
                    arguments.loops = value
                        .parse()
                        .ok()
                        .filter(|loops| (1..=1024).contains(loops))
                        .ok_or_else(|| format!("--loops takes 1 to 1024, and not {value:?}"))?;
                }
                "--engine" => {
                    let engine = rival.engines.iter().find(|engine| **engine == value);
                    arguments.engine = Some(engine.ok_or_else(usage)?);
                }
                _ => return Err(usage()),
            }
        }
        Ok(arguments)
    }
}

fn usage(rival: &Rival) -> String {
    let services: Vec<&str> = rival
        .services
        .iter()
        .map(|service| match service {
            Service::Echo => "echo",
            Service::Http => "http",
            Service::H2c => "h2c",
            Service::WebSocket => "websocket",
            Service::Https => "https",
            Service::Grpc => "grpc",
            Service::GrpcInterop => "grpc-interop",
        })
        .collect();
    let engines = match rival.engines {
        [] => String::new(),
        engines => format!(" [--engine {}]", engines.join("|")),
    };
    let (name, services) = (rival.name, services.join("|"));
    format!("usage: {name} {services} [--listen HOST:PORT] [--loops N]{engines}")
}
