//! Which thread this is.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread, by a number that no other one of the process has or had.
///
/// As [`std::thread::ThreadId`], which is had from a handle only: that counts references, by two atomic operations each
/// time, and each turn asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ThreadNumber(NonZeroU64);

impl ThreadNumber {
    /// The calling thread.
    #[inline]
    pub(crate) fn current() -> Self {
        thread_local! {
            static NUMBER: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
        }
        Self(NUMBER.get().unwrap_or_else(|| {
            static LAST: AtomicU64 = AtomicU64::new(0);
            let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            let number = NonZeroU64::new(number).expect("no process lives to start so many threads");
            NUMBER.set(Some(number));
            number
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_number_of_its_own_and_keeps_it() {
        let here = ThreadNumber::current();
        let spawn = || std::thread::spawn(|| [(); 2].map(|()| ThreadNumber::current()));
        let [one, other] = [spawn().join().unwrap(), spawn().join().unwrap()];
        assert_eq!(one[0], one[1]);
        assert_ne!(one[0], other[0]);
        assert_ne!(one[0], here);
        assert_eq!(here, ThreadNumber::current());
    }
}
