//! Control messages (`cmsg(3)`), as the kernel writes and reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quoit::internals::sys::DatagramFamily;

/// The bytes before a message's data: a length of the machine's word, the level, the type (`struct cmsghdr`).
const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGNMENT: usize = size_of::<usize>();
const UDP_SEGMENT: i32 = 103;
const UDP_GRO: i32 = 104;

/// Which control messages a socket was asked to add to each datagram.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Requested {
    pub(crate) drops: bool,
    pub(crate) timestamps: bool,
    pub(crate) joins: bool,
    pub(crate) ecn: bool,
    pub(crate) local_address: bool,
}

/// What is known of a datagram besides its bytes and its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Where it was sent to.
    pub to: IpAddr,
    /// Its congestion notification.
    pub ecn: u8,
    /// When it came, in nanoseconds.
    pub time: u64,
    /// The bytes of each of those that were joined; 0 if none were.
    pub segment_size: u16,
    /// The socket's drops before it.
    pub drops: u32,
    /// The processor by whose number its socket was chosen, in a group of which none was closed.
    pub steered: Option<u8>,
}

/// What a program says of a datagram that it sends.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Wishes {
    /// The source address.
    pub source: Option<IpAddr>,
    /// The congestion notification.
    pub ecn: u8,
    /// The bytes of each datagram that it is to be cut into; 0 is not at all.
    pub segment_size: u16,
}

struct Writer {
    bytes: Vec<u8>,
    room: usize,
    cut: bool,
}

impl Writer {
    /// One message (`put_cmsg`): what does not fit is cut, which is flagged.
    fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let left = self.room.saturating_sub(self.bytes.len());
        let wanted = HEADER + data.len();
        if left < HEADER {
            self.cut = true;
            return;
        }
        self.cut |= left < wanted;
        let length = wanted.min(left);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(level.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(&data[..length - HEADER]);
        let end = self.bytes.len().next_multiple_of(ALIGNMENT).min(self.room);
        self.bytes.resize(end, 0);
    }
}

/// The control messages of a received datagram, in the order in which Linux writes them, and whether they were cut.
pub(super) fn write(
    requested: Requested,
    facts: &Facts,
    family: DatagramFamily,
    room: usize,
) -> (Vec<u8>, bool) {
    let mut writer = Writer {
        bytes: Vec::new(),
        room,
        cut: false,
    };
    if requested.timestamps {
        let mut time = ((facts.time / 1_000_000_000) as libc::c_long)
            .to_ne_bytes()
            .to_vec();
        time.extend(((facts.time % 1_000_000_000) as libc::c_long).to_ne_bytes());
        writer.put(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time);
    }
    if requested.drops && facts.drops > 0 {
        writer.put(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &facts.drops.to_ne_bytes());
    }
    if facts.segment_size > 0 {
        writer.put(
            libc::SOL_UDP,
            UDP_GRO,
            &i32::from(facts.segment_size).to_ne_bytes(),
        );
    }
    match facts.to {
        IpAddr::V4(to) if family == DatagramFamily::V4 => {
            if requested.local_address {
                let parts = [[1u32.to_ne_bytes(), to.octets()].concat(), to.octets().to_vec()];
                writer.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &parts.concat());
            }
            if requested.ecn {
                writer.put(libc::IPPROTO_IP, libc::IP_TOS, &[facts.ecn]);
            }
        }
        IpAddr::V6(to) if family == DatagramFamily::V6 => {
            if requested.local_address {
                let mut data = to.octets().to_vec();
                data.extend(1u32.to_ne_bytes());
                writer.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
            }
            if requested.ecn {
                let class = i32::from(facts.ecn).to_ne_bytes();
                writer.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
            }
        }
        _ => {}
    }
    (writer.bytes, writer.cut)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Reads the control messages of a send; `EINVAL` for what is malformed or unknown.
pub(super) fn read(mut control: &[u8]) -> Result<Wishes, i32> {
    let mut wishes = Wishes::default();
    while !control.is_empty() {
        let length = array(control, 0).map(usize::from_ne_bytes).ok_or(libc::EINVAL)?;
        let level = array(control, ALIGNMENT)
            .map(i32::from_ne_bytes)
            .ok_or(libc::EINVAL)?;
        let kind = array(control, ALIGNMENT + 4)
            .map(i32::from_ne_bytes)
            .ok_or(libc::EINVAL)?;
        let data = control.get(HEADER..length).ok_or(libc::EINVAL)?;
        match (level, kind) {
            (libc::SOL_UDP, UDP_SEGMENT) => {
                wishes.segment_size = u16::from_ne_bytes(array(data, 0).ok_or(libc::EINVAL)?);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                wishes.ecn = i32::from_ne_bytes(array(data, 0).ok_or(libc::EINVAL)?) as u8 & 3;
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let source = Ipv4Addr::from(array::<4>(data, 4).ok_or(libc::EINVAL)?);
                wishes.source = (!source.is_unspecified()).then_some(source.into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let source = Ipv6Addr::from(array::<16>(data, 0).ok_or(libc::EINVAL)?);
                wishes.source = (!source.is_unspecified()).then_some(source.into());
            }
            _ => return Err(libc::EINVAL),
        }
        control = control
            .get(length.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
    }
    Ok(wishes)
}
