//! The kernel's error numbers as a value.

use std::fmt;
use std::io;

/// An error number as the kernel gives it (`errno(3)`), always positive.
///
/// Displayed as the system's text for it; convert into [`io::Error`] to pass it on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(i32);

impl Errno {
    /// Too many descriptors in this process.
    pub const EMFILE: Self = Self(libc::EMFILE);
    /// Too many descriptors on this system.
    pub const ENFILE: Self = Self(libc::ENFILE);
    /// Out of memory, or of an accounted share of it.
    pub const ENOMEM: Self = Self(libc::ENOMEM);
    /// No buffers: of the kernel's socket memory or of a provided-buffer ring.
    pub const ENOBUFS: Self = Self(libc::ENOBUFS);
    /// Would block.
    pub const EAGAIN: Self = Self(libc::EAGAIN);
    /// Interrupted by a signal.
    pub const EINTR: Self = Self(libc::EINTR);
    /// Not permitted.
    pub const EPERM: Self = Self(libc::EPERM);
    /// Permission denied.
    pub const EACCES: Self = Self(libc::EACCES);
    /// Not implemented by this kernel.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// Invalid argument; how a kernel answers flags that it does not know.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// The operation was cancelled.
    pub const ECANCELED: Self = Self(libc::ECANCELED);
    /// The peer reset the connection.
    pub const ECONNRESET: Self = Self(libc::ECONNRESET);
    /// The peer, or this end, no longer takes data.
    pub const EPIPE: Self = Self(libc::EPIPE);
    /// A connection was aborted before it was accepted.
    pub const ECONNABORTED: Self = Self(libc::ECONNABORTED);
    /// Nobody listens at the address.
    pub const ECONNREFUSED: Self = Self(libc::ECONNREFUSED);
    /// Timed out in the kernel (connection attempt, or keepalive and retransmission limits).
    pub const ETIMEDOUT: Self = Self(libc::ETIMEDOUT);
    /// Already being connected.
    pub const EINPROGRESS: Self = Self(libc::EINPROGRESS);
    /// Not connected.
    pub const ENOTCONN: Self = Self(libc::ENOTCONN);
    /// Too large to be sent in one piece.
    pub const EMSGSIZE: Self = Self(libc::EMSGSIZE);
    /// Already there.
    pub const EEXIST: Self = Self(libc::EEXIST);
    /// No such entry.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// Not a descriptor.
    pub const EBADF: Self = Self(libc::EBADF);
    /// Not supported.
    pub const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// The ring has completions that found no room (`io_uring_enter(2)`).
    pub const EBUSY: Self = Self(libc::EBUSY);
    /// The wait's time is over (`io_uring_enter(2)`).
    pub const ETIME: Self = Self(libc::ETIME);

    /// The error number `code`, which must be positive.
    ///
    /// # Panics
    /// If `code` is not positive: success is not an error.
    #[must_use]
    pub const fn new(code: i32) -> Self {
        assert!(code > 0);
        Self(code)
    }

    /// The calling thread's `errno`, right after a failed call.
    #[must_use]
    pub fn last() -> Self {
        Self::from_io(&io::Error::last_os_error())
    }

    /// The number in an [`io::Error`], or `EIO` where it has none.
    #[must_use]
    pub fn from_io(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) if code > 0 => Self(code),
            _ => Self(libc::EIO),
        }
    }

    /// The result of a system call that returns -1 and sets `errno`.
    ///
    /// # Errors
    /// The thread's `errno`, where `result` is negative.
    pub fn check(result: i32) -> Result<i32, Self> {
        if result < 0 { Err(Self::last()) } else { Ok(result) }
    }

    /// As [`Errno::check`], for calls that answer a count of bytes.
    ///
    /// # Errors
    /// The thread's `errno`, where `result` is negative.
    pub fn check_size(result: isize) -> Result<usize, Self> {
        usize::try_from(result).map_err(|_| Self::last())
    }

    /// The positive number.
    #[must_use]
    pub const fn code(self) -> i32 {
        self.0
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {})", self.0, io::Error::from(*self))
    }
}

impl std::error::Error for Errno {}
