//! The servers of the soak.

use std::fmt;
use std::net::{TcpStream, UdpSocket};

use crate::support::{Server, connect};
use crate::watched::{OF_CONNECTIONS, Watched};

/// Gauges that are zero in a server of datagrams when all is answered.
const ANSWERED: [&str; 2] = ["quoit_datagrams_slots_leased", "quoit_datagrams_queued_bytes"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    Echo,
    Http,
    Rpc,
    Datagrams,
}

/// One server, and what it held after each round.
pub(crate) struct Target {
    engine: &'static str,
    pub(crate) service: Service,
    watched: Watched,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {}", self.service, self.engine)
    }
}

impl Target {
    pub(crate) fn start(engine: &'static str, service: Service) -> Self {
        let name = match service {
            Service::Echo => "echo",
            Service::Http => "http",
            Service::Rpc => "rpc",
            Service::Datagrams => "udp-echo",
        };
        let server = Server::on(engine, &format!("{name} --metrics 127.0.0.1:0"));
        let mut watched = Watched::new(format!("{service:?} on {engine}"), server);
        if service == Service::Datagrams {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"first", watched.server.address()).unwrap();
            watched.is_at_rest("quoit_datagrams_received_total");
        } else {
            drop(connect(watched.server.address()));
            watched.is_at_rest("quoit_accepted_total");
        }
        Self {
            engine,
            service,
            watched,
        }
    }

    pub(crate) fn address(&self) -> &str {
        self.watched.server.address()
    }

    /// A figure of the metrics, of all loops.
    pub(crate) fn figures(&self, name: &str) -> u64 {
        self.watched.figures(name)
    }

    /// After each round.
    pub(crate) fn resident_kib(&self) -> &[u64] {
        &self.watched.resident_kib
    }

    /// Waits until the server holds nothing of any connection, and notes its memory.
    ///
    /// # Panics
    /// If something stays.
    pub(crate) fn all_given_back(&mut self) {
        let of_datagrams = match self.service {
            Service::Datagrams => &ANSWERED[..],
            _ => &[],
        };
        self.watched
            .all_given_back(OF_CONNECTIONS.iter().chain(of_datagrams).copied());
    }

    /// Ends it in an orderly way, with a peer connected that has its answers and one that has said nothing.
    pub(crate) fn drain(mut self) {
        let idle = (self.service != Service::Datagrams).then(|| connect(self.address()));
        self.watched.server.terminate();
        drop(idle);
        let messages = self.watched.server.ends_with(0);
        assert!(messages.is_empty(), "{self}: {messages}");
        let gone = match self.service {
            Service::Datagrams => UdpSocket::bind(self.address()).is_ok(),
            _ => TcpStream::connect(self.address()).is_err(),
        };
        assert!(gone, "{self}: it still listens");
    }
}
