//! What a stream is ready for, as tokio tells it.

use std::task::{Context, Poll};

use tokio::io::{Interest, Ready};

use super::{Link, State};
use crate::lock::lock;
use crate::waiters::WaiterKey;

impl State {
    /// Of what `interest` asks for. `held`: the reader has bytes of its own.
    fn ready(&self, interest: Interest, held: bool) -> Ready {
        let mut ready = Ready::EMPTY;
        if interest.is_readable() && (held || self.is_readable()) {
            ready |= Ready::READABLE;
        }
        if interest.is_readable() && self.has_received_all() {
            ready |= Ready::READ_CLOSED;
        }
        if interest.is_writable() && self.is_writable() {
            ready |= Ready::WRITABLE;
        }
        if interest.is_writable() && self.sends_no_more() {
            ready |= Ready::WRITE_CLOSED;
        }
        if interest.is_error() && self.failure.is_some() {
            ready |= Ready::ERROR;
        }
        ready
    }
}

impl Link {
    /// Whether it is ready for something of what `interest` asks for, and for what.
    pub(crate) fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        interest: Interest,
        held: bool,
        reads: &mut Option<WaiterKey>,
        writes: &mut Option<WaiterKey>,
    ) -> Poll<Ready> {
        let mut state = lock(&self.state);
        let ready = state.ready(interest, held);
        if !ready.is_empty() {
            return Poll::Ready(ready);
        }
        // Those who wait in either direction are woken when a connection fails.
        let before = [
            (interest.is_readable() || interest.is_error()).then(|| state.readers.wait(reads, cx.waker())),
            interest
                .is_writable()
                .then(|| state.writers.wait(writes, cx.waker())),
        ];
        drop(state);
        drop(before);
        Poll::Pending
    }
}
