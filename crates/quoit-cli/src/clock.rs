//! The clock that all processes of a machine share.

use std::time::Duration;

/// CLOCK_MONOTONIC, which [`std::time::Instant`] is taken from but does not show.
pub(crate) fn monotonic_now() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that the call fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(result, 0, "every Linux has CLOCK_MONOTONIC (clock_gettime(2))");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
