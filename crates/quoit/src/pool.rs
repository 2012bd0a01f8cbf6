//! Receive memory: a fixed number of equal slots, leased to whoever handles the bytes.
//!
//! A lease need not keep its slot: its bytes can be copied to memory of their own size, and the slot
//! is free again. So what is held for long costs what it is, and not a slot.
//!
//! A slot goes round: free -> with the engine (or the kernel) -> leased -> free. The loop's thread moves it,
//! but for the return of a lease, which any thread may make at any time, also after the loop is gone: leases
//! keep the memory alive. Returned slots are pushed onto a lock-free stack that the loop empties once a turn.
//! Free slots are taken last in, first out, so that memory in use stays in the processor's caches and memory
//! never needed is never touched. Slots begin at different sets of the caches (see `reserved::stride`): most messages are
//! short, and the kernel goes through all slots of a buffer ring.

mod lease;
mod shared;

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;

use crate::errno::Errno;
use crate::reserved::{Reserved, stride};
use crate::sync::{AtomicU32, Ordering};
use crate::wake::Wake;

use shared::{Copied, END, Holder, Shared, WANTED, untouched};

pub use lease::Lease;

/// The slots that a pool can have: ids of provided buffers have 16 bits and a buffer ring 2^15 entries.
pub const MAX_POOL_SLOTS: u32 = 1 << 15;

/// The leases that a pool can have at once: their numbers are below.
pub const MAX_LEASES: u32 = 1 << 16;

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

/// What leases have to themselves: at `number - slots`, grown as it is needed.
#[derive(Default)]
struct Copies {
    copies: Vec<Option<Copied>>,
    free: Vec<u32>,
    held: u32,
}

/// The pool, as the loop that owns it sees it.
pub struct Pool {
    shared: Holder,
    free: Vec<PoolSlot>,
    places: Box<[Place]>,
    copies: Copies,
    leased: u32,
    /// The most that were leased when leases were collected.
    most_leased: u32,
}

impl Pool {
    /// A pool of `slots` slots of `slot_size` bytes each, beside which at most `copied` leases have their bytes to
    /// themselves. The memory is reserved, not touched.
    ///
    /// # Panics
    /// If there are no slots, more than [`MAX_POOL_SLOTS`], slots of no size, or more leases than [`MAX_LEASES`].
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(slots: u32, slot_size: u32, copied: u32, wake: Arc<Wake>) -> Result<Self, Errno> {
        assert!(slots > 0 && slots <= MAX_POOL_SLOTS && slot_size > 0 && slots + copied <= MAX_LEASES);
        let count = slots as usize;
        // What is allocated below, where want of address space would end the process, finds room when this is given back.
        let accounts = Reserved::new(64 * 1024 + 64 * (count + copied as usize))?;
        let memory = Reserved::new(count * stride(slot_size))?;
        let discard = Reserved::new(DISCARD_BYTES as usize)?;
        drop(accounts);
        Ok(Self {
            shared: Holder::new(Shared {
                memory,
                discard,
                slot_size,
                stride: stride(slot_size),
                slots,
                top: AtomicU32::new(END),
                below: untouched(count + copied as usize),
                abandoned: UnsafeCell::default(),
                left: AtomicU32::new(0),
                wake,
            }),
            free: (0..slots).rev().map(|index| PoolSlot(index as u16)).collect(),
            places: vec![Place::Free; count].into_boxed_slice(),
            copies: Copies::default(),
            leased: 0,
            most_leased: 0,
        })
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

    /// Slots that leases are in, those included that are held back from the handler.
    #[must_use]
    pub fn leased(&self) -> u32 {
        self.leased
    }

    /// Leases that have their bytes to themselves.
    #[must_use]
    pub fn copied(&self) -> u32 {
        self.copies.held
    }

    /// Whether a lease of this number has its bytes to itself.
    pub(crate) fn is_copied(&self, number: u32) -> bool {
        number >= self.shared.slots
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
    #[inline]
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
    #[inline]
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
    #[inline(always)]
    pub(crate) fn lease(&mut self, slot: PoolSlot, length: u32) -> Lease {
        self.lease_from(slot, 0, length)
    }

    /// As [`Pool::lease`], without the first `start` bytes.
    #[inline(always)]
    pub(crate) fn lease_from(&mut self, slot: PoolSlot, start: u32, length: u32) -> Lease {
        assert_eq!(
            self.places[slot.index()],
            Place::Taken,
            "only a taken slot is leased"
        );
        assert!(start <= length && length <= self.shared.slot_size);
        self.places[slot.index()] = Place::Leased;
        self.leased += 1;
        let number = u32::from(slot.get());
        // SAFETY: within the slot, whose size is not less than `length`.
        let address = unsafe { self.shared.address(number).add(start as usize) };
        Lease {
            shared: self.shared.another(),
            address,
            number,
            length: length - start,
        }
    }

    /// As [`Pool::lease`], but copies the bytes to memory of their own, and the slot is free at once. `None`, and the slot is
    /// as it was: for want of memory, or if as many have theirs as may.
    pub(crate) fn lease_copied(&mut self, slot: PoolSlot, length: u32) -> Option<Lease> {
        assert_eq!(
            self.places[slot.index()],
            Place::Taken,
            "only a taken slot is leased"
        );
        assert!(length <= self.shared.slot_size);
        let Copies { copies, free, held } = &mut self.copies;
        let most = self.shared.below.len() - self.places.len();
        if free.is_empty() && copies.len() == most {
            return None;
        }
        let start = self.shared.address(u32::from(slot.get())).as_ptr();
        // SAFETY: the slot's first `length` bytes were received into it, and nobody writes to a slot that is taken and filled.
        let copied = Copied::of(unsafe { std::slice::from_raw_parts(start, length as usize) })?;
        let address = copied.0.cast();
        let index = free.pop().unwrap_or(copies.len() as u32);
        if index as usize == copies.len() {
            copies.push(None);
        }
        let place = &mut copies[index as usize];
        assert!(place.is_none(), "a free number is nobody's");
        *place = Some(copied);
        *held += 1;
        self.give_back(slot);
        Some(Lease {
            shared: self.shared.another(),
            address,
            number: self.shared.slots + index,
            length,
        })
    }

    /// Keeps the memory from ever being freed: one holder of it, which there is not, never ends.
    pub(crate) fn leak(&mut self) {
        self.leased += 1;
    }

    /// Whether leases were returned that are not collected yet.
    pub(crate) fn has_returns(&self) -> bool {
        self.shared.top.load(Ordering::Relaxed) & !WANTED != END
    }

    /// Collects the leases that were returned, calling `returned` with the number of each, which is free again, and with
    /// the bytes that it had to itself, if it had. No return wakes the loop any more, until it is [wanted](Pool::want).
    pub(crate) fn collect(&mut self, mut returned: impl FnMut(u32, Option<u32>)) {
        self.most_leased = self.most_leased.max(self.leased);
        let mut next = self.shared.top.swap(END, Ordering::Acquire) & !WANTED;
        while next != END {
            let number = next;
            next = self.shared.below[number as usize].load(Ordering::Relaxed);
            if let Some(index) = number.checked_sub(self.shared.slots) {
                let copied = self.copies.copies[index as usize].take();
                let copied = copied.expect("a lease is returned once");
                self.copies.free.push(index);
                self.copies.held -= 1;
                returned(number, Some(copied.0.len() as u32));
                continue;
            }
            let slot = PoolSlot(number as u16);
            assert_eq!(
                self.places[slot.index()],
                Place::Leased,
                "a lease is returned once"
            );
            self.places[slot.index()] = Place::Free;
            self.leased -= 1;
            self.free.push(slot);
            returned(number, None);
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
        let abandoned = self.copies.copies.drain(..).flatten().collect();
        self.shared.close(self.leased + self.copies.held, abandoned);
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

#[cfg(not(quoit_loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn pool(slots: u32) -> Pool {
        Pool::new(slots, 64, slots, Arc::new(Wake::new().unwrap())).unwrap()
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
        pool.collect(|_, _| seen += 1);
        assert_eq!((seen, pool.free(), pool.leased()), (1, 1, 1));
        drop(second);
        pool.collect(|_, _| ());
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
        // Miri sees a race in few of them as well, and would take minutes for many.
        let (rounds, each) = if cfg!(miri) { (1, 4) } else { (20, 128) };
        let mut pool = pool(4 * each);
        for _ in 0..rounds {
            let leases: Vec<_> = (0..4 * each).map(|_| fill(&mut pool, 9, 1)).collect();
            std::thread::scope(|scope| {
                let mut leases = leases.into_iter();
                for _ in 0..4 {
                    let mine: Vec<_> = leases.by_ref().take(each as usize).collect();
                    scope.spawn(move || drop(mine));
                }
            });
            pool.collect(|_, _| ());
            assert_eq!((pool.free(), pool.leased()), (4 * each as usize, 0));
        }
    }

    #[test]
    fn a_wanted_return_wakes() {
        let wake = Arc::new(Wake::new().unwrap());
        let mut pool = Pool::new(1, 64, 0, Arc::clone(&wake)).unwrap();
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
