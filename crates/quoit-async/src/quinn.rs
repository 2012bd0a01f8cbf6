//! quinn's sockets and runtime: QUIC on the datagrams of the loops.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket as StdUdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPoller};
use quoit::{DatagramOptions, DatagramSend, Datagrams, Ecn, Gro, Payload};
use tokio::time::{Sleep, sleep_until};

use crate::UdpSocket;
use crate::path_mtu;
use crate::port::{Port, State, peer_of};
use crate::waiters::WaiterKey;

/// Datagrams that one send may be cut into, and one receive be joined of (`UDP_MAX_SEGMENTS` of the kernel; quinn itself sends
/// fewer).
const SEGMENTS: usize = 64;

/// Runs quinn's endpoints on the loops: their tasks and timers are tokio's, their sockets [`UdpSocket`]s.
///
/// ```
/// # fn endpoint(config: quinn::ServerConfig) -> std::io::Result<quinn::Endpoint> {
/// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
/// let endpoint = quinn::Endpoint::new(
///     quinn::EndpointConfig::default(),
///     Some(config),
///     socket,
///     std::sync::Arc::new(quoit_async::QuinnRuntime), // was: quinn::TokioRuntime
/// )?;
/// # Ok(endpoint)
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct QuinnRuntime;

impl Runtime for QuinnRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(Box::pin(sleep_until(at.into()))))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(future);
    }

    fn wrap_udp_socket(&self, socket: StdUdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(QuinnSocket::new(socket)?))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// tokio's timer, which quinn implements its trait for only with features that bring its own sockets.
#[derive(Debug)]
struct Timer(Pin<Box<Sleep>>);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        self.0.as_mut().reset(at.into());
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Future::poll(self.0.as_mut(), cx)
    }
}

/// The socket of an endpoint: for `quinn::Endpoint::new_with_abstract_socket`, where [`QuinnRuntime`] is not to make it.
///
/// It sends segments with one call (GSO), takes joined datagrams as they come (GRO), and tells congestion notifications and the
/// address that a datagram was sent to. What the network tells of lost datagrams is ignored, as QUIC sends again anyway.
#[derive(Debug)]
pub struct QuinnSocket {
    socket: UdpSocket,
    may_fragment: bool,
}

impl QuinnSocket {
    /// Takes over a bound socket of the standard library.
    ///
    /// # Errors
    /// As [`UdpSocket::from_std`].
    pub fn new(socket: StdUdpSocket) -> io::Result<Self> {
        let v6 = socket.local_addr()?.is_ipv6();
        // Where the kernel knows no probing, quinn keeps to what fits everywhere.
        let may_fragment = path_mtu::probe(&socket, v6).is_err();
        let options = DatagramOptions {
            gro: Gro::Raw,
            receive_ecn: true,
            receive_local_address: true,
            ..DatagramOptions::default()
        };
        let socket = UdpSocket::from_std_with(socket, options)?;
        socket.port().ignore_errors();
        Ok(Self { socket, may_fragment })
    }
}

impl AsyncUdpSocket for QuinnSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller {
            port: Arc::clone(self.socket.port()),
            key: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let segment_size = transmit
            .segment_size
            .filter(|&size| size < transmit.contents.len());
        let datagram = DatagramSend {
            segment_size: segment_size.and_then(|size| u16::try_from(size).ok()),
            source: transmit.src_ip,
            ecn: transmit.ecn.map(|ecn| Ecn::from_bits(ecn as u8)),
            ..DatagramSend::new(transmit.destination.into(), Payload::Copy(transmit.contents))
        };
        match self.socket.try_send_datagram(datagram) {
            // What cannot be sent is as good as lost: an error would end the connection, and the peer may be elsewhere soon.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock && self.socket.port().is_open() => Ok(()),
            result => result,
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut take = |state: &mut State| {
            let mut count = 0;
            for (buffer, meta) in buffers.iter_mut().zip(metas.iter_mut()) {
                let Some(datagrams) = state.take_datagrams() else {
                    break;
                };
                *meta = hand_over(&datagrams, buffer);
                count += 1;
            }
            (count > 0).then_some(count)
        };
        self.socket.port().poll_recv(cx, None, &mut take)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        SEGMENTS
    }

    fn max_receive_segments(&self) -> usize {
        SEGMENTS
    }

    fn may_fragment(&self) -> bool {
        self.may_fragment
    }
}

/// Copies datagrams to a buffer, which quinn makes large enough for as many segments as were promised.
fn hand_over(datagrams: &Datagrams, buffer: &mut [u8]) -> RecvMeta {
    let whole = datagrams.whole();
    let stride = whole.segment_size().map_or(whole.len(), usize::from);
    let length = whole.len().min(buffer.len());
    buffer[..length].copy_from_slice(&whole[..length]);
    RecvMeta {
        addr: peer_of(&whole.peer()),
        len: length,
        stride,
        ecn: whole.ecn().and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
        dst_ip: whole.local_address(),
    }
}

/// Waits for room to send, for one of the connections of an endpoint.
#[derive(Debug)]
struct Poller {
    port: Arc<Port>,
    key: Option<WaiterKey>,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.port.poll_writable(cx, Some(&mut this.key)));
        Poll::Ready(Ok(()))
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.port.forget_sender(key);
        }
    }
}
