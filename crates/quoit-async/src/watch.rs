//! The loop's descriptor under tokio's poller.

#![expect(
    unsafe_code,
    reason = "tokio has the caller answer for a descriptor that somebody else owns"
)]

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A loop's descriptor, which the loop keeps open.
#[derive(Debug)]
pub(crate) struct Watched(RawFd);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Has tokio's poller watch the descriptor of a loop. The loop must outlive the runtime.
pub(crate) fn watch(descriptor: RawFd) -> io::Result<AsyncFd<Watched>> {
    // SAFETY: the descriptor is the loop's own, which closes it when it is dropped, and `Watched` always returns the same one.
    // `serve::run` drops the runtime, and all that is registered with it, before the loop.
    let watched = unsafe { AsyncFd::register_with_interest(Watched(descriptor), Interest::READABLE) };
    watched.map_err(io::Error::from)
}
