//! The real calls.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use super::sys::{EpollSys, ReadyEvent};
use crate::address::SocketAddress;
use crate::errno::Errno;
use crate::sys::get_integer;

/// One epoll instance of the real kernel.
#[derive(Debug)]
pub struct Epoll {
    instance: OwnedFd,
    /// Whether the kernel has `epoll_pwait2(2)` (5.11) and whoever filters system calls lets it through. Taken
    /// for granted until it fails.
    nanoseconds: bool,
}

impl Epoll {
    fn control(&self, operation: i32, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno> {
        let mut event = ReadyEvent { events, u64: value };
        // SAFETY: the kernel reads one event.
        Errno::check(unsafe {
            libc::epoll_ctl(self.instance.as_raw_fd(), operation, descriptor, &raw mut event)
        })?;
        Ok(())
    }

    fn wait_milliseconds(&self, events: &mut [ReadyEvent], timeout: i32) -> Result<usize, Errno> {
        // SAFETY: the kernel writes at most as many events as the slice has.
        let count = unsafe {
            libc::epoll_wait(
                self.instance.as_raw_fd(),
                events.as_mut_ptr(),
                capacity(events),
                timeout,
            )
        };
        Errno::check_size(count as isize)
    }

    fn wait_nanoseconds(&self, events: &mut [ReadyEvent], timeout: Duration) -> Result<usize, Errno> {
        let timeout = linux_raw_sys::general::__kernel_timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // By number, since the C library's wrapper is younger (glibc 2.35) than the systems that this runs on.
        // SAFETY: the kernel writes at most as many events as the slice has, reads one timespec, and takes the
        // null signal mask for none, whatever its length.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.instance.as_raw_fd(),
                events.as_mut_ptr(),
                capacity(events),
                &raw const timeout,
                ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        Errno::check_size(count as isize)
    }
}

fn capacity(events: &[ReadyEvent]) -> i32 {
    i32::try_from(events.len()).unwrap_or(i32::MAX)
}

/// Milliseconds, rounded up so that a wait never ends before its time.
fn milliseconds(timeout: Duration) -> i32 {
    let part = u64::from(timeout.subsec_nanos().div_ceil(1_000_000));
    i32::try_from(timeout.as_secs().saturating_mul(1000).saturating_add(part)).unwrap_or(i32::MAX)
}

impl EpollSys for Epoll {
    fn create() -> Result<Self, Errno> {
        // SAFETY: the call takes no pointers.
        let descriptor = Errno::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self {
            // SAFETY: the call has just made this descriptor, and nothing else knows of it.
            instance: unsafe { OwnedFd::from_raw_fd(descriptor) },
            nanoseconds: true,
        })
    }

    fn descriptor(&self) -> RawFd {
        self.instance.as_raw_fd()
    }

    fn add(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, events, value)
    }

    fn modify(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_MOD, descriptor, events, value)
    }

    fn remove(&mut self, descriptor: RawFd) -> Result<(), Errno> {
        // SAFETY: removing takes no event (`epoll_ctl(2)`, since 2.6.9).
        Errno::check(unsafe {
            libc::epoll_ctl(
                self.instance.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                descriptor,
                ptr::null_mut(),
            )
        })?;
        Ok(())
    }

    #[inline]
    fn wait(&mut self, events: &mut [ReadyEvent], timeout: Option<Duration>) -> Result<usize, Errno> {
        let Some(timeout) = timeout else {
            return self.wait_milliseconds(events, -1);
        };
        if self.nanoseconds && !timeout.is_zero() {
            match self.wait_nanoseconds(events, timeout) {
                // Older filters of system calls answer EPERM to what they do not know.
                Err(Errno::ENOSYS | Errno::EPERM) => self.nanoseconds = false,
                result => return result,
            }
        }
        self.wait_milliseconds(events, milliseconds(timeout))
    }

    fn accept(&mut self, listener: RawFd) -> Result<OwnedFd, Errno> {
        // SAFETY: null pointers say that the address is not wanted.
        let descriptor = Errno::check(unsafe {
            libc::accept4(
                listener,
                ptr::null_mut(),
                ptr::null_mut(),
                libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            )
        })?;
        // SAFETY: the call has just made this descriptor, and nothing else knows of it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn connect(&mut self, socket: RawFd, address: &SocketAddress) -> Result<(), Errno> {
        let (address, length) = address.as_raw();
        // SAFETY: the address is valid for `length` bytes for as long as it is borrowed here.
        Errno::check(unsafe { libc::connect(socket, address, length) })?;
        Ok(())
    }

    fn protocol(&mut self, socket: RawFd) -> Result<i32, Errno> {
        get_integer(socket, libc::SO_PROTOCOL)
    }

    #[expect(
        clippy::not_unsafe_ptr_arg_deref,
        reason = "as with all operations, the loop vouches for the memory (engine/mod.rs)"
    )]
    #[inline]
    fn receive(&mut self, socket: RawFd, address: *mut u8, length: usize) -> Result<usize, Errno> {
        // By number, as the send below: the C library's wrappers are cancellation points, which costs a process
        // with several threads two atomic operations a call (`pthreads(7)`), and these calls never wait.
        // SAFETY: the caller vouches for `length` writable bytes; null pointers say that the address is not wanted.
        let received = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                socket,
                address,
                length,
                libc::MSG_DONTWAIT,
                ptr::null_mut::<libc::sockaddr>(),
                ptr::null_mut::<libc::socklen_t>(),
            )
        };
        Errno::check_size(received as isize)
    }

    #[expect(
        clippy::not_unsafe_ptr_arg_deref,
        reason = "as with all operations, the loop vouches for the memory (engine/mod.rs)"
    )]
    #[inline]
    fn send(&mut self, socket: RawFd, address: *const u8, length: usize) -> Result<usize, Errno> {
        // SAFETY: the caller vouches for `length` readable bytes; without an address the socket's peer is meant.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                socket,
                address,
                length,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                ptr::null::<libc::sockaddr>(),
                0usize,
            )
        };
        Errno::check_size(sent as isize)
    }

    #[expect(
        clippy::not_unsafe_ptr_arg_deref,
        reason = "as with all operations, the loop vouches for the memory (engine/mod.rs)"
    )]
    fn send_message(&mut self, socket: RawFd, header: *const libc::msghdr) -> Result<usize, Errno> {
        // SAFETY: the caller vouches for the header and all that it points to.
        Errno::check_size(unsafe { libc::sendmsg(socket, header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
    }

    fn receive_messages(&mut self, socket: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, Errno> {
        // By number, as above.
        // SAFETY: as many headers as the slice has, and the caller vouches for all that they point to; the null pointer
        // asks for no time limit.
        let count = unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                socket,
                messages.as_mut_ptr(),
                messages.len(),
                libc::MSG_DONTWAIT,
                ptr::null_mut::<libc::timespec>(),
            )
        };
        Errno::check_size(count as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_rounded_up_and_capped() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(3)), 3);
        assert_eq!(milliseconds(Duration::from_micros(3001)), 4);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn both_ways_of_waiting_report_the_same() {
        let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut epoll = Epoll::create().unwrap();
        epoll
            .add(left.as_raw_fd(), (libc::EPOLLIN | libc::EPOLLOUT) as u32, 42)
            .unwrap();
        for nanoseconds in [true, false] {
            epoll.nanoseconds = nanoseconds;
            let mut events = [ReadyEvent { events: 0, u64: 0 }; 4];
            let count = epoll.wait(&mut events, Some(Duration::from_secs(10))).unwrap();
            assert_eq!(count, 1);
            assert_eq!({ events[0].u64 }, 42);
            assert_eq!({ events[0].events }, libc::EPOLLOUT as u32);
        }
        epoll.remove(left.as_raw_fd()).unwrap();
        assert_eq!(epoll.remove(left.as_raw_fd()), Err(Errno::ENOENT));
        drop(right);
    }

    #[test]
    fn a_wait_with_nothing_to_report_ends_at_its_time() {
        let mut epoll = Epoll::create().unwrap();
        let mut events = [ReadyEvent { events: 0, u64: 0 }; 1];
        for timeout in [Duration::ZERO, Duration::from_nanos(1)] {
            assert_eq!(epoll.wait(&mut events, Some(timeout)), Ok(0));
        }
    }
}
