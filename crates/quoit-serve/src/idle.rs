//! Ending connections that do nothing, for servers whose protocol has no time limits of its own.

use std::time::Duration;

use quoit::proxy_protocol::Proxied;
use quoit::{CloseReason, ConnectionId, Handler, Lease, ListenerId, Loop, Time, Token};

/// Of the timer that looks for them. The handlers inside have none.
const LOOK: Token = Token(1);
/// Looks within the time that a connection may be idle.
const LOOKS: u32 = 4;

/// A handler whose connections end once no byte has moved for a time, either way. That is noticed up to half of the time
/// late, and never early.
pub(super) struct Idle<H> {
    handler: H,
    limit: Duration,
    /// By the slot of the connection.
    watched: Vec<Option<Watched>>,
    looking: bool,
}

struct Watched {
    connection: ConnectionId,
    /// When bytes were last seen to move.
    active: Time,
    /// What the kernel told of the peer's progress when nothing had moved for a while. What is sent is not seen otherwise.
    taken: Option<u64>,
}

impl<H> Idle<H> {
    pub(super) fn new(handler: H, limit: Duration) -> Self {
        Self {
            handler,
            limit,
            watched: Vec::new(),
            looking: false,
        }
    }

    fn note(&mut self, event_loop: &Loop, connection: ConnectionId) {
        if let Some(Some(watched)) = self.watched.get_mut(connection.slot().index()) {
            watched.active = event_loop.now();
            watched.taken = None;
        }
    }

    fn look(&mut self, event_loop: &mut Loop) {
        let now = event_loop.now();
        self.looking = false;
        for watched in self.watched.iter_mut().flatten() {
            self.looking = true;
            let quiet = now.since(watched.active);
            if quiet < self.limit / LOOKS {
                continue;
            }
            let taken = event_loop.taken_by_peer(watched.connection);
            if watched.taken != taken {
                // Also at the first look: what was sent before it was not seen.
                watched.active = now;
                watched.taken = taken;
            } else if quiet >= self.limit {
                // A graceful close would wait for a peer that may be gone. A refusal means that it ends already.
                let _ = event_loop.abort(watched.connection);
            }
        }
        self.look_later(event_loop);
    }

    /// Sets the timer, as long as there is a connection.
    fn look_later(&mut self, event_loop: &mut Loop) {
        if self.looking {
            // Without a timer the next connection tries again.
            self.looking = event_loop.set_named_timer(self.limit / LOOKS, LOOK).is_ok();
        }
    }
}

/// Only what the servers inside have of their own is passed on.
impl<H: Handler> Handler for Idle<H> {
    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, listener: ListenerId) {
        let index = connection.slot().index();
        if self.watched.len() <= index {
            self.watched.resize_with(index + 1, || None);
        }
        self.watched[index] = Some(Watched {
            connection,
            active: event_loop.now(),
            taken: None,
        });
        if !self.looking {
            self.looking = true;
            self.look_later(event_loop);
        }
        self.handler.on_accepted(event_loop, connection, listener);
    }

    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        self.note(event_loop, connection);
        self.handler.on_data(event_loop, connection, data);
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        self.note(event_loop, connection);
        self.handler.on_writable(event_loop, connection);
    }

    fn on_end_of_stream(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        self.handler.on_end_of_stream(event_loop, connection);
    }

    fn on_deadline(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        self.handler.on_deadline(event_loop, connection);
    }

    fn on_closed(
        &mut self,
        event_loop: &mut Loop,
        connection: ConnectionId,
        token: Token,
        reason: CloseReason,
    ) {
        if let Some(watched) = self.watched.get_mut(connection.slot().index()) {
            *watched = None;
        }
        self.handler.on_closed(event_loop, connection, token, reason);
    }

    fn on_timer(&mut self, event_loop: &mut Loop, token: Token) {
        if token == LOOK {
            self.look(event_loop);
        }
    }

    fn on_draining(&mut self, event_loop: &mut Loop) {
        self.handler.on_draining(event_loop);
    }

    fn on_turn_end(&mut self, event_loop: &mut Loop) {
        self.handler.on_turn_end(event_loop);
    }
}

impl<H: Handler> Proxied for Idle<H> {}
