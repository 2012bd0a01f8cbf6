//! Who is at the other end of a Unix connection.

#![expect(unsafe_code, reason = "a call of the C library that no crate in use here has")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Who is at the other end of a Unix connection (`SO_PEERCRED`, `unix(7)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerCredentials {
    /// The process, unless it is of another namespace.
    pub process: Option<u32>,
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
}

/// Asks the kernel (`SO_PEERCRED`, `unix(7)`).
pub(crate) fn of(socket: &impl AsFd) -> io::Result<PeerCredentials> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes, which is the size of what it writes to.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(PeerCredentials {
        process: u32::try_from(credentials.pid).ok().filter(|pid| *pid != 0),
        user: credentials.uid,
        group: credentials.gid,
    })
}
