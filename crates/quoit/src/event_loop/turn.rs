//! The turn.

use std::fmt;
use std::time::Duration;

use super::{Draining, Loop, NotPollable, TimerKey};
use crate::command::Command;
use crate::config::WaitMode;
use crate::engine::{Completion, Engine, Received};
use crate::errno::Errno;
use crate::event::{Event, Events};
use crate::id::{ConnectionId, ListenerId};
use crate::remote::Inbox;
use crate::sys::{SocketSys, Time};
use crate::thread::ThreadNumber;

/// Timers that one turn lets fire before it looks at the kernel again.
const TIMERS_PER_TURN: usize = 1024;

/// Why a turn was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnError {
    /// The loop belongs to another thread, the one that made its first turn.
    WrongThread,
    /// The engine failed for good: the ring could not be enabled on this thread, or waiting failed.
    Engine(Errno),
    /// The loop cannot be parked.
    NotPollable(NotPollable),
}

impl fmt::Display for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongThread => f.write_str(
                "the loop belongs to the thread that made its first turn; use its Remote from others",
            ),
            Self::Engine(errno) => write!(f, "the loop's engine failed: {errno}"),
            Self::NotPollable(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TurnError {}

impl From<NotPollable> for TurnError {
    fn from(error: NotPollable) -> Self {
        Self::NotPollable(error)
    }
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// One turn: takes `commands`, submits everything at once, waits until something happens or `timeout` has
    /// passed (`None`: for ever; zero: not at all), and reports what happened in `events`, as much as there is
    /// room for. What remains is kept, and the next turn does not wait. A turn may end early with no events.
    ///
    /// The first turn makes the calling thread the loop's owner. A command that is refused is reported by
    /// [`Event::Refused`]; all others of the batch are carried out.
    ///
    /// # Errors
    /// [`TurnError::WrongThread`], and the commands were not looked at; [`TurnError::Engine`], after which the loop is of no
    /// further use.
    pub fn turn<'a>(
        &mut self,
        commands: impl IntoIterator<Item = Command<'a>>,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> Result<usize, TurnError> {
        self.own()?;
        self.end_parking();
        self.counters.turns.add(1);
        for command in commands {
            self.execute(command);
        }
        self.prepare_wait();

        let started = self.system.now();
        let waits_awake = matches!(self.config.wait, WaitMode::Spin(_) | WaitMode::Poll);
        let (timeout, now) = if waits_awake && timeout != Some(Duration::ZERO) {
            self.spin(timeout, started)?
        } else {
            (timeout, started)
        };
        let timeout = self.sleep_time(timeout, now, false);
        if timeout != Some(Duration::ZERO) {
            self.prepare_to_coalesce(now);
        }
        self.note_gauges();
        if let Some(earlier) = self.waited_until {
            let lag = u64::try_from(started.since(earlier).as_nanos()).unwrap_or(u64::MAX);
            self.counters.loop_lag_max_ns.raise(lag);
        }
        let memory = &mut self.memory;
        let waited = self.engine.wait(timeout, &mut memory.pool);
        let notified = memory.remote.end_sleep() | std::mem::take(&mut self.notified);
        self.now = self.system.now();
        self.waited_until = Some(self.now);
        if let Err(error) = waited {
            // Whoever turns it once more finds what was posted.
            self.notified = notified;
            return Err(TurnError::Engine(error));
        }

        self.reap();
        // Whatever was posted was followed by a wake.
        if notified {
            self.take_posts();
        }
        if self.timers.next_deadline().is_some_and(|next| next <= self.now) {
            self.expire_timers();
        }
        self.finish_draining();
        self.serve_chunk_waiters();

        Ok(self.report(events))
    }

    /// What is done before every wait, here or in a poller outside: whatever handlers have left behind is taken in and
    /// goes to the engine.
    pub(super) fn prepare_wait(&mut self) {
        // Nearly always there is nothing of most of it: what is called then is not inlined.
        if !self.reported_ends.is_empty() {
            self.end_reported();
        }
        self.collect_leases();
        if !self.short.is_empty() {
            self.serve_short();
        }
        if !self.starved.is_empty() {
            self.serve_starved();
        }
        // Memory is given back once it is not in use any more, and until then a connection may have to go.
        if self.memory.chunks.is_large() || self.connections.len() > 0 && self.is_short() {
            self.inspect_soon();
        }
        self.flush_dirty();
        if self.datagrams.len() > 0 {
            self.serve_datagrams();
        }
        self.end_promises();
        self.serve_chunk_waiters();
    }

    /// Makes the calling thread the owner at the first turn, and checks that it is at every other.
    fn own(&mut self) -> Result<(), TurnError> {
        let current = ThreadNumber::current();
        match self.owner {
            Some(owner) if owner == current => Ok(()),
            Some(_) => Err(TurnError::WrongThread),
            None => {
                let memory = &mut self.memory;
                let wake = memory.remote.wake_descriptor();
                self.engine
                    .bind(wake, &mut memory.pool)
                    .map_err(TurnError::Engine)?;
                self.owner = Some(current);
                for operation in std::mem::take(&mut self.early) {
                    self.submit(operation);
                }
                Ok(())
            }
        }
    }

    /// Whether there is something to do without waiting for anything, so that a turn does not sleep.
    pub(super) fn has_work(&self) -> bool {
        self.notified
            || !self.events.is_empty()
            || self.more_completions
            || !self.dirty.is_empty()
            || !self.dirty_datagrams.is_empty()
            || !self.engine.may_sleep()
    }

    /// How long this turn may wait: not at all if there is anything to do already.
    /// Announces the sleep otherwise: by the notifier, if it is to be ended by that.
    pub(super) fn sleep_time(
        &mut self,
        timeout: Option<Duration>,
        now: Time,
        by_notifier: bool,
    ) -> Option<Duration> {
        if self.has_work() || timeout == Some(Duration::ZERO) {
            return Some(Duration::ZERO);
        }
        let timeout = match (timeout, self.timers.next_deadline()) {
            (timeout, None) => timeout,
            (None, Some(next)) => Some(next.since(now)),
            (Some(timeout), Some(next)) => Some(timeout.min(next.since(now))),
        };
        let wants_leases = !self.starved.is_empty() || self.capped > 0;
        if self.datagrams.len() > 0 && self.wants_datagram_leases() {
            return Some(Duration::ZERO);
        }
        let memory = &mut self.memory;
        memory.pool.want(wants_leases);
        let announce = if by_notifier {
            Inbox::prepare_park
        } else {
            Inbox::prepare_sleep
        };
        if timeout == Some(Duration::ZERO) || !announce(&memory.remote) {
            return Some(Duration::ZERO);
        }
        if wants_leases && memory.pool.has_returns() {
            return Some(Duration::ZERO);
        }
        timeout
    }

    /// Takes in what has completed, as long as there is something and the turn's share is not used up.
    fn reap(&mut self) {
        let limit = self.config.completions_per_turn as usize;
        let memory = &mut self.memory;
        self.more_completions = self.engine.reap(&mut memory.pool, limit, &mut self.completions);
        if !self.more_completions {
            self.accepts_behind = 0;
        }
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.note(self.completions.len());
        }
        let mut filled = 0;
        let mut list = std::mem::take(&mut self.completions.list);
        for completion in list.drain(..) {
            // What comes all the time holds nothing, and is not looked at once more to be dropped.
            match completion {
                Completion::Received {
                    connection,
                    received: Received::Data { slot, length },
                    more: true,
                } => {
                    std::mem::forget(completion);
                    self.on_data(connection, slot, length);
                }
                Completion::DatagramsFilled { socket, count, more } => {
                    std::mem::forget(completion);
                    let run = filled..filled + count as usize;
                    filled = run.end;
                    self.on_datagrams_filled(socket, run, more);
                }
                _ => self.on_other(completion),
            }
        }
        self.completions.list = list;
        for index in 0..self.completions.quiet.len() {
            let (connection, bytes) = self.completions.quiet[index];
            self.on_taken(connection, bytes as usize, false);
        }
        debug_assert_eq!(
            filled,
            self.completions.filled.len(),
            "every buffer belongs to a completion"
        );
        self.completions.clear();
    }

    /// Takes in a completion of those that are not for each request.
    #[inline(never)]
    fn on_other(&mut self, completion: Completion) {
        match completion {
            Completion::Received {
                connection,
                received,
                more,
            } => self.on_received(connection, received, more),
            Completion::Sent {
                connection,
                result,
                gather,
                held,
            } => self.on_sent(connection, result, gather, held),
            Completion::Released {
                connection,
                sequence,
                copied,
            } => self.on_released(connection, sequence, copied),
            Completion::Accepted {
                listener,
                result,
                more,
            } => self.on_accepted(listener, result, more),
            Completion::Connected { connection, result } => self.on_connected(connection, result),
            Completion::DatagramsFilled { .. } => unreachable!("its buffers are taken in by number"),
            Completion::DatagramReceived {
                socket,
                received,
                more,
            } => self.on_datagram_received(socket, received, more),
            Completion::DatagramsSent { socket, batch } => self.on_waiting_datagrams_sent(socket, batch),
            Completion::Woken => {}
        }
    }

    #[inline(never)]
    fn take_posts(&mut self) {
        let remote = std::sync::Arc::clone(&self.memory.remote);
        if remote.take_woken() {
            self.events.push_back(Event::Woken);
        }
        self.finish_after_direct_sends();
        // No more than fit in the inbox at once, so that a busy producer cannot keep the loop here.
        for _ in 0..remote.capacity() {
            let Some(command) = remote.pop() else { break };
            self.counters.posted_commands.add(1);
            self.execute(command);
        }
        // Behind what was posted before it.
        if let Some(within) = remote.take_drain() {
            self.drain(within);
        }
    }

    #[inline(never)]
    fn expire_timers(&mut self) {
        // What has come before and was moved since is to be gone, or it would be taken for what comes now.
        self.check_queue();
        let mut due = std::mem::take(&mut self.due_timers);
        self.timers.expire(self.now, TIMERS_PER_TURN, |key| due.push(key));
        for key in due.drain(..) {
            self.counters.timers_fired.add(1);
            self.handlers_timers -= u32::from(key.is_handlers());
            match key {
                TimerKey::Deadline(connection) => self.on_deadline(connection),
                TimerKey::Limit(connection) => self.on_limit(connection),
                TimerKey::Accept(listener) => self.on_accept_retry(listener),
                TimerKey::Timer(token) => {
                    self.named_timers.remove(&token);
                    self.events.push_back(Event::Timer { token });
                }
                TimerKey::DatagramLimit(socket) => self.on_datagram_limit(socket),
                TimerKey::DatagramRetry(socket) => self.on_datagram_retry(socket),
                TimerKey::Drain => self.draining = Draining::Overdue,
                TimerKey::Inspection => self.inspect(),
            }
        }
        self.due_timers = due;
    }

    fn on_deadline(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id.slot(), id.generation()) else {
            return;
        };
        connection.deadline = None;
        connection.is_due = true;
        self.events.push_back(Event::Deadline { connection: id });
    }

    /// Stops listening and tells the handler; see [`Command::Drain`]. Draining already, the loop is given less
    /// time if this is sooner, and never more.
    pub fn drain(&mut self, within: Duration) {
        let end = self.system.now() + within;
        match self.draining {
            Draining::No => {}
            Draining::Until { end: earlier, timer } => {
                if end < earlier {
                    self.clear_timer(timer);
                    self.set_drain_limit(end);
                }
                return;
            }
            Draining::Overdue | Draining::Done => return,
        }
        self.set_drain_limit(end);
        self.memory.remote.begin_to_drain();
        self.stop_all_listeners();
        self.events.push_back(Event::Draining);
    }

    fn stop_all_listeners(&mut self) {
        let listeners: Vec<_> = self
            .listeners
            .slots()
            .map(|(slot, generation)| ListenerId::new(self.index, slot, generation))
            .collect();
        for listener in listeners {
            // One that is stopping already is as good.
            let _ = self.stop_listening(listener);
        }
    }

    fn set_drain_limit(&mut self, end: Time) {
        let timer = self.timers.insert(self.system.now(), end, TimerKey::Drain);
        self.draining = match timer {
            Some(_) => Draining::Until { end, timer },
            // Without a timer the wait for the connections would have no end.
            None => Draining::Overdue,
        };
    }

    pub(super) fn finish_draining(&mut self) {
        if !matches!(self.draining, Draining::No | Draining::Done) {
            self.go_on_draining();
        }
    }

    #[inline(never)]
    fn go_on_draining(&mut self) {
        if self.draining == Draining::Overdue {
            // In every turn: listeners that are being stopped may still have brought some.
            self.abort_all();
            // Nor does the loop wait for one that was made since it began to drain.
            self.stop_all_listeners();
            self.finish_stopped_listeners();
            self.abort_datagrams();
        }
        let left = self.connections.len() + self.listeners.len();
        if left == 0 && self.surplus_accepted.is_empty() {
            if self.events.iter().any(|event| matches!(event, Event::Draining)) {
                // The handler gets what came before it is told.
                self.notified = true;
                return;
            }
            if self.draining != Draining::Overdue && self.memory.remote.may_be_handed_more() {
                // It is here by the next turn.
                self.notified = true;
                return;
            }
            if self.datagrams.len() > 0 {
                // Last: what is being finished may need them.
                self.close_datagrams();
                return;
            }
            self.draining = Draining::Done;
            self.events.push_back(Event::Drained);
        }
    }

    fn abort_all(&mut self) {
        let connections: Vec<_> = self
            .connections
            .slots()
            .map(|(slot, generation)| ConnectionId::new(self.index, slot, generation))
            .collect();
        for connection in connections {
            self.cut(connection);
        }
    }
}
