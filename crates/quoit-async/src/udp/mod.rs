//! UDP.

mod options;
mod receive;
mod send;

#[cfg(feature = "tokio")]
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use quoit::{DatagramOptions, DatagramSocket, Errno, Token};
#[cfg(feature = "tokio")]
use tokio::io::{Interest, Ready};

#[cfg(feature = "tokio")]
use crate::budget::within_budget;
use crate::closing;
use crate::driver::Driver;
use crate::lock::lock;
use crate::lookup::{ToSocketAddrs, look_up};
#[cfg(feature = "tokio")]
use crate::port::Waiting;
use crate::port::{Port, peer_of};

/// A UDP socket, in place of `tokio::net::UdpSocket`. It may be used from any task and thread, by several at once.
///
/// What the kernel has received for it lies in slots of its own ([`DatagramOptions::slots`]) until it is read; while all are
/// full, the kernel keeps what its buffer holds and drops the rest, as ever.
#[derive(Debug)]
pub struct UdpSocket {
    port: Arc<Port>,
    names: Mutex<Names>,
}

#[derive(Clone, Copy, Debug)]
struct Names {
    local: SocketAddr,
    peer: Option<SocketAddr>,
}

impl UdpSocket {
    #[cfg(any(feature = "quinn", quoit_simulated))]
    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// A socket that is bound to the first of the target's addresses that can be. Port 0: one that the kernel chooses. One that a
    /// socket has which was dropped is waited for.
    ///
    /// # Errors
    /// Of the last address: `AddrInUse`, `PermissionDenied` and the like, with the address and what to do.
    pub async fn bind(target: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with(target, DatagramOptions::default()).await
    }

    /// As [`bind`](Self::bind), with options: buffers, joined datagrams (GRO), congestion notification, multicast.
    ///
    /// # Errors
    /// As `bind`; what is wrong with the options.
    pub async fn bind_with(target: impl ToSocketAddrs, options: DatagramOptions) -> io::Result<Self> {
        let mut last = None;
        for address in look_up(target.target()).await? {
            let bound = closing::datagrams(address.port(), || {
                Self::open(DatagramSocket::bind(&address.into(), &options))
            });
            match bound.await {
                Ok(socket) => return Ok(socket),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a target has an address"))
    }

    /// Takes over a socket of the standard library.
    ///
    /// # Errors
    /// What the kernel says of it; a loop that is gone.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        Self::from_std_with(socket, DatagramOptions::default())
    }

    /// As [`from_std`](Self::from_std), with options. Those that only binding can set are ignored.
    ///
    /// # Errors
    /// As `from_std`; what is wrong with the options.
    pub fn from_std_with(socket: std::net::UdpSocket, options: DatagramOptions) -> io::Result<Self> {
        Self::open(DatagramSocket::adopt(socket.into(), &options))
    }

    pub(crate) fn open(socket: Result<DatagramSocket, quoit::DatagramSocketError>) -> io::Result<Self> {
        let socket = socket.map_err(socket_error)?;
        let names = Names {
            local: peer_of(socket.address()),
            peer: socket.peer().map(peer_of),
        };
        let home = crate::loops::home()?;
        let port = Port::new(Arc::clone(&home));
        let opened = Arc::clone(&port);
        crate::ask::ask(&home, move |driver| open_on(driver, socket, &opened))??;
        Ok(Self {
            port,
            names: Mutex::new(names),
        })
    }

    /// Sends to, and receives from, this peer only, whose unreachability is an error of a later call. What was received before
    /// stays to be read.
    ///
    /// # Errors
    /// Of the last address: what `connect(2)` failed with.
    pub async fn connect(&self, target: impl ToSocketAddrs) -> io::Result<()> {
        let mut last = None;
        for address in look_up(target.target()).await? {
            match self.connect_to(address) {
                Ok(names) => {
                    *lock(&self.names) = names;
                    return Ok(());
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a target has an address"))
    }

    /// Connects the socket as it is, so that nothing of what it has received is lost. The loop goes on to send by addresses,
    /// which comes to the same.
    fn connect_to(&self, address: SocketAddr) -> io::Result<Names> {
        self.with_socket(move |socket| {
            socket.connect(&address.into())?;
            // Of a socket that was bound to every address, the kernel has chosen one.
            let local = socket.local_addr()?.as_socket();
            Ok(Names {
                local: local.ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?,
                peer: Some(address),
            })
        })
    }

    /// The address that it is bound to, with the port that the kernel chose.
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(lock(&self.names).local)
    }

    /// The peer that it is connected to.
    ///
    /// # Errors
    /// `NotConnected` if it is not.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.peer().ok_or_else(|| Errno::ENOTCONN.into())
    }

    fn peer(&self) -> Option<SocketAddr> {
        lock(&self.names).peer
    }

    /// Waits until a receive or a send would not wait, or the network has told of an error, as `interest` asks for. What it returns
    /// says which of them. Cancel safe.
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    #[cfg(feature = "tokio")]
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let [mut reads, mut writes] = [false, true].map(|sends| Waiting {
            port: &self.port,
            sends,
            key: None,
        });
        poll_fn(|cx| {
            within_budget(cx, |cx| {
                self.port
                    .poll_ready(cx, interest, &mut reads.key, &mut writes.key)
                    .map(Ok)
            })
        })
        .await
    }

    /// What the network has told of an earlier datagram and nobody was told of (`SO_ERROR`).
    ///
    /// # Errors
    /// As [`with_socket`](Self::with_socket).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self.port.take_error() {
            Some(errno) => Ok(Some(errno.into())),
            None => self.with_socket(|socket| socket.take_error()),
        }
    }

    /// Has `f` called with the socket on the loop's thread, and waits for it, as
    /// [`TcpStream::with_socket`](crate::TcpStream::with_socket).
    ///
    /// # Errors
    /// Those of `f`; `NotConnected` once the socket is gone; `Deadlock` as there.
    pub fn with_socket<R: Send + 'static>(
        &self,
        f: impl FnOnce(socket2::SockRef<'_>) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let port = Arc::clone(&self.port);
        crate::ask::ask_of_program(self.port.home(), move |driver| {
            let id = port.id()?;
            let descriptor = driver
                .event_loop
                .datagram_descriptor(id)
                .ok_or_else(|| io::Error::from(Errno::ENOTCONN))?;
            f(socket2::SockRef::from(&descriptor))
        })
    }
}

/// As [`UdpSocket::from_std`].
impl TryFrom<std::net::UdpSocket> for UdpSocket {
    type Error = io::Error;

    fn try_from(socket: std::net::UdpSocket) -> io::Result<Self> {
        Self::from_std(socket)
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.port.drop_socket(lock(&self.names).local.port());
    }
}

fn socket_error(error: quoit::DatagramSocketError) -> io::Error {
    let kind = match &error {
        quoit::DatagramSocketError::System { errno, .. } => io::Error::from(*errno).kind(),
        quoit::DatagramSocketError::Limit => io::ErrorKind::QuotaExceeded,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

fn open_on(driver: &mut Driver, socket: DatagramSocket, port: &Arc<Port>) -> io::Result<()> {
    let id = driver
        .event_loop
        .open_datagram(socket, Token::NONE)
        .map_err(socket_error)?;
    port.begin(id);
    driver.add_port(id, Arc::clone(port));
    Ok(())
}
