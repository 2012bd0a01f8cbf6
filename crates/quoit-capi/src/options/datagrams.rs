//! Those of datagram sockets.

use std::ffi::c_char;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quoit::{Address, Gro};

use crate::error::Failure;
use crate::memory::{self, array};
use crate::types::*;

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
        return Err(Failure::invalid("`flags` has bits that are not known"));
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
                    "`gro` is {other}, which is not a known way to join datagrams"
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

pub(crate) fn multicast_group(group: &MulticastGroup) -> Result<quoit::MulticastGroup, Failure> {
    let address = ip_address(&group.address, group.address_length)
        .ok_or_else(|| Failure::invalid("a group's `address_length` must be 4 or 16"))?;
    Ok(quoit::MulticastGroup {
        group: address,
        interface: group.interface,
    })
}

/// An IP address of 4 or 16 bytes in the order of the network.
pub(crate) fn ip_address(bytes: &[u8; 16], length: u32) -> Option<IpAddr> {
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
            direct_sends: counters.direct_sends,
        }
    }
}
