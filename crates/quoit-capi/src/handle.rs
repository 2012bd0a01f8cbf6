//! The loop behind the pointer that C holds: one call at a time, on one thread, and none after a panic.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use quoit::{Events, Loop};

use crate::error::Failure;
use crate::leases::Leases;
use crate::memory::reference;
use crate::receivers::Receivers;
use crate::thread::ThreadMark;

/// What a loop is made of on this side.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) quoit: Loop,
    pub(crate) events: Events,
    pub(crate) leases: Arc<Leases>,
    pub(crate) receivers: Receivers,
}

/// `quoit_loop`: opaque to C.
pub(crate) struct LoopHandle {
    /// The thread of the first turn.
    owner: OnceLock<ThreadMark>,
    /// Whether a call is being made.
    busy: AtomicBool,
    /// Whether a call has panicked.
    poisoned: AtomicBool,
    /// Reached only by whoever has set `busy`.
    state: UnsafeCell<State>,
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoopHandle")
    }
}

/// Ends a call: poisons the loop if the call panicked.
struct Call<'a> {
    handle: &'a LoopHandle,
    returned: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.returned {
            self.handle.poisoned.store(true, Ordering::Relaxed);
        }
        self.handle.busy.store(false, Ordering::Release);
    }
}

impl LoopHandle {
    /// A handle that no thread owns yet.
    pub(crate) fn new(state: State) -> Self {
        Self {
            owner: OnceLock::new(),
            busy: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            state: UnsafeCell::new(state),
        }
    }

    /// Whether the calling thread is the owner; fails if another one is. Before the first turn any may make a call.
    #[inline]
    fn is_owner(&self) -> Result<bool, Failure> {
        match self.owner.get() {
            Some(owner) if !owner.is_current() => Err(Failure::new(
                libc::EPERM,
                "the loop belongs to the thread that made its first turn; use its remote from others",
            )),
            owner => Ok(owner.is_some()),
        }
    }

    /// Sets `busy`, or says why no call can be made now.
    fn begin(&self) -> Result<(), Failure> {
        if self.poisoned.load(Ordering::Relaxed) {
            return Err(Failure::new(
                libc::ENOTRECOVERABLE,
                "an earlier call met a fault in libquoit; this loop can only be destroyed",
            ));
        }
        let owned = self.is_owner()?;
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(Failure::new(
                libc::EBUSY,
                "another call on this loop is under way; one thread at a time may use it",
            ));
        }
        if !owned {
            // Another thread may have made the first turn since.
            self.is_owner()
                .inspect_err(|_| self.busy.store(false, Ordering::Release))?;
        }
        Ok(())
    }

    /// Makes a call on a loop.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
        self.begin()?;
        let mut guard = Call {
            handle: self,
            returned: false,
        };
        // SAFETY: `busy` was clear and is set now, so no other reference to the state exists, and `Acquire` shows
        // what the last call did. The guard clears it after this reference has ended.
        let result = call(unsafe { &mut *self.state.get() });
        guard.returned = true;
        result
    }

    /// Makes a turn: as [`with`](Self::with), and the calling thread is the owner from the first one on.
    #[inline]
    pub(crate) fn turn<T>(&self, call: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
        self.with(|state| {
            if self.owner.get().is_none() {
                let mark = ThreadMark::current().ok_or_else(|| {
                    Failure::new(
                        libc::EPERM,
                        "a thread that is ending cannot make a loop's first turn",
                    )
                })?;
                self.owner
                    .set(mark)
                    .expect("calls are made one at a time, and none has set it");
            }
            call(state)
        })
    }

    /// The handle behind a pointer of C's.
    ///
    /// # Safety
    /// If the pointer is not null, it must be a loop that was created and not destroyed.
    pub(crate) unsafe fn of<'a>(pointer: *const Self) -> Result<&'a Self, Failure> {
        // SAFETY: promised by the caller.
        unsafe { reference(pointer, "loop") }
    }

    /// Takes the loop back to be dropped.
    ///
    /// # Safety
    /// As for [`of`](Self::of); no other call on it may be made any more.
    pub(crate) unsafe fn reclaim(pointer: *mut Self) -> Result<Box<Self>, Failure> {
        // SAFETY: promised by the caller.
        let handle = unsafe { Self::of(pointer) }?;
        if let Some(owner) = handle.owner.get()
            && !owner.is_current()
            && !owner.has_ended()
        {
            return Err(Failure::new(
                libc::EPERM,
                "a loop is destroyed on the thread of its turns, or elsewhere once that thread has ended",
            ));
        }
        if handle.busy.load(Ordering::Acquire) {
            return Err(Failure::new(
                libc::EBUSY,
                "another call on this loop is under way; destroy it when that has returned",
            ));
        }
        // SAFETY: it was made by `Box::into_raw`, and is not used any more.
        Ok(unsafe { Box::from_raw(pointer) })
    }
}

#[cfg(test)]
mod tests {
    use quoit::{Config, EngineChoice, EngineKind, LoopIndex};

    use super::*;
    use crate::error::return_code;

    fn handle() -> LoopHandle {
        let config = Config {
            engine: EngineChoice::Require(EngineKind::Epoll),
            connections: 8,
            ..Config::default()
        };
        LoopHandle::new(State {
            quoit: Loop::new(LoopIndex::default(), config).unwrap(),
            events: Events::with_capacity(1),
            leases: Arc::new(Leases::new(1).unwrap()),
            receivers: Receivers::default(),
        })
    }

    #[test]
    fn a_panic_poisons_the_loop() {
        let handle = handle();
        assert_eq!(return_code(|| handle.with(|_| Ok(1))), 1);
        assert_eq!(
            return_code(|| handle.with(|_| Err(Failure::invalid("no")))),
            -i64::from(libc::EINVAL)
        );
        let poisoned = -i64::from(libc::ENOTRECOVERABLE);
        assert_eq!(return_code(|| handle.with(|_| panic!("on purpose"))), poisoned);
        assert_eq!(return_code(|| handle.with(|_| Ok(1))), poisoned);
    }

    #[test]
    fn a_call_within_a_call_is_refused() {
        let handle = handle();
        let inner = handle.with(|_| Ok(handle.with(|_| Ok(())).unwrap_err().code));
        assert_eq!(inner.unwrap(), libc::EBUSY);
    }
}
