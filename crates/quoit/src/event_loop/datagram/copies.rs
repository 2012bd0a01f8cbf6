//! Memory for what a socket's sends copy.

use crate::errno::Errno;
use crate::reserved::Reserved;

/// Copied bytes, in a ring: what is taken first is given back first, so that it is enough to know how much is in use.
///
/// Each piece is in one stretch, so up to its length less one is left unused at the end of the memory. Twice the most
/// bytes that are queued is therefore always enough.
#[derive(Debug)]
pub(super) struct Copies {
    memory: Reserved,
    /// Where the next piece goes.
    head: usize,
    /// Bytes in use, those left unused at the end included.
    used: usize,
}

/// A piece of [`Copies`].
pub(super) struct Copy {
    /// Where it is.
    pub(super) start: *mut u8,
    /// Bytes to be given back with it.
    pub(super) taken: usize,
}

impl Copies {
    pub(super) fn new(most: usize) -> Result<Self, Errno> {
        Ok(Self {
            memory: Reserved::new(most * 2)?,
            head: 0,
            used: 0,
        })
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<Copy> {
        let size = self.memory.length();
        if self.used == 0 {
            // From the start again, where the memory is still in the processor's caches.
            self.head = 0;
        }
        let wraps = self.head + bytes.len() > size;
        let unused = if wraps { size - self.head } else { 0 };
        let offset = if wraps { 0 } else { self.head };
        let taken = bytes.len() + unused;
        if self.used + taken > size {
            return None;
        }
        // SAFETY: the stretch lies within the memory: without a wrap before its end or, behind one, before the oldest
        // piece, as not more than all is used. Nobody reads there before the send that follows.
        let start = unsafe {
            let place = self.memory.address().as_ptr().add(offset);
            place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            place
        };
        self.head = offset + bytes.len();
        self.used += taken;
        Some(Copy { start, taken })
    }

    /// The oldest pieces, which took so many bytes, are not needed any more.
    #[inline]
    pub(super) fn give_back(&mut self, taken: usize) {
        self.used -= taken;
    }

    /// Bytes in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }
}
