//! `serve http`: the HTTP connections' logic on the loop's connections.

use std::time::{Duration, SystemTime};

use quoit::sys::Time;
use quoit::{CloseReason, ConnectionId, Handler, Lease, ListenerId, Loop, Refusal, Token};

use super::http::{Environment, HttpConfig, HttpConnection, Next, Phase};
use super::work::Work;

/// Bytes of responses gathered before they are queued: a few times what a burst of pipelined small responses
/// has, so that one copy carries them all.
const OUTPUT_STEP: usize = 64 * 1024;

/// How long clients may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// From a request head's first byte to its last; then 408.
    pub(super) head: Duration,
    /// Without a byte either way: between requests, within a body, or reading a response.
    pub(super) idle: Duration,
}

/// The handler: one for each loop.
pub(super) struct HttpServer {
    connections: Vec<Option<Client>>,
    environment: Environment,
    output: Vec<u8>,
    timeouts: Timeouts,
    work: Work,
}

/// What is kept for a connection.
struct Client {
    http: HttpConnection,
    /// Received and not yet consumed: waits until there is room for the response.
    rest: Option<Lease>,
    /// Produced, and refused for want of memory.
    unsent: Vec<u8>,
    /// There is more to produce.
    blocked: bool,
    closing: bool,
    /// The last time that a byte moved.
    active: Time,
    /// When the head that is incomplete now began.
    head_begun: Option<Time>,
    /// When the deadline that is set will come.
    due: Time,
}

impl HttpServer {
    pub(super) fn new(timeouts: Timeouts, work: Work, metrics: Box<dyn FnMut(&mut String)>) -> Self {
        Self {
            connections: Vec::new(),
            environment: Environment::new(HttpConfig::default(), SystemTime::now(), metrics),
            output: Vec::with_capacity(OUTPUT_STEP + 4096),
            timeouts,
            work,
        }
    }

    fn add(&mut self, quoit: &mut Loop, connection: ConnectionId) {
        let index = connection.slot().index();
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        let now = quoit.now();
        self.connections[index] = Some(Client {
            http: HttpConnection::new(),
            rest: None,
            unsent: Vec::new(),
            blocked: false,
            closing: false,
            active: now,
            head_begun: None,
            due: now + self.timeouts.idle,
        });
        // With all timers in use the connection goes without: the limit is set for two a connection.
        let _ = quoit.set_deadline(connection, Some(self.timeouts.idle));
    }

    /// Lets the connection consume what it has, and produce as much as there is room for.
    fn advance(&mut self, quoit: &mut Loop, connection: ConnectionId, ended: bool) {
        let Some(client) = self
            .connections
            .get_mut(connection.slot().index())
            .and_then(Option::as_mut)
        else {
            return;
        };
        client.active = quoit.now();
        if client.closing {
            client.rest = None;
            return;
        }
        if !client.unsent.is_empty() {
            match quoit.send(connection, client.unsent.as_slice(), Token::NONE) {
                Ok(()) => client.unsent = Vec::new(),
                Err(_) => return,
            }
        }
        let high_water = quoit.config().high_water as usize;
        let mut first = true;
        loop {
            let room = high_water
                .saturating_sub(quoit.queued(connection))
                .min(OUTPUT_STEP);
            if room == 0 {
                client.blocked = true;
                break;
            }
            self.output.clear();
            let input = client.rest.as_deref().unwrap_or_default();
            let step = if ended && std::mem::take(&mut first) {
                client
                    .http
                    .end_of_stream(input, &mut self.output, room, &mut self.environment)
            } else {
                client
                    .http
                    .receive(input, &mut self.output, room, &mut self.environment)
            };
            match &mut client.rest {
                Some(rest) if step.consumed < rest.len() => rest.advance(step.consumed),
                rest => *rest = None,
            }
            let sent = match self.output.is_empty() {
                true => Ok(()),
                false => quoit.send(connection, self.output.as_slice(), Token::NONE),
            };
            if let Err(refusal) = sent {
                if refusal == Refusal::Full {
                    client.unsent = self.output.clone();
                } else {
                    // Closing already; or longer than the high-water mark, which no response of ours may be.
                    client.closing = true;
                    let _ = quoit.abort(connection);
                    return;
                }
            }
            client.blocked = step.next == Next::NeedOutput || !client.unsent.is_empty();
            if step.next == Next::Close {
                client.closing = true;
                client.rest = None;
                if client.unsent.is_empty() {
                    let _ = quoit.close(connection, None);
                }
                return;
            }
            if step.next == Next::NeedInput || !client.unsent.is_empty() {
                break;
            }
        }
        // Nothing more is received while a response waits for room, so that what a client pipelines stays in
        // its own socket.
        let _ = if client.blocked {
            quoit.pause(connection)
        } else {
            quoit.resume(connection)
        };
        self.watch(quoit, connection);
    }

    /// Sees to it that the deadline comes in time for the phase that the connection is in.
    fn watch(&mut self, quoit: &mut Loop, connection: ConnectionId) {
        let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) else {
            return;
        };
        let now = quoit.now();
        client.head_begun = match client.http.phase() {
            Phase::Head => Some(client.head_begun.unwrap_or(now)),
            _ => None,
        };
        let due = client.due(self.timeouts);
        // A deadline that is set too early looks again when it comes, which is cheaper than moving it each time.
        if due < client.due {
            client.due = due;
            let _ = quoit.set_deadline(connection, Some(due.since(now)));
        }
    }
}

impl Client {
    fn due(&self, timeouts: Timeouts) -> Time {
        match self.head_begun {
            Some(begun) => begun + timeouts.head,
            None => self.active + timeouts.idle,
        }
    }
}

impl Handler for HttpServer {
    fn on_accepted(&mut self, quoit: &mut Loop, connection: ConnectionId, _listener: ListenerId) {
        self.add(quoit, connection);
    }

    fn on_data(&mut self, quoit: &mut Loop, connection: ConnectionId, data: Lease) {
        self.work.burn();
        let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) else {
            return;
        };
        debug_assert!(client.rest.is_none(), "nothing is received while something waits");
        client.rest = Some(data);
        self.advance(quoit, connection, false);
    }

    fn on_writable(&mut self, quoit: &mut Loop, connection: ConnectionId) {
        let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) else {
            return;
        };
        if client.closing && !client.unsent.is_empty() {
            client.active = quoit.now();
            if quoit
                .send(connection, client.unsent.as_slice(), Token::NONE)
                .is_ok()
            {
                client.unsent = Vec::new();
                let _ = quoit.close(connection, None);
            }
            return;
        }
        self.advance(quoit, connection, false);
    }

    fn on_end_of_stream(&mut self, quoit: &mut Loop, connection: ConnectionId) {
        self.advance(quoit, connection, true);
    }

    fn on_deadline(&mut self, quoit: &mut Loop, connection: ConnectionId) {
        let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) else {
            return;
        };
        let now = quoit.now();
        let due = client.due(self.timeouts);
        if due > now {
            client.due = due;
            let _ = quoit.set_deadline(connection, Some(due.since(now)));
            return;
        }
        let unread = client.blocked || quoit.queued(connection) > 0;
        client.closing = true;
        client.rest = None;
        if unread {
            // It takes nothing: a graceful close would only wait once more.
            let _ = quoit.abort(connection);
            return;
        }
        self.output.clear();
        client.http.time_out(&mut self.output, &mut self.environment);
        if !self.output.is_empty() {
            let _ = quoit.send(connection, self.output.as_slice(), Token::NONE);
        }
        let _ = quoit.close(connection, None);
    }

    fn on_closed(
        &mut self,
        _quoit: &mut Loop,
        connection: ConnectionId,
        _token: Token,
        _reason: CloseReason,
    ) {
        self.connections[connection.slot().index()] = None;
    }

    fn on_draining(&mut self, quoit: &mut Loop) {
        self.environment.start_draining();
        let idle: Vec<_> = quoit.connection_ids().collect();
        for connection in idle {
            let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) else {
                continue;
            };
            if !client.blocked && !client.closing {
                self.advance(quoit, connection, false);
            }
        }
    }

    fn on_turn_end(&mut self, _quoit: &mut Loop) {
        self.environment.set_time(SystemTime::now());
    }
}
