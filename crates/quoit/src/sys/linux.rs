//! The real kernel.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{SocketOption, SocketSys, Time};
use crate::address::SocketAddress;
use crate::errno::Errno;

/// The real kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl SocketSys for Linux {
    fn now(&self) -> Time {
        Time::default()
    }
    fn stream_socket(&self, address: &SocketAddress) -> Result<OwnedFd, Errno> {
        // SAFETY: as_raw gives a valid address.
        let family = unsafe { (*address.as_raw().0).sa_family };
        // SAFETY: no pointers.
        let socket = Errno::check(unsafe {
            libc::socket(i32::from(family), libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)
        })?;
        // SAFETY: just made.
        Ok(unsafe { OwnedFd::from_raw_fd(socket) })
    }
    fn local_address(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno> {
        Ok(SocketAddress::from_raw(|address, length| {
            // SAFETY: length bytes are writable.
            unsafe { libc::getsockname(socket.as_raw_fd(), address, length) };
        }))
    }
    fn send_file(&self, socket: RawFd, file: RawFd, offset: u64, length: u64) -> Result<usize, Errno> {
        let mut offset = offset as i64;
        // SAFETY: one offset.
        Errno::check_size(unsafe { libc::sendfile(socket, file, &raw mut offset, length as usize) })
    }
    fn bind(&self, _: BorrowedFd<'_>, _: &SocketAddress) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn listen(&self, _: BorrowedFd<'_>, _: u32) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn connect_now(&self, _: BorrowedFd<'_>, _: &SocketAddress) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn accept_now(&self, _: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn peer_address(&self, _: BorrowedFd<'_>) -> Result<SocketAddress, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn set_option(&self, _: BorrowedFd<'_>, _: SocketOption) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn set_nonblocking(&self, _: BorrowedFd<'_>, _: bool) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn is_listening(&self, _: BorrowedFd<'_>) -> Result<bool, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn shutdown_send(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn reset(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    fn duplicate(&self, _: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
}
