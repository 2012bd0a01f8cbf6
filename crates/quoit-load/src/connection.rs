//! One connection: its socket, the protocol's state, and the bytes that the kernel would not take yet.

use std::io::{self, Write};

use mio::{Interest, Registry, Token};

use super::pacing::Place;
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

/// A connection that reads slowly.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slow {
    /// Whether there may be something to read.
    pub(super) readable: bool,
}

/// One connection. Times are in nanoseconds of the run's clock.
#[derive(Debug)]
pub(super) struct Connection<S> {
    pub(super) phase: Phase,
    /// The protocol's state.
    pub(super) state: S,
    /// Its place in the pacing.
    pub(super) place: Place,
    /// The start of the request that it is opened for, where each request has a connection of its own.
    pub(super) opened_for: Option<u64>,
    /// How it reads slowly, if it does.
    pub(super) slow: Option<Slow>,
    /// Whether something was completed since it was opened.
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
    pub(super) fn new(state: S, place: Place, slow: Option<Slow>) -> Self {
        Connection {
            phase: Phase::Closed { retry_at: None },
            state,
            place,
            opened_for: None,
            slow,
            was_useful: false,
            was_opened: false,
            failures: 0,
            unsent: Vec::new(),
            unsent_start: 0,
            watches_room: false,
        }
    }

    /// Forgets everything of the socket that ended, and starts over with `state`.
    pub(super) fn reset(&mut self, phase: Phase, state: S) {
        self.phase = phase;
        self.state = state;
        self.unsent.clear();
        self.unsent_start = 0;
        self.watches_room = false;
        self.was_useful = false;
        self.slow = self.slow.map(|_| Slow::default());
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unsent_start < self.unsent.len()
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
