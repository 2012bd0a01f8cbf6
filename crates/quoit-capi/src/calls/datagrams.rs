//! Datagram sockets: making them, on any thread, and asking after those of a loop.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};

use quoit::address::SocketAddress;
use quoit::{Address, DatagramSocket, DatagramSocketId, Steering, Token};

use super::loops::{on_loop, stale, write_address};
use crate::commands::take_descriptor;
use crate::error::{Failure, return_code_int};
use crate::handle::{LoopHandle, State};
use crate::memory::{self, check_count, check_store, reference, store, write_sized, write_text};
use crate::options::datagrams::{bind_address, default_options, options};
use crate::types::{self, DatagramOptions, QUOIT_STEERING_CPU, QUOIT_STEERING_HASH};

/// The defaults of a datagram socket.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_options_default(given: *mut DatagramOptions) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        unsafe { write_sized(given, &default_options(), "options") }?;
        Ok(0)
    })
}

/// # Safety
/// As for [`store`].
unsafe fn hand_out(socket: DatagramSocket, out: *mut *mut DatagramSocket) -> Result<c_int, Failure> {
    let pointer = Box::into_raw(Box::new(socket));
    // SAFETY: promised by the caller.
    unsafe { store(out, pointer, "out") }?;
    Ok(0)
}

/// Makes a datagram socket.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_socket_bind(
    address: *const c_char,
    length: usize,
    given: *const DatagramOptions,
    out: *mut *mut DatagramSocket,
) -> c_int {
    return_code_int(|| {
        check_store(out, "out")?;
        // SAFETY: promised by the caller.
        let address = unsafe { bind_address(address, length) }?;
        // SAFETY: promised by the caller.
        let options = unsafe { options(given) }?;
        let socket = DatagramSocket::bind(&address, &options)?;
        // SAFETY: promised by the caller.
        unsafe { hand_out(socket, out) }
    })
}

/// Makes several on one port.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_socket_bind_group(
    address: *const c_char,
    length: usize,
    given: *const DatagramOptions,
    steering: u32,
    out: *mut *mut DatagramSocket,
    count: usize,
) -> c_int {
    return_code_int(|| {
        check_store(out, "out")?;
        check_count::<*mut DatagramSocket>(count, "out")?;
        let count = u16::try_from(count)
            .ok()
            .filter(|&count| count > 0)
            .ok_or_else(|| Failure::invalid("`count` must be from 1 to 65,535"))?;
        let steering = match steering {
            QUOIT_STEERING_HASH => Steering::Hash,
            QUOIT_STEERING_CPU => Steering::Cpu,
            other => {
                return Err(Failure::invalid(format_args!(
                    "`steering` is {other}, which is not a known way to steer"
                )));
            }
        };
        // SAFETY: promised by the caller.
        let address = unsafe { bind_address(address, length) }?;
        // SAFETY: promised by the caller.
        let options = unsafe { options(given) }?;
        let sockets = DatagramSocket::bind_group(&address, &options, count, steering)?;
        for (index, socket) in sockets.into_iter().enumerate() {
            // SAFETY: there is room for `count` pointers, as the caller promises.
            unsafe { hand_out(socket, out.add(index)) }?;
        }
        Ok(0)
    })
}

/// Takes over a descriptor.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_socket_adopt(
    descriptor: c_int,
    given: *const DatagramOptions,
    out: *mut *mut DatagramSocket,
) -> c_int {
    return_code_int(|| {
        // Closed from here on if anything fails, as promised.
        // SAFETY: promised by the caller.
        let descriptor = unsafe { take_descriptor(descriptor) }
            .map_err(|errno| Failure::system("taking over a descriptor", errno))?;
        check_store(out, "out")?;
        // SAFETY: promised by the caller.
        let options = unsafe { options(given) }?;
        let socket = DatagramSocket::adopt(descriptor, &options)?;
        // SAFETY: promised by the caller.
        unsafe { hand_out(socket, out) }
    })
}

/// The descriptor, which stays the socket's.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_socket_fd(socket: *const DatagramSocket) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        Ok(unsafe { reference(socket, "socket") }?.as_fd().as_raw_fd())
    })
}

/// Where it is bound.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_socket_address(
    socket: *const DatagramSocket,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let text = unsafe { reference(socket, "socket") }?.address().to_string();
        // SAFETY: promised by the caller.
        unsafe { write_text(&text, buffer, capacity) }
    })
}

/// Closes a socket that no loop has.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_socket_close(socket: *mut DatagramSocket) {
    return_code_int(|| {
        if !socket.is_null() {
            // SAFETY: it is a socket that was handed out, and is used no more.
            drop(unsafe { Box::from_raw(socket) });
        }
        Ok(0)
    });
}

/// An address as the kernel has it, for a text.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_sockaddr_parse(
    address: *const c_char,
    length: usize,
    buffer: *mut c_void,
    capacity: usize,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let address = unsafe { memory::address(address, length, "address") }?;
        let raw = SocketAddress::try_from(&address).map_err(Failure::invalid)?;
        let bytes = raw.as_bytes();
        if bytes.len() <= capacity {
            check_store(buffer.cast::<u8>(), "buffer")?;
            // SAFETY: there is room, as the caller promises.
            unsafe {
                buffer
                    .cast::<u8>()
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }
        Ok(bytes.len() as c_int)
    })
}

/// The text of an address as the kernel has it.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_sockaddr_text(
    sockaddr: *const c_void,
    length: usize,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let bytes = unsafe { memory::bytes(sockaddr.cast(), length, "sockaddr") }?;
        let address = match bytes {
            // The kernel tells nothing of Unix sockets that are bound to nothing.
            [] => Address::UnixUnnamed,
            bytes => Address::try_from(&SocketAddress::from_bytes(bytes)).map_err(Failure::invalid)?,
        };
        // SAFETY: promised by the caller.
        unsafe { write_text(&address.to_string(), buffer, capacity) }
    })
}

/// Gives a socket to a loop.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_open_datagram(
    quoit: *mut LoopHandle,
    socket: *mut DatagramSocket,
    token: u64,
    id: *mut u64,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        unsafe { reference(socket.cast_const(), "socket") }?;
        // SAFETY: it is a socket that was handed out, and the header says that it is the library's from now on.
        let socket = unsafe { Box::from_raw(socket) };
        check_store(id, "id")?;
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        let opened = handle.with(|state| Ok(state.quoit.open_datagram(*socket, Token(token))?))?;
        // SAFETY: checked, and promised by the caller.
        unsafe { store(id, opened.to_bits(), "id") }?;
        Ok(0)
    })
}

/// Where a loop's datagram socket is bound.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_address(
    quoit: *mut LoopHandle,
    socket: u64,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    let id = DatagramSocketId::from_bits(socket);
    // SAFETY: promised by the caller.
    unsafe {
        write_address(quoit, buffer, capacity, |quoit| {
            let address = quoit.datagram_address(id).cloned();
            address.ok_or_else(|| stale("datagram socket"))
        })
    }
}

/// The descriptor of a loop's datagram socket, which stays the loop's.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_fd(quoit: *mut LoopHandle, socket: u64) -> c_int {
    let call = |state: &mut State| {
        let id = DatagramSocketId::from_bits(socket);
        let descriptor = state.quoit.datagram_descriptor(id);
        Ok(descriptor.ok_or_else(|| stale("datagram socket"))?.as_raw_fd())
    };
    // SAFETY: promised by the caller.
    unsafe { on_loop(quoit, call) }
}

/// What a loop's datagram socket has done.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_datagram_counters_read(
    quoit: *mut LoopHandle,
    socket: u64,
    counters: *mut types::DatagramCounters,
) -> c_int {
    let call = |state: &mut State| {
        let id = DatagramSocketId::from_bits(socket);
        let value = state.quoit.datagram_counters(id);
        let value = types::DatagramCounters::from(&value.ok_or_else(|| stale("datagram socket"))?);
        // SAFETY: promised by the caller.
        unsafe { write_sized(counters, &value, "counters") }?;
        Ok(0)
    };
    // SAFETY: promised by the caller.
    unsafe { on_loop(quoit, call) }
}
