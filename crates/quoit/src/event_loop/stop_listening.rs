//! Listeners that stop: taking what the kernel has queued, and closing once all of it has been reported.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::accept::{Accept, FIRST_RETRY, is_of_listener};
use super::{Draining, Loop};
use crate::engine::{Engine, Handle, Operation, is_of_one_accept};
use crate::errno::Errno;
use crate::event::{Event, Refusal};
use crate::id::{ListenerId, Slot};
use crate::listen::SocketFile;
use crate::sys::SocketSys;

/// How often taking what is queued is tried again after a listener was stopped: about four seconds in all.
const LAST_RETRIES: u32 = 10;

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Stops accepting. Connections that the kernel has queued already are still accepted, as far as there are
    /// slots; then the socket is closed and [`Event::ListenerClosed`] reported. No `Accepted` of this listener
    /// follows: where attached connections have taken the slots of some that it had accepted already, it closes
    /// when those have theirs. Without descriptors or memory for what is queued, that is tried again for some
    /// seconds, or until draining has taken too long; then the listener closes with the error, and what is queued
    /// is reset.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if it is stopping already.
    pub fn stop_listening(&mut self, listener: ListenerId) -> Result<(), Refusal> {
        let slot = listener.slot();
        let found = self.find_listener(listener)?;
        found.stopping = true;
        found.waiting = false;
        // However long its pauses are by now.
        found.next_retry = FIRST_RETRY;
        let retry = found.retry.take();
        let armed = found.armed.is_some();
        self.clear_timer(retry);
        if armed {
            self.cancel_accept(slot);
        } else {
            self.finish_listener(slot, None);
        }
        Ok(())
    }

    /// Whether somebody has room for one more of this listener.
    fn has_room_for_accepted(&mut self, slot: Slot) -> bool {
        let own = self.connections.room() > self.surplus_accepted.len() as u32;
        let Some((listener, _)) = self.listeners.at(slot) else {
            return false;
        };
        match &listener.accept {
            Accept::Descriptors => true,
            Accept::Spread(remotes) => {
                let remotes = Arc::clone(remotes);
                let has_unplaced = !listener.unplaced.is_empty();
                !has_unplaced && self.room_to_spread(&remotes) > 0
            }
            Accept::Connections | Accept::Paused => own,
        }
    }

    /// Takes what the kernel has queued for a stopped listener, and closes it once all that it has accepted has
    /// been reported.
    pub(super) fn finish_listener(&mut self, slot: Slot, error: Option<Errno>) {
        let Some((listener, generation)) = self.listeners.at(slot) else {
            return;
        };
        let id = ListenerId::new(self.index, slot, generation);
        listener.stopping = true;
        listener.error = listener.error.or(error);
        self.place_rest(slot);
        let Some((listener, _)) = self.listeners.at(slot) else {
            return;
        };
        if listener.error.is_none()
            && let Err(errno) = self.accept_queued(slot)
            && (is_of_listener(errno) || !self.put_off_finish(slot))
            && let Some((listener, _)) = self.listeners.at(slot)
        {
            listener.error = Some(errno);
        }
        let Some((listener, _)) = self.listeners.at(slot) else {
            return;
        };
        if listener.retry.is_some() {
            return;
        }
        // The loops that they may go to do not say when they have room. Once draining has taken too long they are closed.
        if !listener.unplaced.is_empty() && self.draining != Draining::Overdue && self.set_accept_retry(slot)
        {
            return;
        }
        if self.surplus_accepted.iter().any(|(of, _)| *of == id) {
            // Goes on when a connection closes.
            return;
        }
        self.close_listener(slot);
    }

    /// Tries again after a while to take what is queued for a stopped listener; returns false once that was done
    /// often enough, or draining has taken too long.
    fn put_off_finish(&mut self, slot: Slot) -> bool {
        self.counters.accept_paused_resources.add(1);
        let overdue = self.draining == Draining::Overdue;
        let Some((listener, _)) = self.listeners.at(slot) else {
            return false;
        };
        if overdue || listener.retries == LAST_RETRIES {
            return false;
        }
        listener.retries += 1;
        self.set_accept_retry(slot)
    }

    /// Draining has taken too long: stopped listeners that wait to try again do so for the last time.
    pub(super) fn finish_stopped_listeners(&mut self) {
        let slots: Vec<_> = self.listeners.slots().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some((listener, _)) = self.listeners.at(slot)
                && listener.stopping
                && let Some(retry) = listener.retry.take()
            {
                self.clear_timer(Some(retry));
                self.finish_listener(slot, None);
            }
        }
    }

    /// Accepts what the kernel has queued, as far as there are slots.
    ///
    /// # Errors
    /// There are no descriptors or no memory for it, or it is forbidden, and something is or may be queued; or
    /// [`is_of_listener`].
    fn accept_queued(&mut self, slot: Slot) -> Result<(), Errno> {
        while self.has_room_for_accepted(slot) {
            let Some((listener, _)) = self.listeners.at(slot) else {
                return Ok(());
            };
            let socket = listener.socket.as_ref().expect("present until closed");
            self.counters.system_calls.add(1);
            match self.system.accept_now(socket.as_fd()) {
                Ok(descriptor) => {
                    listener.retries = 0;
                    listener.next_retry = FIRST_RETRY;
                    let nonblocking = self.engine.wants_nonblocking();
                    if self
                        .system
                        .set_nonblocking(descriptor.as_fd(), nonblocking)
                        .is_ok()
                    {
                        self.take_accepted(slot, descriptor);
                    }
                }
                Err(errno) if is_of_one_accept(errno) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn close_listener(&mut self, slot: Slot) {
        let Some((_, generation)) = self.listeners.at(slot) else {
            return;
        };
        let id = ListenerId::new(self.index, slot, generation);
        let Some(mut listener) = self.listeners.remove(slot) else {
            return;
        };
        self.clear_timer(listener.retry.take());
        // The file goes first: a server that takes the path over finds it free.
        let (descriptor, file): (OwnedFd, Option<SocketFile>) =
            listener.socket.take().expect("present until closed").into_parts();
        drop(file);
        self.submit(Operation::Close {
            handle: Handle::Listener(slot),
            descriptor,
        });
        self.events.push_back(Event::ListenerClosed {
            listener: id,
            error: listener.error,
        });
    }
}
