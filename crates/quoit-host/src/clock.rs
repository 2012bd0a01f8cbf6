//! The clock that all processes of a machine share.

use std::time::Duration;

/// CLOCK_MONOTONIC (clock_gettime(2)), which [`std::time::Instant`] is taken from but does not show.
#[must_use]
pub fn monotonic_now() -> Duration {
    Duration::from_nanos(monotonic_nanoseconds())
}

/// The same as a number, as messages carry it.
#[must_use]
pub fn monotonic_nanoseconds() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec that the call fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    assert_eq!(result, 0, "every Linux has CLOCK_MONOTONIC (clock_gettime(2))");
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
