//! Waiting for a child process with a deadline.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// A descriptor of a child that has not been waited for, so that its id cannot have been given to another process;
/// it is readable once the child has ended.
///
/// # Errors
/// Those of pidfd_open(2) (kernel 5.3).
pub(crate) fn descriptor(child: &Child) -> io::Result<OwnedFd> {
    descriptor_of(child.id())
}

/// As [`descriptor`], of any process.
pub(super) fn descriptor_of(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed, and the descriptor that comes back is ours alone.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, process, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor as i32))
    }
}

/// Waits until the child has ended, at most so long. `None`: it still runs.
///
/// # Errors
/// Those of pidfd_open(2) (kernel 5.3) and poll(2).
pub(crate) fn wait_with_deadline(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    ends_within(&descriptor(child)?, patience)?;
    child.try_wait()
}

/// Whether the process of a [`descriptor`] ends within a time, or has ended.
///
/// # Errors
/// Those of poll(2).
pub(super) fn ends_within(process: &OwnedFd, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd {
            fd: process.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // Rounded up: what is left of a millisecond is not to be spun away.
        let milliseconds = i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // SAFETY: one pollfd, valid for the call.
        match unsafe { libc::poll(&mut poll, 1, milliseconds) } {
            1.. => return Ok(true),
            0 if deadline <= Instant::now() => return Ok(false),
            0 => {}
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Asks a child to end, then ends it: SIGTERM, and SIGKILL once the patience is over.
///
/// # Errors
/// Those of [`wait_with_deadline`], and of kill(2).
pub(crate) fn stop(child: &mut Child, patience: Duration) -> io::Result<ExitStatus> {
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    // SAFETY: no memory is passed; the child has not been waited for, so the id is still its own.
    if unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) } != 0 {
        return Err(io::Error::last_os_error());
    }
    match wait_with_deadline(child, patience)? {
        Some(status) => Ok(status),
        None => {
            child.kill()?;
            child.wait()
        }
    }
}

/// Ends what is left of the process group that a child was made the leader of, and that has ended itself: a master
/// that was killed leaves its workers behind.
pub(crate) fn end_group(leader: &Child) {
    // SAFETY: no memory is passed. While the group has members its number is given to no other process; without
    // any the call fails with ESRCH, which is what is wanted. Numbers are given out in turn, so that one which has
    // just become free is not taken again meanwhile.
    unsafe { libc::kill(-(leader.id() as libc::pid_t), libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn an_ended_child_gives_its_status_and_a_running_one_none() {
        let mut ended = Command::new("false").spawn().expect("false runs");
        let status = wait_with_deadline(&mut ended, Duration::from_secs(60)).expect("waiting works");
        assert_eq!(status.and_then(|status| status.code()), Some(1));

        let mut running = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat runs");
        assert_eq!(
            wait_with_deadline(&mut running, Duration::ZERO).expect("waiting works"),
            None
        );
        let status = stop(&mut running, Duration::from_secs(60)).expect("it can be stopped");
        assert_eq!(status.signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn a_child_that_ignores_the_request_is_killed() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo ready; while :; do read -r line; done"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        // The trap is set once the line is there.
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("piped");
        io::BufRead::read_line(&mut io::BufReader::new(output), &mut line).expect("a line");
        let status = stop(&mut child, Duration::ZERO).expect("it can be stopped");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }
}
