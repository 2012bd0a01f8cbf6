//! What engines and the loop hand each other of datagrams, and the sending that is the same for both engines.

use std::fmt;
use std::os::fd::RawFd;

use crate::counters::Count;
use crate::errno::Errno;
use crate::sys::SocketSys;

/// What becomes of a batch's datagrams that find no room in the socket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SendManner {
    /// They fail with `EAGAIN`: nothing tells when there is room again.
    #[default]
    AtOnce,
    /// They wait for room, and others may overtake them.
    Waiting,
    /// They wait for room, and hold up those behind them: none overtakes another.
    InOrder,
}

impl SendManner {
    /// Whether what finds no room waits for it.
    #[must_use]
    pub fn waits(self) -> bool {
        self != Self::AtOnce
    }
}

/// Datagrams that are sent together. Boxed, so that they stay in place while the kernel reads them; handed back when all
/// of them have a result, to be used again.
#[derive(Default)]
pub struct DatagramBatch {
    /// What `sendmmsg(2)` takes: for each, whereto, the bytes and the control messages. All that they point to stays
    /// valid and in place until the batch is handed back.
    pub messages: Vec<libc::mmsghdr>,
    /// The bytes of those whose headers point here.
    pub payloads: Vec<libc::iovec>,
    /// Filled by the engine: for each, the bytes that left, or why none. Empty if all have left with one call.
    pub results: Vec<Option<Result<u32, Errno>>>,
    /// Filled by the engine: an error of the network may have ended a call behind some datagrams. `sendmmsg(2)` tells no
    /// error then, and the socket has forgotten it.
    pub may_have_missed: bool,
}

// SAFETY: a batch only names memory; that it stays valid until the send has ended, on whatever thread the loop runs,
// is the contract of `Engine::send_datagrams`.
unsafe impl Send for DatagramBatch {}

impl DatagramBatch {
    /// Nothing has a result.
    #[cold]
    pub(super) fn begin(&mut self) {
        self.results.clear();
        self.results.resize(self.messages.len(), None);
        self.may_have_missed = false;
    }

    /// All that have no result yet have failed with `error`.
    #[cold]
    pub(super) fn end(&mut self, error: Errno) {
        for result in &mut self.results {
            result.get_or_insert(Err(error));
        }
    }

    /// Sends until all have a result, or if they may wait until one finds no room. Returns the first without a result, and adds
    /// the system calls to `calls`.
    #[inline]
    pub(super) fn send(
        &mut self,
        system: &impl SocketSys,
        socket: RawFd,
        manner: SendManner,
        calls: &Count,
    ) -> usize {
        debug_assert!(!self.messages.is_empty());
        calls.add(1);
        let outcome = system.send_messages_now(socket, &mut self.messages);
        if outcome == Ok(self.messages.len()) {
            self.results.clear();
            return self.messages.len();
        }
        self.begin();
        match self.take_in(0, outcome, manner) {
            Some(next) => self.send_rest(system, socket, next, manner, calls),
            None => 0,
        }
    }

    /// Whether all datagrams before `next`, the first that was not tried, are all there are.
    pub(super) fn is_done(&self, next: usize) -> bool {
        next == self.messages.len()
    }

    /// As [`DatagramBatch::send`], from the datagram `next` on.
    #[cold]
    pub(super) fn send_rest(
        &mut self,
        system: &impl SocketSys,
        socket: RawFd,
        mut next: usize,
        manner: SendManner,
        calls: &Count,
    ) -> usize {
        while !self.is_done(next) {
            calls.add(1);
            let outcome = system.send_messages_now(socket, &mut self.messages[next..]);
            match self.take_in(next, outcome, manner) {
                Some(further) => next = further,
                None => break,
            }
        }
        next
    }

    /// Notes what a call has achieved that began with the datagram `next`. Returns which is to be tried now; `None`: it waits
    /// for room.
    fn take_in(&mut self, next: usize, outcome: Result<usize, Errno>, manner: SendManner) -> Option<usize> {
        match outcome {
            Ok(count) => {
                let sent = next..next + count;
                for (result, message) in self.results[sent.clone()].iter_mut().zip(&self.messages[sent]) {
                    *result = Some(Ok(message.msg_len));
                }
                self.may_have_missed |= !self.is_done(next + count);
                Some(next + count)
            }
            Err(Errno::EINTR) => Some(next),
            Err(Errno::EAGAIN) if manner.waits() => None,
            Err(error) => {
                self.results[next] = Some(Err(error));
                Some(next + 1)
            }
        }
    }
}

impl fmt::Debug for DatagramBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatagramBatch({} messages)", self.messages.len())
    }
}

/// What receiving datagrams tells beside datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramReceived {
    /// Ended without news: cancelled, the kernel gave up, or no buffer was left, and the datagrams stay in the socket.
    Stopped,
    /// The socket has said that something is in its error queue.
    Marked,
    /// It failed; the socket goes on.
    Error(Errno),
}
