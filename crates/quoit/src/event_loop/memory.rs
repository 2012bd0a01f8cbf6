//! The loop's memory, and the share of it that one connection may have.
//!
//! A share is a part of what is left, and not of what there is (A. K. Choudhury, E. L. Hahne: "Dynamic Queue Length
//! Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998). One connection alone
//! may have a lot; of many that hold all they may, each has less, and something is left for whoever holds nothing. So no
//! number of connections that do not read what they are sent, or whose handler keeps what they send, uses the memory up.

use std::sync::Arc;

use super::accept::Listener;
use super::connection::{Connection, Holdings};
use super::table::Table;
use super::{TimerKey, datagram};
use crate::chunks::Chunks;
use crate::config::Config;
use crate::errno::Errno;
use crate::id::{ConnectionId, LoopIndex};
use crate::pool::{Lease, MAX_LEASES, Pool, PoolSlot};
use crate::remote::Inbox;
use crate::timers::Wheel;

/// A share is so many-th part of what is left.
const PARTS: u32 = 8;
/// Bytes that a copy of received bytes counts as, at least: what keeps account of it takes memory too.
const LEAST_CHARGE: u32 = 2048;
/// Connections that hold something leave so many-th part of the memory for copies to those that hold nothing.
const RESERVE: u64 = 4;

/// The memory that a loop's operations may name, made before the engine, which is given part of it.
#[derive(Debug)]
pub struct LoopMemory {
    pub(crate) pool: Pool,
    pub(crate) remote: Arc<Inbox>,
    pub(super) chunks: Chunks,
    pub(super) tables: Tables,
}

/// Room for all that a loop may have.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) connections: Table<Connection>,
    pub(super) listeners: Table<Listener>,
    pub(super) datagrams: Table<datagram::State>,
    pub(super) timers: Wheel<TimerKey>,
}

impl LoopMemory {
    /// Reserves the memory that `config` asks for.
    ///
    /// # Errors
    /// `ENOMEM`, where there is no address space for it; the kernel's, if there is no descriptor for the eventfd.
    pub fn new(index: LoopIndex, config: &Config) -> Result<Self, Errno> {
        let remote = Arc::new(Inbox::new(index, config.inbox as usize, config.connections)?);
        let chunks = Chunks::new(config.send_chunks, config.send_chunk_size)?;
        let copies = chunks.budget() / u64::from(LEAST_CHARGE);
        let pool = Pool::new(
            config.receive_slots,
            config.receive_slot_size,
            copies.min((MAX_LEASES - config.receive_slots).into()) as u32,
            remote.wake_handle(),
        )?;
        Ok(Self {
            pool,
            remote,
            chunks,
            tables: Tables {
                connections: Table::new(config.connections)?,
                listeners: Table::new(config.listeners)?,
                datagrams: Table::new(config.datagram_sockets)?,
                timers: Wheel::new(config.timer_limit() + config.own_timers())?,
            },
        })
    }

    /// The receive pool, for the engine's constructor.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// The eventfd by which a [pollable](Config::pollable) loop on io_uring is waited for, for the engine's constructor:
    /// open as long as the loop, and read without waiting. Made at the first call.
    ///
    /// # Errors
    /// The kernel's, for want of descriptors.
    pub fn notifier(&self) -> Result<std::os::fd::RawFd, Errno> {
        self.remote.notifier()
    }
}

/// What the kernel may still read or write until every operation has ended.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) pool: Pool,
    pub(super) chunks: Chunks,
    pub(super) remote: Arc<Inbox>,
    /// The connection for which each lease was made, by the lease's number.
    holders: Vec<Option<ConnectionId>>,
}

impl Memory {
    pub(super) fn new(pool: Pool, chunks: Chunks, remote: Arc<Inbox>) -> Self {
        Self {
            holders: vec![None; pool.slots() as usize],
            pool,
            chunks,
            remote,
        }
    }

    /// Keeps it from ever being freed.
    pub(super) fn leak(&mut self) {
        self.pool.leak();
        self.chunks.leak();
        std::mem::forget(Arc::clone(&self.remote));
    }

    /// Leases a filled slot out for a connection: as it is while the connection has no more slots than its share, and from
    /// there on copied, as long as there is memory for that.
    #[inline(always)]
    pub(super) fn lease(
        &mut self,
        connection: ConnectionId,
        holdings: &mut Holdings,
        slot: PoolSlot,
        length: u32,
    ) -> Lease {
        let lease = if self.has_slots_for(holdings) {
            None
        } else {
            self.lease_copied(holdings, slot, length)
        };
        holdings.leases += 1;
        let lease = if let Some(lease) = lease {
            holdings.copied += u64::from(charge(length));
            lease
        } else {
            holdings.slots += 1;
            self.pool.lease(slot, length)
        };
        match self.holders.get_mut(lease.number()) {
            Some(holder) => *holder = Some(connection),
            None => self.add_holder(lease.number(), connection),
        }
        lease
    }

    #[cold]
    fn add_holder(&mut self, number: usize, connection: ConnectionId) {
        self.holders.resize(number, None);
        self.holders.push(Some(connection));
    }

    #[cold]
    fn lease_copied(&mut self, holdings: &Holdings, slot: PoolSlot, length: u32) -> Option<Lease> {
        let bytes = u64::from(charge(length));
        if self.left_for_copies(holdings) < bytes || !self.chunks.charge(bytes) {
            return None;
        }
        let lease = self.pool.lease_copied(slot, length);
        if lease.is_none() {
            self.chunks.refund(bytes);
        }
        lease
    }

    /// Collects the leases that were returned. `returned` is called for each with the connection for which it was made, and
    /// takes it out of what that [holds](Holdings::returned).
    pub(super) fn collect(&mut self, mut returned: impl FnMut(ConnectionId, Returned)) {
        let Self {
            pool,
            chunks,
            holders,
            ..
        } = self;
        pool.collect(|number, copied| {
            let copied = copied.map(charge);
            if let Some(bytes) = copied {
                chunks.refund(bytes.into());
            }
            if let Some(connection) = holders[number as usize].take() {
                returned(connection, Returned { copied });
            }
        });
    }

    /// Whether a connection has fewer slots than [its share](Self::share_of_slots): the same without a division.
    #[inline]
    fn has_slots_for(&self, holdings: &Holdings) -> bool {
        holdings.slots * PARTS + self.pool.leased() < self.shared_slots()
    }

    /// Slots of the pool that connections share. While received bytes can be copied, a quarter of the pool is kept for
    /// those that have none.
    #[inline]
    fn shared_slots(&self) -> u32 {
        let slots = self.pool.slots();
        slots - slots / 4
    }

    /// Whether there is nothing of the pool left to share, so that [a share](Self::share_of_slots) is none.
    fn are_slots_shared_out(&self) -> bool {
        self.pool.leased() >= self.shared_slots()
    }

    /// Slots of the pool that one connection may have.
    fn share_of_slots(&self) -> u32 {
        self.shared_slots()
            .saturating_sub(self.pool.leased())
            .div_ceil(PARTS)
    }

    /// Bytes that are left for copies of what a connection receives.
    fn left_for_copies(&self, holdings: &Holdings) -> u64 {
        let reserve = match holdings.leases {
            0 => 0,
            _ => self.chunks.budget() / RESERVE,
        };
        self.chunks.left().saturating_sub(reserve)
    }

    /// Bytes of copies of what it received that one connection may have. Half of the memory is no part of it: what is on its
    /// way when many reach their shares at once comes on top, and leaves something for sends.
    fn share_of_copies(&self, holdings: &Holdings) -> u64 {
        let reserve = match holdings.leases {
            0 => 0,
            _ => self.chunks.budget() / 2,
        };
        self.chunks.left().saturating_sub(reserve) / u64::from(PARTS)
    }

    /// Whether a connection may be received for.
    #[inline]
    pub(super) fn is_within_share(&self, holdings: &Holdings) -> bool {
        self.has_slots_for(holdings)
            || holdings.copied + u64::from(LEAST_CHARGE) <= self.share_of_copies(holdings)
    }

    /// How many slots' worth a connection may be received for, beside what it has.
    pub(super) fn receivable(&self, holdings: &Holdings) -> u32 {
        let copies = self.share_of_copies(holdings).saturating_sub(holdings.copied);
        let slots = self.share_of_slots().saturating_sub(holdings.slots);
        slots.saturating_add(u32::try_from(copies / u64::from(self.pool.slot_size())).unwrap_or(u32::MAX))
    }

    /// Bytes that one connection may have queued for sending, if it has any; `queued` are queued on all together. What is for
    /// those that have nothing is no part of it, or many that take nothing would queue that up too.
    fn share_of_queue(&self, queued: u64) -> usize {
        let budget = self.chunks.budget();
        let taken = budget / RESERVE + queued + self.chunks.charged();
        (budget.saturating_sub(taken) / u64::from(PARTS)) as usize
    }

    /// Bytes queued on one connection from which on it is full, with so many on all together: what is copied behind them is
    /// refused.
    pub(super) fn mark(&self, queued: u64, high_water: usize) -> usize {
        self.share_of_queue(queued)
            .clamp(self.least_mark(high_water), high_water)
    }

    /// What the mark never is below: one chunk is for everybody.
    fn least_mark(&self, high_water: usize) -> usize {
        high_water.min(self.chunks.size() as usize)
    }

    /// Whether so many bytes are past the mark, which is worked out only where that is not known without.
    #[inline]
    pub(super) fn is_past_mark(&self, bytes: usize, queued: u64, high_water: usize) -> bool {
        bytes > self.least_mark(high_water) && bytes > self.mark(queued, high_water)
    }

    /// Chunks that a connection may take that has something queued.
    pub(super) fn share_of_chunks(&self) -> usize {
        self.shared_chunks(self.chunks.available())
            .div_ceil(PARTS as usize)
    }

    /// Whether a connection that has nothing queued may take so many chunks, of those that are left. Peers that take nothing
    /// keep what was sent to them at first, too, so that shares alone would let a few hundred of them use it all up.
    pub(super) fn may_begin_with(&self, wanted: usize, left: usize) -> bool {
        let all = self.chunks.count() as usize;
        // Whatever is not too large can be sent while nobody has anything.
        let most = if left == all {
            all
        } else {
            self.shared_chunks(left).max(1).min(left)
        };
        wanted <= most
    }

    /// How many of the chunks that are left are for whoever comes. The last quarter of all is for the first chunk of those
    /// that have none, so that there is one for many thousands.
    fn shared_chunks(&self, left: usize) -> usize {
        left.saturating_sub(self.chunks.count() as usize / RESERVE as usize)
    }

    /// Whether even the reserve is in use, so that a connection that holds nothing may find no memory.
    pub(super) fn is_exhausted(&self) -> bool {
        self.chunks.left() < self.chunks.budget() / RESERVE && self.are_slots_shared_out()
    }

    /// Whether so much is in use that somebody may have to be refused.
    pub(super) fn is_short(&self) -> bool {
        self.chunks.left() < self.chunks.budget() / 2 || self.are_slots_shared_out()
    }
}

/// A lease that has come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Returned {
    /// What its copy counted as, if it was one.
    copied: Option<u32>,
}

impl Holdings {
    /// A lease of the connection's has come back.
    pub(super) fn returned(&mut self, lease: Returned) {
        self.leases -= 1;
        match lease.copied {
            Some(bytes) => self.copied -= u64::from(bytes),
            None => self.slots -= 1,
        }
    }
}

fn charge(length: u32) -> u32 {
    length.max(LEAST_CHARGE)
}
