//! Datagrams that are not taken apart on their way.

#![expect(unsafe_code, reason = "a call of the C library that no crate in use here has")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Has what is sent never be fragmented, by this host or a router, and whatever the kernel believes of the path: for protocols
/// that find out by themselves how much fits (`IP_MTU_DISCOVER`, `ip(7)` and `ipv6(7)`).
pub(crate) fn probe(socket: &impl AsFd, v6: bool) -> io::Result<()> {
    // An IPv6 socket may send to IPv4 addresses as well, unless that was forbidden: the latter is no fault.
    let v4 = set(
        socket,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_PROBE,
    );
    if v6 {
        set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )
    } else {
        v4
    }
}

fn set(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the kernel reads as many bytes as the value has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
