//! Connecting, receiving and sending.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use super::record::{Connection, Key, Outgoing};
use super::sys::EpollSys;
use super::{EpollEngine, ROOM, bits};
use crate::address::SocketAddress;
use crate::counters::LiveCounters;
use crate::engine::{Completion, Completions, Message, Received};
use crate::errno::Errno;
use crate::id::Slot;
use crate::pool::Pool;
use crate::sys::SocketSys;

/// What connections are registered for, but for room to send.
pub(super) const WATCHED: u32 = bits(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET);
/// The events with which a receive may find something, be it an error.
const READABLE: u32 =
    bits(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLHUP | libc::EPOLLERR);
/// The events with which a short read does not mean that nothing is left: the end of the stream and errors come
/// behind the bytes, perhaps with the same edge; and a read stops before urgent data (`tcp(7)`).
const READ_ON: u32 = bits(libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLHUP | libc::EPOLLERR);
/// The events with which a send may find room, or an error.
const WRITABLE: u32 = bits(libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR);

impl<P: EpollSys, K: SocketSys> EpollEngine<P, K> {
    /// Registers the connection, if it is not. What it is ready for now comes as an event of the next poll.
    fn watch(&mut self, slot: Slot) -> Result<(), Errno> {
        let connection = self.connections.get(slot);
        if connection.watched {
            return Ok(());
        }
        self.register(slot, false)
    }

    /// As [`watch`](Self::watch), and for room to send.
    fn watch_for_room(&mut self, slot: Slot) -> Result<(), Errno> {
        let connection = self.connections.get(slot);
        if !connection.watched {
            return self.register(slot, true);
        }
        let key = Key::connection(slot, connection.sequence);
        self.watch_room(key, true)
    }

    fn register(&mut self, slot: Slot, for_room: bool) -> Result<(), Errno> {
        let connection = self.connections.get(slot);
        // Only TCP fills a read as far as its bytes go. A read from a Unix socket also stops behind a message
        // that carries descriptors, with more bytes behind it (`unix(7)`), and no edge follows.
        self.counters.system_calls.add(2);
        connection.is_tcp = self.kernel.protocol(connection.descriptor)? == libc::IPPROTO_TCP;
        let for_room = for_room || connection.is_tcp;
        let key = Key::connection(slot, connection.sequence);
        let events = if for_room { WATCHED | ROOM } else { WATCHED };
        self.kernel.add(connection.descriptor, events, key.to_bits())?;
        connection.watched = true;
        connection.watched_for_room = for_room;
        Ok(())
    }

    pub(super) fn note_connection(&mut self, key: Key, events: u32) {
        let connection = self.connections.get(key.slot());
        if connection.sequence != key.sequence() {
            return;
        }
        connection.readable |= events & READABLE != 0;
        connection.read_on |= events & READ_ON != 0;
        connection.writable |= events & WRITABLE != 0;
        if connection.can_go_on() {
            list(connection, key, &mut self.runnable);
        }
        if !connection.is_tcp && events & ROOM != 0 && !connection.waits_for_room() {
            self.stop_watching_room(key);
        }
    }

    fn list_connection(&mut self, slot: Slot) {
        let connection = self.connections.get(slot);
        let key = Key::connection(slot, connection.sequence);
        list(connection, key, &mut self.runnable);
    }

    /// Lets the connection's operations go on as far as its hints say that they can.
    ///
    /// Receiving comes before sending: whichever finds a reset takes the error with it, and after a failed send
    /// the receive would take the lost rest of the stream for its end.
    ///
    /// Returns whether the receive had waited for a slot.
    pub(super) fn run_connection(
        &mut self,
        key: Key,
        pool: &mut Pool,
        completions: &mut Completions,
    ) -> bool {
        let slot = key.slot();
        let connection = self.connections.get(slot);
        let waited = connection.waited;
        if connection.sequence != key.sequence() {
            return waited;
        }
        connection.listed = false;
        if connection.connecting && connection.writable {
            connection.connecting = false;
            self.counters.system_calls.add(1);
            let pending = self.system.take_error(connection.descriptor);
            completions.push(Completion::Connected {
                connection: slot,
                result: pending.map_or(Ok(()), Err),
            });
        }
        self.receive(slot, pool, completions);
        let mut connection = self.connections.get(slot);
        if connection.outgoing.is_something() {
            completions.list.extend(self.send(slot));
            connection = self.connections.get(slot);
        }
        if connection.can_go_on() {
            list(connection, key, &mut self.runnable);
        }
        waited
    }

    pub(super) fn submit_connect(&mut self, slot: Slot, descriptor: RawFd, address: &SocketAddress) {
        let connection = self.connections.get(slot);
        debug_assert!(!connection.is_busy(), "connecting comes first");
        connection.descriptor = descriptor;
        self.counters.system_calls.add(1);
        let result = match self.kernel.connect(descriptor, address) {
            // Registered only now: a socket that is not yet connecting reports a hang-up. Unix sockets never
            // get here, their attempts end at once. Interrupted attempts go on by themselves (`connect(2)`).
            Err(Errno::EINPROGRESS | Errno::EINTR) => {
                connection.writable = false;
                self.watch_for_room(slot).map(|()| true)
            }
            result => result.map(|()| false),
        };
        match result {
            Ok(true) => self.connections.get(slot).connecting = true,
            ended => self.ready.push_back(Completion::Connected {
                connection: slot,
                result: ended.map(|_| ()),
            }),
        }
    }

    pub(super) fn submit_discard(&mut self, slot: Slot, descriptor: RawFd) {
        // Its budget is never used up.
        self.start_receive(slot, descriptor, u32::MAX, true, false);
    }

    pub(super) fn submit_receive(&mut self, slot: Slot, descriptor: RawFd, budget: u32, waited: bool) {
        self.start_receive(slot, descriptor, budget, false, waited);
    }

    fn start_receive(&mut self, slot: Slot, descriptor: RawFd, budget: u32, discarding: bool, waited: bool) {
        self.counters.receive_arms.add(1);
        let connection = self.connections.get(slot);
        debug_assert!(budget > 0, "a receive has a budget of at least 1");
        debug_assert!(connection.budget == 0, "one receive a connection at a time");
        connection.descriptor = descriptor;
        if let Err(error) = self.watch(slot) {
            self.ready.push_back(Completion::Received {
                connection: slot,
                received: Received::Error(error),
                more: false,
            });
            return;
        }
        let connection = self.connections.get(slot);
        connection.budget = budget;
        connection.discarding = discarding;
        connection.waited = waited;
        if connection.readable {
            self.list_connection(slot);
        }
    }

    /// Reads until the socket is empty, the budget or this turn's share used up, or no slot free.
    fn receive(&mut self, slot: Slot, pool: &mut Pool, completions: &mut Completions) {
        let connection = self.connections.get(slot);
        let mut share = self.settings.receives_per_turn.max(1);
        if connection.discarding {
            return self.receive_to_discard(slot, pool, completions);
        }
        while connection.budget > 0 && connection.readable && share > 0 {
            share -= 1;
            let Some(buffer) = pool.take() else {
                self.counters.receive_no_buffers.add(1);
                connection.budget = 0;
                completions.push(Completion::Received {
                    connection: slot,
                    received: Received::NoBuffers,
                    more: false,
                });
                return;
            };
            let wanted = connection.budget.min(pool.slot_size());
            self.counters.system_calls.add(1);
            let result = self
                .kernel
                .receive(connection.descriptor, pool.address(buffer), wanted as usize);
            let received = match result {
                Ok(length) if length > 0 => {
                    // No more than was asked for, so it has 32 bits.
                    let length = length as u32;
                    connection.waited = false;
                    connection.budget -= length;
                    connection.readable = length == wanted || connection.read_on || !connection.is_tcp;
                    Received::Data { slot: buffer, length }
                }
                nothing => {
                    pool.give_back(buffer);
                    match nothing {
                        Err(Errno::EAGAIN) => {
                            connection.readable = false;
                            connection.read_on = false;
                            return;
                        }
                        Err(Errno::EINTR) => continue,
                        Err(error) => {
                            connection.budget = 0;
                            Received::Error(error)
                        }
                        Ok(_) => {
                            connection.budget = 0;
                            Received::End
                        }
                    }
                }
            };
            completions.push(Completion::Received {
                connection: slot,
                received,
                more: connection.budget > 0,
            });
        }
    }

    /// As [`receive`](Self::receive), of what nobody wants.
    #[cold]
    fn receive_to_discard(&mut self, slot: Slot, pool: &mut Pool, completions: &mut Completions) {
        let connection = self.connections.get(slot);
        let mut share = self.settings.receives_per_turn.max(1);
        while connection.budget > 0 && connection.readable && share > 0 {
            share -= 1;
            let (address, length) = pool.discard();
            self.counters.system_calls.add(1);
            let result = self
                .kernel
                .receive(connection.descriptor, address, length as usize);
            let received = match result {
                Ok(0) => Received::End,
                // A short read may be followed by more, or by the end: the next one tells.
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    connection.readable = false;
                    connection.read_on = false;
                    return;
                }
                Err(error) => Received::Error(error),
            };
            connection.budget = 0;
            completions.push(Completion::Received {
                connection: slot,
                received,
                more: false,
            });
        }
    }

    pub(super) fn submit_send(&mut self, slot: Slot, descriptor: RawFd, outgoing: Outgoing) {
        self.counters.sends.add(1);
        self.counters.send_pieces.add(outgoing.pieces());
        let connection = self.connections.get(slot);
        debug_assert!(
            !connection.outgoing.is_something(),
            "one send a connection at a time"
        );
        connection.descriptor = descriptor;
        connection.outgoing = outgoing;
        if let Some(completion) = self.send(slot) {
            self.ready.push_back(completion);
        } else if self.connections.get(slot).can_go_on() {
            self.list_connection(slot);
        }
    }

    /// Sends, if nothing waits to be sent on the connection and its socket is not known to be full.
    pub(super) fn send_message_at_once(
        &mut self,
        slot: Slot,
        descriptor: RawFd,
        message: &mut Message,
    ) -> Option<Result<usize, Errno>> {
        let connection = self.connections.get(slot);
        debug_assert!(
            !connection.outgoing.is_something(),
            "one send a connection at a time"
        );
        if !connection.writable {
            return None;
        }
        self.counters.system_calls.add(1);
        let (result, wanted, pieces) = match message {
            Message::Single { address, length } => {
                let result = self.kernel.send(descriptor, *address, *length as usize);
                (result, u64::from(*length), 1)
            }
            Message::Gathered(gather) => {
                let result = self.kernel.send_message(descriptor, gather.seal());
                (result, gather.bytes(), gather.pieces.len() as u64)
            }
        };
        let result = judge(&self.counters, &mut connection.writable, wanted, false, result)?;
        self.counters.submissions.add(1);
        self.counters.completions.add(1);
        self.counters.sends.add(1);
        self.counters.send_pieces.add(pieces);
        Some(result)
    }

    /// Tries the outstanding send, if the socket is not known to be full, and otherwise sees to it that the kernel tells when it is not.
    /// Returns how it ended; `None` if it goes on or there is none.
    #[inline(never)]
    fn send(&mut self, slot: Slot) -> Option<Completion> {
        let connection = self.connections.get(slot);
        if !connection.writable {
            let error = self.watch_for_room(slot).err()?;
            return self.end_send(slot, Err(error));
        }
        let descriptor = connection.descriptor;
        let wanted = connection.outgoing.length();
        let result = match &mut connection.outgoing {
            Outgoing::Nothing => return None,
            Outgoing::Single { address, length } => self.kernel.send(descriptor, *address, *length as usize),
            Outgoing::Gathered(gather) => self.kernel.send_message(descriptor, gather.seal()),
            Outgoing::File { file, offset, length } => {
                self.system.send_file(descriptor, *file, *offset, *length)
            }
        };
        self.counters.system_calls.add(1);
        let from_file = matches!(connection.outgoing, Outgoing::File { .. });
        let writable = &mut connection.writable;
        let result = match judge(&self.counters, writable, wanted, from_file, result) {
            Some(result) => result,
            None if *writable => return None,
            None => Err(self.watch_for_room(slot).err()?),
        };
        self.end_send(slot, result)
    }

    /// Ends the outstanding send, if there is one.
    pub(super) fn end_send(&mut self, slot: Slot, result: Result<usize, Errno>) -> Option<Completion> {
        let outgoing = std::mem::take(&mut self.connections.get(slot).outgoing);
        outgoing.is_something().then(|| Completion::Sent {
            connection: slot,
            result,
            gather: outgoing.into_gather(),
            held: false,
        })
    }
}

/// Lists a connection, of which this is the key, among those that can go on.
#[inline]
fn list(connection: &mut Connection, key: Key, runnable: &mut VecDeque<Key>) {
    if !std::mem::replace(&mut connection.listed, true) {
        if connection.waited {
            runnable.push_front(key);
        } else {
            runnable.push_back(key);
        }
    }
}

/// What an attempt to send `wanted` bytes says of the socket. Returns how the send ended; `None` if nothing was sent.
#[inline]
fn judge(
    counters: &LiveCounters,
    writable: &mut bool,
    wanted: u64,
    from_file: bool,
    result: Result<usize, Errno>,
) -> Option<Result<usize, Errno>> {
    match result {
        Err(Errno::EAGAIN) => {
            *writable = false;
            return None;
        }
        Err(Errno::EINTR) => return None,
        Ok(taken) => {
            counters.sent_bytes.add(taken as u64);
            if (taken as u64) < wanted {
                counters.short_sends.add(1);
                // Less than all means that the socket is full, and that an edge will say when it is not.
                // A file may have ended as well, or come in parts: then nothing but EAGAIN promises an edge.
                *writable = from_file;
            }
        }
        Err(_) => {}
    }
    Some(result)
}
