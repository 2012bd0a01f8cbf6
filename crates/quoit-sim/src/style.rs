//! How a handler of events treats what it serves.

/// How a handler treats one connection, or one datagram socket.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Chances, out of 1,024, with each piece of data: that it is sent back, kept, or given to another thread.
    pub echo: u32,
    /// See `echo`.
    pub keep: u32,
    /// See `echo`.
    pub elsewhere: u32,
    /// Chance of something being sent on an occasion.
    pub talk: u32,
    /// Bytes of one send, at most.
    pub longest: u64,
    /// Chance of a command that changes the connection's state on an occasion.
    pub meddle: u32,
    /// Chance that such a command ends it.
    pub end: u32,
}
