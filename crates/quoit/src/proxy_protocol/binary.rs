//! Version 2: a fixed part, addresses, and values.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::{Addresses, Header, HeaderError};
use crate::address::Address;

/// What each begins with.
pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, the version and the command, the family and the protocol, and the length of the rest.
pub(super) const FIXED: usize = 16;
/// Bytes of each address of a Unix socket.
const UNIX: usize = 108;
/// Bytes of the longest addresses.
pub(super) const LONGEST_ADDRESSES: usize = 2 * UNIX;
/// The type of the value that is a checksum of the header (`PP2_TYPE_CRC32C`).
pub(super) const CHECKSUM: u8 = 3;

/// Reads a header that begins with as much of [`SIGNATURE`] as there is.
pub(super) fn decode(bytes: &[u8], limit: usize) -> Result<Option<(Header, usize)>, HeaderError> {
    // What is wrong is said as soon as it is there.
    if let Some(&byte) = bytes.get(12) {
        if byte >> 4 != 2 {
            return Err(HeaderError::Version(byte >> 4));
        }
        if byte & 15 > 1 {
            return Err(HeaderError::Command(byte & 15));
        }
    }
    let Some(fixed) = bytes.first_chunk::<FIXED>() else {
        return Ok(None);
    };
    let is_local = fixed[12] & 15 == 0;
    let family = fixed[13];
    let length = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    // Of a local connection the family does not matter, nor do the addresses.
    if !is_local && (family >> 4 > 3 || family & 15 > 2) {
        return Err(HeaderError::Family(family));
    }
    let addresses = match family {
        _ if is_local => 0,
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => LONGEST_ADDRESSES,
        // Not specified: nothing is known of what follows.
        _ => 0,
    };
    if length < FIXED + addresses {
        return Err(HeaderError::TooShort);
    }
    if length > limit {
        return Err(HeaderError::TooLong { limit });
    }
    let Some(whole) = bytes.get(..length) else {
        return Ok(None);
    };
    let mut header = Header::new(None);
    if addresses > 0 {
        let (there, values) = whole[FIXED..].split_at(addresses);
        check(whole, values)?;
        header.addresses = match family {
            0x11 => Some(ipv4(there)),
            0x21 => Some(ipv6(there)),
            0x31 => Some(unix(there)?),
            // Datagrams have no place on a stream: as if the family were not specified.
            _ => None,
        };
        if header.addresses.is_some() {
            header.values = values.into();
        }
    }
    Ok(Some((header, length)))
}

fn ipv4(bytes: &[u8]) -> Addresses {
    let ip = |at: usize| Ipv4Addr::from(*bytes[at..].first_chunk::<4>().expect("12 bytes"));
    Addresses {
        source: SocketAddr::from((ip(0), port(bytes, 8))).into(),
        destination: SocketAddr::from((ip(4), port(bytes, 10))).into(),
    }
}

fn ipv6(bytes: &[u8]) -> Addresses {
    let ip = |at: usize| Ipv6Addr::from(*bytes[at..].first_chunk::<16>().expect("36 bytes"));
    Addresses {
        source: SocketAddr::from((ip(0), port(bytes, 32))).into(),
        destination: SocketAddr::from((ip(16), port(bytes, 34))).into(),
    }
}

fn port(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn unix(bytes: &[u8]) -> Result<Addresses, HeaderError> {
    let (source, destination) = bytes.split_at(UNIX);
    Ok(Addresses {
        source: unix_address(source)?,
        destination: unix_address(destination)?,
    })
}

/// An address as in `sun_path`, filled up with zeros: where an abstract name ends cannot be told from that otherwise.
fn unix_address(bytes: &[u8]) -> Result<Address, HeaderError> {
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    match bytes[..used].split_first() {
        None => Ok(Address::UnixUnnamed),
        Some((0, name)) => Ok(Address::UnixAbstract(name.into())),
        Some(_) => {
            let end = bytes.iter().position(|byte| *byte == 0);
            let path = &bytes[..end.ok_or(HeaderError::Path)?];
            Ok(Address::UnixPath(
                std::ffi::OsString::from_vec(path.to_vec()).into(),
            ))
        }
    }
}

/// The values of a header, each with its type; an error where one goes past the end.
pub(super) struct Values<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Values<'a> {
    type Item = Result<(u8, &'a [u8]), HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let one = self.0.split_first_chunk::<3>().and_then(|(head, rest)| {
            let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
            Some((head[0], rest.split_at_checked(length)?))
        });
        Some(match one {
            Some((kind, (value, rest))) => {
                self.0 = rest;
                Ok((kind, value))
            }
            None => {
                self.0 = &[];
                Err(HeaderError::Value)
            }
        })
    }
}

/// Checks the values of a header, and its checksum if it has one.
fn check(whole: &[u8], values: &[u8]) -> Result<(), HeaderError> {
    let mut checksum = None;
    let mut values = Values(values);
    while let Some(value) = values.next() {
        let (kind, value) = value?;
        if kind == CHECKSUM {
            let stated: [u8; 4] = value.try_into().map_err(|_| HeaderError::Value)?;
            let place = whole.len() - values.0.len() - value.len();
            // Of two checksums each would be of a header without the other.
            if checksum.replace((place, u32::from_be_bytes(stated))).is_some() {
                return Err(HeaderError::Value);
            }
        }
    }
    match checksum {
        Some((place, stated)) if crc32c(whole, place) != stated => Err(HeaderError::Checksum),
        _ => Ok(()),
    }
}

/// The CRC-32C (RFC 4960, appendix B) of bytes with four zeros at `zeros`. Bit by bit, as few headers have one.
pub(super) fn crc32c(bytes: &[u8], zeros: usize) -> u32 {
    let mut crc = u32::MAX;
    for (at, byte) in bytes.iter().enumerate() {
        if !(zeros..zeros + 4).contains(&at) {
            crc ^= u32::from(*byte);
        }
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

pub(super) fn encode(addresses: Option<&Addresses>, values: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FIXED + LONGEST_ADDRESSES + values.len());
    bytes.extend_from_slice(SIGNATURE);
    let mut there = Vec::new();
    let family = addresses.and_then(|Addresses { source, destination }| match (source, destination) {
        (Address::Tcp(SocketAddr::V4(source)), Address::Tcp(SocketAddr::V4(destination))) => {
            there.extend_from_slice(&source.ip().octets());
            there.extend_from_slice(&destination.ip().octets());
            there.extend_from_slice(&source.port().to_be_bytes());
            there.extend_from_slice(&destination.port().to_be_bytes());
            Some(0x11)
        }
        (Address::Tcp(SocketAddr::V6(source)), Address::Tcp(SocketAddr::V6(destination))) => {
            there.extend_from_slice(&source.ip().octets());
            there.extend_from_slice(&destination.ip().octets());
            there.extend_from_slice(&source.port().to_be_bytes());
            there.extend_from_slice(&destination.port().to_be_bytes());
            Some(0x21)
        }
        (Address::Tcp(_), _) | (_, Address::Tcp(_)) => None,
        (source, destination) => {
            there.extend_from_slice(&unix_bytes(source)?);
            there.extend_from_slice(&unix_bytes(destination)?);
            Some(0x31)
        }
    });
    let Some(family) = family else {
        bytes.extend_from_slice(&[0x20, 0, 0, 0]);
        return bytes;
    };
    let length = u16::try_from(there.len() + values.len()).expect("push_value keeps it below");
    bytes.extend_from_slice(&[0x21, family]);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&there);
    bytes.extend_from_slice(values);
    bytes
}

/// An address as in `sun_path`; `None` for one that the kernel would not take either.
fn unix_bytes(address: &Address) -> Option<[u8; UNIX]> {
    let mut bytes = [0; UNIX];
    match address {
        Address::UnixPath(path) => {
            let path = path.as_os_str().as_bytes();
            // The last byte stays zero.
            bytes[..UNIX - 1].get_mut(..path.len())?.copy_from_slice(path);
        }
        Address::UnixAbstract(name) => bytes[1..].get_mut(..name.len())?.copy_from_slice(name),
        Address::UnixUnnamed | Address::Tcp(_) => {}
    }
    Some(bytes)
}
