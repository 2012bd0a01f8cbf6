//! What the connections of one loop share.

/// Counts over all connections of a loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Streams that are open.
    pub(crate) streams: u64,
    /// Streams opened so far.
    pub(crate) streams_opened: u64,
    /// Streams refused so far.
    pub(crate) streams_refused: u64,
    /// Messages sent whole.
    pub(crate) messages_sent: u64,
    /// Messages received whole.
    pub(crate) messages_received: u64,
    /// Connections that broke the protocol.
    pub(crate) connections_failed: u64,
}

/// What the connections of one loop share: limits, and counts.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Streams that one connection may have open.
    pub(crate) max_streams: usize,
    /// No streams are opened any more.
    pub(crate) draining: bool,
    pub(crate) totals: Totals,
}

impl Environment {
    pub(crate) fn new(max_streams: usize) -> Self {
        Self {
            max_streams,
            draining: false,
            totals: Totals::default(),
        }
    }
}
