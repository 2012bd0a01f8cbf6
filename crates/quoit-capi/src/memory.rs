//! What the caller points at: reading and writing it, and the conventions of structures that begin with their size.

use std::ffi::{c_char, c_int};
use std::mem::{size_of, zeroed};

use quoit::Address;

use crate::error::Failure;

/// What of the caller's may be used after the call has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// Bytes to be copied are copied during the call.
    During,
    /// The command is carried out later: its bytes are copied now, to memory of their own.
    Later,
}

/// A structure of integers and raw pointers.
///
/// # Safety
/// Every pattern of bits, all zeroes included, must be a value.
pub(crate) unsafe trait Plain: Copy {}

/// A structure that begins with its size in bytes, a `u32`, and may grow at its end.
///
/// # Safety
/// The first field must be that `u32`.
pub(crate) unsafe trait Sized32: Plain {
    /// The size that it had in the first version of the ABI: the least that may be passed.
    const FIRST_SIZE: usize;
}

/// The structure with all zeroes.
pub(crate) fn zeroes<T: Plain>() -> T {
    // SAFETY: `Plain` says that this is a value.
    unsafe { zeroed() }
}

/// Why a pointer cannot be one to `T`: it is null or not aligned.
#[inline]
fn check<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format_args!("`{name}` is null")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::invalid(format_args!(
            "`{name}` is not aligned as its type asks for"
        )));
    }
    Ok(())
}

/// A shared reference to what a pointer leads to.
///
/// # Safety
/// If the pointer is not null, it must lead to a live `T` that nobody changes meanwhile.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    check(pointer, name)?;
    // SAFETY: checked, and promised by the caller.
    Ok(unsafe { &*pointer })
}

/// An array; null is fine for one of no elements.
///
/// # Safety
/// The pointer must lead to `count` live elements that nobody changes meanwhile.
#[inline]
pub(crate) unsafe fn array<'a, T: Plain>(
    pointer: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer, name)?;
    check_count::<T>(count, name)?;
    // SAFETY: checked, and promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Fails for counts of elements that no memory can hold.
#[inline]
pub(crate) fn check_count<T>(count: usize, name: &str) -> Result<(), Failure> {
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::invalid(format_args!(
            "`{name}` has {count} elements, more than there can be"
        )));
    }
    Ok(())
}

/// Bytes; null is fine for none.
///
/// # Safety
/// As for [`array`].
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, length: usize, name: &str) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    check(pointer, name)?;
    check_count::<u8>(length, name)?;
    // SAFETY: checked, and promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// An address as text of a given length.
///
/// # Safety
/// As for [`array`].
pub(crate) unsafe fn address(pointer: *const c_char, length: usize, name: &str) -> Result<Address, Failure> {
    // SAFETY: promised by the caller.
    let text = unsafe { bytes(pointer.cast(), length, name) }?;
    let text = std::str::from_utf8(text)
        .map_err(|_| Failure::invalid(format_args!("`{name}` is not text in UTF-8")))?;
    text.parse().map_err(Failure::invalid)
}

/// Stores a value where the caller wants it.
///
/// # Safety
/// If the pointer is not null, it must lead to room for a `T`.
pub(crate) unsafe fn store<T>(pointer: *mut T, value: T, name: &str) -> Result<(), Failure> {
    check(pointer, name)?;
    // SAFETY: checked, and promised by the caller.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Fails unless [`store`] would succeed: for calls that must not fail once they have acted.
pub(crate) fn check_store<T>(pointer: *mut T, name: &str) -> Result<(), Failure> {
    check(pointer, name)
}

/// The size that a structure says it has, checked.
///
/// # Safety
/// If the pointer is not null, it must lead to a `u32` at least.
unsafe fn declared_size<T: Sized32>(pointer: *const T, name: &str) -> Result<usize, Failure> {
    check(pointer, name)?;
    // SAFETY: checked, and promised by the caller.
    let size = unsafe { pointer.cast::<u32>().read() } as usize;
    if size < T::FIRST_SIZE || size > 1 << 16 {
        return Err(Failure::invalid(format_args!(
            "`{name}->size` is {size}; set it to sizeof(*{name}) first"
        )));
    }
    Ok(size)
}

/// Reads a structure that begins with its size. What an older caller's lacks keeps the value that `base` has; what
/// a newer caller's has beyond this must be zero.
///
/// # Safety
/// If the pointer is not null, it must lead to as many bytes as the structure says, at least a `u32`.
pub(crate) unsafe fn read_sized<T: Sized32>(pointer: *const T, base: T, name: &str) -> Result<T, Failure> {
    // SAFETY: promised by the caller.
    let size = unsafe { declared_size(pointer, name) }?;
    let known = size.min(size_of::<T>());
    let mut value = base;
    // SAFETY: `known` bytes are there on both sides, and every pattern of bits is a `T`.
    unsafe {
        (&raw mut value)
            .cast::<u8>()
            .copy_from_nonoverlapping(pointer.cast(), known);
    }
    // SAFETY: promised by the caller: `size` bytes are there.
    let rest = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known) };
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Failure::new(
            libc::E2BIG,
            format_args!("`{name}` sets what this version of libquoit does not know; use a newer one"),
        ));
    }
    Ok(value)
}

/// Fills a structure that begins with its size, as far as the caller's goes, and sets its size to what was filled.
///
/// # Safety
/// As for [`read_sized`], and it must be writable.
pub(crate) unsafe fn write_sized<T: Sized32>(pointer: *mut T, value: &T, name: &str) -> Result<(), Failure> {
    // SAFETY: promised by the caller.
    let size = unsafe { declared_size(pointer.cast_const(), name) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes are there on the caller's side, and `known` of them here.
    unsafe {
        pointer
            .cast::<u8>()
            .copy_from_nonoverlapping((&raw const *value).cast(), known);
        pointer.cast::<u8>().add(known).write_bytes(0, size - known);
        pointer.cast::<u32>().write(known as u32);
    }
    Ok(())
}

/// Writes a text and its NUL, cut to what there is room for, and returns the length of the whole in bytes without the
/// NUL. With no room at all it writes nothing.
///
/// # Safety
/// If the pointer is not null, it must lead to `capacity` bytes of room.
pub(crate) unsafe fn write_text(text: &str, buffer: *mut c_char, capacity: usize) -> Result<c_int, Failure> {
    if capacity > 0 {
        check(buffer.cast_const(), "buffer")?;
        let mut length = text.len().min(capacity - 1);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        // SAFETY: `length` bytes and the NUL are within the room.
        unsafe {
            buffer
                .cast::<u8>()
                .copy_from_nonoverlapping(text.as_ptr(), length);
            buffer.add(length).write(0);
        }
    }
    Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BindOptions;

    fn options(size: u32) -> [u64; 8] {
        let mut memory = [0; 8];
        memory[0] = u64::from(size);
        memory
    }

    fn read(memory: &[u64; 8]) -> Result<BindOptions, i32> {
        // SAFETY: 64 aligned bytes, and no case says more.
        unsafe { read_sized(memory.as_ptr().cast(), zeroes::<BindOptions>(), "options") }
            .map_err(|failure| failure.code)
    }

    #[test]
    fn sizes_of_other_versions() {
        let mut memory = options(64);
        assert_eq!(read(&memory).unwrap().size, 64);
        memory[7] = 1;
        assert_eq!(read(&memory).unwrap_err(), libc::E2BIG);
        assert_eq!(read(&options(24)).unwrap().flags, 0);
        assert_eq!(read(&options(23)).unwrap_err(), libc::EINVAL);
        assert_eq!(read(&options(0)).unwrap_err(), libc::EINVAL);
        // SAFETY: null is checked.
        let null = unsafe { read_sized(std::ptr::null(), zeroes::<BindOptions>(), "options") };
        assert_eq!(null.unwrap_err().code, libc::EINVAL);
    }

    #[test]
    fn a_larger_structure_is_filled_as_far_as_is_known() {
        let mut memory = options(64);
        memory[7] = 9;
        let value = BindOptions {
            backlog: 5,
            ..zeroes()
        };
        // SAFETY: 64 aligned bytes.
        unsafe { write_sized(memory.as_mut_ptr().cast(), &value, "options") }.unwrap();
        assert_eq!((memory[0], memory[1], memory[7]), (24, 5, 0));
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let mut room = [1 as c_char; 4];
        // SAFETY: as much room as is said.
        let written = unsafe { write_text("aßc", room.as_mut_ptr(), 3) };
        assert_eq!(written.unwrap(), 4);
        assert_eq!(room, [b'a' as c_char, 0, 1, 1]);
    }
}
