//! The operations of a stream, on whatever thread it is used.

use std::io::{self, IoSlice};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use quoit::{DirectSender, Errno, Lease, Refusal, Token};

use super::give::{WORTH_A_CALL, leave_copied, queue_copied, send_copied};
use super::{Ending, Failure, Link, MOST_LEFT, Piece, Shortfall, State};
use crate::lock::lock;
use crate::waiters::WaiterKey;

impl Link {
    /// Waits until the connection is established.
    pub(crate) fn poll_opened(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = lock(&self.state);
        if state.opened {
            return Poll::Ready(Ok(()));
        }
        if state.closed {
            let failure = state.failure.take().unwrap_or(Failure::Aborted);
            return Poll::Ready(Err(failure.into()));
        }
        let before = state.writers.poll(cx.waker());
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// It could not even be begun.
    pub(crate) fn refuse(&self, refusal: Refusal, wakers: &mut Vec<Waker>) {
        let failure = match refusal {
            Refusal::Error(errno) => Failure::Errno(errno),
            Refusal::Limit => Failure::NoPlace,
            Refusal::Stale | Refusal::Full | Refusal::TooLarge | Refusal::Closing => {
                Failure::Errno(Errno::EINVAL)
            }
        };
        self.close(Some(failure), wakers);
    }

    /// Takes what has come by `take`, which is given bytes and returns how many of them it took, until it takes less than it
    /// was given. `Ready(Ok(0))` is the end of the stream.
    pub(crate) fn try_read(&self, take: &mut dyn FnMut(&[u8]) -> usize) -> Poll<io::Result<usize>> {
        Self::read(&mut lock(&self.state), take)
    }

    fn read(state: &mut State, take: &mut dyn FnMut(&[u8]) -> usize) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        while let Some(lease) = state.received.front_mut() {
            let given = lease.len();
            let now = take(lease);
            taken += now;
            if now < given {
                lease.advance(now);
                break;
            }
            // Dropping a lease only notes that its memory is free.
            state.received.pop_front();
        }
        if taken > 0 {
            return Poll::Ready(Ok(taken));
        }
        if !state.received.is_empty() {
            // There was no room for a byte.
            return Poll::Ready(Ok(0));
        }
        Self::read_end(state)
    }

    /// What a read finds when there are no bytes.
    fn read_end(state: &mut State) -> Poll<io::Result<usize>> {
        if state.end_of_stream {
            return Poll::Ready(Ok(0));
        }
        if !state.closed {
            return Poll::Pending;
        }
        match state.failure.take() {
            Some(failure) => Poll::Ready(Err(failure.into())),
            None => Poll::Ready(Ok(0)),
        }
    }

    /// As [`Link::try_read`], of which the task is told when there is something.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        let result = Self::read(&mut state, take);
        if result.is_pending() {
            let before = state.readers.poll(cx.waker());
            drop(state);
            drop(before);
        }
        result
    }

    /// Takes the next bytes in the memory that they came in. `None` at the end of the stream.
    pub(crate) fn try_recv(&self) -> Poll<io::Result<Option<Lease>>> {
        let mut state = lock(&self.state);
        if let Some(lease) = state.received.pop_front() {
            return Poll::Ready(Ok(Some(lease)));
        }
        Self::read_end(&mut state).map_ok(|_| None)
    }

    /// Bytes that were taken and not read after all: the next ones to be read.
    pub(crate) fn put_back(&self, lease: Lease) {
        let mut state = lock(&self.state);
        if state.dropped.is_none() {
            state.received.push_front(lease);
        }
    }

    /// Whether a read would not wait. `future`: for whom beside the task that polls.
    pub(crate) fn poll_readable(
        &self,
        cx: &mut Context<'_>,
        future: Option<&mut Option<WaiterKey>>,
    ) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.is_readable() {
            return Poll::Ready(());
        }
        let before = match future {
            Some(key) => state.readers.wait(key, cx.waker()),
            None => state.readers.poll(cx.waker()),
        };
        drop(state);
        drop(before);
        Poll::Pending
    }

    pub(crate) fn forget_reader(&self, key: WaiterKey) {
        let waker = lock(&self.state).readers.forget(key);
        drop(waker);
    }

    /// Copies what has come to the front of `into` and leaves it where it is. `Ready(Ok(0))` is the end of the stream.
    pub(crate) fn try_peek(&self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        let copied = Self::peek(&state, into);
        if copied > 0 || !state.received.is_empty() {
            return Poll::Ready(Ok(copied));
        }
        Self::read_end(&mut state)
    }

    /// The same of what has come, which may be nothing.
    pub(crate) fn peek_received(&self, into: &mut [u8]) -> usize {
        Self::peek(&lock(&self.state), into)
    }

    fn peek(state: &State, into: &mut [u8]) -> usize {
        let mut copied = 0;
        for lease in &state.received {
            let part = lease.len().min(into.len() - copied);
            into[copied..copied + part].copy_from_slice(&lease[..part]);
            copied += part;
        }
        copied
    }

    fn check_writable(state: &mut State) -> io::Result<()> {
        // Before the own end, as sendmsg(2) tells a socket's error first.
        if let Some(failure) = state.failure.take() {
            return Err(failure.into());
        }
        if state.sends_no_more() {
            return Err(Errno::EPIPE.into());
        }
        Ok(())
    }

    /// Sends as much of `pieces` as there is room for, and returns how much that is.
    pub(crate) fn try_write(self: &Arc<Self>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut state = lock(&self.state);
        Self::check_writable(&mut state)?;
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        if state.full {
            return Poll::Pending;
        }
        if state.left.is_empty()
            && !state.sending
            && let Some(id) = state.id.filter(|_| state.opened)
            && let Some(result) = self.home.here(|driver| {
                let again = std::mem::replace(&mut state.written_in, driver.turns) == driver.turns;
                let give = if again && length < WORTH_A_CALL {
                    queue_copied
                } else {
                    send_copied
                };
                give(&mut driver.event_loop, id, pieces)
            })
        {
            return match result {
                Ok(0) => {
                    state.full = true;
                    Poll::Pending
                }
                Ok(taken) => Poll::Ready(Ok(taken)),
                Err(Refusal::Error(errno)) => {
                    state.send_failed = true;
                    Poll::Ready(Err(errno.into()))
                }
                Err(_) => Poll::Ready(Err(Errno::EPIPE.into())),
            };
        }
        if state.left.is_empty()
            && !state.sending
            && let Some(direct) = self.direct.get().filter(|direct| direct.is_ready())
        {
            let (taken, again) = self.send_directly(direct, pieces, state);
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            state = again;
            Self::check_writable(&mut state)?;
        }
        if !state.has_room() {
            return Poll::Pending;
        }
        let room = MOST_LEFT - state.left_bytes;
        let taken = leave_copied(&mut state, pieces, room);
        self.list(state);
        Poll::Ready(Ok(taken))
    }

    /// Sends on this thread, which is not the loop's, as much as the socket takes at once. Not under the lock, which the loop
    /// takes as well.
    fn send_directly<'a>(
        self: &'a Arc<Self>,
        direct: &DirectSender,
        pieces: &[IoSlice<'_>],
        mut state: MutexGuard<'a, State>,
    ) -> (usize, MutexGuard<'a, State>) {
        state.sending = true;
        drop(state);
        let taken = direct.try_send(pieces);
        let mut state = lock(&self.state);
        state.sending = false;
        if !state.left.is_empty() || state.shut_down.is_some() || state.dropped.is_some() {
            // The loop has passed it over meanwhile.
            self.list(state);
            state = lock(&self.state);
        }
        (taken, state)
    }

    /// As [`Link::try_write`], of which the task is told when there is room.
    pub(crate) fn poll_write(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Somebody else may have taken the room.
        loop {
            if let Poll::Ready(result) = self.try_write(pieces) {
                return Poll::Ready(result);
            }
            ready!(self.poll_writable(cx, None));
        }
    }

    /// Puts it into the loop's list, if it is not there and not closed.
    pub(super) fn list(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.closed || std::mem::replace(&mut state.listed, true) {
            return;
        }
        drop(state);
        if self.home.want(Arc::clone(self)).is_err() {
            let mut wakers = Vec::new();
            self.on_gone(&mut wakers);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether a write would not wait.
    pub(crate) fn poll_writable(
        &self,
        cx: &mut Context<'_>,
        future: Option<&mut Option<WaiterKey>>,
    ) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.is_writable() {
            return Poll::Ready(());
        }
        let before = match future {
            Some(key) => state.writers.wait(key, cx.waker()),
            None => state.writers.poll(cx.waker()),
        };
        drop(state);
        drop(before);
        Poll::Pending
    }

    pub(crate) fn forget_writer(&self, key: WaiterKey) {
        let waker = lock(&self.state).writers.forget(key);
        drop(waker);
    }

    /// Lends a piece of memory, or a file, to be sent in its turn, and returns the last token up to it. `Err` returns the
    /// piece, as there is no room now.
    pub(crate) fn try_send(self: &Arc<Self>, mut piece: Piece) -> Result<io::Result<Token>, Piece> {
        let mut state = lock(&self.state);
        if let (Some(end), Piece::Mark(_)) = (state.shut_down, &piece) {
            // There is one already.
            return Ok(Ok(end));
        }
        if let Err(error) = Self::check_writable(&mut state) {
            return Ok(Err(error));
        }
        if !state.has_room() {
            return Err(piece);
        }
        // Here, and not when it was asked for: who waits for room may be overtaken, and one token is told for all before it.
        if let Some(token) = piece.token() {
            state.given += 1;
            *token = Token(state.given);
        }
        let last = Token(state.given);
        if let Piece::File(_, token) = piece {
            state.files.push((token, None));
        }
        state.left_bytes += piece.len();
        state.left.push_back(piece);
        drop(state);
        self.tell();
        Ok(Ok(last))
    }

    /// Whether the kernel has everything up to `token`, or of files what there was of them.
    pub(crate) fn poll_sent(
        &self,
        cx: &mut Context<'_>,
        token: Token,
        key: &mut Option<WaiterKey>,
    ) -> Poll<io::Result<()>> {
        let mut state = lock(&self.state);
        if state.sent >= token.0 {
            return Poll::Ready(Ok(()));
        }
        if state.closed || state.send_failed {
            let failure = state.failure.take();
            return Poll::Ready(Err(failure.map_or_else(|| Errno::EPIPE.into(), Into::into)));
        }
        let before = state.writers.wait(key, cx.waker());
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Nobody waits for this file any more. Returns what was missing of it.
    pub(crate) fn take_file(&self, token: Token) -> Option<Shortfall> {
        let mut state = lock(&self.state);
        let at = state.files.iter().position(|(of, _)| *of == token)?;
        state.files.swap_remove(at).1
    }

    /// Ends the sending direction behind everything that was written. Of a connection that is gone it is over anyway: no error,
    /// as tokio tells none.
    pub(crate) fn shut_down(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if state.closed || state.shut_down.is_some() {
            return;
        }
        state.given += 1;
        state.shut_down = Some(Token(state.given));
        drop(state);
        self.tell();
    }

    /// Has the peer see a reset when the stream is dropped.
    pub(crate) fn reset_on_drop(&self) {
        lock(&self.state).reset_on_drop = true;
    }

    /// Nobody has the stream any more. What was written still leaves. If the peer has sent what nobody has read, it sees a reset
    /// behind that, as of a kernel's socket (RFC 1122, 4.2.2.13). Not behind the own end, which the peer of a kernel's socket
    /// sees instead, as it comes first: what hyper writes, ends and drops in one go is an answer and no reset.
    pub(crate) fn drop_stream(self: &Arc<Self>, abort: bool) {
        let mut state = lock(&self.state);
        if state.closed || state.dropped.is_some() {
            return;
        }
        state.dropped = Some(if abort {
            Ending::Abort
        } else if state.reset_on_drop || !state.received.is_empty() && state.shut_down.is_none() {
            Ending::Reset
        } else {
            Ending::Close
        });
        let received = std::mem::take(&mut state.received);
        drop(state);
        drop(received);
        self.tell();
    }
}
