//! Streams of messages with credit, in the wire format of [`quoit_workload::rpc`].
//!
//! What pacing begins is a stream; what is completed and counted is messages, which the server sends. A message is completed
//! when it has arrived whole and right, and carries its latency with it, as the time at which it was sent. The format
//! has streams of messages that the client sends, too, which no measurement needs.

mod arguments;
mod connection;
mod report;
mod stream;

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
#[cfg(test)]
mod tests;

use quoit_workload::rpc::frame::Pace;

use super::protocol::{Outcomes, Protocol, Then};
pub(crate) use arguments::RpcArguments;
use connection::RpcState;
pub(crate) use report::RpcReport;

/// The streams that are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RpcStreams {
    /// Messages per stream; 0: it is endless.
    pub(crate) messages: u64,
    /// Bytes of a message: from [`quoit_workload::rpc::MIN_MESSAGE`] to [`quoit_workload::rpc::MAX_MESSAGE`].
    pub(crate) size: u32,
    /// Messages that the server may send ahead on a stream. At least one.
    pub(crate) credit: u32,
    /// `None`: the server sends as fast as credit allows.
    pub(crate) pace: Option<Pace>,
    /// Whether the server's messages carry their send time.
    pub(crate) timed: bool,
}

impl RpcStreams {
    /// Messages after which a stream ends.
    fn most(&self) -> u64 {
        match self.messages {
            0 => u64::MAX,
            messages => messages,
        }
    }

    /// What is checked before a run: one message, at once.
    pub(crate) fn single(&self) -> Self {
        Self {
            messages: 1,
            pace: None,
            ..*self
        }
    }
}

/// Opens streams, grants credit and checks messages.
#[derive(Debug, Clone)]
pub(crate) struct Rpc {
    streams: RpcStreams,
    /// Streams at once on a connection.
    concurrent: u32,
}

impl Rpc {
    /// `concurrent`: streams at once on a connection, as pacing will have it. At least one.
    pub(crate) fn new(streams: RpcStreams, concurrent: u32) -> Self {
        Self { streams, concurrent }
    }
}

impl Protocol for Rpc {
    type State = RpcState;

    const ONE_UNIT_EACH: bool = false;

    fn connection(&self, id: u32, now: u64) -> RpcState {
        RpcState::new(id, self.concurrent, now)
    }

    fn begin(&mut self, state: &mut RpcState, start: u64, output: &mut Vec<u8>) {
        state.open(&self.streams, start, output);
    }

    fn respond(&mut self, state: &mut RpcState, output: &mut Vec<u8>) {
        state.grant(&self.streams, output);
    }

    fn wind_down(&mut self, state: &mut RpcState, output: &mut Vec<u8>) {
        state.cancel_all(output);
    }

    fn take(&mut self, state: &mut RpcState, input: &[u8], now: u64, outcomes: &mut impl Outcomes) -> Then {
        state.take(&self.streams, input, now, outcomes)
    }

    fn outstanding(&self, state: &RpcState) -> u32 {
        state.open_streams()
    }

    fn waiting_since(&self, state: &RpcState) -> Option<u64> {
        // Between two batches the server owes nothing.
        let quiet = self.streams.pace.map_or(0, |pace| pace.period);
        (state.open_streams() > 0).then(|| state.heard().saturating_add(quiet))
    }

    fn withdraw(&mut self, state: &mut RpcState, each: &mut impl FnMut(u64, u32)) {
        state.withdraw(each);
    }
}
