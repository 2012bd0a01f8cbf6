//! Large memory that is reserved at once and touched as it is used.
//!
//! Not the allocator's `alloc_zeroed`: for page-aligned memory that writes the zeroes, so all of it would be
//! touched, and paid for, before its first use.

use std::ops::Range;
use std::ptr::NonNull;

use crate::errno::Errno;

/// What to do where memory cannot be reserved. It is address space that is wanting, as nothing was touched yet: a host or a
/// control group that has too little memory says so later, and in another way.
pub(crate) const REMEDY: &str = "this process may not reserve so much memory: raise its limit on address space (`ulimit \
     -v`, LimitAS= under systemd); or, if the sysctl vm.overcommit_memory is 2, raise vm.overcommit_ratio, or set it to 0; \
     or run fewer loops, or smaller ones";

/// Bytes of a line of the processor's caches, on the machines that Linux servers are.
const CACHE_LINE: usize = 64;

/// The distance at which to place pieces of `size` bytes: the size, and a cache line more where that makes the number of
/// lines odd. At a distance of 16 KiB the first bytes of all pieces, mostly the only ones in use, would share one set of
/// a first-level cache and a few of a second-level one, and evict each other from caches that are almost empty.
pub(crate) const fn stride(size: u32) -> usize {
    ((size as usize).div_ceil(CACHE_LINE) | 1) * CACHE_LINE
}

/// Zeroed pages of this value's own.
#[derive(Debug)]
pub(crate) struct Reserved {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone; whoever reaches into it must keep to its borders.
unsafe impl Send for Reserved {}
// SAFETY: as above; the value itself is never changed.
unsafe impl Sync for Reserved {}

/// No memory is set aside for what is not touched. Miri does not know the flag.
const LAZILY: libc::c_int = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };

impl Reserved {
    /// Reserves `length` bytes, at least 1, aligned to a page.
    ///
    /// # Errors
    /// `ENOMEM`: no address space for so many, as under a low `RLIMIT_AS`, or none that the kernel lends
    /// (`vm.overcommit_memory`).
    pub(crate) fn new(length: usize) -> Result<Self, Errno> {
        assert!(length > 0);
        // SAFETY: a new private mapping of no file touches nothing that exists.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | LAZILY,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let address = NonNull::new(address.cast()).ok_or(Errno::ENOMEM)?;
        Ok(Self { address, length })
    }

    /// Gives the whole pages of a range back to the system: they are zero when they are touched again, and nobody may have
    /// use for what is in them.
    pub(crate) fn forget(&self, range: Range<usize>) {
        assert!(range.end <= self.length);
        // SAFETY: sysconf takes no pointer.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let (start, end) = (range.start.next_multiple_of(page), range.end / page * page);
        if start < end && cfg!(miri) {
            // SAFETY: as below; Miri knows no madvise(2), so they are made zero.
            unsafe { self.address.as_ptr().add(start).write_bytes(0, end - start) };
        } else if start < end {
            // SAFETY: whole pages of this value's own mapping, of which nobody has any use. Its result changes nothing.
            let _ = unsafe {
                libc::madvise(
                    self.address.as_ptr().add(start).cast(),
                    end - start,
                    libc::MADV_DONTNEED,
                )
            };
        }
    }

    /// Keeps the memory when this value is dropped.
    pub(crate) fn leak(&mut self) {
        self.length = 0;
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Its length in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.length == 0 {
            // Leaked.
            return;
        }
        // SAFETY: mapped in `new` with this length, and whoever held pointers into it goes with it.
        let result = unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
        debug_assert_eq!(result, 0, "a whole mapping can be unmapped");
    }
}

/// Room for so many in a list from the start.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn with_room<T>(count: usize) -> Result<Vec<T>, Errno> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    Ok(list)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Pages of the mapping that are in memory (`mincore(2)`).
    pub(crate) fn resident(reserved: &Reserved) -> usize {
        let mut pages = vec![0u8; reserved.length().div_ceil(4096)];
        // SAFETY: the vector has a byte for each page of the mapping.
        let result = unsafe {
            libc::mincore(
                reserved.address().as_ptr().cast(),
                reserved.length(),
                pages.as_mut_ptr(),
            )
        };
        assert_eq!(result, 0);
        pages.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[test]
    fn pieces_begin_in_all_sets_of_a_cache() {
        const SETS: usize = 64;
        for size in [64, 100, 2048, 4096, 16 << 10] {
            let sets: std::collections::HashSet<_> = (0..SETS)
                .map(|piece| piece * stride(size) / CACHE_LINE % SETS)
                .collect();
            assert_eq!(sets.len(), SETS, "{size}");
            assert!(stride(size) >= size as usize && stride(size) < size as usize + 2 * CACHE_LINE);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls")]
    fn memory_is_zero_and_not_touched_before_use() {
        let reserved = Reserved::new(64 << 20).unwrap();
        assert_eq!(resident(&reserved), 0);
        // SAFETY: the byte lies within the mapping, which nobody else knows.
        unsafe {
            let byte = reserved.address().add(12_345_678);
            assert_eq!(byte.read(), 0);
            byte.write(1);
        }
        // One page, or a huge one where those are always used.
        assert!((1..=512).contains(&resident(&reserved)));
    }
}
