//! Waiting for a child process with a deadline.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

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
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    Ok(pidfd_open(process.ok_or(Errno::SRCH)?, PidfdFlags::empty())?)
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
        // What is longer than it holds is for ever.
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(process, PollFlags::IN)], timeout.as_ref()) {
            Ok(1..) => return Ok(true),
            Ok(_) if deadline <= Instant::now() => return Ok(false),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
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
    // It has not been waited for, so the id is still its own.
    kill_process(Pid::from_child(child), Signal::TERM)?;
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
    // While the group has members its number is given to no other process; without any the call fails with ESRCH, which is
    // what is wanted. Numbers are given out in turn, so that one which has just become free is not taken again meanwhile.
    let _ = kill_process_group(Pid::from_child(leader), Signal::KILL);
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
