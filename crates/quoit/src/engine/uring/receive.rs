//! Receiving, in the best way that the kernel has:
//!
//! - multishot with the buffer ring: one submission, a buffer only when data is there;
//! - once with the buffer ring;
//! - a poll, then a receive into a slot that is taken from the pool only when data is there.
//!
//! Two are apart, with any kernel. A connection that has waited for a slot receives into one of the pool at once, past the
//! buffer ring, and is polled if there is nothing yet. One that is being closed receives into memory that nobody reads.

use linux_raw_sys::io_uring as abi;

use super::UringEngine;
use super::entry;
use super::state::{ReceiveStage, receive_data};
use super::sys::{ProvidedBuffer, STREAM_GROUP, UringSys};
use crate::engine::{Completion, Completions, Received};
use crate::errno::Errno;
use crate::features::{Feature, FeatureSet};
use crate::id::Slot;
use crate::pool::{Pool, PoolSlot};
use crate::sys::SocketSys;

/// How receives are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReceiveMode {
    /// Multishot; the kernel keeps the budget.
    MultishotBudget,
    /// Multishot; the engine cancels when the budget is used up.
    Multishot,
    /// One receive with a buffer from the ring.
    Single,
    /// A poll, then a receive.
    Poll,
}

impl ReceiveMode {
    pub(super) fn of(features: FeatureSet) -> Self {
        if features.contains(Feature::ReceiveBudget) {
            Self::MultishotBudget
        } else if features.contains(Feature::MultishotReceive) {
            Self::Multishot
        } else if features.contains(Feature::BufferRing) {
            Self::Single
        } else {
            Self::Poll
        }
    }
}

impl<S: UringSys, K: SocketSys> UringEngine<S, K> {
    /// Fills the buffer ring from the pool.
    #[inline(always)]
    pub(super) fn provide_buffers(&mut self, pool: &mut Pool) {
        let before = self.buffers;
        while self.buffers < self.buffer_entries {
            let length = pool.slot_size();
            let Some(buffer) = ProvidedBuffer::take(pool, length) else {
                break;
            };
            self.sys.provide_buffer(STREAM_GROUP, buffer);
            self.buffers += 1;
        }
        if self.buffers != before {
            self.sys.publish_buffers(STREAM_GROUP);
        }
    }

    pub(super) fn start_receive(
        &mut self,
        connection: Slot,
        descriptor: i32,
        budget: u32,
        waited: bool,
        pool: &mut Pool,
    ) {
        debug_assert!(budget > 0);
        let state = self.connections.get(connection);
        state.descriptor = descriptor;
        debug_assert_eq!(
            state.receive.stage,
            ReceiveStage::Idle,
            "one receive a connection"
        );
        state.receive.cancelled = false;
        state.receive.number = state.receive.number.wrapping_add(1);
        state.receive.budget = budget;
        self.counters.receive_arms.add(1);
        // What goes into the ring is taken by whoever is first in the kernel, which may again be others.
        if waited && let Some(slot) = pool.take() {
            return self.fill(connection, slot, pool);
        }
        state.receive.stage = ReceiveStage::Selecting;
        let data = receive_data(connection, &state.receive);
        let entry = match self.receive_mode {
            ReceiveMode::MultishotBudget => entry::receive_multishot(descriptor, budget, data),
            ReceiveMode::Multishot => entry::receive_multishot(descriptor, 0, data),
            ReceiveMode::Single => entry::receive_selected(descriptor, budget.min(pool.slot_size()), data),
            ReceiveMode::Poll => {
                state.receive.stage = ReceiveStage::Polling;
                entry::poll(descriptor, libc::POLLIN | libc::POLLRDHUP, data)
            }
        };
        self.push(entry, pool);
    }

    /// Receives into this slot, what there is.
    fn fill(&mut self, connection: Slot, slot: PoolSlot, pool: &mut Pool) {
        let state = self.connections.get(connection);
        state.receive.stage = ReceiveStage::Filling(slot);
        let length = state.receive.budget.min(pool.slot_size());
        let data = receive_data(connection, &state.receive);
        let entry = entry::receive_now(state.descriptor, pool.address(slot), length, data);
        self.push(entry, pool);
    }

    #[inline]
    pub(super) fn received(
        &mut self,
        connection: Slot,
        result: i32,
        flags: u32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        let more = flags & abi::IORING_CQE_F_MORE != 0;
        let buffer = if flags & abi::IORING_CQE_F_BUFFER != 0 {
            self.buffers -= 1;
            Some(PoolSlot::new((flags >> abi::IORING_CQE_BUFFER_SHIFT) as u16))
        } else {
            None
        };
        if let Some(slot) = buffer
            && more
            && result > 0
            && self.connections.get(connection).receive.stage == ReceiveStage::Selecting
        {
            let length = result as u32;
            completions.push(Completion::Received {
                connection,
                received: Received::Data { slot, length },
                more,
            });
            if self.receive_mode == ReceiveMode::Multishot {
                self.spend_budget(connection, length, pool);
            }
            return;
        }
        self.received_otherwise(connection, result, more, buffer, pool, completions);
    }

    /// As [`received`](Self::received), of anything else than bytes of a multishot receive that goes on.
    #[inline(never)]
    fn received_otherwise(
        &mut self,
        connection: Slot,
        result: i32,
        more: bool,
        buffer: Option<PoolSlot>,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        let state = self.connections.get(connection);
        let buffer = match state.receive.stage {
            ReceiveStage::Selecting => buffer,
            ReceiveStage::Polling => return self.receive_ready(connection, result, pool, completions),
            ReceiveStage::Filling(slot) => {
                if result == -libc::EAGAIN && !state.receive.cancelled {
                    pool.give_back(slot);
                    return self.poll_to_receive(connection, pool);
                }
                Some(slot)
            }
            ReceiveStage::Discarding => {
                if result > 0 && !state.receive.cancelled {
                    return self.push_discard(connection, pool);
                }
                None
            }
            ReceiveStage::Idle => unreachable!("a completion belongs to a receive"),
        };
        let discarded = state.receive.stage == ReceiveStage::Discarding && result > 0;
        if !more {
            state.receive.stage = ReceiveStage::Idle;
        }
        let received = match buffer {
            None if discarded => Received::Stopped,
            Some(slot) if result > 0 => Received::Data {
                slot,
                length: result as u32,
            },
            buffer => {
                debug_assert!(
                    !more && result <= 0,
                    "bytes come in a buffer, and only they leave more to come"
                );
                if let Some(slot) = buffer {
                    pool.give_back(slot);
                }
                self.outcome_without_data(result)
            }
        };
        completions.push(Completion::Received {
            connection,
            received,
            more,
        });
    }

    fn outcome_without_data(&mut self, result: i32) -> Received {
        match -result {
            0 => Received::End,
            libc::ENOBUFS => {
                self.counters.receive_no_buffers.add(1);
                Received::NoBuffers
            }
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => Received::Stopped,
            code => Received::Error(Errno::new(code)),
        }
    }

    /// Counts bytes against the budget where the kernel does not, and ends the receive when it is used up.
    fn spend_budget(&mut self, connection: Slot, length: u32, pool: &mut Pool) {
        let receive = &mut self.connections.get(connection).receive;
        receive.budget = receive.budget.saturating_sub(length);
        if receive.budget == 0 && !receive.cancelled {
            receive.cancelled = true;
            let target = receive_data(connection, receive);
            self.push_cancel(target, pool);
        }
    }

    pub(super) fn start_discard(&mut self, connection: Slot, descriptor: i32, pool: &mut Pool) {
        let state = self.connections.get(connection);
        state.descriptor = descriptor;
        debug_assert_eq!(
            state.receive.stage,
            ReceiveStage::Idle,
            "one receive a connection"
        );
        state.receive.cancelled = false;
        state.receive.number = state.receive.number.wrapping_add(1);
        state.receive.stage = ReceiveStage::Discarding;
        self.counters.receive_arms.add(1);
        self.push_discard(connection, pool);
    }

    fn push_discard(&mut self, connection: Slot, pool: &mut Pool) {
        let state = self.connections.get(connection);
        let (address, length) = pool.discard();
        let data = receive_data(connection, &state.receive);
        let entry = entry::receive(state.descriptor, address, length, data);
        self.push(entry, pool);
    }

    fn poll_to_receive(&mut self, connection: Slot, pool: &mut Pool) {
        let state = self.connections.get(connection);
        state.receive.stage = ReceiveStage::Polling;
        let events = libc::POLLIN | libc::POLLRDHUP;
        let entry = entry::poll(state.descriptor, events, receive_data(connection, &state.receive));
        self.push(entry, pool);
    }

    /// The poll has ended: with something to receive, if `result` is not negative.
    fn receive_ready(
        &mut self,
        connection: Slot,
        result: i32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        let state = self.connections.get(connection);
        let received = if result < 0 {
            self.outcome_without_data(result)
        } else if state.receive.cancelled {
            Received::Stopped
        } else if let Some(slot) = pool.take() {
            return self.fill(connection, slot, pool);
        } else {
            self.outcome_without_data(-libc::ENOBUFS)
        };
        self.connections.get(connection).receive.stage = ReceiveStage::Idle;
        completions.push(Completion::Received {
            connection,
            received,
            more: false,
        });
    }
}
