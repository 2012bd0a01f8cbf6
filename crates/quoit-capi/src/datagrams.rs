//! C's commands, events and options that concern datagram sockets, and those of the core.

use std::ffi::c_char;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use quoit::address::SocketAddress;
use quoit::{
    Address, Command, DatagramError, DatagramSend, DatagramSocket, DatagramSocketId, Ecn, Errno, Event, Gro,
    Lease, Payload, RawBytes, Refusal, Token,
};

use crate::convert::{Keep, negative, refusal_reason};
use crate::error::Failure;
use crate::leases::Leases;
use crate::memory::{self, array, reference};
use crate::receivers::Receivers;
use crate::types::{self, *};

/// Whether a command of this kind concerns a datagram socket.
pub(crate) const fn is_of_datagrams(kind: u16) -> bool {
    matches!(kind, QUOIT_COMMAND_OPEN_DATAGRAM..=QUOIT_COMMAND_CLOSE_DATAGRAM)
}

/// As [`crate::convert::command`], for kinds that concern datagram sockets.
///
/// # Safety
/// As for [`crate::convert::command`].
pub(crate) unsafe fn command<'a>(given: &types::Command, leases: &Leases, keep: Keep) -> Command<'a> {
    // SAFETY: promised by the caller.
    unsafe { datagram_command(given, leases, keep) }.unwrap_or_else(|refusal| Command::RefuseDatagram {
        socket: (given.target != 0).then_some(DatagramSocketId::from_bits(given.target)),
        token: Token(given.token),
        refusal,
    })
}

/// What a command hands over, as [`crate::convert`]'s.
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

/// # Safety
/// As for [`command`].
unsafe fn datagram_command<'a>(
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
    let to = match given.to_length {
        0 => None,
        length => {
            // SAFETY: promised by the caller.
            let bytes = unsafe { memory::bytes(given.to.cast(), length as usize, "to") };
            let raw = SocketAddress::from_bytes(bytes.map_err(|_| invalid)?);
            Some(Address::try_from(&raw).map_err(|_| invalid)?)
        }
    };
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

/// What C is shown of datagrams. Its pointers are good as long as their lease is held.
pub(crate) fn view(datagrams: &quoit::Datagrams) -> Datagrams {
    let whole = datagrams.whole();
    let peer = whole.peer_bytes();
    let (local, local_length) = match whole.local_address() {
        None => ([0; 16], 0),
        Some(IpAddr::V4(address)) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            (bytes, 4)
        }
        Some(IpAddr::V6(address)) => (address.octets(), 16),
    };
    let since_epoch = whole
        .timestamp()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let truncated = if whole.is_truncated() {
        QUOIT_DATAGRAMS_TRUNCATED
    } else {
        0
    };
    let ecn = whole.ecn();
    Datagrams {
        size: size_of::<Datagrams>() as u32,
        flags: truncated | if ecn.is_some() { QUOIT_DATAGRAMS_ECN } else { 0 },
        data: whole.bytes().as_ptr().cast(),
        length: whole.bytes().len() as u32,
        count: datagrams.len() as u32,
        segment_size: whole.segment_size().unwrap_or(0).into(),
        peer_length: peer.len() as u32,
        peer: peer.as_ptr().cast(),
        timestamp_ns: since_epoch.map_or(0, crate::convert::nanoseconds),
        interface: whole.interface().unwrap_or(0),
        local_length,
        ecn: ecn.unwrap_or_default() as u8,
        reserved: 0,
        local,
    }
}

/// Fills in C's event for one of the core's that concerns a datagram socket.
///
/// # Panics
/// For an event that this ABI has no number for: a fault of the library's.
pub(crate) fn event(event: Event, leases: &Leases, receivers: &mut Receivers, answer: &mut types::Event) {
    match event {
        Event::Datagrams { socket, datagrams } => {
            answer.kind = QUOIT_EVENT_DATAGRAMS;
            answer.connection = socket.to_bits();
            answer.length = datagrams.whole().bytes().len() as u32;
            let (number, view) = leases.put_datagrams(datagrams);
            answer.lease = number;
            answer.data = view.cast();
        }
        Event::DatagramSent {
            socket,
            token,
            result,
        } => {
            answer.kind = QUOIT_EVENT_DATAGRAM_SENT;
            answer.connection = socket.to_bits();
            answer.token = token.0;
            match result {
                Ok(length) => answer.length = length,
                Err(errno) => answer.error = negative(errno),
            }
        }
        Event::DatagramError { socket, error } => {
            answer.kind = QUOIT_EVENT_DATAGRAM_ERROR;
            answer.connection = socket.to_bits();
            (answer.reason, answer.error, answer.length) = error_reason(error, receivers);
        }
        Event::DatagramWritable { socket } => {
            answer.kind = QUOIT_EVENT_DATAGRAM_WRITABLE;
            answer.connection = socket.to_bits();
        }
        Event::DatagramPressure { socket } => {
            answer.kind = QUOIT_EVENT_DATAGRAM_PRESSURE;
            answer.connection = socket.to_bits();
        }
        Event::DatagramOpened { socket, token } => {
            answer.kind = QUOIT_EVENT_DATAGRAM_OPENED;
            answer.connection = socket.to_bits();
            answer.token = token.0;
        }
        Event::DatagramClosed { socket, token, error } => {
            answer.kind = QUOIT_EVENT_DATAGRAM_CLOSED;
            answer.connection = socket.to_bits();
            answer.token = token.0;
            answer.error = error.map_or(0, negative);
        }
        Event::DatagramRefused {
            token,
            socket,
            refusal,
        } => {
            answer.kind = QUOIT_EVENT_DATAGRAM_REFUSED;
            answer.connection = socket.map_or(0, DatagramSocketId::to_bits);
            answer.token = token.0;
            (answer.reason, answer.error) = refusal_reason(refusal);
        }
        other => unreachable!("{other:?} has no number in this ABI"),
    }
}

/// The reason, the error, and the bytes of the datagram that was to be sent, or of the receiver's address.
fn error_reason(error: DatagramError, receivers: &mut Receivers) -> (u16, i32, u32) {
    match error {
        DatagramError::Network(errno) => (QUOIT_DATAGRAM_ERROR_NETWORK, negative(errno), 0),
        DatagramError::Unreachable(told) => (
            QUOIT_DATAGRAM_ERROR_UNREACHABLE,
            negative(told.errno()),
            receivers.put(told.receiver()),
        ),
        DatagramError::TooLarge { size } => (QUOIT_DATAGRAM_ERROR_TOO_LARGE, -libc::EMSGSIZE, size),
        DatagramError::Send { errno, size } => (QUOIT_DATAGRAM_ERROR_SEND, negative(errno), size),
        DatagramError::ControlTruncated => (QUOIT_DATAGRAM_ERROR_CONTROL_TRUNCATED, 0, 0),
        DatagramError::Receive(errno) => (QUOIT_DATAGRAM_ERROR_RECEIVE, negative(errno), 0),
        other => unreachable!("{other:?} has no number in this ABI"),
    }
}

/// The defaults of the core, as `quoit.h` has them.
pub(crate) fn default_options() -> DatagramOptions {
    let options = quoit::DatagramOptions::default();
    DatagramOptions {
        max_datagram: options.max_datagram,
        slots: options.slots,
        high_water: options.high_water,
        low_water: options.low_water,
        queued_sends: options.queued_sends,
        multicast_loop: QUOIT_UNSET,
        multicast_hops: QUOIT_UNSET,
        ..memory::zeroes()
    }
}

/// The core's options; its own check of the ranges is still to come. Null stands for the defaults.
///
/// # Safety
/// As for [`memory::read_sized`]; the groups and the peer must be as many and as long as they say.
pub(crate) unsafe fn options(pointer: *const DatagramOptions) -> Result<quoit::DatagramOptions, Failure> {
    if pointer.is_null() {
        return Ok(quoit::DatagramOptions::default());
    }
    // SAFETY: promised by the caller.
    let options = unsafe { memory::read_sized(pointer, default_options(), "options") }?;
    let known = QUOIT_DATAGRAM_TELL_UNREACHABLE | (QUOIT_DATAGRAM_TELL_UNREACHABLE - 1);
    if options.flags & !known != 0 {
        return Err(Failure::invalid("`flags` sets what is not known"));
    }
    let flag = |bit: u32| options.flags & bit != 0;
    // SAFETY: promised by the caller.
    let groups = unsafe { array(options.groups, options.group_count as usize, "groups") }?;
    let size = |bytes: u32| (bytes != 0).then_some(bytes);
    Ok(quoit::DatagramOptions {
        max_datagram: options.max_datagram,
        slots: options.slots,
        gro: match options.gro {
            QUOIT_GRO_OFF => Gro::Off,
            QUOIT_GRO_TRANSPARENT => Gro::Transparent,
            QUOIT_GRO_RAW => Gro::Raw,
            other => {
                return Err(Failure::invalid(format_args!(
                    "`gro` is {other}, which names no way to join"
                )));
            }
        },
        receive_ecn: flag(QUOIT_DATAGRAM_TELL_ECN),
        receive_timestamps: flag(QUOIT_DATAGRAM_TELL_TIME),
        receive_local_address: flag(QUOIT_DATAGRAM_TELL_LOCAL),
        receive_errors: flag(QUOIT_DATAGRAM_TELL_UNREACHABLE),
        high_water: options.high_water,
        low_water: options.low_water,
        queued_sends: options.queued_sends,
        receive_buffer: size(options.receive_buffer),
        force_receive_buffer: flag(QUOIT_DATAGRAM_FORCE_RECEIVE_BUFFER),
        send_buffer: size(options.send_buffer),
        reuse_port: flag(QUOIT_DATAGRAM_REUSE_PORT),
        reuse_address: flag(QUOIT_DATAGRAM_REUSE_ADDRESS),
        broadcast: flag(QUOIT_DATAGRAM_BROADCAST),
        ipv6_only: flag(QUOIT_DATAGRAM_IPV6_ONLY),
        groups: groups
            .iter()
            .map(multicast_group)
            .collect::<Result<_, Failure>>()?,
        multicast_loop: match options.multicast_loop {
            QUOIT_UNSET => None,
            on @ 0..=1 => Some(on == 1),
            _ => return Err(Failure::invalid("`multicast_loop` must be 0, 1 or unset")),
        },
        multicast_hops: match options.multicast_hops {
            QUOIT_UNSET => None,
            hops => {
                let hops = u8::try_from(hops);
                Some(hops.map_err(|_| Failure::invalid("`multicast_hops` must be at most 255, or unset"))?)
            }
        },
        peer: match options.peer_length as usize {
            0 => None,
            // SAFETY: promised by the caller.
            length => Some(unsafe { memory::address(options.peer, length, "peer") }?),
        },
        paused: flag(QUOIT_DATAGRAM_PAUSED),
    })
}

fn multicast_group(group: &MulticastGroup) -> Result<quoit::MulticastGroup, Failure> {
    let address = ip_address(&group.address, group.address_length)
        .ok_or_else(|| Failure::invalid("a group's `address_length` must be 4 or 16"))?;
    Ok(quoit::MulticastGroup {
        group: address,
        interface: group.interface,
    })
}

/// An IP address of 4 or 16 bytes in the order of the network.
fn ip_address(bytes: &[u8; 16], length: u32) -> Option<IpAddr> {
    match length {
        4 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        16 => Some(Ipv6Addr::from(*bytes).into()),
        _ => None,
    }
}

/// The address of a socket to be bound: as any, or `unix:` for a Unix socket without a name.
///
/// # Safety
/// As for [`memory::address`].
pub(crate) unsafe fn bind_address(pointer: *const c_char, length: usize) -> Result<Address, Failure> {
    // SAFETY: promised by the caller.
    let text = unsafe { memory::bytes(pointer.cast(), length, "address") }?;
    if text == b"unix:" {
        return Ok(Address::UnixUnnamed);
    }
    // SAFETY: promised by the caller.
    unsafe { memory::address(pointer, length, "address") }
}

impl From<&quoit::DatagramCounters> for DatagramCounters {
    fn from(counters: &quoit::DatagramCounters) -> Self {
        Self {
            size: size_of::<Self>() as u32,
            reserved: 0,
            received: counters.received,
            received_bytes: counters.received_bytes,
            received_buffers: counters.received_buffers,
            receive_batches: counters.receive_batches,
            largest_batch: counters.largest_batch,
            kernel_drops: counters.kernel_drops,
            pauses: counters.pauses,
            truncated: counters.truncated,
            control_truncated: counters.control_truncated,
            arms: counters.arms,
            receive_errors: counters.receive_errors,
            sent: counters.sent,
            sent_bytes: counters.sent_bytes,
            sends: counters.sends,
            send_batches: counters.send_batches,
            sends_refused: counters.sends_refused,
            send_errors: counters.send_errors,
            segmentation_refused: counters.segmentation_refused,
            slots: counters.slots,
            slots_leased: counters.slots_leased,
            slots_low_water: counters.slots_low_water,
            queued_bytes: counters.queued_bytes,
        }
    }
}
