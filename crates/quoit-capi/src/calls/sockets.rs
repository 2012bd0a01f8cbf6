//! Listening sockets, and plain descriptors: what needs no loop and works on any thread.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use quoit::address::SocketAddress;
use quoit::internals::sys::{Linux, SocketSys};
use quoit::{Address, Errno, ListenSocket, listen};

use crate::commands::take_descriptor;
use crate::error::{Failure, return_code_int};
use crate::memory::{self, check_store, reference, store, write_text};
use crate::options::stream_options;
use crate::types::{
    BindOptions, QUOIT_BIND_IPV6_ONLY, QUOIT_BIND_REUSE_PORT, QUOIT_BIND_UNLINK_EXISTING, StreamOptions,
};

/// `quoit_socket`: opaque to C.
#[derive(Debug)]
pub(super) struct Socket(pub(super) ListenSocket);

/// # Safety
/// As for [`store`].
unsafe fn hand_out(socket: ListenSocket, out: *mut *mut Socket) -> Result<c_int, Failure> {
    let pointer = Box::into_raw(Box::new(Socket(socket)));
    // SAFETY: promised by the caller.
    unsafe { store(out, pointer, "out") }?;
    Ok(0)
}

/// Makes a listening socket.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_socket_bind(
    address: *const c_char,
    length: usize,
    options: *const BindOptions,
    out: *mut *mut Socket,
) -> c_int {
    return_code_int(|| {
        check_store(out, "out")?;
        // SAFETY: promised by the caller.
        let address = unsafe { memory::address(address, length, "address") }?;
        let defaults = listen::ListenOptions::default();
        let options = if options.is_null() {
            defaults
        } else {
            let base = BindOptions {
                backlog: defaults.backlog,
                ..memory::zeroes()
            };
            // SAFETY: promised by the caller.
            let options = unsafe { memory::read_sized(options, base, "options") }?;
            let known = QUOIT_BIND_REUSE_PORT | QUOIT_BIND_IPV6_ONLY | QUOIT_BIND_UNLINK_EXISTING;
            if options.flags & !known != 0 || options.reserved != 0 {
                return Err(Failure::invalid("`options` has bits that are not known"));
            }
            let size = |bytes: u32| (bytes != 0).then_some(bytes);
            listen::ListenOptions {
                backlog: options.backlog,
                reuse_port: options.flags & QUOIT_BIND_REUSE_PORT != 0,
                ipv6_only: options.flags & QUOIT_BIND_IPV6_ONLY != 0,
                unlink_existing: options.flags & QUOIT_BIND_UNLINK_EXISTING != 0,
                receive_buffer: size(options.receive_buffer),
                send_buffer: size(options.send_buffer),
            }
        };
        let socket = listen::bind(&address, &options)?;
        // SAFETY: promised by the caller.
        unsafe { hand_out(socket, out) }
    })
}

/// Takes over a descriptor that listens.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_socket_adopt(descriptor: c_int, out: *mut *mut Socket) -> c_int {
    return_code_int(|| {
        // Closed from here on if anything fails, as promised.
        // SAFETY: promised by the caller.
        let descriptor = unsafe { take_descriptor(descriptor) }
            .map_err(|errno| Failure::system("taking over a descriptor", errno))?;
        check_store(out, "out")?;
        let socket = ListenSocket::adopt(descriptor)?;
        // SAFETY: promised by the caller.
        unsafe { hand_out(socket, out) }
    })
}

/// The sockets that a service manager passed.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_socket_inherited(out: *mut *mut Socket, capacity: usize) -> c_int {
    return_code_int(|| {
        if capacity > 0 {
            check_store(out, "out")?;
        }
        let sockets = listen::inherited()?;
        let count = sockets.len();
        if count > capacity {
            return Ok(count as c_int);
        }
        for (index, socket) in sockets.into_iter().enumerate() {
            // SAFETY: there is room for `capacity` pointers, as the caller promises.
            unsafe { hand_out(socket, out.add(index)) }?;
        }
        Ok(count as c_int)
    })
}

/// The same socket once more.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_socket_clone(socket: *const Socket, out: *mut *mut Socket) -> c_int {
    return_code_int(|| {
        check_store(out, "out")?;
        // SAFETY: promised by the caller.
        let socket = unsafe { reference(socket, "socket") }?;
        // SAFETY: promised by the caller.
        unsafe { hand_out(socket.0.try_clone()?, out) }
    })
}

/// The descriptor, which stays the socket's.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_socket_fd(socket: *const Socket) -> c_int {
    // SAFETY: promised by the caller.
    return_code_int(|| Ok(unsafe { reference(socket, "socket") }?.0.as_fd().as_raw_fd()))
}

/// Where it listens.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_socket_address(
    socket: *const Socket,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let socket = unsafe { reference(socket, "socket") }?;
        // SAFETY: promised by the caller.
        unsafe { write_text(&socket.0.address().to_string(), buffer, capacity) }
    })
}

/// The name that the service manager gave it.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_socket_name(
    socket: *const Socket,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let socket = unsafe { reference(socket, "socket") }?;
        // SAFETY: promised by the caller.
        unsafe { write_text(socket.0.name().unwrap_or_default(), buffer, capacity) }
    })
}

/// Closes it.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_socket_close(socket: *mut Socket) {
    return_code_int(|| {
        if !socket.is_null() {
            // SAFETY: it was made by `hand_out`, and the caller promises to use it no more.
            drop(unsafe { Box::from_raw(socket) });
        }
        Ok(0)
    });
}

/// A descriptor that stays the caller's.
fn borrow<'a>(descriptor: RawFd) -> Result<BorrowedFd<'a>, Failure> {
    if descriptor < 0 {
        return Err(Failure::system("looking up a descriptor", Errno::EBADF));
    }
    // SAFETY: not -1; the kernel returns EBADF for what is not open, and the calls here keep nothing.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// Writes the address that the kernel returned when asked for it by `what`.
///
/// # Safety
/// As for [`write_text`].
unsafe fn write_found(
    found: Result<SocketAddress, Errno>,
    what: &str,
    buffer: *mut c_char,
    capacity: usize,
) -> Result<c_int, Failure> {
    let address = found.map_err(|errno| Failure::system(what, errno))?;
    let address = Address::try_from(&address).map_err(Failure::invalid)?;
    // SAFETY: promised by the caller.
    unsafe { write_text(&address.to_string(), buffer, capacity) }
}

/// The own address of a descriptor's socket.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_fd_local_address(
    descriptor: c_int,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    return_code_int(|| {
        let found = Linux.local_address(borrow(descriptor)?);
        // SAFETY: promised by the caller.
        unsafe { write_found(found, "reading the socket's address", buffer, capacity) }
    })
}

/// The address of the peer of a descriptor's socket.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_fd_peer_address(
    descriptor: c_int,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    return_code_int(|| {
        let found = Linux.peer_address(borrow(descriptor)?);
        // SAFETY: promised by the caller.
        unsafe {
            write_found(
                found,
                "reading the address of the socket's peer",
                buffer,
                capacity,
            )
        }
    })
}

/// Sets options of a descriptor's socket.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_fd_set_stream_options(
    descriptor: c_int,
    options: *const StreamOptions,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let options = stream_options(unsafe { reference(options, "options") }?)?;
        options.apply(borrow(descriptor)?).map_err(|(option, errno)| {
            Failure::new(errno.code(), format_args!("setting {option:?} failed: {errno}"))
        })?;
        Ok(0)
    })
}
