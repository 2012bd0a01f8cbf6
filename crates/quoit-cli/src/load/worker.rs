//! One thread of the load: an edge-triggered loop over its connections.
//!
//! What keeps it cheap: one read a readiness into a buffer shared by all connections (a read that does not
//! fill it has emptied the socket, epoll(7)), one write for all requests that it makes due, one clock
//! reading for both, and no allocation a request. The clock is read after the read: it ends the latency of
//! the replies just read and starts that of the requests written next, so that a latency includes the
//! checking of the replies before it on the same connection, and nothing of other connections' work.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Interest, Poll, Token, Waker};

use super::connection::{Connection, Phase};
use super::control::{Control, Message, Schedule};
use super::error::LoadError;
use super::pacing::ClosedLoop;
use super::protocol::{Outcomes, Protocol, Then, WrongKind};
use super::system::thread_cpu_time;
use super::tally::Tally;
use super::target::Target;
use super::window::Window;

const WAKE: Token = Token(usize::MAX);

/// Bytes that one read takes at most.
const READ_BUFFER: usize = 128 * 1024;

/// Requests are gathered for one write up to about this many bytes.
pub(super) const GATHER: usize = 128 * 1024;

/// Between two looks for replies overdue and connections to open again.
const SCAN_INTERVAL: u64 = 100_000_000;

/// How long the replies outstanding at the end are waited for, so that the server sees orderly ends.
const DRAIN: u64 = 1_000_000_000;

/// What one thread is to do.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    /// The thread's number, and how many there are.
    pub(super) thread: u32,
    pub(super) threads: u32,
    pub(super) target: Target,
    pub(super) connections: usize,
    pub(super) depth: u32,
    /// The thread's share of the requests, if the window is limited so.
    pub(super) requests: Option<u64>,
    pub(super) timeout: Duration,
    /// Connection attempts under way at once: a listener's queue must not overflow.
    pub(super) connecting: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening { reported: bool },
    Running(Schedule),
    Draining { deadline: u64 },
}

/// Why an open connection ends.
enum End {
    Announced,
    ByServer,
    Failed(io::Error),
    TimedOut,
    WrongReply,
}

pub(super) struct Worker<P: Protocol> {
    assignment: Assignment,
    control: Arc<Control>,
    messages: Sender<Message>,
    poll: Poll,
    protocol: P,
    pacing: ClosedLoop,
    connections: Vec<Connection<P::State>>,
    to_open: VecDeque<usize>,
    connecting: usize,
    open: usize,
    outstanding: u64,
    replies: u64,
    next_id: u32,
    timeout: u64,
    stage: Stage,
    window: Window,
    cpu_at_start: u64,
    next_scan: u64,
    tally: Tally,
    read_buffer: Box<[u8]>,
    gathered: Vec<u8>,
}

impl<P: Protocol> Worker<P> {
    /// A worker, and what wakes it from another thread.
    ///
    /// # Errors
    /// No epoll descriptor or histogram can be had.
    pub(super) fn new(
        assignment: Assignment,
        control: Arc<Control>,
        messages: Sender<Message>,
        protocol: P,
    ) -> Result<(Self, Waker), LoadError> {
        let (poll, waker) = Poll::new()
            .and_then(|poll| Waker::new(poll.registry(), WAKE).map(|waker| (poll, waker)))
            .map_err(|error| LoadError::new(format!("cannot make an epoll instance: {error}")))?;
        let depth = assignment.depth;
        let worker = Worker {
            control,
            messages,
            poll,
            pacing: ClosedLoop::new(depth),
            connections: (0..assignment.connections)
                .map(|_| Connection::new(protocol.connection(0, 0)))
                .collect(),
            protocol,
            to_open: (0..assignment.connections).collect(),
            connecting: 0,
            open: 0,
            outstanding: 0,
            replies: 0,
            next_id: assignment.thread,
            timeout: u64::try_from(assignment.timeout.as_nanos()).unwrap_or(u64::MAX),
            stage: Stage::Opening { reported: false },
            window: Window::default(),
            cpu_at_start: 0,
            next_scan: 0,
            tally: Tally::new(assignment.timeout)?,
            read_buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            gathered: Vec::with_capacity(GATHER),
            assignment,
        };
        Ok((worker, waker))
    }

    /// Opens the connections, reports, waits for the schedule, and runs it.
    ///
    /// # Errors
    /// The epoll instance or the processor clock fails.
    pub(super) fn run(mut self) -> Result<Tally, LoadError> {
        let mut events = Events::with_capacity(1024);
        loop {
            self.open_queued();
            let timeout = self.until_next_deadline();
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(LoadError::new(format!("epoll_wait failed: {error}"))),
                Ok(()) => {}
            }
            for event in &events {
                self.on_event(event);
            }
            let now = self.control.now();
            if now >= self.next_scan {
                self.scan(now);
            }
            self.control.publish(
                self.assignment.thread,
                self.open,
                self.replies,
                self.window.settled(),
            );
            if self.advance(now)? {
                return Ok(self.tally);
            }
        }
    }

    fn until_next_deadline(&self) -> Duration {
        let now = self.control.now();
        let stage_deadline = match self.stage {
            Stage::Opening { .. } => None,
            Stage::Running(schedule) if self.window.was_opened() => schedule.until,
            Stage::Running(schedule) => Some(schedule.from),
            Stage::Draining { deadline } => Some(deadline),
        };
        let next = stage_deadline.map_or(self.next_scan, |deadline| deadline.min(self.next_scan));
        Duration::from_nanos(next.saturating_sub(now))
    }

    /// Moves from stage to stage: whether the run is over.
    fn advance(&mut self, now: u64) -> Result<bool, LoadError> {
        let stopped = self.control.is_stopped();
        match self.stage {
            Stage::Opening { .. } if stopped => return Ok(true),
            Stage::Opening { reported } => {
                if !reported && (self.open == self.connections.len() || now >= self.timeout) {
                    self.stage = Stage::Opening { reported: true };
                    let first_error = self.tally.first_error.clone();
                    self.send(Message::Opened {
                        open: self.open,
                        first_error,
                    });
                }
                if let Some(&schedule) = self.control.schedule() {
                    self.stage = Stage::Running(schedule);
                    self.pacing.allow(u64::MAX);
                    if now >= schedule.from {
                        self.open_window(now, schedule)?;
                    }
                    for index in 0..self.connections.len() {
                        let now = self.control.now();
                        self.send_due(index, now);
                    }
                }
            }
            Stage::Running(schedule) => {
                if !self.window.was_opened() && now >= schedule.from && !stopped {
                    self.open_window(now, schedule)?;
                }
                if stopped || (self.window.was_opened() && self.window.is_over(now)) {
                    self.tally.window = self.window.bounds(now);
                    if self.window.was_opened() {
                        self.tally.cpu_ns = self.cpu_time()?.saturating_sub(self.cpu_at_start);
                    }
                    self.window = Window::default();
                    self.pacing.allow(0);
                    self.stage = Stage::Draining {
                        deadline: now.saturating_add(DRAIN.min(self.timeout)),
                    };
                    self.wind_down();
                }
            }
            Stage::Draining { .. } => {}
        }
        Ok(matches!(self.stage, Stage::Draining { deadline } if self.outstanding == 0 || now >= deadline))
    }

    fn open_window(&mut self, now: u64, schedule: Schedule) -> Result<(), LoadError> {
        self.cpu_at_start = self.cpu_time()?;
        self.window.open(now, schedule.until, self.assignment.requests);
        if let Some(requests) = self.assignment.requests {
            self.pacing.allow(if P::ONE_UNIT_EACH {
                requests.saturating_sub(self.outstanding)
            } else {
                u64::MAX
            });
        }
        Ok(())
    }

    /// Lets the protocol end what would not end by itself.
    fn wind_down(&mut self) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if !matches!(connection.phase, Phase::Open { .. }) {
                continue;
            }
            self.gathered.clear();
            self.protocol.wind_down(&mut connection.state, &mut self.gathered);
            if !self.gathered.is_empty()
                && let Err(error) = connection.write(&self.gathered, self.poll.registry(), Token(index))
            {
                self.close(index, End::Failed(error));
            }
        }
    }

    fn cpu_time(&self) -> Result<u64, LoadError> {
        thread_cpu_time()
            .map_err(|error| LoadError::new(format!("cannot read the thread's processor time: {error}")))
    }

    fn send(&self, message: Message) {
        // The receiver ends first only when the run was given up, and then nobody asks.
        drop(self.messages.send(message));
    }

    fn on_event(&mut self, event: &Event) {
        let Token(index) = event.token();
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        match connection.phase {
            Phase::Closed { .. } => {}
            Phase::Connecting { .. } => self.finish_connecting(index),
            Phase::Open { .. } => {
                let ended = event.is_read_closed() || event.is_error();
                if event.is_readable() || ended {
                    self.receive(index, ended);
                } else if connection.has_unsent() {
                    let now = self.control.now();
                    self.send_due(index, now);
                }
            }
        }
    }

    /// Starts connecting as many of the queued connections as may be under way at once.
    fn open_queued(&mut self) {
        while self.connecting < self.assignment.connecting
            && let Some(index) = self.to_open.pop_front()
        {
            let since = self.control.now();
            let connection = &mut self.connections[index];
            let opened = self.assignment.target.connect().and_then(|mut socket| {
                socket.register(
                    self.poll.registry(),
                    Token(index),
                    Interest::READABLE | Interest::WRITABLE,
                )?;
                Ok(socket)
            });
            match opened {
                Ok(socket) => {
                    connection.phase = Phase::Connecting { socket, since };
                    self.connecting += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.phase = Phase::Closed {
                        retry_at: Some(since),
                    };
                }
                Err(error) => self.connect_failed(index, since, &error),
            }
        }
    }

    fn finish_connecting(&mut self, index: usize) {
        let now = self.control.now();
        let connection = &mut self.connections[index];
        let Phase::Connecting { socket, .. } = &mut connection.phase else {
            return;
        };
        let finished = socket.finish_connecting().and_then(|established| {
            if established {
                socket.reregister(self.poll.registry(), Token(index), Interest::READABLE)?;
            }
            Ok(established)
        });
        match finished {
            Ok(false) => {}
            Ok(true) => {
                let closed = Phase::Closed { retry_at: None };
                if let Phase::Connecting { socket, .. } = std::mem::replace(&mut connection.phase, closed) {
                    let id = self.next_id;
                    self.next_id = id.wrapping_add(self.assignment.threads);
                    connection.reset(Phase::Open { socket }, self.protocol.connection(id, now));
                }
                connection.failures = 0;
                self.tally.reconnects += u64::from(std::mem::replace(&mut connection.was_opened, true));
                self.connecting -= 1;
                self.open += 1;
                self.send_due(index, now);
            }
            Err(error) => {
                self.connecting -= 1;
                self.connect_failed(index, now, &error);
            }
        }
    }

    /// Counts a failed attempt; the next one is made after a wait that doubles up to 1.6 seconds.
    fn connect_failed(&mut self, index: usize, now: u64, error: &io::Error) {
        let connection = &mut self.connections[index];
        let wait = SCAN_INTERVAL << connection.failures.min(4);
        connection.failures += 1;
        connection.phase = Phase::Closed {
            retry_at: Some(now + wait),
        };
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.tally.errors.connect_refused += 1;
        } else {
            self.tally.errors.connect_other += 1;
        }
        self.tally
            .note(|| format!("connecting to {}: {error}", self.assignment.target));
    }

    /// Reads and judges what has arrived, then sends what that makes due.
    fn receive(&mut self, index: usize, ended: bool) {
        loop {
            let Phase::Open { socket } = &mut self.connections[index].phase else {
                return;
            };
            match socket.read(&mut self.read_buffer) {
                Ok(0) => return self.close(index, End::ByServer),
                Ok(length) => {
                    let now = self.control.now();
                    if let Some(end) = self.judge(index, length, now) {
                        return self.close(index, end);
                    }
                    if length < self.read_buffer.len() && !ended {
                        return self.send_due(index, now);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let now = self.control.now();
                    return self.send_due(index, now);
                }
                Err(error) => return self.close(index, End::Failed(error)),
            }
        }
    }

    /// Judges `length` bytes just read: why the connection has to end, if it has to.
    fn judge(&mut self, index: usize, length: usize, now: u64) -> Option<End> {
        let connection = &mut self.connections[index];
        if self.window.contains(now) {
            self.tally.received_bytes += length as u64;
        }
        let before = self.protocol.outstanding(&connection.state);
        let mut counter = Counter {
            now,
            settled: 0,
            window: &mut self.window,
            tally: &mut self.tally,
        };
        let input = &self.read_buffer[..length];
        let then = self
            .protocol
            .take(&mut connection.state, input, now, &mut counter);
        connection.was_useful |= counter.settled > 0;
        self.replies += counter.settled;
        let after = self.protocol.outstanding(&connection.state);
        self.outstanding = self.outstanding + u64::from(after) - u64::from(before);
        match then {
            Then::GoOn => None,
            Then::Announced => Some(End::Announced),
            Then::GiveUp => Some(End::WrongReply),
        }
    }

    /// Sends what is due on a connection. `now` is when the last bytes were read.
    fn send_due(&mut self, index: usize, mut now: u64) {
        let connection = &mut self.connections[index];
        if !matches!(connection.phase, Phase::Open { .. }) {
            return;
        }
        loop {
            self.gathered.clear();
            if !connection.has_unsent() {
                let state = &mut connection.state;
                let before = self.protocol.outstanding(state);
                self.protocol.respond(state, now, GATHER, &mut self.gathered);
                while self.gathered.len() < GATHER && self.pacing.take(self.protocol.outstanding(state)) {
                    self.protocol.begin(state, now, &mut self.gathered);
                }
                let after = self.protocol.outstanding(state);
                self.outstanding = self.outstanding + u64::from(after) - u64::from(before);
                if self.gathered.is_empty() {
                    return;
                }
            }
            let gathered_all = !self.gathered.is_empty() && self.gathered.len() < GATHER;
            if let Err(error) = connection.write(&self.gathered, self.poll.registry(), Token(index)) {
                return self.close(index, End::Failed(error));
            }
            if connection.has_unsent() || gathered_all {
                return;
            }
            now = self.control.now();
        }
    }

    /// Ends an open connection, counts why, and has it opened again if there is more to send.
    fn close(&mut self, index: usize, end: End) {
        let now = self.control.now();
        let connection = &mut self.connections[index];
        let was_useful = connection.was_useful;
        self.outstanding -= u64::from(self.protocol.outstanding(&connection.state));
        let mut lost = 0;
        self.protocol
            .withdraw(&mut connection.state, &mut |_, count| lost += count);
        let state = self.protocol.connection(0, now);
        connection.reset(Phase::Closed { retry_at: None }, state);
        self.open -= 1;
        let running = matches!(self.stage, Stage::Running(_));
        if matches!(end, End::Announced) {
            if running {
                self.pacing.give_back(u64::from(lost));
            }
        } else {
            self.tally.errors.lost_requests += u64::from(lost);
            self.window.settle(now, lost);
        }
        let nothing_to_send =
            matches!(self.stage, Stage::Draining { .. }) || (running && self.pacing.is_exhausted());
        // A server may close a connection that asks nothing of it any more.
        if lost > 0 || !nothing_to_send {
            self.count_end(&end);
        }
        if !nothing_to_send {
            if was_useful || matches!(end, End::Announced) {
                self.to_open.push_back(index);
            } else {
                self.connections[index].phase = Phase::Closed {
                    retry_at: Some(now + SCAN_INTERVAL),
                };
            }
        }
    }

    fn count_end(&mut self, end: &End) {
        let target = &self.assignment.target;
        let errors = &mut self.tally.errors;
        match end {
            End::Announced | End::WrongReply => {}
            End::ByServer => {
                errors.closed_early += 1;
                self.tally
                    .note(|| format!("{target} closed a connection without announcing it"));
            }
            End::Failed(error) => {
                errors.reset += 1;
                self.tally
                    .note(|| format!("a connection to {target} failed: {error}"));
            }
            End::TimedOut => {
                errors.timeouts += 1;
                let timeout = self.assignment.timeout;
                self.tally
                    .note(|| format!("{target} sent no reply within {timeout:?}"));
            }
        }
    }

    /// Looks for replies and attempts that are overdue, and for connections to open again.
    fn scan(&mut self, now: u64) {
        self.next_scan = now + SCAN_INTERVAL;
        let wanted = match self.stage {
            Stage::Opening { .. } => true,
            Stage::Running(_) => !self.pacing.is_exhausted(),
            Stage::Draining { .. } => false,
        };
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            match connection.phase {
                Phase::Closed { retry_at: Some(at) } if at <= now && wanted => {
                    connection.phase = Phase::Closed { retry_at: None };
                    self.to_open.push_back(index);
                }
                Phase::Connecting { since, .. } if now.saturating_sub(since) > self.timeout => {
                    self.connecting -= 1;
                    let error = io::Error::from(io::ErrorKind::TimedOut);
                    self.connect_failed(index, now, &error);
                }
                Phase::Open { .. }
                    if self
                        .protocol
                        .waiting_since(&connection.state)
                        .is_some_and(|since| now.saturating_sub(since) > self.timeout) =>
                {
                    self.close(index, End::TimedOut);
                }
                _ => {}
            }
        }
    }
}

/// Counts what a protocol settles.
struct Counter<'a> {
    now: u64,
    /// Units settled, right or wrong, counted or not.
    settled: u64,
    window: &'a mut Window,
    tally: &'a mut Tally,
}

impl Outcomes for Counter<'_> {
    fn right(&mut self, start: Option<u64>, count: u32) {
        self.settled += u64::from(count);
        let counted = u64::from(self.window.settle(self.now, count));
        self.tally.requests += counted;
        if let Some(start) = start
            && counted > 0
        {
            let latency = self.now.saturating_sub(start);
            self.tally.latencies.saturating_record_n(latency, counted);
        }
    }

    fn stream(&mut self, start: u64) {
        if self.window.contains(self.now) {
            let latency = self.now.saturating_sub(start);
            self.tally.stream_latencies.saturating_record(latency);
        }
    }

    fn wrong(&mut self, kind: WrongKind, what: String) {
        self.settled += 1;
        self.window.settle(self.now, 1);
        match kind {
            WrongKind::Content => self.tally.errors.wrong_content += 1,
            WrongKind::Status => self.tally.errors.wrong_status += 1,
        }
        self.tally.note(|| what);
    }

    fn unexpected(&mut self, what: String) {
        self.tally.errors.wrong_content += 1;
        self.tally.note(|| what);
    }
}
