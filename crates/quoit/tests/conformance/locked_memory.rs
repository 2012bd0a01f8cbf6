//! What the tests of this process lock together. `RLIMIT_MEMLOCK` is a user's, not a loop's: as many tests run at once as
//! there are processors or more, and a test must not fail for what others have.

use std::sync::{Condvar, Mutex, PoisonError};

use quoit::datagram::DatagramOptions;
use quoit::{Config, Errno, FeatureSet, Footprint};

/// The loops that a test has at a time, and the one before, whose memory the kernel gives back late.
const LOOPS: u64 = 2;

/// Bytes of a slot for datagrams, with what describes one, rounded up.
const DATAGRAM_ROOM: u64 = 66_000;

/// Bytes that the tests that run now may lock.
static LOCKED: Mutex<u64> = Mutex::new(0);
static RELEASED: Condvar = Condvar::new();

/// What one test may lock, until this is dropped.
pub(crate) struct Reservation(u64);

/// Waits until a test with such loops may lock what they take.
pub(crate) fn reserve(config: &Config) -> Reservation {
    let limit = limit();
    // The features that take most.
    let a_loop =
        Footprint::of(config, FeatureSet::ALL.without(FeatureSet::OLDEST)).locked() + Footprint::PROBE;
    // The memory of a datagram socket as tests open it, which a loop with registered memory locks, too.
    let datagrams = if config.register_pool {
        u64::from(DatagramOptions::default().slots) * DATAGRAM_ROOM
    } else {
        0
    };
    // One that takes more than there is runs alone.
    let bytes = (LOOPS * (a_loop + datagrams)).min(limit);
    let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    while *locked + bytes > limit {
        locked = RELEASED.wait(locked).unwrap_or_else(PoisonError::into_inner);
    }
    *locked += bytes;
    Reservation(bytes)
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *LOCKED.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        RELEASED.notify_all();
    }
}

/// Bytes that this process may lock. Root may lock what it likes, and is held to its limit all the same: its tests are
/// those of everybody.
fn limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call gets a valid structure.
    Errno::check(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) }).unwrap();
    limit.rlim_cur
}
