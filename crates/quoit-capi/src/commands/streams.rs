//! Those that concern connections, listeners and the loop itself.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use bytes::Bytes;
use quoit::{
    Address, AttachOptions, Command, ConnectionId, Errno, FileRange, Lease, ListenerId, OnShort, Payload,
    RawBytes, RawPieces, Refusal, Token,
};

use crate::error::Failure;
use crate::leases::Leases;
use crate::memory::{self, Keep, Plain};
use crate::numbers::duration;
use crate::options::{default_connect_options, stream_options};
use crate::types::{self, *};

/// Takes over a descriptor, if it is one.
///
/// # Safety
/// If it is open, it must be the caller's to give.
pub(crate) unsafe fn take_descriptor(descriptor: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_GETFD takes no pointer, and returns EBADF for what is no descriptor.
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

/// As [`super::command()`], for kinds that do not concern datagram sockets; the error: why it is refused.
///
/// # Safety
/// As for [`super::command()`].
#[inline]
pub(super) unsafe fn command<'a>(
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
