//! C's commands and events, and those of the core.

use std::ffi::c_int;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use bytes::Bytes;
use quoit::{
    Address, AttachOptions, CloseReason, Command, ConnectionId, EngineKind, Errno, Event, Feature, FileRange,
    Lease, ListenerId, OnShort, Payload, RawBytes, RawPieces, Refusal, Token,
};

use crate::datagrams;
use crate::error::Failure;
use crate::leases::Leases;
use crate::memory::{self, Plain};
use crate::options::{default_connect_options, stream_options};
use crate::receivers::Receivers;
use crate::types::{self, *};

/// What of the caller's may be used after the call has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// Bytes to be copied are copied during the call.
    During,
    /// The command is carried out later: its bytes are copied now, to memory of their own.
    Later,
}

/// A length of time of C's: none if it is negative.
pub(crate) fn duration(nanoseconds: i64) -> Option<Duration> {
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// A length of time for C; what is too long becomes the longest.
pub(crate) fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Takes over a descriptor, if it is one.
///
/// # Safety
/// If it is open, it must be the caller's to give.
pub(crate) unsafe fn take_descriptor(descriptor: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_GETFD takes no pointer, and answers EBADF for what is no descriptor.
    Errno::check(unsafe { libc::fcntl(descriptor, libc::F_GETFD) })?;
    // SAFETY: it is open, and promised to be the caller's to give.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// What a command hands over: the library's whatever becomes of the command, so it is taken first, and let go of with
/// the command that is refused.
enum Handed {
    Nothing,
    Descriptor(Result<OwnedFd, Errno>),
    Lease(Option<Lease>),
}

impl Handed {
    /// # Safety
    /// What the command names must be the caller's to give.
    unsafe fn take(command: &types::Command, leases: &Leases) -> Self {
        match command.kind {
            QUOIT_COMMAND_ATTACH | QUOIT_COMMAND_SEND_FILE => {
                // SAFETY: promised by the caller.
                Self::Descriptor(unsafe { take_descriptor(command.descriptor) })
            }
            QUOIT_COMMAND_SEND_LEASE => Self::Lease(leases.take(command.lease)),
            _ => Self::Nothing,
        }
    }
}

/// The core's command for one of C's, which takes what that hands over; one that makes no sense becomes a refusal.
///
/// # Safety
/// What the command points at must be as `quoit.h` says, and with [`Keep::During`] `'a` must end with the call that
/// passed the command.
#[inline]
pub(crate) unsafe fn command<'a>(command: &types::Command, leases: &Leases, keep: Keep) -> Command<'a> {
    if datagrams::is_of_datagrams(command.kind) {
        // SAFETY: promised by the caller.
        return unsafe { datagrams::command(command, leases, keep) };
    }
    // SAFETY: promised by the caller.
    unsafe { stream_command(command, leases, keep) }.unwrap_or_else(|refusal| Command::Refuse {
        connection: (command.target != 0).then_some(ConnectionId::from_bits(command.target)),
        token: Token(command.token),
        refusal,
    })
}

/// Carries out a command that gives a lease back and needs no loop for it; `false` for all others, and if it names none.
#[inline]
pub(crate) fn returned_lease(command: &types::Command, leases: &Leases) -> bool {
    command.kind == QUOIT_COMMAND_RETURN_LEASE
        && command.flags == 0
        && command.reserved == 0
        && leases.take(command.lease).is_some()
}

/// As [`command()`], for kinds that do not concern datagram sockets; the error: why it is refused.
///
/// # Safety
/// As for [`command()`].
#[inline]
unsafe fn stream_command<'a>(
    command: &types::Command,
    leases: &Leases,
    keep: Keep,
) -> Result<Command<'a>, Refusal> {
    let connection = ConnectionId::from_bits(command.target);
    let token = Token(command.token);
    // SAFETY: the header says that it is the library's from now on.
    let handed = unsafe { Handed::take(command, leases) };
    let invalid = Refusal::Error(Errno::EINVAL);
    let flags = match command.kind {
        QUOIT_COMMAND_SEND => QUOIT_FLAG_BORROWED,
        QUOIT_COMMAND_SEND_GATHERED => QUOIT_FLAG_PROGRESS,
        QUOIT_COMMAND_SEND_FILE => QUOIT_FLAG_TELL_SHORT,
        QUOIT_COMMAND_CONNECT | QUOIT_COMMAND_ATTACH => QUOIT_FLAG_PAUSED,
        _ => 0,
    };
    if command.flags & !flags != 0 || command.reserved != 0 {
        return Err(invalid);
    }
    let paused = command.flags & QUOIT_FLAG_PAUSED != 0;
    Ok(match (command.kind, handed) {
        (QUOIT_COMMAND_SEND, _) => {
            let address = command.data.cast::<u8>();
            let length = command.length as usize;
            if address.is_null() && length > 0 {
                return Err(invalid);
            }
            let payload = if command.flags & QUOIT_FLAG_BORROWED != 0 {
                // SAFETY: the header says how long borrowed memory must stay.
                Payload::Raw(unsafe { RawBytes::new(address, length) })
            } else {
                // SAFETY: checked for null, and the header says that `length` bytes are there during the call.
                match unsafe { memory::bytes(address, length, "data") } {
                    Ok(bytes) if keep == Keep::During => Payload::Copy(bytes),
                    Ok(bytes) => Payload::Bytes(Bytes::copy_from_slice(bytes)),
                    Err(_) => return Err(invalid),
                }
            };
            Command::Send {
                connection,
                payload,
                token,
            }
        }
        (QUOIT_COMMAND_SEND_GATHERED, _) => {
            // SAFETY: promised by the caller.
            let pieces = unsafe { pieces(command.data.cast(), command.length as usize, keep) }?;
            Command::SendGathered {
                connection,
                pieces: if command.flags & QUOIT_FLAG_PROGRESS != 0 {
                    pieces.with_progress()
                } else {
                    pieces
                },
                token,
            }
        }
        // One that names a lease is carried out by now.
        (QUOIT_COMMAND_RETURN_LEASE, _) => return Err(Refusal::Stale),
        (QUOIT_COMMAND_SEND_LEASE, Handed::Lease(lease)) => {
            let mut lease = lease.ok_or(Refusal::Stale)?;
            let (offset, length) = (command.offset, command.length as usize);
            let within = usize::try_from(offset)
                .ok()
                .and_then(|offset| offset.checked_add(length))
                .is_some_and(|end| end <= lease.len());
            if !within {
                return Err(invalid);
            }
            lease.advance(offset as usize);
            lease.truncate(length);
            Command::Send {
                connection,
                payload: Payload::Lease(lease),
                token,
            }
        }
        (QUOIT_COMMAND_SEND_FILE, Handed::Descriptor(descriptor)) => Command::SendFile {
            connection,
            range: FileRange {
                file: File::from(descriptor?),
                offset: command.offset,
                length: u64::from(command.length),
                on_short: if command.flags & QUOIT_FLAG_TELL_SHORT != 0 {
                    OnShort::Tell
                } else {
                    OnShort::Abort
                },
            },
            token,
        },
        (QUOIT_COMMAND_ATTACH, Handed::Descriptor(descriptor)) => Command::Attach {
            descriptor: descriptor?,
            options: AttachOptions {
                paused,
                accepted_by: (command.target != 0).then_some(ListenerId::from_bits(command.target)),
            },
            token,
        },
        (QUOIT_COMMAND_CONNECT, _) => {
            // SAFETY: the header says what `data` leads to.
            let read = unsafe { connect_options(command.data.cast()) };
            let (address, mut options) = read.map_err(|failure| Refusal::Error(Errno::new(failure.code)))?;
            options.paused = paused;
            Command::Connect {
                address,
                options: Box::new(options),
                token,
            }
        }
        (QUOIT_COMMAND_SHUTDOWN, _) => Command::Shutdown { connection },
        (QUOIT_COMMAND_CLOSE, _) => Command::Close {
            connection,
            deadline: duration(command.time_ns),
        },
        (QUOIT_COMMAND_ABORT, _) => Command::Abort { connection },
        (QUOIT_COMMAND_PAUSE, _) => Command::Pause { connection },
        (QUOIT_COMMAND_RESUME, _) => Command::Resume { connection },
        (QUOIT_COMMAND_SET_DEADLINE, _) => Command::SetDeadline {
            connection,
            after: duration(command.time_ns),
        },
        (QUOIT_COMMAND_SET_TIMER, _) => match duration(command.time_ns) {
            Some(after) => Command::SetTimer { after, token },
            None => return Err(invalid),
        },
        (QUOIT_COMMAND_CANCEL_TIMER, _) => Command::CancelTimer { token },
        (QUOIT_COMMAND_PAUSE_LISTENING, _) => Command::PauseListening {
            listener: ListenerId::from_bits(command.target),
        },
        (QUOIT_COMMAND_RESUME_LISTENING, _) => Command::ResumeListening {
            listener: ListenerId::from_bits(command.target),
        },
        (QUOIT_COMMAND_STOP_LISTENING, _) => Command::StopListening {
            listener: ListenerId::from_bits(command.target),
        },
        (QUOIT_COMMAND_DRAIN, _) => match duration(command.time_ns) {
            Some(within) => Command::Drain { within },
            None => return Err(invalid),
        },
        _ => return Err(invalid),
    })
}

// SAFETY: an address and a length.
unsafe impl Plain for libc::iovec {}

/// The pieces of a list in C, each of less than 4 GiB.
///
/// # Safety
/// As for [`memory::array`]; and the memory of each piece must be there as long as the list is.
pub(crate) unsafe fn slices<'a>(
    list: *const libc::iovec,
    count: usize,
) -> Result<&'a [IoSlice<'a>], Failure> {
    // SAFETY: promised by the caller.
    let list = unsafe { memory::array(list, count, "pieces") }?;
    let is_valid = |piece: &libc::iovec| !piece.iov_base.is_null() && u32::try_from(piece.iov_len).is_ok();
    if !list.iter().all(is_valid) {
        return Err(Failure::invalid("a piece is null or too long"));
    }
    // SAFETY: `IoSlice` is guaranteed to have the ABI of `struct iovec`; none is null, and the memory is there, as the
    // caller promises.
    Ok(unsafe { std::slice::from_raw_parts(list.as_ptr().cast(), count) })
}

/// The pieces of a gathered send.
///
/// # Safety
/// The list and the memory of its pieces must be as `quoit.h` says, and with [`Keep::During`] `'a` must end with the call
/// that passed the command.
unsafe fn pieces<'a>(list: *const libc::iovec, count: usize, keep: Keep) -> Result<RawPieces<'a>, Refusal> {
    if count > RawPieces::MOST {
        return Err(Refusal::TooLarge);
    }
    // SAFETY: promised by the caller.
    let list = unsafe { slices(list, count) }.map_err(|_| Refusal::Error(Errno::EINVAL))?;
    // SAFETY: the memory is lent, as the caller promises.
    let pieces = unsafe { RawPieces::new(list) };
    Ok(match keep {
        Keep::During => pieces,
        // SAFETY: as above; only the list goes with the call.
        Keep::Later => unsafe { pieces.into_owned() },
    })
}

/// # Safety
/// As for [`memory::read_sized`], and the addresses must be as long as they say.
unsafe fn connect_options(
    pointer: *const ConnectOptions,
) -> Result<(Address, quoit::ConnectOptions), Failure> {
    // SAFETY: promised by the caller.
    let options = unsafe { memory::read_sized(pointer, default_connect_options(), "data") }?;
    let length = options.address_length as usize;
    // SAFETY: promised by the caller.
    let address = unsafe { memory::address(options.address, length, "address") }?;
    let local = match options.local_length as usize {
        0 => None,
        // SAFETY: promised by the caller.
        length => Some(unsafe { memory::address(options.local, length, "local") }?),
    };
    if options.reserved != 0 {
        return Err(Failure::invalid("`reserved` is not zero"));
    }
    let options = quoit::ConnectOptions {
        timeout: duration(options.timeout_ns),
        local,
        socket: stream_options(&options.stream)?,
        paused: false,
    };
    Ok((address, options))
}

/// The bit of a feature in the sets of the ABI: fixed by its name's place in the core's list, which only grows.
pub(crate) fn feature_bit(feature: Feature) -> u64 {
    1 << feature as u8
}

/// The number of an engine.
pub(crate) fn engine_number(kind: EngineKind) -> u32 {
    match kind {
        EngineKind::Uring => QUOIT_ENGINE_URING,
        EngineKind::Epoll => QUOIT_ENGINE_EPOLL,
    }
}

pub(crate) fn negative(errno: Errno) -> c_int {
    -errno.code()
}

fn close_reason(reason: CloseReason) -> (u16, c_int) {
    match reason {
        CloseReason::Local => (QUOIT_CLOSED_LOCAL, 0),
        CloseReason::PeerClosed => (QUOIT_CLOSED_PEER, 0),
        CloseReason::Reset => (QUOIT_CLOSED_RESET, 0),
        CloseReason::Timeout => (QUOIT_CLOSED_TIMEOUT, 0),
        CloseReason::Limit => (QUOIT_CLOSED_LIMIT, 0),
        CloseReason::Error(errno) => (QUOIT_CLOSED_ERROR, negative(errno)),
    }
}

pub(crate) fn refusal_reason(refusal: Refusal) -> (u16, c_int) {
    match refusal {
        Refusal::Stale => (QUOIT_REFUSED_STALE, 0),
        Refusal::Full => (QUOIT_REFUSED_FULL, 0),
        Refusal::TooLarge => (QUOIT_REFUSED_TOO_LARGE, 0),
        Refusal::Closing => (QUOIT_REFUSED_CLOSING, 0),
        Refusal::Limit => (QUOIT_REFUSED_LIMIT, 0),
        Refusal::Error(errno) => (QUOIT_REFUSED_ERROR, negative(errno)),
    }
}

/// C's event for one of the core's. Its lease goes to `leases`, its descriptor to the caller. The receiver that it names
/// goes to `receivers`, and `data` has yet to show it ([`Receivers::show`]).
///
/// # Panics
/// As [`datagrams::event`].
#[inline]
pub(crate) fn event(event: Event, leases: &Leases, receivers: &mut Receivers) -> types::Event {
    let mut answer = types::Event {
        descriptor: -1,
        ..memory::zeroes()
    };
    match event {
        Event::Data { connection, data } => {
            answer.kind = QUOIT_EVENT_DATA;
            answer.connection = connection.to_bits();
            answer.data = data.as_ptr().cast();
            answer.length = data.len() as u32;
            answer.lease = leases.put(data);
        }
        Event::Sent { connection, token } => {
            answer.kind = QUOIT_EVENT_SENT;
            answer.connection = connection.to_bits();
            answer.token = token.0;
        }
        Event::FileShort {
            connection,
            token,
            missing,
            error,
        } => {
            answer.kind = QUOIT_EVENT_FILE_SHORT;
            answer.connection = connection.to_bits();
            answer.token = token.0;
            // No more than the command's length, which has 32 bits.
            answer.length = missing as u32;
            answer.error = error.map_or(0, negative);
        }
        Event::AcceptFailed { listener, error } => {
            answer.kind = QUOIT_EVENT_ACCEPT_FAILED;
            answer.listener = listener.to_bits();
            answer.error = negative(error);
        }
        Event::Accepted { listener, connection } => {
            answer.kind = QUOIT_EVENT_ACCEPTED;
            answer.listener = listener.to_bits();
            answer.connection = connection.to_bits();
        }
        Event::AcceptedDescriptor { listener, descriptor } => {
            answer.kind = QUOIT_EVENT_ACCEPTED_DESCRIPTOR;
            answer.listener = listener.to_bits();
            answer.descriptor = descriptor.into_raw_fd();
        }
        Event::Connecting { connection, token } => {
            answer.kind = QUOIT_EVENT_CONNECTING;
            answer.connection = connection.to_bits();
            answer.token = token.0;
        }
        Event::Opened { connection, token } => {
            answer.kind = QUOIT_EVENT_OPENED;
            answer.connection = connection.to_bits();
            answer.token = token.0;
        }
        Event::EndOfStream { connection } => {
            answer.kind = QUOIT_EVENT_END_OF_STREAM;
            answer.connection = connection.to_bits();
        }
        Event::Writable { connection } => {
            answer.kind = QUOIT_EVENT_WRITABLE;
            answer.connection = connection.to_bits();
        }
        Event::Pressure { connection } => {
            answer.kind = QUOIT_EVENT_PRESSURE;
            answer.connection = connection.map_or(0, ConnectionId::to_bits);
        }
        Event::Deadline { connection } => {
            answer.kind = QUOIT_EVENT_DEADLINE;
            answer.connection = connection.to_bits();
        }
        Event::Closed {
            connection,
            token,
            reason,
        } => {
            answer.kind = QUOIT_EVENT_CLOSED;
            answer.connection = connection.to_bits();
            answer.token = token.0;
            (answer.reason, answer.error) = close_reason(reason);
        }
        Event::ListenerClosed { listener, error } => {
            answer.kind = QUOIT_EVENT_LISTENER_CLOSED;
            answer.listener = listener.to_bits();
            answer.error = error.map_or(0, negative);
        }
        Event::Refused {
            token,
            connection,
            refusal,
        } => {
            answer.kind = QUOIT_EVENT_REFUSED;
            answer.connection = connection.map_or(0, ConnectionId::to_bits);
            answer.token = token.0;
            (answer.reason, answer.error) = refusal_reason(refusal);
        }
        Event::Timer { token } => {
            answer.kind = QUOIT_EVENT_TIMER;
            answer.token = token.0;
        }
        Event::Woken => answer.kind = QUOIT_EVENT_WOKEN,
        Event::Draining => answer.kind = QUOIT_EVENT_DRAINING,
        Event::Drained => answer.kind = QUOIT_EVENT_DRAINED,
        other => datagrams::event(other, leases, receivers, &mut answer),
    }
    answer
}
