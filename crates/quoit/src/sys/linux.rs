//! The real kernel: each call is one system call, or the few that it takes to keep the trait's promise.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, socklen_t};

use super::{DatagramFamily, DatagramOption, SocketOption, SocketSys, Time};
use crate::address::SocketAddress;
use crate::datagram::Unreachable;
use crate::errno::Errno;

/// The real kernel.
///
/// `connect(2)` and `sendfile(2)` know no flag that keeps a single call from waiting. Where the socket is in blocking
/// mode, [`SocketSys::connect_now`] and [`SocketSys::send_file`] therefore set `O_NONBLOCK` and clear it again after
/// the call. The flag belongs to the open file description: while the call runs, every duplicate of the descriptor is
/// in non-blocking mode too, and two threads doing this to one description at the same time can leave each other's
/// call waiting. So these two are called from the thread of the one loop that uses the socket, which submits nothing
/// else for it meanwhile. Listening sockets, which loops and processes share, are non-blocking for good.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

/// The most that one system call transfers (`sendfile(2)`). A longer range is refused where its end overflows.
const LARGEST_TRANSFER: usize = 0x7fff_f000;

/// The descriptor that a system call has just answered with.
fn owned(result: c_int) -> Result<OwnedFd, Errno> {
    let descriptor = Errno::check(result)?;
    // SAFETY: every caller passes the answer of a call that makes a descriptor, of which nothing else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn set_integer(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> Result<(), Errno> {
    // SAFETY: the option's value is an int that outlives the call, and its length says so.
    Errno::check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as socklen_t,
        )
    })
    .map(drop)
}

/// Sets an option whose value is a structure.
fn set_structure<T>(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> Result<(), Errno> {
    // SAFETY: the value outlives the call, and its length says how far it goes.
    Errno::check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as socklen_t,
        )
    })
    .map(drop)
}

pub(crate) fn get_integer(socket: impl AsRawFd, option: c_int) -> Result<c_int, Errno> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the value and its length outlive the call, and the length is the value's.
    Errno::check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// Whole seconds, at least one and rounded up, for the TCP options that count in them.
fn seconds(duration: Duration) -> c_int {
    let seconds = duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0));
    c_int::try_from(seconds.max(1)).unwrap_or(c_int::MAX)
}

fn integer(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// Runs `call` with the socket's description in non-blocking mode, and puts the mode back.
fn without_waiting<T>(socket: RawFd, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // SAFETY: F_GETFL takes no pointer.
    let flags = Errno::check(unsafe { libc::fcntl(socket, libc::F_GETFL) })?;
    if flags & libc::O_NONBLOCK != 0 {
        return call();
    }
    set_flags(socket, flags | libc::O_NONBLOCK)?;
    let result = call();
    set_flags(socket, flags)?;
    result
}

fn set_flags(socket: RawFd, flags: c_int) -> Result<(), Errno> {
    // SAFETY: F_SETFL takes no pointer.
    Errno::check(unsafe { libc::fcntl(socket, libc::F_SETFL, flags) }).map(drop)
}

fn connect(socket: BorrowedFd<'_>, address: &SocketAddress) -> Result<(), Errno> {
    let (raw, length) = address.as_raw();
    // SAFETY: the address is borrowed for the call and has that many bytes.
    Errno::check(unsafe { libc::connect(socket.as_raw_fd(), raw, length) }).map(drop)
}

fn shutdown(socket: BorrowedFd<'_>, how: c_int) -> Result<(), Errno> {
    // SAFETY: shutdown(2) takes no pointers.
    Errno::check(unsafe { libc::shutdown(socket.as_raw_fd(), how) }).map(drop)
}

/// Runs a call that may raise SIGPIPE and has no MSG_NOSIGNAL, so that the process never sees the signal:
/// it would end a host that does not ignore it.
fn without_sigpipe(call: impl FnOnce() -> Result<usize, Errno>) -> Result<usize, Errno> {
    let mut pipe = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, before anything reads it; the others read or write live sets.
    // These calls fail only for bad arguments.
    let (pipe, before) = unsafe {
        libc::sigemptyset(pipe.as_mut_ptr());
        libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), before.as_mut_ptr());
        (pipe.assume_init(), before.assume_init())
    };
    // SAFETY: pthread_sigmask filled the set.
    if unsafe { libc::sigismember(&raw const before, libc::SIGPIPE) } == 1 {
        // The host blocks the signal itself; a pending one more is what it must expect.
        return call();
    }
    let result = call();
    if result == Err(Errno::EPIPE) {
        let no_time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the set and the time outlive the call, and a null pointer asks for no details. The signal was
        // not blocked before, so the pending one is this thread's own from the call.
        unsafe { libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const no_time) };
    }
    // SAFETY: pthread_sigmask filled the set, and a null pointer asks for no answer.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// A CLOEXEC duplicate of a descriptor that this process was started with, known by number only. The descriptor
/// itself stays open and becomes CLOEXEC.
pub(crate) fn duplicate_inherited(descriptor: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_SETFD takes a number, no pointer, and whoever owns the descriptor keeps it.
    Errno::check(unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: F_DUPFD_CLOEXEC takes a number, no pointer.
    owned(unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) })
}

/// Nanoseconds of a clock that always exists and is never negative.
#[inline]
fn nanoseconds_of(clock: libc::clockid_t) -> u64 {
    // Loom has each run of a scenario go as the ones before, up to where it chooses anew. So no time passes there.
    if cfg!(all(test, quoit_loom)) {
        return 0;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is that of a live timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl SocketSys for Linux {
    fn now(&self) -> Time {
        Time::from_nanos(nanoseconds_of(libc::CLOCK_MONOTONIC))
    }

    fn processor_time(&self) -> Duration {
        // Since Linux 2.6.12.
        Duration::from_nanos(nanoseconds_of(libc::CLOCK_THREAD_CPUTIME_ID))
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn stream_socket(&self, address: &SocketAddress) -> Result<OwnedFd, Errno> {
        // SAFETY: socket(2) takes no pointers.
        owned(unsafe { libc::socket(address.family(), libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })
    }

    fn datagram_socket(&self, address: &SocketAddress) -> Result<OwnedFd, Errno> {
        // SAFETY: socket(2) takes no pointers.
        owned(unsafe { libc::socket(address.family(), libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
    }

    fn datagram_family(&self, socket: BorrowedFd<'_>) -> Result<DatagramFamily, Errno> {
        datagram::family(socket)
    }

    fn set_datagram_option(&self, socket: BorrowedFd<'_>, option: DatagramOption) -> Result<(), Errno> {
        datagram::set_option(socket, option)
    }

    fn datagram_drops(&self, socket: BorrowedFd<'_>) -> Result<u32, Errno> {
        datagram::drops(socket)
    }

    fn datagram_error(&self, socket: BorrowedFd<'_>) -> Result<Option<Unreachable>, Errno> {
        datagram::error(socket)
    }

    fn bind(&self, socket: BorrowedFd<'_>, address: &SocketAddress) -> Result<(), Errno> {
        let (raw, length) = address.as_raw();
        // SAFETY: the address is borrowed for the call and has that many bytes.
        Errno::check(unsafe { libc::bind(socket.as_raw_fd(), raw, length) }).map(drop)
    }

    fn listen(&self, socket: BorrowedFd<'_>, backlog: u32) -> Result<(), Errno> {
        // SAFETY: listen(2) takes no pointers.
        Errno::check(unsafe { libc::listen(socket.as_raw_fd(), integer(backlog)) }).map(drop)
    }

    fn connect_now(&self, socket: BorrowedFd<'_>, address: &SocketAddress) -> Result<(), Errno> {
        without_waiting(socket.as_raw_fd(), || connect(socket, address))
    }

    fn accept_now(&self, socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        let mut queued = libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one live pollfd, and its count says so.
        Errno::check(unsafe { libc::poll(&raw mut queued, 1, 0) })?;
        if queued.revents == 0 {
            // Want of a descriptor would be told first, and that something may be queued.
            return Err(Errno::EAGAIN);
        }
        // SAFETY: null pointers ask for no address.
        owned(unsafe {
            libc::accept4(
                socket.as_raw_fd(),
                ptr::null_mut(),
                ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            )
        })
    }

    fn send_now(&self, socket: RawFd, header: &libc::msghdr) -> Result<usize, Errno> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the contract of the trait says that all that the header points to is valid.
        Errno::check_size(unsafe { libc::sendmsg(socket, header, flags) })
    }

    fn send_now_from_any_thread(&self) -> fn(RawFd, &libc::msghdr) -> Result<usize, Errno> {
        |socket, header| Self.send_now(socket, header)
    }

    fn send_messages_now(&self, socket: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, Errno> {
        // SAFETY: as many headers as the slice has, and the contract of the trait says that all they point to is valid.
        let count = unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                socket,
                messages.as_mut_ptr(),
                messages.len(),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        Errno::check_size(count as isize)
    }

    fn local_address(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno> {
        SocketAddress::read(|address, length| {
            // SAFETY: `read` gives room for as many bytes as the length says.
            unsafe { libc::getsockname(socket.as_raw_fd(), address, length) }
        })
    }

    fn connected_peer(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno> {
        SocketAddress::read(|address, length| {
            // SAFETY: `read` gives room for as many bytes as the length says.
            unsafe { libc::getpeername(socket.as_raw_fd(), address, length) }
        })
    }

    fn former_peer(&self, socket: BorrowedFd<'_>) -> Result<SocketAddress, Errno> {
        // It takes the exact length, or less, of which it would tell a part.
        let lengths = [size_of::<libc::sockaddr_in6>(), size_of::<libc::sockaddr_in>()];
        let mut found = Err(Errno::ENOTCONN);
        for exact in lengths {
            found = SocketAddress::read(|address, length| {
                // SAFETY: `read` gives room for more than this length, which says how much is written.
                unsafe {
                    *length = exact as socklen_t;
                    libc::getsockopt(
                        socket.as_raw_fd(),
                        libc::SOL_SOCKET,
                        libc::SO_PEERNAME,
                        address.cast(),
                        length,
                    )
                }
            });
            if found != Err(Errno::EINVAL) {
                break;
            }
        }
        found
    }

    fn set_option(&self, socket: BorrowedFd<'_>, option: SocketOption) -> Result<(), Errno> {
        use libc::{IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};
        let set = |level, name, value| set_integer(socket, level, name, value);
        match option {
            SocketOption::NoDelay(on) => set(IPPROTO_TCP, libc::TCP_NODELAY, on.into()),
            SocketOption::Keepalive {
                idle,
                interval,
                probes,
            } => {
                set(IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds(idle))?;
                set(IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds(interval))?;
                set(IPPROTO_TCP, libc::TCP_KEEPCNT, integer(probes))?;
                // Last: a connection that has been idle for long is probed as soon as this is on.
                set(SOL_SOCKET, libc::SO_KEEPALIVE, 1)
            }
            SocketOption::ReceiveBuffer(bytes) => set(SOL_SOCKET, libc::SO_RCVBUF, integer(bytes)),
            SocketOption::SendBuffer(bytes) => set(SOL_SOCKET, libc::SO_SNDBUF, integer(bytes)),
            SocketOption::ReuseAddress(on) => set(SOL_SOCKET, libc::SO_REUSEADDR, on.into()),
            SocketOption::ReusePort(on) => set(SOL_SOCKET, libc::SO_REUSEPORT, on.into()),
            SocketOption::Ipv6Only(on) => set(IPPROTO_IPV6, libc::IPV6_V6ONLY, on.into()),
        }
    }

    fn set_nonblocking(&self, socket: BorrowedFd<'_>, nonblocking: bool) -> Result<(), Errno> {
        // SAFETY: F_GETFL takes no pointer.
        let flags = Errno::check(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFL) })?;
        let wanted = if nonblocking {
            flags | libc::O_NONBLOCK
        } else {
            flags & !libc::O_NONBLOCK
        };
        if wanted == flags {
            return Ok(());
        }
        set_flags(socket.as_raw_fd(), wanted)
    }

    fn is_listening(&self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        if get_integer(socket, libc::SO_TYPE)? != libc::SOCK_STREAM {
            return Err(Errno::new(libc::EPROTOTYPE));
        }
        Ok(get_integer(socket, libc::SO_ACCEPTCONN)? != 0)
    }

    fn shutdown_send(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        shutdown(socket, libc::SHUT_WR)
    }

    fn reset(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        if get_integer(socket, libc::SO_DOMAIN)? == libc::AF_UNIX {
            shutdown(socket, libc::SHUT_RDWR)
        } else {
            connect(socket, &SocketAddress::unspecified())
        }
    }

    fn poll_now(&self, polled: &mut [libc::pollfd]) -> Result<usize, Errno> {
        let count = polled.len() as libc::nfds_t;
        // SAFETY: the list is valid for the call and has so many entries.
        let result = unsafe { libc::poll(polled.as_mut_ptr(), count, 0) };
        Errno::check_size(result as libc::ssize_t)
    }

    fn unread(&self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        queue_length(socket, libc::FIONREAD)
    }

    fn take_error(&self, socket: RawFd) -> Option<Errno> {
        match get_integer(socket, libc::SO_ERROR) {
            Ok(0) => None,
            Ok(code) => Some(Errno::from_io(&std::io::Error::from_raw_os_error(code))),
            Err(error) => Some(error),
        }
    }

    fn taken_by_peer(&self, socket: BorrowedFd<'_>) -> u64 {
        acknowledged(socket).unwrap_or_else(|| queue_length(socket, libc::TIOCOUTQ).unwrap_or(0) as u64)
    }

    fn duplicate(&self, socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        // SAFETY: F_DUPFD_CLOEXEC takes a number, no pointer.
        owned(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) })
    }

    fn send_file(&self, socket: RawFd, file: RawFd, offset: u64, length: u64) -> Result<usize, Errno> {
        let mut offset = libc::off64_t::try_from(offset).map_err(|_| Errno::new(libc::EOVERFLOW))?;
        let length = usize::try_from(length).map_or(LARGEST_TRANSFER, |length| length.min(LARGEST_TRANSFER));
        without_waiting(socket, || {
            without_sigpipe(|| {
                // SAFETY: the offset outlives the call, which moves it and not the file's own.
                Errno::check_size(unsafe { libc::sendfile64(socket, file, &raw mut offset, length) })
            })
        })
    }
}

/// Bytes that TCP's peer has acknowledged; `None` for other sockets, and before Linux 4.1.
fn acknowledged(socket: BorrowedFd<'_>) -> Option<u64> {
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let whole = size_of_val(&info);
    let mut length = whole as socklen_t;
    // SAFETY: the kernel writes no more than `length` bytes of the structure, and how many they were.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    let end = std::mem::offset_of!(libc::tcp_info, tcpi_bytes_acked) + size_of::<u64>();
    (result == 0 && length as usize >= end).then_some(info.tcpi_bytes_acked)
}

/// The length of one of a socket's queues, in bytes.
fn queue_length(socket: BorrowedFd<'_>, which: libc::Ioctl) -> Result<usize, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: both requests write one integer.
    Errno::check(unsafe { libc::ioctl(socket.as_raw_fd(), which, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

mod datagram;
#[cfg(test)]
mod tests;
