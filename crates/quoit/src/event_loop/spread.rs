//! Accepted connections that go to several loops: each to the one that has the fewest, none beyond what the loops may have.
//!
//! Who hands a connection over keeps a place for it at the other loop first. What finds no place waits with its listener, which
//! accepts nothing more until all of it has one. A loop that has given the place away meanwhile, to a connection that it has
//! made itself, lets what it was handed wait for the next slot.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::accept::{Accept, FIRST_RETRY};
use super::{Draining, Loop};
use crate::command::HandedOver;
use crate::engine::Engine;
use crate::id::{ListenerId, Slot};
use crate::remote::Remote;
use crate::sys::SocketSys;

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Connections that these loops could take. This one takes what others do not while it drains, be it among them or not,
    /// and where all of them drain or have ended.
    pub(super) fn room_to_spread(&self, remotes: &[Remote]) -> u32 {
        let takes_rest = self.takes_rest() || !remotes.iter().any(Remote::takes_connections);
        let own = if takes_rest { self.connections.room() } else { 0 };
        remotes
            .iter()
            .map(Remote::connection_room)
            .fold(own, u32::saturating_add)
    }

    fn takes_rest(&self) -> bool {
        self.draining != Draining::No
    }

    /// What a listener that spreads has accepted goes to the loop with the fewest connections, or the next that takes it: one
    /// that drains or whose inbox is full takes none. If none of them takes any it is this loop's, as far as it has room. Else
    /// it waits.
    pub(super) fn spread_accepted(&mut self, listener: ListenerId, descriptor: OwnedFd, remotes: &[Remote]) {
        match self.place(listener, descriptor, remotes) {
            Ok(room) if room > 0 => {}
            Ok(_) => self.stop_spreading(),
            Err(descriptor) => {
                if let Some((found, _)) = self.listeners.at(listener.slot()) {
                    found.unplaced.push_back(descriptor);
                }
                self.stop_spreading();
            }
        }
    }

    /// Returns how many more there is room for.
    ///
    /// # Errors
    /// There is no room for it, and the descriptor comes back.
    fn place(
        &mut self,
        listener: ListenerId,
        descriptor: OwnedFd,
        remotes: &[Remote],
    ) -> Result<u32, OwnedFd> {
        // One look at each: their memory is that of other processors.
        let mut room = 0_u32;
        let mut least: Option<(u32, &Remote)> = None;
        for remote in remotes {
            let connections = remote.connections();
            let its = remote.room_beside(connections);
            room = room.saturating_add(its);
            if its > 0 && least.is_none_or(|(fewest, _)| connections < fewest) {
                least = Some((connections, remote));
            }
        }
        let given = match least {
            Some((_, least)) => self.give(least, listener, descriptor),
            None => Err(descriptor),
        };
        match given {
            Ok(()) => Ok(room - 1),
            Err(descriptor) => self
                .place_elsewhere(listener, descriptor, remotes)
                .map(|()| self.room_to_spread(remotes)),
        }
    }

    #[cold]
    fn place_elsewhere(
        &mut self,
        listener: ListenerId,
        mut descriptor: OwnedFd,
        remotes: &[Remote],
    ) -> Result<(), OwnedFd> {
        let mut others: Vec<_> = remotes
            .iter()
            .filter(|remote| remote.connection_room() > 0)
            .collect();
        others.sort_by_key(|remote| remote.connections());
        for other in others {
            match self.give(other, listener, descriptor) {
                Ok(()) => return Ok(()),
                Err(back) => descriptor = back,
            }
        }
        let is_full = |remote: &Remote| remote.takes_connections() && remote.connection_room() == 0;
        let waits = remotes.iter().any(is_full) && !self.takes_rest();
        if waits || self.connections.room() == 0 {
            return Err(descriptor);
        }
        self.adopt(listener, descriptor, false);
        Ok(())
    }

    /// # Errors
    /// That loop takes none, and the descriptor comes back.
    fn give(&mut self, to: &Remote, listener: ListenerId, descriptor: OwnedFd) -> Result<(), OwnedFd> {
        if to.loop_index() != self.index {
            return to.hand_over(listener, descriptor);
        }
        if self.connections.room() == 0 {
            return Err(descriptor);
        }
        self.adopt(listener, descriptor, false);
        Ok(())
    }

    /// Listeners that spread accept nothing more while those that they spread to are full, or while some wait for a place.
    #[cold]
    fn stop_spreading(&mut self) {
        let slots: Vec<_> = self.listeners.slots().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some((listener, _)) = self.listeners.at(slot)
                && let Accept::Spread(remotes) = &listener.accept
            {
                let remotes = Arc::clone(remotes);
                let has_unplaced = !listener.unplaced.is_empty();
                if has_unplaced || self.room_to_spread(&remotes) == 0 {
                    self.cancel_accept(slot);
                }
            }
        }
    }

    /// Finds a place for what has waited for one; returns whether all of it has one.
    pub(super) fn place_rest(&mut self, slot: Slot) -> bool {
        let Some((listener, generation)) = self.listeners.at(slot) else {
            return true;
        };
        let Accept::Spread(remotes) = &listener.accept else {
            return true;
        };
        let remotes = Arc::clone(remotes);
        let id = ListenerId::new(self.index, slot, generation);
        while let Some((listener, _)) = self.listeners.at(slot)
            && let Some(descriptor) = listener.unplaced.pop_front()
        {
            if let Err(descriptor) = self.place(id, descriptor, &remotes) {
                if let Some((listener, _)) = self.listeners.at(slot) {
                    listener.unplaced.push_front(descriptor);
                }
                return false;
            }
            if let Some((listener, _)) = self.listeners.at(slot) {
                listener.next_retry = FIRST_RETRY;
            }
        }
        true
    }

    /// Another loop has handed over what it has accepted.
    pub(super) fn take_over(&mut self, handed_over: HandedOver) {
        let HandedOver { listener, descriptor } = handed_over;
        // The other loop's engine may want it otherwise.
        let nonblocking = self.engine.wants_nonblocking();
        if self
            .system
            .set_nonblocking(descriptor.as_fd(), nonblocking)
            .is_ok()
        {
            if self.connections.room() > 0 {
                self.adopt(listener, descriptor, false);
            } else {
                self.wait_for_connection_slot(listener, descriptor);
            }
        }
        self.memory.remote.has_come();
    }

    /// An accepted socket waits until a connection of this loop has been closed.
    pub(super) fn wait_for_connection_slot(&mut self, listener: ListenerId, descriptor: OwnedFd) {
        self.surplus_accepted.push_back((listener, descriptor));
        self.show_connections();
    }
}
