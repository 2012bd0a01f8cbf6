//! The ABI's numbers for the core's values.

use std::ffi::c_int;
use std::time::Duration;

use quoit::{CloseReason, EngineKind, Errno, Feature, Refusal};

use crate::types::*;

/// A length of time of C's: none if it is negative.
pub(crate) fn duration(nanoseconds: i64) -> Option<Duration> {
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// A length of time for C; what is too long becomes the longest.
pub(crate) fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The bit of a feature in the sets of the ABI: fixed by its name's place in the core's list, which only grows.
pub(crate) fn feature_bit(feature: Feature) -> u64 {
    1 << feature as u8
}

/// The number of an engine.
pub(crate) fn engine_number(kind: EngineKind) -> u32 {
    match kind {
        EngineKind::Uring => QUOIT_ENGINE_URING,
        EngineKind::Epoll => QUOIT_ENGINE_EPOLL,
    }
}

pub(crate) fn negative(errno: Errno) -> c_int {
    -errno.code()
}

pub(crate) fn close_reason(reason: CloseReason) -> (u16, c_int) {
    match reason {
        CloseReason::Local => (QUOIT_CLOSED_LOCAL, 0),
        CloseReason::PeerClosed => (QUOIT_CLOSED_PEER, 0),
        CloseReason::Reset => (QUOIT_CLOSED_RESET, 0),
        CloseReason::Timeout => (QUOIT_CLOSED_TIMEOUT, 0),
        CloseReason::Limit => (QUOIT_CLOSED_LIMIT, 0),
        CloseReason::Error(errno) => (QUOIT_CLOSED_ERROR, negative(errno)),
    }
}

pub(crate) fn refusal_reason(refusal: Refusal) -> (u16, c_int) {
    match refusal {
        Refusal::Stale => (QUOIT_REFUSED_STALE, 0),
        Refusal::Full => (QUOIT_REFUSED_FULL, 0),
        Refusal::TooLarge => (QUOIT_REFUSED_TOO_LARGE, 0),
        Refusal::Closing => (QUOIT_REFUSED_CLOSING, 0),
        Refusal::Limit => (QUOIT_REFUSED_LIMIT, 0),
        Refusal::Error(errno) => (QUOIT_REFUSED_ERROR, negative(errno)),
    }
}
