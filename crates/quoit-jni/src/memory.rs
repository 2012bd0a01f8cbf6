//! Native memory, which Java 17 has no public means to reach but buffers.

use std::ffi::{CStr, c_char};
use std::ptr;

use crate::native::{Buffer, Int, Long, Void};

natives! {
    SIGNATURES |environment|

    /// The address of a direct buffer's first byte.
    address(buffer: Buffer) -> Long {
        // SAFETY: Java calls, with a buffer.
        unsafe { environment.direct_buffer_address(buffer) }
    }

    /// Native memory as a buffer, which keeps nothing alive.
    view(address: Long, length: Int) -> Buffer {
        // SAFETY: Java calls, and knows the memory.
        unsafe { environment.new_direct_byte_buffer(address, length) }
    }

    longAt(address: Long) -> Long {
        // SAFETY: Java knows that there is a number, aligned or not.
        unsafe { ptr::read_unaligned(address as *const Long) }
    }

    intAt(address: Long) -> Int {
        // SAFETY: Java knows that there is a number, aligned or not.
        unsafe { ptr::read_unaligned(address as *const Int) }
    }

    /// The two ranges do not overlap; nothing is copied for a length below 1.
    copy(from: Long, to: Long, length: Int) -> Void {
        let length = usize::try_from(length).unwrap_or(0);
        // SAFETY: Java knows both ranges.
        unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, length) }
    }

    /// The bytes of a text before its NUL.
    textLength(address: Long) -> Int {
        // SAFETY: Java passes what libquoit returned for a text, which ends with a NUL.
        let text = unsafe { CStr::from_ptr(address as *const c_char) };
        Int::try_from(text.count_bytes()).unwrap_or(Int::MAX)
    }
}
