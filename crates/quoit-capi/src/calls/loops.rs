//! Loops: making, turning, parking, asking and destroying them.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use quoit::{
    Accept, Address, ConnectionId, Events, ListenerId, ListenerOptions, Loop, LoopIndex, Refusal, StartError,
    TurnError,
};

use super::sockets::Socket;
use crate::commands;
use crate::error::{Failure, return_code, return_code_int};
use crate::events::for_c;
use crate::handle::{LoopHandle, State};
use crate::leases::Leases;
use crate::memory::{
    Keep, Plain, array, check_count, check_store, read_sized, reference, store, write_sized, write_text,
};
use crate::numbers::{duration, engine_number, nanoseconds};
use crate::options::{self, stream_options};
use crate::receivers::Receivers;
use crate::remote::Remote;
use crate::types::{
    self, Config, Counters, ListenOptions, QUOIT_ACCEPT_CONNECTIONS, QUOIT_ACCEPT_DESCRIPTORS,
    QUOIT_ACCEPT_PAUSED, QUOIT_ACCEPT_SPREAD,
};

/// Events that one turn fills at most, whatever room there is.
const MOST_EVENTS: usize = 4096;

// SAFETY: a pointer is plain.
unsafe impl Plain for *const Remote {}
// SAFETY: an integer is plain.
unsafe impl Plain for u64 {}

/// Makes a loop.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_loop_create(
    config: *const Config,
    index: u32,
    out: *mut *mut LoopHandle,
) -> c_int {
    return_code_int(|| {
        check_store(out, "out")?;
        let config = if config.is_null() {
            quoit::Config::default()
        } else {
            let base = options::config_for_c(&quoit::Config::default());
            // SAFETY: promised by the caller.
            options::config(&unsafe { read_sized(config, base, "config") }?)?
        };
        let index = u16::try_from(index)
            .ok()
            .and_then(LoopIndex::new)
            .ok_or_else(|| {
                Failure::invalid(format_args!(
                    "the loop's index is {index}, but it must be below {}",
                    quoit::id::MAX_LOOPS
                ))
            })?;
        let slots = config.receive_slots.min(quoit::internals::pool::MAX_POOL_SLOTS);
        let leases = Arc::new(Leases::new(slots).map_err(|errno| StartError::Kernel {
            doing: "making room for the loop's leases",
            errno,
        })?);
        let handle = LoopHandle::new(State {
            quoit: Loop::new(index, config)?,
            events: Events::with_capacity(1),
            leases,
            receivers: Receivers::default(),
        });
        // SAFETY: checked, and promised by the caller.
        unsafe { store(out, Box::into_raw(Box::new(handle)), "out") }?;
        Ok(0)
    })
}

/// Destroys a loop.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_loop_destroy(quoit: *mut LoopHandle) -> c_int {
    return_code_int(|| {
        if !quoit.is_null() {
            // SAFETY: promised by the caller.
            drop(unsafe { LoopHandle::reclaim(quoit) }?);
        }
        Ok(0)
    })
}

/// One turn: the hot call.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_turn(
    quoit: *mut LoopHandle,
    commands: *const types::Command,
    count: usize,
    events: *mut types::Event,
    capacity: usize,
    timeout_ns: i64,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        // SAFETY: promised by the caller.
        let commands = unsafe { array(commands, count, "commands") }?;
        if capacity == 0 {
            return Err(Failure::invalid("a turn needs room for at least one event"));
        }
        check_store(events, "events")?;
        check_count::<types::Event>(capacity, "events")?;
        handle.turn(|state| {
            let State {
                quoit,
                events: found,
                leases,
                receivers,
            } = state;
            found.set_capacity(capacity.min(MOST_EVENTS));
            let table: &Leases = leases;
            let commands = commands.iter().filter_map(|given| {
                // SAFETY: promised by the caller, and the turn ends before this call does.
                let command = || unsafe { commands::command(given, table, Keep::During) };
                (!commands::returned_lease(given, table)).then(command)
            });
            quoit.turn(commands, found, duration(timeout_ns))?;
            receivers.clear();
            let mut filled = 0;
            for event in found.drain() {
                let event = for_c(event, leases, receivers);
                // SAFETY: there is room for `capacity` events, and no turn reports more.
                unsafe { events.add(filled).write(event) };
                filled += 1;
            }
            // SAFETY: so many were written just now, to memory that the caller leaves to this call.
            receivers.show(unsafe { std::slice::from_raw_parts_mut(events, filled) });
            Ok(filled as c_int)
        })
    })
}

/// A call on a loop that returns a number.
///
/// # Safety
/// As for [`LoopHandle::of`].
pub(super) unsafe fn on_loop(
    quoit: *mut LoopHandle,
    call: impl FnOnce(&mut State) -> Result<c_int, Failure>,
) -> c_int {
    // SAFETY: promised by the caller.
    return_code_int(|| unsafe { LoopHandle::of(quoit) }?.with(call))
}

/// The descriptor for a foreign poller.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_fd(quoit: *mut LoopHandle) -> c_int {
    let call = |state: &mut State| match state.quoit.poll_descriptor() {
        Ok(descriptor) => Ok(descriptor.as_raw_fd()),
        Err(error) => Err(TurnError::from(error).into()),
    };
    // SAFETY: promised by the caller.
    unsafe { on_loop(quoit, call) }
}

/// Prepares for a wait on the descriptor, and returns how long it may last.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_next_deadline(quoit: *mut LoopHandle) -> i64 {
    return_code(|| {
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        let limit = handle.with(|state| Ok(state.quoit.park()?))?;
        Ok(limit.map_or(i64::MAX, nanoseconds))
    })
}

/// Which engine runs.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_engine(quoit: *mut LoopHandle) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { on_loop(quoit, |state| Ok(engine_number(state.quoit.engine()) as c_int)) }
}

/// Why that engine runs.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_engine_reason(
    quoit: *mut LoopHandle,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        on_loop(quoit, |state| {
            write_text(state.quoit.engine_reason(), buffer, capacity)
        })
    }
}

/// Accepts from a socket.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_listen(
    quoit: *mut LoopHandle,
    socket: *mut Socket,
    options: *const ListenOptions,
    listener: *mut u64,
) -> c_int {
    return_code_int(|| {
        // SAFETY: promised by the caller.
        unsafe { reference(socket.cast_const(), "socket") }?;
        // SAFETY: it is a socket that was handed out, and the header says that it is the library's from now on.
        let socket = unsafe { Box::from_raw(socket) };
        check_store(listener, "listener")?;
        // SAFETY: promised by the caller.
        let options = unsafe { listener_options(options) }?;
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        let id = handle.with(|state| Ok(state.quoit.listen_on(socket.0, &options)?))?;
        // SAFETY: checked, and promised by the caller.
        unsafe { store(listener, id.to_bits(), "listener") }?;
        Ok(0)
    })
}

/// # Safety
/// As for [`read_sized`], and the remotes must be held by the caller.
unsafe fn listener_options(pointer: *const ListenOptions) -> Result<ListenerOptions, Failure> {
    if pointer.is_null() {
        return Ok(ListenerOptions::default());
    }
    let base = ListenOptions {
        stream: options::default_stream_options(),
        ..crate::memory::zeroes()
    };
    // SAFETY: promised by the caller.
    let options = unsafe { read_sized(pointer, base, "options") }?;
    if options.reserved != 0 || options.reserved_too != 0 {
        return Err(Failure::invalid("`reserved` is not zero"));
    }
    let accept = match options.accept {
        QUOIT_ACCEPT_CONNECTIONS => Accept::Connections,
        QUOIT_ACCEPT_PAUSED => Accept::Paused,
        QUOIT_ACCEPT_DESCRIPTORS => Accept::Descriptors,
        QUOIT_ACCEPT_SPREAD => {
            let remotes = options.remotes.cast::<*const Remote>();
            // SAFETY: promised by the caller.
            let remotes = unsafe { array(remotes, options.remote_count as usize, "remotes") }?;
            if remotes.is_empty() {
                return Err(Failure::invalid("spreading needs at least one remote"));
            }
            let remote = |&remote: &*const Remote| {
                // SAFETY: promised by the caller.
                Ok(unsafe { reference(remote, "remotes[]") }?.remote.clone())
            };
            Accept::Spread(remotes.iter().map(remote).collect::<Result<_, Failure>>()?)
        }
        other => {
            return Err(Failure::invalid(format_args!(
                "`accept` is {other}, which is not a known way to accept"
            )));
        }
    };
    Ok(ListenerOptions {
        stream: stream_options(&options.stream)?,
        accept,
        tell_failures: options::switch(options.tell_failures, "tell_failures")?,
        ..ListenerOptions::default()
    })
}

pub(super) fn stale(what: &str) -> Failure {
    Failure::new(libc::ENOENT, format_args!("the id names no {what} of this loop"))
}

/// # Safety
/// As for [`LoopHandle::of`] and [`write_text`].
pub(super) unsafe fn write_address(
    quoit: *mut LoopHandle,
    buffer: *mut c_char,
    capacity: usize,
    find: impl FnOnce(&Loop) -> Result<Address, Failure>,
) -> c_int {
    let call = |state: &mut State| {
        let text = find(&state.quoit)?.to_string();
        // SAFETY: promised by the caller.
        unsafe { write_text(&text, buffer, capacity) }
    };
    // SAFETY: promised by the caller.
    unsafe { on_loop(quoit, call) }
}

/// Where a listener listens.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_listener_address(
    quoit: *mut LoopHandle,
    listener: u64,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    let id = ListenerId::from_bits(listener);
    let find = |quoit: &Loop| quoit.listener_address(id).ok_or_else(|| stale("listener"));
    // SAFETY: promised by the caller.
    unsafe { write_address(quoit, buffer, capacity, find) }
}

/// A connection's own address.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_local_address(
    quoit: *mut LoopHandle,
    connection: u64,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    let id = ConnectionId::from_bits(connection);
    let find = |quoit: &Loop| quoit.local_address(id).ok_or_else(|| stale("connection"));
    // SAFETY: promised by the caller.
    unsafe { write_address(quoit, buffer, capacity, find) }
}

/// The address of a connection's peer.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_peer_address(
    quoit: *mut LoopHandle,
    connection: u64,
    buffer: *mut c_char,
    capacity: usize,
) -> c_int {
    let id = ConnectionId::from_bits(connection);
    let find = |quoit: &Loop| {
        quoit.descriptor(id).ok_or_else(|| stale("connection"))?;
        quoit
            .peer_address(id)
            .ok_or_else(|| Failure::new(libc::ENOTCONN, "the connection's peer has gone"))
    };
    // SAFETY: promised by the caller.
    unsafe { write_address(quoit, buffer, capacity, find) }
}

/// A connection's descriptor, which stays the loop's.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_connection_fd(quoit: *mut LoopHandle, connection: u64) -> c_int {
    let call = |state: &mut State| {
        let id = ConnectionId::from_bits(connection);
        let descriptor = state.quoit.descriptor(id).ok_or_else(|| stale("connection"))?;
        Ok(descriptor.as_raw_fd())
    };
    // SAFETY: promised by the caller.
    unsafe { on_loop(quoit, call) }
}

/// What changes whenever the peer takes some of what was sent.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_taken_by_peer(quoit: *mut LoopHandle, connection: u64) -> i64 {
    return_code(|| {
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        let id = ConnectionId::from_bits(connection);
        let taken = handle.with(|state| state.quoit.taken_by_peer(id).ok_or_else(|| stale("connection")))?;
        // All that is meant is whether it changes.
        Ok((taken & i64::MAX as u64) as i64)
    })
}

/// What is queued for sending.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_queued(quoit: *mut LoopHandle, connection: u64) -> i64 {
    return_code(|| {
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        let id = ConnectionId::from_bits(connection);
        handle.with(|state| {
            state.quoit.descriptor(id).ok_or_else(|| stale("connection"))?;
            Ok(state.quoit.queued(id) as i64)
        })
    })
}

/// Why a connection takes nothing to be sent.
pub(super) fn cannot_send(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Stale => stale("connection"),
        Refusal::Error(errno) => Failure::new(errno.code(), "sending on the connection has failed"),
        _ => Failure::new(libc::EPIPE, "the connection sends no more"),
    }
}

/// Sends at once what the kernel takes, and returns how much that is.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_try_send(
    quoit: *mut LoopHandle,
    connection: u64,
    pieces: *const libc::iovec,
    count: usize,
) -> i64 {
    return_code(|| {
        // SAFETY: promised by the caller.
        let handle = unsafe { LoopHandle::of(quoit) }?;
        // SAFETY: promised by the caller.
        let pieces = unsafe { commands::slices(pieces, count) }?;
        let id = ConnectionId::from_bits(connection);
        let taken = handle.with(|state| state.quoit.try_send_gathered(id, pieces).map_err(cannot_send))?;
        // No more than the kernel takes at once, which is less than 2 GiB.
        Ok(taken as i64)
    })
}

/// The loop's counters.
///
/// # Safety
/// As `quoit.h` says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quoit_loop_counters(
    quoit: *mut LoopHandle,
    counters: *mut Counters,
) -> c_int {
    let call = |state: &mut State| {
        let value = Counters::from(&state.quoit.counters());
        // SAFETY: promised by the caller.
        unsafe { write_sized(counters, &value, "counters") }?;
        Ok(0)
    };
    // SAFETY: promised by the caller.
    unsafe { on_loop(quoit, call) }
}
