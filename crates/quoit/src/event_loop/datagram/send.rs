//! Sending datagrams: queueing, one batch in flight, outcomes, water marks.

use super::Phase;
use super::queue::{Outcome, is_of_network};
use crate::command::Payload;
use crate::datagram::DatagramSend;
use crate::engine::{DatagramBatch, Engine, SendManner};
use crate::errno::Errno;
use crate::event::{DatagramError, Event, Refusal};
use crate::event_loop::Loop;
use crate::id::{DatagramSocketId, Slot, Token};
use crate::sys::{DatagramFamily, SocketSys};

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Queues a datagram, or several of one size to one peer. All that is queued for a socket by the next turn leaves
    /// together, in order as far as the kernel keeps one.
    ///
    /// Copied bytes are taken before this returns. Lent memory stays in use until [`Event::DatagramSent`] with the
    /// datagram's token, or [`Event::DatagramClosed`].
    ///
    /// # Errors
    /// - [`Refusal::Full`]: a copied send would take the queue past its high-water mark, or a lent one finds it there, or
    ///   as many are queued as may be. [`Event::DatagramWritable`] follows.
    /// - [`Refusal::TooLarge`]: a copied send larger than the high-water mark.
    /// - [`Refusal::Closing`], [`Refusal::Stale`].
    /// - [`Refusal::Error`]: `EDESTADDRREQ` without an address on a socket without a peer, `EINVAL` for an address
    ///   that has no form for the kernel or segments of no size.
    pub fn send_datagram(
        &mut self,
        socket: DatagramSocketId,
        datagram: DatagramSend<'_>,
    ) -> Result<(), Refusal> {
        let state = self.find_datagram(socket)?;
        if state.phase != Phase::Open {
            return Err(Refusal::Closing);
        }
        let length = datagram.payload.len();
        if matches!(datagram.payload, Payload::Copy(_)) && !state.queue.can_copy(length) {
            return Err(Refusal::TooLarge);
        }
        let way = state.way();
        if !state
            .queue
            .push(datagram, |heading, datagram| way.write(heading, datagram))?
        {
            state.wants_writable = true;
            state.counters.sends_refused += 1;
            return Err(Refusal::Full);
        }
        state.wants_writable |= state.queue.is_full();
        state.set_idle(false);
        if !std::mem::replace(&mut state.dirty, true) {
            self.dirty_datagrams.push(socket.slot());
        }
        Ok(())
    }

    /// Bytes queued for sending on a datagram socket; 0 for a stale id.
    #[must_use]
    pub fn queued_datagrams(&self, socket: DatagramSocketId) -> usize {
        self.look_up_datagram(socket)
            .map_or(0, |state| state.queue.queued())
    }

    /// Whether a datagram socket's queue takes no more now: then [`Event::DatagramWritable`] follows when it has drained.
    /// False for a stale id.
    #[must_use]
    pub fn is_datagram_full(&self, socket: DatagramSocketId) -> bool {
        self.look_up_datagram(socket)
            .is_some_and(|state| state.queue.is_full())
    }

    /// Sends what is queued for a socket that was listed for it, if nothing is in flight.
    #[inline]
    pub(super) fn flush_datagrams(&mut self, slot: Slot) {
        let Some((state, generation)) = self.datagrams.at(slot) else {
            return;
        };
        state.dirty = false;
        if state.sending || state.phase == Phase::Ending || state.queue.is_empty() {
            return;
        }
        // Another thread was told in place of its send what the network has answered an earlier datagram with.
        if let Some(errno) = state.take_answer() {
            state.counters.send_errors += 1;
            self.events.push_back(Event::DatagramError {
                socket: DatagramSocketId::new(self.index, slot, generation),
                error: DatagramError::Network(errno),
            });
        }
        let mut batch = state.spare.take().expect("the only batch is not in flight");
        let addressed = state.queue.fill(self.now, &mut batch);
        state.sending = true;
        state.counters.send_batches += 1;
        let manner = if state.family != DatagramFamily::Unix {
            SendManner::Waiting
        } else if state.connected && !addressed {
            // Unix sockets keep an order, and their users count on it.
            SendManner::InOrder
        } else {
            // A Unix socket that this one is not connected to says nothing when it has room again.
            SendManner::AtOnce
        };
        debug_assert!(
            self.owner.is_some(),
            "a turn sends, or a loop that parks after one"
        );
        let memory = &mut self.memory;
        let sent = self.engine.send_datagrams(slot, batch, manner, &mut memory.pool);
        if let Some(batch) = sent {
            self.on_datagrams_sent(slot, batch);
        }
    }

    /// As [`Loop::on_datagrams_sent`], of those of which some had to wait.
    #[cold]
    pub(in crate::event_loop) fn on_waiting_datagrams_sent(&mut self, slot: Slot, batch: Box<DatagramBatch>) {
        self.on_datagrams_sent(slot, batch);
    }

    /// All of a batch have a result.
    #[inline(always)]
    fn on_datagrams_sent(&mut self, slot: Slot, batch: Box<DatagramBatch>) {
        if !batch.results.is_empty() {
            self.look_for_answers(slot, &batch);
        }
        let index = self.index;
        let (state, generation) = self
            .datagrams
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        let id = DatagramSocketId::new(index, slot, generation);
        debug_assert!(state.sending);
        state.sending = false;
        let ending = state.phase == Phase::Ending;
        let queues_errors = state.queues_errors;
        let by_network = state.family != DatagramFamily::Unix;
        let events = &mut self.events;
        // Nor is one made again at an end, when what it was told of is not read any more.
        let is_cut_short = |errno| errno == Errno::ECANCELED || queues_errors && is_of_another(errno);
        let mut errors = 0;
        let tally = state.queue.complete(self.now, &batch, |outcome| {
            errors += u64::from(outcome.error.is_some());
            // What an end has cut short is told by that.
            if !(ending && outcome.error.is_some_and(is_cut_short)) {
                events.push_back(report(id, outcome, by_network));
            }
        });
        state.spare = Some(batch);
        let counters = &mut state.counters;
        counters.send_errors += errors;
        counters.sent += tally.datagrams;
        counters.sent_bytes += tally.bytes;
        counters.sends += tally.messages;
        counters.segmentation_refused += tally.uncut;
        if state.phase == Phase::Open && state.wants_writable && state.queue.has_drained() {
            state.wants_writable = false;
            self.events.push_back(Event::DatagramWritable { socket: id });
        }
        let (empty, phase) = (state.queue.is_empty(), state.phase);
        state.set_idle(empty && phase == Phase::Open);
        if !empty {
            if !std::mem::replace(&mut state.dirty, true) {
                self.dirty_datagrams.push(slot);
            }
        } else if phase == Phase::Draining {
            self.end_datagram(slot, None);
        }
        if phase == Phase::Ending {
            self.finish_datagram_if_quiet(slot);
        }
    }

    /// Not all of a batch has left at once: what the network has answered may be why, and is told first.
    #[cold]
    fn look_for_answers(&mut self, slot: Slot, batch: &DatagramBatch) {
        let Some((state, _)) = self.datagrams.at(slot) else {
            return;
        };
        let mut failures = batch.results.iter().filter_map(|result| (*result)?.err());
        if state.queues_errors
            && state.phase != Phase::Ending
            && (batch.may_have_missed || failures.any(is_of_another))
        {
            self.tell_unreachable(slot);
        }
    }
}

/// Whether a send may be told so of what became of an earlier one, in place of being made.
fn is_of_another(errno: Errno) -> bool {
    is_of_network(errno) || errno == Errno::EMSGSIZE
}

/// The event that tells of the end of a send, which a network may have brought or not.
fn report(socket: DatagramSocketId, outcome: Outcome, by_network: bool) -> Event {
    let Outcome {
        token,
        length: size,
        error,
    } = outcome;
    let error = match error {
        Some(errno) if token == Token::NONE => errno,
        _ => {
            return Event::DatagramSent {
                socket,
                token,
                result: error.map_or(Ok(size), Err),
            };
        }
    };
    let error = match error {
        Errno::EMSGSIZE => DatagramError::TooLarge { size },
        // An error that an earlier one met, which the kernel returns in place of sending this one.
        errno @ Errno::ECONNREFUSED if by_network => DatagramError::Network(errno),
        errno => DatagramError::Send { errno, size },
    };
    Event::DatagramError { socket, error }
}
