//! What a datagram socket delivers: views over the slot that the kernel wrote to.
//!
//! A slot holds, from its start: the header that io_uring writes for a multishot `recvmsg` (`struct
//! io_uring_recvmsg_out`), the peer's address, the control messages, the payload. The epoll engine lays it out in the
//! same way. Before it is handed over, the control messages are read once and replaced by [`Meta`], so that the event
//! is no larger than any other, and a view reads plain fields.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use super::control::Received;
use super::send::Ecn;
use crate::address::{Address, part};
use crate::command::Payload;
use crate::pool::Lease;

/// Where the peer's address lies in a slot.
pub(crate) const NAME_OFFSET: u32 = 16;
/// Bytes for it: the longest is that of a Unix socket, 110.
pub(crate) const NAME_ROOM: u32 = 112;
/// Where the control messages lie.
pub(crate) const CONTROL_OFFSET: u32 = NAME_OFFSET + NAME_ROOM;

/// The header at the start of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// Bytes of the peer's address; more than the room if it was cut.
    pub(crate) name: u32,
    /// Bytes of control messages.
    pub(crate) control: u32,
    /// Bytes of the payload.
    pub(crate) payload: u32,
    /// `MSG_TRUNC`, `MSG_CTRUNC`.
    pub(crate) flags: u32,
}

impl Head {
    /// Reads it from the start of a slot.
    pub(crate) fn read(slot: &[u8]) -> Self {
        let bytes: &[u8; NAME_OFFSET as usize] =
            slot.first_chunk().expect("a slot is longer than its header");
        let word = |at: usize| u32::from_ne_bytes(part(bytes, at));
        Self {
            name: word(0),
            control: word(4),
            payload: word(8),
            flags: word(12),
        }
    }

    /// Its bytes as they stand at the start of a slot.
    pub(crate) fn to_bytes(self) -> [u8; NAME_OFFSET as usize] {
        let mut bytes = [0; NAME_OFFSET as usize];
        let words = [self.name, self.control, self.payload, self.flags];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// What is known of the datagrams in a slot, besides their peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) received: Received,
    /// The payload was longer than there was room.
    pub(crate) truncated: bool,
    /// Joined datagrams are to be handed over as they are.
    pub(crate) raw: bool,
}

impl Meta {
    /// Bytes that it takes, in place of the control messages.
    pub(crate) const SIZE: usize = 48;

    /// The families of the local address; 0 is none.
    const V4: u8 = 4;
    const V6: u8 = 6;
    /// No congestion notification was told.
    const NO_ECN: u8 = u8::MAX;
    /// No time was told.
    const NO_TIME: u32 = u32::MAX;

    /// What is written of a datagram of which nothing is told: neither cut nor joined, and without control messages.
    const PLAIN: [u8; Self::SIZE] = {
        let mut bytes = [0; Self::SIZE];
        let [a, b, c, d] = Self::NO_TIME.to_ne_bytes();
        (bytes[24], bytes[25], bytes[26], bytes[27]) = (a, b, c, d);
        bytes[37] = Self::NO_ECN;
        bytes
    };

    /// As [`Meta::write`], of a datagram of which nothing is told, as is the rule.
    pub(crate) fn write_plain(place: &mut [u8]) {
        *place
            .first_chunk_mut()
            .expect("there is room for it in every slot") = Self::PLAIN;
    }

    /// Writes it to the start of what had the control messages.
    pub(crate) fn write(&self, place: &mut [u8]) {
        let place: &mut [u8; Self::SIZE] = place
            .first_chunk_mut()
            .expect("there is room for it in every slot");
        let Received {
            local,
            interface,
            ecn,
            timestamp,
            segment_size,
            drops: _,
        } = self.received;
        let (family, address) = match local {
            None => (0, [0; 16]),
            Some(IpAddr::V4(address)) => (Self::V4, address.to_ipv6_mapped().octets()),
            Some(IpAddr::V6(address)) => (Self::V6, address.octets()),
        };
        let (seconds, nanoseconds) = timestamp.unwrap_or((0, Self::NO_TIME));
        place[..16].copy_from_slice(&address);
        place[16..24].copy_from_slice(&seconds.to_ne_bytes());
        place[24..28].copy_from_slice(&nanoseconds.to_ne_bytes());
        place[28..32].copy_from_slice(&interface.to_ne_bytes());
        place[32..36].copy_from_slice(&segment_size.to_ne_bytes());
        place[36] = family;
        place[37] = ecn.map_or(Self::NO_ECN, |ecn| ecn as u8);
        place[38] = self.truncated.into();
        place[39] = self.raw.into();
    }
}

/// A [`Meta`] that was written, read field by field: a handler seldom asks for more than one.
#[derive(Clone, Copy)]
struct Written<'a>(&'a [u8; Meta::SIZE]);

impl Written<'_> {
    fn local(self) -> Option<IpAddr> {
        let address: [u8; 16] = part(self.0, 0);
        let address = Ipv6Addr::from(address);
        match self.0[36] {
            Meta::V4 => Some(address.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED).into()),
            Meta::V6 => Some(address.into()),
            _ => None,
        }
    }

    fn timestamp(self) -> Option<(i64, u32)> {
        let nanoseconds = u32::from_ne_bytes(part(self.0, 24));
        (nanoseconds != Meta::NO_TIME).then(|| (i64::from_ne_bytes(part(self.0, 16)), nanoseconds))
    }

    fn interface(self) -> u32 {
        u32::from_ne_bytes(part(self.0, 28))
    }

    fn segment_size(self) -> u32 {
        u32::from_ne_bytes(part(self.0, 32))
    }

    fn ecn(self) -> Option<Ecn> {
        (self.0[37] != Meta::NO_ECN).then(|| Ecn::from_bits(self.0[37]))
    }

    fn is_truncated(self) -> bool {
        self.0[38] != 0
    }

    fn is_raw(self) -> bool {
        self.0[39] != 0
    }
}

/// The start of a slot, as far as views read it: the header, the peer's address, and what is known.
type Start = [u8; CONTROL_OFFSET as usize + Meta::SIZE];

/// What came in one buffer: a datagram, or several of one peer and one size that the kernel has joined.
///
/// Iterating gives the datagrams one by one, whatever the kernel did. The memory goes back to the socket when this is
/// dropped, on any thread; as long as it is held, it counts against the socket's
/// [slots](crate::DatagramOptions::slots).
pub struct Datagrams {
    /// From the payload's start to its end.
    lease: Lease,
}

impl Datagrams {
    /// Of a slot whose [`Meta`] is written, and of which `lease` leaves out all but the payload.
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease }
    }

    /// How many datagrams there are, at least 1. With [`Gro::Raw`](crate::Gro::Raw) always 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        let known = self.whole().known();
        count(self.lease.len(), known.segment_size(), known.is_raw())
    }

    /// The first, which is the only one but for joined ones.
    #[must_use]
    pub fn first(&self) -> Datagram<'_> {
        let whole = self.whole();
        match self.step() {
            Some(step) => Datagram {
                bytes: &whole.bytes[..step.min(whole.bytes.len())],
                ..whole
            },
            None => whole,
        }
    }

    /// All in one view, joined ones as they came: the bytes of all, and their
    /// [size](Datagram::segment_size), of which the last may be shorter.
    #[must_use]
    pub fn whole(&self) -> Datagram<'_> {
        let start = self.lease.slot_start(size_of::<Start>());
        Datagram {
            bytes: &self.lease,
            head: start.first_chunk().expect("as many were asked for"),
        }
    }

    /// Leaves out the first, so that the others can be handled or sent on. Returns false, and leaves it, if there are no
    /// others.
    pub fn skip_first(&mut self) -> bool {
        match self.step() {
            Some(step) if step < self.lease.len() => {
                self.lease.advance(step);
                true
            }
            _ => false,
        }
    }

    /// One by one.
    #[must_use]
    pub fn iter(&self) -> Segments<'_> {
        Segments {
            rest: Some(self.whole()),
            step: self.step(),
        }
    }

    /// The memory with the bytes of all of them, to be kept, or sent without a copy: to answer joined ones alike, give
    /// the send their [size](Datagram::segment_size).
    #[must_use]
    pub fn into_lease(self) -> Lease {
        self.lease
    }

    /// The bytes of each, if there may be several.
    fn step(&self) -> Option<usize> {
        let known = self.whole().known();
        let step = known.segment_size() as usize;
        (!known.is_raw() && step > 0).then_some(step)
    }
}

/// How many datagrams `length` bytes are.
pub(crate) fn count(length: usize, segment_size: u32, raw: bool) -> usize {
    if raw || segment_size == 0 {
        1
    } else {
        length.div_ceil(segment_size as usize).max(1)
    }
}

impl<'a> IntoIterator for &'a Datagrams {
    type Item = Datagram<'a>;
    type IntoIter = Segments<'a>;

    fn into_iter(self) -> Segments<'a> {
        self.iter()
    }
}

impl From<Datagrams> for Payload<'_> {
    fn from(datagrams: Datagrams) -> Self {
        Self::Lease(datagrams.into_lease())
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Datagrams({} of {} bytes)", self.len(), self.lease.len())
    }
}

/// The datagrams of one buffer, one by one.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: Option<Datagram<'a>>,
    step: Option<usize>,
}

impl<'a> Iterator for Segments<'a> {
    type Item = Datagram<'a>;

    fn next(&mut self) -> Option<Datagram<'a>> {
        let whole = self.rest.take()?;
        let Some(step) = self.step.filter(|&step| step < whole.bytes.len()) else {
            return Some(whole);
        };
        let (bytes, rest) = whole.bytes.split_at(step);
        self.rest = Some(Datagram { bytes: rest, ..whole });
        Some(Datagram { bytes, ..whole })
    }
}

/// One received datagram. Dereferences to its bytes.
#[derive(Clone, Copy)]
pub struct Datagram<'a> {
    bytes: &'a [u8],
    head: &'a Start,
}

impl<'a> Datagram<'a> {
    /// Its bytes, possibly none.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Who sent it. [`Address::UnixUnnamed`] for a Unix socket that is bound to nothing, which cannot be answered.
    /// Takes no memory but for Unix names.
    #[must_use]
    pub fn peer(&self) -> Address {
        Address::read(self.peer_bytes()).unwrap_or(Address::UnixUnnamed)
    }

    /// Who sent it, as the kernel wrote it (`struct sockaddr`), possibly nothing at all for a Unix socket that is bound
    /// to nothing. Lives as long as the [`Datagrams`], and not only as this view.
    #[must_use]
    pub fn peer_bytes(&self) -> &'a [u8] {
        let length = u32::from_ne_bytes(part(self.head, 0)).min(NAME_ROOM) as usize;
        &self.head[NAME_OFFSET as usize..][..length]
    }

    /// The address that it was sent to, with
    /// [`receive_local_address`](crate::DatagramOptions::receive_local_address): of this host, or the group.
    #[must_use]
    pub fn local_address(&self) -> Option<IpAddr> {
        self.known().local()
    }

    /// The interface that it came by, by number, with
    /// [`receive_local_address`](crate::DatagramOptions::receive_local_address).
    #[must_use]
    pub fn interface(&self) -> Option<u32> {
        Some(self.known().interface()).filter(|&interface| interface != 0)
    }

    /// Its congestion notification, with [`receive_ecn`](crate::DatagramOptions::receive_ecn).
    #[must_use]
    pub fn ecn(&self) -> Option<Ecn> {
        self.known().ecn()
    }

    /// When the kernel received it, with [`receive_timestamps`](crate::DatagramOptions::receive_timestamps). Of joined
    /// ones, the first.
    #[must_use]
    pub fn timestamp(&self) -> Option<SystemTime> {
        let (seconds, nanoseconds) = self.known().timestamp()?;
        let epoch = SystemTime::UNIX_EPOCH;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let moment = if seconds < 0 {
            epoch.checked_sub(whole)
        } else {
            epoch.checked_add(whole)
        };
        moment?.checked_add(Duration::from_nanos(nanoseconds.into()))
    }

    /// The size of the datagrams that the kernel had joined, of which this is one, or (with
    /// [`Gro::Raw`](crate::Gro::Raw)) which these bytes are.
    #[must_use]
    pub fn segment_size(&self) -> Option<u16> {
        u16::try_from(self.known().segment_size())
            .ok()
            .filter(|&size| size != 0)
    }

    /// Whether it was longer than there was room, and the rest is lost.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.known().is_truncated()
    }

    fn known(&self) -> Written<'a> {
        let known = &self.head[CONTROL_OFFSET as usize..];
        Written(known.first_chunk().expect("the rest of the start is just that"))
    }
}

impl std::ops::Deref for Datagram<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl fmt::Debug for Datagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Datagram({} bytes from {})", self.bytes.len(), self.peer())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_plain_says_nothing() {
        let (mut plain, mut written) = ([0xaa; Meta::SIZE], [0; Meta::SIZE]);
        Meta::write_plain(&mut plain);
        let nothing = Meta {
            received: Received::default(),
            truncated: false,
            raw: false,
        };
        nothing.write(&mut written);
        assert_eq!(plain, written);
    }

    proptest! {
        #[test]
        fn what_is_known_survives_the_slot(
            local in proptest::option::of(any::<IpAddr>()),
            interface: u32,
            ecn in proptest::option::of(0u8..4),
            timestamp in proptest::option::of((any::<i64>(), 0u32..1_000_000_000)),
            segment_size: u32,
            truncated: bool,
            raw: bool,
        ) {
            let meta = Meta {
                received: Received {
                    local, interface, ecn: ecn.map(Ecn::from_bits), timestamp, segment_size, drops: None,
                },
                truncated,
                raw,
            };
            let mut place = [0xaa; Meta::SIZE];
            meta.write(&mut place);
            let known = Written(&place);
            let read = Meta {
                received: Received {
                    local: known.local(),
                    interface: known.interface(),
                    ecn: known.ecn(),
                    timestamp: known.timestamp(),
                    segment_size: known.segment_size(),
                    drops: None,
                },
                truncated: known.is_truncated(),
                raw: known.is_raw(),
            };
            prop_assert_eq!(read, meta);
        }

        /// Whatever the sizes, the segments are the payload, none is longer than said, and as many as counted.
        #[test]
        fn segments_are_the_payload(length in 0usize..5000, step in 0u32..1500, raw: bool) {
            let payload: Vec<u8> = (0..length).map(|index| index as u8).collect();
            let mut head: Start = [0; size_of::<Start>()];
            let received = Received { segment_size: step, ..Received::default() };
            Meta { received, truncated: false, raw }.write(&mut head[CONTROL_OFFSET as usize..]);
            let whole = Datagram { bytes: &payload, head: &head };
            let step_by = (!raw && step > 0).then_some(step as usize);
            let segments: Vec<_> = Segments { rest: Some(whole), step: step_by }.collect();
            prop_assert_eq!(segments.len(), count(length, step, raw));
            prop_assert_eq!(&segments.iter().map(|one| one.bytes()).collect::<Vec<_>>().concat(), &payload);
            if let Some(step) = step_by {
                let (last, whole) = segments.split_last().unwrap();
                prop_assert!(whole.iter().all(|one| one.len() == step) && last.len() <= step);
            }
        }
    }
}
