//! What is queued leaves: one operation in flight for each connection, and what becomes of it.

use std::os::fd::AsRawFd;

use super::Loop;
use super::connection::{Phase, ReceiveSide, SendSide};
use super::teardown::survives;
use crate::engine::{Engine, Gather, Operation, SendMode};
use crate::errno::Errno;
use crate::event::{CloseReason, Event};
use crate::id::{ConnectionId, Slot, Token};
use crate::outbound::Batch;
use crate::sys::SocketSys;

/// Gathers kept for later sends.
const SPARE_GATHERS: usize = 64;

/// Whether `sendfile(2)` failed for the file, which cannot be read, or not so. Want of memory is the socket's as well.
fn is_of_file(errno: Errno) -> bool {
    matches!(
        errno.code(),
        libc::EINVAL
            | libc::EIO
            | libc::EBADF
            | libc::EOVERFLOW
            | libc::ESPIPE
            | libc::EISDIR
            | libc::EACCES
            | libc::ESTALE
            | libc::EOPNOTSUPP
            | libc::ENOSYS
    )
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Submits what is queued for the connections that have something new.
    pub(super) fn flush_dirty(&mut self) {
        if self.direct.is_lent() {
            let memory = &self.memory;
            self.direct.note_sends(self.dirty.len(), &memory.remote);
        }
        let count = self.dirty.len();
        for index in 0..count {
            self.flush(self.dirty[index]);
        }
        // What flushing itself made dirty is for the next turn, which does not wait.
        if self.dirty.len() == count {
            self.dirty.clear();
        } else {
            self.dirty.drain(..count);
        }
    }

    /// Submits what is queued for a connection that was listed for it.
    fn flush(&mut self, slot: Slot) {
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        connection.listed.dirty = false;
        let flushing = matches!(connection.phase, Phase::Open | Phase::Draining);
        if !flushing || connection.operations.send || connection.send_side.has_ended() {
            return;
        }
        let mut at_once = false;
        if connection.is_lent {
            if let Some(errno) = self.direct.take_error(slot) {
                // The kernel has told it to the thread that sent, and tells nobody else.
                connection.operations.send = true;
                return self.on_sent(slot, Err(errno), None, false);
            }
            // The result of what is submitted may not be known until the loop wakes the next time, and until then no other
            // thread sends. By a call it is.
            at_once = self.direct.take_missed(slot);
        }
        let memory = &self.memory;
        match connection.outbound.next_copied(&memory.chunks) {
            Some(batch) => self.send_batch(slot, batch, at_once),
            None => self.flush_list(slot, at_once),
        }
    }

    /// Submits what is queued for a connection that has something else than one copied chunk.
    #[inline(never)]
    fn flush_list(&mut self, slot: Slot, at_once: bool) {
        let Some((connection, generation)) = self.connections.at(slot) else {
            return;
        };
        let memory = &mut self.memory;
        let next = connection
            .outbound
            .next_batch(&memory.chunks, &mut self.spare_gathers);
        if let Some(batch) = next {
            return self.send_batch(slot, batch, at_once);
        }
        let id = ConnectionId::new(self.index, slot, generation);
        let acknowledged = connection.outbound.sent(0, false, &mut memory.chunks);
        self.acknowledge(id, acknowledged);
        // Sends of no bytes may have filled the queue by their number.
        self.after_room(id);
        self.after_flush(slot);
    }

    /// Gives a connection's next operation to the engine. `at_once`: by a call, however small it is.
    // Inlined, as where there is one chunk nearly all is known of it.
    #[inline(always)]
    fn send_batch(&mut self, slot: Slot, batch: Batch, at_once: bool) {
        let threshold = self.zero_copy_threshold();
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        let memory = &mut self.memory;
        let descriptor = connection
            .descriptor
            .as_ref()
            .expect("present until closed")
            .as_raw_fd();
        connection.operations.send = true;
        match batch {
            Batch::Memory {
                mut message,
                bytes,
                quiet,
                in_parts,
            } => {
                let zero_copy = connection.leaves_uncopied(bytes, threshold);
                // A socket that has just taken a part of something is full.
                let full = std::mem::take(&mut connection.sending.short);
                if !zero_copy && !full && (at_once || self.engine.sends_at_once(bytes, false)) {
                    // A copy: what a call is given to change has to be in memory, on the other way too.
                    let mut whole = message;
                    if let Some(result) = self.engine.send_at_once(slot, descriptor, &mut whole) {
                        connection.sending.short = result.is_ok_and(|taken| taken < bytes);
                        let gather = whole.into_gather();
                        return match result {
                            Ok(bytes @ 1..) if gather.is_none() => self.on_taken(slot, bytes, false),
                            result => self.on_sent(slot, result, gather, false),
                        };
                    }
                    message = whole;
                }
                let unwatched = quiet
                    && connection.send_side == SendSide::Open
                    && !connection.sending.wants_writable
                    && self.chunk_waiters.is_empty();
                let mode = if zero_copy {
                    SendMode::ZeroCopy
                } else if unwatched {
                    SendMode::Quiet
                } else if in_parts {
                    SendMode::InParts
                } else {
                    SendMode::Ordinary
                };
                // Whatever is left behind it will have been cut by a full socket, too.
                connection.sending.short = mode == SendMode::InParts;
                self.engine
                    .send(slot, descriptor, message, mode, &mut memory.pool);
            }
            Batch::File { file, offset, length } => self.submit(Operation::SendFile {
                connection: slot,
                descriptor,
                file,
                offset,
                length,
            }),
        }
    }

    pub(super) fn keep_gather(&mut self, gather: Option<Box<Gather>>) {
        if let Some(gather) = gather
            && self.spare_gathers.len() < SPARE_GATHERS
        {
            self.spare_gathers.push(gather);
        }
    }

    pub(super) fn on_sent(
        &mut self,
        slot: Slot,
        result: Result<usize, Errno>,
        gather: Option<Box<Gather>>,
        held: bool,
    ) {
        self.keep_gather(gather);
        if let Ok(bytes @ 1..) = result {
            return self.on_taken(slot, bytes, held);
        }
        let (connection, generation) = self
            .connections
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        debug_assert!(connection.operations.send);
        let id = ConnectionId::new(self.index, slot, generation);
        connection.operations.send = false;
        connection.operations.notifications += u32::from(held);
        match result {
            Ok(_) if connection.may_tell_short_file() => self.on_short_file(id, None),
            Ok(_) => self.fail_send(slot, Errno::new(libc::ENODATA)),
            Err(Errno::ECANCELED | Errno::EINTR | Errno::EAGAIN) => {
                if matches!(connection.phase, Phase::Open | Phase::Draining) {
                    self.mark_dirty(slot);
                }
            }
            Err(errno) if is_of_file(errno) && connection.may_tell_short_file() => {
                self.on_short_file(id, Some(errno));
            }
            Err(errno) => self.fail_send(slot, errno),
        }
        self.finish_if_quiet(slot);
    }

    /// A send has ended of which the socket has taken some, nearly always all.
    #[inline(always)]
    pub(super) fn on_taken(&mut self, slot: Slot, bytes: usize, held: bool) {
        let (connection, generation) = self
            .connections
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        debug_assert!(connection.operations.send);
        connection.operations.send = false;
        connection.operations.notifications += u32::from(held);
        connection.progress.note();
        let memory = &mut self.memory;
        let before = connection.outbound.queued();
        let acknowledged = connection.outbound.sent(bytes as u64, held, &mut memory.chunks);
        let now = connection.outbound.queued();
        let more = !connection.outbound.is_empty();
        let is_waited_for = connection.sending.wants_writable
            || connection.send_side != SendSide::Open
            || connection.phase != Phase::Open;
        if connection.is_lent {
            self.direct.set_idle(slot, connection.is_idle());
        }
        self.account_drained(before, now);
        // Nearly always nobody is to be told, and nothing follows.
        if more || is_waited_for || acknowledged != Token::NONE {
            self.after_taken(
                ConnectionId::new(self.index, slot, generation),
                acknowledged,
                more,
            );
        }
    }

    #[inline(never)]
    fn after_taken(&mut self, id: ConnectionId, acknowledged: Token, more: bool) {
        self.acknowledge(id, acknowledged);
        self.after_room(id);
        if more {
            self.mark_dirty(id.slot());
        } else {
            self.after_flush(id.slot());
        }
        self.finish_if_quiet(id.slot());
    }

    /// There is no more of the file that is being sent: goes on with what is behind it.
    fn on_short_file(&mut self, id: ConnectionId, error: Option<Errno>) {
        let memory = &mut self.memory;
        let Some(connection) = self.connections.get_mut(id.slot(), id.generation()) else {
            return;
        };
        // Sends of no bytes may be before it.
        let acknowledged = connection.outbound.sent(0, false, &mut memory.chunks);
        let told = connection.outbound.take_short_file();
        let more = !connection.outbound.is_empty();
        self.acknowledge(id, acknowledged);
        if let Some((token, missing)) = told {
            self.events.push_back(Event::FileShort {
                connection: id,
                token,
                missing,
                error,
            });
        }
        self.after_room(id);
        if more {
            self.mark_dirty(id.slot());
        } else {
            self.after_flush(id.slot());
        }
    }

    pub(super) fn on_released(&mut self, slot: Slot, sequence: u32, copied: bool) {
        let (connection, generation) = self
            .connections
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        let id = ConnectionId::new(self.index, slot, generation);
        connection.operations.notifications -= 1;
        connection.sending.zero_copy &= !copied;
        let memory = &mut self.memory;
        let before = connection.outbound.queued();
        let acknowledged = connection.outbound.released(sequence, &mut memory.chunks);
        let now = connection.outbound.queued();
        self.account_drained(before, now);
        self.acknowledge(id, acknowledged);
        self.after_room(id);
        if let Some(connection) = self.connections.get(slot, id.generation())
            && connection.operations.notifications == 0
        {
            let failed = connection.send_side.has_ended() && !connection.outbound.is_empty();
            if connection.both_ended() {
                self.end_both(slot);
            } else if failed {
                // What the failed send could not drop while the kernel held its memory: others may wait for the leases.
                self.drop_queue(slot);
            }
        }
        self.finish_if_quiet(slot);
    }

    /// Tells the handler that lent memory is free, if it wants to know and may still be told.
    fn acknowledge(&mut self, id: ConnectionId, token: Token) {
        let Some(connection) = self.connections.get(id.slot(), id.generation()) else {
            return;
        };
        if token != Token::NONE && connection.phase != Phase::Ending {
            self.events.push_back(Event::Sent {
                connection: id,
                token,
            });
        }
    }

    /// All that was queued is with the kernel: ends the direction if that is wanted.
    pub(super) fn after_flush(&mut self, slot: Slot) {
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        if connection.is_lent {
            self.direct.set_idle(slot, connection.is_idle());
        }
        if connection.send_side != SendSide::Finishing
            || connection.operations.send
            || !connection.outbound.is_empty()
        {
            return;
        }
        connection.send_side = SendSide::Ended;
        let draining = connection.phase == Phase::Draining;
        let both_ended = connection.both_ended();
        if both_ended && connection.operations.notifications == 0 {
            // Closing the descriptor sends the FIN.
            self.end_both(slot);
            return;
        }
        let socket = connection.descriptor.as_ref().expect("present until closed");
        self.counters.system_calls.add(1);
        let result = self.system.shutdown_send(std::os::fd::AsFd::as_fd(socket));
        if both_ended {
            self.end_both(slot);
        } else if result.is_err() && draining {
            // The peer has gone already.
            self.end(slot, CloseReason::Reset, false);
        }
    }

    /// The socket takes no more. What the peer sent before is still delivered, then the connection ends: once the
    /// receive finds the end, also one that waits for leases or pool slots, or for a paused connection to be resumed. Paused
    /// with nothing left to deliver, it ends at once.
    pub(super) fn fail_send(&mut self, slot: Slot, errno: Errno) {
        let reason = CloseReason::from_errno(errno);
        let reset = survives(errno);
        self.check_paused(slot);
        let (connection, generation) = self
            .connections
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        connection.send_side = SendSide::Failed {
            with_pipe: errno == Errno::EPIPE,
        };
        connection.reason.get_or_insert(reason);
        let phase = connection.phase;
        let id = ConnectionId::new(self.index, slot, generation);
        let delivered = connection.paused && connection.inbound.is_empty();
        let undelivered = match connection.receive_side {
            ReceiveSide::Open if delivered && !connection.operations.receive => self.has_unread(slot),
            ReceiveSide::Open => true,
            ReceiveSide::EndHeld(_) => !connection.inbound.is_empty(),
            ReceiveSide::Ending | ReceiveSide::Reported | ReceiveSide::Ended => false,
        };
        match phase {
            Phase::Open if undelivered && !reset => {
                self.events.push_back(Event::SendFailed {
                    connection: id,
                    error: errno,
                });
                // An error of the connection ends the receive at once. Where only the peer's receiving
                // direction is gone (Unix sockets), the peer gets as long as a graceful close.
                self.drop_queue(slot);
                let limit = self.set_timer(self.config.close_deadline, super::TimerKey::Limit(id));
                if let Some((connection, _)) = self.connections.at(slot) {
                    connection.limit = limit;
                }
                // Who waits for room, and so takes nothing of what is held back, learns by the next send.
                self.after_room(id);
            }
            Phase::Ending => {}
            _ => self.end(slot, reason, reset),
        }
    }

    /// Drops all that is queued, if the kernel does not use it.
    pub(super) fn drop_queue(&mut self, slot: Slot) {
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        if connection.operations.is_sending() {
            return;
        }
        let memory = &mut self.memory;
        let before = connection.outbound.queued();
        connection.outbound.clear(&mut memory.chunks);
        self.account_drained(before, 0);
    }
}
