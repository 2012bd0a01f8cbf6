//! Looking after connections of which nothing is heard, and after memory: once a second, as long as there is something to
//! look at.
//!
//! A connection that is paused, or has as much of the memory as it may, receives nothing, so that nothing tells of its
//! peer's reset; and a peer that takes nothing holds what is queued for it for as long as it likes.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::connection::{Connection, Phase, ReceiveSide};
use super::{Loop, TimerKey};
use crate::engine::Engine;
use crate::event::CloseReason;
use crate::id::{ConnectionId, Slot};
use crate::sys::SocketSys;

/// Time between two inspections.
const INTERVAL: Duration = Duration::from_secs(1);

/// The stall limit, at most, once the memory is exhausted and nobody can be served until some is given back.
const LIMIT_OF_EXHAUSTION: Duration = Duration::from_secs(5);

/// A connection whose peer takes nothing, while memory is short.
struct Stalled {
    id: ConnectionId,
    inspections: u32,
    bytes: u64,
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Makes sure that there is an inspection within the interval.
    pub(super) fn inspect_soon(&mut self) {
        if self.inspection.is_none() {
            self.inspection = self.set_timer(INTERVAL, TimerKey::Inspection);
        }
    }

    pub(super) fn inspect(&mut self) {
        self.inspection = None;
        let mut again = self.find_resets();
        if self.is_short() {
            again = true;
            self.close_stalled();
        }
        let chunks = &mut self.memory.chunks;
        if chunks.is_mostly_unused() {
            chunks.trim();
        }
        if again {
            self.inspect_soon();
        }
    }

    /// Whether so much of the loop's memory is in use that somebody may have to go.
    pub(super) fn is_short(&self) -> bool {
        let memory = &self.memory;
        !self.chunk_waiters.is_empty() || memory.is_short() || memory.chunks.budget() / 2 < self.queue_load
    }

    /// Ends connections that have been reset while nothing was received for them. Returns whether there are any of which that
    /// would have to be found.
    fn find_resets(&mut self) -> bool {
        let (mut slots, mut polled) = (Vec::new(), Vec::new());
        for (slot, generation) in self.connections.slots() {
            if let Some(connection) = self.connections.get(slot, generation)
                && is_deaf(connection)
                && let Some(socket) = &connection.descriptor
            {
                slots.push(slot);
                polled.push(libc::pollfd {
                    fd: socket.as_raw_fd(),
                    // Errors are told of whatever is asked for.
                    events: 0,
                    revents: 0,
                });
            }
        }
        if !slots.is_empty() {
            self.counters.system_calls.add(1);
            // If it fails, the next one may not.
            let _ = self.system.poll_now(&mut polled);
            for (one, &slot) in polled.iter().zip(&slots) {
                if one.revents & libc::POLLERR != 0 {
                    self.on_reset_found(slot);
                }
            }
        }
        !slots.is_empty()
    }

    /// The socket of a connection for which nothing is received has failed. It ends, unless something came before that the
    /// handler has not seen: that waits until it is received for again, and the end behind it.
    fn on_reset_found(&mut self, slot: Slot) {
        self.check_paused(slot);
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        if !connection.inbound.is_empty() || self.has_unread(slot) {
            return;
        }
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        let Some(socket) = &connection.descriptor else {
            return;
        };
        self.counters.system_calls.add(1);
        let error = self.system.take_error(socket.as_raw_fd());
        self.end(
            slot,
            error.map_or(CloseReason::Reset, CloseReason::from_errno),
            false,
        );
    }

    /// Whether the kernel has received something that was not received from it.
    pub(super) fn has_unread(&mut self, slot: Slot) -> bool {
        let Some((connection, _)) = self.connections.at(slot) else {
            return false;
        };
        let Some(socket) = &connection.descriptor else {
            return false;
        };
        self.counters.system_calls.add(1);
        self.system.unread(socket.as_fd()).unwrap_or(0) > 0
    }

    /// Closes connections whose peers have taken nothing for too long, those that have been so for longest first, until memory
    /// is not short any more.
    fn close_stalled(&mut self) {
        let limit = if self.memory.is_exhausted() {
            self.config.stall_limit.min(LIMIT_OF_EXHAUSTION)
        } else {
            self.config.stall_limit
        };
        let most = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        let mut stalled = Vec::new();
        let slots: Vec<_> = self.connections.slots().collect();
        for (slot, generation) in slots {
            let Some(connection) = self.connections.get_mut(slot, generation) else {
                continue;
            };
            let bytes = held_bytes(connection, self.config.receive_slot_size);
            let (Phase::Open | Phase::Draining, 1.., Some(socket)) =
                (connection.phase, bytes, &connection.descriptor)
            else {
                connection.progress.inspect_idle();
                continue;
            };
            self.counters.system_calls.add(1);
            let inspections = connection
                .progress
                .inspect(self.system.taken_by_peer(socket.as_fd()));
            if inspections > most {
                stalled.push(Stalled {
                    id: ConnectionId::new(self.index, slot, generation),
                    inspections,
                    bytes,
                });
            }
        }
        stalled.sort_by_key(|one| std::cmp::Reverse((one.inspections, one.bytes)));
        // What they hold comes back in the turns that follow: half of the budget, or of the pool.
        let enough = self.memory.chunks.budget() / 2;
        let mut freed = 0;
        for one in stalled {
            if freed >= enough {
                return;
            }
            freed += one.bytes;
            self.counters.stalled_closed.add(1);
            self.end(one.id.slot(), CloseReason::Limit, true);
        }
    }
}

/// Whether nothing would tell of a connection's failure.
fn is_deaf(connection: &Connection) -> bool {
    connection.phase == Phase::Open
        && !connection.operations.receive
        && !connection.operations.send
        && connection.receive_side == ReceiveSide::Open
}

/// Bytes of the loop's memory, or of memory that was lent to it, that a connection holds.
fn held_bytes(connection: &Connection, slot_size: u32) -> u64 {
    let holdings = &connection.holdings;
    connection.outbound.queued() as u64 + holdings.copied + u64::from(holdings.slots) * u64::from(slot_size)
}
