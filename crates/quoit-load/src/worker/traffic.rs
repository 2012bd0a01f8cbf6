//! Moving bytes over open connections, and ending them.

use std::io::{self, Read};

use mio::Token;
use mio::event::Event;

use super::super::connection::Phase;
use super::super::error::LoadError;
use super::super::pacing::{Due, Pacing};
use super::super::protocol::{BATCH_BYTES, Protocol, Then};
use super::{SCAN_INTERVAL, SCANNED_AT_ONCE, SLOW_INTERVAL, Stage, Worker};

/// Why an open connection ends.
pub(super) enum End {
    /// The server said that it would.
    Announced,
    /// It had one request, which is answered.
    Done,
    ByServer,
    Failed(io::Error),
    TimedOut,
    /// What came cannot be understood any more.
    WrongReply,
}

impl<P: Protocol> Worker<P> {
    /// # Errors
    /// Latencies cannot be merged.
    pub(super) fn on_event(&mut self, event: &Event) -> Result<(), LoadError> {
        let Token(index) = event.token();
        // The waker and the timer have tokens that no connection has.
        let Some(connection) = self.connections.get_mut(index) else {
            return Ok(());
        };
        match connection.phase {
            Phase::Closed { .. } => {}
            Phase::Connecting { .. } => self.finish_connecting(index),
            Phase::Open { .. } => {
                let ended = event.is_read_closed() || event.is_error();
                if event.is_readable() || ended {
                    if let Some(slow) = &mut connection.slow {
                        slow.readable = true;
                    } else {
                        return self.receive(index, ended);
                    }
                }
                if connection.has_unsent() {
                    let now = self.clock.now();
                    self.send_due(index, now);
                }
            }
        }
        Ok(())
    }

    /// Reads and judges what has arrived, then sends what that makes due.
    fn receive(&mut self, index: usize, ended: bool) -> Result<(), LoadError> {
        loop {
            let Phase::Open { socket } = &mut self.connections[index].phase else {
                return Ok(());
            };
            match socket.read(&mut self.read_buffer) {
                Ok(0) => self.close(index, End::ByServer),
                Ok(length) => {
                    let now = self.clock.now();
                    self.recorder.advance(now)?;
                    if let Some(end) = self.judge(index, length, now) {
                        self.close(index, end);
                    } else if length < self.read_buffer.len() && !ended {
                        self.send_due(index, now);
                    } else {
                        continue;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let now = self.clock.now();
                    self.send_due(index, now);
                }
                Err(error) => self.close(index, End::Failed(error)),
            }
            return Ok(());
        }
    }

    /// Judges `length` bytes just read: why the connection has to end, if it has to.
    fn judge(&mut self, index: usize, length: usize, now: u64) -> Option<End> {
        self.recorder.received(now, length);
        let connection = &mut self.connections[index];
        let input = &self.read_buffer[..length];
        let before = self.protocol.outstanding(&connection.state);
        let mut counter = self.recorder.counter(now, self.clock.slip_history());
        let then = self
            .protocol
            .take(&mut connection.state, input, now, &mut counter);
        let completed = counter.completed();
        connection.was_useful |= completed > 0;
        self.replies += completed;
        let after = self.protocol.outstanding(&connection.state);
        self.outstanding = self.outstanding + u64::from(after) - u64::from(before);
        match then {
            Then::GoOn if self.assignment.churn && after == 0 => Some(End::Done),
            Then::GoOn => None,
            Then::Announced => Some(End::Announced),
            Then::GiveUp => Some(End::WrongReply),
        }
    }

    /// Reads a little from each of the connections that read slowly.
    pub(super) fn read_slowly(&mut self, now: u64) {
        let passed = now - self.next_slow.saturating_sub(SLOW_INTERVAL);
        self.next_slow = now + SLOW_INTERVAL;
        // A pause of the run's own must not be made up for at once.
        let passed = passed.min(2 * SLOW_INTERVAL) as f64 / 1e9;
        self.slow_credit += f64::from(self.assignment.slow_bytes_per_second) * passed;
        let budget = (self.slow_credit as usize).min(self.read_buffer.len());
        self.slow_credit -= self.slow_credit.floor();
        if budget == 0 {
            return;
        }
        for index in 0..self.assignment.slow {
            let connection = &mut self.connections[index];
            let (Phase::Open { socket }, Some(slow)) = (&mut connection.phase, &mut connection.slow) else {
                continue;
            };
            if !slow.readable {
                continue;
            }
            match socket.read(&mut self.read_buffer[..budget]) {
                Ok(0) => self.close(index, End::ByServer),
                Ok(length) => {
                    let input = &self.read_buffer[..length];
                    let mut counter = self.recorder.slow_counter(now);
                    connection.was_useful = true;
                    match self
                        .protocol
                        .take(&mut connection.state, input, now, &mut counter)
                    {
                        Then::GoOn => self.send_due(index, now),
                        Then::Announced => self.close(index, End::Announced),
                        Then::GiveUp => self.close(index, End::WrongReply),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => slow.readable = false,
                Err(error) => self.close(index, End::Failed(error)),
            }
        }
    }

    /// Sends on the connections for which something has fallen due.
    pub(super) fn send_timetabled(&mut self, mut now: u64) {
        while let Some(index) = self.pacing.pop_timer(now) {
            let connection = &mut self.connections[index];
            Pacing::timer_popped(&mut connection.place);
            if self.assignment.churn && matches!(connection.phase, Phase::Closed { .. }) {
                self.to_open.push_back(index);
                continue;
            }
            if !connection.is_open() || connection.has_unsent() {
                connection.place.block();
                continue;
            }
            now = self.clock.now();
            self.send_due(index, now);
        }
        if self.assignment.churn {
            self.open_queued();
        }
    }

    /// Notes how late a request is sent.
    pub(super) fn record_lag(&mut self, due: Due) {
        if let Some(lag) = due.lag
            && self.recorder.window().contains(due.start)
        {
            let slipped = due.start < self.clock.slip_history().last_end();
            let tally = self.recorder.tally();
            let lags = if slipped {
                &mut tally.slipped_lag
            } else {
                &mut tally.lag
            };
            lags.saturating_record(lag);
        }
    }

    /// Sends what is due on an open connection. `now` is when the last bytes were read.
    pub(super) fn send_due(&mut self, index: usize, mut now: u64) {
        loop {
            let connection = &mut self.connections[index];
            if !connection.is_open() {
                return;
            }
            self.batch.clear();
            if !connection.has_unsent() {
                self.fill_batch(index, now);
                if self.batch.is_empty() {
                    return;
                }
            }
            let connection = &mut self.connections[index];
            let batched_all = !self.batch.is_empty() && self.batch.len() < BATCH_BYTES;
            if let Err(error) = connection.write(&self.batch, self.poll.registry(), Token(index)) {
                return self.close(index, End::Failed(error));
            }
            if connection.has_unsent() || batched_all {
                return;
            }
            now = self.clock.now();
        }
    }

    /// Collects what is to be written on a connection at once.
    fn fill_batch(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let before = self.protocol.outstanding(&connection.state);
        self.protocol.respond(&mut connection.state, &mut self.batch);
        if self.assignment.churn {
            if let Some(start) = connection.opened_for.take() {
                self.protocol.begin(&mut connection.state, start, &mut self.batch);
                self.sent += 1;
            }
        } else {
            while self.batch.len() < BATCH_BYTES {
                let connection = &mut self.connections[index];
                let outstanding = self.protocol.outstanding(&connection.state);
                let Some(due) = self.pacing.take(&mut connection.place, index, outstanding, now) else {
                    break;
                };
                self.protocol
                    .begin(&mut connection.state, due.start, &mut self.batch);
                self.sent += u64::from(connection.slow.is_none());
                self.record_lag(due);
            }
        }
        let connection = &self.connections[index];
        if connection.slow.is_none() {
            let after = self.protocol.outstanding(&connection.state);
            self.outstanding = self.outstanding + u64::from(after) - u64::from(before);
        }
    }

    /// Lets the protocol end what would not end by itself.
    pub(super) fn wind_down(&mut self) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if !connection.is_open() {
                continue;
            }
            self.batch.clear();
            self.protocol.wind_down(&mut connection.state, &mut self.batch);
            if !self.batch.is_empty()
                && let Err(error) = connection.write(&self.batch, self.poll.registry(), Token(index))
            {
                self.close(index, End::Failed(error));
            }
        }
    }

    /// Ends an open connection, counts why, and has it opened again if there is more to send.
    pub(super) fn close(&mut self, index: usize, end: End) {
        let now = self.clock.now();
        let connection = &mut self.connections[index];
        let was_useful = connection.was_useful;
        let is_slow = connection.slow.is_some();
        if !is_slow {
            self.outstanding -= u64::from(self.protocol.outstanding(&connection.state));
        }
        let running = matches!(self.stage, Stage::Running(_));
        let announced = matches!(end, End::Announced);
        let mut lost = 0;
        self.protocol
            .withdraw(&mut connection.state, &mut |start, count| {
                lost += count;
                if announced && running {
                    for _ in 0..count {
                        self.pacing.give_back(&mut connection.place, start);
                    }
                }
            });
        let state = self.protocol.connection(0, now);
        connection.reset(Phase::Closed { retry_at: None }, state);
        connection.place.block();
        self.open -= 1;
        if announced && running && !is_slow {
            self.recorder.tally().repeated += u64::from(lost);
        }
        if !announced && !is_slow {
            self.recorder.lost(now, lost);
        }
        let nothing_to_send =
            matches!(self.stage, Stage::Draining { .. }) || (running && self.pacing.is_exhausted());
        // A server may close a connection that asks nothing of it any more.
        if lost > 0 || !nothing_to_send {
            self.count_end(&end);
        }
        if !nothing_to_send {
            if was_useful || announced {
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
        let tally = self.recorder.tally();
        match end {
            End::Announced | End::Done | End::WrongReply => {}
            End::ByServer => {
                tally.errors.closed_early += 1;
                tally.note(|| format!("{target} closed a connection without announcing it"));
            }
            End::Failed(error) => {
                tally.errors.reset += 1;
                tally.note(|| format!("a connection to {target} failed: {error}"));
            }
            End::TimedOut => {
                tally.errors.timeouts += 1;
                let seconds = self.assignment.timeout as f64 / 1e9;
                tally.note(|| format!("{target} sent no reply within {seconds} s"));
            }
        }
    }

    /// Looks for replies and attempts that are overdue, and for connections to open again: at some connections a
    /// time, so that each is looked at once a scan interval.
    pub(super) fn scan(&mut self, now: u64) {
        let all = self.connections.len();
        let scans = all.div_ceil(SCANNED_AT_ONCE).max(1);
        self.next_scan = now + SCAN_INTERVAL / scans as u64;
        let first = self.scan_from;
        let end = (first + SCANNED_AT_ONCE).min(all);
        self.scan_from = if end == all { 0 } else { end };
        let wanted = match self.stage {
            Stage::Opening { .. } => true,
            Stage::Running(_) => !self.pacing.is_exhausted(),
            Stage::Draining { .. } => false,
        };
        let timeout = self.assignment.timeout;
        for index in first..end {
            let connection = &mut self.connections[index];
            match connection.phase {
                Phase::Closed { retry_at: Some(at) }
                    if at <= now && (wanted || connection.opened_for.is_some()) =>
                {
                    connection.phase = Phase::Closed { retry_at: None };
                    self.to_open.push_back(index);
                }
                Phase::Connecting { since, .. } if now.saturating_sub(since) > timeout => {
                    self.connecting -= 1;
                    let error = io::Error::from(io::ErrorKind::TimedOut);
                    self.connect_failed(index, now, &error);
                }
                // A slow connection waits for itself.
                Phase::Open { .. }
                    if connection.slow.is_none()
                        && self
                            .protocol
                            .waiting_since(&connection.state)
                            .is_some_and(|since| now.saturating_sub(since) > timeout) =>
                {
                    self.close(index, End::TimedOut);
                }
                _ => {}
            }
        }
    }
}
