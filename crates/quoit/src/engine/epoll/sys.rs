//! The calls of epoll and of non-blocking sockets, as a trait.

use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use crate::address::SocketAddress;
use crate::errno::Errno;

/// One readiness event: the events and the value registered with the descriptor.
pub type ReadyEvent = libc::epoll_event;

/// One epoll instance and the data calls beside it. Dropping it closes the instance. None of the calls waits,
/// but for [`EpollSys::wait`].
pub trait EpollSys: Sized {
    /// Makes an instance (`epoll_create1(2)`).
    ///
    /// # Errors
    /// Those of `epoll_create1(2)`.
    fn create() -> Result<Self, Errno>;

    /// The instance's own descriptor, which is readable while events wait in it (`epoll(7)`).
    fn descriptor(&self) -> RawFd;

    /// Registers a descriptor for `events` (`EPOLL_CTL_ADD`); `value` comes back with each event.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    fn add(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno>;

    /// Changes what a registered descriptor is registered for (`EPOLL_CTL_MOD`). An event that is there for that comes with the
    /// next wait, also one that was reported before.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    fn modify(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno>;

    /// Unregisters a descriptor that stays open (`EPOLL_CTL_DEL`). Closing the last duplicate does so by itself.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    fn remove(&mut self, descriptor: RawFd) -> Result<(), Errno>;

    /// Waits for events (`epoll_pwait2(2)`, or `epoll_wait(2)` rounding up to milliseconds where the kernel has
    /// no other). Fills `events` from its start and returns how many; 0 when `timeout` has passed.
    ///
    /// # Errors
    /// `EINTR` and the others of `epoll_wait(2)`.
    fn wait(&mut self, events: &mut [ReadyEvent], timeout: Option<Duration>) -> Result<usize, Errno>;

    /// `accept4(2)` with `SOCK_CLOEXEC | SOCK_NONBLOCK` on a non-blocking listening socket.
    ///
    /// # Errors
    /// Those of `accept4(2)`.
    fn accept(&mut self, listener: RawFd) -> Result<OwnedFd, Errno>;

    /// `connect(2)` on a non-blocking socket.
    ///
    /// # Errors
    /// `EINPROGRESS` and the others of `connect(2)`.
    fn connect(&mut self, socket: RawFd, address: &SocketAddress) -> Result<(), Errno>;

    /// The protocol of a socket (`SO_PROTOCOL`), one of `IPPROTO_*`; 0 for Unix sockets.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    fn protocol(&mut self, socket: RawFd) -> Result<i32, Errno>;

    /// `recv(2)` with `MSG_DONTWAIT` into `length` bytes at `address`, which must be valid for writing. Returns
    /// 0 at the end of the stream.
    ///
    /// # Errors
    /// Those of `recv(2)`.
    fn receive(&mut self, socket: RawFd, address: *mut u8, length: usize) -> Result<usize, Errno>;

    /// `send(2)` with `MSG_DONTWAIT | MSG_NOSIGNAL` of `length` bytes at `address`, which must be valid.
    ///
    /// # Errors
    /// Those of `send(2)`.
    fn send(&mut self, socket: RawFd, address: *const u8, length: usize) -> Result<usize, Errno>;

    /// `sendmsg(2)` with `MSG_DONTWAIT | MSG_NOSIGNAL`; the header and all that it points to must be valid.
    ///
    /// # Errors
    /// Those of `sendmsg(2)`.
    fn send_message(&mut self, socket: RawFd, header: *const libc::msghdr) -> Result<usize, Errno>;

    /// `recvmmsg(2)` with `MSG_DONTWAIT`; the headers and all that they point to must be valid. Returns how many were
    /// filled, at least 1.
    ///
    /// # Errors
    /// Those of `recvmmsg(2)`: of the first message only.
    fn receive_messages(&mut self, socket: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, Errno>;

    /// Closes a descriptor (`close(2)`).
    fn close(&mut self, descriptor: OwnedFd) {
        drop(descriptor);
    }
}
