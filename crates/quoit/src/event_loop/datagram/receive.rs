//! Receiving datagrams: arming, delivery, pausing, want of slots.

use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

use super::{Phase, State};
use crate::datagram::{CONTROL_OFFSET, Datagrams, Head, Meta, count, parse};
use crate::engine::{DatagramReceived, Engine, FilledBuffer, Handle, Kind, Operation};
use crate::errno::Errno;
use crate::event::{DatagramError, Event, Refusal};
use crate::event_loop::{Loop, TimerKey};
use crate::id::{DatagramSocketId, Slot};
use crate::pool::PoolSlot;
use crate::sys::SocketSys;

/// Before receiving is tried again for which something was wanting.
const RETRY: Duration = Duration::from_millis(10);

/// Entries of an error queue that are read together, so that a storm of errors keeps nobody else waiting.
const ERRORS_AT_ONCE: usize = 64;

impl State {
    /// Takes note of the kernel's count of drops, which goes round. Older news than known are told by going back.
    pub(super) fn note_drops(&mut self, drops: u32) {
        let more = newer(self.drops_seen.unwrap_or_default(), drops);
        if more > 0 {
            self.counters.kernel_drops += u64::from(more);
            self.drops_seen = Some(drops);
        }
    }

    /// Reads what the kernel wrote to a buffer, and makes a view of it.
    // Inlined: there is one caller, and of datagrams there are many.
    #[inline]
    fn take_in(&mut self, buffer: FilledBuffer) -> TakenIn {
        let slot = PoolSlot::new(buffer.id);
        let Some(payload) = buffer.length.checked_sub(self.head) else {
            self.pool.give_back(slot);
            return TakenIn::Nothing;
        };
        self.batch_size += 1;
        let mut lease = self.pool.lease_from(slot, self.head, buffer.length);
        let bytes = lease.slot_start_mut(self.head as usize);
        let head = Head::read(bytes);
        let place = &mut bytes[CONTROL_OFFSET as usize..];
        let datagrams = if head.control == 0 && head.flags == 0 {
            Meta::write_plain(place);
            1
        } else {
            let written = (head.control as usize).min(place.len());
            let received = parse(&place[..written]);
            let flags = head.flags as i32;
            let meta = Meta {
                received,
                truncated: flags & libc::MSG_TRUNC != 0,
                raw: self.raw,
            };
            meta.write(place);
            if let Some(drops) = received.drops {
                self.note_drops(drops);
            }
            if flags & libc::MSG_CTRUNC != 0 {
                self.counters.control_truncated += 1;
                return TakenIn::ControlTruncated;
            }
            self.counters.truncated += u64::from(meta.truncated);
            count(payload as usize, received.segment_size, false)
        };
        self.counters.received += datagrams as u64;
        self.counters.received_bytes += u64::from(payload);
        self.counters.received_buffers += 1;
        TakenIn::Datagrams(Datagrams::new(lease))
    }

    /// What is received in this turn is a batch.
    fn begin_batch(&mut self, turn: u64) {
        if self.batch_turn != turn {
            self.batch_turn = turn;
            self.batch_size = 0;
        }
    }

    /// So many had been in the batch before.
    fn end_batch(&mut self, before: u64) {
        self.counters.receive_batches += u64::from(before == 0 && self.batch_size > 0);
        self.counters.largest_batch = self.counters.largest_batch.max(self.batch_size);
    }
}

/// What was in a buffer.
enum TakenIn {
    Datagrams(Datagrams),
    /// The kernel took it for nothing.
    Nothing,
    /// A datagram whose control messages were cut: what it says of itself is not known.
    ControlTruncated,
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Asks the kernel for its count of drops.
    pub(super) fn look_at_drops(&mut self, slot: Slot) {
        let Some((state, _)) = self.datagrams.at(slot) else {
            return;
        };
        if let Some(descriptor) = &state.descriptor {
            self.counters.system_calls.add(1);
            if let Ok(drops) = self.system.datagram_drops(descriptor.as_fd()) {
                state.note_drops(drops);
            }
        }
    }

    /// Takes returned leases in, and gives the engine all free slots.
    pub(super) fn provide_datagram_slots(&mut self, slot: Slot) {
        let Some((state, _)) = self.datagrams.at(slot) else {
            return;
        };
        if state.pool.has_returns() {
            state.pool.collect(|_, _| ());
            state.pressure_reported = false;
        }
        let room = (state.most_provided - state.provided) as usize;
        let count = state.pool.free().min(room);
        if count == 0 || state.phase != Phase::Open {
            return;
        }
        state.provided += count as u32;
        let length = state.room;
        self.engine
            .provide_datagram_buffers(slot, &mut state.pool, count, length);
    }

    /// Whether receiving goes on by itself: it is armed, and the engine has slots for it.
    #[inline]
    pub(super) fn receives_on(&mut self, slot: Slot) -> bool {
        self.datagrams
            .at(slot)
            .is_none_or(|(state, _)| state.receiving && state.provided > 0)
    }

    /// Arms receiving if the socket may receive now, whatever ended it before: a datagram of no bytes, want of slots, a
    /// full completion queue, a pause, an error. Every turn does this before it waits. One that had no slots left is armed again when a quarter of them is
    /// back, or with `any` as soon as one is; never without one, so that it does not go round for nothing.
    #[cold]
    pub(super) fn arm_datagrams(&mut self, slot: Slot, any: bool) {
        if self
            .datagrams
            .at(slot)
            .is_some_and(|(state, _)| state.provided == 0)
        {
            // The engine may have had all that it holds at once, and not all that there are.
            self.provide_datagram_slots(slot);
        }
        let Some((state, generation)) = self.datagrams.at(slot) else {
            return;
        };
        if state.phase != Phase::Open || state.paused || state.receiving || state.retry.is_some() {
            return;
        }
        if state.provided == 0 {
            let id = DatagramSocketId::new(self.index, slot, generation);
            self.starve_datagrams(id);
            return;
        }
        let most = state.most_provided;
        if state.starved && !any && state.provided < state.pool.slots().div_ceil(4).min(most) {
            return;
        }
        state.starved = false;
        state.receiving = true;
        state.receive_cancelled = false;
        state.counters.arms += 1;
        self.submit(Operation::ReceiveDatagrams { socket: slot });
    }

    /// There is no slot to receive into: waits for some.
    fn starve_datagrams(&mut self, id: DatagramSocketId) {
        let Ok(state) = self.find_datagram(id) else {
            return;
        };
        // One that is closing receives no more, and is told of no pressure.
        if state.phase != Phase::Open {
            return;
        }
        if !std::mem::replace(&mut state.starved, true) {
            state.counters.pauses += 1;
        }
        if state.pool.leased() == state.pool.slots() && !std::mem::replace(&mut state.pressure_reported, true)
        {
            self.events.push_back(Event::DatagramPressure { socket: id });
        }
    }

    pub(super) fn cancel_datagram_receive(&mut self, slot: Slot) {
        let Some((state, _)) = self.datagrams.at(slot) else {
            return;
        };
        if state.receiving && !state.receive_cancelled {
            state.receive_cancelled = true;
            self.cancel(Handle::Datagram(slot), Kind::Receive);
        }
    }

    /// These buffers of the socket's, by number among those of the turn, were received into.
    #[inline]
    pub(in crate::event_loop) fn on_datagrams_filled(&mut self, slot: Slot, run: Range<usize>, more: bool) {
        let run = &self.completions.filled[run];
        let (state, generation) = self
            .datagrams
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        let socket = DatagramSocketId::new(self.index, slot, generation);
        debug_assert!(state.receiving);
        state.provided -= run.len() as u32;
        if state.phase == Phase::Open {
            state.begin_batch(self.counters.turns.get());
            let before = state.batch_size;
            self.events.reserve(run.len());
            for buffer in run {
                match state.take_in(*buffer) {
                    TakenIn::Datagrams(datagrams) => {
                        self.events.push_back(Event::Datagrams { socket, datagrams });
                    }
                    TakenIn::Nothing => {}
                    TakenIn::ControlTruncated => self.events.push_back(Event::DatagramError {
                        socket,
                        error: DatagramError::ControlTruncated,
                    }),
                }
            }
            state.end_batch(before);
            if state.paused {
                self.events.check_queued();
            }
        } else {
            run.iter()
                .for_each(|buffer| state.pool.give_back(PoolSlot::new(buffer.id)));
        }
        if !more {
            state.receiving = false;
            state.receive_cancelled = false;
            self.finish_datagram_if_quiet(slot);
        }
    }

    pub(in crate::event_loop) fn on_datagram_received(
        &mut self,
        slot: Slot,
        received: DatagramReceived,
        more: bool,
    ) {
        let (state, generation) = self
            .datagrams
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        let id = DatagramSocketId::new(self.index, slot, generation);
        debug_assert!(state.receiving);
        if !more {
            state.receiving = false;
            state.receive_cancelled = false;
        }
        match received {
            // The next turn knows whether all slots are held, or were taken by what has come at once and are back.
            DatagramReceived::Stopped => {}
            DatagramReceived::Marked => self.tell_unreachable(slot),
            DatagramReceived::Error(errno) => self.on_datagram_failure(id, errno),
        }
        if !more {
            self.finish_datagram_if_quiet(slot);
        }
    }

    fn on_datagram_failure(&mut self, id: DatagramSocketId, errno: Errno) {
        let Ok(state) = self.find_datagram(id) else {
            return;
        };
        if state.phase != Phase::Open {
            return;
        }
        if state.queues_errors && Failure::of(errno) == Failure::Network {
            // What it is about is in the queue, unless that was read when something else told of it.
            self.tell_unreachable(id.slot());
            return;
        }
        state.counters.receive_errors += 1;
        let error = match Failure::of(errno) {
            Failure::Network => DatagramError::Network(errno),
            Failure::Socket => {
                self.end_datagram(id.slot(), Some(errno));
                return;
            }
            Failure::Moment => {
                let retry = self.set_timer(RETRY, TimerKey::DatagramRetry(id));
                if let Ok(state) = self.find_datagram(id) {
                    state.retry = retry;
                }
                DatagramError::Receive(errno)
            }
        };
        self.events.push_back(Event::DatagramError { socket: id, error });
    }

    /// Tells what the error queue holds, if the socket has one; sends are forgiven for that.
    ///
    /// Where more is left than is read at once, the kernel tells of it anew.
    pub(super) fn tell_unreachable(&mut self, slot: Slot) {
        let Some((state, generation)) = self.datagrams.at(slot) else {
            return;
        };
        let Some(descriptor) = state.descriptor.as_ref().filter(|_| state.queues_errors) else {
            return;
        };
        let id = DatagramSocketId::new(self.index, slot, generation);
        for _ in 0..ERRORS_AT_ONCE {
            self.counters.system_calls.add(1);
            match self.system.datagram_error(descriptor.as_fd()) {
                Ok(Some(unreachable)) => {
                    state.queue.forgive(unreachable.errno());
                    state.counters.receive_errors += 1;
                    if state.phase != Phase::Ending {
                        self.events.push_back(Event::DatagramError {
                            socket: id,
                            error: DatagramError::Unreachable(unreachable),
                        });
                    }
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }

    pub(in crate::event_loop) fn on_datagram_retry(&mut self, id: DatagramSocketId) {
        if let Ok(state) = self.find_datagram(id) {
            state.retry = None;
        }
    }

    /// Delivers no datagrams of a socket until [`Loop::resume_datagrams`]: not what is in flight either, which is kept.
    /// What comes meanwhile waits in the kernel, as far as its memory reaches.
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    pub fn pause_datagrams(&mut self, socket: DatagramSocketId) -> Result<(), Refusal> {
        let state = self.find_datagram(socket)?;
        if std::mem::replace(&mut state.paused, true) {
            return Ok(());
        }
        self.cancel_datagram_receive(socket.slot());
        self.events.check_queued();
        Ok(())
    }

    /// Delivers again, what was kept first.
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    pub fn resume_datagrams(&mut self, socket: DatagramSocketId) -> Result<(), Refusal> {
        self.find_datagram(socket)?;
        self.check_queue();
        let state = self.find_datagram(socket)?;
        state.paused = false;
        let mut held_back = std::mem::take(&mut state.held_back);
        self.events.extend(
            held_back
                .drain(..)
                .map(|datagrams| Event::Datagrams { socket, datagrams }),
        );
        self.find_datagram(socket)?.held_back = held_back;
        Ok(())
    }

    /// Whether receiving is paused; false for a stale id.
    #[must_use]
    pub fn is_datagram_paused(&self, socket: DatagramSocketId) -> bool {
        self.look_up_datagram(socket).is_some_and(|state| state.paused)
    }
}

/// How many drops there were since `seen` of them, of a count modulo 2^32; none if `drops` is the older one.
fn newer(seen: u32, drops: u32) -> u32 {
    let more = drops.wrapping_sub(seen);
    if more <= u32::MAX / 2 { more } else { 0 }
}

/// What a failure of receiving concerns.
#[derive(PartialEq, Eq)]
enum Failure {
    /// Something that was sent before.
    Network,
    /// This moment: it is tried again.
    Moment,
    /// The socket itself.
    Socket,
}

impl Failure {
    fn of(errno: Errno) -> Self {
        match errno.code() {
            libc::ENOMEM | libc::ENOBUFS => Self::Moment,
            libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::EFAULT => Self::Socket,
            // Whatever ICMP says, and the filters and routes of this host.
            _ => Self::Network,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use crate::address::Address;
    use crate::config::Config;
    use crate::datagram::DatagramOptions;
    use crate::event::Events;
    use crate::event_loop::Loop;
    use crate::id::{LoopIndex, Token};
    use crate::sys::Time;

    #[test]
    fn drops_are_looked_at_now_and_then_if_nobody_asks() {
        let mut event_loop = Loop::new(LoopIndex::default(), Config::default()).unwrap();
        let options = DatagramOptions {
            receive_buffer: Some(4096),
            paused: true,
            ..DatagramOptions::default()
        };
        let socket = event_loop
            .bind_datagram(&"127.0.0.1:0".parse().unwrap(), &options, Token::NONE)
            .unwrap();
        let Some(Address::Tcp(address)) = event_loop.datagram_address(socket).cloned() else {
            panic!("it is bound to what was asked for");
        };
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            client.send_to(&[1; 1000], address).unwrap();
        }
        let mut events = Events::with_capacity(10);
        let mut known = |event_loop: &mut Loop| {
            event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
            let state = event_loop.look_up_datagram(socket).unwrap();
            state.counters.kernel_drops
        };
        assert_eq!(known(&mut event_loop), 0);
        event_loop.look_at_drops_from = Time::from_nanos(0);
        assert!(known(&mut event_loop) > 50);
    }

    /// The kernel's count goes round, is told late, and starts anywhere.
    #[test]
    fn drops_are_counted_past_the_end_of_the_kernels_count() {
        let mut seen = u32::MAX - 1;
        let mut total = 0;
        for (drops, expected) in [(u32::MAX, 1), (u32::MAX - 1, 1), (2, 4), (2, 4), (1, 4), (5, 7)] {
            let more = super::newer(seen, drops);
            total += u64::from(more);
            if more > 0 {
                seen = drops;
            }
            assert_eq!(total, expected, "{drops}");
        }
    }
}
