//! The servers that are besieged: the program's, and those of the lab on each door.

use std::fmt;
use std::path::Path;
use std::process::Command;

use quoit_skipped::skip;

use crate::caller::Caller;
use crate::support::{Server, limit_descriptors, quoit};
use crate::watched::{OF_CONNECTIONS, Watched};
use crate::wire::Service;

/// One server, on either engine: a row of the table.
pub(crate) struct Row {
    /// That of its test.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) service: Service,
    command: &'static str,
    /// What a door's program needs to be built.
    needs: Option<&'static str>,
    /// KiB by which a second round of all sieges may raise the resident set, beside a tenth.
    pub(crate) growth_kib: u64,
    /// KiB of a heap that is collected, and of what its loop may have copied: up to that, what is resident says when it was
    /// collected last and how far the peers came, and no more.
    pub(crate) heap_kib: u64,
}

/// The allocator keeps and splits what was freed: a quarter of what a loop may have copied at most.
const GROWTH_KIB: u64 = 16_384;
/// What a runtime has beside its heap.
const GROWTH_OF_HEAPS_KIB: u64 = 65_536;
const HEAP_KIB: u64 = (512 << 10) + 4 * GROWTH_KIB;
/// Collectors grow their heaps by what a machine has. This is the same on all.
const HEAPS: [(&str, &str); 3] = [
    ("GOMEMLIMIT", "512MiB"),
    ("QUOIT_LAB_JAVA_OPTIONS", "-Xms512m -Xmx512m -XX:+AlwaysPreTouch"),
    ("DOTNET_GCHeapHardLimit", "0x20000000"),
];

const GO: &str = "Go 1.25";
const NETTY: &str = "Maven and a JDK 25";
const KESTREL: &str = "the .NET SDK 10";

const fn program(name: &'static str, title: &'static str, service: Service, command: &'static str) -> Row {
    Row {
        name,
        title,
        service,
        command,
        needs: None,
        growth_kib: GROWTH_KIB,
        heap_kib: 0,
    }
}

const fn door(
    name: &'static str,
    title: &'static str,
    service: Service,
    command: &'static str,
    needs: &'static str,
) -> Row {
    Row {
        name,
        title,
        service,
        command,
        needs: Some(needs),
        growth_kib: GROWTH_OF_HEAPS_KIB,
        heap_kib: HEAP_KIB,
    }
}

pub(crate) const ROWS: &[Row] = &[
    program(
        "serve_echo",
        "`serve echo`",
        Service::Echo,
        "serve echo --engine {engine}",
    ),
    program(
        "serve_http",
        "`serve http`",
        Service::Http,
        "serve http --engine {engine}",
    ),
    program(
        "serve_rpc",
        "`serve rpc --streams 256`",
        Service::Rpc,
        "serve rpc --streams 256 --engine {engine}",
    ),
    program(
        "serve_sink",
        "`serve sink`",
        Service::Sink,
        "serve sink --engine {engine}",
    ),
    // Its peers come to the metrics, which are a server of HTTP.
    program(
        "serve_metrics",
        "`serve echo --metrics`, its metrics",
        Service::Http,
        "serve echo --engine {engine}",
    ),
    door(
        "go_event_echo",
        "Go, events: echo",
        Service::Echo,
        "quoit-go echo --way event --engine {engine}",
        GO,
    ),
    door(
        "go_event_http",
        "Go, events: HTTP",
        Service::Http,
        "quoit-go http --way event --engine {engine}",
        GO,
    ),
    door(
        "go_fasthttp",
        "Go, fasthttp on the loop",
        Service::Http,
        "quoit-go http --way fasthttp --engine {engine}",
        GO,
    ),
    door(
        "go_nethttp",
        "Go, net/http on the loop",
        Service::Http,
        "quoit-go http --way nethttp --engine {engine}",
        GO,
    ),
    door(
        "go_listener",
        "Go, net/http over a listener",
        Service::Http,
        "quoit-go http --way listener --engine {engine}",
        GO,
    ),
    door(
        "netty_echo",
        "Netty: echo",
        Service::Echo,
        "netty echo --engine quoit-{engine}",
        NETTY,
    ),
    door(
        "netty_http",
        "Netty: HTTP",
        Service::Http,
        "netty http --engine quoit-{engine}",
        NETTY,
    ),
    door(
        "netty_rpc",
        "Netty: RPC",
        Service::Rpc,
        "netty rpc --engine quoit-{engine}",
        NETTY,
    ),
    door(
        "netty_rsocket",
        "Netty: RSocket",
        Service::Rsocket,
        "netty rsocket --engine quoit-{engine}",
        NETTY,
    ),
    door(
        "kestrel",
        "Kestrel",
        Service::Http,
        "kestrel http --transport quoit-{engine} --app minimal",
        KESTREL,
    ),
    door(
        "kestrel_inline",
        "Kestrel, inline",
        Service::Http,
        "kestrel http --transport quoit-{engine}-inline --app minimal",
        KESTREL,
    ),
];

impl Row {
    pub(crate) fn is_of_a_door(&self) -> bool {
        self.needs.is_some()
    }

    /// Whether it can be started, or a line that says why it is left out.
    pub(crate) fn is_there(&self) -> bool {
        let Some(needs) = self.needs else {
            return true;
        };
        let there = self.file().exists();
        if !there {
            skip(
                format_args!("the siege of {}", self.name),
                format_args!("its program is not built; run `make door-peers`, which needs {needs}"),
            );
        }
        there
    }

    fn file(&self) -> std::path::PathBuf {
        let name = self.command.split(' ').next().expect("a program");
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../target/peers")
            .join(name)
    }

    /// Starts it on this address, with so few descriptors if that is said, and lets it come to rest after a few requests.
    pub(crate) fn start(
        &'static self,
        engine: &'static str,
        address: &str,
        descriptors: Option<u64>,
    ) -> Besieged {
        let arguments = format!(
            "{} --listen {address}:0 --loops 1 --metrics 127.0.0.1:0",
            self.command.replace("{engine}", engine)
        );
        let mut command = if self.is_of_a_door() {
            let mut command = Command::new(self.file());
            command.args(arguments.split(' ').skip(1)).envs(HEAPS);
            command
        } else {
            quoit(&arguments)
        };
        if let Some(descriptors) = descriptors {
            limit_descriptors(&mut command, descriptors, descriptors);
        }
        let server = Server::start_command(command, 1);
        let name = format!("{} on {engine}", self.name);
        let mut target = Besieged {
            row: self,
            engine,
            watched: Watched::new(name, server),
        };
        for number in 0..12 {
            target.ask(number);
        }
        target.watched.is_at_rest("quoit_accepted_total");
        target
    }
}

/// One that runs.
pub(crate) struct Besieged {
    pub(crate) row: &'static Row,
    pub(crate) engine: &'static str,
    pub(crate) watched: Watched,
}

impl fmt::Display for Besieged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.row.name, self.engine)
    }
}

impl Besieged {
    pub(crate) fn address(&self) -> &str {
        self.watched.server.address()
    }

    /// What is asked of it: the protocol of its own address, not of its metrics'.
    pub(crate) fn service(&self) -> Service {
        match self.row.name {
            "serve_metrics" => Service::Echo,
            _ => self.row.service,
        }
    }

    /// One request of the client that behaves, on a connection of its own.
    pub(crate) fn ask(&self, number: usize) {
        Caller::connect(self.service(), self.address()).ask(number);
    }

    pub(crate) fn all_given_back(&mut self) {
        self.watched.all_given_back(OF_CONNECTIONS);
    }

    /// Ends it in an orderly way.
    pub(crate) fn drain(mut self) {
        self.watched.server.terminate();
        let messages = self.watched.server.ends_with(0);
        assert!(
            self.row.is_of_a_door() || messages.is_empty(),
            "{self}: {messages}"
        );
    }
}
