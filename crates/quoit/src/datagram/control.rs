//! Control messages: what the kernel tells about a datagram, and what it is told with one (`cmsg(3)`).
//!
//! Everything here works on bytes with checked bounds: whatever the kernel, or a program that set further options on
//! the socket, puts there, nothing is read past the end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::send::Ecn;
use crate::errno::Errno;

/// The header of a control message: a length of the machine's word, the level and the type (`struct cmsghdr`).
const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGNMENT: usize = size_of::<usize>();

/// `UDP_SEGMENT` and `UDP_GRO` of `linux/udp.h`.
const UDP_SEGMENT: i32 = 103;
pub(crate) const UDP_GRO: i32 = 104;

const fn aligned(length: usize) -> usize {
    (length + ALIGNMENT - 1) & !(ALIGNMENT - 1)
}

/// The room that a control message with so many bytes of data takes (`CMSG_SPACE`).
pub(crate) const fn space(data: usize) -> usize {
    HEADER + aligned(data)
}

/// What the control messages of a received datagram say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Received {
    /// The address that it was sent to.
    pub(crate) local: Option<IpAddr>,
    /// The interface that it came by; 0 if that is not told.
    pub(crate) interface: u32,
    pub(crate) ecn: Option<Ecn>,
    /// When the kernel received it: seconds and nanoseconds since the epoch.
    pub(crate) timestamp: Option<(i64, u32)>,
    /// The size of the datagrams that were joined; 0 if they were not.
    pub(crate) segment_size: u32,
    /// The socket's count of drops when it came, modulo 2^32.
    pub(crate) drops: Option<u32>,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn integer(bytes: &[u8]) -> Option<i32> {
    array(bytes, 0).map(i32::from_ne_bytes)
}

/// Takes the first message off: its level, its type and its data. `None` at the end, and for what is malformed.
fn next<'a>(control: &mut &'a [u8]) -> Option<(i32, i32, &'a [u8])> {
    let length = array(control, 0).map(usize::from_ne_bytes)?;
    let level = array(control, ALIGNMENT).map(i32::from_ne_bytes)?;
    let kind = array(control, ALIGNMENT + 4).map(i32::from_ne_bytes)?;
    let data = control.get(HEADER..length)?;
    *control = control.get(aligned(length)..).unwrap_or_default();
    Some((level, kind, data))
}

/// Reads control messages. What is not known is skipped, and what is malformed ends the reading.
pub(crate) fn parse(mut control: &[u8]) -> Received {
    let mut received = Received::default();
    while let Some((level, kind, data)) = next(&mut control) {
        take(&mut received, level, kind, data);
    }
    received
}

/// Reads the control messages of an entry of the error queue (`ip(7)`, `struct sock_extended_err`): what the network has
/// answered. `None` for what does not come from the network, as where this host has refused a send that was told so.
pub(crate) fn parse_error(mut control: &[u8]) -> Option<Errno> {
    while let Some((level, kind, data)) = next(&mut control) {
        if matches!(
            (level, kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        ) {
            let origin = *data.get(4)?;
            let from_network = matches!(origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
            return integer(data).filter(|_| from_network).map(Errno::new);
        }
    }
    None
}

fn take(received: &mut Received, level: i32, kind: i32, data: &[u8]) {
    match (level, kind) {
        (libc::SOL_UDP, UDP_GRO) => {
            received.segment_size = integer(data).and_then(|size| size.try_into().ok()).unwrap_or(0);
        }
        (libc::IPPROTO_IP, libc::IP_TOS) => {
            // One byte, as opposed to IPv6's class.
            received.ecn = data.first().copied().map(Ecn::from_bits);
        }
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            received.ecn = integer(data).map(|class| Ecn::from_bits(class as u8));
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // `struct in_pktinfo`: the interface, the address to answer from, the one in the header.
            if let (Some(interface), Some(address)) = (array(data, 0), array::<4>(data, 8)) {
                received.interface = u32::from_ne_bytes(interface);
                received.local = Some(Ipv4Addr::from(address).into());
            }
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // `struct in6_pktinfo`: the address in the header, the interface.
            if let (Some(address), Some(interface)) = (array::<16>(data, 0), array(data, 16)) {
                received.interface = u32::from_ne_bytes(interface);
                received.local = Some(Ipv6Addr::from(address).into());
            }
        }
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => received.drops = array(data, 0).map(u32::from_ne_bytes),
        (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
            const WORD: usize = size_of::<libc::c_long>();
            let seconds = array(data, 0).map(libc::c_long::from_ne_bytes);
            let nanoseconds = array(data, WORD).map(libc::c_long::from_ne_bytes);
            if let (Some(seconds), Some(nanoseconds)) = (seconds, nanoseconds)
                && (0..1_000_000_000).contains(&nanoseconds)
            {
                received.timestamp = Some((seconds, nanoseconds as u32));
            }
        }
        _ => {}
    }
}

/// Bytes for the control messages of one send: the source address, the congestion notification, the segment size.
const ROOM: usize = space(20) + space(4) + space(2);

/// The control messages of one send, aligned as the kernel wants them.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; ROOM],
    length: u8,
    /// Without the segment size, which is the last.
    unsegmented: u8,
}

impl Control {
    pub(crate) const NONE: Self = Self {
        bytes: [0; ROOM],
        length: 0,
        unsegmented: 0,
    };

    /// Becomes none.
    pub(crate) fn clear(&mut self) {
        (self.length, self.unsegmented) = (0, 0);
    }

    fn put(&mut self, level: i32, kind: i32, parts: [&[u8]; 3]) {
        let data: usize = parts.iter().map(|part| part.len()).sum();
        let start = usize::from(self.length);
        let header = [
            &(HEADER + data).to_ne_bytes()[..],
            &level.to_ne_bytes(),
            &kind.to_ne_bytes(),
        ];
        let mut at = start;
        for part in header.into_iter().chain(parts) {
            self.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let end = start + space(data);
        self.bytes[at..end].fill(0);
        self.length = end as u8;
    }

    /// Says from which address, and by which interface (0: any), to leave. `v6` is the socket's family.
    pub(crate) fn set_source(&mut self, v6: bool, source: Option<IpAddr>, interface: u32) {
        let interface = interface.to_ne_bytes();
        if v6 {
            let address = match source {
                None => Ipv6Addr::UNSPECIFIED,
                Some(IpAddr::V4(address)) => address.to_ipv6_mapped(),
                Some(IpAddr::V6(address)) => address,
            };
            let parts = [&address.octets()[..], &interface, &[]];
            self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, parts);
        } else {
            let address = match source {
                Some(IpAddr::V4(address)) => address,
                Some(IpAddr::V6(address)) => address.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED),
                None => Ipv4Addr::UNSPECIFIED,
            };
            let parts = [&interface[..], &address.octets(), &[0; 4]];
            self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, parts);
        }
        self.unsegmented = self.length;
    }

    /// `v6` is the family that the packet will have, which is IPv4 for mapped addresses.
    pub(crate) fn set_ecn(&mut self, v6: bool, ecn: Ecn) {
        let (level, kind) = if v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS)
        };
        self.put(level, kind, [&(ecn as i32).to_ne_bytes(), &[], &[]]);
        self.unsegmented = self.length;
    }

    /// The last to be called.
    pub(crate) fn set_segment_size(&mut self, size: u16) {
        self.unsegmented = self.length;
        self.put(libc::SOL_UDP, UDP_SEGMENT, [&size.to_ne_bytes(), &[], &[]]);
    }

    /// The messages, with the segment size or without. Valid while this value stays in place.
    pub(crate) fn as_raw(&mut self, segmented: bool) -> (*mut libc::c_void, usize) {
        let length = if segmented { self.length } else { self.unsegmented };
        if length == 0 {
            return (std::ptr::null_mut(), 0);
        }
        (self.bytes.as_mut_ptr().cast(), usize::from(length))
    }

    #[cfg(test)]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(space(data.len()), 0);
        bytes
    }

    #[test]
    fn all_that_is_asked_for_is_read() {
        let mut control = message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7u32.to_ne_bytes());
        let mut time = 1_700_000_000i64.to_ne_bytes().to_vec();
        time.extend(123i64.to_ne_bytes());
        control.extend(message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time));
        control.extend(message(99, 98, b"unknown"));
        control.extend(message(
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            &[3, 0, 0, 0, 127, 0, 0, 1, 127, 0, 0, 2],
        ));
        control.extend(message(libc::IPPROTO_IP, libc::IP_TOS, &[0xb9]));
        control.extend(message(libc::SOL_UDP, UDP_GRO, &1200i32.to_ne_bytes()));
        let expected = Received {
            local: Some(Ipv4Addr::new(127, 0, 0, 2).into()),
            interface: 3u32.to_le(),
            ecn: Some(Ecn::Capable1),
            timestamp: Some((1_700_000_000, 123)),
            segment_size: 1200,
            drops: Some(7),
        };
        assert_eq!(parse(&control), expected);

        let mut data = Ipv6Addr::LOCALHOST.octets().to_vec();
        data.extend(5u32.to_ne_bytes());
        let mut control = message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
        control.extend(message(
            libc::IPPROTO_IPV6,
            libc::IPV6_TCLASS,
            &3i32.to_ne_bytes(),
        ));
        let received = parse(&control);
        assert_eq!(received.local, Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!((received.interface, received.ecn), (5, Some(Ecn::Congestion)));
    }

    #[test]
    fn a_cut_message_ends_the_reading_and_keeps_what_came_before() {
        let mut control = message(libc::SOL_UDP, UDP_GRO, &9i32.to_ne_bytes());
        control.extend(&message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7u32.to_ne_bytes())[..HEADER + 1]);
        let received = parse(&control);
        assert_eq!((received.segment_size, received.drops), (9, None));
    }

    #[test]
    fn only_what_the_network_answers_is_an_error() {
        let entry = |origin: u8| {
            let mut data = libc::ECONNREFUSED.to_ne_bytes().to_vec();
            data.extend([origin, 3, 3, 0]);
            data.extend([0; 8]);
            let mut control = message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7u32.to_ne_bytes());
            control.extend(message(libc::IPPROTO_IP, libc::IP_RECVERR, &data));
            control
        };
        assert_eq!(
            parse_error(&entry(libc::SO_EE_ORIGIN_ICMP)),
            Some(Errno::ECONNREFUSED)
        );
        assert_eq!(parse_error(&entry(libc::SO_EE_ORIGIN_LOCAL)), None);
        let whole = entry(libc::SO_EE_ORIGIN_ICMP6);
        assert_eq!(parse_error(&whole[..space(4) + HEADER + 3]), None);
    }

    proptest! {
        /// Whatever the bytes, reading them ends and panics at nothing.
        #[test]
        fn arbitrary_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            parse(&bytes);
            parse_error(&bytes);
        }

        /// As above, with headers that lead somewhere: lengths about the right ones, and levels that are known.
        #[test]
        fn arbitrary_messages_are_read(
            messages in prop::collection::vec(
                (0usize..40, prop::sample::select(vec![0, 1, 17, 41]), 0i32..110,
                 prop::collection::vec(any::<u8>(), 0..24)),
                0..6,
            ),
            cut in 0usize..200,
        ) {
            let mut control = Vec::new();
            for (length, level, kind, data) in messages {
                control.extend(length.to_ne_bytes());
                control.extend(i32::to_ne_bytes(level));
                control.extend(kind.to_ne_bytes());
                control.extend(data);
                control.resize(aligned(control.len()), 0);
            }
            control.truncate(cut);
            let received = parse(&control);
            prop_assert!(received.timestamp.is_none_or(|(_, nanoseconds)| nanoseconds < 1_000_000_000));
        }

        /// What is written for a send is well-formed, and read as it was meant.
        #[test]
        fn what_is_written_is_read(v6: bool, source: u32, interface: u32, ecn in 0u8..4, size in 1u16..) {
            let mut control = Control::NONE;
            let source = Ipv4Addr::from_bits(source);
            control.set_source(v6, Some(source.into()), interface);
            control.set_ecn(v6, Ecn::from_bits(ecn));
            let unsegmented = control.as_raw(false).1;
            control.set_segment_size(size);
            prop_assert_eq!(control.as_raw(true).1, control.bytes().len());
            prop_assert_eq!(control.as_raw(false).1, unsegmented);
            let received = parse(control.bytes());
            prop_assert_eq!(received.ecn, Some(Ecn::from_bits(ecn)));
            prop_assert_eq!(received.interface, interface);
            let local = if v6 {
                IpAddr::from(source.to_ipv6_mapped())
            } else {
                // The field of the header's address is not the one that a source is written to.
                IpAddr::from(Ipv4Addr::UNSPECIFIED)
            };
            prop_assert_eq!(received.local, Some(local));
        }
    }
}
