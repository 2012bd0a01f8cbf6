//! What a run needs from the operating system a thread's processor time,
//! timers as descriptors, and a socket option.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Processor time that the calling thread has used, in nanoseconds, in user space and in the kernel
/// (CLOCK_THREAD_CPUTIME_ID, clock_gettime(2)).
pub(super) fn thread_cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// A timer that is not armed (timerfd_create(2)).
pub(super) fn new_timer() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    Ok(timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

/// Lets `timer` go off once, so many nanoseconds (not zero) from now (timerfd_settime(2)).
pub(super) fn arm_timer(timer: &OwnedFd, nanoseconds: u64) -> io::Result<()> {
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(Duration::from_nanos(nanoseconds)).map_err(io::Error::other)?,
    };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
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
