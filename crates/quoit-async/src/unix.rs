//! Unix stream sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::task::{Context, Poll, ready};

use quoit::{Address, ConnectOptions, ListenSocket, ListenerOptions};

use crate::connect;
use crate::credentials::{self, PeerCredentials};
use crate::listener::{Accepted, Listener};
use crate::stream_type::stream_type;

stream_type! {
    /// A Unix stream connection, in place of `tokio::net::UnixStream`. As [`TcpStream`](crate::TcpStream) otherwise.
    UnixStream, halves UnixReadHalf, UnixWriteHalf, OwnedUnixReadHalf, OwnedUnixWriteHalf, UnixReuniteError,
    addresses Address, by unchanged
}

fn unchanged(address: &Address) -> io::Result<Address> {
    Ok(address.clone())
}

/// The address that a path names: with NUL as its first byte one of the abstract namespace, as in tokio.
fn named(path: &Path) -> Address {
    match path.as_os_str().as_bytes() {
        [0, name @ ..] => Address::UnixAbstract(name.into()),
        _ => Address::UnixPath(path.to_owned()),
    }
}

impl UnixStream {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// `NotFound`, `ConnectionRefused` if nobody listens there, `WouldBlock` if the listener's backlog is full; what makes the
    /// path no address.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_to(named(path.as_ref())).await
    }

    /// Connects to any Unix address, one of the abstract namespace among them.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_to(address: Address) -> io::Result<Self> {
        connect::connect_to(address, ConnectOptions::default())
            .await
            .map(Self::of)
    }

    /// Two connected streams.
    ///
    /// # Errors
    /// For want of descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }

    /// Takes over a connected socket of the standard library.
    ///
    /// # Errors
    /// What the kernel says of it; a loop that is gone.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        connect::attach(OwnedFd::from(stream)).map(Self::of)
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// `NotConnected` once the connection is gone.
    pub fn peer_cred(&self) -> io::Result<PeerCredentials> {
        self.with_socket(|socket| credentials::of(&*socket))
    }

    /// The error of the socket that nobody was told of (`SO_ERROR`).
    ///
    /// # Errors
    /// As [`peer_cred`](Self::peer_cred).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.with_socket(|socket| socket.take_error())
    }
}

/// As [`UnixStream::from_std`].
impl TryFrom<std::os::unix::net::UnixStream> for UnixStream {
    type Error = io::Error;

    fn try_from(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        Self::from_std(stream)
    }
}

/// Accepts Unix connections, in place of `tokio::net::UnixListener`. As [`TcpListener`](crate::TcpListener) otherwise.
///
/// Dropping it removes the file that it was bound to, unless the path names another by then.
#[derive(Debug)]
pub struct UnixListener {
    listener: Listener,
}

impl UnixListener {
    /// Listens at `path`, which must not exist. At the empty one: at an abstract name that the kernel chooses.
    ///
    /// # Errors
    /// `AddrInUse` if the file exists, `PermissionDenied` and the like, with the path and what to do.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        match named(path.as_ref()) {
            Address::UnixPath(path) if path.as_os_str().is_empty() => {
                Self::from_std(std::os::unix::net::UnixListener::bind("")?)
            }
            address => Self::bind_to(&address),
        }
    }

    /// Listens at any Unix address, one of the abstract namespace among them.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_to(address: &Address) -> io::Result<Self> {
        if !address.is_unix() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{address} is not a Unix address"),
            ));
        }
        Listener::bind(address, ListenerOptions::default()).map(Self::of)
    }

    /// Takes over a listening socket of the standard library. Its file is not removed.
    ///
    /// # Errors
    /// `InvalidInput` if it does not listen.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        let socket = ListenSocket::adopt(listener.into()).map_err(crate::errors::listen_error)?;
        Listener::on(socket, ListenerOptions::default()).map(Self::of)
    }

    /// The next connection, and the address of its peer. Cancel safe: dropped, it loses no connection.
    ///
    /// # Errors
    /// As [`TcpListener::accept`](crate::TcpListener::accept).
    pub async fn accept(&self) -> io::Result<(UnixStream, Address)> {
        let (link, peer) = self.listener.accept().await?;
        Ok((UnixStream::of(link), peer))
    }

    /// As [`accept`](Self::accept), for who polls.
    ///
    /// # Errors
    /// As `accept`.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, Address)>> {
        self.listener
            .poll_accept(cx)
            .map_ok(|(link, peer)| (UnixStream::of(link), peer))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.listener.address().clone())
    }

    /// The connections, as a stream that ends when the listener has, behind the error that says so.
    #[must_use]
    pub fn incoming(self) -> UnixIncoming {
        UnixIncoming {
            accepted: self.listener.incoming(),
        }
    }

    pub(crate) fn of(listener: Listener) -> Self {
        Self { listener }
    }
}

/// As [`UnixListener::from_std`].
impl TryFrom<std::os::unix::net::UnixListener> for UnixListener {
    type Error = io::Error;

    fn try_from(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        Self::from_std(listener)
    }
}

/// The connections of a listener, one after the other ([`UnixListener::incoming`]).
#[derive(Debug)]
pub struct UnixIncoming {
    accepted: Accepted,
}

impl futures_core::Stream for UnixIncoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.accepted.poll_next(cx));
        Poll::Ready(next.map(|result| result.map(UnixStream::of)))
    }
}
