//! Receive memory: a fixed number of equal slots, leased to whoever handles the bytes.
//!
//! A slot goes round: free -> with the engine (or the kernel) -> leased -> free. The loop's thread moves it,
//! but for the return of a lease, which any thread may make at any time, also after the loop is gone: leases
//! keep the memory alive. Returned slots are pushed onto a lock-free stack that the loop empties once a turn.
//! Free slots are taken last in, first out, so that memory in use stays in the processor's caches and memory
//! never needed is never touched. Slots begin at different sets of the caches (see `reserved::stride`): most messages are
//! short, and the kernel goes through all slots of a buffer ring.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::reserved::{Reserved, stride};
use crate::sync::{AtomicU32, Ordering, fence};
use crate::wake::Wake;

/// The slots that a pool can have: ids of provided buffers have 16 bits and a buffer ring 2^15 entries.
pub const MAX_POOL_SLOTS: u32 = 1 << 15;

/// In the place of a slot, the end of the stack of returned ones.
const END: u32 = WANTED - 1;
/// In the place of the stack's top: the pool is gone, and what is returned is only counted.
const GONE: u32 = WANTED - 2;
/// The bit of the stack's top that says that the loop waits for a slot and must be woken when one is returned.
const WANTED: u32 = 1 << 31;

/// Bytes of the memory that is received into only to be dropped: as much at once as costs few calls and stays in
/// the processor's second cache.
pub(crate) const DISCARD_BYTES: u32 = 64 * 1024;

/// A slot of the pool, as engines and the loop pass it on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PoolSlot(u16);

impl PoolSlot {
    /// The slot numbered `index`; [`Pool`] refuses numbers that it does not have.
    #[must_use]
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// The number: the buffer id towards the kernel.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number, for indexing.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a slot is, as its loop sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Free,
    Taken,
    Leased,
}

/// The memory and the returns, which live as long as the pool and the last lease. The memory is only ever reached
/// through a slot, and a slot has one holder at a time: the loop, the kernel or one lease.
///
/// Not in an `Arc`, whose count would be changed twice for each lease, when the pool knows how many there are: only what
/// is left when the pool goes is counted.
struct Shared {
    memory: Reserved,
    /// Written to by any number of receives at once, and read by nobody.
    discard: Reserved,
    slot_size: u32,
    /// From one slot to the next, in bytes.
    stride: usize,
    /// The stack of returned slots: the top, with [`WANTED`], and for each slot the one below it.
    top: AtomicU32,
    below: Box<[AtomicU32]>,
    /// How many still hold this, once the pool is gone.
    left: AtomicU32,
    wake: Arc<Wake>,
}

impl Shared {
    fn address(&self, slot: u32) -> NonNull<u8> {
        debug_assert!((slot as usize) < self.below.len());
        // SAFETY: the slot is within the allocation, which has room for `below.len()` slots at that distance.
        unsafe { self.memory.address().add(slot as usize * self.stride) }
    }
}

/// A holder of what is shared: the pool, or a lease.
struct Holder(NonNull<Shared>);

// SAFETY: what it leads to is read by any thread, changed by atomics alone, and freed by the last holder; `Wake` and
// `Reserved` may be used from any thread.
unsafe impl Send for Holder {}
// SAFETY: as above.
unsafe impl Sync for Holder {}

impl Holder {
    fn new(shared: Shared) -> Self {
        Self(NonNull::from(Box::leak(Box::new(shared))))
    }

    /// Another one, which is to end by `put_back`.
    #[inline]
    fn another(&self) -> Self {
        Self(self.0)
    }

    /// A lease is at its end. Nothing is read of what is shared once the slot is on the stack: another holder may be the
    /// last one then.
    #[inline]
    fn put_back(&self, slot: u32) {
        let top = self.top.load(Ordering::Relaxed);
        if top & WANTED != 0 || top == GONE || self.push(slot, top).is_err() {
            self.put_back_otherwise(slot);
        }
    }

    /// Puts a slot on the stack that has this top; answers the top that it has, if it is another one.
    #[inline]
    fn push(&self, slot: u32, top: u32) -> Result<u32, u32> {
        self.below[slot as usize].store(top & !WANTED, Ordering::Relaxed);
        // Release: whoever takes the slot next comes after all that was read of it.
        self.top
            .compare_exchange_weak(top, slot | (top & WANTED), Ordering::Release, Ordering::Relaxed)
    }

    /// As [`Holder::put_back`], where the loop is to be woken, the pool is gone, or others put back at this moment.
    #[cold]
    fn put_back_otherwise(&self, slot: u32) {
        let wake = Arc::clone(&self.wake);
        let mut top = self.top.load(Ordering::Relaxed);
        while top != GONE {
            match self.push(slot, top) {
                Ok(_) => {
                    if top & WANTED != 0 {
                        // Acquire pairs with `Pool::want`: the wake is of the sleep that comes, and none that has ended takes
                        // it.
                        fence(Ordering::Acquire);
                        wake.wake();
                    }
                    return;
                }
                Err(now) => top = now,
            }
        }
        // Acquire: how many are left was written before.
        fence(Ordering::Acquire);
        self.leave(1);
    }

    /// The pool is at its end, of which so many leases have not been collected.
    fn close(&self, leased: u32) {
        self.left.store(leased + 1, Ordering::Relaxed);
        // Release: the count goes first. Acquire: the stack is whole.
        let mut next = self.top.swap(GONE, Ordering::AcqRel) & !WANTED;
        let mut ended = 1;
        while next != END {
            ended += 1;
            next = self.below[next as usize].load(Ordering::Relaxed);
        }
        self.leave(ended);
    }

    /// So many holders are at their end, after the pool's; the last one frees what they held.
    fn leave(&self, holders: u32) {
        if self.left.fetch_sub(holders, Ordering::Release) == holders {
            // The others' last accesses come before.
            fence(Ordering::Acquire);
            // SAFETY: made by `Box::leak` in `new`, and nobody holds it any more.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl Deref for Holder {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        // SAFETY: freed by the last holder only, when that ends.
        unsafe { self.0.as_ref() }
    }
}

/// The pool, as the loop that owns it sees it.
pub struct Pool {
    shared: Holder,
    free: Vec<PoolSlot>,
    places: Box<[Place]>,
    leased: u32,
    /// The most that were leased when leases were collected.
    most_leased: u32,
}

impl Pool {
    /// A pool of `slots` slots of `slot_size` bytes each. The memory is reserved, not touched.
    ///
    /// # Panics
    /// If there are no slots, more than [`MAX_POOL_SLOTS`], or slots of no size.
    pub(crate) fn new(slots: u32, slot_size: u32, wake: Arc<Wake>) -> Self {
        assert!(slots > 0 && slots <= MAX_POOL_SLOTS && slot_size > 0);
        let count = slots as usize;
        Self {
            shared: Holder::new(Shared {
                memory: Reserved::new(count * stride(slot_size)),
                discard: Reserved::new(DISCARD_BYTES as usize),
                slot_size,
                stride: stride(slot_size),
                top: AtomicU32::new(END),
                below: (0..count).map(|_| AtomicU32::new(END)).collect(),
                left: AtomicU32::new(0),
                wake,
            }),
            free: (0..slots).rev().map(|index| PoolSlot(index as u16)).collect(),
            places: vec![Place::Free; count].into_boxed_slice(),
            leased: 0,
            most_leased: 0,
        }
    }

    /// Slots in all.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.places.len() as u32
    }

    /// Bytes of one slot.
    #[must_use]
    pub fn slot_size(&self) -> u32 {
        self.shared.slot_size
    }

    /// Slots that are free and not with the engine.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Slots that handlers hold.
    #[must_use]
    pub fn leased(&self) -> u32 {
        self.leased
    }

    /// The fewest slots not leased at any moment so far.
    #[must_use]
    pub fn low_water(&self) -> u32 {
        self.slots() - self.most_leased.max(self.leased)
    }

    /// The whole memory, for registering it with a ring: its address and length in bytes.
    #[must_use]
    pub fn memory(&self) -> (*mut u8, usize) {
        (self.shared.memory.address().as_ptr(), self.shared.memory.length())
    }

    /// Where receives put bytes that nobody wants, all of them at once: the address, and the length in bytes. It is
    /// not one of the slots, so that a connection can be drained while handlers hold them all.
    #[must_use]
    pub fn discard(&self) -> (*mut u8, u32) {
        (self.shared.discard.address().as_ptr(), DISCARD_BYTES)
    }

    /// Takes a free slot for the engine, which may let the kernel write to it.
    pub fn take(&mut self) -> Option<PoolSlot> {
        let slot = self.free.pop()?;
        assert_eq!(
            self.places[slot.index()],
            Place::Free,
            "a free slot is in nobody's hands"
        );
        self.places[slot.index()] = Place::Taken;
        Some(slot)
    }

    /// Gives back a slot that [`Pool::take`] gave and that holds nothing of worth.
    pub fn give_back(&mut self, slot: PoolSlot) {
        assert_eq!(
            self.places[slot.index()],
            Place::Taken,
            "only a taken slot can be given back"
        );
        self.places[slot.index()] = Place::Free;
        self.free.push(slot);
    }

    /// Where a slot that was taken begins.
    #[must_use]
    pub fn address(&self, slot: PoolSlot) -> *mut u8 {
        assert_eq!(
            self.places[slot.index()],
            Place::Taken,
            "only a taken slot is written to"
        );
        self.shared.address(u32::from(slot.get())).as_ptr()
    }

    /// Leases out the first `length` bytes of a slot that was taken and filled.
    pub(crate) fn lease(&mut self, slot: PoolSlot, length: u32) -> Lease {
        self.lease_from(slot, 0, length)
    }

    /// As [`Pool::lease`], without the first `start` bytes.
    #[inline]
    pub(crate) fn lease_from(&mut self, slot: PoolSlot, start: u32, length: u32) -> Lease {
        assert_eq!(
            self.places[slot.index()],
            Place::Taken,
            "only a taken slot is leased"
        );
        assert!(start <= length && length <= self.shared.slot_size);
        self.places[slot.index()] = Place::Leased;
        self.leased += 1;
        Lease {
            shared: self.shared.another(),
            slot: u32::from(slot.get()),
            start,
            end: length,
        }
    }

    /// Whether leases were returned that are not collected yet.
    pub(crate) fn has_returns(&self) -> bool {
        self.shared.top.load(Ordering::Relaxed) & !WANTED != END
    }

    /// Collects the leases that were returned, calling `returned` with each slot, which is free again. No return wakes
    /// the loop any more, until it is [wanted](Pool::want).
    pub(crate) fn collect(&mut self, mut returned: impl FnMut(PoolSlot)) {
        self.most_leased = self.most_leased.max(self.leased);
        let mut next = self.shared.top.swap(END, Ordering::Acquire) & !WANTED;
        while next != END {
            let slot = PoolSlot(next as u16);
            next = self.shared.below[slot.index()].load(Ordering::Relaxed);
            assert_eq!(
                self.places[slot.index()],
                Place::Leased,
                "a lease is returned once"
            );
            self.places[slot.index()] = Place::Free;
            self.leased -= 1;
            self.free.push(slot);
            returned(slot);
        }
    }

    /// Says whether a returned lease shall wake the loop. After saying yes, look for [returns](Pool::has_returns) before
    /// sleeping: the stack's top has the bit and the returns, so that a return either sees the one or is seen.
    pub(crate) fn want(&self, wanted: bool) {
        let top = &self.shared.top;
        if (top.load(Ordering::Relaxed) & WANTED != 0) == wanted {
            return;
        }
        if wanted {
            // Release: whoever sees the bit wakes after the last sleep has ended.
            top.fetch_or(WANTED, Ordering::Release);
        } else {
            top.fetch_and(!WANTED, Ordering::Relaxed);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.close(self.leased);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pool({} of {} slots free, {} leased)",
            self.free.len(),
            self.places.len(),
            self.leased
        )
    }
}

/// Received bytes, in the pool's own memory.
///
/// Dereferences to the bytes. The slot goes back to its pool when the lease is dropped, on any thread, also
/// after the loop is gone. A connection may hold as many leases as
/// [`Config::leases_per_connection`](crate::Config::leases_per_connection); past that its receiving pauses until
/// some are returned, so a handler that must wait for more bytes than that copies what it holds.
pub struct Lease {
    shared: Holder,
    slot: u32,
    start: u32,
    end: u32,
}

impl Lease {
    /// The pool slot that it lies in: no other lease of the same pool has it as long as this one exists.
    #[must_use]
    pub fn slot(&self) -> PoolSlot {
        PoolSlot(self.slot as u16)
    }

    /// The first `length` bytes of the slot, whatever was left out of the lease.
    pub(crate) fn slot_start(&self, length: usize) -> &[u8] {
        assert!(length <= self.shared.slot_size as usize);
        let address = self.shared.address(self.slot);
        // SAFETY: within the slot, whose bytes are initialised and written by nobody while the lease exists.
        unsafe { std::slice::from_raw_parts(address.as_ptr(), length) }
    }

    /// As [`Lease::slot_start`], to be changed.
    pub(crate) fn slot_start_mut(&mut self, length: usize) -> &mut [u8] {
        assert!(length <= self.shared.slot_size as usize);
        let address = self.shared.address(self.slot);
        // SAFETY: within the slot, whose bytes are initialised; the slot is this lease's alone, which is borrowed.
        unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), length) }
    }

    /// Leaves out the first `count` bytes, so that what remains can be handled or sent on.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn advance(&mut self, count: usize) {
        assert!(
            count <= self.len(),
            "cannot advance {count} bytes past {}",
            self.len()
        );
        self.start += count as u32;
    }

    /// Keeps the first `count` bytes only; does nothing if there are no more.
    pub fn truncate(&mut self, count: usize) {
        if count < self.len() {
            self.end = self.start + count as u32;
        }
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let address = self.shared.address(self.slot);
        // SAFETY: start..end is within the slot, whose bytes are initialised (zeroed at first, then received)
        // and written by nobody while the lease exists.
        unsafe {
            std::slice::from_raw_parts(
                address.add(self.start as usize).as_ptr(),
                (self.end - self.start) as usize,
            )
        }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.put_back(self.slot);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len())
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn pool(slots: u32) -> Pool {
        Pool::new(slots, 64, Arc::new(Wake::new().unwrap()))
    }

    fn fill(pool: &mut Pool, byte: u8, length: u32) -> Lease {
        let slot = pool.take().unwrap();
        // SAFETY: the slot was taken and has 64 bytes.
        unsafe { pool.address(slot).write_bytes(byte, length as usize) };
        pool.lease(slot, length)
    }

    #[test]
    fn slots_go_round() {
        let mut pool = pool(2);
        let first = fill(&mut pool, 1, 10);
        let second = fill(&mut pool, 2, 64);
        assert!(pool.take().is_none());
        assert_eq!(&*first, &[1; 10]);
        assert_eq!(&*second, &[2; 64]);
        assert_eq!((pool.leased(), pool.low_water()), (2, 0));
        drop(first);
        let mut seen = 0;
        pool.collect(|_| seen += 1);
        assert_eq!((seen, pool.free(), pool.leased()), (1, 1, 1));
        drop(second);
        pool.collect(|_| ());
        assert_eq!((pool.free(), pool.leased(), pool.low_water()), (2, 0, 0));
    }

    #[test]
    fn a_lease_outlives_its_pool() {
        let mut pool = pool(1);
        let mut lease = fill(&mut pool, 7, 20);
        drop(pool);
        lease.advance(5);
        lease.truncate(10);
        std::thread::spawn(move || assert_eq!(&*lease, &[7; 10]))
            .join()
            .unwrap();
    }

    #[test]
    fn leases_returned_by_many_threads_all_come_back() {
        let mut pool = pool(512);
        for _ in 0..20 {
            let leases: Vec<_> = (0..512).map(|_| fill(&mut pool, 9, 1)).collect();
            std::thread::scope(|scope| {
                let mut leases = leases.into_iter();
                for _ in 0..4 {
                    let mine: Vec<_> = leases.by_ref().take(128).collect();
                    scope.spawn(move || drop(mine));
                }
            });
            pool.collect(|_| ());
            assert_eq!((pool.free(), pool.leased()), (512, 0));
        }
    }

    #[test]
    fn a_wanted_return_wakes() {
        let wake = Arc::new(Wake::new().unwrap());
        let mut pool = Pool::new(1, 64, Arc::clone(&wake));
        let lease = fill(&mut pool, 1, 1);
        pool.want(true);
        assert!(wake.prepare_sleep());
        drop(lease);
        assert_eq!(wake.writes(), 1);
    }

    #[test]
    #[should_panic(expected = "only a taken slot can be given back")]
    fn a_slot_is_given_back_once() {
        let mut pool = pool(1);
        let slot = pool.take().unwrap();
        pool.give_back(slot);
        pool.give_back(slot);
    }
}
