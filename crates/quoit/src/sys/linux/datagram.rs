//! Options of datagram sockets.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, c_int, socklen_t};

use super::{get_integer, integer, set_integer, set_structure};
use crate::address::{Address, SocketAddress};
use crate::datagram::{UDP_GRO, Unreachable, parse_error};
use crate::errno::Errno;
use crate::sys::{DatagramFamily, DatagramOption};

/// `SO_MEMINFO` returns so many numbers (`SK_MEMINFO_VARS` of `linux/sock_diag.h`), and the drops are the last.
const MEMORY_NUMBERS: usize = 9;
const DROPS: usize = 8;

/// Classic BPF instructions (`linux/filter.h`), by their codes: load a word from an absolute address, divide with
/// remainder by a constant, answer the accumulator.
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const REMAINDER: u16 = (libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16;
const ANSWER: u16 = (libc::BPF_RET | libc::BPF_A) as u16;
/// Where a program finds the number of the processor that it runs on.
const PROCESSOR: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;

pub(super) fn family(socket: BorrowedFd<'_>) -> Result<DatagramFamily, Errno> {
    if get_integer(socket, libc::SO_TYPE)? != libc::SOCK_DGRAM {
        return Err(Errno::new(libc::EPROTOTYPE));
    }
    match get_integer(socket, libc::SO_DOMAIN)? {
        libc::AF_INET => Ok(DatagramFamily::V4),
        libc::AF_INET6 => Ok(DatagramFamily::V6),
        libc::AF_UNIX => Ok(DatagramFamily::Unix),
        _ => Err(Errno::new(libc::EAFNOSUPPORT)),
    }
}

pub(super) fn drops(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut numbers = [0u32; MEMORY_NUMBERS];
    let mut length = size_of_val(&numbers) as socklen_t;
    // SAFETY: the numbers and their length outlive the call, and the length is theirs.
    Errno::check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    if (length as usize) <= DROPS * size_of::<u32>() {
        return Err(Errno::new(libc::ENOPROTOOPT));
    }
    Ok(numbers[DROPS])
}

/// Room for the control messages of an entry of the error queue: the error with who has told it, the local address, the
/// time.
#[repr(C, align(8))]
struct ErrorControl([u8; 256]);

pub(super) fn error(socket: BorrowedFd<'_>) -> Result<Option<Unreachable>, Errno> {
    let mut control = ErrorControl([0; 256]);
    let mut written = 0;
    let receiver = SocketAddress::read(|address, length| {
        // SAFETY: a structure of integers and pointers, for which all zeroes is a valid value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = address.cast();
        // SAFETY: `read` gives a length that can be read and written.
        message.msg_namelen = unsafe { *length };
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the name and the control messages have the room that the header says, and there is no room for the
        // datagram's bytes, which are dropped.
        let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        written = message.msg_controllen as usize;
        // SAFETY: as above.
        unsafe { *length = message.msg_namelen };
        // How many bytes the datagram had is of no interest.
        result.min(0) as c_int
    })?;
    let errno = parse_error(&control.0[..written.min(control.0.len())]);
    Ok(match (errno, Address::try_from(&receiver)) {
        (Some(errno), Ok(Address::Tcp(receiver))) => Some(Unreachable::new(receiver, errno)),
        _ => None,
    })
}

pub(super) fn set_option(socket: BorrowedFd<'_>, option: DatagramOption) -> Result<(), Errno> {
    let set = |level, name, value: c_int| set_integer(socket, level, name, value);
    // What a socket of both families sends to IPv4 goes by the options of IPv4.
    let of_both = |v6: bool, (name4, name6), value: c_int| {
        set(IPPROTO_IP, name4, value)?;
        if v6 {
            set(IPPROTO_IPV6, name6, value)?;
        }
        Ok(())
    };
    match option {
        DatagramOption::CountDrops => set(SOL_SOCKET, libc::SO_RXQ_OVFL, 1),
        DatagramOption::Timestamps => set(SOL_SOCKET, libc::SO_TIMESTAMPNS, 1),
        DatagramOption::Gro => set(libc::SOL_UDP, UDP_GRO, 1),
        DatagramOption::Ecn { v6 } => of_both(v6, (libc::IP_RECVTOS, libc::IPV6_RECVTCLASS), 1),
        DatagramOption::Errors { v6 } => of_both(v6, (libc::IP_RECVERR, libc::IPV6_RECVERR), 1),
        // That of IPv6 is for mapped addresses, too.
        DatagramOption::LocalAddress { v6: true } => set(IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        DatagramOption::LocalAddress { v6: false } => set(IPPROTO_IP, libc::IP_PKTINFO, 1),
        DatagramOption::Broadcast => set(SOL_SOCKET, libc::SO_BROADCAST, 1),
        DatagramOption::ForceReceiveBuffer(bytes) => set(SOL_SOCKET, libc::SO_RCVBUFFORCE, integer(bytes)),
        DatagramOption::MulticastLoop { v6, on } => of_both(
            v6,
            (libc::IP_MULTICAST_LOOP, libc::IPV6_MULTICAST_LOOP),
            on.into(),
        ),
        DatagramOption::MulticastHops { v6, hops } => of_both(
            v6,
            (libc::IP_MULTICAST_TTL, libc::IPV6_MULTICAST_HOPS),
            hops.into(),
        ),
        DatagramOption::Membership {
            group,
            interface,
            member,
        } => set_membership(socket, group, interface, member).map_err(|errno| match errno.code() {
            // The socket's family has no such option, as it has no such group.
            libc::ENOPROTOOPT | libc::EOPNOTSUPP => Errno::EINVAL,
            _ => errno,
        }),
        DatagramOption::SteerByCpu { sockets } => steer_by_cpu(socket, sockets),
    }
}

fn set_membership(socket: BorrowedFd<'_>, group: IpAddr, interface: u32, member: bool) -> Result<(), Errno> {
    match group {
        IpAddr::V4(group) => {
            let request = libc::ip_mreqn {
                imr_multiaddr: in_address(group),
                imr_address: in_address(Ipv4Addr::UNSPECIFIED),
                imr_ifindex: integer(interface),
            };
            let name = if member {
                libc::IP_ADD_MEMBERSHIP
            } else {
                libc::IP_DROP_MEMBERSHIP
            };
            set_structure(socket, IPPROTO_IP, name, &request)
        }
        IpAddr::V6(group) => {
            let request = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr {
                    s6_addr: group.octets(),
                },
                ipv6mr_interface: interface,
            };
            let name = if member {
                libc::IPV6_ADD_MEMBERSHIP
            } else {
                libc::IPV6_DROP_MEMBERSHIP
            };
            set_structure(socket, IPPROTO_IPV6, name, &request)
        }
    }
}

fn in_address(address: Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: u32::from_ne_bytes(address.octets()),
    }
}

fn steer_by_cpu(socket: BorrowedFd<'_>, sockets: u16) -> Result<(), Errno> {
    let step = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let mut steps = [
        step(LOAD_WORD, PROCESSOR),
        step(REMAINDER, u32::from(sockets)),
        step(ANSWER, 0),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    set_structure(socket, SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}
