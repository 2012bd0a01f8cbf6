//! Remotes: reaching a loop from any thread, also after it has gone.

use std::ffi::c_int;
use std::sync::Arc;

use quoit::ReserveError;

use crate::commands;
use crate::error::{Failure, return_code, return_code_int};
use crate::handle::LoopHandle;
use crate::memory::{Keep, array, check_store, reference, store, write_sized};
use crate::remote::Remote;
use crate::types::{self, Counters};

/// The remote of a loop, for the caller to release.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_loop_remote(quoit: *mut LoopHandle, out: *mut *const Remote) -> c_int {
    return_code_int(|| {
        check_store(out, "out")?;
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        let remote = handle.with(|state| {
            Ok(Remote {
                remote: state.quoit.remote(),
                leases: Arc::clone(&state.leases),
            })
        })?;
        // SAFETY: checked, and promised by the caller.
        unsafe { store(out, Arc::into_raw(Arc::new(remote)), "out") }?;
        Ok(0)
    })
}

/// Counts one more holder.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_remote_retain(remote: *const Remote) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        unsafe { reference(remote, "remote") }?;
        // SAFETY: it came from `Arc::into_raw`, and the caller holds it.
        unsafe { Arc::increment_strong_count(remote) };
        Ok(0)
    })
}

/// Counts one holder less.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_remote_release(remote: *const Remote) {
    return_code_int(|| {
        if !remote.is_null() {
            // SAFETY: it came from `Arc::into_raw`, and the caller gives its hold up.
            drop(unsafe { Arc::from_raw(remote) });
        }
        Ok(0)
    });
}

/// Posts commands.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_remote_post(
    remote: *const Remote,
    commands: *const types::Command,
    count: usize,
) -> i64 {
    return_code(|| {
        // SAFETY: promised by the caller.
        let remote = unsafe { reference(remote, "remote") }?;
        // SAFETY: promised by the caller.
        let commands = unsafe { array(commands, count, "commands") }?;
        let mut posted = 0;
        for given in commands {
            if !commands::returned_lease(given, &remote.leases) {
                // What a command hands over is taken only when there is a place for it.
                match remote.remote.reserve() {
                    // SAFETY: promised by the caller; bytes to be copied are copied here.
                    Ok(place) => place.post(unsafe { commands::command(given, &remote.leases, Keep::Later) }),
                    Err(ReserveError::Closed) if posted == 0 => {
                        return Err(Failure::new(libc::ESHUTDOWN, "the loop is gone"));
                    }
                    Err(ReserveError::Full | ReserveError::Closed) => break,
                }
            }
            posted += 1;
        }
        Ok(posted)
    })
}

/// Makes the loop report that it was woken.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_remote_wake(remote: *const Remote) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        unsafe { reference(remote, "remote") }?.remote.wake();
        Ok(0)
    })
}

/// Returns leases.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_remote_return_leases(
    remote: *const Remote,
    leases: *const u64,
    count: usize,
) -> i64 {
    return_code(|| {
        // SAFETY: promised by the caller.
        let remote = unsafe { reference(remote, "remote") }?;
        // SAFETY: promised by the caller.
        let numbers = unsafe { array(leases, count, "leases") }?;
        let returned = numbers
            .iter()
            .filter(|&&number| remote.leases.take(number).is_some())
            .count();
        if returned == count {
            return Ok(returned as i64);
        }
        Err(Failure::new(
            libc::ENOENT,
            format_args!(
                "{} of {count} numbers are not leases, or were returned before; the others are returned now",
                count - returned
            ),
        ))
    })
}

/// The loop's counters, from any thread.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_remote_counters(
    remote: *const Remote,
    counters: *mut Counters,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let remote = unsafe { reference(remote, "remote") }?;
        let value = Counters::from(&remote.remote.counters());
        // SAFETY: promised by the caller.
        unsafe { write_sized(counters, &value, "counters") }?;
        Ok(0)
    })
}

/// The connections that the loop has, about.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_remote_connections(remote: *const Remote) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let remote = unsafe { reference(remote, "remote") }?;
        Ok(c_int::try_from(remote.remote.connections()).unwrap_or(c_int::MAX))
    })
}
