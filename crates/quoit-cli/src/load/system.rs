//! What a run needs from the operating system and the standard library does not offer: a thread's processor
//! time.

use std::io;

/// Processor time that the calling thread has used, in nanoseconds, in user space and in the kernel
/// (CLOCK_THREAD_CPUTIME_ID, clock_gettime(2)).
pub(super) fn thread_cpu_time() -> io::Result<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that the call fills.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}
