//! Version 1: a line of text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Addresses, Header, HeaderError, MOST_TEXT, Version};
use crate::address::Address;

/// What each begins with.
pub(super) const PREFIX: &[u8] = b"PROXY ";

/// Reads a line that begins with as much of [`PREFIX`] as there is.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    let seen = &bytes[..bytes.len().min(MOST_TEXT)];
    let Some(end) = seen.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return more(seen);
    };
    // Neither end of line stands alone.
    match (seen[end], seen.get(end + 1)) {
        (b'\r', None) => return more(seen),
        (b'\r', Some(b'\n')) => {}
        _ => return Err(HeaderError::Line),
    }
    let addresses = line(&seen[..end]).ok_or(HeaderError::Line)?;
    let header = Header {
        version: Version::One,
        addresses,
        values: Box::default(),
    };
    Ok(Some((header, end + 2)))
}

fn more(seen: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    if seen.len() == MOST_TEXT {
        return Err(HeaderError::TooLong { limit: MOST_TEXT });
    }
    Ok(None)
}

/// The addresses of a line without its end; `Some(None)` if it has none, `None` if it is no such line.
fn line(line: &[u8]) -> Option<Option<Addresses>> {
    let rest = line.strip_prefix(PREFIX)?;
    if let Some(ignored) = rest.strip_prefix(b"UNKNOWN") {
        return (ignored.is_empty() || ignored[0] == b' ').then_some(None);
    }
    let mut words = std::str::from_utf8(rest).ok()?.split(' ');
    let mut word = || words.next();
    let addresses = match word()? {
        "TCP4" => addresses::<Ipv4Addr>([word()?, word()?, word()?, word()?])?,
        "TCP6" => addresses::<Ipv6Addr>([word()?, word()?, word()?, word()?])?,
        _ => return None,
    };
    word().is_none().then_some(Some(addresses))
}

fn addresses<A: FromStr + Into<IpAddr>>([source, destination, from, to]: [&str; 4]) -> Option<Addresses> {
    let address = |text: &str, port| -> Option<Address> {
        let ip: A = text.parse().ok()?;
        Some(SocketAddr::new(ip.into(), self::port(port)?).into())
    };
    Some(Addresses {
        source: address(source, from)?,
        destination: address(destination, to)?,
    })
}

/// A port without a sign and without zeros before it.
fn port(text: &str) -> Option<u16> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_padded = text.len() > 1 && text.starts_with('0');
    (is_decimal && !is_padded).then(|| text.parse().ok())?
}

pub(super) fn encode(addresses: Option<&Addresses>) -> Vec<u8> {
    if let Some(Addresses {
        source: Address::Tcp(source),
        destination: Address::Tcp(destination),
    }) = addresses
    {
        let family = match (source, destination) {
            (SocketAddr::V4(_), SocketAddr::V4(_)) => "TCP4",
            (SocketAddr::V6(_), SocketAddr::V6(_)) => "TCP6",
            _ => return b"PROXY UNKNOWN\r\n".to_vec(),
        };
        let (from, to) = (source.port(), destination.port());
        let (source, destination) = (source.ip(), destination.ip());
        return format!("PROXY {family} {source} {destination} {from} {to}\r\n").into_bytes();
    }
    b"PROXY UNKNOWN\r\n".to_vec()
}
