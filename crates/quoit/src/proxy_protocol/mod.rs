//! The PROXY protocol, versions 1 and 2: the client's address, from a balancer.
//!
//! A balancer that passes TCP on is the peer of every connection. With this protocol it says first for whom it speaks: a
//! [`Header`], before any byte of the client's. HAProxy, AWS's network load balancer, Envoy, nginx and others send it; the text
//! is HAProxy's `doc/proxy-protocol.txt`.
//!
//! [`ProxyProtocol`] wraps a [`Handler`](crate::Handler) and takes the headers off. [`decode`] and [`Header::encode`] are for
//! those who read or write one themselves; they do no input or output.
//!
//! Whoever can reach such a listener says which address it has. So it must be reachable by balancers only, and there is no
//! listener that takes connections with and without a header: the text forbids that.

mod binary;
mod handler;
mod text;

#[cfg(any(test, fuzzing))]
mod fuzz;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::address::Address;

#[cfg(any(test, fuzzing))]
pub(crate) use fuzz::proxy_header as fuzzing;
pub use handler::{HeaderCounters, Proxied, ProxyOptions, ProxyProtocol, Refused};

/// The longest header of version 1, in bytes.
pub const MOST_TEXT: usize = 107;
/// The longest header of version 2 that its length can tell, in bytes.
pub const MOST_BINARY: usize = binary::FIXED + u16::MAX as usize;
/// The longest header that [`ProxyOptions`] allow by default, in bytes.
pub const DEFAULT_LIMIT: usize = 4096;

/// The two forms of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Version {
    /// A line of text.
    One,
    /// Bytes, and values beside the addresses.
    Two,
}

/// The two ends of the connection that the balancer has accepted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Addresses {
    /// The client's.
    pub source: Address,
    /// The one that the client has connected to.
    pub destination: Address,
}

/// What a balancer says of a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The form that it came in.
    pub version: Version,
    /// For whom the balancer speaks. `None`: the connection's own addresses hold. The balancer speaks for itself (`LOCAL`), or
    /// does not know the addresses (`UNKNOWN`, `UNSPEC`), or they are of datagrams, which this connection does not carry.
    pub addresses: Option<Addresses>,
    values: Box<[u8]>,
}

impl Header {
    /// One of version 2 without values.
    #[must_use]
    pub fn new(addresses: Option<Addresses>) -> Self {
        Self {
            version: Version::Two,
            addresses,
            values: Box::default(),
        }
    }

    /// The values of version 2 beside the addresses, each with its type (`PP2_TYPE_...`), in their order. There are none where
    /// `addresses` is `None`.
    pub fn values(&self) -> impl Iterator<Item = (u8, &[u8])> {
        binary::Values(&self.values).map_while(Result::ok)
    }

    /// Adds a value. Its type must not be that of the checksum, which is of the whole header.
    ///
    /// # Errors
    /// [`HeaderError::TooLong`]: it has no room; and [`HeaderError::Value`] for a checksum.
    pub fn push_value(&mut self, kind: u8, value: &[u8]) -> Result<(), HeaderError> {
        if kind == binary::CHECKSUM {
            return Err(HeaderError::Value);
        }
        let too_long = || HeaderError::TooLong { limit: MOST_BINARY };
        let length = u16::try_from(value.len()).map_err(|_| too_long())?;
        if binary::LONGEST_ADDRESSES + self.values.len() + 3 + value.len() > usize::from(u16::MAX) {
            return Err(too_long());
        }
        let mut values = std::mem::take(&mut self.values).into_vec();
        values.push(kind);
        values.extend_from_slice(&length.to_be_bytes());
        values.extend_from_slice(value);
        self.values = values.into_boxed_slice();
        Ok(())
    }

    /// The header as bytes, in the form that `version` says: what a proxy sends to its target first. What that form cannot say
    /// is left out: version 1 has neither values nor addresses of Unix sockets, and no form has one address of IPv4 and one of
    /// IPv6. Then the receiver uses the connection's own addresses.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self.version {
            Version::One => text::encode(self.addresses.as_ref()),
            Version::Two => binary::encode(self.addresses.as_ref(), &self.values),
        }
    }
}

/// Why bytes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum HeaderError {
    /// They begin as no header does.
    Missing,
    /// It is longer than this. Those of version 1 have at most [`MOST_TEXT`] bytes.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A line that is none of version 1.
    Line,
    /// A version other than 2 in the binary form.
    Version(u8),
    /// A command other than `LOCAL` and `PROXY`.
    Command(u8),
    /// A family or a protocol that there is not, in one byte.
    Family(u8),
    /// It is too short for its addresses.
    TooShort,
    /// The path of a Unix socket has no end.
    Path,
    /// A value that goes past the end, or a checksum that is not one of four bytes.
    Value,
    /// Its checksum is wrong.
    Checksum,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "no header of the PROXY protocol came first; let the balancer send one, or turn the protocol off",
            ),
            Self::TooLong { limit } => write!(f, "the header is longer than {limit} bytes"),
            Self::Line => f.write_str("the line is no header of version 1"),
            Self::Version(version) => write!(f, "the binary header has version {version}, not 2"),
            Self::Command(command) => write!(f, "{command} is not a command of the header"),
            Self::Family(family) => write!(f, "{family:#04x} is not a family and protocol of the header"),
            Self::TooShort => f.write_str("the header is too short for its addresses"),
            Self::Path => f.write_str("the path of a Unix socket in the header has no end"),
            Self::Value => f.write_str("a value of the header does not fit into it"),
            Self::Checksum => f.write_str("the header's checksum is wrong"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Reads the header at the beginning of `bytes`: it, and how many bytes it has. `None` if more bytes are needed; then there are
/// fewer than `limit`, which counts as [`MOST_TEXT`] if it is lower. Bytes behind the header are not looked at.
///
/// # Errors
/// They begin with no header, or with one that is longer than `limit`, as soon as that is certain.
pub fn decode(bytes: &[u8], limit: usize) -> Result<Option<(Header, usize)>, HeaderError> {
    if begins(bytes, binary::SIGNATURE) {
        binary::decode(bytes, limit.max(MOST_TEXT))
    } else if begins(bytes, text::PREFIX) {
        text::decode(bytes)
    } else {
        Err(HeaderError::Missing)
    }
}

/// Whether bytes begin with a prefix, as far as they go.
fn begins(bytes: &[u8], prefix: &[u8]) -> bool {
    let common = bytes.len().min(prefix.len());
    bytes[..common] == prefix[..common]
}
