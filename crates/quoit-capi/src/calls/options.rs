//! The defaults of the structures that hold options.

use std::ffi::c_int;

use quoit::ListenOptions as CoreListenOptions;

use crate::error::{Failure, return_code_int};
use crate::memory::{Sized32, write_sized, zeroes};
use crate::options::{config_for_c, default_connect_options, default_stream_options};
use crate::types::{BindOptions, Config, ConnectOptions, ListenOptions};

/// # Safety
/// As for [`write_sized`].
unsafe fn fill<T: Sized32>(pointer: *mut T, value: &T, name: &str) -> Result<c_int, Failure> {
    // SAFETY: promised by the caller.
    unsafe { write_sized(pointer, value, name) }?;
    Ok(0)
}

/// The defaults of a loop's configuration.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_config_default(config: *mut Config) -> c_int {
    let value = config_for_c(&quoit::Config::default());
    // SAFETY: promised by the caller.
    return_code_int(|| unsafe { fill(config, &value, "config") })
}

/// The defaults of connecting.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_connect_options_default(options: *mut ConnectOptions) -> c_int {
    // SAFETY: promised by the caller.
    return_code_int(|| unsafe { fill(options, &default_connect_options(), "options") })
}

/// The defaults of accepting.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_listen_options_default(options: *mut ListenOptions) -> c_int {
    let value = ListenOptions {
        stream: default_stream_options(),
        ..zeroes()
    };
    // SAFETY: promised by the caller.
    return_code_int(|| unsafe { fill(options, &value, "options") })
}

/// The defaults of making a listening socket.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_bind_options_default(options: *mut BindOptions) -> c_int {
    let value = BindOptions {
        backlog: CoreListenOptions::default().backlog,
        ..zeroes()
    };
    // SAFETY: promised by the caller.
    return_code_int(|| unsafe { fill(options, &value, "options") })
}
