//! What a loop's user may rely on, as a small model beside the loop: the tables of `quoit::event`, checked event by
//! event.
//!
//! A violation is a panic whose message says what came and why it must not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quoit::{CloseReason, ConnectionId, Event, ListenerId, Token};

use crate::handler::Memory;

/// One lent send that is not acknowledged.
#[derive(Debug)]
pub struct Lent {
    /// The send's.
    pub token: Token,
    /// Whether its memory was let go of.
    pub free: Arc<AtomicBool>,
    /// Memory that the program itself keeps until then.
    #[expect(dead_code, reason = "it is there to be dropped")]
    pub(crate) kept: Option<Memory>,
}

impl Lent {
    /// Of memory that lives for ever.
    pub(crate) fn of_nobody(token: Token) -> Self {
        Self {
            token,
            free: Arc::new(AtomicBool::new(true)),
            kept: None,
        }
    }
}

/// What is known of one connection.
#[derive(Debug)]
pub struct Connection {
    /// Its peer, once that is known.
    pub peer: Option<usize>,
    token: Token,
    /// `Accepted` or `Opened` came.
    pub established: bool,
    /// `EndOfStream` came.
    pub end_of_stream: bool,
    /// Nothing is to be delivered.
    pub paused: bool,
    /// The pause was given in a batch, and may find the connection at its end: then it is refused, and nothing is paused.
    pub pause_may_be_refused: bool,
    /// A close or an abort was taken.
    pub closing: bool,
    /// One was posted, and may have been carried out.
    pub may_be_closing: bool,
    /// It was closed when everything was fair.
    pub closed_fairly: bool,
    /// It was closed for as long as the peer takes something.
    pub closed_patiently: bool,
    /// Nothing more can be sent.
    pub send_ended: bool,
    /// Whether the queue was full since the last `Writable`: one is to come.
    pub writable_owed: bool,
    /// Times that the queue was full, less the times that `Writable` came.
    pub times_full: u32,
    /// When its deadlines are due: the last one that was set, and earlier ones that may have fired before that.
    pub deadlines: Vec<u64>,
    /// Data or its end came when the connection was there no more: a pause or a send came too late.
    pub came_late: bool,
    /// Lent sends, in order.
    pub lent: VecDeque<Lent>,
    /// Files that are too short, each with the bytes that are missing, of which it has not been told yet.
    pub files_short: VecDeque<(Token, u64)>,
    /// Bytes delivered.
    pub received: u64,
}

impl Connection {
    /// Lent sends of which the acknowledgement is awaited.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.lent.iter().filter(|lent| lent.token != Token::NONE).count()
    }
}

/// The connections that have had one slot.
#[derive(Debug, Default)]
struct Occupants {
    /// More than one if the end of the earlier ones has not been reported yet.
    open: Vec<(ConnectionId, Box<Connection>)>,
    /// The latest is the last.
    closed: Vec<ConnectionId>,
}

/// What is known of a loop.
#[derive(Debug, Default)]
pub struct Reference {
    /// By the loop's slots, which are dense.
    slots: Vec<Occupants>,
    /// Those that are open, in the order in which they began.
    order: Vec<ConnectionId>,
    listeners_closed: BTreeSet<ListenerId>,
    /// Timers that are set: when they are due.
    pub timers: BTreeMap<u64, u64>,
    draining: bool,
    /// `Drained` came.
    pub drained: bool,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that closed, by reason: as the loop counts them.
    pub closed_by: [u64; 6],
    /// Bytes delivered in all.
    pub delivered: u64,
    /// Connections that have ended and deliver although a batch was to pause them: `Refused` tells of it, as stale.
    pub(crate) refusals_owed: Vec<ConnectionId>,
    /// There may be connections that are paused; `false`: there are none.
    pub(crate) some_paused: bool,
    /// The connection that was found last to have something before it.
    pub(crate) unsettled: Option<ConnectionId>,
}

/// The place of a reason in [`Reference::closed_by`].
fn reason_index(reason: CloseReason) -> usize {
    match reason {
        CloseReason::Local => 0,
        CloseReason::PeerClosed => 1,
        CloseReason::Reset => 2,
        CloseReason::Timeout => 3,
        CloseReason::Limit => 4,
        CloseReason::Error(_) => 5,
    }
}

impl Occupants {
    fn has_closed(&self, id: ConnectionId) -> bool {
        self.closed.iter().rev().any(|&closed| closed == id)
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let found = self.open.iter_mut().find(|(open, _)| *open == id)?;
        Some(&mut found.1)
    }
}

impl Reference {
    /// A connection's queue was found full.
    pub fn full(&mut self, id: ConnectionId) {
        if let Some(state) = self.find(id) {
            state.writable_owed = true;
            state.times_full += 1;
        }
    }

    /// A connection begins.
    pub fn begin(&mut self, id: ConnectionId, token: Token, established: bool, paused: bool) {
        let index = id.slot().get() as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Occupants::default);
        }
        let occupants = &mut self.slots[index];
        self.some_paused |= paused;
        assert!(!occupants.has_closed(id), "{id:?} is used again");
        assert!(occupants.find(id).is_none(), "{id:?} begins twice");
        let connection = Connection {
            peer: None,
            token,
            established,
            end_of_stream: false,
            paused,
            pause_may_be_refused: false,
            closing: false,
            may_be_closing: false,
            closed_fairly: false,
            closed_patiently: false,
            send_ended: false,
            writable_owed: false,
            times_full: 0,
            deadlines: Vec::new(),
            came_late: false,
            lent: VecDeque::new(),
            files_short: VecDeque::new(),
            received: 0,
        };
        occupants.open.push((id, Box::new(connection)));
        self.order.push(id);
    }

    /// The open connections, oldest first.
    #[must_use]
    pub fn open(&self) -> &[ConnectionId] {
        &self.order
    }

    /// One that is open.
    pub fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(id.slot().get() as usize)?.find(id)
    }

    fn state(&mut self, id: ConnectionId) -> &mut Connection {
        let occupants = self.slots.get_mut(id.slot().get() as usize);
        let occupants = occupants.unwrap_or_else(|| panic!("{id:?} has never begun"));
        assert!(!occupants.has_closed(id), "{id:?} has closed, and goes on");
        occupants
            .find(id)
            .unwrap_or_else(|| panic!("{id:?} has never begun"))
    }

    fn receiving(&mut self, id: ConnectionId, what: &str) -> &mut Connection {
        let state = self.state(id);
        assert!(state.established, "{what} of {id:?} before it is established");
        assert!(!state.closing, "{what} of {id:?} after it was closed");
        state
    }

    /// Checks one event that came at `now`. Answers the connection, if it has just closed.
    pub fn check(&mut self, event: &Event, now: u64) -> Option<Box<Connection>> {
        let of_handler = matches!(event, Event::Timer { .. } | Event::Woken | Event::Refused { .. });
        assert!(
            !self.drained || of_handler,
            "{event:?} after the loop has drained"
        );
        match event {
            Event::AcceptedDescriptor { listener, .. } | Event::Accepted { listener, .. } => {
                assert!(
                    !self.listeners_closed.contains(listener),
                    "{event:?} after it closed"
                );
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
                assert!(
                    !state.paused,
                    "the end of the stream of {connection:?} while paused"
                );
                assert!(!state.end_of_stream, "two ends of stream of {connection:?}");
                state.end_of_stream = true;
            }
            Event::Sent { connection, token } => self.check_sent(*connection, *token),
            Event::FileShort {
                connection,
                token,
                missing,
                error,
            } => {
                let state = self.state(*connection);
                assert_eq!(
                    (state.files_short.pop_front(), *error),
                    (Some((*token, *missing)), None),
                    "{event:?} is not of the next file that is too short"
                );
                if *token != Token::NONE {
                    state.lent.retain(|lent| lent.token != *token);
                }
            }
            Event::AcceptFailed { listener, .. } => {
                assert!(
                    !self.listeners_closed.contains(listener),
                    "{event:?} after it closed"
                );
            }
            Event::Writable { connection } => {
                let state = self.state(*connection);
                assert!(!state.closing, "{event:?} after it was closed");
                // One that was under way when the queue was full again tells of the time before.
                state.writable_owed = false;
                let left = state.times_full.checked_sub(1);
                state.times_full = left.unwrap_or_else(|| panic!("{event:?} was owed by nothing"));
            }
            Event::Pressure {
                connection: Some(connection),
            } => {
                self.receiving(*connection, "pressure");
            }
            Event::Deadline { connection } => {
                let state = self.state(*connection);
                assert!(!state.closing, "{event:?} after it was closed");
                let due = state.deadlines.iter().position(|&due| due <= now);
                state
                    .deadlines
                    .swap_remove(due.unwrap_or_else(|| panic!("{event:?} is not due")));
            }
            Event::Closed {
                connection,
                token,
                reason,
            } => {
                let state = self.state(*connection);
                assert_eq!(state.token, *token, "{event:?} has another's token");
                self.closed_by[reason_index(*reason)] += 1;
                self.order.retain(|id| id != connection);
                let occupants = &mut self.slots[connection.slot().get() as usize];
                occupants.closed.push(*connection);
                let place = occupants.open.iter().position(|(id, _)| id == connection);
                let (_, state) = occupants.open.swap_remove(place.expect("found just now"));
                for lent in &state.lent {
                    let free = lent.free.load(Ordering::Relaxed);
                    assert!(
                        free,
                        "{event:?}, and the memory of {:?} is still held",
                        lent.token
                    );
                }
                assert!(
                    !state.came_late || *reason != CloseReason::PeerClosed,
                    "{event:?}, and its last data or end was reported when its id was stale already"
                );
                let gracefully = match reason {
                    CloseReason::PeerClosed => true,
                    CloseReason::Local => state.closed_fairly && !state.may_be_closing,
                    _ => false,
                };
                assert!(
                    !gracefully || (state.awaited() == 0 && state.files_short.is_empty()),
                    "{event:?}, and lent memory is not acknowledged, or a short file not told of"
                );
                return Some(state);
            }
            Event::ListenerClosed { listener, .. } => {
                assert!(
                    self.listeners_closed.insert(*listener),
                    "{listener:?} closes twice"
                );
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
                    self.draining && self.order.is_empty(),
                    "drained with {:?} open",
                    self.order
                );
                self.drained = true;
            }
            _ => {}
        }
        None
    }

    fn check_sent(&mut self, id: ConnectionId, token: Token) {
        let state = self.state(id);
        let position = state.lent.iter().position(|lent| lent.token == token);
        let position = position.unwrap_or_else(|| panic!("{token:?} of {id:?} is not, or no longer, lent"));
        for lent in state.lent.drain(..=position) {
            let free = lent.free.load(Ordering::Relaxed);
            assert!(
                free,
                "{token:?} of {id:?} is acknowledged, and the memory of {:?} held",
                lent.token
            );
        }
    }
}
