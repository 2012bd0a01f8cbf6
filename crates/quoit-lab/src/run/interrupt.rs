//! Ending a run early, and waiting in a way that an end can break into.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use quoit_host::monotonic_now;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{SigId, low_level};

use crate::error::{LabError, Result};

/// The signals that ask a run to end. From the first one on the run winds up; children are stopped, what was
/// measured is written, settings are restored.
pub(crate) struct Interrupts {
    /// Readable from the first signal on: it is never drained.
    arrived: UnixStream,
    registered: Vec<SigId>,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The time came.
    Time,
    /// The process ended.
    Ended,
    /// The run was asked to end.
    Interrupted,
}

impl Interrupts {
    /// Takes SIGINT and SIGTERM for as long as the value lives, and SIGHUP, the end of the terminal, unless it is ignored
    /// (nohup(1)).
    ///
    /// # Errors
    /// No pair of sockets can be made, or a signal cannot be handled.
    pub(crate) fn listen() -> Result<Self> {
        let (arrived, sender) = UnixStream::pair().map_err(LabError::io("making a pair of sockets"))?;
        let mut interrupts = Self {
            arrived,
            registered: Vec::new(),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if signal == SIGHUP && is_ignored(signal)? {
                continue;
            }
            let registered = sender
                .try_clone()
                .and_then(|sender| low_level::pipe::register(signal, sender))
                .map_err(LabError::io(format!("handling signal {signal}")))?;
            interrupts.registered.push(registered);
        }
        Ok(interrupts)
    }

    /// Whether the run was asked to end.
    pub(crate) fn arrived(&self) -> bool {
        // A failing poll(2) is as good as no signal: the next look finds it.
        self.wait(None, Duration::ZERO)
            .is_ok_and(|woken| woken == Woken::Interrupted)
    }

    /// Waits for a moment of CLOCK_MONOTONIC, the end of a process (a descriptor of pidfd_open(2)), or a signal;
    /// a signal counts first.
    ///
    /// # Errors
    /// Those of ppoll(2).
    pub(crate) fn wait(&self, process: Option<BorrowedFd<'_>>, until: Duration) -> io::Result<Woken> {
        let arrived = PollFd::new(&self.arrived, PollFlags::IN);
        // Without a process the first is looked at twice.
        let process = process.map(|process| PollFd::from_borrowed_fd(process, PollFlags::IN));
        let mut polls = [arrived.clone(), process.unwrap_or(arrived)];
        loop {
            let left = until.saturating_sub(monotonic_now());
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut polls, timeout.as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !polls[0].revents().is_empty() {
                return Ok(Woken::Interrupted);
            } else if !polls[1].revents().is_empty() {
                return Ok(Woken::Ended);
            } else if left.is_zero() {
                return Ok(Woken::Time);
            }
        }
    }
}

/// Whether this process was started so that it ignores a signal.
fn is_ignored(signal: libc::c_int) -> Result<bool> {
    // SAFETY: sigaction is plain data, for which all zeroes is valid; the call only writes to it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut action) != 0 {
            let error = io::Error::last_os_error();
            return Err(LabError::io(format!("looking at signal {signal}"))(error));
        }
        Ok(action.sa_sigaction == libc::SIG_IGN)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::child;

    #[test]
    fn the_end_of_a_process_and_a_moment_are_told_apart() {
        let interrupts = Interrupts::listen().expect("signals can be handled");
        let mut ended = Command::new("true").spawn().expect("true runs");
        let descriptor = child::descriptor(&ended).expect("it has a descriptor");
        let far = monotonic_now() + Duration::from_secs(60);
        assert_eq!(
            interrupts.wait(Some(descriptor.as_fd()), far).expect("it waits"),
            Woken::Ended
        );
        ended.wait().expect("it has ended");

        let mut running = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat runs");
        let descriptor = child::descriptor(&running).expect("it has a descriptor");
        let past = monotonic_now();
        assert_eq!(
            interrupts.wait(Some(descriptor.as_fd()), past).expect("it waits"),
            Woken::Time
        );
        assert!(!interrupts.arrived());
        running.kill().expect("it runs");
        running.wait().expect("it has ended");
    }
}
