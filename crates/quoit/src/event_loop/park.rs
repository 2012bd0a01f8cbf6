//! Waiting elsewhere: a loop inside the loop of another library.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::{Loop, TurnError};
use crate::engine::{Engine, PollDescriptor, Trigger};
use crate::sys::SocketSys;
use crate::thread::ThreadNumber;

/// The loop was not made to be waited for by another library's poller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotPollable;

impl fmt::Display for NotPollable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the loop was not made to be waited for by another poller; set `pollable` in its configuration before it is \
             made",
        )
    }
}

impl std::error::Error for NotPollable {}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// A descriptor that becomes readable when a [parked](Loop::park) loop has something to do, for the poller of
    /// another library: an eventfd registered with the ring, or the epoll instance. Do not read from it, write to
    /// it or close it; it lasts as long as the loop. Only a loop that was made [pollable](crate::Config::pollable) has
    /// one.
    ///
    /// A round of a parked loop costs io_uring three system calls (the poller's wait, the turn's `io_uring_enter(2)`, and
    /// a read of the eventfd by [`Loop::park`], which [`Loop::park_edge_triggered`] spares) where a turn that waits itself
    /// needs one. On epoll it costs the poller's wait, and a turn that finds nothing more where the last one was told of
    /// several sockets.
    ///
    /// # Errors
    /// [`NotPollable`].
    pub fn poll_descriptor(&self) -> Result<BorrowedFd<'_>, NotPollable> {
        let (PollDescriptor::Notifier(descriptor) | PollDescriptor::Own(descriptor)) =
            self.poll_descriptor.ok_or(NotPollable)?;
        // SAFETY: the engine and the remote keep theirs open as long as the loop exists, and it is borrowed with that.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Prepares for a wait on [`Loop::poll_descriptor`] and returns how long that may last: until the next timer,
    /// or without end (`None`). Zero: there is something to do; make a turn first. To park a loop, make turns that
    /// do not wait until this returns more than zero:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn wait(descriptor: std::os::fd::BorrowedFd<'_>, limit: Option<Duration>) {}
    /// # fn run(event_loop: &mut quoit::Loop, events: &mut quoit::Events) -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     event_loop.turn([], events, Some(Duration::ZERO))?;
    ///     for event in events.drain() { /* ... */ }
    ///     let limit = event_loop.park()?;
    ///     if limit != Some(Duration::ZERO) {
    ///         wait(event_loop.poll_descriptor()?, limit);
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// A parked loop is a sleeping one: its [`Remote`](crate::Remote) makes the descriptor readable. The next turn
    /// ends that, whether the descriptor was readable or not. Being readable promises nothing.
    ///
    /// # Errors
    /// [`TurnError::NotPollable`]; [`TurnError::WrongThread`].
    pub fn park(&mut self) -> Result<Option<Duration>, TurnError> {
        self.park_for(Trigger::Level)
    }

    /// As [`Loop::park`], for a poller that reports each write of the descriptor and not that it is readable (`EPOLLET` in
    /// `epoll_ctl(2)`, as mio and tokio watch): on io_uring the eventfd is then never read, which saves a system call a
    /// round. A poller that reports a readable descriptor again and again must not be used with it: it would never sleep.
    ///
    /// # Errors
    /// As [`Loop::park`].
    pub fn park_edge_triggered(&mut self) -> Result<Option<Duration>, TurnError> {
        self.park_for(Trigger::Edge)
    }

    fn park_for(&mut self, trigger: Trigger) -> Result<Option<Duration>, TurnError> {
        let descriptor = self.poll_descriptor.ok_or(NotPollable)?;
        match self.owner {
            None => return Ok(Some(Duration::ZERO)),
            Some(owner) if owner == ThreadNumber::current() => {}
            Some(_) => return Err(TurnError::WrongThread),
        }
        if self.parked {
            // The announcement is renewed, so that work which has come since is seen.
            self.end_parking();
        }
        // As a turn would, so that none is needed for what handlers did in the last one.
        self.prepare_wait();
        self.finish_draining();
        let memory = &mut self.memory;
        if self.notified || !self.engine.park(trigger, &mut memory.pool) {
            return Ok(Some(Duration::ZERO));
        }
        let now = self.system.now();
        let by_notifier = matches!(descriptor, PollDescriptor::Notifier(_));
        let limit = self.sleep_time(None, now, by_notifier);
        if limit != Some(Duration::ZERO) {
            self.parked = true;
            // The time until the next turn is sleep, and no handler's.
            self.waited_until = None;
            self.note_gauges();
        }
        Ok(limit)
    }

    /// Takes the announcement of sleep back; a wake that came meanwhile is kept for the turn.
    pub(super) fn end_parking(&mut self) {
        if std::mem::take(&mut self.parked) {
            self.notified |= self.memory.remote.end_sleep();
        }
    }
}
