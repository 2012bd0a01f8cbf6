//! What a protocol contributes to a run: the requests to send, and the judgement of what comes back.
//!
//! A protocol owns no socket and knows nothing of pacing or time. It is given the byte stream of each
//! connection in whatever pieces the kernel delivers, and must judge the same replies however the stream
//! is cut.

use std::fmt;

/// How requests are made and replies recognised and checked. Each thread has a clone of its own.
pub(crate) trait Protocol: Clone + Send {
    /// What is remembered of one connection, such as how much of a reply has been seen.
    type State: Send;

    /// The state of a new connection. `id` is unique within the run; a reopened connection gets a new one.
    fn connection(&self, id: u32) -> Self::State;

    /// Appends the connection's next request to `output`.
    fn append_request(&self, state: &mut Self::State, output: &mut Vec<u8>);

    /// Consumes bytes of `input` (never empty) up to the end of the reply that is being read.
    ///
    /// Returns how many were consumed, and the judgement if that reply is complete. Without one, all of
    /// `input` was consumed and the reply goes on in the next piece.
    fn take_reply(&mut self, state: &mut Self::State, input: &[u8]) -> (usize, Option<Reply>);
}

/// The judgement of one complete reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// All of it is what was expected. `last`: the server said that it closes the connection after it.
    Right { last: bool },
    /// It is not what was expected.
    Wrong(Box<WrongReply>),
}

impl Reply {
    pub(crate) fn wrong(kind: WrongKind, usable: bool, what: String) -> Self {
        Reply::Wrong(Box::new(WrongReply { kind, usable, what }))
    }
}

/// Why a reply was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrongReply {
    pub(crate) kind: WrongKind,
    /// Whether the next reply's start is still known, so that the connection can go on.
    pub(crate) usable: bool,
    /// What differs, for the report.
    pub(crate) what: String,
}

impl fmt::Display for WrongReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

/// The kinds of wrong replies that a report counts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongKind {
    /// Bytes differ from what was expected, or cannot be understood.
    Content,
    /// An HTTP status other than 200.
    Status,
}
