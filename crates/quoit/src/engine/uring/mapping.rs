//! Mapped memory that is shared with the kernel.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use crate::errno::Errno;

/// A mapping, unmapped when dropped.
pub(super) struct Mapping {
    address: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// Maps one of a ring's areas (`IORING_OFF_*`).
    pub(super) fn of_ring(ring: BorrowedFd<'_>, area: u32, length: usize) -> Result<Self, Errno> {
        Self::map(
            length,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            ring.as_raw_fd(),
            i64::from(area),
        )
    }

    /// Maps zeroed memory of this process.
    ///
    /// Memory that a ring pins is mapped, not allocated: once unmapped its pages belong to the ring alone, so
    /// a kernel that is still taking the ring down never reads what somebody else has written there since.
    pub(super) fn anonymous(length: usize) -> Result<Self, Errno> {
        Self::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn map(length: usize, flags: i32, descriptor: i32, offset: i64) -> Result<Self, Errno> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, descriptor, offset) };
        if address == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let address = NonNull::new(address.cast()).ok_or(Errno::ENOMEM)?;
        Ok(Self { address, length })
    }

    /// A pointer to the `count` values of type `T` that begin `offset` bytes into the mapping, valid for as long
    /// as the mapping exists.
    ///
    /// # Panics
    /// If they do not lie within the mapping, or not as `T` must be aligned: the offset comes from the kernel,
    /// and nothing would be right any more.
    pub(super) fn pointer<T>(&self, offset: u32, count: usize) -> NonNull<T> {
        let end = offset as usize + count * size_of::<T>();
        assert!(end <= self.length, "the kernel's offsets lie within its mapping");
        // SAFETY: the offset is within the mapping, as checked.
        let pointer = unsafe { self.address.add(offset as usize) }.cast::<T>();
        assert!(pointer.is_aligned(), "the kernel's offsets are aligned");
        pointer
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and whoever held pointers into it goes with it.
        let result = unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
        debug_assert_eq!(result, 0, "a whole mapping can be unmapped");
    }
}
