//! Sending from threads that are not the loop's, while it sleeps.

use std::ffi::{c_int, c_void};

use quoit::{ConnectionId, DatagramSend, DatagramSocketId, DirectDatagramSender, DirectSender, Refusal};

use super::loops::{cannot_send, stale};
use crate::commands;
use crate::error::{Failure, return_code, return_code_int};
use crate::handle::LoopHandle;
use crate::memory::{Plain, bytes, check_store, reference, store};

// SAFETY: a pointer is plain.
unsafe impl Plain for *const DirectSender {}
// SAFETY: as above.
unsafe impl Plain for *const DirectDatagramSender {}

/// What sends on a connection from any thread, for the caller to release.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_loop_direct_sender(
    quoit: *mut LoopHandle,
    connection: u64,
    out: *mut *const DirectSender,
) -> c_int {
    return_code_int(|| {
        check_store(out, "out")?;
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        let id = ConnectionId::from_bits(connection);
        let sender = handle.with(|state| state.quoit.direct_sender(id).map_err(cannot_send))?;
        // SAFETY: checked, and promised by the caller.
        unsafe { store(out, Box::into_raw(Box::new(sender)).cast_const(), "out") }?;
        Ok(0)
    })
}

/// Sends at once what the kernel takes, and returns how much that is.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_direct_sender_try_send(
    sender: *const DirectSender,
    pieces: *const libc::iovec,
    count: usize,
) -> i64 {
    return_code(|| {
        // SAFETY: promised by the caller.
        let sender = unsafe { reference(sender, "sender") }?;
        // SAFETY: promised by the caller.
        let pieces = unsafe { commands::slices(pieces, count) }?;
        // No more than the kernel takes at once, which is less than 2 GiB.
        Ok(sender.try_send(pieces) as i64)
    })
}

/// Gives it back.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_direct_sender_release(sender: *const DirectSender) {
    return_code_int(|| {
        if !sender.is_null() {
            // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
            drop(unsafe { Box::from_raw(sender.cast_mut()) });
        }
        Ok(0)
    });
}

/// What sends datagrams on a socket from any thread, for the caller to release.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_loop_direct_datagram_sender(
    quoit: *mut LoopHandle,
    socket: u64,
    out: *mut *const DirectDatagramSender,
) -> c_int {
    return_code_int(|| {
        check_store(out, "out")?;
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        let id = DatagramSocketId::from_bits(socket);
        let sender = handle.with(|state| state.quoit.direct_datagram_sender(id).map_err(not_lent))?;
        // SAFETY: checked, and promised by the caller.
        unsafe { store(out, Box::into_raw(Box::new(sender)).cast_const(), "out") }?;
        Ok(0)
    })
}

fn not_lent(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Stale => stale("datagram socket"),
        _ => Failure::new(libc::EPIPE, "the datagram socket is being closed"),
    }
}

/// Sends a datagram at once, if the kernel takes it, and returns whether it has left.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_direct_datagram_sender_try_send(
    sender: *const DirectDatagramSender,
    to: *const c_void,
    to_length: usize,
    data: *const c_void,
    length: usize,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let sender = unsafe { reference(sender, "sender") }?;
        // SAFETY: promised by the caller.
        let to = unsafe { commands::peer(to.cast(), to_length) }
            .ok_or_else(|| Failure::invalid("to is no address"))?;
        // SAFETY: promised by the caller.
        let bytes = unsafe { bytes(data.cast(), length, "data") }?;
        let datagram = DatagramSend {
            to,
            ..DatagramSend::to_connected(bytes)
        };
        Ok(sender.try_send(&datagram).into())
    })
}

/// Gives it back.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_direct_datagram_sender_release(sender: *const DirectDatagramSender) {
    return_code_int(|| {
        if !sender.is_null() {
            // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
            drop(unsafe { Box::from_raw(sender.cast_mut()) });
        }
        Ok(0)
    });
}
