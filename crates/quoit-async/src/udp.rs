//! UDP.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use quoit::datagram::MAX_UDP_PAYLOAD;
use quoit::{DatagramOptions, DatagramSend, DatagramSocket, Datagrams, Errno, Payload, Token};

use crate::budget::within_budget;
use crate::closing;
use crate::driver::Driver;
use crate::lock::lock;
use crate::lookup::{ToSocketAddrs, look_up};
use crate::port::{Port, State, Waiting, peer_of, take_into};

/// What a datagram holds at most over IPv4: a packet's 65,535 bytes without the headers (RFC 768, RFC 791).
const MOST_V4: usize = 65_507;

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

    async fn recv_with<R>(&self, mut take: impl FnMut(&mut State) -> Option<R>) -> io::Result<R> {
        let mut waiting = Waiting {
            port: &self.port,
            sends: false,
            key: None,
        };
        poll_fn(|cx| {
            within_budget(cx, |cx| {
                self.port.poll_recv(cx, Some(&mut waiting.key), &mut take)
            })
        })
        .await
    }

    /// Waits for a datagram and copies it, with its sender. What does not fit is lost. Cancel safe.
    ///
    /// # Errors
    /// What the network has told of an earlier datagram: `ConnectionRefused` of a connected socket, once.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_with(take_into(buffer)).await
    }

    /// As [`recv_from`](Self::recv_from), without the sender.
    ///
    /// # Errors
    /// As `recv_from`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buffer).await.map(|(length, _)| length)
    }

    /// Waits for datagrams and returns them in the memory that they came in, joined ones together. Cancel safe.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn recv_datagrams(&self) -> io::Result<Datagrams> {
        self.recv_with(State::take_datagrams).await
    }

    /// As [`recv_from`](Self::recv_from), without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has come; as `recv_from`.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.port.try_recv(&mut take_into(buffer))
    }

    /// As [`recv`](Self::recv), without waiting.
    ///
    /// # Errors
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_recv_from(buffer).map(|(length, _)| length)
    }

    /// As [`recv_from`](Self::recv_from), for who polls.
    ///
    /// # Errors
    /// As `recv_from`.
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        within_budget(cx, |cx| self.port.poll_recv(cx, None, &mut take_into(buffer)))
    }

    /// As [`recv_datagrams`](Self::recv_datagrams), without waiting.
    ///
    /// # Errors
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_recv_datagrams(&self) -> io::Result<Datagrams> {
        self.port.try_recv(&mut State::take_datagrams)
    }

    /// As [`recv_datagrams`](Self::recv_datagrams), for who polls.
    ///
    /// # Errors
    /// As `recv_datagrams`.
    pub fn poll_recv_datagrams(&self, cx: &mut Context<'_>) -> Poll<io::Result<Datagrams>> {
        within_budget(cx, |cx| self.port.poll_recv(cx, None, &mut State::take_datagrams))
    }

    /// Waits until something has come. Cancel safe.
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    pub async fn readable(&self) -> io::Result<()> {
        self.recv_with(|state| state.is_readable().then_some(())).await
    }

    /// Waits until there is room to send. Cancel safe.
    ///
    /// # Errors
    /// None; a `Result` as tokio's is.
    pub async fn writable(&self) -> io::Result<()> {
        let mut waiting = Waiting {
            port: &self.port,
            sends: true,
            key: None,
        };
        poll_fn(|cx| within_budget(cx, |cx| self.port.poll_writable(cx, Some(&mut waiting.key)))).await;
        Ok(())
    }

    /// As [`writable`](Self::writable), for who polls.
    ///
    /// # Errors
    /// As `writable`.
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        within_budget(cx, |cx| self.port.poll_writable(cx, None).map(Ok))
    }

    fn peer(&self) -> Option<SocketAddr> {
        lock(&self.names).peer
    }

    /// Copies of `bytes` that are to be sent. What the kernel would refuse in any case is told here, and not by a later call.
    fn copying<'a>(&self, bytes: &'a [u8], to: Option<SocketAddr>) -> io::Result<DatagramSend<'a>> {
        let to = to.ok_or_else(|| io::Error::from_raw_os_error(libc::EDESTADDRREQ))?;
        let ipv6 = lock(&self.names).local.is_ipv6();
        if to.is_ipv6() && !ipv6 {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        if to.port() == 0 {
            return Err(Errno::EINVAL.into());
        }
        let most = match to.ip().to_canonical() {
            IpAddr::V4(_) => MOST_V4,
            IpAddr::V6(_) => MAX_UDP_PAYLOAD as usize,
        };
        if bytes.len() > most {
            return Err(Errno::EMSGSIZE.into());
        }
        Ok(DatagramSend::new(to.into(), Payload::Copy(bytes)))
    }

    /// Sends by `try_send` when there is room, of which that returns `None`.
    async fn send_with(&self, mut try_send: impl FnMut() -> Option<io::Result<()>>) -> io::Result<()> {
        let mut waiting = Waiting {
            port: &self.port,
            sends: true,
            key: None,
        };
        poll_fn(|cx| {
            within_budget(cx, |cx| {
                loop {
                    if let Some(result) = try_send() {
                        return Poll::Ready(result);
                    }
                    ready!(self.port.poll_writable(cx, Some(&mut waiting.key)));
                }
            })
        })
        .await
    }

    async fn send_when_room(&self, bytes: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        self.send_with(|| match self.copying(bytes, to) {
            Ok(datagram) => self.port.try_send(datagram).ok(),
            Err(error) => Some(Err(error)),
        })
        .await
        .map(|()| bytes.len())
    }

    /// Sends a datagram to the first of the target's addresses. Cancel safe: dropped, it has sent nothing.
    ///
    /// # Errors
    /// What makes it impossible (`EMSGSIZE` and the like); what the network has told of an earlier one, or the kernel when it
    /// could not send that: then this one is not sent.
    pub async fn send_to(&self, bytes: &[u8], target: impl ToSocketAddrs) -> io::Result<usize> {
        let addresses = look_up(target.target()).await?;
        self.send_when_room(bytes, Some(addresses[0])).await
    }

    /// Sends a datagram to the peer that it is connected to. Cancel safe.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to); `EDESTADDRREQ` if it is not connected.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send_when_room(bytes, self.peer()).await
    }

    /// Sends what [`DatagramSend`] can say: lent memory, segments (GSO), a source address, congestion notification. Waits for
    /// room.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub async fn send_datagram(&self, datagram: DatagramSend<'static>) -> io::Result<()> {
        let mut datagram = Some(DatagramSend {
            token: Token::NONE,
            to: datagram.to.or_else(|| self.peer().map(Into::into)),
            ..datagram
        });
        self.send_with(|| {
            let sent = self.port.try_send(datagram.take()?);
            sent.map_err(|back| datagram = Some(back)).ok()
        })
        .await
    }

    /// As [`send_datagram`](Self::send_datagram), without waiting. Its bytes may be borrowed.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room, and what was lent is given up; as `send_datagram`.
    pub fn try_send_datagram(&self, datagram: DatagramSend<'_>) -> io::Result<()> {
        let datagram = DatagramSend {
            token: Token::NONE,
            to: datagram.to.or_else(|| self.peer().map(Into::into)),
            ..datagram
        };
        self.port
            .try_send(datagram)
            .unwrap_or_else(|_| Err(io::ErrorKind::WouldBlock.into()))
    }

    /// As [`send_to`](Self::send_to) one address, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; as `send_to`.
    pub fn try_send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.try_send_datagram(self.copying(bytes, Some(to))?)
            .map(|()| bytes.len())
    }

    /// As [`send`](Self::send), without waiting.
    ///
    /// # Errors
    /// As [`try_send_to`](Self::try_send_to).
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_send_datagram(self.copying(bytes, self.peer())?)
            .map(|()| bytes.len())
    }

    /// As [`send_to`](Self::send_to) one address, for who polls.
    ///
    /// # Errors
    /// As `send_to`.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        within_budget(cx, |cx| {
            loop {
                if let Ok(result) = self.port.try_send(self.copying(bytes, Some(to))?) {
                    return Poll::Ready(result.map(|()| bytes.len()));
                }
                ready!(self.port.poll_writable(cx, None));
            }
        })
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
