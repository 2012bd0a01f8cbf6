//! Receiving: arming, delivery, holding back, the pool and its fair share.

use std::os::fd::AsRawFd;

use super::Loop;
use super::accept::MOST_STARVED;
use super::connection::{Connection, Phase, ReceiveSide};
use super::memory::Memory;
use super::teardown::survives;
use crate::config::Config;
use crate::engine::{Engine, Handle, Kind, Operation, Received};
use crate::errno::Errno;
use crate::event::{CloseReason, Event};
use crate::id::{ConnectionId, Slot};
use crate::pool::{Lease, PoolSlot};
use crate::sys::SocketSys;

/// Whether a connection has all the leases that it may, or its share of the memory.
#[inline]
fn is_at_cap(config: &Config, memory: &Memory, connection: &Connection) -> bool {
    connection.delivered() >= u32::from(config.leases_per_connection)
        || !config.close_at_lease_limit && !memory.is_within_share(&connection.holdings)
}

/// Connections that have their share of the memory of which a turn looks whether they still do.
const SHORT_PER_TURN: usize = 64;

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Arms receiving if the connection may receive now. Otherwise whatever changes that arms it: a resume, or a lease that
    /// came back to one that was capped ([`Loop::deliver_held_back`]), or a free slot ([`Loop::serve_starved`]).
    pub(super) fn arm_receive(&mut self, slot: Slot) {
        self.arm_receive_that(slot, false);
    }

    /// The same of one that may have `waited` for a slot, and does not queue up again. Returns whether it was armed.
    fn arm_receive_that(&mut self, slot: Slot, waited: bool) -> bool {
        let Some((connection, generation)) = self.connections.at(slot) else {
            return false;
        };
        let discarding = connection.phase == Phase::Draining;
        let wanted = match connection.phase {
            // With the cap as a hard limit a receive stays armed: only what it brings shows that there is more.
            Phase::Open => {
                !connection.paused
                    && connection.inbound.is_empty()
                    && (!connection.capped || self.config.close_at_lease_limit)
            }
            Phase::Draining => true,
            Phase::Connecting | Phase::Ending => false,
        };
        if !wanted || connection.operations.receive || connection.receive_side != ReceiveSide::Open {
            return false;
        }
        if !discarding && !waited {
            if connection.listed.starved {
                return false;
            }
            let memory = &mut self.memory;
            if !self.starved.is_empty() || self.engine.receivable(&memory.pool) == 0 {
                self.wait_for_slot(ConnectionId::new(self.index, slot, generation));
                return false;
            }
        }
        let memory = &self.memory;
        let receivable = if self.config.close_at_lease_limit {
            u32::MAX
        } else {
            memory.receivable(&connection.holdings)
        };
        connection.operations.receive = true;
        connection.operations.receive_cancel = false;
        let descriptor = connection
            .descriptor
            .as_ref()
            .expect("present until closed")
            .as_raw_fd();
        let operation = if discarding {
            // Needs no slot, so that a close does not depend on the leases of others.
            Operation::Discard {
                connection: slot,
                descriptor,
            }
        } else {
            let most = u32::from(self.config.leases_per_connection)
                .saturating_sub(connection.delivered())
                .min(receivable)
                .max(1);
            Operation::Receive {
                connection: slot,
                descriptor,
                // Whoever waits is told of one slot for certain; those behind it wait for the others.
                budget: if waited { 1 } else { most }.saturating_mul(self.config.receive_slot_size),
                waited,
            }
        };
        self.submit(operation);
        true
    }

    pub(super) fn cancel_receive(&mut self, slot: Slot) {
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        if connection.operations.receive && !connection.operations.receive_cancel {
            connection.operations.receive_cancel = true;
            self.cancel(Handle::Connection(slot), Kind::Receive);
        }
    }

    pub(super) fn on_received(&mut self, slot: Slot, received: Received, more: bool) {
        let (connection, _) = self
            .connections
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        debug_assert!(connection.operations.receive);
        if !more {
            connection.operations.receive = false;
            connection.operations.receive_cancel = false;
        }
        match received {
            Received::Data {
                slot: pool_slot,
                length,
            } => self.on_data(slot, pool_slot, length),
            Received::End => self.on_end(slot, None),
            Received::Error(errno) => self.on_end(slot, Some(errno)),
            Received::Stopped => {}
            Received::NoBuffers => {
                // The operation ended, and the pool is as good as empty: queue up, do not spin.
                let index = self.index;
                if let Some((connection, generation)) = self.connections.at(slot)
                    && connection.phase == Phase::Open
                {
                    self.wait_for_slot(ConnectionId::new(index, slot, generation));
                }
            }
        }
        if !more {
            self.arm_receive(slot);
            self.finish_if_quiet(slot);
        }
    }

    /// Bytes were received.
    #[inline(always)]
    pub(super) fn on_data(&mut self, slot: Slot, pool_slot: PoolSlot, length: u32) {
        let (connection, generation) = self
            .connections
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        let memory = &mut self.memory;
        self.counters.received_bytes.add(u64::from(length));
        self.counters.received_pieces.add(1);
        match connection.phase {
            Phase::Open if connection.capped && !connection.paused && self.config.close_at_lease_limit => {
                memory.pool.give_back(pool_slot);
                self.end(slot, CloseReason::Limit, true);
            }
            Phase::Open => {
                let id = ConnectionId::new(self.index, slot, generation);
                let lease = memory.lease(id, &mut connection.holdings, pool_slot, length);
                if memory.pool.is_copied(lease.number() as u32) {
                    self.counters.leases_copied.add(1);
                }
                if connection.paused || connection.capped || !connection.inbound.is_empty() {
                    self.counters.receive_overshoot.add(1);
                    connection.fresh += 1;
                    connection.inbound.push_back(lease);
                } else {
                    let at_cap = is_at_cap(&self.config, memory, connection);
                    self.deliver(id, lease, at_cap);
                }
            }
            _ => memory.pool.give_back(pool_slot),
        }
    }

    /// Hands a lease to the handler, and stops receiving if the connection is [at the cap](is_at_cap) with it.
    #[inline]
    fn deliver(&mut self, id: ConnectionId, data: Lease, at_cap: bool) {
        self.events.push_back(Event::Data { connection: id, data });
        if at_cap {
            self.cap(id);
        }
    }

    /// Stops receiving for a connection that has all it may.
    #[cold]
    fn cap(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id.slot(), id.generation()) else {
            return;
        };
        let memory = &self.memory;
        let hard_limit = self.config.close_at_lease_limit;
        let short = !hard_limit && !memory.is_within_share(&connection.holdings);
        connection.capped = true;
        self.capped += 1;
        self.counters.lease_cap_reached.add(1);
        self.events.push_back(Event::Pressure { connection: Some(id) });
        if !hard_limit {
            self.cancel_receive(id.slot());
            self.inspect_soon();
        }
        if short {
            self.wait_for_share(id.slot());
        }
    }

    /// Lists a capped connection that has its share of the memory.
    fn wait_for_share(&mut self, slot: Slot) {
        if let Some((connection, generation)) = self.connections.at(slot)
            && !std::mem::replace(&mut connection.listed.short, true)
        {
            self.short
                .push_back(ConnectionId::new(self.index, slot, generation));
        }
    }

    /// Looks again at connections that had their share of the memory: it grows as others give theirs back.
    #[inline(never)]
    pub(super) fn serve_short(&mut self) {
        for _ in 0..self.short.len().min(SHORT_PER_TURN) {
            let Some(id) = self.short.pop_front() else { return };
            if let Some(connection) = self.connections.get_mut(id.slot(), id.generation()) {
                connection.listed.short = false;
                self.lift_cap(id.slot());
            }
        }
    }

    /// Lets a capped connection go on that has few enough leases again: half the cap, so that a slow holder does not have its
    /// receive armed and cancelled for each lease. With a hard limit at once, so that what comes next does not close it.
    fn lift_cap(&mut self, slot: Slot) {
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        let memory = &self.memory;
        let hard_limit = self.config.close_at_lease_limit;
        let few = connection.delivered() <= u32::from(self.config.leases_per_connection / 2) || hard_limit;
        if !connection.capped || !few {
            return;
        }
        if connection.delivered() > 0 && !hard_limit && !memory.is_within_share(&connection.holdings) {
            return self.wait_for_share(slot);
        }
        connection.capped = false;
        self.capped -= 1;
        self.deliver_held_back(slot);
    }

    /// Delivers what was held back, as far as pause and cap allow, and then the end if that was held back too.
    pub(super) fn deliver_held_back(&mut self, slot: Slot) {
        let Some((connection, generation)) = self.connections.at(slot) else {
            return;
        };
        if connection.phase != Phase::Open || connection.paused {
            return;
        }
        let id = ConnectionId::new(self.index, slot, generation);
        // What was leased before the pause counts as held already, so the cap does not stop it.
        let reported = connection.inbound.len() - connection.fresh as usize;
        let reported = connection.inbound.drain(..reported);
        self.events
            .extend(reported.map(|data| Event::Data { connection: id, data }));
        let hard_limit = self.config.close_at_lease_limit;
        while let Some((connection, _)) = self.connections.at(slot)
            && !connection.inbound.is_empty()
        {
            if connection.capped {
                if hard_limit {
                    self.end(slot, CloseReason::Limit, true);
                }
                return;
            }
            if let Some(data) = connection.inbound.pop_front() {
                connection.fresh -= 1;
                let memory = &self.memory;
                let at_cap = is_at_cap(&self.config, memory, connection);
                self.deliver(id, data, at_cap);
            }
        }
        let Some((connection, _)) = self.connections.at(slot) else {
            return;
        };
        if connection.capped && !hard_limit {
            return;
        }
        if connection.inbound.capacity() > 0 {
            connection.inbound = std::collections::VecDeque::new();
        }
        if let ReceiveSide::EndHeld(error) = connection.receive_side {
            connection.receive_side = ReceiveSide::Open;
            self.on_end(slot, error);
            self.finish_if_quiet(slot);
        } else {
            self.arm_receive(slot);
        }
    }

    /// Whether receiving is paused; false for a stale id.
    #[must_use]
    pub fn is_paused(&self, connection: ConnectionId) -> bool {
        self.look_up(connection).is_some_and(|state| state.paused)
    }

    /// The socket has nothing more to give: the peer's FIN, or an error.
    fn on_end(&mut self, slot: Slot, error: Option<Errno>) {
        self.check_paused(slot);
        let (connection, generation) = self
            .connections
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        let id = ConnectionId::new(self.index, slot, generation);
        // What has come as an end in order may be a reset that another thread has been told of.
        let error = match error {
            None if connection.is_lent => self.direct.take_failure(slot),
            error => error,
        };
        match connection.phase {
            Phase::Open => {
                let behind_data = !connection.inbound.is_empty();
                if behind_data || (connection.paused && error.is_none()) {
                    connection.receive_side = ReceiveSide::EndHeld(error);
                    return;
                }
                connection.receive_side = ReceiveSide::Ending;
                if let Some(errno) = error {
                    let reason = connection.reason.unwrap_or(CloseReason::from_errno(errno));
                    self.end(slot, reason, survives(errno));
                } else if connection.reason.is_some() {
                    // Sending failed before; this is the rest of it.
                    self.end(slot, CloseReason::Reset, false);
                } else {
                    // Even if both directions have ended now, the connection does not until the handler has
                    // been told: it may pause, with data before this in its hands.
                    self.events.push_back(Event::EndOfStream { connection: id });
                }
            }
            Phase::Draining => {
                connection.receive_side = ReceiveSide::Ended;
                if let Some(errno) = error {
                    self.end(slot, CloseReason::from_errno(errno), survives(errno));
                } else if connection.both_ended() {
                    self.end_both(slot);
                }
            }
            Phase::Connecting | Phase::Ending => {}
        }
    }

    /// Takes returned leases in: frees their memory and lifts caps.
    pub(super) fn collect_leases(&mut self) {
        let memory = &mut self.memory;
        if !memory.pool.has_returns() {
            return;
        }
        let connections = &mut self.connections;
        let mut capped = Vec::new();
        memory.collect(|id, lease| {
            let Some(connection) = connections.get_mut(id.slot(), id.generation()) else {
                return;
            };
            connection.holdings.returned(lease);
            connection.progress.note();
            if connection.capped && !connection.listed.short {
                capped.push(id.slot());
            }
        });
        if !capped.is_empty() {
            self.lift_caps(&capped);
        }
    }

    /// Looks again at capped connections of which leases have come back.
    #[cold]
    fn lift_caps(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.lift_cap(slot);
        }
    }

    /// Queues a connection whose receive finds no slot.
    fn wait_for_slot(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id.slot(), id.generation())
            && !std::mem::replace(&mut connection.listed.starved, true)
        {
            self.starved.push_back(id);
        }
        self.report_pool_pressure();
    }

    /// Arms receives that waited for slots: first come, first served, and no more than find one for certain. One
    /// that found none after all would be the last again, and might always be, behind others that never wait long.
    #[inline(never)]
    pub(super) fn serve_starved(&mut self) {
        let memory = &mut self.memory;
        let mut slots = self.engine.surely_receivable(&memory.pool);
        if self.engine.receivable(&memory.pool) > 0 {
            self.pressure_reported = false;
        } else {
            // What came with the receives that are starved may have been taken in after they were.
            self.report_pool_pressure();
        }
        let before = self.starved.len();
        while slots > 0
            && let Some(id) = self.starved.pop_front()
        {
            let Some(connection) = self.connections.get_mut(id.slot(), id.generation()) else {
                continue;
            };
            connection.listed.starved = false;
            // One that is being closed, paused or capped meanwhile takes none.
            slots -= usize::from(self.arm_receive_that(id.slot(), true));
        }
        if before >= MOST_STARVED && self.starved.len() < MOST_STARVED {
            self.resume_accepting();
        }
    }

    fn report_pool_pressure(&mut self) {
        let pool = &self.memory.pool;
        if !self.pressure_reported && pool.leased() == pool.slots() {
            self.pressure_reported = true;
            self.events.push_back(Event::Pressure { connection: None });
        }
    }
}
