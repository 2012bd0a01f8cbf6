//! Letting other threads send while the loop sleeps.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::Loop;
use crate::direct::{DirectDatagramSender, DirectSender, LentDatagramSocket, LentSocket};
use crate::engine::{Engine, EngineKind};
use crate::errno::Errno;
use crate::event::Refusal;
use crate::id::{ConnectionId, DatagramSocketId, Slot};
use crate::remote::Inbox;
use crate::sys::SocketSys;

/// On io_uring sends that leave together are one system call with the wait, and a wake is two, so that from so many on a wake costs
/// less than to send each directly. On epoll each send is a call of its own, whoever makes it.
const WORTH_A_WAKE: u32 = 2;
/// The average of sends that leave together is kept in such parts.
const PARTS: u32 = 16;
/// How many of them the average goes back.
const SPAN: u32 = 8;
/// One burst counts as no more, so that it does not decide for long.
const MOST: u64 = 16;

/// What the loop shares with threads that send on its connections, by slot.
///
/// It lies apart from the connections, as most loops lend none.
#[derive(Debug)]
pub(super) struct DirectSends {
    sockets: Vec<Option<Arc<LentSocket>>>,
    /// Connections that end, perhaps once a send has ended that is under way.
    ending: Vec<Slot>,
    /// Datagram sockets that end once a send has ended that is under way.
    ending_datagrams: Vec<Slot>,
    /// The average of sends that would leave together, where a wake may be worth it.
    together: Option<u32>,
    /// Direct sends when that was worked out last.
    seen: u64,
}

impl DirectSends {
    pub(super) fn new(engine: EngineKind) -> Self {
        Self {
            sockets: Vec::new(),
            ending: Vec::new(),
            ending_datagrams: Vec::new(),
            together: (engine == EngineKind::Uring).then_some(0),
            seen: 0,
        }
    }

    /// Whether any connection was ever lent.
    #[inline]
    pub(super) fn is_lent(&self) -> bool {
        !self.sockets.is_empty()
    }

    fn socket(&self, slot: Slot) -> Option<&Arc<LentSocket>> {
        self.sockets.get(slot.index())?.as_ref()
    }

    /// Says whether all of a connection's has left, so that others may send on it.
    pub(super) fn set_idle(&self, slot: Slot, idle: bool) {
        if let Some(socket) = self.socket(slot) {
            socket.set_idle(idle);
        }
    }

    /// Whether another thread would have sent while the loop slept, but for what the loop had sent before.
    pub(super) fn take_missed(&self, slot: Slot) -> bool {
        self.socket(slot).is_some_and(|socket| socket.take_missed())
    }

    /// What another thread's send has failed with.
    pub(super) fn take_error(&self, slot: Slot) -> Option<Errno> {
        self.socket(slot)?.take_error()
    }

    /// What another thread's send was told of the connection, and a receive is not told any more.
    pub(super) fn take_failure(&self, slot: Slot) -> Option<Errno> {
        self.socket(slot)?.take_failure()
    }

    /// No send begins any more on a connection that ends.
    pub(super) fn close(&mut self, slot: Slot) {
        if self.socket(slot).is_some_and(|socket| socket.close()) {
            self.ending.push(slot);
        }
    }

    /// Connections whose end has waited for a send that is over.
    fn take_ended(&mut self) -> Vec<Slot> {
        let is_used = |slot: Slot| {
            self.sockets[slot.index()]
                .as_ref()
                .is_some_and(|socket| socket.is_used())
        };
        self.ending.extract_if(.., |slot| !is_used(*slot)).collect()
    }

    /// A datagram socket's end has to wait for a send that is under way, which wakes the loop when it is over.
    pub(super) fn end_later(&mut self, slot: Slot) {
        self.ending_datagrams.push(slot);
    }

    /// Whether a closed connection is the loop's alone again, which it is for good then.
    pub(super) fn take_back(&mut self, slot: Slot) -> bool {
        let Some(socket) = self.sockets.get_mut(slot.index()) else {
            return true;
        };
        let is_taken = socket.as_ref().is_none_or(|socket| socket.take_back());
        if is_taken {
            *socket = None;
        }
        is_taken
    }

    /// Notes how many sends leave now, with those that left directly since the last time, and by that whether to send directly pays.
    pub(super) fn note_sends(&mut self, sends: usize, inbox: &Inbox) {
        let Some(together) = &mut self.together else {
            return;
        };
        let direct = inbox.direct_sends();
        let sends = direct - std::mem::replace(&mut self.seen, direct) + sends as u64;
        if sends > 0 {
            *together += sends.min(MOST) as u32 * PARTS / SPAN;
            *together -= *together / SPAN;
            inbox.set_direct_sends_pay(*together <= WORTH_A_WAKE * PARTS);
        }
    }

    /// Has no other thread send on connections from here on.
    pub(super) fn end(&mut self) {
        for socket in self.sockets.drain(..).flatten() {
            socket.end();
        }
    }
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Lets other threads send on a connection while this loop sleeps, instead of waking it for that. All that ask for one
    /// connection share what they send by, some 64 bytes, until it has ended and the last of them is dropped.
    ///
    /// # Errors
    /// As [`Loop::send`], for a connection that takes no sends any more.
    pub fn direct_sender(&mut self, connection: ConnectionId) -> Result<DirectSender, Refusal> {
        let inbox = Arc::clone(&self.memory.remote);
        let call = self.system.send_now_from_any_thread();
        let threshold = self.zero_copy_threshold();
        let slot = connection.slot();
        let state = self.sender(connection)?;
        let is_idle = state.is_idle();
        state.is_lent = true;
        let descriptor = state
            .descriptor
            .as_ref()
            .expect("present until closed")
            .as_raw_fd();
        let sockets = &mut self.direct.sockets;
        if sockets.len() <= slot.index() {
            sockets.resize_with(slot.index() + 1, || None);
        }
        let lent = sockets[slot.index()].get_or_insert_with(|| {
            let lent = Arc::new(LentSocket::new(inbox, descriptor, call, threshold));
            lent.set_idle(is_idle);
            lent
        });
        Ok(DirectSender::new(Arc::clone(lent)))
    }

    /// Lets other threads send on a datagram socket while this loop sleeps, instead of waking it for that. All that ask for one
    /// socket share what they send by, some 100 bytes, until it has ended and the last of them is dropped.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] of a socket that is being closed.
    pub fn direct_datagram_sender(
        &mut self,
        socket: DatagramSocketId,
    ) -> Result<DirectDatagramSender, Refusal> {
        let inbox = Arc::clone(&self.memory.remote);
        let call = self.system.send_now_from_any_thread();
        let lent = self
            .find_datagram(socket)?
            .lend(|descriptor, way, answers_once| {
                let socket = LentSocket::new(inbox, descriptor, call, None);
                LentDatagramSocket::new(socket, way, answers_once)
            })?;
        Ok(DirectDatagramSender::new(lent))
    }

    /// Ends the connections and the datagram sockets that waited for another thread's send to end, which has woken the loop.
    pub(super) fn finish_after_direct_sends(&mut self) {
        for slot in self.direct.take_ended() {
            self.finish_if_quiet(slot);
        }
        // One whose send is still under way is listed again.
        for slot in std::mem::take(&mut self.direct.ending_datagrams) {
            self.finish_datagram_if_quiet(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::LoopIndex;

    /// Whether it pays after a hundred rounds of as many sends.
    fn pays(engine: EngineKind, sends: usize) -> bool {
        let inbox = Inbox::new(LoopIndex::default(), 1, 1).unwrap();
        let mut direct = DirectSends::new(engine);
        for _ in 0..100 {
            direct.note_sends(sends, &inbox);
            direct.note_sends(0, &inbox);
        }
        inbox.direct_sends_pay()
    }

    #[test]
    fn it_pays_on_io_uring_while_hardly_any_leave_together() {
        assert!(pays(EngineKind::Uring, 0));
        assert!(pays(EngineKind::Uring, 1));
        assert!(!pays(EngineKind::Uring, 3));
        assert!(!pays(EngineKind::Uring, usize::from(u16::MAX)));
        assert!(pays(EngineKind::Epoll, 1000));
    }
}
