//! Sending.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, ready};

use quoit::datagram::MAX_UDP_PAYLOAD;
use quoit::{DatagramSend, Errno, Payload, Token};

use super::UdpSocket;
use crate::budget::within_budget;
use crate::lock::lock;
use crate::lookup::{ToSocketAddrs, look_up};
use crate::port::Waiting;

/// What a datagram holds at most over IPv4: a packet's 65,535 bytes without the headers (RFC 768, RFC 791).
const MOST_V4: usize = 65_507;

impl UdpSocket {
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
        self.poll_sending(cx, bytes, Some(to))
    }

    /// As [`send`](Self::send), for who polls.
    ///
    /// # Errors
    /// As `send`.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_sending(cx, bytes, self.peer())
    }

    fn poll_sending(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        within_budget(cx, |cx| {
            loop {
                if let Ok(result) = self.port.try_send(self.copying(bytes, to)?) {
                    return Poll::Ready(result.map(|()| bytes.len()));
                }
                ready!(self.port.poll_writable(cx, None));
            }
        })
    }
}
