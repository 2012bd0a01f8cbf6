//! A stream's two directions, whatever its address family, and how they are owned.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use quoit::{Address, Errno, FileRange, Lease, OnShort, Token};

use crate::budget::within_budget;
use crate::link::{Link, Piece, Shortfall};
use crate::lock::lock;
use crate::waiters::WaiterKey;

/// The receiving direction, with the bytes that are being looked at in the memory that they came in.
#[derive(Debug)]
pub(crate) struct Reader {
    link: Arc<Link>,
    /// Locked only by methods that share the stream: the others have it to themselves.
    current: Mutex<Option<Lease>>,
}

impl Reader {
    fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            current: Mutex::new(None),
        }
    }

    fn current(&mut self) -> &mut Option<Lease> {
        self.current.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes by `take` from what is being looked at; `None` if there is nothing.
    fn take_current(current: &mut Option<Lease>, take: &mut dyn FnMut(&[u8]) -> usize) -> Option<usize> {
        let lease = current.as_mut()?;
        let taken = take(lease);
        lease.advance(taken);
        if lease.is_empty() {
            *current = None;
        }
        Some(taken)
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(taken) = Self::take_current(self.current(), take) {
            return Poll::Ready(Ok(taken));
        }
        self.link.poll_read(cx, take)
    }

    pub(crate) fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(taken) = Self::take_current(&mut lock(&self.current), take) {
            return Poll::Ready(Ok(taken));
        }
        self.link.poll_read(cx, take)
    }

    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.current().is_none() {
            loop {
                match self.link.try_recv() {
                    Poll::Ready(lease) => {
                        *self.current() = lease?;
                        break;
                    }
                    Poll::Pending => ready!(self.link.poll_readable(cx, None)),
                }
            }
        }
        Poll::Ready(Ok(self.current().as_deref().unwrap_or_default()))
    }

    pub(crate) fn consume(&mut self, count: usize) {
        if count > 0 {
            let lease = self
                .current()
                .as_mut()
                .expect("no more is consumed than was filled");
            lease.advance(count);
            if lease.is_empty() {
                *self.current() = None;
            }
        }
    }

    pub(crate) fn try_read(&self, take: &mut dyn FnMut(&[u8]) -> usize) -> io::Result<usize> {
        if let Some(taken) = Self::take_current(&mut lock(&self.current), take) {
            return Ok(taken);
        }
        now(self.link.try_read(take))
    }

    fn try_peek(&self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Some(lease) = lock(&self.current).as_ref() {
            let part = lease.len().min(into.len());
            into[..part].copy_from_slice(&lease[..part]);
            // Who looks until there is enough wants what has come behind it, too.
            return Poll::Ready(Ok(part + self.link.peek_received(&mut into[part..])));
        }
        self.link.try_peek(into)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        into: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Poll::Ready(result) = self.try_peek(into.initialize_unfilled()) {
                return Poll::Ready(result.inspect(|&count| into.advance(count)));
            }
            ready!(self.link.poll_readable(cx, None));
        }
    }

    pub(crate) async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await;
            if let Poll::Ready(result) = self.try_peek(into) {
                return result;
            }
        }
    }

    pub(crate) fn poll_readable(
        &self,
        cx: &mut Context<'_>,
        key: Option<&mut Option<WaiterKey>>,
    ) -> Poll<()> {
        if self.holds_bytes() {
            return Poll::Ready(());
        }
        self.link.poll_readable(cx, key)
    }

    /// Whether there are bytes that the link does not know of any more.
    fn holds_bytes(&self) -> bool {
        lock(&self.current).is_some()
    }

    pub(crate) async fn readable(&self) {
        let mut waiting = Waiting::new(&self.link, Direction::Read);
        poll_fn(|cx| within_budget(cx, |cx| self.poll_readable(cx, Some(&mut waiting.key)))).await;
    }

    pub(crate) async fn recv(&mut self) -> io::Result<Option<Lease>> {
        if let Some(lease) = self.current().take() {
            return Ok(Some(lease));
        }
        let link = &self.link;
        poll_fn(|cx| {
            within_budget(cx, |cx| {
                loop {
                    if let Poll::Ready(result) = link.try_recv() {
                        return Poll::Ready(result);
                    }
                    ready!(link.poll_readable(cx, None));
                }
            })
        })
        .await
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Whether there is something unread is the connection's to know when it is closed.
        if let Some(lease) = self.current().take() {
            self.link.put_back(lease);
        }
    }
}

/// What a call that does not wait returns where it would.
fn now<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Read,
    Write,
}

/// A future that waits beside others, and is forgotten when it is dropped.
struct Waiting<'a> {
    link: &'a Link,
    direction: Direction,
    key: Option<WaiterKey>,
}

impl<'a> Waiting<'a> {
    fn new(link: &'a Link, direction: Direction) -> Self {
        Self {
            link,
            direction,
            key: None,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            match self.direction {
                Direction::Read => self.link.forget_reader(key),
                Direction::Write => self.link.forget_writer(key),
            }
        }
    }
}

/// Whoever has a connection: it ends with the last of them.
#[derive(Debug)]
pub(crate) struct Owner {
    link: Arc<Link>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.link.drop_stream(false);
    }
}

// The sending direction needs no state of its own: it is the connection's.
impl Owner {
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.link.poll_write(cx, pieces)
    }

    pub(crate) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        now(self.link.try_write(pieces))
    }

    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.link.poll_writable(cx, None)
    }

    /// Waits until a read or a write would not wait, as far as `interest` asks for it. `reader`: who may hold something that the
    /// link does not know of.
    #[cfg(feature = "tokio")]
    pub(crate) async fn ready(
        &self,
        interest: tokio::io::Interest,
        reader: Option<&Reader>,
    ) -> tokio::io::Ready {
        let [mut reads, mut writes] =
            [Direction::Read, Direction::Write].map(|direction| Waiting::new(&self.link, direction));
        poll_fn(|cx| {
            within_budget(cx, |cx| {
                let held = reader.is_some_and(Reader::holds_bytes);
                self.link
                    .poll_ready(cx, interest, held, &mut reads.key, &mut writes.key)
            })
        })
        .await
    }

    pub(crate) fn peer(&self) -> io::Result<Address> {
        self.link.peer().cloned().ok_or_else(|| Errno::ENOTCONN.into())
    }

    pub(crate) async fn writable(&self) {
        let mut waiting = Waiting::new(&self.link, Direction::Write);
        poll_fn(|cx| within_budget(cx, |cx| self.link.poll_writable(cx, Some(&mut waiting.key)))).await;
    }

    pub(crate) async fn send(&self, piece: Piece) -> io::Result<()> {
        self.queue(piece).await.map(drop)
    }

    /// Queues a piece when there is room, and returns what is told of all up to it.
    async fn queue(&self, piece: Piece) -> io::Result<Token> {
        let mut piece = Some(piece);
        let mut waiting = Waiting::new(&self.link, Direction::Write);
        poll_fn(|cx| {
            within_budget(cx, |cx| {
                loop {
                    match self
                        .link
                        .try_send(piece.take().expect("it comes back until it is taken"))
                    {
                        Ok(result) => return Poll::Ready(result),
                        Err(back) => piece = Some(back),
                    }
                    ready!(self.link.poll_writable(cx, Some(&mut waiting.key)));
                }
            })
        })
        .await
    }

    async fn sent(&self, token: Token) -> io::Result<()> {
        let mut waiting = Waiting::new(&self.link, Direction::Write);
        poll_fn(|cx| self.link.poll_sent(cx, token, &mut waiting.key)).await
    }

    pub(crate) async fn flushed(&self) -> io::Result<()> {
        let token = self.queue(Piece::Mark(Token::NONE)).await?;
        self.sent(token).await
    }

    pub(crate) async fn send_file(&self, file: std::fs::File, offset: u64, length: u64) -> io::Result<u64> {
        if length == 0 {
            return Ok(0);
        }
        let range = FileRange {
            file,
            offset,
            length,
            on_short: OnShort::Tell,
        };
        let token = self.queue(Piece::File(range, Token::NONE)).await?;
        let awaited = AwaitedFile {
            link: &self.link,
            token,
        };
        self.sent(token).await?;
        match awaited.shortfall() {
            None => Ok(length),
            Some(Shortfall {
                error: Some(errno), ..
            }) => Err(errno.into()),
            Some(Shortfall { missing, error: None }) => Ok(length - missing),
        }
    }
}

/// A file on its way: dropped, nobody wants to know any more whether it was too short.
struct AwaitedFile<'a> {
    link: &'a Link,
    token: Token,
}

impl AwaitedFile<'_> {
    /// What was missing, now that the kernel has what there was.
    fn shortfall(self) -> Option<Shortfall> {
        self.link.take_file(self.token)
    }
}

impl Drop for AwaitedFile<'_> {
    fn drop(&mut self) {
        self.link.take_file(self.token);
    }
}

/// Both directions.
#[derive(Debug)]
pub(crate) struct Stream {
    // Dropped first, so that what it looked at is known to be unread.
    pub(crate) reader: Reader,
    pub(crate) owner: Owner,
}

impl Stream {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self {
            reader: Reader::new(Arc::clone(&link)),
            owner: Owner { link },
        }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.owner.link
    }

    pub(crate) fn into_split(self) -> (OwnedReader, OwnedWriter) {
        let Self { reader, owner } = self;
        let owner = Arc::new(owner);
        (
            OwnedReader {
                reader,
                owner: Arc::clone(&owner),
            },
            OwnedWriter {
                owner,
                shut_down_on_drop: true,
            },
        )
    }

    /// Has `f` called with the socket on the loop's thread.
    pub(crate) fn with_socket<R: Send + 'static>(
        &self,
        f: impl FnOnce(socket2::SockRef<'_>) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let id = self.link().id()?;
        crate::ask::ask_of_program(&self.link().home, move |driver| {
            let descriptor = driver
                .event_loop
                .descriptor(id)
                .ok_or_else(|| io::Error::from(Errno::ENOTCONN))?;
            f(socket2::SockRef::from(&descriptor))
        })
    }
}

/// The receiving half of a stream that was taken apart.
#[derive(Debug)]
pub(crate) struct OwnedReader {
    pub(crate) reader: Reader,
    pub(crate) owner: Arc<Owner>,
}

/// The sending half, whose drop ends that direction.
#[derive(Debug)]
pub(crate) struct OwnedWriter {
    pub(crate) owner: Arc<Owner>,
    shut_down_on_drop: bool,
}

impl OwnedWriter {
    /// Lets it be dropped without ending its direction.
    pub(crate) fn forget(mut self) {
        self.shut_down_on_drop = false;
    }
}

impl Drop for OwnedWriter {
    fn drop(&mut self) {
        if self.shut_down_on_drop {
            self.owner.link.shut_down();
        }
    }
}

/// Puts two halves together, if they are of one stream.
pub(crate) fn reunite(
    read: OwnedReader,
    mut write: OwnedWriter,
) -> Result<Stream, (OwnedReader, OwnedWriter)> {
    if !Arc::ptr_eq(&read.owner, &write.owner) {
        return Err((read, write));
    }
    write.shut_down_on_drop = false;
    drop(write);
    let OwnedReader { reader, owner } = read;
    let owner = Arc::try_unwrap(owner).expect("there are two halves, and both are here");
    Ok(Stream { reader, owner })
}

/// Copies into the buffers one after the other: for vectored reads.
pub(crate) fn fill(buffers: &mut [IoSliceMut<'_>]) -> impl FnMut(&[u8]) -> usize {
    let (mut index, mut offset) = (0, 0);
    move |bytes| {
        let mut copied = 0;
        while copied < bytes.len() && index < buffers.len() {
            let into = &mut buffers[index][offset..];
            let part = into.len().min(bytes.len() - copied);
            into[..part].copy_from_slice(&bytes[copied..copied + part]);
            copied += part;
            offset += part;
            if offset == buffers[index].len() {
                (index, offset) = (index + 1, 0);
            }
        }
        copied
    }
}

/// The same for what room there is in a buffer without growing it further than it does by itself.
pub(crate) fn fill_buf(buffer: &mut impl BufMut) -> impl FnMut(&[u8]) -> usize {
    let mut room = buffer.chunk_mut().len();
    move |bytes| {
        let part = room.min(bytes.len());
        buffer.put_slice(&bytes[..part]);
        room -= part;
        part
    }
}

/// The same for the unfilled part of a buffer of tokio's.
#[cfg(feature = "tokio")]
pub(crate) fn fill_read_buf(buffer: &mut tokio::io::ReadBuf<'_>) -> impl FnMut(&[u8]) -> usize {
    move |bytes| {
        let part = bytes.len().min(buffer.remaining());
        buffer.put_slice(&bytes[..part]);
        part
    }
}

/// The same for one buffer.
pub(crate) fn fill_one(buffer: &mut [u8]) -> impl FnMut(&[u8]) -> usize {
    let mut at = 0;
    move |bytes| {
        let part = bytes.len().min(buffer.len() - at);
        buffer[at..at + part].copy_from_slice(&bytes[..part]);
        at += part;
        part
    }
}
