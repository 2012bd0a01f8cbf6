//! What the network answers to a datagram that it does not bring.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::errno::Errno;

/// A datagram did not arrive, and to whom it was sent.
///
/// The kernel does not say which of several it was. A router on the way, or the receiver, has told so by ICMP: anybody who
/// can see the traffic can forge that, so it is a hint and no proof.
// Fields in place of a `SocketAddr`: events are moved often, and this one is as small as others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unreachable {
    /// An IPv4 address as a mapped one.
    ip: Ipv6Addr,
    scope: u32,
    errno: Errno,
    port: u16,
    v4: bool,
}

impl Unreachable {
    /// What an implementation of [`SocketSys::datagram_error`](crate::sys::SocketSys::datagram_error) answers: to whom it was
    /// sent, on a socket of both families as peers are there, and why it did not arrive.
    #[must_use]
    pub fn new(receiver: SocketAddr, errno: Errno) -> Self {
        let (ip, scope) = match receiver {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        Self {
            ip,
            scope,
            errno,
            port: receiver.port(),
            v4: receiver.is_ipv4(),
        }
    }

    /// To whom it was sent; on a socket of both families an IPv4 address is a mapped one, as peers are there.
    #[must_use]
    pub fn receiver(&self) -> SocketAddr {
        match self.ip.to_ipv4_mapped() {
            Some(ip) if self.v4 => SocketAddr::new(ip.into(), self.port),
            _ => SocketAddrV6::new(self.ip, self.port, 0, self.scope).into(),
        }
    }

    /// Why: `ECONNREFUSED` if nobody is at the port, `EHOSTUNREACH`, `ENETUNREACH`, `EMSGSIZE` if it was too large for
    /// the path and must not be cut, and whatever else the kernel makes of ICMP (`icmp(7)`).
    #[must_use]
    pub const fn errno(&self) -> Errno {
        self.errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_told_as_they_were_named() {
        for address in [
            "192.0.2.1:53",
            "[2001:db8::1]:1",
            "[::ffff:192.0.2.1]:7",
            "[fe80::1%3]:9",
        ] {
            let address: SocketAddr = address.parse().unwrap();
            let told = Unreachable::new(address, Errno::ECONNREFUSED);
            assert_eq!((told.receiver(), told.errno()), (address, Errno::ECONNREFUSED));
        }
    }
}
