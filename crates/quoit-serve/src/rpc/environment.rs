//! What the connections of one loop share.

/// Counts over all connections of a loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Streams that are open.
    pub streams: u64,
    /// Streams opened so far.
    pub streams_opened: u64,
    /// Streams refused so far.
    pub streams_refused: u64,
    /// Messages sent whole.
    pub messages_sent: u64,
    /// Messages received whole.
    pub messages_received: u64,
    /// Connections that broke the protocol.
    pub connections_failed: u64,
}

/// What the connections of one loop share: limits, and counts.
#[derive(Debug)]
pub struct Environment {
    /// Streams that one connection may have open.
    pub max_streams: usize,
    /// No streams are opened any more.
    pub draining: bool,
    /// The counts.
    pub totals: Totals,
}

impl Environment {
    /// Without a connection yet.
    pub fn new(max_streams: usize) -> Self {
        Self {
            max_streams,
            draining: false,
            totals: Totals::default(),
        }
    }
}
