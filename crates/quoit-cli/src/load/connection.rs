//! One connection: its socket, what is outstanding on it, and the bytes that the kernel would not take yet.

use std::collections::VecDeque;
use std::io::{self, Write};

use mio::{Interest, Registry, Token};

use super::target::Socket;

/// Where a connection stands.
#[derive(Debug)]
pub(super) enum Phase {
    /// Not open. It is opened again at the first scan after `retry_at`; `None`: it is in the queue of those
    /// to open, or is left closed because nothing more is to be sent.
    Closed { retry_at: Option<u64> },
    /// The attempt began at `since`.
    Connecting { socket: Socket, since: u64 },
    /// Requests can be sent.
    Open { socket: Socket },
}

/// Requests that were written together.
#[derive(Debug)]
struct Batch {
    start: u64,
    count: u32,
}

/// One connection. Times are in nanoseconds of the run's clock.
#[derive(Debug)]
pub(super) struct Connection<S> {
    pub(super) phase: Phase,
    /// The protocol's state.
    pub(super) state: S,
    /// Requests that were sent and not answered.
    pub(super) outstanding: u32,
    batches: VecDeque<Batch>,
    /// When the last reply came.
    last_reply: u64,
    /// Whether a reply has come since it was opened.
    pub(super) was_useful: bool,
    /// Whether it has been opened before.
    pub(super) was_opened: bool,
    /// Attempts in a row that failed.
    pub(super) failures: u32,
    /// Bytes that the kernel had no room for, from `unsent_start` on.
    unsent: Vec<u8>,
    unsent_start: usize,
    watches_room: bool,
}

impl<S> Connection<S> {
    pub(super) fn new(state: S, depth: u32) -> Self {
        Connection {
            phase: Phase::Closed { retry_at: None },
            state,
            outstanding: 0,
            // A batch holds at least one request, so that `depth` is room enough; far deeper pipelines, whose
            // requests go out in large batches, are spared memory that they hardly ever use.
            batches: VecDeque::with_capacity(depth.min(1024) as usize),
            last_reply: 0,
            was_useful: false,
            was_opened: false,
            failures: 0,
            unsent: Vec::new(),
            unsent_start: 0,
            watches_room: false,
        }
    }

    /// Forgets everything of the socket that ended, and starts over with `state`. Returns the number of
    /// requests that were outstanding.
    pub(super) fn reset(&mut self, phase: Phase, state: S) -> u32 {
        self.phase = phase;
        self.state = state;
        self.batches.clear();
        self.unsent.clear();
        self.unsent_start = 0;
        self.watches_room = false;
        self.was_useful = false;
        std::mem::take(&mut self.outstanding)
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unsent_start < self.unsent.len()
    }

    /// Notes that `count` requests are about to be written.
    pub(super) fn sent(&mut self, start: u64, count: u32) {
        self.batches.push_back(Batch { start, count });
        self.outstanding += count;
    }

    /// Settles the oldest `count` outstanding requests at `now`, giving each group's latency and size.
    pub(super) fn settle(&mut self, mut count: u32, now: u64, mut latency: impl FnMut(u64, u32)) {
        debug_assert!(count <= self.outstanding);
        self.outstanding -= count;
        self.last_reply = now;
        self.was_useful = true;
        while count > 0
            && let Some(batch) = self.batches.front_mut()
        {
            let taken = count.min(batch.count);
            latency(now.saturating_sub(batch.start), taken);
            count -= taken;
            batch.count -= taken;
            if batch.count == 0 {
                self.batches.pop_front();
            }
        }
    }

    /// How long the oldest request has waited for its turn to be answered.
    pub(super) fn waited(&self, now: u64) -> u64 {
        self.batches
            .front()
            .map_or(0, |batch| now.saturating_sub(batch.start.max(self.last_reply)))
    }

    /// Writes what the kernel had no room for, then `bytes`; what there is no room for is kept, and
    /// writability is then waited for.
    ///
    /// # Errors
    /// Those of send(2).
    pub(super) fn write(&mut self, bytes: &[u8], registry: &Registry, token: Token) -> io::Result<()> {
        let Phase::Open { socket } = &mut self.phase else {
            return Ok(());
        };
        while self.unsent_start < self.unsent.len() {
            match write_some(socket, &self.unsent[self.unsent_start..])? {
                0 => break,
                written => self.unsent_start += written,
            }
        }
        let mut written = 0;
        if self.unsent_start == self.unsent.len() {
            self.unsent.clear();
            self.unsent_start = 0;
            while written < bytes.len() {
                match write_some(socket, &bytes[written..])? {
                    0 => break,
                    more => written += more,
                }
            }
        }
        self.unsent.extend_from_slice(&bytes[written..]);
        // Writability is watched only while it is needed: a Unix socket reports it with every read of the
        // peer. Registering again reports a room that has come about since.
        let needs_room = !self.unsent.is_empty();
        if needs_room != self.watches_room {
            let wanted = if needs_room {
                Interest::READABLE | Interest::WRITABLE
            } else {
                Interest::READABLE
            };
            socket.reregister(registry, token, wanted)?;
            self.watches_room = needs_room;
        }
        Ok(())
    }
}

/// One write; zero means that there is no room.
fn write_some(socket: &mut Socket, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match socket.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_those_of_the_oldest_requests() {
        let mut connection = Connection::new((), 4);
        connection.sent(100, 3);
        connection.sent(150, 1);
        let mut seen = Vec::new();
        connection.settle(2, 200, |latency, count| seen.push((latency, count)));
        connection.settle(2, 300, |latency, count| seen.push((latency, count)));
        assert_eq!(seen, [(100, 2), (200, 1), (150, 1)]);
        assert_eq!(connection.outstanding, 0);
        assert_eq!(connection.waited(1_000), 0);
    }

    #[test]
    fn a_request_behind_others_waits_from_the_last_reply_on() {
        let mut connection = Connection::new((), 2);
        connection.sent(100, 2);
        assert_eq!(connection.waited(400), 300);
        connection.settle(1, 500, |_, _| {});
        assert_eq!(connection.waited(600), 100);
        assert_eq!(connection.reset(Phase::Closed { retry_at: None }, ()), 1);
    }
}
