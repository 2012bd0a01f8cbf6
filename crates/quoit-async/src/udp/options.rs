//! Options of a UDP socket that is bound already.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::UdpSocket;

/// Each of these asks the loop, and waits for it.
impl UdpSocket {
    /// Whether it may send to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn broadcast(&self) -> io::Result<bool> {
        self.with_socket(|socket| socket.broadcast())
    }

    /// Sets `SO_BROADCAST`. Default: off.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_broadcast(on))
    }

    /// The time to live of what is sent over IPv4 (`IP_TTL`).
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn ttl(&self) -> io::Result<u32> {
        self.with_socket(|socket| socket.ttl_v4())
    }

    /// Sets `IP_TTL`.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_ttl_v4(ttl))
    }

    /// The type of service of what is sent over IPv4 (`IP_TOS`).
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.with_socket(|socket| socket.tos_v4())
    }

    /// Sets `IP_TOS`.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_tos_v4(tos))
    }

    /// The traffic class of what is sent over IPv6 (`IPV6_TCLASS`).
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.with_socket(|socket| socket.tclass_v6())
    }

    /// Sets `IPV6_TCLASS`.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_tclass_v6(tclass))
    }

    /// The interface that it is bound to.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn device(&self) -> io::Result<Option<Vec<u8>>> {
        self.with_socket(|socket| socket.device())
    }

    /// Sends and receives by this interface alone (`SO_BINDTODEVICE`, `socket(7)`). `None`: by any again.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket): `ENODEV` without such an interface, `EPERM` without the right to.
    pub fn bind_device(&self, interface: Option<&[u8]>) -> io::Result<()> {
        let interface = interface.map(<[u8]>::to_vec);
        self.with_socket(move |socket| socket.bind_device(interface.as_deref()))
    }

    /// Whether it receives what it sends to an IPv4 group that it is in (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.with_socket(|socket| socket.multicast_loop_v4())
    }

    /// Sets `IP_MULTICAST_LOOP`. Default: on.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_multicast_loop_v4(on))
    }

    /// The time to live of what is sent to IPv4 groups (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.with_socket(|socket| socket.multicast_ttl_v4())
    }

    /// Sets `IP_MULTICAST_TTL`. Default: 1, the own network alone.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_multicast_ttl_v4(ttl))
    }

    /// Whether it receives what it sends to an IPv6 group that it is in (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.with_socket(|socket| socket.multicast_loop_v6())
    }

    /// Sets `IPV6_MULTICAST_LOOP`. Default: on.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_multicast_loop_v6(on))
    }

    /// Joins an IPv4 group on the interface with this address. `0.0.0.0`: the kernel chooses one.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket): `ENODEV` without such an interface, `AddrInUse` if it is in the group.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.with_socket(move |socket| socket.join_multicast_v4(&group, &interface))
    }

    /// Joins an IPv6 group on the interface with this index. 0: the kernel chooses one.
    ///
    /// # Errors
    /// As [`join_multicast_v4`](Self::join_multicast_v4).
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let group = *group;
        self.with_socket(move |socket| socket.join_multicast_v6(&group, interface))
    }

    /// Leaves an IPv4 group that it has joined on this interface.
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket): `AddrNotAvailable` if it is not in the group.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.with_socket(move |socket| socket.leave_multicast_v4(&group, &interface))
    }

    /// Leaves an IPv6 group that it has joined on this interface.
    ///
    /// # Errors
    /// As [`leave_multicast_v4`](Self::leave_multicast_v4).
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let group = *group;
        self.with_socket(move |socket| socket.leave_multicast_v6(&group, interface))
    }
}
