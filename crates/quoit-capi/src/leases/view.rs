//! What C is shown of datagrams.

use std::net::IpAddr;
use std::time::UNIX_EPOCH;

use crate::numbers::nanoseconds;
use crate::types::{Datagrams, QUOIT_DATAGRAMS_ECN, QUOIT_DATAGRAMS_TRUNCATED};

/// What C is shown of datagrams. Its pointers are good as long as their lease is held.
pub(super) fn view_of(datagrams: &quoit::Datagrams) -> Datagrams {
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
        timestamp_ns: since_epoch.map_or(0, nanoseconds),
        interface: whole.interface().unwrap_or(0),
        local_length,
        ecn: ecn.unwrap_or_default() as u8,
        reserved: 0,
        local,
    }
}
