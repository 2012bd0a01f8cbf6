//! Runs a loop turn by turn in the test's own thread and records what happens, every event checked.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quoit::internals::sys::Linux;
use quoit::internals::sys::SocketSys;
use quoit::{
    Accept, Address, AttachOptions, CloseReason, Command, Config, ConnectOptions, ConnectionId, Errno, Event,
    Events, Lease, ListenerId, ListenerOptions, Loop, LoopIndex, Payload, RawPieces, Refusal, Token,
};
use quoit_event_order::{EventOrder, Lent};

use crate::counts;
use crate::levels::Level;
use crate::sockets::{Client, PATIENCE};

/// What has happened to one connection.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) listener: Option<ListenerId>,
    pub(crate) opened: bool,
    pub(crate) received: Vec<u8>,
    pub(crate) total: u64,
    pub(crate) ended: bool,
    pub(crate) sent: Vec<Token>,
    /// Files that were too short, each with the bytes that are missing.
    pub(crate) files_short: Vec<(Token, u64, Option<Errno>)>,
    pub(crate) send_failed: Option<Errno>,
    pub(crate) writable: u32,
    pub(crate) pressure: u32,
    pub(crate) deadlines: u32,
    pub(crate) closed: Option<CloseReason>,
}

/// What to do with received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnData {
    /// Copy them into [`Seen::received`] and return the lease.
    Record,
    /// As [`OnData::Record`], but keep the leases in [`Driver::held`].
    Hold,
    /// Send the leases back, pausing while the queue is full.
    Echo,
    /// Count the bytes only.
    Count,
}

/// A loop and what it has reported.
pub(crate) struct Driver {
    pub(crate) event_loop: Loop,
    pub(crate) on_data: OnData,
    pub(crate) held: VecDeque<(ConnectionId, Lease)>,
    pub(crate) accepted: VecDeque<ConnectionId>,
    pub(crate) descriptors: Vec<OwnedFd>,
    pub(crate) refusals: Vec<(Token, Option<ConnectionId>, Refusal)>,
    pub(crate) timers: Vec<Token>,
    pub(crate) woken: u32,
    pub(crate) pool_pressure: u32,
    pub(crate) listeners_closed: Vec<(ListenerId, Option<Errno>)>,
    pub(crate) draining: bool,
    pub(crate) drained: bool,
    seen: HashMap<ConnectionId, Seen>,
    events: Events,
    /// Every event goes through it.
    order: EventOrder<()>,
    idle_in_flight: u64,
    /// What an echo could not send yet.
    backlog: HashMap<ConnectionId, VecDeque<Lease>>,
}

/// Runs `body` on a loop of this level.
pub(crate) fn drive(level: &Level, body: impl FnOnce(&mut Driver)) {
    drive_with(level, |_| (), body);
}

/// Runs `body` on a loop of this level with a changed configuration. Afterwards nothing may be left of what the
/// loop lent or began.
pub(crate) fn drive_with(level: &Level, tune: impl FnOnce(&mut Config), body: impl FnOnce(&mut Driver)) {
    let mut config = level.config();
    tune(&mut config);
    let mut driver = Driver::new(config);
    body(&mut driver);
    driver.finish();
}

impl Driver {
    pub(crate) fn new(config: Config) -> Self {
        Self::numbered(0, config)
    }

    pub(crate) fn numbered(index: u16, config: Config) -> Self {
        let engine = config.engine;
        let event_loop = Loop::new(LoopIndex::new(index).unwrap(), config).unwrap();
        assert_eq!(engine, quoit::EngineChoice::Require(event_loop.engine()));
        let mut driver = Self {
            event_loop,
            on_data: OnData::Record,
            held: VecDeque::new(),
            accepted: VecDeque::new(),
            descriptors: Vec::new(),
            refusals: Vec::new(),
            timers: Vec::new(),
            woken: 0,
            pool_pressure: 0,
            listeners_closed: Vec::new(),
            draining: false,
            drained: false,
            seen: HashMap::new(),
            events: Events::with_capacity(256),
            order: EventOrder::default(),
            idle_in_flight: 0,
            backlog: HashMap::new(),
        };
        driver.turn(Duration::ZERO);
        driver.idle_in_flight = driver.event_loop.counters().in_flight;
        driver
    }

    /// How many events one turn may report.
    pub(crate) fn set_event_room(&mut self, capacity: usize) {
        self.events = Events::with_capacity(capacity);
    }

    /// One turn, its events checked and recorded. Returns how many there were.
    pub(crate) fn turn(&mut self, timeout: Duration) -> usize {
        self.turn_with([], timeout)
    }

    pub(crate) fn turn_with<'a>(
        &mut self,
        commands: impl IntoIterator<Item = Command<'a>>,
        timeout: Duration,
    ) -> usize {
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(1));
        let count = self
            .event_loop
            .turn(commands, &mut events, Some(timeout))
            .unwrap();
        assert_eq!(count, events.len());
        for event in events.iter() {
            self.check(event);
        }
        for event in events.drain() {
            self.record(event);
        }
        self.events = events;
        count
    }

    /// Holds an event against what may come.
    fn check(&mut self, event: &Event) {
        match *event {
            Event::Accepted { connection, .. } => self.order.begin(connection, Token::NONE, true, false),
            Event::Connecting { connection, token } => self.order.begin(connection, token, false, false),
            Event::Opened { connection, token } if !self.is_open(connection) => {
                self.order.begin(connection, token, false, false);
            }
            // From now on this end closes them when it has no time left.
            Event::Draining => {
                for id in self.order.open().to_vec() {
                    self.ordered(id).closes_gracefully = false;
                }
            }
            _ => {}
        }
        self.order.check(event, self.event_loop.now().as_nanos());
    }

    fn ordered(&mut self, connection: ConnectionId) -> &mut quoit_event_order::Connection<()> {
        self.order.find(connection).expect("it is open")
    }

    fn record(&mut self, event: Event) {
        match event {
            Event::Accepted { listener, connection } => {
                self.seen.insert(
                    connection,
                    Seen {
                        listener: Some(listener),
                        opened: true,
                        ..Seen::default()
                    },
                );
                self.accepted.push_back(connection);
            }
            Event::AcceptedDescriptor { descriptor, .. } => self.descriptors.push(descriptor),
            Event::Connecting { connection, .. } => {
                self.seen.insert(connection, Seen::default());
            }
            Event::Opened { connection, .. } => self.seen.entry(connection).or_default().opened = true,
            Event::Data { connection, data } => self.record_data(connection, data),
            Event::EndOfStream { connection } => {
                self.of(connection).ended = true;
                if self.on_data == OnData::Echo && !self.backlog.contains_key(&connection) {
                    // It may have failed at the same moment.
                    let _ = self.shutdown(connection);
                }
            }
            Event::Sent { connection, token } => self.of(connection).sent.push(token),
            Event::FileShort {
                connection,
                token,
                missing,
                error,
            } => self.of(connection).files_short.push((token, missing, error)),
            Event::SendFailed { connection, error } => self.of(connection).send_failed = Some(error),
            Event::Writable { connection } => {
                self.of(connection).writable += 1;
                self.echo_backlog(connection);
            }
            Event::Pressure {
                connection: Some(connection),
            } => self.of(connection).pressure += 1,
            Event::Pressure { connection: None } => self.pool_pressure += 1,
            Event::Deadline { connection } => self.of(connection).deadlines += 1,
            Event::Closed {
                connection, reason, ..
            } => self.of(connection).closed = Some(reason),
            Event::ListenerClosed { listener, error } => self.listeners_closed.push((listener, error)),
            Event::Refused {
                token,
                connection,
                refusal,
            } => self.refusals.push((token, connection, refusal)),
            Event::Timer { token } => self.timers.push(token),
            Event::Woken => self.woken += 1,
            Event::Draining => self.draining = true,
            Event::Drained => self.drained = true,
            other => panic!("unknown to this suite: {other:?}"),
        }
    }

    fn record_data(&mut self, connection: ConnectionId, data: Lease) {
        let on_data = self.on_data;
        let seen = self.of(connection);
        seen.total += data.len() as u64;
        match on_data {
            OnData::Record => seen.received.extend_from_slice(&data),
            OnData::Hold => {
                seen.received.extend_from_slice(&data);
                self.held.push_back((connection, data));
            }
            OnData::Count => {}
            OnData::Echo => {
                self.backlog.entry(connection).or_default().push_back(data);
                self.echo_backlog(connection);
            }
        }
    }

    /// Sends back what was received, as far as it is taken, and receives more only when all of it was.
    fn echo_backlog(&mut self, connection: ConnectionId) {
        let Some(mut backlog) = self.backlog.remove(&connection) else {
            return;
        };
        while let Some(lease) = backlog.pop_front() {
            if self.event_loop.is_full(connection) {
                backlog.push_front(lease);
                // Refused by one that is ending: nobody takes what is left.
                if self.pause(connection).is_ok() {
                    self.backlog.insert(connection, backlog);
                }
                return;
            }
            if self.send(connection, lease, Token::NONE).is_err() {
                // The connection has ended meanwhile; its end is on the way.
                return;
            }
        }
        let resumed = self.resume(connection).is_ok();
        if resumed && self.seen(connection).ended {
            // It may have failed at the same moment.
            let _ = self.shutdown(connection);
        }
    }

    fn of(&mut self, connection: ConnectionId) -> &mut Seen {
        self.seen.entry(connection).or_default()
    }

    pub(crate) fn seen(&self, connection: ConnectionId) -> &Seen {
        &self.seen[&connection]
    }

    pub(crate) fn is_open(&self, connection: ConnectionId) -> bool {
        self.order.open().contains(&connection)
    }

    /// All bytes of the loop, both ways.
    fn bytes_moved(&self) -> u64 {
        let counters = self.event_loop.counters();
        counters.sent_bytes + counters.received_bytes
    }

    /// Turns until `condition` holds.
    pub(crate) fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let mut moved = self.bytes_moved();
        let mut since = Instant::now();
        while !condition(self) {
            if self.bytes_moved() != moved {
                // Slow is not stuck: gibibytes take their time on a machine that has other work.
                moved = self.bytes_moved();
                since = Instant::now();
            }
            assert!(
                since.elapsed() < PATIENCE,
                "still waiting: {what}\n{:?}\n{:?}",
                self.seen
                    .iter()
                    .filter(|(id, _)| self.is_open(**id))
                    .map(|(id, seen)| (id, seen.total, seen.ended, seen.writable, seen.pressure))
                    .collect::<Vec<_>>(),
                self.event_loop.counters()
            );
            self.turn(Duration::from_millis(5));
        }
    }

    /// Turns as a server does, with no time limit to speak of, until `condition` holds: whatever makes it hold
    /// must itself wake the loop.
    pub(crate) fn until_woken(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        while !condition(self) {
            let started = Instant::now();
            self.turn(PATIENCE);
            assert!(started.elapsed() < PATIENCE, "nothing woke the loop: {what}");
        }
    }

    /// Turns, not waiting long, until `quiet` turns in a row have reported nothing.
    pub(crate) fn until_quiet(&mut self) {
        self.until("nothing more happens", |driver| {
            driver.turn(Duration::from_millis(5)) == 0 && driver.turn(Duration::from_millis(5)) == 0
        });
    }

    /// Runs a client beside the loop.
    pub(crate) fn beside<T: Send + 'static>(
        &self,
        client: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let remote = self.event_loop.remote();
        std::thread::spawn(move || {
            let result = client();
            remote.wake();
            result
        })
    }

    /// Turns until a client is done.
    pub(crate) fn join<T>(&mut self, client: JoinHandle<T>) -> T {
        self.until("the client ends", |_| client.is_finished());
        client
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    pub(crate) fn listen_on(
        &mut self,
        address: &Address,
        options: &ListenerOptions,
    ) -> (ListenerId, Address) {
        let listener = self.event_loop.listen(address, options).unwrap();
        (listener, self.event_loop.listener_address(listener).unwrap())
    }

    pub(crate) fn listen(&mut self) -> Address {
        self.listen_as(Accept::Connections).1
    }

    pub(crate) fn listen_as(&mut self, accept: Accept) -> (ListenerId, Address) {
        let options = ListenerOptions {
            accept,
            ..ListenerOptions::default()
        };
        self.listen_on(&loopback(), &options)
    }

    pub(crate) fn accept(&mut self) -> ConnectionId {
        self.until("a connection is accepted", |driver| !driver.accepted.is_empty());
        self.accepted.pop_front().unwrap()
    }

    /// A client and this loop's end of its connection.
    pub(crate) fn pair(&mut self, address: &Address) -> (Client, ConnectionId) {
        let client = Client::connect(address);
        (client, self.accept())
    }

    /// A listener of its own for one connection.
    pub(crate) fn new_pair(&mut self) -> (Client, ConnectionId) {
        let address = self.listen();
        self.pair(&address)
    }

    pub(crate) fn connect(
        &mut self,
        address: &Address,
        options: &ConnectOptions,
        token: u64,
    ) -> ConnectionId {
        let id = self.event_loop.connect(address, options, Token(token)).unwrap();
        self.connecting(id, token)
    }

    pub(crate) fn connect_on(&mut self, socket: OwnedFd, address: &Address, token: u64) -> ConnectionId {
        let options = ConnectOptions::default();
        let connecting = self
            .event_loop
            .connect_on(socket, address, &options, Token(token));
        self.connecting(connecting.unwrap(), token)
    }

    fn connecting(&mut self, id: ConnectionId, token: u64) -> ConnectionId {
        self.order.begin(id, Token(token), false, false);
        self.seen.insert(id, Seen::default());
        id
    }

    pub(crate) fn attach(&mut self, descriptor: OwnedFd, paused: bool) -> ConnectionId {
        let options = AttachOptions {
            paused,
            accepted_by: None,
        };
        let id = self.event_loop.attach(descriptor, &options, Token(77)).unwrap();
        self.until("it is attached", |driver| {
            driver.seen.get(&id).is_some_and(|seen| seen.opened)
        });
        self.ordered(id).paused = paused;
        id
    }

    pub(crate) fn send<'a>(
        &mut self,
        id: ConnectionId,
        payload: impl Into<Payload<'a>>,
        token: Token,
    ) -> Result<(), Refusal> {
        let payload = payload.into();
        let lent = !matches!(payload, Payload::Copy(_));
        let result = self.event_loop.send(id, payload, token);
        self.note_send(id, lent.then_some(token), result);
        result
    }

    /// Sends what the loop has no room for, and so lets the connection be aborted.
    pub(crate) fn send_or_abort_refused<'a>(&mut self, id: ConnectionId, payload: impl Into<Payload<'a>>) {
        assert!(!self.event_loop.send_or_abort(id, payload, Token(99)));
        self.note_abort(id);
    }

    /// Notes what a send promised: `lent` is the token of memory that is to be acknowledged.
    fn note_send(&mut self, id: ConnectionId, lent: Option<Token>, result: Result<(), Refusal>) {
        match (result, lent) {
            (Ok(()), Some(token)) => self.lend(id, token, 0),
            (Err(Refusal::Full), _) => self.note_full(id),
            _ => {}
        }
        if result.is_ok() && self.event_loop.is_full(id) {
            self.note_full(id);
        }
    }

    /// `Writable` is owed, and once, however often the queue was found full.
    fn note_full(&mut self, id: ConnectionId) {
        if !self.ordered(id).writable_owed {
            self.order.full(id);
        }
    }

    /// Memory was lent; of the last `in_parts` bytes parts may be told of.
    fn lend(&mut self, id: ConnectionId, token: Token, in_parts: u64) {
        if token != Token::NONE {
            self.ordered(id).lent.push_back(Lent {
                in_parts,
                ..Lent::unwatched(token)
            });
        }
    }

    pub(crate) fn send_gathered(
        &mut self,
        id: ConnectionId,
        pieces: RawPieces<'_>,
        token: Token,
    ) -> Result<(), Refusal> {
        let result = self.event_loop.send_gathered(id, pieces, token);
        self.note_send(id, Some(token), result);
        result
    }

    /// The same, of so many bytes, of which parts are to be told of.
    pub(crate) fn send_with_progress(&mut self, id: ConnectionId, pieces: RawPieces<'_>, token: Token) {
        let bytes = pieces.bytes() as u64;
        self.event_loop
            .send_gathered(id, pieces.with_progress(), token)
            .unwrap();
        self.lend(id, token, bytes);
        self.note_send(id, None, Ok(()));
    }

    /// A send of lent memory was asked for from another thread.
    pub(crate) fn lent_elsewhere(&mut self, id: ConnectionId, token: Token) {
        self.lend(id, token, 0);
    }

    pub(crate) fn send_file(
        &mut self,
        id: ConnectionId,
        range: quoit::FileRange,
        token: Token,
    ) -> Result<(), Refusal> {
        let result = self.event_loop.send_file(id, range, token);
        match result {
            Ok(()) => self.lend(id, token, 0),
            Err(Refusal::Full) => self.note_full(id),
            Err(_) => {}
        }
        result
    }

    pub(crate) fn pause(&mut self, id: ConnectionId) -> Result<(), Refusal> {
        let result = self.event_loop.pause(id);
        if result.is_ok() {
            self.ordered(id).paused = true;
        }
        result
    }

    pub(crate) fn resume(&mut self, id: ConnectionId) -> Result<(), Refusal> {
        let result = self.event_loop.resume(id);
        if result.is_ok() {
            self.ordered(id).paused = false;
        }
        result
    }

    pub(crate) fn shutdown(&mut self, id: ConnectionId) -> Result<(), Refusal> {
        self.event_loop.shutdown(id)
    }

    pub(crate) fn close(&mut self, id: ConnectionId, deadline: Option<Duration>) -> Result<(), Refusal> {
        let result = self.event_loop.close(id, deadline);
        if result.is_ok() {
            let draining = self.draining;
            let state = self.ordered(id);
            state.closing = true;
            state.closes_gracefully = state.established && !draining;
        }
        result
    }

    pub(crate) fn abort(&mut self, id: ConnectionId) -> Result<(), Refusal> {
        let result = self.event_loop.abort(id);
        if result.is_ok() {
            self.note_abort(id);
        }
        result
    }

    fn note_abort(&mut self, id: ConnectionId) {
        let state = self.ordered(id);
        state.closing = true;
        state.closes_gracefully = false;
    }

    pub(crate) fn set_deadline(&mut self, id: ConnectionId, after: Option<Duration>) {
        let at = after.map(time_in);
        self.event_loop.set_deadline(id, after).unwrap();
        self.ordered(id).deadline = at;
    }

    /// Lets the connection's deadline come, and keeps it from being reported: behind refusals, for which the turns,
    /// with room for one event each, have no room either.
    pub(crate) fn deadline_unreported(&mut self, id: ConnectionId) {
        self.until_quiet();
        self.set_event_room(1);
        self.set_deadline(id, Some(Duration::ZERO));
        self.until_unreported(1);
        assert_eq!(self.seen(id).deadlines, 0);
    }

    /// Turns with room for one event each, which refusals take, until so many timers more have fired.
    pub(crate) fn until_unreported(&mut self, timers: u64) {
        let refused = || Command::Send {
            connection: ConnectionId::from_bits(0),
            payload: Payload::Copy(b"x"),
            token: Token::NONE,
        };
        let before = self.event_loop.counters().timers_fired;
        self.until("its time has come", |driver| {
            driver.turn_with([refused(), refused(), refused()], Duration::ZERO);
            driver.event_loop.counters().timers_fired >= before + timers
        });
    }

    pub(crate) fn set_timer(&mut self, token: u64, after: Duration) {
        let at = time_in(after);
        self.event_loop.set_named_timer(after, Token(token)).unwrap();
        self.order.timers.insert(token, at);
    }

    pub(crate) fn cancel_timer(&mut self, token: u64) -> bool {
        self.order.timers.remove(&token);
        self.event_loop.cancel_named_timer(Token(token))
    }

    pub(crate) fn wait_received(&mut self, id: ConnectionId, bytes: usize) {
        self.until("bytes arrive", |driver| driver.seen(id).total >= bytes as u64);
    }

    pub(crate) fn wait_ended(&mut self, id: ConnectionId) {
        self.until("the stream ends", |driver| driver.seen(id).ended);
    }

    pub(crate) fn wait_flushed(&mut self, id: ConnectionId) {
        self.until("all is sent", |driver| driver.event_loop.queued(id) == 0);
    }

    pub(crate) fn wait_closed(&mut self, id: ConnectionId) -> CloseReason {
        self.until("the connection closes", |driver| driver.seen(id).closed.is_some());
        // The descriptor itself is closed in the next turn.
        self.turn(Duration::ZERO);
        self.seen(id).closed.unwrap()
    }

    /// Ends everything; then nothing may be left.
    fn finish(mut self) {
        self.held.clear();
        self.backlog.clear();
        self.on_data = OnData::Count;
        let listeners: Vec<_> = self.event_loop.listeners().map(|(id, _)| id).collect();
        for listener in listeners {
            // One that is stopping already is as good.
            let _ = self.event_loop.stop_listening(listener);
        }
        self.until("all connections and listeners end", |driver| {
            for id in driver.order.open().to_vec() {
                // One that is ending already is as good.
                let _ = driver.abort(id);
            }
            driver.event_loop.connections() == 0
                && driver.event_loop.listeners().count() == 0
                && driver.order.open().is_empty()
        });
        // The closes themselves, and the leases that the last turn's events had.
        self.until("nothing is in flight", |driver| {
            let counters = driver.event_loop.counters();
            counters.in_flight <= driver.idle_in_flight
                && counters.pool_leased == 0
                && counters.leases_copied_now == 0
        });
        let counters = self.event_loop.counters();
        assert_eq!(counters.connections, 0);
        assert_eq!(counters.queued_bytes, 0);
        assert_eq!(counters.send_chunks_used, 0);
        counts::check(&counters, self.seen.values());
    }
}

/// The time after so long, in nanoseconds, as the loop has it.
fn time_in(after: Duration) -> u64 {
    (Linux.now() + after).as_nanos()
}

pub(crate) fn loopback() -> Address {
    "127.0.0.1:0".parse().unwrap()
}
