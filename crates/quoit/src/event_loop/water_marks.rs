//! How much may be queued for sending: the marks, what is refused at them, and who is told when there is room again.

use std::num::NonZeroU32;

use super::Loop;
use super::connection::Phase;
use crate::engine::Engine;
use crate::event::{Event, Refusal};
use crate::id::{ConnectionId, Slot};
use crate::sys::SocketSys;

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Bytes queued for sending on a connection; 0 for a stale id.
    #[must_use]
    pub fn queued(&self, connection: ConnectionId) -> usize {
        self.look_up(connection)
            .map_or(0, |state| state.outbound.queued())
    }

    /// A number that changes whenever the peer takes some of what was sent, as long as more was sent than it has taken: the
    /// bytes that TCP's peer has acknowledged (`tcpi_bytes_acked`), and for Unix sockets those that it has not read
    /// (`SIOCOUTQ`). With it one tells a slow reader from one that does not read, also once all is in the kernel's hands. A
    /// system call. `None` for a stale id.
    #[must_use]
    pub fn taken_by_peer(&self, connection: ConnectionId) -> Option<u64> {
        let socket = self.descriptor(connection)?;
        self.counters.system_calls.add(1);
        Some(self.system.taken_by_peer(socket))
    }

    /// Whether a connection's queue is at or past its mark: then [`Event::Writable`] follows when it has drained. False for
    /// a stale id.
    #[must_use]
    pub fn is_full(&self, connection: ConnectionId) -> bool {
        let mark = self.memory.mark(self.queue_load, self.config.high_water as usize);
        self.look_up(connection).is_some_and(|state| state.is_full(mark))
    }

    /// Refuses a send of lent memory for which there is no room: the queue has `high_water` bytes, or all the pieces it may. Lent memory
    /// may pass the high-water mark once, so that one large send, or what was received before a pause, can always be taken; it is
    /// not the loop's memory.
    #[inline]
    pub(super) fn admit(&mut self, connection: ConnectionId, high_water: usize) -> Result<(), Refusal> {
        let outbound = &self.sender(connection)?.outbound;
        let (queued, pieces) = (outbound.queued(), outbound.pieces());
        if pieces >= self.config.send_pieces as usize || queued >= high_water {
            return Err(self.refuse_as_full(connection));
        }
        Ok(())
    }

    #[cold]
    pub(super) fn refuse_as_full(&mut self, connection: ConnectionId) -> Refusal {
        if let Ok(state) = self.find(connection) {
            state.sending.wants_writable = true;
        }
        self.counters.sends_refused.add(1);
        if self.is_short() {
            self.inspect_soon();
        }
        Refusal::Full
    }

    /// Accounts for bytes that were just queued on a connection, where there were `before`, perhaps behind other sends.
    #[inline(always)]
    pub(super) fn account_queued(&mut self, slot: Slot, before: usize, queued_before: bool) {
        let Some((state, _)) = self.connections.at(slot) else {
            return;
        };
        let memory = &mut self.memory;
        let high_water = self.config.high_water as usize;
        let queued = state.outbound.queued();
        if queued_before {
            self.counters.sends_coalesced.add(1);
        }
        self.counters.queued_bytes.add((queued - before) as u64);
        self.queue_load += (queued.min(high_water) - before.min(high_water)) as u64;
        // It was refused for want of chunks, and then took fewer: it is told as its queue drains. So is one at the mark or past it.
        state.sending.wants_writable |= state.forget_chunks(&mut memory.chunks)
            || memory.is_past_mark(queued + 1, self.queue_load, high_water);
        if !std::mem::replace(&mut state.listed.dirty, true) {
            self.dirty.push(slot);
            if state.is_lent {
                self.direct.set_idle(slot, false);
            }
        }
    }

    /// Accounts for a connection's queue that has so many bytes where it had `before`: no more than that.
    #[inline]
    pub(super) fn account_drained(&mut self, before: usize, now: usize) {
        let high_water = self.config.high_water as usize;
        self.counters.queued_bytes.subtract((before - now) as u64);
        self.queue_load -= (before.min(high_water) - now.min(high_water)) as u64;
    }

    /// Takes note of a send that found no chunks: who has nothing else queued is told once there are enough, and others as
    /// their queues drain.
    #[cold]
    pub(super) fn refuse_for_chunks(&mut self, id: ConnectionId, queue_is_empty: bool, wanted: usize) {
        self.counters.sends_refused.add(1);
        self.inspect_soon();
        let Some(state) = self.connections.get_mut(id.slot(), id.generation()) else {
            return;
        };
        let memory = &mut self.memory;
        state.forget_chunks(&mut memory.chunks);
        if !queue_is_empty {
            state.sending.wants_writable = true;
            return;
        }
        state.sending.wants_chunks = NonZeroU32::new(wanted as u32);
        if !std::mem::replace(&mut state.listed.chunks, true) {
            self.chunk_waiters.push(id);
        }
    }

    /// Keeps the promises of `Writable`, after some of a connection's queue has gone.
    pub(super) fn after_room(&mut self, id: ConnectionId) {
        let low_water = self.config.low_water as usize;
        if let Some(connection) = self.connections.get_mut(id.slot(), id.generation())
            && connection.sending.wants_writable
            && connection.outbound.queued() <= low_water
        {
            connection.sending.wants_writable = false;
            let memory = &mut self.memory;
            connection.forget_chunks(&mut memory.chunks);
            if matches!(connection.phase, Phase::Open | Phase::Connecting) {
                self.events.push_back(Event::Writable { connection: id });
            }
        }
    }

    /// Tells those that were refused for want of send chunks, once there are as many as they wanted. These are set aside:
    /// whoever is reported before would take them otherwise, again and again.
    #[inline]
    pub(super) fn serve_chunk_waiters(&mut self) {
        if self.chunk_waiters.first().is_some() {
            self.serve_first_chunk_waiters();
        }
    }

    #[cold]
    fn serve_first_chunk_waiters(&mut self) {
        while let Some(id) = self.chunk_waiters.first() {
            let memory = &mut self.memory;
            let connection = self.connections.get_mut(id.slot(), id.generation());
            let exists = connection.is_some();
            if let Some(connection) = connection {
                if let Some(wanted) = connection.sending.wants_chunks {
                    if !memory.may_begin_with(wanted.get() as usize, memory.chunks.available()) {
                        return;
                    }
                    // One whose own queue is full as well is told when that has drained.
                    if !connection.sending.wants_writable
                        && matches!(connection.phase, Phase::Open | Phase::Connecting)
                    {
                        memory.chunks.promise(wanted.get());
                        self.events.push_back(Event::Writable { connection: id });
                        self.promised.push_back(Promised {
                            connection: id,
                            reported_with: self.events.end(),
                        });
                    } else {
                        connection.sending.wants_chunks = None;
                    }
                }
                connection.listed.chunks = false;
            }
            self.chunk_waiters.take_first(exists);
        }
    }

    /// Takes back what was set aside for those that were told, and had no use for it.
    pub(super) fn end_promises(&mut self) {
        while let Some(&Promised {
            connection: id,
            reported_with,
        }) = self.promised.front()
            && reported_with <= self.events.taken()
        {
            self.promised.pop_front();
            let memory = &mut self.memory;
            if let Some(connection) = self.connections.get_mut(id.slot(), id.generation())
                && connection.promised_chunks() > 0
            {
                connection.forget_chunks(&mut memory.chunks);
            }
        }
    }
}

/// A connection for which send chunks are set aside until its handler has been told and could take them.
#[derive(Debug)]
pub(super) struct Promised {
    connection: ConnectionId,
    /// It has been told when so many events have been taken out of the queue.
    reported_with: u64,
}
