//! A timer that wakes an epoll instance to the microsecond: epoll_wait(2) knows milliseconds only, and rounds them
//! up by the thread's timer slack (50 microseconds, PR_SET_TIMERSLACK in prctl(2)), which timerfd does not have.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::system::{arm_timer, new_timer};

/// A timer that is registered with an epoll instance.
#[derive(Debug)]
pub(super) struct Timer {
    descriptor: OwnedFd,
    /// What it is armed for.
    deadline: Option<u64>,
}

impl Timer {
    /// Reports readiness as `token`, once for each time that it goes off; it need not be read.
    ///
    /// # Errors
    /// Those of timerfd_create(2) and epoll_ctl(2).
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let descriptor = new_timer()?;
        registry.register(&mut SourceFd(&descriptor.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Timer {
            descriptor,
            deadline: None,
        })
    }

    /// Goes off at `deadline`, which lies after `now`, and not at what it was armed for before.
    ///
    /// # Errors
    /// Those of timerfd_settime(2).
    pub(super) fn arm(&mut self, deadline: u64, now: u64) -> io::Result<()> {
        if self.deadline != Some(deadline) {
            arm_timer(&self.descriptor, deadline.saturating_sub(now).max(1))?;
            self.deadline = Some(deadline);
        }
        Ok(())
    }
}
