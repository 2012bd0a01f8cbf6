//! Local ports: the range that the kernel gives out, and one outside of it for a server that must be told its port.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;

/// Where the kernel says which ports it gives to sockets that ask for none, as the first and the last one (ip(7)).
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// The first port that needs no privilege under the default `net.ipv4.ip_unprivileged_port_start`.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// How many ports are looked at before [`free`] takes one that the kernel gives.
const MOST_TRIES: u64 = 64;

/// The ports that the kernel gives to connections, and to sockets bound to port 0, in the network namespace of the
/// calling thread. `None` where it does not say so.
#[must_use]
pub fn ephemeral() -> Option<RangeInclusive<u16>> {
    parse(&std::fs::read_to_string(EPHEMERAL).ok()?)
}

fn parse(range: &str) -> Option<RangeInclusive<u16>> {
    let mut ports = range.split_whitespace().map(str::parse);
    match (ports.next(), ports.next()) {
        (Some(Ok(first)), Some(Ok(last))) if first <= last => Some(first..=last),
        _ => None,
    }
}

/// A port of `host` that no TCP or UDP socket has now, for a server that has to be told its port.
///
/// It lies outside of the range of [`ephemeral`], so that no connection is given it before the server binds it;
/// a port of that range is gone in no time where thousands of connections come and go. Another process that asks for
/// this very port may still have it first: then that server says so. Where the range leaves no port, it is one that
/// the kernel gives.
///
/// # Errors
/// The host is none of this machine's, or the kernel has no port left.
pub fn free(host: IpAddr) -> io::Result<u16> {
    let taken = ephemeral().unwrap_or(0..=0);
    let outside: Vec<u16> = (FIRST_UNPRIVILEGED..=u16::MAX)
        .filter(|port| !taken.contains(port))
        .collect();
    let random = RandomState::new();
    let found = (0..MOST_TRIES).find_map(|attempt| {
        let drawn = random.hash_one(attempt) % (outside.len() as u64).max(1);
        let port = *outside.get(drawn as usize)?;
        is_free(host, port).then_some(port)
    });
    match found {
        Some(port) => Ok(port),
        None => Ok(TcpListener::bind((host, 0))?.local_addr()?.port()),
    }
}

fn is_free(host: IpAddr, port: u16) -> bool {
    TcpListener::bind((host, port)).is_ok() && UdpSocket::bind((host, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_range_is_read_as_the_kernel_writes_it() {
        assert_eq!(parse("32768\t60999\n"), Some(32768..=60999));
        for odd in ["", "32768", "60999 32768", "1 70000", "a b"] {
            assert_eq!(parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn a_free_port_can_be_bound_and_is_not_one_that_connections_are_given() {
        let port = free(HOST).expect("there is one");
        let ephemeral = ephemeral().expect("the kernel says so");
        let is_all = FIRST_UNPRIVILEGED >= *ephemeral.start() && *ephemeral.end() == u16::MAX;
        assert!(is_all || !ephemeral.contains(&port), "{port} of {ephemeral:?}");
    }

    #[test]
    fn a_port_of_either_protocol_is_not_free() {
        let listener = TcpListener::bind((HOST, 0)).expect("it listens");
        let socket = UdpSocket::bind((HOST, 0)).expect("it is bound");
        for address in [listener.local_addr(), socket.local_addr()] {
            assert!(!is_free(HOST, address.expect("it is bound").port()));
        }
    }

    #[test]
    fn a_host_of_another_machine_is_an_error() {
        // TEST-NET-1 (RFC 5737).
        let foreign = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
        let error = free(foreign).expect_err("it is none of this machine's");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
