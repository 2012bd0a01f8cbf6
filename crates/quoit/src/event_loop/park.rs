//! Waiting elsewhere: a loop inside the loop of another library.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::{Loop, TurnError};
use crate::engine::Engine;
use crate::errno::Errno;
use crate::sys::SocketSys;
use crate::thread::ThreadNumber;

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// A descriptor that becomes readable when a [parked](Loop::park) loop has something to do, for the poller of
    /// another library: an eventfd registered with the ring, or the epoll instance. Do not read from it, write to
    /// it or close it; it lasts as long as the loop. Call this before the first turn, or on the loop's thread.
    ///
    /// A round of a parked loop costs io_uring three system calls (the poller's wait, the turn's `io_uring_enter(2)`, and
    /// a read of the eventfd by [`Loop::park`]) where a turn that waits itself needs one; on epoll it costs the poller's wait
    /// and a turn that finds nothing more.
    ///
    /// # Errors
    /// [`Errno::EEXIST`] on another thread than the loop's; the kernel's, for want of descriptors.
    pub fn poll_descriptor(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        let notifier = self.memory().remote.notifier()?;
        let descriptor = self.engine.poll_descriptor(notifier)?;
        if !std::mem::replace(&mut self.pollable, true) {
            self.woken_by_notifier = descriptor == notifier;
        }
        // SAFETY: the engine and the remote keep theirs open as long as the loop exists, and it is borrowed with that.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Prepares for a wait on [`Loop::poll_descriptor`] and answers how long that may last: until the next timer,
    /// or without end (`None`). Zero: there is something to do; make a turn first. To park a loop, make turns that
    /// do not wait until this answers more than zero:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn wait(descriptor: std::os::fd::BorrowedFd<'_>, limit: Option<Duration>) {}
    /// # fn run(quoit: &mut quoit::Loop, events: &mut quoit::Events) -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     quoit.turn([], events, Some(Duration::ZERO))?;
    ///     for event in events.drain() { /* ... */ }
    ///     let limit = quoit.park()?;
    ///     if limit != Some(Duration::ZERO) {
    ///         wait(quoit.poll_descriptor()?, limit);
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// A parked loop is a sleeping one: its [`Remote`](crate::Remote) makes the descriptor readable. The next turn
    /// ends that, whether the descriptor was readable or not. Being readable promises nothing.
    ///
    /// # Errors
    /// [`TurnError::WrongThread`]; [`TurnError::Engine`] if there can be no [`Loop::poll_descriptor`].
    pub fn park(&mut self) -> Result<Option<Duration>, TurnError> {
        match self.owner {
            None => return Ok(Some(Duration::ZERO)),
            Some(owner) if owner == ThreadNumber::current() => {}
            Some(_) => return Err(TurnError::WrongThread),
        }
        if self.parked {
            // The announcement is renewed, so that work which has come since is seen.
            self.end_parking();
        }
        if !self.pollable {
            self.poll_descriptor().map_err(TurnError::Engine)?;
        }
        // As a turn would, so that none is needed for what handlers did in the last one.
        self.settle();
        self.finish_draining();
        let memory = self.memory.as_mut().expect("present until the loop is dropped");
        if self.notified || !self.engine.park(&mut memory.pool) {
            return Ok(Some(Duration::ZERO));
        }
        let now = self.system.now();
        let limit = self.sleep_time(None, now, self.woken_by_notifier);
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
            self.notified |= self.memory().remote.end_sleep();
        }
    }
}
