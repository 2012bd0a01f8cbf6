//! One thread of the load: an edge-triggered loop over its connections.
//!
//! What keeps it cheap: one read per readiness into a buffer shared by all connections (a read that does not
//! fill it has emptied the socket, epoll(7)), one write for all requests that it makes due, one clock
//! reading for both, and no allocation per request. The clock is read after the read: it ends the latency of
//! the replies just read and starts that of the requests written next, so that a latency includes the
//! checking of the replies before it on the same connection, and nothing of other connections' work.
//!
//! [`opening`] makes connections, [`traffic`] moves bytes over them; here is the loop and the stages of a run.

mod opening;
mod traffic;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use mio::{Events, Poll, Token, Waker};

use super::clock::Clock;
use super::connection::{Connection, Slow};
use super::control::{Control, Message, Schedule, Sums, nanoseconds};
use super::displacer::Displacer;
use super::error::LoadError;
use super::pacing::{Pacing, Place};
use super::plan::{Length, Plan, share};
use super::protocol::{BATCH_BYTES, Protocol};
use super::recorder::Recorder;
use super::system::thread_cpu_time;
use super::tally::Tally;
use super::target::{ConnectOptions, Target};
use super::timer::Timer;

const WAKE: Token = Token(usize::MAX);
const TIMER: Token = Token(usize::MAX - 1);

/// Bytes that one read takes at most.
const READ_BUFFER: usize = 128 * 1024;

/// Between two looks at a connection for replies overdue or for the time to open it again.
const SCAN_INTERVAL: u64 = 100_000_000;

/// Connections that one scan looks at: more would hold up the replies of all.
const SCANNED_AT_ONCE: usize = 512;

/// Between two reads of connections that read slowly.
const SLOW_INTERVAL: u64 = 50_000_000;

/// How long the replies outstanding at the end are waited for, so that the server sees orderly ends.
const DRAIN: u64 = 1_000_000_000;

/// Connection attempts under way at once, over all threads: below the usual listen queue.
const CONNECTING_AT_ONCE: usize = 128;

/// What one thread is to do. Times are in nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    /// The thread's number, and how many there are.
    thread: usize,
    threads: usize,
    target: Target,
    /// Its connections, the slow ones included.
    connections: usize,
    slow: usize,
    slow_bytes_per_second: u32,
    /// The thread's share of the requests, if the window is limited so.
    requests: Option<u64>,
    timeout: u64,
    ramp_up: u64,
    sources: Vec<IpAddr>,
    churn: bool,
    /// How long before a request is due the thread begins to wait for it without sleeping.
    spin: u64,
    /// Bytes to displace.
    displace: usize,
}

impl Assignment {
    /// The share of thread number `thread`.
    fn new(plan: &Plan, thread: usize) -> Self {
        let slow = plan.slow.map_or(0, |slow| slow.connections);
        Assignment {
            thread,
            threads: plan.threads,
            target: plan.target.clone(),
            connections: share(plan.connections, plan.threads, thread),
            slow: share(slow, plan.threads, thread),
            slow_bytes_per_second: plan.slow.map_or(0, |slow| slow.bytes_per_second),
            requests: plan.length().share(plan.threads, thread),
            timeout: nanoseconds(plan.timeout),
            ramp_up: nanoseconds(plan.ramp_up),
            sources: plan.sources.clone(),
            churn: plan.churn,
            spin: nanoseconds(plan.spin),
            displace: plan.displace,
        }
    }

    /// How connection `index` of this thread is opened.
    fn options(&self, index: usize) -> ConnectOptions {
        let number = self.thread + self.threads * index;
        ConnectOptions {
            source: (!self.sources.is_empty()).then(|| self.sources[number % self.sources.len()]),
            resets: self.churn,
            // The kernel makes it the least that it allows: 2,304 bytes (SO_RCVBUF, socket(7)).
            receive_buffer: (index < self.slow).then_some(0),
        }
    }

    /// The paced connections of the threads before this one.
    fn numbers_before(&self, plan: &Plan) -> u64 {
        let slow = plan.slow.map_or(0, |slow| slow.connections);
        (0..self.thread)
            .map(|thread| share(plan.connections, plan.threads, thread) - share(slow, plan.threads, thread))
            .sum::<usize>() as u64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening { reported: bool },
    Running(Schedule),
    Draining { deadline: u64 },
}

pub(super) struct Worker<P: Protocol> {
    assignment: Assignment,
    control: Arc<Control>,
    messages: Sender<Message>,
    clock: Clock,
    poll: Poll,
    timer: Timer,
    protocol: P,
    pacing: Pacing,
    connections: Vec<Connection<P::State>>,
    /// Connections that are to be opened, or, with one per request, that may be when a request is due.
    to_open: VecDeque<usize>,
    /// Connections whose first attempt has begun.
    ramped: usize,
    connecting: usize,
    /// Attempts that may be under way at once: a listener's queue must not overflow.
    most_connecting: usize,
    open: usize,
    /// What was begun and has not ended, on all connections but the slow ones.
    outstanding: u64,
    /// What was begun and what was completed so far, on all connections but the slow ones.
    sent: u64,
    replies: u64,
    next_id: u32,
    stage: Stage,
    recorder: Recorder,
    cpu_at_start: u64,
    next_scan: u64,
    /// The connection at which the next scan goes on.
    scan_from: usize,
    next_slow: u64,
    /// Bytes that a slow connection may read beyond whole ones.
    slow_credit: f64,
    read_buffer: Box<[u8]>,
    batch: Vec<u8>,
    displacer: Displacer,
}

impl<P: Protocol> Worker<P> {
    /// Thread number `thread` of a run, and what wakes it from another thread.
    ///
    /// # Errors
    /// No epoll descriptor, timer or histogram can be had.
    pub(super) fn new(
        plan: &Plan,
        thread: usize,
        control: Arc<Control>,
        messages: Sender<Message>,
        protocol: P,
    ) -> Result<(Self, Waker), LoadError> {
        let assignment = Assignment::new(plan, thread);
        let (poll, waker, timer) = Poll::new()
            .and_then(|poll| {
                let waker = Waker::new(poll.registry(), WAKE)?;
                let timer = Timer::new(poll.registry(), TIMER)?;
                Ok((poll, waker, timer))
            })
            .map_err(|error| {
                LoadError::new(format!("cannot make an epoll instance with a timer: {error}"))
            })?;
        let slow = plan.slow.map_or(0, |slow| slow.connections);
        let paced = (plan.connections - slow) as u64;
        let before = assignment.numbers_before(plan);
        let connections = (0..assignment.connections).map(|index| {
            let (place, slow) = match index.checked_sub(assignment.slow) {
                None => (Place::apart(), Some(Slow::default())),
                Some(index) => (Place::new(before + index as u64), None),
            };
            Connection::new(protocol.connection(0, 0), place, slow)
        });
        let worker = Worker {
            clock: Clock::new(control.clone(), nanoseconds(plan.slip)),
            control,
            poll,
            timer,
            pacing: Pacing::new(plan.pipeline, plan.offered().as_ref(), paced, plan.seed),
            connections: connections.collect(),
            protocol,
            to_open: if plan.churn {
                VecDeque::new()
            } else {
                (0..assignment.connections).collect()
            },
            ramped: 0,
            connecting: 0,
            most_connecting: (CONNECTING_AT_ONCE / plan.threads).max(1),
            open: 0,
            outstanding: 0,
            sent: 0,
            replies: 0,
            next_id: thread as u32,
            stage: Stage::Opening { reported: false },
            recorder: Recorder::new(
                nanoseconds(plan.interval),
                longest_latency(plan),
                messages.clone(),
            )?,
            messages,
            cpu_at_start: 0,
            next_scan: 0,
            scan_from: 0,
            next_slow: 0,
            slow_credit: 0.0,
            read_buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            batch: Vec::with_capacity(BATCH_BYTES),
            displacer: Displacer::new(assignment.displace),
            assignment,
        };
        Ok((worker, waker))
    }

    /// Opens the connections, reports, waits for the schedule, and runs it.
    ///
    /// # Errors
    /// The epoll instance, the timer or the processor clock fails.
    pub(super) fn run(mut self) -> Result<Tally, LoadError> {
        let mut events = Events::with_capacity(1024);
        loop {
            self.open_queued();
            if !self.wait(&mut events)? {
                continue;
            }
            for event in &events {
                self.on_event(event)?;
            }
            let now = self.clock.now();
            self.serve_timers(now)?;
            let sums = Sums {
                open: self.open as u64,
                replies: self.replies,
                done: self.recorder.window().completed(),
            };
            self.control.publish(self.assignment.thread, sums);
            if self.advance(now)? {
                return Ok(Tally {
                    sent: self.sent,
                    replies: self.replies,
                    ..self.recorder.finish()
                });
            }
        }
    }

    /// Waits for events, or until something is to be done: `false` if a signal ended the wait.
    fn wait(&mut self, events: &mut Events) -> Result<bool, LoadError> {
        let now = self.clock.now();
        let deadline = self.next_deadline(now);
        // Instead of sleeping for less than a wake-up takes, if the user wants that.
        let spins = self
            .pacing
            .next_timer()
            .is_some_and(|due| due.saturating_sub(now) < self.assignment.spin);
        let timeout = if deadline <= now || spins {
            Some(Duration::ZERO)
        } else {
            self.timer
                .arm(deadline, now)
                .map_err(|error| LoadError::new(format!("cannot set a timer: {error}")))?;
            None
        };
        let result = self.poll.poll(events, timeout);
        self.displacer.walk();
        self.clock.now_after_wait(deadline);
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(LoadError::new(format!("epoll_wait failed: {error}"))),
            Ok(()) => Ok(true),
        }
    }

    fn next_deadline(&self, now: u64) -> u64 {
        let stage = match self.stage {
            Stage::Opening { .. } => self.next_ramped(),
            Stage::Running(schedule) if self.recorder.window().was_opened() => schedule.until,
            Stage::Running(schedule) => Some(schedule.from),
            Stage::Draining { deadline } => Some(deadline),
        };
        let timetable = match self.stage {
            Stage::Running(_) => self.pacing.next_timer(),
            _ => None,
        };
        // Beyond any run, if there is nothing to scan.
        let scan = if self.connections.is_empty() {
            now.saturating_add(SCAN_INTERVAL)
        } else {
            self.next_scan
        };
        let slow = (self.assignment.slow > 0).then_some(self.next_slow);
        [stage, timetable, self.recorder.interval_end(), slow]
            .into_iter()
            .flatten()
            .fold(scan, u64::min)
    }

    /// Does what is to be done at its time.
    fn serve_timers(&mut self, now: u64) -> Result<(), LoadError> {
        self.recorder.advance(now)?;
        if matches!(self.stage, Stage::Running(_)) {
            self.send_timetabled(now);
        }
        if self.assignment.slow > 0 && now >= self.next_slow {
            self.read_slowly(now);
        }
        if now >= self.next_scan {
            self.scan(now);
        }
        Ok(())
    }

    /// Moves from stage to stage: whether the run is over.
    fn advance(&mut self, now: u64) -> Result<bool, LoadError> {
        let stopped = self.control.is_stopped();
        match self.stage {
            Stage::Opening { .. } if stopped => return Ok(true),
            Stage::Opening { reported } => {
                if !reported && self.opening_is_over(now) {
                    self.stage = Stage::Opening { reported: true };
                    let first_error = self.recorder.tally().first_error.clone();
                    // The receiver ends first only when the run was given up, and then nobody asks.
                    drop(self.messages.send(Message::Opened {
                        open: self.open,
                        first_error,
                    }));
                }
                if let Some(&schedule) = self.control.schedule() {
                    // Read again: without a warm-up the window begins after `now` and before this moment.
                    let now = self.clock.now();
                    self.begin(now, schedule)?;
                }
            }
            Stage::Running(schedule) => {
                let opened = self.recorder.window().was_opened();
                if !opened && now >= schedule.from && !stopped {
                    self.open_window(now, schedule)?;
                }
                if stopped || (opened && self.recorder.window().is_over(now)) {
                    self.end_window(now)?;
                }
            }
            Stage::Draining { .. } => {}
        }
        Ok(matches!(self.stage, Stage::Draining { deadline } if self.outstanding == 0 || now >= deadline))
    }

    /// Starts sending.
    fn begin(&mut self, now: u64, schedule: Schedule) -> Result<(), LoadError> {
        self.stage = Stage::Running(schedule);
        self.pacing.allow(u64::MAX);
        let places = self
            .connections
            .iter_mut()
            .map(|connection| &mut connection.place);
        self.pacing.begin(now, schedule.until.unwrap_or(u64::MAX), places);
        if now >= schedule.from {
            self.open_window(now, schedule)?;
        }
        if self.assignment.churn {
            self.to_open.extend(0..self.connections.len());
            return Ok(());
        }
        for index in 0..self.connections.len() {
            if self.connections[index].is_open() {
                let now = self.clock.now();
                self.send_due(index, now);
            } else {
                self.connections[index].place.block();
            }
        }
        Ok(())
    }

    fn open_window(&mut self, now: u64, schedule: Schedule) -> Result<(), LoadError> {
        self.cpu_at_start = thread_cpu_time();
        self.recorder.open(now, schedule, self.assignment.requests);
        self.clock.take_slips();
        if let Some(requests) = self.assignment.requests {
            let opening = self.connections.iter().filter(|each| each.opened_for.is_some());
            let begun = self.outstanding + opening.count() as u64;
            self.pacing.allow(if P::ONE_UNIT_EACH {
                requests.saturating_sub(begun)
            } else {
                u64::MAX
            });
        }
        Ok(())
    }

    fn end_window(&mut self, now: u64) -> Result<(), LoadError> {
        let was_opened = self.recorder.window().was_opened();
        let slips = self.clock.take_slips();
        self.recorder.close(now, slips)?;
        if was_opened {
            let tally = self.recorder.tally();
            let end = tally.window.map_or(now, |(_, end)| end);
            tally.unanswered += self.outstanding;
            tally.unsent = self
                .connections
                .iter_mut()
                .map(|connection| {
                    let waiting = u64::from(connection.opened_for.is_some() && !connection.is_open());
                    waiting + self.pacing.count_untaken(&mut connection.place, end)
                })
                .sum();
            self.recorder.tally().cpu_ns = thread_cpu_time().saturating_sub(self.cpu_at_start);
        }
        self.pacing.allow(0);
        self.stage = Stage::Draining {
            deadline: now.saturating_add(DRAIN.min(self.assignment.timeout)),
        };
        self.wind_down();
        Ok(())
    }
}

/// What latencies are kept up to: ten timeouts, as a reply can wait longer than one behind others of its pipeline;
/// in an open loop a request can wait for as long as the run.
fn longest_latency(plan: &Plan) -> u64 {
    let run = match (plan.offered(), plan.length()) {
        (None, _) => 0,
        (Some(_), Length::Time(time)) => nanoseconds(time).saturating_add(nanoseconds(plan.warmup)),
        (Some(offered), Length::Count(requests)) => (requests as f64 / offered.rate * 1e9) as u64,
    };
    nanoseconds(plan.timeout).saturating_mul(10).saturating_add(run)
}
