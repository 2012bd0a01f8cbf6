//! The records that a responder has.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use domain::base::Name;
use domain::base::iana::Rtype;

/// Bytes of the longest name on the wire (RFC 1035, 3.1).
const LONGEST_NAME: usize = 255;

/// Labels with their lengths, in lower case, up to the root's.
type WireName = Box<[u8]>;

/// An address record: a name and an address, `www.example.test=192.0.2.7`. A first label `*` stands for all names below
/// the rest that do not exist themselves (RFC 4592).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    name: WireName,
    address: IpAddr,
}

/// Why a text is no [`Record`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError(String);

impl fmt::Display for RecordError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for RecordError {}

impl FromStr for Record {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let Some((name, address)) = text.split_once('=') else {
            return Err(RecordError(
                "expected NAME=ADDRESS, such as www.example.test=192.0.2.7".to_owned(),
            ));
        };
        let parsed: Name<Vec<u8>> = name
            .parse()
            .map_err(|error| RecordError(format!("`{name}` is not a name: {error}")))?;
        let address = address
            .parse()
            .map_err(|_| RecordError(format!("`{address}` is not an address of IPv4 or IPv6")))?;
        let mut name = parsed.into_octets().into_boxed_slice();
        // No length of a label is a letter: those end at 63, before the first.
        name.make_ascii_lowercase();
        Ok(Self { name, address })
    }
}

/// The addresses of a name.
#[derive(Debug, Default)]
struct Addresses {
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
}

impl Addresses {
    fn add(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.v4.push(address),
            IpAddr::V6(address) => self.v6.push(address),
        }
    }

    fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// A name that exists, by its own records or by those of a name below it.
#[derive(Debug, Default)]
struct Node {
    own: Addresses,
    /// For the names directly or further below that do not exist.
    wildcard: Addresses,
}

/// Address records by name.
#[derive(Debug, Default)]
pub struct Zone {
    nodes: HashMap<WireName, Node>,
}

/// An address to answer with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// What a zone has for a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Address(Address),
    /// The name has records, but none of this type.
    OtherTypes,
    /// The name has no record, or the zone gives nothing of this type to anybody.
    Nothing,
}

impl Zone {
    /// With these records.
    #[must_use]
    pub fn new(records: impl IntoIterator<Item = Record>) -> Self {
        let mut zone = Self::default();
        for record in records {
            zone.add(record);
        }
        zone
    }

    /// Any name below `test`, which nobody has (RFC 6761), with an address of each of the blocks that are for
    /// documentation (RFC 5737, RFC 3849).
    #[must_use]
    pub fn documentation() -> Self {
        let records = ["*.test=192.0.2.1", "*.test=2001:db8::1"];
        Self::new(records.map(|text| text.parse().expect("these are right")))
    }

    fn add(&mut self, Record { name, address }: Record) {
        let parent = name.strip_prefix(b"\x01*");
        let owner = parent.unwrap_or(&name);
        for suffix in suffixes(owner) {
            self.nodes.entry(suffix.into()).or_default();
        }
        let node = self.nodes.entry(owner.into()).or_default();
        match parent {
            Some(_) => node.wildcard.add(address),
            None => node.own.add(address),
        }
    }

    /// What there is for a name as it stands on the wire. Of several addresses the query's id chooses.
    pub(super) fn find(&self, name: &[u8], rtype: Rtype, id: u16) -> Found {
        if matches!(rtype, Rtype::AXFR | Rtype::IXFR) {
            return Found::Nothing;
        }
        let Some(addresses) = self.addresses(name).filter(|addresses| !addresses.is_empty()) else {
            return Found::Nothing;
        };
        let v4 = || choose(&addresses.v4, id).map(Address::V4);
        let v6 = || choose(&addresses.v6, id).map(Address::V6);
        let chosen = match rtype {
            Rtype::A => v4(),
            Rtype::AAAA => v6(),
            // One of the types is enough (RFC 8482).
            Rtype::ANY => v4().or_else(v6),
            _ => None,
        };
        chosen.map_or(Found::OtherTypes, Found::Address)
    }

    fn addresses(&self, name: &[u8]) -> Option<&Addresses> {
        let mut room = [0; LONGEST_NAME];
        let lower = room.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let whole = lower.len();
        // The nearest name upwards that exists: the name itself, or the one whose wildcard counts.
        suffixes(lower).find_map(|suffix| {
            let node = self.nodes.get(suffix)?;
            Some(match suffix.len() == whole {
                true => &node.own,
                false => &node.wildcard,
            })
        })
    }
}

fn choose<T: Copy>(addresses: &[T], id: u16) -> Option<T> {
    let index = usize::from(id).checked_rem(addresses.len())?;
    Some(addresses[index])
}

/// A name on the wire, then that without its first label, and so on to the root.
fn suffixes(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |name| match name.split_first()? {
        (0, _) => None,
        (&length, rest) => rest.get(usize::from(length)..),
    })
}
