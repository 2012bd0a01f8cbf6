//! Accepting.
//!
//! Loops may share a listening socket, each with a registration of its own. Three things follow.
//!
//! - Registrations are `EPOLLEXCLUSIVE`, so a connection wakes one sleeping loop, not all. A loop that is awake
//!   does not stop the search for a sleeper, and finds the connection when it asks next.
//! - They are level-triggered, so what one loop leaves in the queue is told again to all that still accept;
//!   and a listener with no accept outstanding is unregistered before the kernel is asked, so that no wake goes
//!   to a loop that would not use it.
//! - The kernel offers each connection to the registrations in their order, so the loop that registered first
//!   would get all connections for which it happens to sleep. A loop that has accepted its share registers
//!   anew, which moves it to the end.
//!
//! One gap is left, and the kernel has no call to close it: if a loop is woken for a connection, and its accept
//! is cancelled or fails before it has taken that connection, a sleeping loop learns of it only with the next
//! connection or when it registers anew.

use std::os::fd::RawFd;

use super::record::Key;
use super::sys::EpollSys;
use super::{EpollEngine, bits};
use crate::engine::{Completion, Completions, is_of_one_accept};
use crate::errno::Errno;
use crate::id::Slot;
use crate::sys::SocketSys;

/// Connections that a loop accepts before the others are offered theirs first. Two calls each time, so about
/// an eighth of a call a connection.
const ACCEPTS_PER_REGISTRATION: u32 = 16;

impl<P: EpollSys, K: SocketSys> EpollEngine<P, K> {
    pub(super) fn submit_accept(&mut self, slot: Slot, descriptor: RawFd, limit: u32) {
        self.counters.accept_arms.add(1);
        let listener = self.listeners.get(slot);
        debug_assert!(limit > 0, "an accept has a limit of at least 1");
        debug_assert!(listener.remaining == 0, "one accept a listener at a time");
        listener.descriptor = descriptor;
        if !listener.watched
            && let Err(error) = self.register_listener(slot)
        {
            self.ready.push_back(Completion::Accepted {
                listener: slot,
                result: Err(error),
                more: false,
            });
            return;
        }
        let listener = self.listeners.get(slot);
        listener.remaining = limit;
        if listener.readable {
            self.list_listener(slot);
        }
    }

    /// Registers the listener. If something is queued already, the next poll says so.
    fn register_listener(&mut self, slot: Slot) -> Result<(), Errno> {
        let listener = self.listeners.get(slot);
        self.counters.system_calls.add(1);
        self.kernel.add(
            listener.descriptor,
            bits(libc::EPOLLIN | libc::EPOLLEXCLUSIVE),
            Key::listener(slot, listener.sequence).to_bits(),
        )?;
        listener.watched = true;
        listener.readable = false;
        listener.since_registered = 0;
        Ok(())
    }

    fn unregister_listener(&mut self, slot: Slot) {
        let listener = self.listeners.get(slot);
        if std::mem::take(&mut listener.watched) {
            self.counters.system_calls.add(1);
            // It fails only for what is not registered, which is what is wanted.
            let _ = self.kernel.remove(listener.descriptor);
        }
    }

    pub(super) fn unregister_idle_listeners(&mut self) {
        while let Some(key) = self.idle_listeners.pop() {
            let listener = self.listeners.get(key.slot());
            if listener.sequence == key.sequence() && listener.remaining == 0 {
                self.unregister_listener(key.slot());
            }
        }
    }

    /// Forgets the listener. It is unregistered by a call of its own, for the socket may live on in other loops,
    /// which would lose the wakes that this one got.
    pub(super) fn forget_listener(&mut self, slot: Slot) {
        debug_assert!(
            self.listeners.get(slot).remaining == 0,
            "close comes after everything else"
        );
        self.unregister_listener(slot);
        self.listeners.get(slot).forget();
    }

    pub(super) fn note_listener(&mut self, key: Key) {
        let listener = self.listeners.get(key.slot());
        if listener.sequence == key.sequence() {
            listener.readable = true;
            if listener.remaining > 0 {
                self.list_listener(key.slot());
            }
        }
    }

    fn list_listener(&mut self, slot: Slot) {
        let listener = self.listeners.get(slot);
        if !std::mem::replace(&mut listener.listed, true) {
            self.runnable.push_back(Key::listener(slot, listener.sequence));
        }
    }

    pub(super) fn cancel_accept(&mut self, slot: Slot) -> Option<Completion> {
        let listener = self.listeners.get(slot);
        if std::mem::take(&mut listener.remaining) == 0 {
            return None;
        }
        self.idle_listeners.push(Key::listener(slot, listener.sequence));
        Some(Completion::Accepted {
            listener: slot,
            result: Err(Errno::ECANCELED),
            more: false,
        })
    }

    /// Accepts what is queued, up to the limit and to this turn's share.
    #[inline(never)]
    pub(super) fn run_listener(&mut self, key: Key, completions: &mut Completions) {
        let slot = key.slot();
        let listener = self.listeners.get(slot);
        if listener.sequence != key.sequence() {
            return;
        }
        listener.listed = false;
        // What is left over the next poll tells again.
        let mut share = self.settings.accepts_per_turn.max(1);
        while listener.remaining > 0 && listener.readable && share > 0 {
            share -= 1;
            self.counters.system_calls.add(1);
            let result = match self.kernel.accept(listener.descriptor) {
                Err(Errno::EAGAIN) => {
                    listener.readable = false;
                    continue;
                }
                Err(error) if is_of_one_accept(error) => continue,
                Err(error) => {
                    // The hint stays: what could not be accepted is still there for the next attempt.
                    listener.remaining = 0;
                    Err(error)
                }
                Ok(descriptor) => {
                    listener.remaining -= 1;
                    listener.since_registered += 1;
                    Ok(descriptor)
                }
            };
            completions.push(Completion::Accepted {
                listener: slot,
                result,
                more: listener.remaining > 0,
            });
        }
        if listener.remaining == 0 {
            self.idle_listeners.push(key);
        } else if listener.since_registered >= ACCEPTS_PER_REGISTRATION {
            self.unregister_listener(slot);
            if let Err(error) = self.register_listener(slot) {
                self.listeners.get(slot).remaining = 0;
                completions.push(Completion::Accepted {
                    listener: slot,
                    result: Err(error),
                    more: false,
                });
            }
        }
    }
}
