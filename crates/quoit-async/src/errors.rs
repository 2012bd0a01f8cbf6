//! What failed, as the error of the kind that tokio gives.

use std::io;

use quoit::{ListenError, StartError};

/// The loop is gone: it has ended, or its thread has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone;

impl From<Gone> for io::Error {
    fn from(Gone: Gone) -> Self {
        Self::other("the loop of this socket has ended; keep its runtime for as long as its sockets are used")
    }
}

/// The loop has no place for another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoPlace;

impl From<NoPlace> for io::Error {
    fn from(NoPlace: NoPlace) -> Self {
        Self::new(
            io::ErrorKind::QuotaExceeded,
            "the loop has as many connections as it may; raise `Config::connections`",
        )
    }
}

/// An error of listening, of the kind that tokio's is, with the address and what to do.
pub(crate) fn listen_error(error: ListenError) -> io::Error {
    let kind = match &error {
        ListenError::System { errno, .. } => io::Error::from(*errno).kind(),
        ListenError::Limit { .. } => io::ErrorKind::QuotaExceeded,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

/// A loop that could not be started, as an error of the kind that its cause has.
pub(crate) fn start_error(error: StartError) -> io::Error {
    let kind = match error {
        StartError::Listen(error) => return listen_error(error),
        StartError::Kernel { errno, .. } => io::Error::from(errno).kind(),
        StartError::Config(_) => io::ErrorKind::InvalidInput,
        StartError::Engine { .. } => io::ErrorKind::Unsupported,
    };
    io::Error::new(kind, error)
}
