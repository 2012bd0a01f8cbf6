//! A small model beside the loop of what its user may rely on: the order of events, and what the simulator knows besides.
//!
//! A violation is a panic whose message says what came and why it must not.

use std::collections::VecDeque;

use quoit::{CloseReason, ConnectionId, Event, Token};
use quoit_event_order::EventOrder;

/// What the simulator notes of one connection.
#[derive(Debug, Default)]
pub struct Notes {
    /// Its peer, once that is known.
    pub peer: Option<usize>,
    /// The pause was given in a batch, and may find the connection at its end: then it is refused, and nothing is paused.
    pub pause_may_be_refused: bool,
    /// A close or an abort was posted, and may have been carried out.
    pub may_be_closing: bool,
    /// It was closed when everything was fair.
    pub closed_fairly: bool,
    /// It was closed for as long as the peer takes something.
    pub closed_patiently: bool,
    /// Nothing more can be sent.
    pub send_ended: bool,
    /// Data or its end came when the connection was there no more: a pause or a send came too late.
    pub came_late: bool,
    /// Files that are too short, each with the bytes that are missing, of which it has not been told yet.
    pub files_short: VecDeque<(Token, u64)>,
    /// Bytes delivered.
    pub received: u64,
}

/// One connection.
pub type Connection = quoit_event_order::Connection<Notes>;

/// What is known of a loop.
#[derive(Debug, Default)]
pub struct Reference {
    /// Its events.
    pub order: EventOrder<Notes>,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that closed, by reason: as the loop counts them.
    pub closed_by: [u64; 6],
    /// Bytes delivered in all.
    pub delivered: u64,
    /// Connections that have ended and deliver although a batch was to pause them: `Refused` tells of it.
    pub(crate) refusals_owed: Vec<ConnectionId>,
    /// There may be connections that are paused; `false`: there are none.
    pub(crate) some_paused: bool,
    /// The connection that was found last to have something before it.
    pub(crate) last_pending: Option<ConnectionId>,
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

impl Reference {
    /// A connection's queue was found full.
    pub fn full(&mut self, id: ConnectionId) {
        self.order.full(id);
    }

    /// A connection begins.
    pub fn begin(&mut self, id: ConnectionId, token: Token, established: bool, paused: bool) {
        self.some_paused |= paused;
        self.order.begin(id, token, established, paused);
    }

    /// The open connections, oldest first.
    #[must_use]
    pub fn open(&self) -> &[ConnectionId] {
        self.order.open()
    }

    /// One that is open.
    pub fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.order.find(id)
    }

    /// Checks one event that came at `now`. Returns the connection, if it has just closed.
    pub fn check(&mut self, event: &Event, now: u64) -> Option<Box<Connection>> {
        match event {
            Event::FileShort {
                connection,
                token,
                missing,
                error,
            } => {
                let state = self.find(*connection);
                let expected = state.and_then(|state| state.notes.files_short.pop_front());
                assert_eq!(
                    (expected, *error),
                    (Some((*token, *missing)), None),
                    "{event:?} is not of the next file that is too short"
                );
            }
            Event::Closed { connection, .. } => {
                if let Some(state) = self.find(*connection) {
                    state.closes_gracefully = state.notes.closed_fairly && !state.notes.may_be_closing;
                }
            }
            _ => {}
        }
        let closed = self.order.check(event, now)?;
        let Event::Closed { reason, .. } = event else {
            unreachable!("{event:?} closes nothing");
        };
        self.closed_by[reason_index(*reason)] += 1;
        assert!(
            !closed.notes.came_late || *reason != CloseReason::PeerClosed,
            "{event:?}, and its last data or end was reported when its id was stale already"
        );
        assert!(
            !closed.is_graceful(*reason) || closed.notes.files_short.is_empty(),
            "{event:?}, and a short file was not told of"
        );
        Some(closed)
    }
}
