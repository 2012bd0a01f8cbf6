//! How a datagram socket is set up.

use std::net::IpAddr;

use super::MAX_UDP_PAYLOAD;
use crate::address::Address;

/// Datagrams of one sender that the kernel joins on their way up (`UDP_GRO`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gro {
    /// Not joined. Each costs its own way through the kernel.
    #[default]
    Off,
    /// Joined, and taken apart again by [`Datagrams`](crate::Datagrams), so that nobody notices.
    Transparent,
    /// Joined, and handed over like that: one [`Datagram`](crate::Datagram) with the bytes of all, and their
    /// [size](crate::Datagram::segment_size).
    Raw,
}

/// Which of several sockets of one port gets a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Steering {
    /// By a hash of the addresses and ports: each peer always reaches the same socket.
    #[default]
    Hash,
    /// By the processor that handled the packet (`SO_ATTACH_REUSEPORT_CBPF`): socket `n` of the group gets what
    /// processors `n`, `n + count`, ... have received. For loops pinned to these.
    Cpu,
}

/// A multicast group to be a member of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MulticastGroup {
    /// The group's address.
    pub group: IpAddr,
    /// The interface by number (`if_nametoindex(3)`); 0 lets the kernel choose.
    pub interface: u32,
}

/// How to set up a datagram socket. Options that the address's family does not have are ignored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatagramOptions {
    /// Bytes of the longest datagram to be received, from 1 to 65,527; what is longer comes cut, is flagged and
    /// counted. Default 65,527: every UDP datagram comes whole. With GRO it has no effect, as joined datagrams need
    /// slots of 64 KiB. A protocol that is known to stay within the path's MTU saves memory with about 1,500.
    pub max_datagram: u32,
    /// Slots of receive memory, from 1 to 32,768: the quota of this socket, which shares them with no other, so that a
    /// flooded one takes nothing from the rest. A slot is taken by a datagram (or several joined ones) until it is
    /// dropped. Default 64: with the default size 4 MiB are reserved, of which what is received into is touched. The kernel
    /// keeps what comes meanwhile (`receive_buffer`); more slots are memory that is gone round, and leaves the caches.
    pub slots: u32,
    /// Whether the kernel may join datagrams. Default off.
    pub gro: Gro,
    /// Tell each datagram's congestion notification. Default off.
    pub receive_ecn: bool,
    /// Tell when the kernel received each datagram (`SO_TIMESTAMPNS`). Default off.
    pub receive_timestamps: bool,
    /// Tell the address that each datagram was sent to, and the interface that it came by. Default off. For answers
    /// from a socket bound to a wildcard, which should leave by the same address.
    pub receive_local_address: bool,
    /// Tell which datagrams the network did not bring to their receivers, with these: a
    /// [`DatagramError::Unreachable`](crate::DatagramError::Unreachable) for each answer by ICMP (`IP_RECVERR`,
    /// `IPV6_RECVERR`). Default off: then a socket without a peer is told nothing, and one that has a peer is told without
    /// an address.
    pub receive_errors: bool,
    /// Bytes queued for sending past which further sends are refused. Default 256 KiB.
    pub high_water: u32,
    /// Bytes queued at or below which [`Event::DatagramWritable`](crate::Event::DatagramWritable) follows a refusal.
    /// Default 64 KiB.
    pub low_water: u32,
    /// Sends queued at once, past which further ones are refused. Default 512.
    pub queued_sends: u32,
    /// `SO_RCVBUF` in bytes: what the kernel keeps while the loop is busy. It doubles the figure for its accounting and
    /// caps it at `net.core.rmem_max`. Default none: `net.core.rmem_default`, about 200 KiB.
    pub receive_buffer: Option<u32>,
    /// Set `receive_buffer` past the system's cap (`SO_RCVBUFFORCE`, which needs `CAP_NET_ADMIN`). Default off.
    pub force_receive_buffer: bool,
    /// `SO_SNDBUF` in bytes, likewise with `net.core.wmem_max`. Default none.
    pub send_buffer: Option<u32>,
    /// `SO_REUSEPORT`: several sockets of one user on the same address and port. Default off: a second server on the
    /// port gets an error.
    pub reuse_port: bool,
    /// `SO_REUSEADDR`: bind to a port that others receive multicast on. Default off: for unicast it would let another
    /// program take the port over.
    pub reuse_address: bool,
    /// May send to broadcast addresses (`SO_BROADCAST`). Default off.
    pub broadcast: bool,
    /// `IPV6_V6ONLY`: an IPv6 socket takes IPv6 only. Default off: `[::]` takes IPv4 as well, whose addresses show as
    /// mapped ones (`::ffff:192.0.2.1`).
    pub ipv6_only: bool,
    /// Multicast groups to join. [`Loop::join_multicast`](crate::Loop::join_multicast) joins more later.
    pub groups: Vec<MulticastGroup>,
    /// Whether this host's members get what this socket sends to a group. Default none: the kernel's, which is on.
    pub multicast_loop: Option<bool>,
    /// Hops that multicast may go. Default none: the kernel's, 1.
    pub multicast_hops: Option<u8>,
    /// The only peer: the socket is connected to it, receives from nobody else, and learns of its unreachability.
    /// Default none.
    pub peer: Option<Address>,
    /// Deliver nothing until [`Loop::resume_datagrams`](crate::Loop::resume_datagrams). Default off.
    pub paused: bool,
}

impl Default for DatagramOptions {
    fn default() -> Self {
        Self {
            max_datagram: MAX_UDP_PAYLOAD,
            slots: 64,
            gro: Gro::Off,
            receive_ecn: false,
            receive_timestamps: false,
            receive_local_address: false,
            receive_errors: false,
            high_water: 256 * 1024,
            low_water: 64 * 1024,
            queued_sends: 512,
            receive_buffer: None,
            force_receive_buffer: false,
            send_buffer: None,
            reuse_port: false,
            reuse_address: false,
            broadcast: false,
            ipv6_only: false,
            groups: Vec::new(),
            multicast_loop: None,
            multicast_hops: None,
            peer: None,
            paused: false,
        }
    }
}

impl DatagramOptions {
    /// What is out of its range, if anything is: the field and what it must be.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let checks = [
            (
                (1..=MAX_UDP_PAYLOAD).contains(&self.max_datagram),
                "max_datagram",
                "from 1 to 65,527",
            ),
            (
                (1..=crate::pool::MAX_POOL_SLOTS).contains(&self.slots),
                "slots",
                "from 1 to 32,768",
            ),
            (
                (1..=1 << 30).contains(&self.high_water),
                "high_water",
                "from 1 byte to 1 GiB",
            ),
            (
                self.low_water < self.high_water,
                "low_water",
                "below `high_water`",
            ),
            (
                (1..=65_536).contains(&self.queued_sends),
                "queued_sends",
                "from 1 to 65,536",
            ),
        ];
        checks
            .into_iter()
            .find(|(holds, ..)| !holds)
            .map(|(_, field, requirement)| (field, requirement))
    }
}
