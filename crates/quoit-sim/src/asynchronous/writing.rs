//! Writing, in each way that there is: what was taken is what the peer must be given.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use quoit::Lease;
use quoit_async_sim::{Memory, OwnedUnixWriteHalf, OwnedWriteHalf, TcpStream, UnixStream};
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::pattern;
use quoit_sim_kernel::random::Random;
use tokio::io::AsyncWrite;

use super::shared::{Awaited, Patience, Shared};

/// What can be written to: a stream, or its half.
pub(super) trait WriteEnd: AsyncWrite + Unpin {
    fn send(&self, memory: Memory) -> impl Future<Output = io::Result<()>>;
    fn writable(&self) -> impl Future<Output = io::Result<()>>;
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
    fn flushed(&self) -> impl Future<Output = io::Result<()>>;
}

macro_rules! write_end {
    ($type:ident) => {
        impl WriteEnd for $type {
            async fn send(&self, memory: Memory) -> io::Result<()> {
                $type::send(self, memory).await
            }

            async fn writable(&self) -> io::Result<()> {
                $type::writable(self).await
            }

            fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                $type::try_write(self, bytes)
            }

            async fn flushed(&self) -> io::Result<()> {
                $type::flushed(self).await
            }
        }
    };
}

write_end!(TcpStream);
write_end!(OwnedWriteHalf);
write_end!(UnixStream);
write_end!(OwnedUnixWriteHalf);

/// One direction of a connection: what was written to it.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) peer: usize,
    written: u64,
    /// Nothing more can be written, as it was ended or the connection has failed.
    pub(super) ended: bool,
    pub(super) shut: bool,
}

impl Writing {
    pub(super) fn new(peer: usize) -> Self {
        Self {
            peer,
            written: 0,
            ended: false,
            shut: false,
        }
    }

    pub(super) fn awaited(&self) -> Awaited {
        Awaited::Room { peer: self.peer }
    }

    /// The next bytes of this direction.
    pub(super) fn next(&self, length: u64) -> &'static [u8] {
        pattern::bytes(self.peer as u64 + 1000, self.written, length as usize)
    }

    /// Offers `bytes`: while `write` is at it they may reach the peer, and of them what it says was taken.
    pub(super) fn offer(
        &mut self,
        bytes: &[u8],
        write: impl FnOnce() -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let before = with(|kernel| {
            let expected = &mut kernel.peers[self.peer].expected;
            expected.extend_from_slice(bytes);
            expected.len() - bytes.len()
        });
        let result = write();
        let taken = match &result {
            Poll::Ready(Ok(taken)) => *taken,
            _ => 0,
        };
        assert!(
            taken <= bytes.len(),
            "{taken} of {} bytes were taken",
            bytes.len()
        );
        self.written += taken as u64;
        with(|kernel| {
            kernel.peers[self.peer].expected.truncate(before + taken);
            if taken > 0 {
                kernel.note(|| {
                    format!(
                        "task: {taken} of {} bytes for peer {} are taken",
                        bytes.len(),
                        self.peer
                    )
                });
            }
        });
        result
    }

    /// What a write came to.
    pub(super) fn came(&mut self, shared: &Shared, result: &io::Result<usize>) {
        match result {
            Ok(_) => shared.progress(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if self.shut && error.kind() == io::ErrorKind::BrokenPipe => self.ended = true,
            Err(error) => {
                self.ended = true;
                shared.check_failure(self.peer, "a write", error);
            }
        }
    }
}

/// Writes by the trait of tokio, of one piece or of several.
pub(super) fn poll_write<W: AsyncWrite + Unpin>(
    end: &mut W,
    cx: &mut Context<'_>,
    bytes: &[u8],
    piece: Option<usize>,
) -> Poll<io::Result<usize>> {
    match piece {
        None => Pin::new(end).poll_write(cx, bytes),
        Some(piece) => {
            // With one of no bytes among them.
            let empty = IoSlice::new(&[]);
            let pieces: Vec<_> = std::iter::once(empty)
                .chain(bytes.chunks(piece).take(20).map(IoSlice::new))
                .collect();
            Pin::new(end).poll_write_vectored(cx, &pieces)
        }
    }
}

/// Writes once, in some way, for as long as `patience` lasts.
pub(super) async fn write_some<W: WriteEnd>(
    end: &mut W,
    writing: &mut Writing,
    shared: &Rc<Shared>,
    random: &mut Random,
    longest: u64,
    patience: Patience,
) {
    let bytes = writing.next(random.magnitude(longest));
    let awaited = writing.awaited();
    let result = match random.below(8) {
        0 => {
            let flushed = shared.wait(patience, awaited, end.flushed()).await;
            flushed.map(|result| result.map(|()| 0))
        }
        1 | 2 => {
            let ready = shared.wait(patience, awaited, end.writable()).await;
            ready.map(|ready| {
                ready.expect("waiting fails never");
                let write = || Poll::Ready(end.try_write(bytes));
                match writing.offer(bytes, write) {
                    Poll::Ready(result) => result,
                    Poll::Pending => unreachable!("it does not wait"),
                }
            })
        }
        3 => send(end, writing, shared, Memory::from(bytes), bytes, patience).await,
        _ => {
            let piece = random
                .chance(512)
                .then(|| random.magnitude(bytes.len() as u64) as usize);
            let write = poll_fn(|cx| writing.offer(bytes, || poll_write(end, cx, bytes, piece)));
            shared.wait(patience, awaited, write).await
        }
    };
    if let Some(result) = result {
        writing.came(shared, &result);
    }
}

async fn send<W: WriteEnd>(
    end: &W,
    writing: &mut Writing,
    shared: &Rc<Shared>,
    memory: Memory,
    bytes: &[u8],
    patience: Patience,
) -> Option<io::Result<usize>> {
    let awaited = writing.awaited();
    let mut sending = pin!(end.send(memory));
    let send = poll_fn(|cx| {
        // All of it was taken, or nothing.
        writing.offer(bytes, || sending.as_mut().poll(cx).map_ok(|()| bytes.len()))
    });
    shared.wait(patience, awaited, send).await
}

/// Sends back a lease, which must be of this peer's direction.
pub(super) async fn send_back<W: WriteEnd>(
    end: &W,
    writing: &mut Writing,
    shared: &Rc<Shared>,
    lease: Lease,
    patience: Patience,
) {
    let bytes = lease.to_vec();
    let before = writing.written;
    let result = send(end, writing, shared, Memory::from(lease), &bytes, patience).await;
    // They are none of the pattern.
    writing.written = before;
    if let Some(result) = result {
        writing.came(shared, &result);
    }
}
