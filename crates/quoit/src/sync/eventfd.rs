//! The eventfd by which one thread ends another's wait (`eventfd(2)`).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::errno::Errno;

/// An eventfd, CLOEXEC.
#[derive(Debug)]
pub(crate) struct Eventfd(OwnedFd);

impl Eventfd {
    /// One whose reads wait, with `flags` 0, or do not, with `EFD_NONBLOCK`.
    pub(crate) fn new(flags: i32) -> Result<Self, Errno> {
        // SAFETY: eventfd(2) takes no pointers.
        let descriptor = Errno::check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | flags) })?;
        // SAFETY: the call has just made this descriptor, and nothing else knows of it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Makes it readable.
    pub(crate) fn write(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer is eight readable bytes, as eventfd(2) wants, and the descriptor is ours.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

impl AsRawFd for Eventfd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
