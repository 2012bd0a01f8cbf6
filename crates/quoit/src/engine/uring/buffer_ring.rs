//! Rings of provided buffers, and their registration.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use linux_raw_sys::io_uring as abi;

use super::mapping::Mapping;
use super::sys::ProvidedBuffer;
use crate::errno::Errno;

/// Where a buffer ring keeps its tail: it overlays the reserved bytes of the first buffer
/// (`struct io_uring_buf_ring`).
const BUFFER_TAIL_OFFSET: u32 = 14;

/// A ring of provided buffers (`io_uring_register_buf_ring(3)`). This side moves the tail; where the kernel's
/// head is follows from the completions.
pub(super) struct BufferRing {
    buffers: NonNull<abi::io_uring_buf>,
    tail: NonNull<AtomicU16>,
    mask: u16,
    written: u16,
    _memory: Mapping,
}

impl BufferRing {
    pub(super) fn new(entries: u16) -> Result<Self, Errno> {
        assert!(entries.is_power_of_two());
        let memory = Mapping::anonymous(usize::from(entries) * size_of::<abi::io_uring_buf>())?;
        Ok(Self {
            buffers: memory.pointer(0, usize::from(entries)),
            tail: memory.pointer(BUFFER_TAIL_OFFSET, 1),
            mask: entries - 1,
            written: 0,
            _memory: memory,
        })
    }

    /// What the kernel is told of it (`struct io_uring_buf_reg`).
    pub(super) fn registration(&self, group: u16) -> abi::io_uring_buf_reg {
        let mut registration = removal(group);
        registration.ring_addr = self.buffers.as_ptr().expose_provenance() as u64;
        registration.ring_entries = u32::from(self.mask) + 1;
        registration
    }

    #[inline]
    pub(super) fn provide(&mut self, buffer: ProvidedBuffer) {
        let index = usize::from(self.written & self.mask);
        // SAFETY: the index is within the ring, and the kernel does not read past the tail. Field by field, as
        // the first buffer's reserved bytes are the tail.
        unsafe {
            let place = self.buffers.add(index).as_ptr();
            (&raw mut (*place).addr).write(buffer.address.expose_provenance() as u64);
            (&raw mut (*place).len).write(buffer.length);
            (&raw mut (*place).bid).write(buffer.id);
        }
        self.written = self.written.wrapping_add(1);
    }

    #[inline]
    pub(super) fn publish(&self) {
        // SAFETY: the memory belongs to this ring. Release: the buffers are visible before the tail.
        unsafe { self.tail.as_ref() }.store(self.written, Ordering::Release);
    }
}

/// What takes the buffer ring of a group away from the kernel again.
pub(super) fn removal(group: u16) -> abi::io_uring_buf_reg {
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut registration: abi::io_uring_buf_reg = unsafe { std::mem::zeroed() };
    registration.bgid = group;
    registration
}

/// What this kernel wants in the reserved fields of a registration.
///
/// Zeroes, says the ABI. But the check is the wrong way round in Ubuntu's 6.8.0-151 (24.04), which refuses zeroes with
/// `EINVAL` and takes all else: `io_register_pbuf_ring()` there has `!memchr_inv(reg.resv, 0, ...)` where upstream has
/// `!mem_is_zero(...)`. Without this no server on that kernel would have buffer rings, which are most of what io_uring
/// gains there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reserve {
    Zero,
    NotZero,
}

impl Reserve {
    /// Registers, as the kernel took it before; if it refuses zeroes as invalid, with something else. Returns what it
    /// took.
    pub(super) fn register(
        self,
        mut registration: abi::io_uring_buf_reg,
        mut register: impl FnMut(&mut abi::io_uring_buf_reg) -> Result<(), Errno>,
    ) -> Result<Self, Errno> {
        if self == Self::Zero {
            match register(&mut registration) {
                Ok(()) => return Ok(Self::Zero),
                Err(Errno::EINVAL) => {}
                Err(errno) => return Err(errno),
            }
        }
        registration.resv[0] = 1;
        register(&mut registration).map(|()| Self::NotZero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers twice with a kernel; returns what it took, and how often it was asked.
    fn twice(kernel: impl Fn(&abi::io_uring_buf_reg) -> Result<(), Errno>) -> (Result<Reserve, Errno>, u32) {
        let mut calls = 0;
        let mut register = |reserve: Reserve| {
            reserve.register(removal(7), |registration| {
                calls += 1;
                assert_eq!(registration.bgid, 7);
                kernel(registration)
            })
        };
        let result = register(Reserve::Zero).and_then(&mut register);
        (result, calls)
    }

    fn refuses(refused: bool) -> Result<(), Errno> {
        if refused { Err(Errno::EINVAL) } else { Ok(()) }
    }

    #[test]
    fn a_kernel_gets_the_reserve_that_it_wants() {
        let right = twice(|registration| refuses(registration.resv != [0; 3]));
        assert_eq!(right, (Ok(Reserve::Zero), 2));
        let inverted = twice(|registration| refuses(registration.resv == [0; 3]));
        assert_eq!(inverted, (Ok(Reserve::NotZero), 3), "zeroes are not tried again");
        let without = twice(|_| refuses(true));
        assert_eq!(without, (Err(Errno::EINVAL), 2));
        let other = twice(|_| Err(Errno::ENOMEM));
        assert_eq!(
            other,
            (Err(Errno::ENOMEM), 1),
            "want of memory is no matter of reserves"
        );
    }
}
