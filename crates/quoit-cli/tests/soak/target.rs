//! The servers, and what they hold while nobody is connected.

use std::fmt;
use std::net::{TcpStream, UdpSocket};
use std::time::Instant;

use crate::support::{Client, PATIENCE, Server, connect};

/// Gauges that are zero without connections, and of a server of datagrams when all is answered.
const EMPTY: [&str; 4] = [
    "quoit_connections",
    "quoit_pool_leased",
    "quoit_queued_bytes",
    "quoit_send_chunks_used",
];
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
    server: Server,
    metrics: String,
    descriptors: usize,
    in_flight: u64,
    pub(crate) resident_kib: Vec<u64>,
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
        let metrics = server.message("metrics on ");
        let mut target = Self {
            engine,
            service,
            server,
            metrics,
            descriptors: 0,
            in_flight: 0,
            resident_kib: Vec::new(),
        };
        // The figures are told at the end of a turn: before the first one, the server seems to do nothing at all.
        let came = if service == Service::Datagrams {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"first", target.address()).unwrap();
            "quoit_datagrams_received_total"
        } else {
            drop(connect(target.address()));
            "quoit_accepted_total"
        };
        let begin = Instant::now();
        while target.figures(came) == 0 || target.figures("quoit_connections") > 0 {
            assert!(begin.elapsed() < PATIENCE, "{target} takes nothing");
            std::thread::yield_now();
        }
        target.in_flight = target.figures("quoit_in_flight");
        target.descriptors = target.descriptors_settled(usize::MAX);
        target
    }

    pub(crate) fn address(&self) -> &str {
        self.server.address()
    }

    /// A figure of the metrics, of all loops.
    pub(crate) fn figures(&self, name: &str) -> u64 {
        let mut client = Client::<TcpStream>::new(connect(&self.metrics));
        let response = client.get("/metrics");
        let mut found = response.text().lines().filter_map(|line| {
            let value = line.strip_prefix(name)?.strip_prefix("{loop=\"")?;
            value.split_once("\"} ")?.1.parse::<u64>().ok()
        });
        let first = found.next().expect("the figure is there");
        first + found.sum::<u64>()
    }

    /// How many descriptors are open once there are no more than `most` and the connections to the metrics are gone.
    fn descriptors_settled(&self, most: usize) -> usize {
        let begin = Instant::now();
        loop {
            let open = self.server.proc_entries("fd");
            let settled = open.len() <= most;
            let own = format!(":{:04X} ", port(&self.metrics));
            let established = self.server.proc_file("net/tcp").lines().any(|line| {
                line.split_whitespace().nth(3) == Some("01")
                    && line
                        .split_whitespace()
                        .nth(1)
                        .is_some_and(|local| format!("{local} ").ends_with(&own))
            });
            if settled && !established {
                return open.len();
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{self}: descriptors stay open: {open:?}"
            );
            std::thread::yield_now();
        }
    }

    /// Waits until the server holds nothing of any connection, and notes its memory.
    ///
    /// # Panics
    /// If something stays.
    pub(crate) fn all_given_back(&mut self) {
        let of_datagrams = if self.service == Service::Datagrams {
            &ANSWERED[..]
        } else {
            &[]
        };
        for (name, rest) in EMPTY
            .iter()
            .chain(of_datagrams)
            .map(|&name| (name, 0))
            .chain([("quoit_in_flight", self.in_flight)])
        {
            let begin = Instant::now();
            while self.figures(name) != rest {
                assert!(
                    begin.elapsed() < PATIENCE,
                    "{self}: {name} stays at {}, not {rest}",
                    self.figures(name)
                );
                std::thread::yield_now();
            }
        }
        self.descriptors_settled(self.descriptors);
        self.resident_kib.push(self.server.status_kib("VmRSS"));
    }

    /// Ends it in an orderly way, with a peer connected that has its answers and one that has said nothing.
    pub(crate) fn drain(mut self) {
        let idle = (self.service != Service::Datagrams).then(|| connect(self.address()));
        self.server.terminate();
        drop(idle);
        let messages = self.server.ends_with(0);
        assert!(messages.is_empty(), "{self}: {messages}");
        let gone = match self.service {
            Service::Datagrams => UdpSocket::bind(self.address()).is_ok(),
            _ => TcpStream::connect(self.address()).is_err(),
        };
        assert!(gone, "{self}: it still listens");
    }
}

fn port(address: &str) -> u16 {
    address
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("an address has a port")
}
