//! Reading, in each way that there is, and what must be true of what is read.

use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use quoit::Lease;
use quoit_async_sim::{OwnedReadHalf, OwnedUnixReadHalf, TcpStream, UnixStream};
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::pattern;
use quoit_sim_kernel::random::Random;
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use super::shared::{Awaited, Kept, Patience, Shared};

/// What can be read from: a stream, or its half.
pub(super) trait ReadEnd: AsyncRead + AsyncBufRead + Unpin {
    fn peek(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>>;
    fn recv(&mut self) -> impl Future<Output = io::Result<Option<Lease>>>;
    fn readable(&self) -> impl Future<Output = io::Result<()>>;
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
}

macro_rules! read_end {
    ($type:ident, |$own:ident, $buffers:ident| $vectored:expr) => {
        impl ReadEnd for $type {
            async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                $type::peek(self, buffer).await
            }

            async fn recv(&mut self) -> io::Result<Option<Lease>> {
                $type::recv(self).await
            }

            async fn readable(&self) -> io::Result<()> {
                $type::readable(self).await
            }

            fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                $type::try_read(self, buffer)
            }

            fn try_read_vectored(&self, $buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                let $own = self;
                $vectored
            }
        }
    };
}

read_end!(TcpStream, |own, buffers| own.try_read_vectored(buffers));
read_end!(UnixStream, |own, buffers| own.try_read_vectored(buffers));
// A half has no such call: one buffer is as good.
read_end!(OwnedReadHalf, |own, buffers| own.try_read(&mut buffers[0]));
read_end!(OwnedUnixReadHalf, |own, buffers| own.try_read(&mut buffers[0]));

/// One direction of a connection: what was read of it.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) peer: usize,
    pub(super) offset: u64,
    /// There is nothing more, as the end was seen or the connection has failed.
    pub(super) ended: bool,
}

impl Reading {
    pub(super) fn new(peer: usize) -> Self {
        Self {
            peer,
            offset: 0,
            ended: false,
        }
    }

    pub(super) fn awaited(&self) -> Awaited {
        Awaited::Bytes {
            peer: self.peer,
            offset: self.offset,
        }
    }

    fn check(&self, bytes: &[u8]) {
        let (peer, offset) = (self.peer, self.offset);
        if let Some(at) = pattern::first_difference(peer as u64, offset, bytes) {
            panic!(
                "of peer {peer} a wrong byte was read at offset {at}, in {} bytes from {offset}",
                bytes.len()
            );
        }
    }

    /// Bytes have been read.
    fn take(&mut self, shared: &Shared, bytes: &[u8]) {
        self.check(bytes);
        self.offset += bytes.len() as u64;
        with(|kernel| kernel.note(|| format!("task: {} bytes of peer {} are read", bytes.len(), self.peer)));
        shared.progress();
    }

    /// The end has been read: it must be behind all that the peer has sent.
    fn end(&mut self, shared: &Shared) {
        self.ended = true;
        with(|kernel| kernel.note(|| format!("task: the end of peer {} is read", self.peer)));
        let (sent, ended) = with(|kernel| {
            let peer = &kernel.peers[self.peer];
            (peer.sent, peer.ended)
        });
        assert!(
            shared.may_fail(self.peer) || (sent == self.offset && ended),
            "the end of peer {} was read behind {} bytes, of {sent} that it sent{}",
            self.peer,
            self.offset,
            if ended { "" } else { " and did not end" }
        );
    }

    /// What a read came to.
    pub(super) fn came(&mut self, shared: &Shared, result: io::Result<&[u8]>) {
        match result {
            Ok([]) => self.end(shared),
            Ok(bytes) => self.take(shared, bytes),
            Err(error) => {
                self.ended = true;
                shared.check_failure(self.peer, "a read", &error);
            }
        }
    }
}

/// Reads by the trait of tokio.
pub(super) fn poll_read<R: AsyncRead + Unpin>(
    end: &mut R,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    ready!(Pin::new(end).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Reads once, in some way, for as long as `patience` lasts.
pub(super) async fn read_some<R: ReadEnd>(
    end: &mut R,
    reading: &mut Reading,
    shared: &Rc<Shared>,
    random: &mut Random,
    (gulp, keeps): (u64, u32),
    patience: Patience,
) {
    let mut buffer = vec![0; random.magnitude(gulp) as usize];
    let awaited = reading.awaited();
    match random.below(7) {
        0 => {
            let Some(peeked) = shared.wait(patience, awaited, end.peek(&mut buffer)).await else {
                return;
            };
            match peeked {
                Ok(count) if count > 0 => {
                    reading.check(&buffer[..count]);
                    // They are still there, and do not have to be waited for.
                    let again = shared.wait(
                        Patience::None,
                        awaited,
                        poll_fn(|cx| poll_read(end, cx, &mut buffer)),
                    );
                    let again = again.await.expect("what was peeked at is there");
                    reading.came(shared, again.map(|count| &buffer[..count]));
                }
                other => reading.came(shared, other.map(|_| &[][..])),
            }
        }
        1 => {
            let Some(received) = shared.wait(patience, awaited, end.recv()).await else {
                return;
            };
            match received {
                Ok(Some(data)) => {
                    assert!(!data.is_empty(), "a lease without bytes");
                    let offset = reading.offset;
                    reading.came(shared, Ok(&data));
                    if random.chance(keeps) && !shared.stop.get() {
                        shared.keep(Kept {
                            peer: reading.peer,
                            offset,
                            data,
                        });
                    }
                }
                Ok(None) => reading.came(shared, Ok(&[])),
                Err(error) => reading.came(shared, Err(error)),
            }
        }
        2 => {
            let mut most = buffer.len();
            let filling = poll_fn(|cx| {
                let filled = ready!(Pin::new(&mut *end).poll_fill_buf(cx))?;
                most = most.min(filled.len());
                buffer[..most].copy_from_slice(&filled[..most]);
                Poll::Ready(Ok(most))
            });
            let Some(filled) = shared.wait(patience, awaited, filling).await else {
                return;
            };
            if let Ok(count) = filled {
                Pin::new(&mut *end).consume(count);
            }
            reading.came(shared, filled.map(|count| &buffer[..count]));
        }
        3 | 4 => {
            let Some(ready) = shared.wait(patience, awaited, end.readable()).await else {
                return;
            };
            ready.expect("waiting fails never");
            let (first, second) = buffer.split_at_mut(1);
            let read = if random.chance(512) {
                end.try_read(first)
            } else {
                end.try_read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)])
            };
            if let Err(error) = &read {
                assert_ne!(
                    error.kind(),
                    io::ErrorKind::WouldBlock,
                    "a stream that is readable has nothing to read, and nobody else reads"
                );
            }
            reading.came(shared, read.map(|count| &buffer[..count]));
        }
        _ => {
            let read = poll_fn(|cx| poll_read(end, cx, &mut buffer));
            let Some(read) = shared.wait(patience, awaited, read).await else {
                return;
            };
            reading.came(shared, read.map(|count| &buffer[..count]));
        }
    }
}
