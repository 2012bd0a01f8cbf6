//! The streams that hyper has, and plain sockets as their peers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::net::{ours, stock};
use crate::support::told;

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// A stream of either kind, which tells what hyper has done with it.
pub(crate) struct Io {
    stream: Pin<Box<dyn Stream>>,
    used: Used,
}

#[derive(Debug, Default)]
struct Counts {
    read: usize,
    writes: usize,
}

/// What hyper has read and written so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used(Arc<watch::Sender<Counts>>);

impl Used {
    /// Waits until hyper has read so many bytes.
    pub(crate) async fn read(&self, bytes: usize) {
        let mut counts = self.0.subscribe();
        counts.wait_for(|counts| counts.read >= bytes).await.unwrap();
    }

    /// How often it has written.
    pub(crate) fn writes(&self) -> usize {
        self.0.borrow().writes
    }
}

impl Io {
    fn new(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::pin(stream),
            used: Used::default(),
        }
    }

    fn stock(stream: TcpStream) -> Self {
        Self::new(TokioIo::new(at_once(stream)))
    }

    pub(crate) fn used(&self) -> Used {
        self.used.clone()
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(_)) = written {
            self.used.0.send_modify(|counts| counts.writes += 1);
        }
        written
    }
}

impl Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut space = vec![0; buffer.remaining()];
        let mut space = ReadBuf::new(&mut space);
        ready!(self.stream.as_mut().poll_read(cx, space.unfilled()))?;
        buffer.put_slice(space.filled());
        self.used
            .0
            .send_modify(|counts| counts.read += space.filled().len());
        Poll::Ready(Ok(()))
    }
}

impl Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream.as_mut().poll_write(cx, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.as_mut().poll_write_vectored(cx, pieces);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}

/// Whose sockets hyper has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Net {
    Stock,
    Ours,
}

impl Net {
    /// What a server has accepted, and its client.
    pub(crate) async fn accepted(self) -> (Io, Peer) {
        match self {
            Self::Stock => {
                let (listener, address) = stock::listen().await;
                let (peer, io) = tokio::join!(TcpStream::connect(address), listener.accept());
                (Io::stock(io.unwrap().0), Peer::new(peer))
            }
            Self::Ours => {
                let (listener, address) = ours::listen().await;
                let (peer, io) = tokio::join!(TcpStream::connect(address), listener.accept());
                (Io::new(io.unwrap().0), Peer::new(peer))
            }
        }
    }

    /// What a client has connected, and its server.
    pub(crate) async fn connected(self) -> (Io, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = async { listener.accept().await.map(|(stream, _)| stream) };
        match self {
            Self::Stock => {
                let (io, peer) = tokio::join!(TcpStream::connect(address), accepting);
                (Io::stock(io.unwrap()), Peer::new(peer))
            }
            Self::Ours => {
                let (io, peer) = tokio::join!(ours::TcpStream::connect(address), accepting);
                (Io::new(io.unwrap()), Peer::new(peer))
            }
        }
    }

    /// Both ends of a connection: of the client, and of the server.
    pub(crate) async fn pair(self) -> (Io, Io) {
        match self {
            Self::Stock => {
                let (client, server) = stock::pair().await;
                (Io::stock(client), Io::stock(server))
            }
            Self::Ours => {
                let (client, server) = ours::pair().await;
                (Io::new(client), Io::new(server))
            }
        }
    }
}

/// What is written leaves at once, as from ours: scenarios of small frames would take long.
fn at_once(stream: TcpStream) -> TcpStream {
    stream.set_nodelay(true).unwrap();
    stream
}

/// A plain socket at the other side.
pub(crate) struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Peer {
    fn new(stream: io::Result<TcpStream>) -> Self {
        Self {
            stream: at_once(stream.unwrap()),
            received: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// What comes up to and with `end`.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            let found = self
                .received
                .windows(end.len())
                .position(|part| part == end.as_bytes());
            if let Some(at) = found {
                return text(&self.received.drain(..at + end.len()).collect::<Vec<_>>());
            }
            let count = self.stream.read_buf(&mut self.received).await.unwrap();
            assert_ne!(count, 0, "{end:?} does not come: {}", text(&self.received));
        }
    }

    /// The next bytes.
    pub(crate) async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            let read = self.stream.read_buf(&mut self.received).await.unwrap();
            assert_ne!(read, 0, "no {count} bytes come: {:?}", self.received);
        }
        self.received.drain(..count).collect()
    }

    /// What comes until the end, and which end that is.
    pub(crate) async fn rest(mut self) -> String {
        let result = self.stream.read_to_end(&mut self.received).await;
        format!("{} then {}", text(&self.received), told(&result.map(drop)))
    }

    /// Says that no more comes.
    pub(crate) async fn end(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    /// Resets the connection, or closes it.
    pub(crate) fn leave(self, resets: bool) {
        if resets {
            self.reset();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
