//! What is sent: lines of text, and descriptors beside the first of them.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use rustix::process::geteuid;

/// What the first line begins with: the protocol and its version.
pub(super) const HELLO: &str = "quoit-hand-over 1";
/// Behind what a Unix socket is for: its file is the successor's, too.
pub(super) const WITH_FILE: &str = "+file";
/// The successor serves on the sockets.
pub(super) const READY: &str = "ready";
/// The predecessor accepts nothing more.
pub(super) const DRAINING: &str = "draining";

/// The most descriptors that the kernel takes with one message (`SCM_MAX_FD`).
pub(super) const MOST_SOCKETS: usize = 253;
/// More than any line has.
const LONGEST_LINE: usize = 16 * 1024;

/// Sends a line, and descriptors with it.
pub(super) fn send(stream: &UnixStream, line: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let line = format!("{line}\n");
    let rights = SendAncillaryMessage::ScmRights(descriptors);
    let mut space = vec![MaybeUninit::uninit(); rights.size()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(rights) {
        return Err(io::Error::other("there are too many sockets for one message"));
    }
    let bytes = [IoSlice::new(line.as_bytes())];
    let sent = retry_on_intr(|| sendmsg(stream, &bytes, &mut control, SendFlags::NOSIGNAL))?;
    (&mut &*stream).write_all(&line.as_bytes()[sent..])
}

/// How long a line is waited for, and what ends the wait once it is readable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience<'a> {
    pub(super) time: Duration,
    pub(super) given_up: Option<BorrowedFd<'a>>,
}

impl Patience<'_> {
    /// Waits until there is something to receive, which may be the end. What is there comes before an end of the wait.
    fn wait(self, stream: &UnixStream, until: Instant) -> io::Result<()> {
        let stream = stream.as_fd();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // Where nothing ends the wait, the stream is looked at twice.
            let mut polled = [stream, self.given_up.unwrap_or(stream)]
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
            match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [arrived, given_up] = polled.map(|one| !one.revents().is_empty());
            if arrived {
                return Ok(());
            } else if given_up {
                return Err(io::ErrorKind::Interrupted.into());
            } else if left.is_zero() {
                let nothing = format!("nothing came within {} s", self.time.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, nothing));
            }
        }
    }
}

/// Receives a line, without its end, and the descriptors that came with it. An empty one: the other end is gone.
///
/// # Errors
/// `Interrupted` if it was given up, `TimedOut` if its time was over; those of the socket.
pub(super) fn receive(stream: &UnixStream, patience: Patience<'_>) -> io::Result<(String, Vec<OwnedFd>)> {
    let until = Instant::now() + patience.time;
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffer = [0; 1024];
    patience.wait(stream, until)?;
    // Only what comes first has descriptors.
    let received = retry_on_intr(|| {
        let mut bytes = [IoSliceMut::new(&mut buffer)];
        recvmsg(stream, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "not all descriptors could be taken in: the limit on open descriptors is too low (ulimit -n)",
        ));
    }
    let mut line = buffer[..received.bytes].to_vec();
    while !line.is_empty() && !line.contains(&b'\n') {
        if line.len() > LONGEST_LINE {
            return Err(io::Error::other("the line that was sent has no end"));
        }
        patience.wait(stream, until)?;
        match (&mut &*stream).read(&mut buffer) {
            Ok(0) => break,
            Ok(more) => line.extend_from_slice(&buffer[..more]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Ok((String::from_utf8_lossy(line).into_owned(), descriptors))
}

/// The process at the other end, and whether it is one that may be trusted: of this user, or of root.
pub(super) fn peer(stream: &UnixStream) -> io::Result<(i32, bool)> {
    let peer = sockopt::socket_peercred(stream)?;
    let trusted = peer.uid == geteuid() || peer.uid.is_root();
    Ok((peer.pid.as_raw_nonzero().get(), trusted))
}
