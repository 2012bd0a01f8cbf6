//! Received bytes in the hands of whoever handles them.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use super::shared::Holder;

/// Received bytes, in the pool's own memory, or copied out of it.
///
/// Dereferences to the bytes. Their memory goes back to the pool when the lease is dropped, on any thread, also
/// after the loop is gone. A connection may hold as many leases as
/// [`Config::leases_per_connection`](crate::Config::leases_per_connection), and no more than its share of the loop's
/// memory; past that its receiving pauses until some are returned, so a handler that must wait for more bytes than that
/// copies what it holds.
pub struct Lease {
    pub(super) shared: Holder,
    pub(super) address: NonNull<u8>,
    pub(super) number: u32,
    pub(super) length: u32,
}

// SAFETY: the bytes are this lease's alone as long as it exists, and what is shared may be used from any thread.
unsafe impl Send for Lease {}
// SAFETY: through a shared lease they are only read.
unsafe impl Sync for Lease {}

impl Lease {
    /// Its number, below [`MAX_LEASES`](super::MAX_LEASES): no other lease of the same pool has it as long as this one exists.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number as usize
    }

    /// The first `length` bytes of the slot, whatever was left out of the lease. Not of one that was copied.
    pub(crate) fn slot_start(&self, length: usize) -> &[u8] {
        assert!(length <= self.shared.slot_size as usize);
        let address = self.shared.address(self.number);
        // SAFETY: within the slot, whose bytes are initialised and written by nobody while the lease exists.
        unsafe { std::slice::from_raw_parts(address.as_ptr(), length) }
    }

    /// As [`Lease::slot_start`], to be changed.
    pub(crate) fn slot_start_mut(&mut self, length: usize) -> &mut [u8] {
        assert!(length <= self.shared.slot_size as usize);
        let address = self.shared.address(self.number);
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
        // SAFETY: no further than the end of the bytes.
        self.address = unsafe { self.address.add(count) };
        self.length -= count as u32;
    }

    /// Keeps the first `count` bytes only; does nothing if there are no more.
    pub fn truncate(&mut self, count: usize) {
        if count < self.len() {
            self.length = count as u32;
        }
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: within the slot or the copy, whose bytes are initialised (zeroed at first, then received, or copied)
        // and written by nobody while the lease exists.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.length as usize) }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.put_back(self.number);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len())
    }
}
