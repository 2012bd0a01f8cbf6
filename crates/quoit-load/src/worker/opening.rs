//! Making connections: how many at once, at what times, and what follows a failure.

use std::io;

use mio::{Interest, Token};

use super::super::connection::Phase;
use super::super::protocol::Protocol;
use super::{SCAN_INTERVAL, Stage, Worker};

/// The most that doubling lengthens the wait between attempts: to 1.6 seconds.
const MOST_DOUBLINGS: u32 = 4;

impl<P: Protocol> Worker<P> {
    /// Starts connecting as many of the queued connections as may be under way at once.
    pub(super) fn open_queued(&mut self) {
        if matches!(self.stage, Stage::Draining { .. }) {
            return;
        }
        while self.connecting < self.most_connecting && !self.to_open.is_empty() && !self.holds_ramp() {
            let Some(index) = self.to_open.pop_front() else {
                return;
            };
            let now = self.clock.now();
            if !self.assignment.churn || self.take_for_opening(index, now) {
                self.start_connecting(index, now);
            }
        }
    }

    /// Whether the next connection is to be opened later, so that all are opened evenly over the given time.
    fn holds_ramp(&mut self) -> bool {
        matches!(self.stage, Stage::Opening { .. })
            && self.next_ramped().is_some_and(|at| self.clock.now() < at)
    }

    /// When the next connection may be opened for the first time, if that is a matter of time.
    pub(super) fn next_ramped(&self) -> Option<u64> {
        let all = self.connections.len();
        (self.assignment.ramp_up > 0 && self.ramped < all && !self.assignment.churn).then(|| {
            let before = u128::from(self.assignment.ramp_up) * self.ramped as u128;
            // No more than the whole time, which is a u64.
            (before / all as u128) as u64
        })
    }

    /// Whether all connections are open, or have had the time to be.
    pub(super) fn opening_is_over(&self, now: u64) -> bool {
        let deadline = self.assignment.ramp_up.saturating_add(self.assignment.timeout);
        self.assignment.churn || self.open == self.connections.len() || now >= deadline
    }

    /// Takes the request that a connection is to be opened for, if one is due.
    fn take_for_opening(&mut self, index: usize, now: u64) -> bool {
        let connection = &mut self.connections[index];
        if connection.opened_for.is_some() {
            return true;
        }
        let Some(due) = self.pacing.take(&mut connection.place, index, 0, now) else {
            return false;
        };
        connection.opened_for = Some(due.start);
        self.record_lag(due);
        true
    }

    fn start_connecting(&mut self, index: usize, since: u64) {
        self.ramped += 1;
        let options = self.assignment.options(index);
        let connection = &mut self.connections[index];
        let opened = self.assignment.target.connect(options).and_then(|mut socket| {
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

    pub(super) fn finish_connecting(&mut self, index: usize) {
        let now = self.clock.now();
        let connection = &mut self.connections[index];
        let Phase::Connecting { socket, since } = &mut connection.phase else {
            return;
        };
        let since = *since;
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
                    self.next_id = id.wrapping_add(self.assignment.threads as u32);
                    connection.reset(Phase::Open { socket }, self.protocol.connection(id, now));
                }
                connection.failures = 0;
                let again = std::mem::replace(&mut connection.was_opened, true) && !self.assignment.churn;
                let in_window = self.recorder.window().contains(now);
                let tally = self.recorder.tally();
                tally.reconnects += u64::from(again);
                if in_window || !self.assignment.churn {
                    tally.connects.saturating_record(now - since);
                }
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

    /// Counts a failed attempt; the next one is made after a wait that doubles each time.
    pub(super) fn connect_failed(&mut self, index: usize, now: u64, error: &io::Error) {
        let connection = &mut self.connections[index];
        let wait = SCAN_INTERVAL << connection.failures.min(MOST_DOUBLINGS);
        connection.failures += 1;
        connection.place.block();
        connection.phase = Phase::Closed {
            retry_at: Some(now + wait),
        };
        let tally = self.recorder.tally();
        if error.kind() == io::ErrorKind::ConnectionRefused {
            tally.errors.connect_refused += 1;
        } else {
            tally.errors.connect_other += 1;
        }
        let target = &self.assignment.target;
        tally.note(|| match error.kind() {
            io::ErrorKind::AddrNotAvailable => format!(
                "connecting to {target}: {error}; the local ports are used up or --source is no address of this \
                 machine: give several with --source, or widen net.ipv4.ip_local_port_range"
            ),
            _ => format!("connecting to {target}: {error}"),
        });
    }
}
