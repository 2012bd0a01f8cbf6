//! What a run is to do.

use std::time::Duration;

use super::rpc::RpcStreams;
use super::target::Target;

/// One run: where, what, how much and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The server.
    pub(crate) target: Target,
    /// What is sent and expected.
    pub(crate) workload: Workload,
    /// Connections kept open, over all threads. At least one, and at least one a thread.
    pub(crate) connections: usize,
    /// Requests kept outstanding on each connection. At least one.
    pub(crate) pipeline: u32,
    /// Threads that generate the load, each with its share of the connections. At least one.
    pub(crate) threads: usize,
    /// The length of the measured window.
    pub(crate) length: Length,
    /// Load before the measured window, which is discarded (errors in it are counted all the same).
    pub(crate) warmup: Duration,
    /// The longest wait for a connection to open or for a reply. More than zero.
    pub(crate) timeout: Duration,
}

/// What is sent and expected.
#[derive(Debug, Clone)]
pub(crate) enum Workload {
    /// Messages of `size` bytes that must come back unchanged.
    Echo { size: usize },
    /// `GET path` with the header field `Host: host`; every reply must equal the first.
    Http { path: String, host: String },
    /// Streams of messages; `pipeline` is their number on each connection.
    Rpc(RpcStreams),
}

/// The length of the measured window.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Length {
    /// Replies that arrive within this time are counted.
    Time(Duration),
    /// The window ends once this many requests were answered or lost. Each thread has an equal share.
    Requests(u64),
}
