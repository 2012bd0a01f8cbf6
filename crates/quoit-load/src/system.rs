//! What a run needs from the operating system and no library that it uses offers: a thread's processor time,
//! timers as descriptors, and a socket option.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::error::LoadError;

/// Processor time that the calling thread has used, in nanoseconds, in user space and in the kernel
/// (CLOCK_THREAD_CPUTIME_ID, clock_gettime(2)).
///
/// # Errors
/// The kernel does not say, which is not to be expected.
pub(super) fn thread_cpu_time() -> Result<u64, LoadError> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that the call fills.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } != 0 {
        let error = io::Error::last_os_error();
        return Err(LoadError::new(format!(
            "cannot read the thread's processor time: {error}"
        )));
    }
    Ok(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// A timer that is not armed (timerfd_create(2)).
pub(super) fn new_timer() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let descriptor =
        unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made the descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Lets `timer` go off once, so many nanoseconds (not zero) from now (timerfd_settime(2)).
pub(super) fn arm_timer(timer: &OwnedFd, nanoseconds: u64) -> io::Result<()> {
    const SECOND: u64 = 1_000_000_000;
    let setting = libc::itimerspec {
        it_interval: libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: libc::timespec {
            // No more than 2^64 / 10^9, which a signed 32-bit number does not hold and time_t does.
            tv_sec: (nanoseconds / SECOND) as libc::time_t,
            tv_nsec: (nanoseconds % SECOND) as libc::c_long,
        },
    };
    // SAFETY: `setting` is a valid itimerspec that the call only reads, and the old setting is not asked for.
    let result = unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &setting, std::ptr::null_mut()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Leaves the choice of the port to connect(2), when the server's address is known as well: a bind(2) that chose it
/// would take the port from all other servers' connections (IP_BIND_ADDRESS_NO_PORT, ip(7)).
pub(super) fn bind_address_only(socket: &impl AsRawFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the value is an int that outlives the call, and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
