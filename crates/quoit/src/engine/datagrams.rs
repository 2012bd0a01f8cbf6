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
    /// The bytes of each, which its header points to.
    pub payloads: Vec<libc::iovec>,
    /// Filled by the engine: for each, the bytes that left, or why none.
    pub results: Vec<Option<Result<u32, Errno>>>,
    /// Filled by the engine: an error of the network may have ended a call behind some datagrams. `sendmmsg(2)` tells no
    /// error then, and the socket has forgotten it.
    pub may_have_missed: bool,
}

// SAFETY: a batch only names memory; that it stays valid until the send has ended, on whatever thread the loop runs,
// is the contract of `Engine::send_datagrams`.
unsafe impl Send for DatagramBatch {}

impl DatagramBatch {
    /// Gets ready for being sent: nothing has a result.
    pub(super) fn begin(&mut self) {
        debug_assert!(!self.messages.is_empty());
        self.results.clear();
        self.results.resize(self.messages.len(), None);
        self.may_have_missed = false;
    }

    /// Whether all datagrams before `next`, the first that was not tried, are all there are.
    pub(super) fn is_done(&self, next: usize) -> bool {
        next == self.messages.len()
    }

    /// Sends from the datagram `next` on until all have a result, or if they may wait until one finds no room. Returns the
    /// first without a result, and adds the system calls to `calls`.
    pub(super) fn send_now(
        &mut self,
        system: &impl SocketSys,
        socket: RawFd,
        mut next: usize,
        manner: SendManner,
        calls: &Count,
    ) -> usize {
        while !self.is_done(next) {
            calls.add(1);
            match system.send_messages_now(socket, &mut self.messages[next..]) {
                Ok(count) => {
                    let sent = next..next + count;
                    for (result, message) in self.results[sent.clone()].iter_mut().zip(&self.messages[sent]) {
                        *result = Some(Ok(message.msg_len));
                    }
                    next += count;
                    self.may_have_missed |= !self.is_done(next);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if manner.waits() => break,
                Err(error) => {
                    self.results[next] = Some(Err(error));
                    next += 1;
                }
            }
        }
        next
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
