//! `serve http`: the HTTP connections' logic on the loop's connections.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use quoit::Time;
use quoit::proxy_protocol::Proxied;
use quoit::{CloseReason, ConnectionId, Handler, Lease, ListenerId, Loop, Refusal, Token};
use quoit_workload::Work;

use super::http::{Environment, HttpConfig, HttpConnection, Next, Observed, Phase};
use super::queue::{queue, room};

/// Bytes of responses gathered before they are queued: a few times what a burst of pipelined small responses
/// has, so that one copy carries them all.
const OUTPUT_STEP: usize = 64 * 1024;

/// Bytes of a body that a client must send in a second, over the time that it may be idle: as many as Kestrel asks for by
/// default (`MinRequestBodyDataRate`). One that sends a byte now and then would keep its connection for ever.
const SLOWEST_BODY: u64 = 240;

/// How long a client whose time is over is watched for taking what it was sent.
const GRACE: Duration = Duration::from_secs(1);

/// How long a connection is left alone before it is given up as the oldest of many: who connects asks at once, but where
/// many come together, all are accepted before the first of them is heard.
const HEARING: Duration = Duration::from_millis(10);

/// Of the timer that ends the time in which idle connections are kept. The handlers around this one have others.
const KEPT: Token = Token(2);

/// How long clients may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// From a request head's first byte to its last; then 408.
    pub(super) head: Duration,
    /// Without a byte either way: between requests or reading a response; and within a body with fewer than
    /// [`SLOWEST_BODY`] a second.
    pub(super) idle: Duration,
    /// Between two requests while the server drains, so that a request that is on its way is answered.
    pub(super) keep_idle: Duration,
}

/// The handler: one for each loop.
pub(super) struct HttpServer {
    connections: Vec<Option<Client>>,
    environment: Environment,
    output: Vec<u8>,
    timeouts: Timeouts,
    work: Work,
    /// The turn whose time the responses' date is of.
    dated: Option<Time>,
    /// Connections beyond which the oldest are given up.
    crowded: Option<usize>,
    /// The connections by age, if that matters, without those that are given up, and when each was accepted.
    ages: VecDeque<(ConnectionId, Time)>,
    /// Connections that the deadline of a drain has reset, of all loops.
    cut: Arc<AtomicU64>,
}

/// What is kept for a connection.
struct Client {
    http: HttpConnection,
    /// Received and not yet consumed: waits until there is room for the response.
    rest: Option<Lease>,
    /// Produced, and not queued yet for want of room or memory.
    unsent: Box<[u8]>,
    /// There is more to produce.
    blocked: bool,
    /// The client has ended its side, and the connection's logic does not know yet.
    ended: bool,
    closing: bool,
    /// It was ended by another than this handler, which learned of it when it had something to send.
    refused: bool,
    /// The last time that a byte was seen to move.
    active: Time,
    course: Course,
    /// When the deadline that is set will come.
    due: Time,
}

// What an idle connection costs is this, beside what the loop keeps for it.
const _: () = assert!(size_of::<Option<Client>>() <= 112);

/// What the limits of time look at, by the phase that the connection is in.
#[derive(Default)]
enum Course {
    #[default]
    Other,
    /// The head that is incomplete now began then.
    Head { begun: Time },
    /// Bytes of a body received since the connection was active last.
    Body { received: u64 },
    /// Its time was over, between two requests or while it was sent a response. This is what the kernel told of the client's
    /// progress then: if that changes within the grace, it reads.
    Watched { taken: u64 },
}

impl HttpServer {
    pub(super) fn new(timeouts: Timeouts, work: Work, observed: Box<dyn Observed>) -> Self {
        Self {
            connections: Vec::new(),
            environment: Environment::new(HttpConfig::default(), SystemTime::now(), observed),
            output: Vec::with_capacity(OUTPUT_STEP + 4096),
            timeouts,
            work,
            dated: None,
            crowded: None,
            ages: VecDeque::new(),
            cut: Arc::default(),
        }
    }

    /// One that counts there what a drain's deadline resets.
    pub(super) fn counting_cut(mut self, cut: Arc<AtomicU64>) -> Self {
        self.cut = cut;
        self
    }

    /// One that closes after each response, and that gives the oldest connections up when there are more than so many:
    /// whoever asks is served, however many others say nothing.
    pub(super) fn for_probes(mut self, most: usize) -> Self {
        self.crowded = Some(most);
        self.environment.close_after_each();
        self
    }

    fn add(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        let index = connection.slot().index();
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        let now = event_loop.now();
        let mut first_look = self.timeouts.idle;
        if let Some(most) = self.crowded {
            self.ages.push_back((connection, now));
            if self.ages.len() > most {
                // A turn that gives one up, if none comes before.
                first_look = first_look.min(HEARING);
            }
        }
        self.connections[index] = Some(Client {
            http: HttpConnection::new(),
            rest: None,
            unsent: Box::default(),
            blocked: false,
            ended: false,
            closing: false,
            refused: false,
            active: now,
            course: Course::Other,
            due: now + self.timeouts.idle,
        });
        // With all timers in use the connection goes without: the limit is set for two per connection.
        let _ = event_loop.set_deadline(connection, Some(first_look));
    }

    /// Gives the oldest connections up, where there are too many.
    fn make_room(&mut self, event_loop: &mut Loop) {
        let Some(most) = self.crowded else {
            return;
        };
        while self.ages.len() > most
            && let Some(&(oldest, accepted)) = self.ages.front()
            && accepted + HEARING <= event_loop.now()
        {
            self.ages.pop_front();
            // A refusal means that it ends already.
            let _ = event_loop.abort(oldest);
        }
    }

    /// Lets the connection consume what it has, and produce as much as there is room for.
    fn advance(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) else {
            return;
        };
        client.note_activity(event_loop.now(), self.timeouts);
        if client.closing {
            client.rest = None;
        }
        if !client.unsent.is_empty() {
            match client.queue_unsent(event_loop, connection) {
                Ok(true) if client.closing => {
                    // A refusal means that it closes already.
                    let _ = event_loop.close(connection, None);
                }
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    client.closing = true;
                    client.refused = true;
                    client.rest = None;
                }
            }
        }
        if client.closing {
            return;
        }
        let mut produced = false;
        loop {
            let room = room(event_loop, connection).min(OUTPUT_STEP);
            if room == 0 {
                client.blocked = true;
                break;
            }
            self.output.clear();
            let input = client.rest.as_deref().unwrap_or_default();
            let step = if mem::take(&mut client.ended) {
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
            produced |= !self.output.is_empty();
            match queue(event_loop, connection, &mut self.output) {
                Ok(()) => client.unsent = self.output.as_slice().into(),
                // It closes already, so nobody waits for the rest.
                Err(_) => {
                    client.closing = true;
                    client.refused = true;
                    client.rest = None;
                    return;
                }
            }
            client.blocked = step.next == Next::NeedOutput || !client.unsent.is_empty();
            if step.next == Next::Close {
                client.closing = true;
                client.rest = None;
                if client.unsent.is_empty() {
                    let _ = event_loop.close(connection, None);
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
            event_loop.pause(connection)
        } else {
            event_loop.resume(connection)
        };
        client.note_phase(event_loop.now(), produced);
        let due = client.due(self.timeouts);
        // A deadline that is set too early looks again when it comes, which is cheaper than moving it each time.
        if due < client.due {
            client.due = due;
            let _ = event_loop.set_deadline(connection, Some(due.since(event_loop.now())));
        }
    }

    /// Closes the connections that are between two requests, and from now on those that come to be. What the others are at
    /// goes on, and they close when it is done.
    fn close_idle(&mut self, event_loop: &mut Loop) {
        self.keep_time(event_loop);
        self.environment.close_idle();
        let connections: Vec<_> = event_loop.connection_ids().collect();
        for connection in connections {
            self.advance(event_loop, connection);
        }
    }

    /// Brings the date of the responses up to the present turn.
    fn keep_time(&mut self, event_loop: &Loop) {
        if self.dated != Some(event_loop.now()) {
            self.dated = Some(event_loop.now());
            self.environment.set_time(SystemTime::now());
        }
    }
}

impl Client {
    /// Queues what was produced earlier. Returns whether that is all of it.
    fn queue_unsent(&mut self, event_loop: &mut Loop, connection: ConnectionId) -> Result<bool, Refusal> {
        let mut unsent = mem::take(&mut self.unsent).into_vec();
        queue(event_loop, connection, &mut unsent)?;
        self.unsent = unsent.into_boxed_slice();
        Ok(self.unsent.is_empty())
    }

    /// Something has moved. Of a body it must be enough.
    fn note_activity(&mut self, now: Time, timeouts: Timeouts) {
        match &mut self.course {
            Course::Body { received } => {
                *received += self.rest.as_ref().map_or(0, |rest| rest.len() as u64);
                if *received < SLOWEST_BODY * timeouts.idle.as_secs() {
                    return;
                }
                *received = 0;
            }
            Course::Watched { .. } => self.course = Course::Other,
            Course::Head { .. } | Course::Other => {}
        }
        self.active = now;
    }

    /// Notes the phase that the connection has come to. What was `produced` just now ended any earlier head.
    fn note_phase(&mut self, now: Time, produced: bool) {
        self.course = match (self.http.phase(), mem::take(&mut self.course)) {
            (Phase::Head, course @ Course::Head { .. }) if !produced => course,
            (Phase::Head, _) => Course::Head { begun: now },
            (Phase::Body, course @ Course::Body { .. }) => course,
            (Phase::Body, _) => Course::Body { received: 0 },
            (Phase::Idle | Phase::Responding | Phase::Closed, _) => Course::Other,
        };
    }

    fn due(&self, timeouts: Timeouts) -> Time {
        match self.course {
            Course::Head { begun } => begun + timeouts.head,
            _ => self.active + timeouts.idle,
        }
    }
}

impl Proxied for HttpServer {}

impl Handler for HttpServer {
    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, _listener: ListenerId) {
        self.add(event_loop, connection);
    }

    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        self.work.burn();
        self.keep_time(event_loop);
        let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) else {
            return;
        };
        debug_assert!(client.rest.is_none(), "nothing is received while something waits");
        client.rest = Some(data);
        self.advance(event_loop, connection);
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        self.keep_time(event_loop);
        self.advance(event_loop, connection);
    }

    fn on_end_of_stream(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        self.keep_time(event_loop);
        if let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) {
            client.ended = true;
        }
        self.advance(event_loop, connection);
    }

    fn on_deadline(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        self.keep_time(event_loop);
        let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) else {
            return;
        };
        let now = event_loop.now();
        if client.due(self.timeouts) <= now && matches!(client.http.phase(), Phase::Idle | Phase::Responding)
        {
            // What it has not taken may be in the kernel's hands alone.
            let now_taken = event_loop.taken_by_peer(connection).unwrap_or_default();
            match client.course {
                Course::Watched { taken } if taken != now_taken => client.active = now,
                Course::Watched { .. } => {}
                _ => {
                    client.course = Course::Watched { taken: now_taken };
                    let grace = GRACE.min(self.timeouts.idle / 4);
                    client.due = now + grace;
                    let _ = event_loop.set_deadline(connection, Some(grace));
                    return;
                }
            }
            client.course = Course::Other;
        }
        let queued = event_loop.queued(connection);
        let due = client.due(self.timeouts);
        if due > now {
            client.due = due;
            let _ = event_loop.set_deadline(connection, Some(due.since(now)));
            return;
        }
        let unread = client.blocked || queued > 0;
        client.closing = true;
        client.rest = None;
        if unread {
            // It takes nothing: a graceful close would only wait once more.
            let _ = event_loop.abort(connection);
            return;
        }
        self.output.clear();
        client.http.time_out(&mut self.output, &mut self.environment);
        event_loop.send_or_abort(connection, self.output.as_slice(), Token::NONE);
        let _ = event_loop.close(connection, None);
    }

    fn on_closed(&mut self, _quoit: &mut Loop, connection: ConnectionId, _token: Token, reason: CloseReason) {
        if let Some(client) = self.connections.get_mut(connection.slot().index())
            && let Some(client) = client.take()
            && self.environment.is_draining()
            && (client.refused || !client.closing)
            && reason == CloseReason::Local
        {
            // It was not this handler that ended it, so it was the deadline.
            self.cut.fetch_add(1, Ordering::Relaxed);
        }
        if self.crowded.is_some() {
            self.ages.retain(|&(other, _)| other != connection);
        }
    }

    fn on_turn_end(&mut self, event_loop: &mut Loop) {
        self.make_room(event_loop);
    }

    fn on_timer(&mut self, event_loop: &mut Loop, token: Token) {
        if token == KEPT {
            self.close_idle(event_loop);
        }
    }

    fn on_draining(&mut self, event_loop: &mut Loop) {
        self.keep_time(event_loop);
        self.environment.start_draining();
        let keep = self.timeouts.keep_idle;
        // Without a timer they would be kept until the end, and be reset.
        if keep.is_zero() || event_loop.set_named_timer(keep, KEPT).is_err() {
            self.close_idle(event_loop);
        }
    }
}
