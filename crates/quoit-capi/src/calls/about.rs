//! What this library is: its version, its layout, the text of the last error, the names of the counters.

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use crate::error::{Failure, last_text, return_code_int};
use crate::memory::{write_sized, write_text};
use crate::types::{ABI_VERSION, CounterInfo, FIGURES};

/// The ABI of this library.
#[unsafe(no_mangle)]
pub(super) extern "C" fn quoit_abi_version() -> u32 {
    ABI_VERSION
}

/// Whether a program made for the ABI `version` can use this library.
#[unsafe(no_mangle)]
pub(super) extern "C" fn quoit_abi_check(version: u32) -> c_int {
    return_code_int(|| {
        let (major, minor) = (version >> 16, version & 0xffff);
        let (own_major, own_minor) = (ABI_VERSION >> 16, ABI_VERSION & 0xffff);
        if major == own_major && minor <= own_minor {
            return Ok(0);
        }
        Err(Failure::new(
            libc::EPROTONOSUPPORT,
            format_args!(
                "this program wants version {major}.{minor} of Quoit's C ABI, but libquoit {} has \
                 {own_major}.{own_minor}; install a libquoit that fits",
                env!("CARGO_PKG_VERSION")
            ),
        ))
    })
}

/// The version of the library.
#[unsafe(no_mangle)]
pub(super) extern "C" fn quoit_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The layout of the ABI.
#[unsafe(no_mangle)]
pub(super) extern "C" fn quoit_layout() -> *const c_char {
    static LAYOUT: OnceLock<CString> = OnceLock::new();
    LAYOUT
        .get_or_init(|| CString::new(crate::layout()).expect("names and numbers hold no NUL"))
        .as_ptr()
}

/// The text of the calling thread's last failed call.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_error_text(buffer: *mut c_char, capacity: usize) -> c_int {
    let text = last_text();
    // SAFETY: promised by the caller.
    return_code_int(|| unsafe { write_text(&text, buffer, capacity) })
}

/// What a counter is.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_counter_describe(index: u32, info: *mut CounterInfo) -> c_int {
    return_code_int(|| {
        let figure = FIGURES
            .get(index as usize)
            .ok_or_else(|| Failure::new(libc::ENOENT, "there are no more counters"))?;
        let value = CounterInfo {
            size: size_of::<CounterInfo>() as u32,
            kind: figure.kind,
            offset: figure.offset as u32,
            reserved: 0,
            name: figure.name.as_ptr(),
            about: figure.about.as_ptr(),
        };
        // SAFETY: promised by the caller.
        unsafe { write_sized(info, &value, "info") }?;
        Ok(0)
    })
}
