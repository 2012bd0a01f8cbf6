//! What a run is to do, whatever it sends.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::control::nanoseconds;
use super::rpc::RpcStreams;
use super::sizes::Sizes;
use super::target::Target;
use super::udp::Datagrams;

/// One run: where, what, how much and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The server.
    pub(crate) target: Target,
    /// What is sent and expected.
    pub(crate) workload: Workload,
    /// Connections kept open, or senders of datagrams, over all threads. At least one, and at least one per thread.
    pub(crate) connections: usize,
    /// Requests kept outstanding on each connection; in an open loop, at most. At least one. `u32::MAX`: no limit.
    pub(crate) pipeline: u32,
    /// Threads that generate the load, each with its share of the connections. At least one.
    pub(crate) threads: usize,
    /// The parts of the run, one after the other. At least one; streams have one, which is the measured window.
    pub(crate) phases: Vec<Phase>,
    /// What random draws (times and sizes) depend on.
    pub(crate) seed: u64,
    /// Load before the measured window, which is discarded (errors in it are counted all the same).
    pub(crate) warmup: Duration,
    /// The time over which the connections are opened, evenly; zero: as fast as the server takes them.
    pub(crate) ramp_up: Duration,
    /// What the run is called among those that it is merged with.
    pub(crate) label: Option<String>,
    /// When the window begins, since 1970; `None`: once all connections are open and the warm-up is over.
    pub(crate) start_at: Option<Duration>,
    /// The longest wait for a connection to open or for a reply. More than zero.
    pub(crate) timeout: Duration,
    /// The length of the intervals that the window is divided into. More than zero.
    pub(crate) interval: Duration,
    /// The shortest gap in which the generator did not run that counts as a slip. More than zero.
    pub(crate) slip: Duration,
    /// How long before a request is due, in an open loop, a thread stops sleeping and waits awake; zero: never.
    pub(crate) spin: Duration,
    /// Bytes of memory that a thread touches whenever it has waited, to displace what others have in the caches.
    pub(crate) displace: usize,
    /// The local addresses that connections are opened from, in turn; none: the kernel's choice.
    pub(crate) sources: Vec<IpAddr>,
    /// Whether each request has a connection of its own.
    pub(crate) churn: bool,
    /// Connections that read slowly.
    pub(crate) slow: Option<SlowReaders>,
}

impl Workload {
    /// Its protocol.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Workload::Echo { .. } => "echo",
            Workload::Http { .. } => "http",
            Workload::Rpc(_) => "rpc",
            Workload::Datagrams(_) => "udp",
        }
    }
}

/// A part of a run: how fast is sent, and how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phase {
    /// Requests offered on a timetable (open loop); `None`: as many as the server answers (closed loop), or as it goes.
    pub(crate) offered: Option<Offered>,
    /// When it ends. All but a run's only phase end by time.
    pub(crate) length: Length,
}

/// The timetable of an open loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Offered {
    /// Requests per second, over all connections. More than zero.
    pub(crate) rate: f64,
    pub(crate) arrivals: Arrivals,
    /// Requests that fall due at once, on one connection. At least one.
    pub(crate) batch: u32,
}

/// How the arrivals of an open loop are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arrivals {
    /// At equal distances, the connections taking turns.
    Fixed,
    /// At random, independent of each other, as the requests of many users are.
    Poisson,
}

/// Connections that read slowly. They are in a closed loop of their own, and in no figure of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlowReaders {
    /// Fewer than all of the connections, by at least one per thread.
    pub(crate) connections: usize,
    /// What each of them reads. At least one.
    pub(crate) bytes_per_second: u32,
}

/// What is sent and expected.
#[derive(Debug, Clone)]
pub(crate) enum Workload {
    /// Messages that must come back unchanged.
    Echo { sizes: Sizes },
    /// `GET path` with the header field `Host: host`, or `POST path` with a body of so many bytes; every reply must
    /// equal the first, and have the body that is expected, if one is.
    Http {
        path: String,
        host: String,
        body: Option<u32>,
        expect: Option<Vec<u8>>,
    },
    /// Streams of messages; `pipeline` is their number on each connection.
    Rpc(RpcStreams),
    /// Datagrams with numbers. They have no connections to open, and no window that is not all of the run.
    Datagrams(Datagrams),
}

impl Plan {
    /// The timetable, if there is one for all of the run.
    pub(super) fn offered(&self) -> Option<Offered> {
        match self.phases[..] {
            [only] => only.offered,
            _ => None,
        }
    }

    /// The length of all phases together.
    pub(super) fn length(&self) -> Length {
        let times = self.phases.iter().map(|phase| match phase.length {
            Length::Time(time) => Ok(time),
            Length::Count(count) => Err(count),
        });
        // Only a single one has a count.
        match times.sum::<Result<Duration, u64>>() {
            Ok(time) => Length::Time(time),
            Err(count) => Length::Count(count),
        }
    }
}

/// How much is measured, or sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Length {
    /// What happens within this time: the replies that arrive, the datagrams that are sent.
    Time(Duration),
    /// It ends once this many requests were answered or lost, or datagrams were sent. Each thread has an equal share.
    Count(u64),
}

impl Length {
    /// It, if it is a time.
    pub(super) fn time(self) -> Option<Duration> {
        match self {
            Length::Time(time) => Some(time),
            Length::Count(_) => None,
        }
    }

    /// The share of thread number `index` of `threads`, if it is a count.
    pub(super) fn share(self, threads: usize, index: usize) -> Option<u64> {
        let (threads, index) = (threads as u64, index as u64);
        match self {
            Length::Time(_) => None,
            Length::Count(count) => Some(count / threads + u64::from(index < count % threads)),
        }
    }

    /// The part of it that is over after so many nanoseconds, in which so much was done, from 0 to 1.
    pub(super) fn fraction(self, elapsed: u64, done: u64) -> f64 {
        let fraction = match self {
            Length::Time(time) => elapsed as f64 / nanoseconds(time).max(1) as f64,
            Length::Count(count) => done as f64 / count.max(1) as f64,
        };
        fraction.min(1.0)
    }
}

/// Refuses local addresses of another family than the server's.
pub(super) fn check_sources(sources: &[IpAddr], target: SocketAddr) -> Result<(), String> {
    match sources.iter().find(|source| source.is_ipv4() != target.is_ipv4()) {
        Some(source) => Err(format!(
            "--source {source} and {target} are not of the same kind: both must be IPv4 or IPv6"
        )),
        None => Ok(()),
    }
}

/// The share of number `index` (from 0) when `total` is divided among `parts`, as equally as can be.
pub(super) fn share(total: usize, parts: usize, index: usize) -> usize {
    total / parts + usize::from(index < total % parts)
}
