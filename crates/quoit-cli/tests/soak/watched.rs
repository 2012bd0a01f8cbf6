//! A server that is watched from outside: its figures, its descriptors and its memory, and what it holds of them while
//! nobody is connected.

use std::net::TcpStream;
use std::time::Instant;

use crate::support::{Client, PATIENCE, Server, connect};

/// Gauges that are zero without connections.
pub(crate) const OF_CONNECTIONS: [&str; 4] = [
    "quoit_connections",
    "quoit_pool_leased",
    "quoit_queued_bytes",
    "quoit_send_chunks_used",
];

/// The server, which says where its metrics are, and what it held at rest.
pub(crate) struct Watched {
    name: String,
    pub(crate) server: Server,
    pub(crate) metrics: String,
    /// Open at rest.
    pub(crate) descriptors: usize,
    in_flight: u64,
    /// After each round.
    pub(crate) resident_kib: Vec<u64>,
}

impl Watched {
    pub(crate) fn new(name: String, server: Server) -> Self {
        let metrics = server.message("metrics on ");
        Self {
            name,
            server,
            metrics,
            descriptors: usize::MAX,
            in_flight: 0,
            resident_kib: Vec::new(),
        }
    }

    /// Takes what it holds now for what it holds at rest. The figures are told at the end of a turn: before the first
    /// one, the server seems to do nothing at all, so that something must have `come` by this counter.
    pub(crate) fn is_at_rest(&mut self, come: &str) {
        let begin = Instant::now();
        while self.figures(come) == 0 || self.figures("quoit_connections") > 0 {
            assert!(begin.elapsed() < PATIENCE, "{} takes nothing", self.name);
            std::thread::yield_now();
        }
        self.in_flight = self.figures("quoit_in_flight");
        self.descriptors = self.descriptors_at_most(usize::MAX);
    }

    /// A figure of the metrics, of all loops.
    pub(crate) fn figures(&self, name: &str) -> u64 {
        Scraper::new(self).figures(name)
    }

    /// How many descriptors are open once there are no more than `most` and the connections to the metrics are gone.
    fn descriptors_at_most(&self, most: usize) -> usize {
        let begin = Instant::now();
        loop {
            let open = self.server.proc_entries("fd");
            let few_enough = open.len() <= most;
            let own = format!(":{:04X} ", port(&self.metrics));
            let established = ["net/tcp", "net/tcp6"].iter().any(|table| {
                self.server.proc_file(table).lines().any(|line| {
                    let mut words = line.split_whitespace().skip(1);
                    let local = words.next().map(|local| format!("{local} "));
                    local.is_some_and(|local| local.ends_with(&own)) && words.nth(1) == Some("01")
                })
            });
            if few_enough && !established {
                return open.len();
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{}: descriptors stay open, more than {most}: {open:?}",
                self.name
            );
            std::thread::yield_now();
        }
    }

    /// Waits until the server holds nothing of any connection, which these gauges tell, and notes its memory.
    ///
    /// # Panics
    /// If something stays.
    pub(crate) fn all_given_back<'a>(&mut self, gauges: impl IntoIterator<Item = &'a str>) {
        for (name, rest) in gauges
            .into_iter()
            .map(|name| (name, 0))
            .chain([("quoit_in_flight", self.in_flight)])
        {
            let begin = Instant::now();
            while self.figures(name) != rest {
                assert!(
                    begin.elapsed() < PATIENCE,
                    "{}: {name} stays at {}, not {rest}",
                    self.name,
                    self.figures(name)
                );
                std::thread::yield_now();
            }
        }
        self.descriptors_at_most(self.descriptors);
        self.resident_kib.push(self.server.status_kib("VmRSS"));
    }
}

/// Reads the metrics, on one connection if the server keeps it: a server that can accept nothing more still answers there.
pub(crate) struct Scraper<'a> {
    address: &'a str,
    client: Option<Client<TcpStream>>,
}

impl<'a> Scraper<'a> {
    pub(crate) fn new(watched: &'a Watched) -> Self {
        Self {
            address: &watched.metrics,
            client: None,
        }
    }

    pub(crate) fn figures(&mut self, name: &str) -> u64 {
        figure_in(&self.scrape(), name)
    }

    fn scrape(&mut self) -> String {
        let mut client = self
            .client
            .take()
            .unwrap_or_else(|| Client::new(connect(self.address)));
        let response = client.get("/metrics");
        let closes = response
            .field("Connection")
            .is_some_and(|said| said.eq_ignore_ascii_case("close"));
        self.client = (!closes).then_some(client);
        response.text().to_owned()
    }
}

impl Drop for Scraper<'_> {
    /// Tells all figures when a test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self
                .scrape()
                .lines()
                .filter(|line| !line.starts_with('#') && !line.ends_with(" 0"))
            {
                eprintln!("{line}");
            }
        }
    }
}

/// A figure of this text, of all loops.
pub(crate) fn figure_in(text: &str, name: &str) -> u64 {
    let mut found = text.lines().filter_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix("{loop=\"")?;
        value.split_once("\"} ")?.1.parse::<u64>().ok()
    });
    let first = found.next().expect("the figure is there");
    first + found.sum::<u64>()
}

fn port(address: &str) -> u16 {
    address
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("an address has a port")
}
