//! The table of `quoit::event` as a state machine: what may follow what. It panics at the first event that may
//! not come.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use quoit::{CloseReason, ConnectionId, Event, ListenerId, Token};

#[derive(Debug, Default)]
struct State {
    token: Token,
    established: bool,
    end_of_stream: bool,
    paused: bool,
    /// A graceful close or an abort was asked for.
    closing: bool,
    /// An abort was asked for.
    aborted: bool,
    writable_owed: bool,
    deadline: Option<Instant>,
    /// Tokens of lent sends that are not acknowledged yet, each with the bytes of it that may be told of in parts.
    lent: VecDeque<(Token, u64)>,
}

/// What is known of one loop's connections, listeners and timers.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    open: HashMap<ConnectionId, State>,
    closed: HashSet<ConnectionId>,
    listeners_closed: HashSet<ListenerId>,
    timers: HashMap<Token, Instant>,
    draining: bool,
    drained: bool,
}

impl Checker {
    /// A connection that was asked for by a method, which announces itself by no event.
    pub(crate) fn connecting(&mut self, id: ConnectionId, token: Token) {
        self.begin(id, token, false);
    }

    fn begin(&mut self, id: ConnectionId, token: Token, established: bool) {
        assert!(!self.closed.contains(&id), "{id:?} is used again");
        let state = State {
            token,
            established,
            ..State::default()
        };
        assert!(self.open.insert(id, state).is_none(), "{id:?} begins twice");
    }

    pub(crate) fn paused(&mut self, id: ConnectionId, paused: bool) {
        self.state(id).paused = paused;
    }

    pub(crate) fn closing(&mut self, id: ConnectionId) {
        self.state(id).closing = true;
    }

    pub(crate) fn aborting(&mut self, id: ConnectionId) {
        let state = self.state(id);
        state.closing = true;
        state.aborted = true;
    }

    pub(crate) fn lent(&mut self, id: ConnectionId, token: Token) {
        self.lent_with_progress(id, token, 0);
    }

    /// Of so many bytes, of which parts may be told of.
    pub(crate) fn lent_with_progress(&mut self, id: ConnectionId, token: Token, bytes: u64) {
        if token != Token::NONE {
            self.state(id).lent.push_back((token, bytes));
        }
    }

    pub(crate) fn full(&mut self, id: ConnectionId) {
        self.state(id).writable_owed = true;
    }

    pub(crate) fn deadline(&mut self, id: ConnectionId, at: Option<Instant>) {
        self.state(id).deadline = at;
    }

    pub(crate) fn timer(&mut self, token: Token, at: Option<Instant>) {
        match at {
            Some(at) => self.timers.insert(token, at),
            None => self.timers.remove(&token),
        };
    }

    fn state(&mut self, id: ConnectionId) -> &mut State {
        assert!(!self.closed.contains(&id), "{id:?} has closed, and goes on");
        self.open
            .get_mut(&id)
            .unwrap_or_else(|| panic!("{id:?} has never begun"))
    }

    /// A connection that may still receive.
    fn receiving(&mut self, id: ConnectionId, what: &str) -> &mut State {
        let state = self.state(id);
        assert!(state.established, "{what} of {id:?} before it is established");
        assert!(!state.closing, "{what} of {id:?} after a close or an abort");
        state
    }

    /// Checks one event.
    pub(crate) fn check(&mut self, event: &Event) {
        // A thread of the test may still wake the loop.
        let is_asked_for = matches!(event, Event::Woken | Event::Timer { .. } | Event::Refused { .. });
        assert!(
            !self.drained || is_asked_for,
            "{event:?} after the loop has drained"
        );
        match event {
            Event::Accepted { listener, connection } => {
                assert!(
                    !self.listeners_closed.contains(listener),
                    "{event:?} after it closed"
                );
                self.begin(*connection, Token::NONE, true);
            }
            Event::AcceptedDescriptor { listener, .. } => {
                assert!(
                    !self.listeners_closed.contains(listener),
                    "{event:?} after it closed"
                );
            }
            Event::Connecting { connection, token } => self.begin(*connection, *token, false),
            Event::Opened { connection, token } => {
                if self.open.contains_key(connection) {
                    let state = self.state(*connection);
                    assert!(!state.established, "{connection:?} opens twice");
                    assert_eq!(state.token, *token);
                    state.established = true;
                } else {
                    self.begin(*connection, *token, true);
                }
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
                assert!(
                    !state.paused,
                    "the end of the stream of {connection:?} while paused"
                );
                assert!(!state.end_of_stream, "two ends of stream of {connection:?}");
                state.end_of_stream = true;
            }
            Event::Sent { connection, token } => {
                let state = self.state(*connection);
                let found = state.lent.iter().position(|lent| lent.0 == *token);
                let in_part = |&(whole, bytes): &(Token, u64)| token.0 < whole.0 && token.0 > whole.0 - bytes;
                if let Some(position) = found {
                    state.lent.drain(..=position);
                } else if let Some(position) = state.lent.iter().position(in_part) {
                    state.lent.drain(..position);
                    let (whole, left) = &mut state.lent[0];
                    // No part is told of twice.
                    *left = whole.0 - token.0;
                } else {
                    panic!(
                        "{token:?} of {connection:?} is not, or no longer, lent: {:?}",
                        state.lent
                    );
                }
            }
            Event::FileShort {
                connection,
                token,
                missing,
                ..
            } => {
                let state = self.state(*connection);
                assert!(*missing > 0, "{event:?} of a file that is not");
                if *token != Token::NONE {
                    let found = state.lent.iter().position(|lent| lent.0 == *token);
                    let found =
                        found.unwrap_or_else(|| panic!("{event:?} of what is not, or no longer, sent"));
                    state.lent.remove(found);
                }
            }
            Event::Writable { connection } => {
                let state = self.state(*connection);
                assert!(!state.closing, "{event:?} after a close or an abort");
                assert!(
                    std::mem::take(&mut state.writable_owed),
                    "{event:?} was owed by nothing"
                );
            }
            Event::Pressure {
                connection: Some(connection),
            } => {
                self.receiving(*connection, "pressure");
            }
            Event::Deadline { connection } => {
                let state = self.state(*connection);
                assert!(!state.closing, "{event:?} after a close or an abort");
                let at = state
                    .deadline
                    .take()
                    .expect("a deadline comes only if one is set");
                assert!(Instant::now() >= at, "{event:?} came early");
            }
            Event::Closed {
                connection,
                token,
                reason,
            } => {
                let draining = self.draining;
                let state = self.state(*connection);
                assert_eq!(state.token, *token, "{event:?} has another's token");
                let gracefully = match reason {
                    CloseReason::PeerClosed => true,
                    CloseReason::Local => state.established && !state.aborted && !draining,
                    _ => false,
                };
                assert!(
                    !gracefully || state.lent.is_empty(),
                    "{event:?}, and these are not acknowledged: {:?}",
                    state.lent
                );
                self.open.remove(connection);
                self.closed.insert(*connection);
            }
            Event::ListenerClosed { listener, .. } => {
                assert!(
                    self.listeners_closed.insert(*listener),
                    "{listener:?} closes twice"
                );
            }
            Event::Timer { token } => {
                let at = self
                    .timers
                    .remove(token)
                    .expect("a timer fires only if it is set");
                assert!(Instant::now() >= at, "{event:?} came early");
            }
            Event::Draining => assert!(!std::mem::replace(&mut self.draining, true)),
            Event::Drained => {
                assert!(self.draining && self.open.is_empty(), "{:?}", self.open);
                self.drained = true;
            }
            _ => {}
        }
    }

    /// The connections that have begun and not closed.
    pub(crate) fn open(&self) -> Vec<ConnectionId> {
        self.open.keys().copied().collect()
    }

    pub(crate) fn is_open(&self, id: ConnectionId) -> bool {
        self.open.contains_key(&id)
    }
}
