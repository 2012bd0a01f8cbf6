//! The clock that all processes of a machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC (clock_gettime(2)), which [`std::time::Instant`] is taken from but does not show.
#[must_use]
pub fn monotonic_now() -> Duration {
    Duration::from_nanos(monotonic_nanoseconds())
}

/// The same as a number, as messages carry it.
#[must_use]
pub fn monotonic_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
