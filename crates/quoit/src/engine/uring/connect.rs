//! Accepting and connecting.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use linux_raw_sys::io_uring as abi;

use super::UringEngine;
use super::entry;
use super::sys::UringSys;
use super::user_data::{Tag, UserData};
use crate::address::SocketAddress;
use crate::engine::{Completion, Completions, is_of_one_accept};
use crate::errno::Errno;
use crate::id::Slot;
use crate::pool::Pool;
use crate::sys::SocketSys;

/// Connections that are accepted at once where the kernel is asked for one.
const ACCEPTS_AT_ONCE: u32 = 64;

impl<S: UringSys, K: SocketSys> UringEngine<S, K> {
    pub(super) fn start_accept(&mut self, listener: Slot, descriptor: RawFd, limit: u32, pool: &mut Pool) {
        debug_assert!(limit > 0);
        let multishot = self.accepts_multishot && limit >= self.accept_margin;
        let state = self.listeners.get(listener);
        debug_assert!(!state.accepting, "one accept a listener");
        state.accepting = true;
        state.cancelled = false;
        state.left = limit;
        state.descriptor = descriptor;
        state.multishot = multishot;
        self.counters.accept_arms.add(1);
        let data = UserData::new(Tag::Accept, listener, 0);
        self.push(entry::accept(descriptor, multishot, data), pool);
    }

    pub(super) fn accepted(
        &mut self,
        listener: Slot,
        result: i32,
        flags: u32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        let more = flags & abi::IORING_CQE_F_MORE != 0;
        let state = self.listeners.get(listener);
        state.accepting = more;
        let result = if result >= 0 {
            // SAFETY: the kernel has just made this descriptor for the accept, and nothing else knows of it.
            Ok(unsafe { OwnedFd::from_raw_fd(result) })
        } else {
            Err(Errno::new(-result))
        };
        if result.is_ok() {
            debug_assert!(state.left > 0, "more was accepted than was asked for");
            state.left = state.left.saturating_sub(1);
        }
        let stop = more && !state.cancelled && state.left <= self.accept_margin;
        let result = match result {
            Ok(first) if !state.multishot && !state.cancelled && !self.quiescing => {
                self.accept_queued(listener, first, completions)
            }
            result => result,
        };
        completions.push(Completion::Accepted {
            listener,
            result,
            more,
        });
        if stop {
            self.stop_accepting(listener, pool);
        }
    }

    /// Accepts what else is queued behind the `first`, so that a loop which has much to do takes more than one whenever
    /// it comes to an accept. Reports all but the last, and returns that.
    fn accept_queued(
        &mut self,
        listener: Slot,
        first: OwnedFd,
        completions: &mut Completions,
    ) -> Result<OwnedFd, Errno> {
        let state = self.listeners.get(listener);
        let most = state.left.min(ACCEPTS_AT_ONCE - 1);
        // SAFETY: a listener's descriptor stays open until it is closed, which is not done while it accepts.
        let socket = unsafe { BorrowedFd::borrow_raw(state.descriptor) };
        let mut last = Ok(first);
        for _ in 0..most {
            self.counters.system_calls.add(2);
            let next = match self.system.accept_now(socket) {
                Err(Errno::EAGAIN) => break,
                Err(error) if is_of_one_accept(error) => continue,
                next => next,
            };
            let failed = next.is_err();
            completions.push(Completion::Accepted {
                listener,
                result: std::mem::replace(&mut last, next),
                more: true,
            });
            if failed {
                break;
            }
            self.listeners.get(listener).left -= 1;
        }
        last
    }

    /// Cancels an accept, and does not leave that for the next turn: what can still come is then bounded by the
    /// completion queue.
    pub(super) fn stop_accepting(&mut self, listener: Slot, pool: &mut Pool) {
        self.listeners.get(listener).cancelled = true;
        self.push_cancel(UserData::new(Tag::Accept, listener, 0), pool);
        self.flush(pool);
    }

    pub(super) fn start_connect(
        &mut self,
        connection: Slot,
        descriptor: RawFd,
        address: Box<SocketAddress>,
        pool: &mut Pool,
    ) {
        if address.family() == libc::AF_UNIX {
            // Such an attempt ends at once, and a full backlog returns EAGAIN, on every engine alike; io_uring
            // would wait for a place in the backlog.
            self.counters.system_calls.add(1);
            // SAFETY: the descriptor stays open until the operation's completion.
            let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let result = self.system.connect_now(socket, &address);
            self.ready.push_back(Completion::Connected { connection, result });
            return;
        }
        let data = UserData::new(Tag::Connect, connection, 0);
        let entry = entry::connect(descriptor, &address, data);
        let state = self.connections.get(connection);
        debug_assert!(state.connect.address.is_none(), "one connect a connection");
        state.descriptor = descriptor;
        state.connect.cancelled = false;
        state.connect.address = Some(address);
        self.push(entry, pool);
    }

    pub(super) fn connected(&mut self, connection: Slot, result: i32, completions: &mut Completions) {
        let state = self.connections.get(connection);
        debug_assert!(
            state.connect.address.is_some(),
            "a completion belongs to a connect"
        );
        state.connect.address = None;
        let result = if result < 0 {
            Err(Errno::new(-result))
        } else {
            Ok(())
        };
        completions.push(Completion::Connected { connection, result });
    }
}
