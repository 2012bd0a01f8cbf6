//! What a pool and its leases share, and how leases come back.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::reserved::Reserved;
use crate::sync::{AtomicU32, Ordering, fence};
use crate::wake::Wake;

/// In the place of a lease, the end of the stack of returned ones.
pub(super) const END: u32 = WANTED - 1;
/// In the place of the stack's top: the pool is gone, and what is returned is only counted.
pub(super) const GONE: u32 = WANTED - 2;
/// The bit of the stack's top that says that the loop waits for a lease and must be woken when one is returned.
pub(super) const WANTED: u32 = 1 << 31;

/// Bytes that a lease has to itself, outside of the slots.
pub(super) struct Copied(pub(super) NonNull<[u8]>);

impl Copied {
    /// A copy; `None` for want of memory.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len()).ok()?;
        copy.extend_from_slice(bytes);
        Some(Self(NonNull::from(Box::leak(copy.into_boxed_slice()))))
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak` in `of`, and dropped once its lease is gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: the bytes are this value's and its lease's, which may end on any thread.
unsafe impl Send for Copied {}

/// The memory and the returns, which live as long as the pool and the last lease. The memory is only ever reached
/// through a slot, and a slot has one holder at a time: the loop, the kernel or one lease.
///
/// Not in an `Arc`, whose count would be changed twice for each lease, when the pool knows how many there are: only what
/// is left when the pool goes is counted.
pub(super) struct Shared {
    pub(super) memory: Reserved,
    /// Written to by any number of receives at once, and read by nobody.
    pub(super) discard: Reserved,
    pub(super) slot_size: u32,
    /// From one slot to the next, in bytes.
    pub(super) stride: usize,
    pub(super) slots: u32,
    /// The stack of returned leases by number: the top, with [`WANTED`], and for each lease the one below it.
    pub(super) top: AtomicU32,
    pub(super) below: Box<[AtomicU32]>,
    /// What leases have to themselves that the pool did not see come back: written by the pool at its end, before anybody
    /// may free it.
    pub(super) abandoned: UnsafeCell<Vec<Copied>>,
    /// How many still hold this, once the pool is gone.
    pub(super) left: AtomicU32,
    pub(super) wake: Arc<Wake>,
}

impl Shared {
    pub(super) fn address(&self, slot: u32) -> NonNull<u8> {
        assert!(slot < self.slots);
        // SAFETY: the slot is within the allocation, which has room for so many slots at that distance.
        unsafe { self.memory.address().add(slot as usize * self.stride) }
    }
}

/// A holder of what is shared: the pool, or a lease.
pub(super) struct Holder(NonNull<Shared>);

// SAFETY: what it leads to is read by any thread, changed by atomics alone, and freed by the last holder; `Wake` and
// `Reserved` may be used from any thread.
unsafe impl Send for Holder {}
// SAFETY: as above.
unsafe impl Sync for Holder {}

impl Holder {
    pub(super) fn new(shared: Shared) -> Self {
        Self(NonNull::from(Box::leak(Box::new(shared))))
    }

    /// Another one, which is to end by `put_back`.
    #[inline]
    pub(super) fn another(&self) -> Self {
        Self(self.0)
    }

    /// A lease is at its end. Nothing is read of what is shared once the slot is on the stack: another holder may be the
    /// last one then.
    #[inline]
    pub(super) fn put_back(&self, number: u32) {
        let top = self.top.load(Ordering::Relaxed);
        if top & WANTED != 0 || top == GONE || self.push(number, top).is_err() {
            self.put_back_otherwise(number);
        }
    }

    /// Puts a lease on the stack that has this top; returns the top that it has, if it is another one.
    #[inline]
    fn push(&self, number: u32, top: u32) -> Result<u32, u32> {
        self.below[number as usize].store(top & !WANTED, Ordering::Relaxed);
        // Release: whoever has its memory next comes after all that was read of it.
        self.top
            .compare_exchange_weak(top, number | (top & WANTED), Ordering::Release, Ordering::Relaxed)
    }

    /// As [`Holder::put_back`], where the loop is to be woken, the pool is gone, or others put back at this moment.
    #[cold]
    fn put_back_otherwise(&self, number: u32) {
        let wake = Arc::clone(&self.wake);
        let mut top = self.top.load(Ordering::Relaxed);
        while top != GONE {
            match self.push(number, top) {
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

    /// The pool is at its end, of which so many leases have not been collected, with what they have to themselves.
    pub(super) fn close(&self, leased: u32, abandoned: Vec<Copied>) {
        self.left.store(leased + 1, Ordering::Relaxed);
        // SAFETY: only the pool reaches this as long as it has not left, which it does below.
        unsafe { *self.abandoned.get() = abandoned };
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

/// Links of a stack, of which none is read before it was written.
#[cfg(not(all(test, quoit_loom)))]
pub(super) fn untouched(count: usize) -> Box<[AtomicU32]> {
    // Zeroed by the kernel, page by page as they are used, where they are many.
    let zeroed = Box::into_raw(vec![0_u32; count].into_boxed_slice());
    // SAFETY: `AtomicU32` has the size, the alignment on Linux's machines, and the values of `u32`; the box was this one's.
    unsafe { Box::from_raw(zeroed as *mut [AtomicU32]) }
}

#[cfg(all(test, quoit_loom))]
pub(super) fn untouched(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(END)).collect()
}
