//! What the events of the loop do to a stream, and what the loop does for it: all on the loop's thread.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use quoit::{CloseReason, ConnectionId, Errno, Lease, Payload, Refusal, Token};

use super::give::give;
use super::{Ending, Failure, Link, MOST_LEFT, Names, Shortfall, State};
use crate::any_loop::AnyLoop;
use crate::lock::lock;

impl Link {
    pub(crate) fn on_opened(&self, (local, peer): Names, wakers: &mut Vec<Waker>) {
        let _ = self.local.set(local);
        let _ = self.peer.set(peer);
        let mut state = lock(&self.state);
        state.opened = true;
        state.writers.take_all(wakers);
    }

    pub(crate) fn on_data(&self, data: Lease, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        if state.dropped.is_some() {
            return;
        }
        state.received.push_back(data);
        state.readers.take_all(wakers);
    }

    pub(crate) fn on_end_of_stream(&self, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.end_of_stream = true;
        state.readers.take_all(wakers);
    }

    pub(crate) fn on_sent(&self, token: Token, event_loop: &mut AnyLoop, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.sent = state.sent.max(token.0);
        if let (Some(behind), Some(id)) = (state.reset_behind, state.id)
            && state.sent >= behind.0
        {
            // It may have ended by itself.
            let _ = event_loop.abort(id);
            return;
        }
        state.writers.take_all(wakers);
    }

    pub(crate) fn on_file_short(
        &self,
        token: Token,
        missing: u64,
        error: Option<Errno>,
        wakers: &mut Vec<Waker>,
    ) {
        let mut state = lock(&self.state);
        state.sent = state.sent.max(token.0);
        if let Some((_, shortfall)) = state.files.iter_mut().find(|(of, _)| *of == token) {
            *shortfall = Some(Shortfall { missing, error });
        }
        state.writers.take_all(wakers);
    }

    pub(crate) fn on_writable(self: &Arc<Self>, event_loop: &mut AnyLoop, wakers: &mut Vec<Waker>) {
        lock(&self.state).full = false;
        self.carry_out(event_loop, wakers);
        let mut state = lock(&self.state);
        if !state.full {
            state.writers.take_all(wakers);
        }
    }

    /// The socket takes no more. What was received is still to be read.
    pub(crate) fn on_send_failed(&self, error: Errno, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        if !std::mem::replace(&mut state.send_failed, true) {
            state.failure = Some(Failure::Errno(error));
        }
        let left = state.take_left();
        state.writers.take_all(wakers);
        drop(state);
        drop(left);
    }

    pub(crate) fn on_closed(&self, reason: CloseReason, wakers: &mut Vec<Waker>) {
        let failure = match reason {
            CloseReason::PeerClosed => None,
            CloseReason::Local => Some(Failure::Aborted),
            CloseReason::Reset => Some(Failure::Errno(Errno::ECONNRESET)),
            CloseReason::Timeout => Some(Failure::Errno(Errno::ETIMEDOUT)),
            CloseReason::Limit => Some(Failure::Limit),
            CloseReason::Error(errno) => Some(Failure::Errno(errno)),
        };
        self.close(failure, wakers);
    }

    /// The loop is gone, and the connection with it.
    pub(crate) fn on_gone(&self, wakers: &mut Vec<Waker>) {
        self.close(Some(Failure::Gone), wakers);
    }

    pub(super) fn close(&self, failure: Option<Failure>, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.closed = true;
        state.id = None;
        // Both directions had ended in their own time, so nothing failed. The end of an attempt always is a failure.
        let ended = state.opened && state.end_of_stream && state.shut_down.is_some();
        // A reset behind the peer's end says no more to who reads (tcp(7): the socket's error is EPIPE then, told to who
        // writes, which is what a closed stream tells anyway).
        let told_anyway = state.end_of_stream && failure == Some(Failure::Errno(Errno::ECONNRESET));
        if !state.send_failed {
            state.failure = failure.filter(|_| !ended && !told_anyway);
        }
        let left = state.take_left();
        state.readers.take_all(wakers);
        state.writers.take_all(wakers);
        drop(state);
        drop(left);
    }

    /// Gives the loop what was left for it.
    pub(crate) fn carry_out(self: &Arc<Self>, event_loop: &mut AnyLoop, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.listed = false;
        let Some(id) = state.id else { return };
        if state.sending && state.dropped != Some(Ending::Abort) {
            // Who sends lists it again.
            return;
        }
        let mut moved = false;
        while !state.full
            && let Some(piece) = state.left.pop_front()
        {
            let before = state.left_bytes;
            let result = give(event_loop, id, piece, &mut state);
            moved |= state.left_bytes < before || result.is_ok();
            if let Err(piece) = result {
                state.left.push_front(piece);
                break;
            }
        }
        if moved && state.left_bytes <= MOST_LEFT / 2 {
            state.writers.take_all(wakers);
        }
        self.carry_out_end(&mut state, event_loop, id, wakers);
    }

    /// Lets the threads that write send by themselves while the loop sleeps. Not before one has written: many connections are
    /// only used on the loop's own.
    pub(crate) fn let_others_send(&self, event_loop: &mut AnyLoop) {
        if self.direct.get().is_some() {
            return;
        }
        let state = lock(&self.state);
        if let Some(id) = state
            .id
            .filter(|_| state.opened && state.shut_down.is_none() && state.dropped.is_none())
            && let Ok(direct) = event_loop.direct_sender(id)
        {
            let _ = self.direct.set(direct);
        }
    }

    /// Ends the connection, or its sending direction, if that is wanted and all before it is with the loop.
    fn carry_out_end(
        &self,
        state: &mut State,
        event_loop: &mut AnyLoop,
        id: ConnectionId,
        wakers: &mut Vec<Waker>,
    ) {
        if state.dropped == Some(Ending::Abort) {
            // It may have ended by itself.
            let _ = event_loop.abort(id);
            return;
        }
        if !state.left.is_empty() {
            return;
        }
        match state.dropped {
            Some(Ending::Close) => {
                let _ = event_loop.close(id, None);
            }
            Some(Ending::Reset) => Self::reset_behind_all(state, event_loop, id),
            None if !state.shut_down_told => {
                if let Some(end) = state.shut_down
                    && Self::mark_end(state, end, event_loop, id)
                {
                    state.shut_down_told = true;
                    let _ = event_loop.shutdown(id);
                    if state.sent >= end.0 {
                        state.writers.take_all(wakers);
                    }
                }
            }
            _ => {}
        }
    }

    /// Has the end be told once the kernel has all before it. Returns false if there is no room for that yet: `Writable` follows.
    fn mark_end(state: &mut State, end: Token, event_loop: &mut AnyLoop, id: ConnectionId) -> bool {
        match event_loop.may_lend(id) {
            Err(Refusal::Full) => {
                state.full = true;
                return false;
            }
            // What was queued is lost, which its last event tells.
            Err(_) => {}
            Ok(()) if event_loop.queued(id) == 0 && state.sent + 1 == end.0 => state.sent = end.0,
            Ok(()) => {
                let _ = event_loop.send(id, Payload::Bytes(Bytes::new()), end);
            }
        }
        true
    }

    /// Resets the connection once the kernel has all that was written: a kernel's socket has had it from the write on.
    fn reset_behind_all(state: &mut State, event_loop: &mut AnyLoop, id: ConnectionId) {
        if state.reset_behind.is_some() {
            return;
        }
        if state.shut_down.is_some() {
            Self::reset_behind_end(state, event_loop, id);
            return;
        }
        if event_loop.queued(id) == 0 {
            let _ = event_loop.abort(id);
            return;
        }
        state.given += 1;
        let behind = Token(state.given);
        // A peer that takes nothing is waited for as long as by a graceful close.
        let within = event_loop.config().close_deadline;
        let bounded = event_loop.set_deadline(id, Some(within));
        let placed = event_loop.send(id, Payload::Bytes(Bytes::new()), behind);
        match placed {
            Ok(()) if bounded.is_ok() => state.reset_behind = Some(behind),
            // Its place is behind a full queue, of whose room `Writable` tells.
            Err(Refusal::Full) if bounded.is_ok() => {}
            // It is ending already, so that nothing can stand behind that: the peer sees that end.
            _ => {
                let _ = event_loop.close(id, None);
            }
        }
    }

    /// Resets the connection behind its own end, which the peer sees first. With something queued before that, it is closed: nothing
    /// tells when the end has left, and the peer is to have all of it.
    fn reset_behind_end(state: &mut State, event_loop: &mut AnyLoop, id: ConnectionId) {
        if !std::mem::replace(&mut state.shut_down_told, true) {
            let _ = event_loop.shutdown(id);
        }
        state.reset_behind = Some(Token(u64::MAX));
        // The end leaves with the turn, and the time is over behind it.
        let at_once = Some(Duration::ZERO);
        if event_loop.queued(id) > 0 || event_loop.set_deadline(id, at_once).is_err() {
            let _ = event_loop.close(id, None);
        }
    }

    /// The time for what is still to be sent of a dropped stream is over.
    pub(crate) fn on_deadline(&self, event_loop: &mut AnyLoop) {
        if let Some(id) = lock(&self.state).id {
            let _ = event_loop.abort(id);
        }
    }

    /// Has the loop do what was just noted: at once on its thread, in its next turn from another.
    pub(super) fn tell(self: &Arc<Self>) {
        let mut wakers = Vec::new();
        let here = self
            .home
            .here(|driver| self.carry_out(&mut driver.event_loop, &mut wakers));
        if here.is_none() {
            self.list(lock(&self.state));
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}
