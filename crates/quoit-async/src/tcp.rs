//! TCP.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quoit::{Address, ListenSocket, ListenerOptions};

use crate::closing;
use crate::connect;
use crate::listener::{Accepted, Listener};
use crate::lookup::{ToSocketAddrs, look_up};
use crate::stream_type::stream_type;

stream_type! {
    /// A TCP connection, in place of `tokio::net::TcpStream`. It may be used from any task and thread, and outlive its loop,
    /// whose end is an error then.
    ///
    /// Dropping it closes the connection: what was written is still sent. With something received that nobody has read the peer
    /// sees a reset, as of a kernel's socket.
    TcpStream, halves ReadHalf, WriteHalf, OwnedReadHalf, OwnedWriteHalf, ReuniteError,
    addresses SocketAddr, by inet
}

fn inet(address: &Address) -> io::Result<SocketAddr> {
    match address {
        Address::Tcp(address) => Ok(*address),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

impl TcpStream {
    /// Connects to the first of the target's addresses that takes the connection: the next one is tried when one fails, or has
    /// taken a quarter of a second (RFC 8305). On this thread's loop, or one of the program's ([`Loops`](crate::Loops)).
    ///
    /// # Errors
    /// Of the first address: `ConnectionRefused`, `TimedOut` after [`Config::connect_timeout`](quoit::Config::connect_timeout)
    /// and the like; what looking up the name failed with.
    pub async fn connect(target: impl ToSocketAddrs) -> io::Result<Self> {
        let addresses = look_up(target.target()).await?;
        connect::connect_first(&crate::loops::home()?, addresses)
            .await
            .map(Self::of)
    }

    /// As [`TcpStream::connect`], at most for so long.
    ///
    /// # Errors
    /// `TimedOut`, or as `connect`; `QuotaExceeded` if the loop has no timer left ([`Config::timers`](quoit::Config::timers)).
    pub async fn connect_timeout(target: impl ToSocketAddrs, limit: Duration) -> io::Result<Self> {
        // Drawn once for the limit and the connection: where loops take turns, each of them gets both.
        let home = crate::loops::home()?;
        let connecting = async {
            let addresses = look_up(target.target()).await?;
            connect::connect_first(&home, addresses).await
        };
        connect::within(&home, limit, connecting).await.map(Self::of)
    }

    /// Takes over a connected socket of the standard library.
    ///
    /// # Errors
    /// What the kernel says of it; a loop that is gone.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        connect::attach(OwnedFd::from(stream)).map(Self::of)
    }

    /// Whether small segments leave at once (`TCP_NODELAY`). Unlike tokio's they do from the start: what is written in a turn
    /// leaves together anyway.
    ///
    /// # Errors
    /// `NotConnected` once the connection is gone.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.with_socket(|socket| socket.tcp_nodelay())
    }

    /// Sets `TCP_NODELAY`.
    ///
    /// # Errors
    /// As [`nodelay`](Self::nodelay).
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_tcp_nodelay(nodelay))
    }

    /// Whether acknowledgements leave at once (`TCP_QUICKACK`, `tcp(7)`). The kernel changes it by itself.
    ///
    /// # Errors
    /// As [`nodelay`](Self::nodelay).
    pub fn quickack(&self) -> io::Result<bool> {
        self.with_socket(|socket| socket.tcp_quickack())
    }

    /// Sets `TCP_QUICKACK`, for a while.
    ///
    /// # Errors
    /// As [`nodelay`](Self::nodelay).
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_tcp_quickack(quickack))
    }

    /// The time to live of what is sent (`IP_TTL`).
    ///
    /// # Errors
    /// As [`nodelay`](Self::nodelay).
    pub fn ttl(&self) -> io::Result<u32> {
        self.with_socket(|socket| socket.ttl_v4())
    }

    /// Sets `IP_TTL`.
    ///
    /// # Errors
    /// As [`nodelay`](Self::nodelay).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.with_socket(move |socket| socket.set_ttl_v4(ttl))
    }

    /// Has the connection reset, instead of closed, when it is dropped, once the kernel has what was written.
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.stream.link().reset_on_drop();
        Ok(())
    }

    /// The error of the socket that nobody was told of (`SO_ERROR`).
    ///
    /// # Errors
    /// As [`nodelay`](Self::nodelay).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.with_socket(|socket| socket.take_error())
    }
}

/// As [`TcpStream::from_std`].
impl TryFrom<std::net::TcpStream> for TcpStream {
    type Error = io::Error;

    fn try_from(stream: std::net::TcpStream) -> io::Result<Self> {
        Self::from_std(stream)
    }
}

/// Accepts TCP connections, in place of `tokio::net::TcpListener`.
///
/// One that is bound on the thread of a loop ([`serve`](crate::serve())) accepts for that loop; one that is bound elsewhere
/// spreads what it accepts among the loops of the program ([`Loops`](crate::Loops)). At most 128 connections wait to be
/// accepted in the process, the others in the kernel's backlog.
#[derive(Debug)]
pub struct TcpListener {
    pub(crate) listener: Listener,
}

impl TcpListener {
    /// Listens on the first of the target's addresses that can be bound. Port 0: one that the kernel chooses. One that a listener
    /// has which was dropped is waited for.
    ///
    /// # Errors
    /// Of the last address: `AddrInUse`, `PermissionDenied` and the like, with the address and what to do; what looking up the
    /// name failed with.
    pub async fn bind(target: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = None;
        for address in look_up(target.target()).await? {
            let bound = closing::listener(address.port(), || {
                Listener::bind(&address.into(), ListenerOptions::default())
            });
            match bound.await {
                Ok(listener) => return Ok(Self { listener }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a target has an address"))
    }

    /// Takes over a listening socket of the standard library, or one that a service manager has handed down.
    ///
    /// # Errors
    /// `InvalidInput` if it does not listen.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Self::from_fd(listener.into())
    }

    /// The same for a descriptor.
    ///
    /// # Errors
    /// As [`from_std`](Self::from_std).
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = ListenSocket::adopt(descriptor).map_err(crate::errors::listen_error)?;
        inet(socket.address())?;
        Listener::on(socket, ListenerOptions::default()).map(|listener| Self { listener })
    }

    /// The next connection, and the address of its peer. Cancel safe: dropped, it loses no connection.
    ///
    /// # Errors
    /// For want of descriptors or memory (`EMFILE` and the like), after which accepting goes on by itself; the listener has
    /// ended.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (link, peer) = self.listener.accept().await?;
        Ok((TcpStream::of(link), inet(&peer)?))
    }

    /// As [`accept`](Self::accept), for who polls.
    ///
    /// # Errors
    /// As `accept`.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.listener
            .poll_accept(cx)
            .map(|result| result.and_then(|(link, peer)| Ok((TcpStream::of(link), inet(&peer)?))))
    }

    /// Where it listens, with the port that the kernel chose.
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(self.listener.address())
    }

    /// The connections, as a stream that ends when the listener has, behind the error that says so.
    #[must_use]
    pub fn incoming(self) -> Incoming {
        Incoming {
            accepted: self.listener.incoming(),
        }
    }

    pub(crate) fn of(listener: Listener) -> Self {
        Self { listener }
    }
}

/// As [`TcpListener::from_std`].
impl TryFrom<std::net::TcpListener> for TcpListener {
    type Error = io::Error;

    fn try_from(listener: std::net::TcpListener) -> io::Result<Self> {
        Self::from_std(listener)
    }
}

/// The connections of a listener, one after the other ([`TcpListener::incoming`]).
#[derive(Debug)]
pub struct Incoming {
    accepted: Accepted,
}

impl futures_core::Stream for Incoming {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.accepted.poll_next(cx));
        Poll::Ready(next.map(|result| result.map(TcpStream::of)))
    }
}
