//! Large memory that is reserved at once and touched as it is used.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{self, NonNull};

/// Zeroed memory of this process, aligned to a page, given back when dropped.
///
/// Mapped, not allocated: the allocator fills memory with zeroes that is aligned so (`alloc_zeroed` of the
/// standard library), and with that every page would be in use from the start.
#[derive(Debug)]
pub(crate) struct Reserved {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to this value alone; who shares it answers for the accesses.
unsafe impl Send for Reserved {}
// SAFETY: as above; through a shared reference only the address is had.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// `length` bytes, not zero. Ends the process as a failed allocation does, if there are none.
    pub(crate) fn new(length: usize) -> Self {
        assert!(length > 0);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, -1, 0) };
        match NonNull::new(address.cast::<u8>()) {
            Some(found) if address != libc::MAP_FAILED => Self {
                address: found,
                length,
            },
            _ => handle_alloc_error(Layout::array::<u8>(length).unwrap_or(Layout::new::<u8>())),
        }
    }

    /// Where it begins.
    #[inline]
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and nobody is left who uses it.
        let result = unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
        debug_assert_eq!(result, 0, "a whole mapping can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of `memory` that are in use (`mincore(2)`).
    fn touched(memory: &Reserved) -> usize {
        let mut pages = vec![0_u8; memory.len().div_ceil(4096)];
        // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
        let result =
            unsafe { libc::mincore(memory.address().as_ptr().cast(), memory.len(), pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn pages_are_in_use_once_they_are_touched() {
        let memory = Reserved::new(64 << 20);
        assert_eq!(touched(&memory), 0);
        // SAFETY: within the mapping, which nobody else knows.
        unsafe {
            assert_eq!(memory.address().add(5 << 20).read(), 0);
            memory.address().add(5 << 20).write(1);
        }
        // A huge page at most.
        assert!((1..=512).contains(&touched(&memory)));
    }
}
