//! What threads leave for a loop: taken by its turns, with one wake for all that was left since the last of them.
//!
//! With `--cfg quoit_loom` it stands on loom's doubles, which try every order in which threads can meet (`make loom`).

#[cfg(all(test, quoit_loom))]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
use std::sync::PoisonError;
#[cfg(not(all(test, quoit_loom)))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

use crate::errors::Gone;

/// Whether the loop has to be woken by who has left something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    Needed,
    /// Somebody else wakes it, or has, for the turn that takes this too.
    Underway,
}

/// What was left and not taken yet.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    left: Mutex<Left<T>>,
    /// Whether there may be something, for a look without the lock.
    filled: AtomicBool,
}

#[derive(Debug, Default)]
struct Left<T> {
    value: T,
    gone: bool,
}

impl<T: Default> Mailbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            left: Mutex::new(Left::default()),
            filled: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Left<T>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves something by `leave`.
    pub(crate) fn leave(&self, leave: impl FnOnce(&mut T)) -> Result<Wake, Gone> {
        let mut left = self.lock();
        if left.gone {
            return Err(Gone);
        }
        leave(&mut left.value);
        drop(left);
        // After it was left: who finds the mark set knows that the turn which takes the mark away comes later, and takes this.
        Ok(if self.filled.swap(true, Ordering::AcqRel) {
            Wake::Underway
        } else {
            Wake::Needed
        })
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Takes what was left since the last call in exchange for `empty`, whose memory is used for what is left next. Returns
    /// whether there may have been something.
    pub(crate) fn take(&self, empty: &mut T) -> bool {
        // Before it is taken: what is left from here on sets the mark again.
        let filled = self.is_filled() && self.filled.swap(false, Ordering::AcqRel);
        if filled {
            std::mem::swap(&mut self.lock().value, empty);
        }
        filled
    }

    /// Nothing is taken any more. What was left is returned.
    pub(crate) fn end(&self) -> T {
        let mut left = self.lock();
        left.gone = true;
        std::mem::take(&mut left.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(quoit_loom))]
    fn one_wake_is_for_all_that_was_left() {
        let mailbox = Mailbox::<Vec<u8>>::new();
        let mut taken = Vec::with_capacity(10);
        let memory = taken.as_ptr();
        assert!(!mailbox.take(&mut taken));
        assert_eq!(mailbox.leave(|left| left.push(1)), Ok(Wake::Needed));
        assert_eq!(mailbox.leave(|left| left.push(2)), Ok(Wake::Underway));
        assert!(mailbox.is_filled());
        assert!(mailbox.take(&mut taken));
        assert_eq!(taken, [1, 2]);
        taken.clear();
        assert_eq!(
            mailbox.leave(|left| assert_eq!(left.as_ptr(), memory)),
            Ok(Wake::Needed)
        );
        assert!(mailbox.take(&mut taken));
        assert_eq!(mailbox.leave(|left| left.push(3)), Ok(Wake::Needed));
        assert_eq!(mailbox.end(), [3]);
        assert_eq!(mailbox.leave(|left| left.push(4)), Err(Gone));
    }

    /// Two threads leave something, and a loop sleeps until it is woken, until it has both: in no order does it sleep for ever.
    #[test]
    #[cfg(quoit_loom)]
    fn no_wake_is_lost() {
        use loom::sync::{Arc, Notify};

        loom::model(|| {
            let mailbox = Arc::new(Mailbox::<u32>::new());
            let wake = Arc::new(Notify::new());
            for _ in 0..2 {
                let (mailbox, wake) = (Arc::clone(&mailbox), Arc::clone(&wake));
                loom::thread::spawn(move || {
                    if mailbox.leave(|left| *left += 1) == Ok(Wake::Needed) {
                        wake.notify();
                    }
                });
            }
            let mut taken = 0;
            while taken < 2 {
                let mut more = 0;
                if mailbox.take(&mut more) {
                    taken += more;
                } else {
                    wake.wait();
                }
            }
        });
    }

    /// What is left while a loop ends is either returned by its end, or refused.
    #[test]
    #[cfg(quoit_loom)]
    fn nothing_is_lost_at_the_end() {
        use loom::sync::Arc;

        loom::model(|| {
            let mailbox = Arc::new(Mailbox::<u32>::new());
            let other = Arc::clone(&mailbox);
            let thread = loom::thread::spawn(move || other.leave(|left| *left += 1).is_ok());
            let mut taken = 0;
            mailbox.take(&mut taken);
            let left = mailbox.end();
            let was_left = thread.join().expect("it does not panic");
            assert_eq!(taken + left, u32::from(was_left));
        });
    }
}
