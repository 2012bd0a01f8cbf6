//! Sending: what is queued, and what is given to the kernel at once.

use std::io::IoSlice;
use std::os::fd::AsRawFd;

use super::Loop;
use super::connection::{Connection, Phase};
use crate::command::{FileRange, Payload, RawPieces};
use crate::engine::{Engine, EngineKind, Gather, Message, piece};
use crate::errno::Errno;
use crate::event::Refusal;
use crate::id::{ConnectionId, Slot, Token};
use crate::sys::SocketSys;

/// Lent memory of at most so many bytes, of which nobody wants to hear, is copied: that costs less than keeping
/// account of it, gathers it with its neighbours, and frees it at once.
const SMALL_SEND: usize = 1024;
/// Bytes of one connection that are sent at once in one turn, but for the last call's: what takes about a millisecond, as
/// do the thousand small calls that it comes to. A peer that reads as fast as it is sent to would keep the loop from all
/// others, timers and wakes.
const SHARE_OF_TURN: u32 = 4 << 20;

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Queues bytes. All that is queued for a connection by the next turn leaves together.
    ///
    /// Copied bytes are taken before this returns. Lent memory ([`Payload::Bytes`], [`Payload::Lease`],
    /// [`Payload::Raw`]) stays in use until [`Event::Sent`](crate::Event::Sent) with this or a later token, or `Closed`; without a
    /// token, up to 1 KiB of it is copied all the same, which is cheaper. A send of
    /// no bytes sends nothing, and a lent one is acknowledged in its turn.
    ///
    /// # Errors
    /// - [`Refusal::Full`]: a copied send would take the queue past its high-water mark, or a lent one finds it
    ///   there. [`Event::Writable`](crate::Event::Writable) follows. For copied sends behind others the mark is lower while much is queued on all
    ///   connections of the loop together: an eighth of what is left of three quarters of as many bytes as
    ///   there is memory for copied sends, which copies of what was received take from too, and a chunk at least.
    ///   The last quarter of that memory is for one chunk of each connection that has none: while no more is left, a longer
    ///   copied send is refused, and a part of it is not.
    ///   So it is for [`Loop::is_full`], too, which a handler that lends should ask.
    /// - [`Refusal::TooLarge`]: a copied send larger than the high-water mark, or than all memory for such sends.
    /// - [`Refusal::Error`]: an earlier send failed with this error, as `ECONNRESET` or `EPIPE`. What the peer sent before that
    ///   is still delivered, and `Closed` follows.
    /// - [`Refusal::Closing`]: this end has ended its direction. [`Refusal::Stale`].
    pub fn send<'a>(
        &mut self,
        connection: ConnectionId,
        payload: impl Into<Payload<'a>>,
        token: Token,
    ) -> Result<(), Refusal> {
        let payload = payload.into();
        let length = payload.len();
        let lent = !matches!(payload, Payload::Copy(_));
        let high_water = self.config.high_water as usize;
        let load = self.queue_load;
        if connection.loop_index() != self.index {
            return Err(Refusal::Stale);
        }
        let memory = &mut self.memory;
        let state = self
            .connections
            .get_mut(connection.slot(), connection.generation())
            .ok_or(Refusal::Stale)?;
        state.takes_sends()?;
        if !lent && (length > high_water || length as u64 > memory.chunks.budget()) {
            return Err(Refusal::TooLarge);
        }
        let before = state.outbound.queued();
        let full = if lent {
            before >= high_water
        } else {
            // The first one is not too large, as just seen.
            before > 0 && memory.is_past_mark(before + length, load, high_water)
        };
        if full || state.outbound.pieces() >= self.config.send_pieces as usize {
            return Err(self.refuse_as_full(connection));
        }
        let queued_before = !state.outbound.is_empty();
        let small = token == Token::NONE && length <= SMALL_SEND;
        let wanted = state.outbound.chunks_for(length, &memory.chunks);
        let fits = match (wanted, before) {
            (0, _) => true,
            // One chunk is for everybody as long as there are any.
            (1, 0) => memory.chunks.has_one() || state.promised_chunks() > 0,
            (_, 0) => {
                wanted <= state.promised_chunks() as usize
                    || memory.may_begin_with(wanted, memory.chunks.available())
            }
            _ => wanted <= memory.share_of_chunks(),
        };
        if (!lent || small) && fits {
            state.sending.wants_writable |= state.forget_chunks(&mut memory.chunks);
            state.outbound.push_copy(payload.as_slice(), &mut memory.chunks);
        } else if let Some(lent) = payload.into_lent() {
            state.outbound.push_lent(lent, token);
        } else {
            self.refuse_for_chunks(connection, before == 0, wanted);
            return Err(Refusal::Full);
        }
        self.account_queued(connection.slot(), before, queued_before);
        Ok(())
    }

    /// As [`Loop::send`], for bytes that the peer cannot do without: if they are refused, the connection is aborted
    /// ([`Loop::abort`]), as a gap in its stream would pass for what was meant. Returns whether they were queued. If not,
    /// the connection is ending, and [`Event::Closed`](crate::Event::Closed) is all that is left to wait for.
    ///
    /// Where nothing can be queued any more ([`Refusal::Closing`], [`Refusal::Stale`], [`Refusal::Error`]) it returns false
    /// and does nothing: what was queued before a [`Loop::close`] or [`Loop::shutdown`] still leaves, and what a peer sent
    /// before it broke is still delivered.
    ///
    /// To keep the connection of a slow reader, ask [`Loop::is_full`] after each send, and send no more until
    /// [`Event::Writable`](crate::Event::Writable). Lent memory is refused then only for the number of its pieces
    /// ([`Config::send_pieces`](crate::Config::send_pieces)), and a copy only if it is larger than the mark or there is no
    /// memory for it. [`Loop::send`] tells why it refuses.
    pub fn send_or_abort<'a>(
        &mut self,
        connection: ConnectionId,
        payload: impl Into<Payload<'a>>,
        token: Token,
    ) -> bool {
        match self.send(connection, payload, token) {
            Ok(()) => true,
            Err(Refusal::Closing | Refusal::Stale | Refusal::Error(_)) => false,
            Err(Refusal::Full | Refusal::TooLarge | Refusal::Limit) => {
                // It was open a moment ago, as it was refused for another reason.
                let _ = self.abort(connection);
                false
            }
        }
    }

    /// Gives the kernel as much of `bytes` as it takes at once, and returns how much that is. Nothing is kept: queue
    /// the rest with [`Loop::send`].
    ///
    /// Returns 0 where a call that ends by itself cannot send now, or is not worth its price: behind something that is
    /// queued; while the attempt to connect is under way; if the socket is full; if the connection has had its share of this
    /// turn, 4 MiB with a call as 4 KiB at least, as a peer that reads as fast as it is sent to would keep the loop from all
    /// others; on the io_uring engine for less than 32 KiB, which leave with the turn, for what is to be sent without a copy
    /// ([`Config::zero_copy_threshold`](crate::Config::zero_copy_threshold)), and if the kernel polls for it.
    /// It spares the copy and the account of a queued send, at the price of a system call for
    /// itself: of use for what is all that the connection has to send in this turn, and for what is long.
    ///
    /// # Errors
    /// [`Refusal::Error`] also if it is this send that finds the connection broken; [`Refusal::Closing`],
    /// [`Refusal::Stale`].
    pub fn try_send(&mut self, connection: ConnectionId, bytes: &[u8]) -> Result<usize, Refusal> {
        let mut message = Message::Single {
            address: bytes.as_ptr(),
            // What is past that is for the next call: the kernel takes no more at once either (`write(2)`).
            length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        };
        self.attempt(connection, &mut message, false)
    }

    /// As [`Loop::try_send`], of pieces that leave one behind the other with a single call. Of more than
    /// [`RawPieces::MOST`] it takes the first ones. On the io_uring engine it takes them from 8 KiB on: what does not
    /// leave now, its sender keeps piece by piece until a later turn.
    ///
    /// # Errors
    /// As [`Loop::try_send`].
    pub fn try_send_gathered(
        &mut self,
        connection: ConnectionId,
        pieces: &[IoSlice<'_>],
    ) -> Result<usize, Refusal> {
        let pieces = &pieces[..pieces.len().min(RawPieces::MOST)];
        let mut gather = self.spare_gathers.pop().unwrap_or_else(Gather::new);
        gather.pieces.clear();
        gather
            .pieces
            .extend(pieces.iter().map(|bytes| piece(bytes.as_ptr(), bytes.len())));
        let mut message = Message::Gathered(gather);
        let result = self.attempt(connection, &mut message, true);
        self.keep_gather(message.into_gather());
        result
    }

    /// Sends a message at once, where that can be, and returns how much of it. `in_pieces`: its sender would keep each
    /// piece.
    fn attempt(
        &mut self,
        connection: ConnectionId,
        message: &mut Message,
        in_pieces: bool,
    ) -> Result<usize, Refusal> {
        let slot = connection.slot();
        let length = message.bytes() as usize;
        let threshold = self.zero_copy_threshold();
        let turn = self.counters.turns.get() as u32;
        let state = self.sender(connection)?;
        if state.leaves_uncopied(length, threshold) {
            return Ok(0);
        }
        if length == 0 || state.phase != Phase::Open || state.operations.send || !state.outbound.is_empty() {
            return Ok(0);
        }
        if state.sending.at_once.in_turn(turn) >= SHARE_OF_TURN {
            return Ok(0);
        }
        let descriptor = state
            .descriptor
            .as_ref()
            .expect("present until closed")
            .as_raw_fd();
        if !self.engine.sends_at_once(length, in_pieces) {
            return Ok(0);
        }
        match self.engine.send_at_once(slot, descriptor, message) {
            None => Ok(0),
            Some(Ok(taken)) => {
                if let Some((state, _)) = self.connections.at(slot) {
                    state.sending.at_once.add(taken);
                }
                Ok(taken)
            }
            Some(Err(errno)) => {
                self.fail_send(slot, errno);
                self.finish_if_quiet(slot);
                Err(Refusal::Error(errno))
            }
        }
    }

    /// Queues pieces of lent memory, at most [`RawPieces::MOST`], as one send: they leave one behind the other, stay in
    /// use until [`Event::Sent`](crate::Event::Sent) with this or a later token, or `Closed`, and are accounted for together, which costs a
    /// fraction of as many sends.
    ///
    /// # Errors
    /// As [`Loop::send`] of lent memory; [`Refusal::TooLarge`] for more pieces than that; `EINVAL` for pieces
    /// [with progress](RawPieces::with_progress) whose token is less than their bytes.
    pub fn send_gathered(
        &mut self,
        connection: ConnectionId,
        pieces: RawPieces<'_>,
        token: Token,
    ) -> Result<(), Refusal> {
        if pieces.count() > RawPieces::MOST {
            return Err(Refusal::TooLarge);
        }
        let progress = pieces.tells_progress();
        if progress && token.0 < pieces.bytes() as u64 {
            return Err(Errno::EINVAL.into());
        }
        let high_water = self.config.high_water as usize;
        // As the length, so the number of lent pieces may pass its mark once.
        self.admit(connection, high_water)?;
        let state = self.sender(connection)?;
        let queued_before = !state.outbound.is_empty();
        let before = state.outbound.queued();
        state.outbound.push_gathered(pieces.lent(), token, progress);
        self.account_queued(connection.slot(), before, queued_before);
        Ok(())
    }

    /// What a lent send would be answered now: for who must not lose what it would lend. Refused as full, it is told by
    /// [`Event::Writable`](crate::Event::Writable) as after such a send.
    ///
    /// # Errors
    /// As [`Loop::send`] of lent memory.
    #[doc(hidden)]
    pub fn may_lend(&mut self, connection: ConnectionId) -> Result<(), Refusal> {
        let high_water = self.config.high_water as usize;
        self.admit(connection, high_water)
    }

    /// Queues a file's range, in order with other sends. It counts as one piece and no bytes towards the limits.
    ///
    /// # Errors
    /// As [`Loop::send`]; [`Refusal::Full`] only for the count of pieces.
    pub fn send_file(
        &mut self,
        connection: ConnectionId,
        range: FileRange,
        token: Token,
    ) -> Result<(), Refusal> {
        self.admit(connection, usize::MAX)?;
        self.sender(connection)?.outbound.push_file(range, token);
        self.mark_dirty(connection.slot());
        Ok(())
    }

    /// From how many bytes on a send leaves without a copy; `None`: never, as on epoll.
    pub(super) fn zero_copy_threshold(&self) -> Option<u32> {
        self.config
            .zero_copy_threshold
            .filter(|_| self.engine.kind() == EngineKind::Uring)
    }

    pub(super) fn sender(&mut self, id: ConnectionId) -> Result<&mut Connection, Refusal> {
        let state = self.find(id)?;
        state.takes_sends()?;
        Ok(state)
    }

    pub(super) fn mark_dirty(&mut self, slot: Slot) {
        if let Some((connection, _)) = self.connections.at(slot)
            && !connection.listed.dirty
        {
            connection.listed.dirty = true;
            self.dirty.push(slot);
            if connection.is_lent {
                self.direct.set_idle(slot, false);
            }
        }
    }
}
