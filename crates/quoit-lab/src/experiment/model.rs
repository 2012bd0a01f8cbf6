//! What an experiment file says, once read and checked: see `docs/experiments.md` for the file itself.
//!
//! An experiment is a set of servers under one or more *cases*. A case is a complete workload; the file states
//! what the cases share once, and each case what it changes. Every server is compared with the baseline, case by
//! case, in pairs.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use quoit_report::pages::Ecosystem;
use quoit_report::results::model::{Judge, Published};

/// A checked experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Experiment {
    /// Its name: that of the file, without the ending.
    pub(crate) name: String,
    /// One line: what it asks.
    pub(crate) title: String,
    /// Why it exists, and what its workload comes from, in a few sentences.
    pub(crate) about: String,
    /// What the published experiment claimed, if this one repeats it.
    pub(crate) claims: Vec<Claim>,
    /// The tables that it published.
    pub(crate) published: Vec<Published>,
    pub(crate) placement: PlacementKind,
    /// Only for [`PlacementKind::Remote`], and then at least one: the commands that start the generators, split
    /// into words. `{generator}` stands for the `quoit load ...` command line: as a word of its own for all its
    /// words, inside a word for the line quoted for a shell. `{arguments}` is the same without the program.
    pub(crate) generators: Vec<Vec<String>>,
    /// Only for [`PlacementKind::Remote`]: the address of this machine that the generators reach, on which the
    /// servers listen.
    pub(crate) host: Option<IpAddr>,
    pub(crate) effort: Effort,
    /// What `--quick` makes of the effort.
    pub(crate) quick: Effort,
    /// At least two, or one with itself as the control.
    pub(crate) servers: Vec<ServerSpec>,
    /// The name of the server that the others are compared with.
    pub(crate) baseline: String,
    /// Clients under test, in place of `quoit load`: then both sides are measured.
    pub(crate) clients: Vec<ClientSpec>,
    /// At least one.
    pub(crate) cases: Vec<Case>,
    /// Whether there may be servers or clients that this program does not know: they may need what else is on the
    /// machine's network, such as a database.
    pub(crate) own_programs: bool,
}

/// A published figure that the experiment is held beside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// Who published it, where.
    pub(crate) source: String,
    /// What it says, in one sentence.
    pub(crate) says: String,
}

/// How long and how often is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Effort {
    /// Pairs that every comparison has at least.
    pub(crate) pairs: u32,
    /// Pairs that the control may grow to until its band is narrow enough.
    pub(crate) most_pairs: u32,
    /// The half width of the A/A band that ends the growing, as a share: 0.05 is 5 %.
    pub(crate) band: f64,
    /// Seconds of one slice's measured window.
    pub(crate) seconds: f64,
    /// Seconds of load before it, which are thrown away.
    pub(crate) warm_up: f64,
}

/// Where server and generator run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PlacementKind {
    /// Both on one core, over loopback: steady ratios on a small machine, no capacity.
    SameCore,
    /// The server on one core (or several, for several loops), the generator on the others, over loopback.
    SplitCore,
    /// As `SplitCore`, in two network namespaces joined by a veth pair that the run makes and removes.
    Veth,
    /// Generators started by the file's commands, such as `ssh host {generator}`.
    Remote,
}

impl PlacementKind {
    /// As in files and arguments.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SameCore => "same-core",
            Self::SplitCore => "split-core",
            Self::Veth => "veth",
            Self::Remote => "remote",
        }
    }
}

/// A server under test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ServerSpec {
    pub(crate) name: String,
    /// The ecosystems on whose pictures it is shown; `None` if it does not say. Nothing that is measured depends on it.
    #[serde(skip)]
    pub(crate) ecosystems: Option<Vec<Ecosystem>>,
    /// The command, split into words (as a shell would, without its expansions). In each word `{quoit}` is this
    /// program, `{bin}` the folder that it lies in, `{peers}` the folder of the built rivals, `{host}` and
    /// `{port}` where to listen, `{listen}` both with a colon, `{protocol}` what the case speaks (`echo`, `http`, `rpc`,
    /// `dns`, `rsocket` or `udp-sink`), `{work}` the nanoseconds that it is to work for each datagram, `{cores}` the number of cores that it may use, `{folder}` an empty folder of its own that is removed
    /// afterwards, and `{metrics}` where to serve counters ([`Metrics::Apart`]). `{{` and `}}` are braces.
    ///
    /// Empty if `command_from` names a variable that is not set: such a server is left out before the run.
    pub(crate) command: Vec<String>,
    /// The environment variable that its command was to be read from: for programs that no registry has.
    pub(crate) command_from: Option<String>,
    /// Added to the environment; values are templates as the command is.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) ready: Ready,
    /// The port that it listens on if it cannot be told one; otherwise the command has `{listen}` or `{port}`.
    pub(crate) port: Option<u16>,
    /// The name of the server that this one is compared with, if that is not the baseline.
    pub(crate) against: Option<String>,
    /// Whether it runs on io_uring, and so is left out where that is denied.
    pub(crate) io_uring: bool,
    /// Whether it takes part with `--quick`.
    pub(crate) in_quick: bool,
    /// Whether the command line names it: without what was asked for nothing is measured.
    pub(crate) asked_for: bool,
    /// What its ready line has to say, such as `engine=uring`: a server that fell back is not what was asked for.
    pub(crate) expects: Vec<String>,
    /// Where its counters are read, as Prometheus text: `/metrics` of its own address, or `{metrics}`, a port
    /// that is chosen and put into the command.
    pub(crate) metrics: Option<Metrics>,
    /// Cases that it cannot serve, or where it would show nothing: names of cases.
    pub(crate) not_in: Vec<String>,
    /// Files or programs without which it is left out, with a clear line: templates as in the command.
    pub(crate) needs: Vec<String>,
    /// What to do when one is missing, such as `run make lab-peers`.
    pub(crate) remedy: String,
}

/// How a server says that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ready {
    /// It prints `listening on ADDR ...`, and may choose the port.
    Line,
    /// Its port is open: it accepts connections or, where the load is datagrams, is that of a UDP socket.
    Port,
}

/// Where counters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Metrics {
    /// `GET /metrics` on the address that it serves.
    Served,
    /// `GET /metrics` on the address that `{metrics}` stands for.
    Apart,
}

/// A client under test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ClientSpec {
    pub(crate) name: String,
    /// As a server's command; `{connect}` is the server's address, `{connections}` the case's, `{seconds}` the length of
    /// the window, and `{server}` the name of the server under test. It prints, as its last line, a JSON object with at least
    /// `requests` and `elapsed_seconds`; fields of `quoit load --json` are understood, and `told`, further figures by
    /// name.
    pub(crate) command: Vec<String>,
    /// Whether it warms up itself, for `{warm_up}` seconds at most, and then writes the line `window opens_ns=T lasts_ns=D
    /// in_ns=N` of `quoit load --announce` to standard error: only that window is measured. Otherwise it runs once to
    /// warm up the server, and is measured from its start to its end.
    pub(crate) announces: bool,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) needs: Vec<String>,
    pub(crate) remedy: String,
    /// Whether it takes part with `--quick`.
    pub(crate) in_quick: bool,
}

/// A complete workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Case {
    /// Unique within the experiment, such as `500 x 512 B`.
    pub(crate) name: String,
    /// Whether it runs with `--quick`.
    pub(crate) in_quick: bool,
    pub(crate) workload: Workload,
}

/// What is done to the servers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Requests and replies, by `quoit load`; the cost is CPU per request.
    Load(LoadSpec),
    /// One stream of bytes, read as fast as it comes; the cost is CPU a mebibyte.
    Bulk { path: String, mebibytes: u64 },
    /// Connections that are opened and left alone; the cost is memory per connection.
    Idle { connections: u32, seconds: f64 },
    /// Numbered datagrams to a sink, by `quoit load udp`.
    Datagrams(DatagramSpec),
}

/// The arguments of `quoit load udp` that an experiment sets, and what its sinks are to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DatagramSpec {
    /// Datagrams that are sent; `None`: as many as fit into the window.
    pub(crate) count: Option<u64>,
    pub(crate) senders: u16,
    /// Closed means flat out: nobody waits for a datagram.
    pub(crate) pace: Pace,
    /// So many times the rate is offered in the first third of the time, and the rate in the rest.
    pub(crate) overload: Option<f64>,
    /// Processor time that a sink is to burn for each datagram, in nanoseconds: `{work}` in the servers' commands.
    pub(crate) work: u64,
    pub(crate) judge: Judge,
    /// The ladder of rates that it is a rung of: the report says for each server the highest of its rungs at which next to
    /// nothing is lost.
    pub(crate) ladder: Option<String>,
    /// Further arguments, such as `--size 1024 --mode gso`, as `quoit load udp` takes them.
    pub(crate) arguments: Vec<String>,
}

impl DatagramSpec {
    /// Rounds of shutdown datagrams, and the milliseconds between two: ten seconds for a sink to catch up, and little
    /// time lost when the first of them was.
    const SHUTDOWNS: (u32, u32) = (2000, 5);

    /// The words behind `quoit load` for one run.
    pub(crate) fn load_arguments(&self, connect: SocketAddr, rate: Option<f64>, seconds: f64) -> Vec<String> {
        let (shutdowns, every) = Self::SHUTDOWNS;
        let mut words = vec!["udp".to_owned()];
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        option("--connect", connect.to_string());
        option("--senders", self.senders.to_string());
        match (self.overload, rate, self.count) {
            (Some(overload), Some(rate), _) => {
                option("--phase", format!("{}:{}", rate * overload, seconds / 3.0));
                option("--phase", format!("{rate}:{}", seconds * 2.0 / 3.0));
            }
            (_, rate, count) => {
                match count {
                    Some(count) => option("--count", count.to_string()),
                    None => option("--seconds", seconds.to_string()),
                }
                if let Some(rate) = rate {
                    option("--rate", rate.to_string());
                }
            }
        }
        option("--shutdowns", shutdowns.to_string());
        option("--shutdown-every", every.to_string());
        words.extend(["--json", "--no-progress"].map(str::to_owned));
        words.extend_from_slice(&self.arguments);
        words
    }
}

/// The arguments of `quoit load` that an experiment sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LoadSpec {
    /// `echo`, `http` or `rpc`; or `dns` or `rsocket`, for clients under test alone.
    pub(crate) protocol: String,
    pub(crate) connections: u32,
    pub(crate) threads: u32,
    /// Requests outstanding on each connection, in a closed loop. 1 is what `quoit load` does unless told; some of
    /// its options (`--churn`, those of `rpc`) go with no `--pipeline` at all, so 1 is not to be passed on.
    pub(crate) pipeline: u32,
    pub(crate) pace: Pace,
    /// Further arguments, such as `--size 512` or `--path /json`, as `quoit load PROTOCOL` takes them.
    pub(crate) arguments: Vec<String>,
}

/// What `quoit load` does not speak: clients under test set all else themselves.
pub(super) const CLIENTS_OWN: [&str; 2] = [DNS, "rsocket"];

const DNS: &str = "dns";

impl LoadSpec {
    /// Whether `quoit load` cannot make it.
    pub(crate) fn is_for_clients(&self) -> bool {
        CLIENTS_OWN.contains(&self.protocol.as_str())
    }
}

impl Workload {
    /// What the servers have to speak: `{protocol}` in their commands.
    pub(crate) fn protocol(&self) -> &str {
        match self {
            Self::Load(load) => &load.protocol,
            Self::Bulk { .. } | Self::Idle { .. } => "http",
            Self::Datagrams(_) => "udp-sink",
        }
    }

    /// Whether the servers have datagram sockets, and accept nothing.
    pub(crate) fn is_of_datagrams(&self) -> bool {
        match self {
            Self::Load(load) => load.protocol == DNS,
            Self::Bulk { .. } | Self::Idle { .. } => false,
            Self::Datagrams(_) => true,
        }
    }

    /// Connections that are open at once.
    pub(crate) fn connections(&self) -> u32 {
        match self {
            Self::Load(load) => load.connections,
            Self::Bulk { .. } => 1,
            Self::Idle { connections, .. } => *connections,
            // A socket each.
            Self::Datagrams(datagrams) => u32::from(datagrams.senders),
        }
    }
}

impl Experiment {
    /// The server that `server` is compared with; `None` for a baseline, which is its own control.
    pub(crate) fn against<'a>(&'a self, server: &'a ServerSpec) -> Option<&'a str> {
        let other = server.against.as_deref().unwrap_or(&self.baseline);
        (other != server.name).then_some(other)
    }

    /// What `--quick` makes of it: less effort, and without what the file leaves out of a quick run.
    pub(crate) fn quickened(mut self) -> Self {
        self.effort = self.quick;
        self.servers.retain(|server| server.in_quick);
        self.clients.retain(|client| client.in_quick);
        self.cases.retain(|case| case.in_quick);
        self
    }
}

/// What sets the rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pace {
    /// The server: a reply makes the next request due. Datagrams are sent as fast as it goes.
    Closed,
    /// A schedule of so many requests per second over all connections.
    Rate(f64),
    /// A schedule at this share (0 to 1; of datagrams, up to 100) of what the baseline reaches in a closed loop,
    /// measured first. All servers of the case are offered the same rate.
    ShareOfPeak(f64),
}
