//! A TCP socket that is neither connected nor listens yet.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use quoit::{ConnectOptions, ListenSocket, ListenerOptions, StreamOptions};
use socket2::{Domain, Protocol, Socket, Type};

use crate::connect;
use crate::listener::Listener;
use crate::{TcpListener, TcpStream};

/// A TCP socket that is neither connected nor listens: options first, as `tokio::net::TcpSocket`.
///
/// What connects or is accepted has the options of the socket.
#[derive(Debug)]
pub struct TcpSocket {
    socket: Socket,
    /// The loop closes what is dropped, and not the kernel, whose option for this would come too early.
    zero_linger: AtomicBool,
}

impl TcpSocket {
    /// For IPv4.
    ///
    /// # Errors
    /// For want of descriptors.
    pub fn new_v4() -> io::Result<Self> {
        Self::new(Domain::IPV4)
    }

    /// For IPv6.
    ///
    /// # Errors
    /// For want of descriptors; `EAFNOSUPPORT` where the kernel has no IPv6.
    pub fn new_v6() -> io::Result<Self> {
        Self::new(Domain::IPV6)
    }

    fn new(domain: Domain) -> io::Result<Self> {
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        // As all streams here.
        socket.set_tcp_nodelay(true)?;
        Ok(Self::of(socket))
    }

    fn of(socket: Socket) -> Self {
        Self {
            socket,
            zero_linger: AtomicBool::new(false),
        }
    }

    /// Takes over a socket that was made elsewhere and is not connected.
    #[must_use]
    pub fn from_std_stream(stream: std::net::TcpStream) -> Self {
        Self::of(stream.into())
    }

    /// Has probes sent while nothing moves (`SO_KEEPALIVE`), after the kernel's times. Default: off.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        self.socket.set_keepalive(keepalive)
    }

    /// Whether probes are sent.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.socket.keepalive()
    }

    /// Lets an address be bound of which connections linger (`SO_REUSEADDR`). Default: off.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn set_reuseaddr(&self, reuse: bool) -> io::Result<()> {
        self.socket.set_reuse_address(reuse)
    }

    /// Whether such an address can be bound.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        self.socket.reuse_address()
    }

    /// Lets several sockets of one user have the same address (`SO_REUSEPORT`). Default: off.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn set_reuseport(&self, reuse: bool) -> io::Result<()> {
        self.socket.set_reuse_port(reuse)
    }

    /// Whether several may have it.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn reuseport(&self) -> io::Result<bool> {
        self.socket.reuse_port()
    }

    /// `SO_SNDBUF`, in bytes. The kernel doubles it.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn set_send_buffer_size(&self, size: u32) -> io::Result<()> {
        self.socket.set_send_buffer_size(size as usize)
    }

    /// `SO_SNDBUF`, in bytes, as the kernel has it.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        self.socket.send_buffer_size().map(|size| size as u32)
    }

    /// `SO_RCVBUF`, in bytes. The kernel doubles it.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn set_recv_buffer_size(&self, size: u32) -> io::Result<()> {
        self.socket.set_recv_buffer_size(size as usize)
    }

    /// `SO_RCVBUF`, in bytes, as the kernel has it.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        self.socket.recv_buffer_size().map(|size| size as u32)
    }

    /// Has what connects or is accepted reset, instead of closed, when it is dropped: see
    /// [`TcpStream::set_zero_linger`].
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.zero_linger.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// `TCP_NODELAY`. Default, unlike tokio's: on.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.set_tcp_nodelay(nodelay)
    }

    /// Whether small segments leave at once.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket.tcp_nodelay()
    }

    /// The type of service of what is sent over IPv4 (`IP_TOS`).
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.socket.set_tos_v4(tos)
    }

    /// `IP_TOS`.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.socket.tos_v4()
    }

    /// The traffic class of what is sent over IPv6 (`IPV6_TCLASS`).
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.socket.set_tclass_v6(tclass)
    }

    /// `IPV6_TCLASS`.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.socket.tclass_v6()
    }

    /// Sends and receives by this interface alone (`SO_BINDTODEVICE`, `socket(7)`). `None`: by any again.
    ///
    /// # Errors
    /// What the kernel says of it: `ENODEV` without such an interface, `EPERM` without the right to.
    pub fn bind_device(&self, interface: Option<&[u8]>) -> io::Result<()> {
        self.socket.bind_device(interface)
    }

    /// The interface that it is bound to.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn device(&self) -> io::Result<Option<Vec<u8>>> {
        self.socket.device()
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?.as_socket();
        address.ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }

    /// The error of the socket that nobody was told of (`SO_ERROR`).
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Binds it to the address to listen on, or to connect from. Port 0: one that the kernel chooses.
    ///
    /// # Errors
    /// Those of `bind(2)`: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        self.socket.bind(&address.into())
    }

    /// Listens, on a port that the kernel chooses unless it was bound. Connections that wait in the kernel: at most `backlog`.
    ///
    /// # Errors
    /// Those of `listen(2)`: `AddrInUse` where another listens on the address already; a loop that has no place for it.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        let resets = self.zero_linger.into_inner();
        let socket = ListenSocket::adopt(self.socket.into()).map_err(crate::errors::listen_error)?;
        let options = ListenerOptions {
            stream: as_it_is(),
            ..ListenerOptions::default()
        };
        let listener = Listener::on(socket, options)?;
        Ok(TcpListener::of(listener.resetting(resets)))
    }

    /// Connects.
    ///
    /// # Errors
    /// As [`TcpStream::connect`].
    pub async fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        let options = ConnectOptions {
            socket: as_it_is(),
            ..ConnectOptions::default()
        };
        let resets = self.zero_linger.into_inner();
        let link = connect::connect_on(self.socket.into(), address.into(), options).await?;
        if resets {
            link.reset_on_drop();
        }
        Ok(TcpStream::of(link))
    }
}

/// Options that leave the socket's own alone.
fn as_it_is() -> StreamOptions {
    StreamOptions {
        no_delay: false,
        ..StreamOptions::default()
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for TcpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl From<TcpSocket> for OwnedFd {
    fn from(socket: TcpSocket) -> Self {
        socket.socket.into()
    }
}
