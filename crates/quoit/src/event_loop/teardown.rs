//! How connections end: gracefully, by abort, by an error; always in the same three steps. First nothing new is
//! started, then everything in flight ends, then the descriptor is closed and `Closed` reported.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use super::connection::{Phase, ReceiveSide, SendSide};
use super::{Loop, TimerKey};
use crate::engine::{Engine, Handle, Kind, Operation};
use crate::errno::Errno;
use crate::event::{CloseReason, Event, Refusal};
use crate::id::{ConnectionId, Slot};
use crate::sys::SocketSys;

/// Whether a socket goes on after an error, as after want of memory. Then the connection is reset: closed in the
/// ordinary way, its peer would take what was sent so far for all there is.
pub(super) fn survives(errno: Errno) -> bool {
    !matches!(
        errno.code(),
        libc::EPIPE
            | libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::ECONNREFUSED
            | libc::ETIMEDOUT
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::ENOTCONN
    )
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Ends the sending direction after all that is queued. When the peer's direction has ended too, the
    /// connection closes.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if the direction has ended already.
    pub fn shutdown(&mut self, connection: ConnectionId) -> Result<(), Refusal> {
        let state = self.find(connection)?;
        if !matches!(state.phase, Phase::Open | Phase::Connecting) || state.send_side != SendSide::Open {
            return Err(Refusal::Closing);
        }
        state.send_side = SendSide::Finishing;
        state.local |= state.receive_side == ReceiveSide::Open;
        self.mark_dirty(connection.slot());
        Ok(())
    }

    /// Closes gracefully; see [`Command::Close`](crate::Command::Close). An attempt to connect is given up.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if it is being closed already.
    pub fn close(&mut self, connection: ConnectionId, deadline: Option<Duration>) -> Result<(), Refusal> {
        let slot = connection.slot();
        let state = self.find(connection)?;
        match state.phase {
            Phase::Connecting => {
                self.mark_unwanted(slot);
                self.end(slot, CloseReason::Local, false);
                return Ok(());
            }
            Phase::Open => {}
            Phase::Draining | Phase::Ending => return Err(Refusal::Closing),
        }
        state.phase = Phase::Draining;
        state.sending.patient = deadline.is_none();
        let handlers_deadline = state.deadline.take();
        state.local |= state.receive_side == ReceiveSide::Open;
        if state.send_side == SendSide::Open {
            state.send_side = SendSide::Finishing;
        }
        if let ReceiveSide::EndHeld(_) | ReceiveSide::Ending | ReceiveSide::Reported = state.receive_side {
            state.receive_side = ReceiveSide::Ended;
        }
        let both_ended = state.both_ended() && state.operations.notifications == 0;
        self.clear_timer(handlers_deadline);
        self.mark_unwanted(slot);
        self.drop_inbound(slot);
        if both_ended {
            self.end_both(slot);
            return Ok(());
        }
        let deadline = deadline.unwrap_or(self.config.close_deadline);
        // First, as the wheel has room for one limit of each connection.
        let earlier = self.find(connection)?.limit.take();
        self.clear_timer(earlier);
        self.limit_end(connection, deadline, CloseReason::Local);
        self.mark_dirty(slot);
        self.arm_receive(slot);
        Ok(())
    }

    /// Closes now: what is queued is dropped, and the peer sees a reset.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if it is ending already.
    pub fn abort(&mut self, connection: ConnectionId) -> Result<(), Refusal> {
        let established = match self.find(connection)?.phase {
            Phase::Ending => return Err(Refusal::Closing),
            Phase::Connecting => false,
            Phase::Open | Phase::Draining => true,
        };
        self.mark_unwanted(connection.slot());
        self.end(connection.slot(), CloseReason::Local, established);
        Ok(())
    }

    /// Bounds the end of a connection, which has no limit now. For want of a timer it is reset at once, for this reason: the wait
    /// for its peer would have no end.
    fn limit_end(&mut self, id: ConnectionId, within: Duration, reason: CloseReason) {
        let limit = self.set_timer(within, TimerKey::Limit(id));
        match self.connections.get_mut(id.slot(), id.generation()) {
            Some(connection) if limit.is_some() => connection.limit = limit,
            _ => self.end(id.slot(), reason, true),
        }
    }

    /// An attempt or a graceful close has taken too long.
    pub(super) fn on_limit(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id.slot(), id.generation()) else {
            return;
        };
        connection.limit = None;
        let reason = connection.reason.unwrap_or(CloseReason::Timeout);
        let is_patient = connection.sending.patient;
        let is_left = connection.is_left_to_the_kernel();
        let is_held = connection.is_held();
        let phase = connection.phase;
        match phase {
            Phase::Connecting => self.end(id.slot(), reason, false),
            Phase::Draining if is_patient && is_left => self.end(id.slot(), reason, false),
            Phase::Draining if is_patient && self.is_taking(id.slot()) => {
                self.limit_end(id, self.config.close_deadline, reason);
            }
            // Its sends have failed. It is not its peer that is waited for, but that what has come is received.
            Phase::Open if is_held || self.has_unread(id.slot()) => {
                self.limit_end(id, self.config.close_deadline, reason)
            }
            Phase::Open | Phase::Draining => self.end(id.slot(), reason, true),
            Phase::Ending => {}
        }
    }

    /// Whether the peer of a connection that is being closed has taken something since it was looked at last.
    fn is_taking(&mut self, slot: Slot) -> bool {
        let Some((connection, _)) = self.connections.at(slot) else {
            return false;
        };
        let socket = connection.descriptor.as_ref().expect("present until closed");
        self.counters.system_calls.add(1);
        let taken = self.system.taken_by_peer(socket.as_fd());
        connection.progress.has_taken_since(taken)
    }

    /// Ends a connection for which there is no time left: reset, unless only the kernel has something to do for it, which it does
    /// without the process, as for every socket that is closed.
    pub(super) fn cut(&mut self, id: ConnectionId) {
        let is_left = self
            .find(id)
            .is_ok_and(|state| state.phase == Phase::Draining && state.is_left_to_the_kernel());
        if is_left {
            self.end(id.slot(), CloseReason::Local, false);
        } else {
            // One that is ending already is as good.
            let _ = self.abort(id);
        }
    }

    /// Both directions have ended: so does the connection, once all lent memory is acknowledged. For memory that
    /// the kernel sends without a copy that may take a while yet, at most as long as a graceful close.
    pub(super) fn end_both(&mut self, slot: Slot) {
        let Some((connection, generation)) = self.connections.at(slot) else {
            return;
        };
        if !matches!(connection.phase, Phase::Open | Phase::Draining) {
            return;
        }
        debug_assert!(connection.both_ended());
        if connection.operations.notifications == 0 {
            let reason = if connection.local {
                CloseReason::Local
            } else {
                CloseReason::PeerClosed
            };
            self.end(slot, reason, false);
        } else if connection.limit.is_none() {
            let id = ConnectionId::new(self.index, slot, generation);
            self.limit_end(id, self.config.close_deadline, CloseReason::Timeout);
        }
    }

    /// Begins the end: no more deliveries, everything in flight is asked to stop.
    pub(super) fn end(&mut self, slot: Slot, reason: CloseReason, reset: bool) {
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        if connection.phase == Phase::Ending {
            return;
        }
        connection.phase = Phase::Ending;
        connection.reason.get_or_insert(reason);
        if connection.is_lent {
            self.direct.close(slot);
        }
        if reset && let Some(socket) = &connection.descriptor {
            self.counters.system_calls.add(1);
            // Whatever it returns, the connection is gone from here on.
            let _ = self.system.reset(socket.as_fd());
        }
        let operations = connection.operations;
        let timers = (connection.deadline.take(), connection.limit.take());
        let is_paused = connection.paused;
        self.clear_timer(timers.0);
        self.clear_timer(timers.1);
        if is_paused {
            // Nor does it have what was queued when it was paused.
            self.mark_unwanted(slot);
        }
        self.drop_inbound(slot);
        self.cancel_receive(slot);
        if operations.connect {
            self.cancel(Handle::Connection(slot), Kind::Connect);
        }
        if operations.send {
            self.cancel(Handle::Connection(slot), Kind::Send);
        }
        self.finish_if_quiet(slot);
    }

    /// Gives back what was held back, and leaves the cap: nothing more will be delivered.
    fn drop_inbound(&mut self, slot: Slot) {
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        if connection.capped {
            connection.capped = false;
            self.capped -= 1;
        }
        connection.fresh = 0;
        connection.inbound = VecDeque::new();
    }

    /// The last step, once the kernel is done with everything of an ending connection.
    pub(super) fn finish_if_quiet(&mut self, slot: Slot) {
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        if connection.phase != Phase::Ending || !connection.is_quiet() {
            return;
        }
        if connection.is_lent && !self.direct.take_back(slot) {
            return;
        }
        self.drop_queue(slot);
        let (_, generation) = self.connections.at(slot).expect("looked up just now");
        let id = ConnectionId::new(self.index, slot, generation);
        let mut connection = self.connections.take(slot).expect("looked up just now");
        connection.forget_chunks(&mut self.memory.chunks);
        if connection.listed.chunks {
            let connections = &self.connections;
            self.chunk_waiters
                .end_one(|waiting| connections.get(waiting.slot(), waiting.generation()).is_some());
        }
        if self.connections.len() == 0 {
            let inspection = self.inspection.take();
            self.clear_timer(inspection);
        }
        let descriptor = connection.descriptor.take().expect("present until closed");
        self.submit(Operation::Close {
            handle: Handle::Connection(slot),
            descriptor,
        });
        let reason = connection.reason.unwrap_or(CloseReason::Local);
        self.count_close(reason);
        self.show_connections();
        self.events.push_back(Event::Closed {
            connection: id,
            token: connection.token,
            reason,
        });
    }
}
