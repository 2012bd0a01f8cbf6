//! What may follow what: the tables of `quoit::event` as a state machine, checked event by event.
//!
//! The conformance suite holds real loops against it, and the simulator simulated ones. Whoever runs a loop says what was
//! asked of it, and hands over every event before acting on it. A violation is a panic whose message says what came and why
//! it must not.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quoit::{CloseReason, ConnectionId, Event, ListenerId, Token};

/// One lent send that is not acknowledged.
#[derive(Debug)]
pub struct Lent {
    /// The send's.
    pub token: Token,
    /// The last bytes of it of which parts may be told of.
    pub in_parts: u64,
    /// Whether its memory was let go of, if that is watched.
    pub free: Option<Arc<AtomicBool>>,
    /// What the program itself keeps until then.
    pub kept: Option<Box<dyn Any>>,
}

impl Lent {
    /// Of memory that nobody watches.
    #[must_use]
    pub fn unwatched(token: Token) -> Self {
        Self {
            token,
            in_parts: 0,
            free: None,
            kept: None,
        }
    }

    fn is_free(&self) -> bool {
        self.free.as_ref().is_none_or(|free| free.load(Ordering::Relaxed))
    }
}

/// What is known of one connection; `N` is what its program notes besides.
#[derive(Debug)]
pub struct Connection<N> {
    token: Token,
    /// `Accepted` or `Opened` came.
    pub established: bool,
    /// `EndOfStream` came.
    pub end_of_stream: bool,
    /// Nothing is to be delivered.
    pub paused: bool,
    /// A close or an abort was taken.
    pub closing: bool,
    /// If this end closes it, everything that was lent is acknowledged before.
    pub closes_gracefully: bool,
    /// The queue was full since the last `Writable`: one is to come.
    pub writable_owed: bool,
    /// It was told that sending has failed.
    pub send_failed: bool,
    /// Times that the queue was full, less the times that `Writable` came.
    times_full: u32,
    /// When its deadline is due, in nanoseconds, if it has one.
    pub deadline: Option<u64>,
    /// Lent sends, in order.
    pub lent: VecDeque<Lent>,
    /// The program's.
    pub notes: N,
}

impl<N> Connection<N> {
    /// Lent sends of which the acknowledgement is awaited.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.lent.iter().filter(|lent| lent.token != Token::NONE).count()
    }

    /// Whether an end for this reason is one before which everything is acknowledged.
    #[must_use]
    pub fn is_graceful(&self, reason: CloseReason) -> bool {
        match reason {
            CloseReason::PeerClosed => true,
            CloseReason::Local => self.closes_gracefully,
            _ => false,
        }
    }

    fn check_sent(&mut self, event: &Event, token: Token) {
        let in_part = |lent: &Lent| token.0 < lent.token.0 && token.0 > lent.token.0 - lent.in_parts;
        let done = if let Some(position) = self.lent.iter().position(|lent| lent.token == token) {
            position + 1
        } else if let Some(position) = self.lent.iter().position(in_part) {
            let lent = &mut self.lent[position];
            // No part is told of twice.
            lent.in_parts = lent.token.0 - token.0;
            position
        } else {
            panic!("{event:?} is of what is not, or no longer, lent: {:?}", self.lent);
        };
        for lent in self.lent.drain(..done) {
            assert!(
                lent.is_free(),
                "{event:?} came, and the memory of {:?} is held",
                lent.token
            );
        }
    }

    fn check_closed(&self, event: &Event, reason: CloseReason) {
        for lent in &self.lent {
            assert!(
                lent.is_free(),
                "{event:?}, and the memory of {:?} is still held",
                lent.token
            );
        }
        assert!(
            !self.is_graceful(reason) || self.awaited() == 0,
            "{event:?}, and these are not acknowledged: {:?}",
            self.lent
        );
    }
}

/// The connections that have had one slot.
#[derive(Debug)]
struct Occupants<N> {
    /// More than one if the end of the earlier ones has not been reported yet.
    open: Vec<(ConnectionId, Box<Connection<N>>)>,
    /// The latest is the last.
    closed: Vec<ConnectionId>,
}

impl<N> Default for Occupants<N> {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            closed: Vec::new(),
        }
    }
}

impl<N> Occupants<N> {
    fn has_closed(&self, id: ConnectionId) -> bool {
        self.closed.iter().rev().any(|&closed| closed == id)
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Connection<N>> {
        let found = self.open.iter_mut().find(|(open, _)| *open == id)?;
        Some(&mut found.1)
    }
}

/// What is known of one loop's connections, listeners and timers.
#[derive(Debug)]
pub struct EventOrder<N> {
    /// By the loop's slots, which are dense.
    slots: Vec<Occupants<N>>,
    /// Those that are open, in the order in which they began.
    open: Vec<ConnectionId>,
    listeners_closed: BTreeSet<ListenerId>,
    /// Timers that are set: when they are due, in nanoseconds.
    pub timers: BTreeMap<u64, u64>,
    draining: bool,
    /// `Drained` came.
    pub drained: bool,
}

impl<N> Default for EventOrder<N> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            open: Vec::new(),
            listeners_closed: BTreeSet::new(),
            timers: BTreeMap::new(),
            draining: false,
            drained: false,
        }
    }
}

impl<N: Default> EventOrder<N> {
    /// A connection begins: it was asked for, or an event tells of it for the first time.
    ///
    /// # Panics
    /// If its id was used before.
    pub fn begin(&mut self, id: ConnectionId, token: Token, established: bool, paused: bool) {
        let index = id.slot().get() as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Occupants::default);
        }
        let occupants = &mut self.slots[index];
        assert!(!occupants.has_closed(id), "{id:?} is used again");
        assert!(occupants.find(id).is_none(), "{id:?} begins twice");
        let connection = Connection {
            token,
            established,
            end_of_stream: false,
            paused,
            closing: false,
            closes_gracefully: false,
            writable_owed: false,
            send_failed: false,
            times_full: 0,
            deadline: None,
            lent: VecDeque::new(),
            notes: N::default(),
        };
        occupants.open.push((id, Box::new(connection)));
        self.open.push(id);
    }
}

impl<N> EventOrder<N> {
    /// The open connections, oldest first.
    #[must_use]
    pub fn open(&self) -> &[ConnectionId] {
        &self.open
    }

    /// One that is open.
    pub fn find(&mut self, id: ConnectionId) -> Option<&mut Connection<N>> {
        self.slots.get_mut(id.slot().get() as usize)?.find(id)
    }

    /// A connection's queue was found full.
    pub fn full(&mut self, id: ConnectionId) {
        if let Some(state) = self.find(id) {
            state.writable_owed = true;
            state.times_full += 1;
        }
    }

    fn state(&mut self, id: ConnectionId) -> &mut Connection<N> {
        let occupants = self.slots.get_mut(id.slot().get() as usize);
        let occupants = occupants.unwrap_or_else(|| panic!("{id:?} has never begun"));
        assert!(!occupants.has_closed(id), "{id:?} has closed, and goes on");
        occupants
            .find(id)
            .unwrap_or_else(|| panic!("{id:?} has never begun"))
    }

    /// A connection that may still receive.
    fn receiving(&mut self, id: ConnectionId, what: &str) -> &mut Connection<N> {
        let state = self.state(id);
        assert!(state.established, "{what} of {id:?} before it is established");
        assert!(!state.closing, "{what} of {id:?} after a close or an abort");
        state
    }

    /// One that may be told of anything that a close or an abort puts an end to.
    fn not_closing(&mut self, id: ConnectionId, event: &Event) -> &mut Connection<N> {
        let state = self.state(id);
        assert!(!state.closing, "{event:?} after a close or an abort");
        state
    }

    /// Checks one event that came at `now`, in nanoseconds. Returns the connection, if it has just closed.
    ///
    /// # Panics
    /// If the event may not come.
    pub fn check(&mut self, event: &Event, now: u64) -> Option<Box<Connection<N>>> {
        let of_handler = matches!(event, Event::Timer { .. } | Event::Woken | Event::Refused { .. });
        assert!(
            !self.drained || of_handler,
            "{event:?} after the loop has drained"
        );
        match event {
            Event::AcceptedDescriptor { listener, .. }
            | Event::Accepted { listener, .. }
            | Event::AcceptFailed { listener, .. } => {
                let closed = self.listeners_closed.contains(listener);
                assert!(!closed, "{event:?} after it closed");
            }
            Event::Opened { connection, token } => {
                let state = self.state(*connection);
                assert!(!state.established, "{connection:?} opens twice");
                assert_eq!(state.token, *token, "{event:?} has another's token");
                state.established = true;
            }
            Event::Data { connection, data } => {
                let state = self.receiving(*connection, "data");
                assert!(!state.paused, "data of {connection:?} while paused");
                assert!(
                    !state.end_of_stream,
                    "data of {connection:?} after the end of its stream"
                );
                assert!(!data.is_empty(), "data of no bytes");
            }
            Event::EndOfStream { connection } => {
                let state = self.receiving(*connection, "the end of the stream");
                assert!(!state.paused, "{event:?} while paused");
                assert!(!state.end_of_stream, "two ends of stream of {connection:?}");
                state.end_of_stream = true;
            }
            Event::Sent { connection, token } => self.state(*connection).check_sent(event, *token),
            Event::FileShort {
                connection,
                token,
                missing,
                ..
            } => {
                let state = self.state(*connection);
                assert!(*missing > 0, "{event:?} of a file that is not");
                if *token != Token::NONE {
                    let found = state.lent.iter().position(|lent| lent.token == *token);
                    let found =
                        found.unwrap_or_else(|| panic!("{event:?} of what is not, or no longer, sent"));
                    state.lent.remove(found);
                }
            }
            Event::Writable { connection } => {
                let state = self.not_closing(*connection, event);
                // One that was under way when the queue was full again tells of the time before.
                state.writable_owed = false;
                let left = state.times_full.checked_sub(1);
                state.times_full = left.unwrap_or_else(|| panic!("{event:?} was owed by nothing"));
            }
            Event::SendFailed { connection, .. } => {
                let state = self.not_closing(*connection, event);
                assert!(!state.send_failed, "two of them: {event:?}");
                state.send_failed = true;
            }
            Event::Pressure {
                connection: Some(connection),
            } => {
                self.receiving(*connection, "pressure");
            }
            Event::Deadline { connection } => {
                let state = self.not_closing(*connection, event);
                let due = state.deadline.take();
                assert!(due.is_some_and(|due| due <= now), "{event:?} is not due");
            }
            Event::Closed {
                connection,
                token,
                reason,
            } => {
                let state = self.state(*connection);
                assert_eq!(state.token, *token, "{event:?} has another's token");
                state.check_closed(event, *reason);
                self.open.retain(|id| id != connection);
                let occupants = &mut self.slots[connection.slot().get() as usize];
                occupants.closed.push(*connection);
                let place = occupants.open.iter().position(|(id, _)| id == connection);
                return Some(occupants.open.swap_remove(place.expect("found just now")).1);
            }
            Event::ListenerClosed { listener, .. } => {
                let first = self.listeners_closed.insert(*listener);
                assert!(first, "{listener:?} closes twice");
            }
            Event::Timer { token } => {
                let due = self
                    .timers
                    .remove(&token.0)
                    .expect("a timer fires only if it is set");
                assert!(now >= due, "{event:?} came early");
            }
            Event::Draining => assert!(!std::mem::replace(&mut self.draining, true), "drains twice"),
            Event::Drained => {
                assert!(
                    self.draining && self.open.is_empty(),
                    "drained with {:?} open",
                    self.open
                );
                self.drained = true;
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests;
