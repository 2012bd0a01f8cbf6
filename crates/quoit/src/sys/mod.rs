//! Every call that reaches the kernel, as traits: the real kernel implements them thinly, and a simulated one
//! can take its place under the same engines and the same loop.
//!
//! Here are the calls that both engines share: sockets, their options and addresses, and the clock. What only
//! one engine needs is in [`crate::engine::uring::sys`] and [`crate::engine::epoll::sys`].

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::address::SocketAddress;
use crate::datagram::Unreachable;
use crate::errno::Errno;

mod linux;

pub use linux::Linux;
pub(crate) use linux::{duplicate_inherited, get_integer};

/// A moment on the monotonic clock, in nanoseconds since a fixed but unknown one (`CLOCK_MONOTONIC`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    /// `nanoseconds` after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Self;

    /// Saturates: the clock's end is 584 years away.
    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// One socket option with its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketOption {
    /// `TCP_NODELAY`: send small segments at once.
    NoDelay(bool),
    /// `SO_KEEPALIVE` with `TCP_KEEPIDLE`, `TCP_KEEPINTVL` and `TCP_KEEPCNT`.
    Keepalive {
        /// Idle time before the first probe; whole seconds, at least one.
        idle: Duration,
        /// Time between probes; whole seconds, at least one.
        interval: Duration,
        /// Unanswered probes after which the connection is reset.
        probes: u32,
    },
    /// `SO_RCVBUF` in bytes; the kernel doubles it for its own accounting (`socket(7)`).
    ReceiveBuffer(u32),
    /// `SO_SNDBUF` in bytes; the kernel doubles it for its own accounting (`socket(7)`).
    SendBuffer(u32),
    /// `SO_REUSEADDR`: bind although connections of an earlier listener linger in TIME_WAIT.
    ReuseAddress(bool),
    /// `SO_REUSEPORT`: several listeners on one port, the kernel spreads connections by hash.
    ReusePort(bool),
    /// `IPV6_V6ONLY`: whether an IPv6 socket takes IPv6 only.
    Ipv6Only(bool),
}

/// The family of a datagram socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DatagramFamily {
    /// IPv4.
    V4,
    /// IPv6, or both.
    V6,
    /// Unix-domain.
    Unix,
}

/// One option of datagram sockets with its value. `v6` is the socket's family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramOption {
    /// `SO_RXQ_OVFL`: tell with each datagram how many were dropped, once any were. For kernels that cannot be asked.
    CountDrops,
    /// `SO_TIMESTAMPNS`.
    Timestamps,
    /// `UDP_GRO`.
    Gro,
    /// `IP_RECVTOS`, and on IPv6 sockets `IPV6_RECVTCLASS` too: mapped addresses get the former.
    Ecn {
        /// IPv6.
        v6: bool,
    },
    /// `IP_PKTINFO` or `IPV6_RECVPKTINFO`.
    LocalAddress {
        /// IPv6.
        v6: bool,
    },
    /// `IP_RECVERR`, and on IPv6 sockets `IPV6_RECVERR` too: mapped addresses get the former.
    Errors {
        /// IPv6.
        v6: bool,
    },
    /// `SO_BROADCAST`.
    Broadcast,
    /// `SO_RCVBUFFORCE`, in bytes.
    ForceReceiveBuffer(u32),
    /// `IP_MULTICAST_LOOP` or `IPV6_MULTICAST_LOOP`.
    MulticastLoop {
        /// IPv6.
        v6: bool,
        /// Whether this host's members get what this socket sends.
        on: bool,
    },
    /// `IP_MULTICAST_TTL` or `IPV6_MULTICAST_HOPS`.
    MulticastHops {
        /// IPv6.
        v6: bool,
        /// Routers to pass, and one.
        hops: u8,
    },
    /// `IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP` and their opposites.
    Membership {
        /// The group.
        group: IpAddr,
        /// The interface by number; 0: the kernel chooses.
        interface: u32,
        /// Join, or leave.
        member: bool,
    },
    /// `SO_ATTACH_REUSEPORT_CBPF` with a program that returns the processor's number modulo the count.
    SteerByCpu {
        /// Sockets of the group.
        sockets: u16,
    },
}

/// The calls on sockets that both engines and the loop make, and the clock.
///
/// Every descriptor made here is CLOEXEC. All calls are made from the loop's thread, except those that set up
/// a listener, which may come from any.
pub trait SocketSys {
    /// The monotonic clock.
    fn now(&self) -> Time;

    /// What the calling thread has had of the processors (`CLOCK_THREAD_CPUTIME_ID`, `clock_gettime(2)`).
    fn processor_time(&self) -> Duration;

    /// Does nothing for so long (`clock_nanosleep(2)`); no signal ends it.
    fn sleep(&self, time: Duration);

    /// A stream socket of `address`'s family (`socket(2)`), in blocking mode.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    fn stream_socket(&self, address: &SocketAddress) -> Result<OwnedFd, Errno>;

    /// A datagram socket of `address`'s family (`socket(2)`), in blocking mode.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    fn datagram_socket(&self, address: &SocketAddress) -> Result<OwnedFd, Errno>;

    /// The family of a datagram socket.
    ///
    /// # Errors
    /// `ENOTSOCK` for what is no socket, `EPROTOTYPE` for what is no datagram socket, `EAFNOSUPPORT` for other
    /// families.
    fn datagram_family(&self, socket: BorrowedFd<'_>) -> Result<DatagramFamily, Errno>;

    /// Sets an option of datagram sockets (`setsockopt(2)`).
    ///
    /// # Errors
    /// Those of `setsockopt(2)`; `ENOPROTOOPT` where the kernel or the family does not have it.
    fn set_datagram_option(&self, socket: BorrowedFd<'_>, option: DatagramOption) -> Result<(), Errno>;

    /// Datagrams that the kernel dropped for want of room in the socket's memory, modulo 2^32 (`SO_MEMINFO`).
    ///
    /// # Errors
    /// Those of `getsockopt(2)`; `ENOPROTOOPT` before kernel 4.12.
    fn datagram_drops(&self, socket: BorrowedFd<'_>) -> Result<u32, Errno>;

    /// Takes the oldest entry out of the socket's error queue (`recvmsg(2)` with `MSG_ERRQUEUE`), which never waits. `None`:
    /// it was no answer of the network.
    ///
    /// # Errors
    /// `EAGAIN` when there is none; those of `recvmsg(2)`.
    fn datagram_error(&self, socket: BorrowedFd<'_>) -> Result<Option<Unreachable>, Errno>;

    /// `bind(2)`.
    ///
    /// # Errors
    /// Those of `bind(2)`.
    fn bind(&self, socket: BorrowedFd<'_>, address: &SocketAddress) -> Result<(), Errno>;

    /// `listen(2)`; the kernel caps `backlog` at `net.core.somaxconn`.
    ///
    /// # Errors
    /// Those of `listen(2)`.
    fn listen(&self, socket: BorrowedFd<'_>, backlog: u32) -> Result<(), Errno>;

    /// `connect(2)` that never waits, whatever the socket's mode. For Unix sockets, whose attempts end at once.
    ///
    /// # Errors
    /// Those of `connect(2)`; `EAGAIN` where a Unix listener's backlog is full.
    fn connect_now(&self, socket: BorrowedFd<'_>, address: &SocketAddress) -> Result<(), Errno>;

    /// `accept4(2)` on a non-blocking listening socket; the new socket is in blocking mode.
    ///
    /// # Errors
    /// Those of `accept4(2)`; `EAGAIN` where nothing is queued.
    fn accept_now(&self, socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno>;

    /// `sendmsg(2)` that never waits, whatever the socket's mode, and raises no signal; the header and all that it points
    /// to must be valid. Returns how much was taken.
    ///
    /// # Errors
    /// Those of `sendmsg(2)`; `EAGAIN` where the socket is full.
    fn send_now(&self, socket: RawFd, header: &libc::msghdr) -> Result<usize, Errno>;

    /// [`SocketSys::send_now`] for other threads than the loop's.
    fn send_now_from_any_thread(&self) -> fn(RawFd, &libc::msghdr) -> Result<usize, Errno>;

    /// `sendmmsg(2)` that never waits, whatever the socket's mode, and raises no signal; the headers, at least one, and all
    /// that they point to must be valid. Returns how many were sent, at least 1; the others were not tried, or the first of
    /// them failed, which is told only when it comes first.
    ///
    /// # Errors
    /// Those of `sendmmsg(2)`, of the first message; `EAGAIN` where the socket is full.
    fn send_messages_now(&self, socket: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, Errno>;

    /// The socket's own address (`getsockname(2)`).
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    fn local_address(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno>;

    /// The peer's address, also of one that has reset the connection.
    ///
    /// # Errors
    /// Those of `getpeername(2)`; `ENOTCONN` where there was none, or once this end has reset the connection.
    fn peer_address(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno> {
        match self.connected_peer(socket) {
            Err(Errno::ENOTCONN) => self.former_peer(socket),
            found => found,
        }
    }

    /// The address of a peer that is connected (`getpeername(2)`).
    ///
    /// # Errors
    /// Those of `getpeername(2)`; `ENOTCONN` also once the peer has reset the connection.
    fn connected_peer(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno>;

    /// The address of a peer that has reset its connection. `accept4(2)` would have told it; `getpeername(2)` does not, and
    /// `SO_PEERNAME` does: both ask the socket as `accept4(2)` does, in whatever state it is (`sk_getsockopt` in
    /// `net/core/sock.c`, `inet_getname` in `net/ipv4/af_inet.c`).
    ///
    /// # Errors
    /// `ENOTCONN` where there was none, or once this end has reset the connection.
    fn former_peer(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno>;

    /// Sets an option (`setsockopt(2)`). TCP options on another kind of socket answer `EOPNOTSUPP` or
    /// `ENOPROTOOPT`.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    fn set_option(&self, socket: BorrowedFd<'_>, option: SocketOption) -> Result<(), Errno>;

    /// Sets or clears `O_NONBLOCK`. It belongs to the open file description, so duplicates share it.
    ///
    /// # Errors
    /// Those of `fcntl(2)`.
    fn set_nonblocking(&self, socket: BorrowedFd<'_>, nonblocking: bool) -> Result<(), Errno>;

    /// Whether the descriptor is a listening stream socket (`SO_ACCEPTCONN`), a connected or other stream
    /// socket, or neither (`ENOTSOCK`, `EPROTOTYPE`).
    ///
    /// # Errors
    /// `ENOTSOCK` for what is no socket, `EPROTOTYPE` for what is no stream socket.
    fn is_listening(&self, socket: BorrowedFd<'_>) -> Result<bool, Errno>;

    /// Ends the sending direction (`shutdown(2)` with `SHUT_WR`): the peer sees the end of the stream after all
    /// that was sent.
    ///
    /// # Errors
    /// Those of `shutdown(2)`.
    fn shutdown_send(&self, socket: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Makes the peer see a reset, now. TCP: `connect(2)` to `AF_UNSPEC`, which drops what is queued and sends
    /// the RST whether or not operations are in flight (a linger-0 close with a receive in flight sends none).
    /// Unix sockets have no reset: both directions are shut down, and the peer sees a reset only if it left
    /// something unread here.
    ///
    /// # Errors
    /// Those of `connect(2)` and `shutdown(2)`; the connection is gone anyway.
    fn reset(&self, socket: BorrowedFd<'_>) -> Result<(), Errno>;

    /// `poll(2)` that never waits. Returns how many descriptors have something to tell.
    ///
    /// # Errors
    /// Those of `poll(2)`.
    fn poll_now(&self, polled: &mut [libc::pollfd]) -> Result<usize, Errno>;

    /// Bytes that were received and not read yet (`SIOCINQ`).
    ///
    /// # Errors
    /// Those of `ioctl(2)`.
    fn unread(&self, socket: BorrowedFd<'_>) -> Result<usize, Errno>;

    /// The socket's pending error, which is none afterwards (`SO_ERROR`).
    fn take_error(&self, socket: RawFd) -> Option<Errno>;

    /// A number that changes whenever the peer takes some of what was sent, as long as more was sent than it took. TCP: the
    /// bytes that it has acknowledged (`tcpi_bytes_acked`); Unix sockets, and kernels without: the bytes that it has not taken
    /// (`SIOCOUTQ`).
    fn taken_by_peer(&self, socket: BorrowedFd<'_>) -> u64;

    /// Another descriptor for the same socket (`F_DUPFD_CLOEXEC`).
    ///
    /// # Errors
    /// Those of `fcntl(2)`.
    fn duplicate(&self, socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno>;

    /// `sendfile(2)` that never waits for the socket, whatever its mode; the file may make it wait for storage.
    /// Returns the bytes sent, 0 at the file's end.
    ///
    /// # Errors
    /// Those of `sendfile(2)`; `EAGAIN` where the socket is full.
    fn send_file(&self, socket: RawFd, file: RawFd, offset: u64, length: u64) -> Result<usize, Errno>;
}
