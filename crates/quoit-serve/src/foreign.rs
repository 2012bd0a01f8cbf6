//! Loops inside a loop that is not theirs: an epoll instance of this program, as a server has one whose other work waits there
//! too, with each loop's descriptor in it ([`Loop::park`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use quoit::{Errno, Events, Handler, Loop, TurnError};

/// Events that are taken in one turn, as many as [`Loop::run`] takes.
const EVENTS: usize = 1024;

/// Drives a loop until it has drained: turns that do not wait, and between them waits in an epoll instance.
///
/// # Errors
/// Those of the loop's turns and of the epoll instance.
pub(super) fn drive(event_loop: &mut Loop, handler: &mut impl Handler) -> Result<(), TurnError> {
    let mut events = Events::with_capacity(EVENTS);
    let failed = |error: io::Error| TurnError::Engine(Errno::from_io(&error));
    let poller = Poller::new().map_err(failed)?;
    let mut watched = false;
    while event_loop.run_turn(handler, &mut events, Some(Duration::ZERO))? {
        if !watched {
            let descriptor = event_loop.poll_descriptor()?;
            poller.watch(descriptor).map_err(failed)?;
            watched = true;
        }
        let limit = event_loop.park()?;
        if limit != Some(Duration::ZERO) {
            poller.wait(limit).map_err(failed)?;
        }
    }
    Ok(())
}

/// An epoll instance.
struct Poller(OwnedFd);

impl Poller {
    fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call has just made the descriptor, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(epoll) }))
    }

    /// Ends waits while the descriptor is readable.
    fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        // SAFETY: the event is valid and only read.
        check(unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                descriptor.as_raw_fd(),
                &raw mut event,
            )
        })?;
        Ok(())
    }

    /// Waits until what is watched is readable, at most so long; an interruption by a signal ends it as well.
    fn wait(&self, limit: Option<Duration>) -> io::Result<()> {
        // Rounded up, so that a timer is not looked for in vain just before it is due.
        let milliseconds = limit.map_or(-1, |limit| {
            let milliseconds = limit.as_nanos().div_ceil(1_000_000);
            i32::try_from(milliseconds).unwrap_or(i32::MAX)
        });
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for the one event that is asked for.
        let result = check(unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, milliseconds) });
        match result {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
