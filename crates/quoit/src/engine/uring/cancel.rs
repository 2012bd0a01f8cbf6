//! Cancelling. The target always ends with a completion of its own; that of the cancellation says nothing but
//! whether it must be made again.

use super::UringEngine;
use super::entry;
use super::state::{ReceiveStage, SendStage, receive_data, send_data};
use super::sys::UringSys;
use super::user_data::{Tag, UserData};
use crate::engine::{Handle, Kind};
use crate::id::Slot;
use crate::pool::Pool;
use crate::sys::SocketSys;

impl<S: UringSys, K: SocketSys> UringEngine<S, K> {
    pub(super) fn push_cancel(&mut self, target: UserData, pool: &mut Pool) {
        self.push_silent(entry::cancel(target, self.skips_success), pool);
    }

    pub(super) fn cancel(&mut self, handle: Handle, kind: Kind, pool: &mut Pool) {
        let (tag, slot) = match (handle, kind) {
            (Handle::Listener(slot), Kind::Accept) => (Tag::Accept, slot),
            (Handle::Connection(slot), Kind::Connect) => (Tag::Connect, slot),
            (Handle::Connection(slot), Kind::Receive) => (Tag::Receive, slot),
            (Handle::Connection(slot), Kind::Send) => (Tag::Send, slot),
            (Handle::Datagram(slot), Kind::Receive) => (Tag::DatagramReceive, slot),
            (Handle::Datagram(slot), Kind::Send) => return self.cancel_datagrams(slot, pool),
            // No such operation is ever outstanding.
            (Handle::Connection(_), Kind::Accept)
            | (Handle::Datagram(_), Kind::Accept | Kind::Connect)
            | (Handle::Listener(_), _) => return,
        };
        match self.outstanding(tag, slot) {
            Some((_, true)) | None => (),
            Some(_) if tag == Tag::Accept => self.stop_accepting(slot, pool),
            Some((target, cancelled)) => {
                *cancelled = true;
                if !self.ends_by_itself(tag, slot) {
                    self.push_cancel(target, pool);
                }
            }
        }
    }

    /// Whether it is a send that the kernel has done with, so that cancelling it finds nothing: an attempt, which ends
    /// while it is submitted, or a refused zero-copy send, whose notification is awaited. Were such a cancellation
    /// made again and again until the send's end is known, the loop would spin; and the completions of enough of them
    /// would keep the queue full, so that an attempt's success, which no completion tells, never became known.
    fn ends_by_itself(&mut self, tag: Tag, slot: Slot) -> bool {
        tag == Tag::Send
            && matches!(
                self.connections.get(slot).send.stage,
                SendStage::Attempt | SendStage::Refused
            )
    }

    /// What is outstanding of a kind in a slot: its user data, and the mark that it was cancelled.
    fn outstanding(&mut self, tag: Tag, slot: Slot) -> Option<(UserData, &mut bool)> {
        if tag == Tag::Wake {
            return self.watching.then_some((UserData::wake(), &mut self.quiescing));
        }
        if tag == Tag::Accept {
            let listener = self.listeners.find(slot)?;
            let data = UserData::new(Tag::Accept, slot, 0);
            return listener.accepting.then_some((data, &mut listener.cancelled));
        }
        if tag == Tag::DatagramReceive {
            return self.datagrams.find(slot)?.outstanding_receive(slot);
        }
        let connection = self.connections.find(slot)?;
        let (outstanding, data, cancelled) = match tag {
            Tag::Connect => (
                connection.connect.address.is_some(),
                UserData::new(Tag::Connect, slot, 0),
                &mut connection.connect.cancelled,
            ),
            Tag::Receive => (
                connection.receive.stage != ReceiveStage::Idle,
                receive_data(slot, &connection.receive),
                &mut connection.receive.cancelled,
            ),
            Tag::Send => (
                connection.send.stage != SendStage::Idle,
                send_data(slot, &connection.send),
                &mut connection.send.cancelled,
            ),
            Tag::Wake
            | Tag::Accept
            | Tag::Cancel
            | Tag::Close
            | Tag::DatagramReceive
            | Tag::DatagramSend
            | Tag::Marker => return None,
        };
        outstanding.then_some((data, cancelled))
    }

    /// A cancellation has ended. One that found nothing although its target goes on came between two stages of
    /// it, and is made again; but not one that is told when the next receive is being cancelled already: where completions
    /// are late, each would leave one more behind, and soon the ring would be busy with nothing else.
    ///
    /// It cannot hit anything else: if the target has ended by now, its completion comes right behind, and what
    /// the loop submits for the slot after that is behind this cancellation in the queue.
    pub(super) fn cancelled(&mut self, data: UserData, result: i32, pool: &mut Pool) {
        if result == -libc::ENOENT
            && !self.ends_by_itself(data.target(), data.slot())
            && let Some((target, &mut true)) = self.outstanding(data.target(), data.slot())
            && (data.target() != Tag::Receive || data.target_detail() == target.detail())
        {
            self.push_cancel(target, pool);
        }
    }

    /// Cancels all that is outstanding, the watch for wakes included.
    pub(super) fn cancel_everything(&mut self, pool: &mut Pool) {
        for slot in self.connections.slots() {
            for kind in [Kind::Connect, Kind::Receive, Kind::Send] {
                self.cancel(Handle::Connection(slot), kind, pool);
            }
        }
        for slot in self.listeners.slots() {
            self.cancel(Handle::Listener(slot), Kind::Accept, pool);
        }
        for slot in self.datagrams.slots() {
            for kind in [Kind::Receive, Kind::Send] {
                self.cancel(Handle::Datagram(slot), kind, pool);
            }
        }
        if self.watching {
            self.push_cancel(UserData::wake(), pool);
        }
    }
}
