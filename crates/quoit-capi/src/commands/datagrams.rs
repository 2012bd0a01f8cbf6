//! Those that concern datagram sockets.

use bytes::Bytes;
use quoit::address::SocketAddress;
use quoit::{
    Address, Command, DatagramSend, DatagramSocket, DatagramSocketId, Ecn, Errno, Lease, Payload, RawBytes,
    Refusal, Token,
};

use crate::leases::Leases;
use crate::memory::{self, Keep, array, reference};
use crate::options::datagrams::{ip_address, multicast_group};
use crate::types::{self, *};

/// What a command hands over: the library's whatever becomes of the command, so it is taken first.
enum Handed<'a> {
    Nothing,
    /// `None`: the pointer to it is none.
    Socket(Option<Box<DatagramSocket>>),
    Sends(Result<Vec<DatagramSend<'a>>, Refusal>),
}

impl Handed<'_> {
    /// # Safety
    /// As for [`command`].
    unsafe fn take(given: &types::Command, leases: &Leases, keep: Keep) -> Self {
        match given.kind {
            QUOIT_COMMAND_OPEN_DATAGRAM => {
                let pointer = given.data.cast::<DatagramSocket>().cast_mut();
                // SAFETY: promised by the caller.
                let is_socket = unsafe { reference(pointer.cast_const(), "data") }.is_ok();
                // SAFETY: it is a socket that was handed out, and the header says that it is the library's from now on.
                Self::Socket(is_socket.then(|| unsafe { Box::from_raw(pointer) }))
            }
            // SAFETY: promised by the caller.
            QUOIT_COMMAND_SEND_DATAGRAMS => Self::Sends(unsafe { sends(given, leases, keep) }),
            _ => Self::Nothing,
        }
    }
}

/// As [`super::command()`], for kinds that concern datagram sockets; the error: why it is refused.
///
/// # Safety
/// As for [`super::command()`].
pub(super) unsafe fn command<'a>(
    given: &types::Command,
    leases: &Leases,
    keep: Keep,
) -> Result<Command<'a>, Refusal> {
    let socket = DatagramSocketId::from_bits(given.target);
    let invalid = Refusal::Error(Errno::EINVAL);
    // SAFETY: promised by the caller.
    let handed = unsafe { Handed::take(given, leases, keep) };
    if given.flags != 0 || given.reserved != 0 {
        return Err(invalid);
    }
    Ok(match (given.kind, handed) {
        (QUOIT_COMMAND_OPEN_DATAGRAM, Handed::Socket(opened)) => Command::OpenDatagram {
            socket: opened.ok_or(invalid)?,
            token: Token(given.token),
        },
        (QUOIT_COMMAND_SEND_DATAGRAMS, Handed::Sends(sends)) => Command::SendDatagrams {
            socket,
            datagrams: sends?,
        },
        (QUOIT_COMMAND_PAUSE_DATAGRAMS, _) => Command::PauseDatagrams { socket },
        (QUOIT_COMMAND_RESUME_DATAGRAMS, _) => Command::ResumeDatagrams { socket },
        (QUOIT_COMMAND_JOIN_MULTICAST | QUOIT_COMMAND_LEAVE_MULTICAST, _) => {
            // SAFETY: promised by the caller.
            let group = unsafe { reference(given.data.cast::<MulticastGroup>(), "data") };
            Command::SetMembership {
                socket,
                group: group.and_then(multicast_group).map_err(|_| invalid)?,
                member: given.kind == QUOIT_COMMAND_JOIN_MULTICAST,
            }
        }
        (QUOIT_COMMAND_CLOSE_DATAGRAM, _) => Command::CloseDatagram { socket },
        _ => return Err(invalid),
    })
}

/// The core's sends, all of whose leases are taken. If one of them makes no sense, none is made.
///
/// # Safety
/// As for [`command`].
unsafe fn sends<'a>(
    given: &types::Command,
    leases: &Leases,
    keep: Keep,
) -> Result<Vec<DatagramSend<'a>>, Refusal> {
    // SAFETY: promised by the caller.
    let named = unsafe { array::<types::DatagramSend>(given.data.cast(), given.length as usize, "data") };
    let named = named.map_err(|_| Refusal::Error(Errno::EINVAL))?;
    let mut sends = Ok(Vec::with_capacity(named.len()));
    for one in named {
        let lease = (one.lease != 0).then(|| leases.take(one.lease));
        // SAFETY: promised by the caller.
        match (&mut sends, unsafe { send(one, lease, keep) }) {
            (Ok(sends), Ok(send)) => sends.push(send),
            (Ok(_), Err(refusal)) => sends = Err(refusal),
            // The leases of those behind it are taken all the same.
            (Err(_), _) => {}
        }
    }
    sends
}

/// To whom a datagram goes: `Some(None)` without a length, `None` for what is no address.
///
/// # Safety
/// As many bytes are there, unless the pointer is null.
pub(crate) unsafe fn peer(sockaddr: *const u8, length: usize) -> Option<Option<Address>> {
    if length == 0 {
        return Some(None);
    }
    // SAFETY: promised by the caller.
    let bytes = unsafe { memory::bytes(sockaddr, length, "to") }.ok()?;
    Address::try_from(&SocketAddress::from_bytes(bytes))
        .ok()
        .map(Some)
}

/// The core's send for one of C's, and for the lease that it named, if it named one.
///
/// # Safety
/// As for [`command`].
unsafe fn send<'a>(
    given: &types::DatagramSend,
    lease: Option<Option<Lease>>,
    keep: Keep,
) -> Result<DatagramSend<'a>, Refusal> {
    let invalid = Refusal::Error(Errno::EINVAL);
    if given.flags & !(QUOIT_FLAG_BORROWED | QUOIT_FLAG_ECN) != 0
        || given.reserved != [0; 14]
        || given.ecn > 3
    {
        return Err(invalid);
    }
    // SAFETY: promised by the caller.
    let to = unsafe { peer(given.to.cast(), given.to_length as usize) }.ok_or(invalid)?;
    let source = match given.source_length {
        0 => None,
        length => Some(ip_address(&given.source, length.into()).ok_or(invalid)?),
    };
    let (address, length) = (given.data.cast::<u8>(), given.length as usize);
    if address.is_null() && length > 0 {
        return Err(invalid);
    }
    let payload = if let Some(lease) = lease {
        let mut lease = lease.ok_or(Refusal::Stale)?;
        let start = if length == 0 {
            0
        } else {
            address.addr().wrapping_sub(lease.as_ptr().addr())
        };
        if start.checked_add(length).is_none_or(|end| end > lease.len()) {
            return Err(invalid);
        }
        lease.advance(start);
        lease.truncate(length);
        Payload::Lease(lease)
    } else if given.flags & QUOIT_FLAG_BORROWED != 0 {
        // SAFETY: the header says how long borrowed memory must stay.
        Payload::Raw(unsafe { RawBytes::new(address, length) })
    } else {
        // SAFETY: checked for null, and the header says that `length` bytes are there during the call.
        let bytes = unsafe { memory::bytes(address, length, "data") }.map_err(|_| invalid)?;
        match keep {
            Keep::During => Payload::Copy(bytes),
            Keep::Later => Payload::Bytes(Bytes::copy_from_slice(bytes)),
        }
    };
    Ok(DatagramSend {
        payload,
        to,
        segment_size: (given.segment_size != 0).then_some(given.segment_size),
        source,
        interface: (given.interface != 0).then_some(given.interface),
        ecn: (given.flags & QUOIT_FLAG_ECN != 0).then(|| Ecn::from_bits(given.ecn)),
        token: Token(given.token),
    })
}
