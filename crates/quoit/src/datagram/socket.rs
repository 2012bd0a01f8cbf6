//! Datagram sockets before a loop has them: made here, or adopted from the caller.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::options::{DatagramOptions, Gro, MulticastGroup, Steering};
use crate::address::{Address, AddressError, SocketAddress};
use crate::errno::Errno;
use crate::listen::SocketFile;
use crate::reserved;
use crate::sys::{DatagramFamily, DatagramOption, Linux, SocketOption, SocketSys};

/// A datagram socket that is set up and bound, for a loop to take.
///
/// Dropping it closes it. A Unix socket's file that it was bound to is removed, unless the path names another file by
/// then.
#[derive(Debug)]
pub struct DatagramSocket {
    descriptor: OwnedFd,
    family: DatagramFamily,
    address: Address,
    /// What it is connected to, by these options or before.
    peer: Option<Address>,
    options: DatagramOptions,
    file: Option<SocketFile>,
}

impl DatagramSocket {
    /// Makes a socket bound to `address`; port 0 lets the kernel choose. [`Address::UnixUnnamed`] makes a Unix socket
    /// without a name, which can send and not be answered.
    ///
    /// # Errors
    /// What failed, on what address, and what to do.
    pub fn bind(address: &Address, options: &DatagramOptions) -> Result<Self, DatagramSocketError> {
        Self::bind_on(&Linux, address, options)
    }

    /// As [`DatagramSocket::bind`], by the calls of `system`.
    #[doc(hidden)]
    pub fn bind_on(
        system: &impl SocketSys,
        address: &Address,
        options: &DatagramOptions,
    ) -> Result<Self, DatagramSocketError> {
        let failed = |step| DatagramSocketError::of(address, step);
        let raw = SocketAddress::try_from(address).map_err(|error| DatagramSocketError::Address {
            address: address.clone(),
            error,
        })?;
        let descriptor = system
            .datagram_socket(&raw)
            .map_err(failed(DatagramStep::Socket))?;
        for option in before_binding(address, options).into_iter().flatten() {
            system
                .set_option(descriptor.as_fd(), option)
                .map_err(failed(DatagramStep::Option(option)))?;
        }
        if *address != Address::UnixUnnamed {
            system
                .bind(descriptor.as_fd(), &raw)
                .map_err(failed(DatagramStep::Bind))?;
        }
        let file = match address {
            Address::UnixPath(path) => Some(
                SocketFile::of(path).map_err(|error| failed(DatagramStep::Bind)(Errno::from_io(&error)))?,
            ),
            _ => None,
        };
        let mut socket = Self::adopt_on(system, descriptor, options)?;
        socket.file = file;
        Ok(socket)
    }

    /// Takes over a datagram socket that was made and bound elsewhere, and sets what `options` say of bound ones: all
    /// but `reuse_port`, `reuse_address` and `ipv6_only`.
    ///
    /// # Errors
    /// What failed, and what to do; the descriptor is closed then.
    pub fn adopt(descriptor: OwnedFd, options: &DatagramOptions) -> Result<Self, DatagramSocketError> {
        Self::adopt_on(&Linux, descriptor, options)
    }

    fn adopt_on(
        system: &impl SocketSys,
        descriptor: OwnedFd,
        options: &DatagramOptions,
    ) -> Result<Self, DatagramSocketError> {
        if let Some((field, requirement)) = options.fault() {
            return Err(DatagramSocketError::Options { field, requirement });
        }
        let socket = descriptor.as_fd();
        let unknown = Address::UnixUnnamed;
        let family = system
            .datagram_family(socket)
            .map_err(DatagramSocketError::of(&unknown, DatagramStep::Adopt))?;
        let raw = system
            .local_address(socket)
            .map_err(DatagramSocketError::of(&unknown, DatagramStep::Name))?;
        let address = match Address::try_from(&raw) {
            Ok(address) => address,
            Err(error) => {
                return Err(DatagramSocketError::Address {
                    address: unknown,
                    error,
                });
            }
        };
        set_up(system, socket, family, &address, options)?;
        let address = if options.peer.is_some() {
            // Connected, it has an address of this host in place of a wildcard.
            let named = system
                .local_address(socket)
                .map_err(DatagramSocketError::of(&address, DatagramStep::Name))?;
            Address::try_from(&named).unwrap_or(address)
        } else {
            address
        };
        let peer = system
            .peer_address(socket)
            .ok()
            .map(|peer| Address::try_from(&peer).unwrap_or(Address::UnixUnnamed));
        Ok(Self {
            descriptor,
            family,
            address,
            peer,
            options: options.clone(),
            file: None,
        })
    }

    /// Makes `count` sockets on one port, one for each of as many loops, and says which gets what. Port 0 is chosen
    /// once for all. Close none of them before the others: a group that changes steers differently.
    ///
    /// # Errors
    /// As [`DatagramSocket::bind`].
    pub fn bind_group(
        address: &Address,
        options: &DatagramOptions,
        count: u16,
        steering: Steering,
    ) -> Result<Vec<Self>, DatagramSocketError> {
        Self::bind_group_on(&Linux, address, options, count, steering)
    }

    /// As [`DatagramSocket::bind_group`], by the calls of `system`.
    #[doc(hidden)]
    pub fn bind_group_on(
        system: &impl SocketSys,
        address: &Address,
        options: &DatagramOptions,
        count: u16,
        steering: Steering,
    ) -> Result<Vec<Self>, DatagramSocketError> {
        let options = DatagramOptions {
            reuse_port: true,
            ..options.clone()
        };
        let mut sockets: Vec<Self> = Vec::with_capacity(count.into());
        for _ in 0..count {
            let address = sockets.first().map_or(address, |first| &first.address);
            let socket = Self::bind_on(system, address, &options)?;
            sockets.push(socket);
        }
        if let (Steering::Cpu, Some(first)) = (steering, sockets.first()) {
            system
                .set_datagram_option(first.as_fd(), DatagramOption::SteerByCpu { sockets: count })
                .map_err(DatagramSocketError::of(&first.address, DatagramStep::Steer))?;
        }
        Ok(sockets)
    }

    /// Where it is bound, as the kernel says: a port 0 that was asked for has become the chosen one.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// How it was set up.
    #[must_use]
    pub const fn options(&self) -> &DatagramOptions {
        &self.options
    }

    /// The only peer, if it is connected to one.
    #[must_use]
    pub const fn peer(&self) -> Option<&Address> {
        self.peer.as_ref()
    }

    pub(crate) const fn family(&self) -> DatagramFamily {
        self.family
    }

    pub(crate) fn into_parts(self) -> (OwnedFd, DatagramOptions, Option<SocketFile>) {
        (self.descriptor, self.options, self.file)
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn before_binding(address: &Address, options: &DatagramOptions) -> [Option<SocketOption>; 3] {
    let internet = matches!(address, Address::Tcp(_));
    let v6 = matches!(address, Address::Tcp(address) if address.is_ipv6());
    [
        (internet && options.reuse_address).then_some(SocketOption::ReuseAddress(true)),
        (internet && options.reuse_port).then_some(SocketOption::ReusePort(true)),
        v6.then_some(SocketOption::Ipv6Only(options.ipv6_only)),
    ]
}

/// Sets everything that a bound socket takes.
fn set_up(
    system: &impl SocketSys,
    socket: BorrowedFd<'_>,
    family: DatagramFamily,
    address: &Address,
    options: &DatagramOptions,
) -> Result<(), DatagramSocketError> {
    let buffers = [
        options
            .receive_buffer
            .filter(|_| !options.force_receive_buffer)
            .map(SocketOption::ReceiveBuffer),
        options.send_buffer.map(SocketOption::SendBuffer),
    ];
    for option in buffers.into_iter().flatten() {
        system
            .set_option(socket, option)
            .map_err(DatagramSocketError::of(address, DatagramStep::Option(option)))?;
    }
    let set = |option| {
        system
            .set_datagram_option(socket, option)
            .map_err(DatagramSocketError::of(address, DatagramStep::Set(option)))
    };
    if let Some(bytes) = options.receive_buffer.filter(|_| options.force_receive_buffer) {
        set(DatagramOption::ForceReceiveBuffer(bytes))?;
    }
    // Once any were dropped, being told with each datagram costs every one that follows. So only where the kernel cannot
    // be asked.
    if system.datagram_drops(socket).is_err() {
        set(DatagramOption::CountDrops)?;
    }
    if options.receive_timestamps {
        set(DatagramOption::Timestamps)?;
    }
    if family != DatagramFamily::Unix {
        let v6 = family == DatagramFamily::V6;
        let wanted = [
            (options.gro != Gro::Off).then_some(DatagramOption::Gro),
            options.receive_ecn.then_some(DatagramOption::Ecn { v6 }),
            options
                .receive_local_address
                .then_some(DatagramOption::LocalAddress { v6 }),
            options.receive_errors.then_some(DatagramOption::Errors { v6 }),
            options.broadcast.then_some(DatagramOption::Broadcast),
            options
                .multicast_loop
                .map(|on| DatagramOption::MulticastLoop { v6, on }),
            options
                .multicast_hops
                .map(|hops| DatagramOption::MulticastHops { v6, hops }),
        ];
        for option in wanted.into_iter().flatten() {
            set(option)?;
        }
        for &MulticastGroup { group, interface } in &options.groups {
            set(DatagramOption::Membership {
                group,
                interface,
                member: true,
            })?;
        }
    }
    if let Some(peer) = &options.peer {
        let raw = destination(family, peer).map_err(|error| DatagramSocketError::Address {
            address: peer.clone(),
            error,
        })?;
        system
            .connect_now(socket, &raw)
            .map_err(DatagramSocketError::of(peer, DatagramStep::Connect))?;
    }
    Ok(())
}

/// An address as a socket of this family is given it: to IPv6, IPv4 addresses are mapped ones.
fn destination(family: DatagramFamily, address: &Address) -> Result<SocketAddress, AddressError> {
    let mut raw = SocketAddress::empty();
    set_destination(&mut raw, family, address)?;
    Ok(raw)
}

/// As [`destination`], where it is to stay.
#[inline]
pub(crate) fn set_destination(
    raw: &mut SocketAddress,
    family: DatagramFamily,
    address: &Address,
) -> Result<(), AddressError> {
    match address {
        Address::Tcp(SocketAddr::V4(v4)) if family == DatagramFamily::V6 => {
            raw.set_internet(SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()));
            Ok(())
        }
        _ => raw.set(address),
    }
}

/// Whether packets to this address are of IPv6, and not of IPv4 behind a mapped address.
pub(crate) fn is_v6(address: &Address) -> bool {
    matches!(address, Address::Tcp(SocketAddr::V6(v6)) if v6.ip().to_ipv4_mapped().is_none())
}

/// What was being done when the kernel refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DatagramStep {
    /// Making the socket (`socket(2)`).
    Socket,
    /// Setting an option before binding, or a buffer's size (`setsockopt(2)`).
    Option(SocketOption),
    /// Setting an option of datagram sockets (`setsockopt(2)`).
    Set(DatagramOption),
    /// Binding it (`bind(2)`).
    Bind,
    /// Reading its address (`getsockname(2)`).
    Name,
    /// Connecting it to its peer (`connect(2)`).
    Connect,
    /// Finding out what socket it is.
    Adopt,
    /// Choosing which socket of a group gets what (`SO_ATTACH_REUSEPORT_CBPF`).
    Steer,
    /// Setting the blocking mode that the loop's engine wants (`fcntl(2)`).
    Mode,
    /// Making room for its receives: memory, or a buffer ring.
    Buffers,
}

/// Why there is no datagram socket. The text says what failed, on what, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DatagramSocketError {
    /// A field of the options is out of its range.
    Options {
        /// Its name.
        field: &'static str,
        /// What it must be.
        requirement: &'static str,
    },
    /// The address has no form that the kernel reads.
    Address {
        /// The address.
        address: Address,
        /// Why it has none.
        error: AddressError,
    },
    /// The kernel refused.
    System {
        /// The address that was asked for, or is bound.
        address: Address,
        /// What was being done.
        step: DatagramStep,
        /// Why it was refused.
        errno: Errno,
    },
    /// The loop has as many datagram sockets as it may
    /// ([`Config::datagram_sockets`](crate::Config::datagram_sockets)).
    Limit,
}

impl DatagramSocketError {
    pub(crate) fn of(address: &Address, step: DatagramStep) -> impl Fn(Errno) -> Self + '_ {
        move |errno| Self::System {
            address: address.clone(),
            step,
            errno,
        }
    }

    /// The kernel's error number, where there is one.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// What to do about it.
    fn remedy(step: DatagramStep, errno: Errno) -> &'static str {
        match (step, errno.code()) {
            (DatagramStep::Buffers, libc::ENOMEM) => reserved::REMEDY,
            (DatagramStep::Bind, libc::EADDRINUSE) => {
                "another socket has it: choose another port, or share it with `reuse_port`"
            }
            (DatagramStep::Bind, libc::EADDRNOTAVAIL) => {
                "it is not an address of this host: choose one that `ip address` lists"
            }
            (DatagramStep::Bind, libc::EACCES) => {
                "a port below 1024 needs CAP_NET_BIND_SERVICE, and a path needs a writable directory"
            }
            (DatagramStep::Set(DatagramOption::Gro), _) => {
                "this kernel cannot join datagrams, as Linux 5.0 and newer can: leave `gro` off"
            }
            (DatagramStep::Set(DatagramOption::Membership { .. }), libc::ENODEV) => {
                "no interface leads to the group: name one that does multicast"
            }
            (DatagramStep::Set(DatagramOption::Membership { .. }), libc::EINVAL) => {
                "it is not a multicast group, or it is not of the socket's family"
            }
            (DatagramStep::Set(DatagramOption::ForceReceiveBuffer(_)), libc::EPERM) => {
                "it needs CAP_NET_ADMIN: raise net.core.rmem_max instead"
            }
            (DatagramStep::Adopt, libc::EPROTOTYPE) => "it is not a datagram socket: hand over one that is",
            (DatagramStep::Adopt, libc::ENOTSOCK) => "it is not a socket: hand over a datagram socket",
            (_, libc::EMFILE) => "raise the limit on descriptors (RLIMIT_NOFILE)",
            _ => "",
        }
    }
}

impl fmt::Display for DatagramSocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options { field, requirement } => {
                write!(f, "datagram socket: `{field}` must be {requirement}")
            }
            Self::Address { address, error } => write!(f, "datagram socket on {address}: {error}"),
            Self::System {
                address,
                step,
                errno,
            } => {
                write!(f, "datagram socket on {address}: {step} failed: {errno}")?;
                match Self::remedy(*step, *errno) {
                    "" => Ok(()),
                    remedy => write!(f, "; {remedy}"),
                }
            }
            Self::Limit => f.write_str(
                "the loop has as many datagram sockets as it may; raise `datagram_sockets` in its configuration",
            ),
        }
    }
}

impl std::error::Error for DatagramSocketError {}

impl fmt::Display for DatagramStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket => f.write_str("making the socket"),
            Self::Option(option) => write!(f, "setting {option:?}"),
            Self::Set(DatagramOption::Membership {
                group, member: true, ..
            }) => {
                write!(f, "joining the group {group}")
            }
            Self::Set(DatagramOption::Membership { group, .. }) => write!(f, "leaving the group {group}"),
            Self::Set(option) => write!(f, "setting {option:?}"),
            Self::Bind => f.write_str("binding it"),
            Self::Name => f.write_str("reading its address"),
            Self::Connect => f.write_str("connecting it"),
            Self::Adopt => f.write_str("taking it over"),
            Self::Steer => f.write_str("steering by processor"),
            Self::Mode => f.write_str("setting its blocking mode"),
            Self::Buffers => f.write_str("making room for its receives"),
        }
    }
}
