//! Waking a loop that sleeps, from any thread, without a system call while it runs.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::errno::Errno;

const RUNNING: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;

/// The sleeping state of one loop and the eventfd that ends its sleep.
///
/// The protocol: a producer publishes its work first, then calls [`Wake::wake`]. The loop calls
/// [`Wake::prepare_sleep`] and sleeps only if it answers true, then [`Wake::end_sleep`], and only then looks
/// for work. Whichever of the two comes second sees the other: either the loop finds the state NOTIFIED and
/// does not sleep, or the producer finds it SLEEPING and writes the eventfd. Nothing resets the eventfd:
/// both engines watch it edge-triggered, and a 64-bit counter does not fill up.
#[derive(Debug)]
pub(crate) struct Wake {
    state: AtomicU8,
    writes: AtomicU64,
    eventfd: OwnedFd,
}

impl Wake {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: eventfd(2) takes no pointers.
        let descriptor = Errno::check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
        // SAFETY: the call has just made this descriptor, and nothing else knows of it.
        let eventfd = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self {
            state: AtomicU8::new(RUNNING),
            writes: AtomicU64::new(0),
            eventfd,
        })
    }

    /// Makes the loop look for work soon. Callable from any thread, also after the loop has gone.
    pub(crate) fn wake(&self) {
        if self.state.swap(NOTIFIED, Ordering::SeqCst) == SLEEPING {
            self.writes.fetch_add(1, Ordering::Relaxed);
            let one = 1u64.to_ne_bytes();
            // SAFETY: the buffer is eight readable bytes, as eventfd(2) wants, and the descriptor is ours.
            let _ = unsafe { libc::write(self.eventfd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Announces sleep. False means that there was a wake since the last [`Wake::end_sleep`]: do not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.state
            .compare_exchange(RUNNING, SLEEPING, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Ends sleep, or the decision not to. Answers whether there was a wake. Look for work after this.
    pub(crate) fn end_sleep(&self) -> bool {
        self.state.swap(RUNNING, Ordering::SeqCst) == NOTIFIED
    }

    /// How often the eventfd was written: the wakes that cost a system call.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// The eventfd, for the engine to watch.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(wake: &Wake) -> bool {
        let mut poll = libc::pollfd {
            fd: wake.descriptor(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn a_running_loop_is_woken_without_a_system_call() {
        let wake = Wake::new().unwrap();
        wake.wake();
        wake.wake();
        assert!(!readable(&wake));
        assert!(!wake.prepare_sleep(), "a wake before the sleep must prevent it");
        assert!(wake.end_sleep());
        assert!(wake.prepare_sleep());
    }

    #[test]
    fn a_sleeping_loop_is_woken_once() {
        let wake = Wake::new().unwrap();
        assert!(wake.prepare_sleep());
        wake.wake();
        wake.wake();
        assert!(readable(&wake));
        assert_eq!(wake.writes(), 1);
        assert!(wake.end_sleep());
        assert!(!wake.end_sleep());
    }

    /// Work is published by other threads, each piece with one wake, while the loop sleeps whenever it may: if a
    /// wake were lost, it would sleep for ever with work at hand.
    #[test]
    fn no_wake_is_lost() {
        const THREADS: u64 = 3;
        const PIECES: u64 = 20_000;
        let wake = Wake::new().unwrap();
        let work = AtomicU64::new(0);
        // SAFETY: epoll_create1(2) takes no pointers.
        let poll = Errno::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).unwrap();
        // SAFETY: made just now, and owned by nobody else.
        let poll = unsafe { OwnedFd::from_raw_fd(poll) };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: 0,
        };
        // SAFETY: both descriptors are open and the event is valid.
        let added = unsafe {
            libc::epoll_ctl(
                poll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                wake.descriptor(),
                &raw mut event,
            )
        };
        Errno::check(added).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..PIECES {
                        work.fetch_add(1, Ordering::SeqCst);
                        wake.wake();
                    }
                });
            }
            let mut done = 0;
            while done < THREADS * PIECES {
                if wake.prepare_sleep() {
                    // SAFETY: room for one event. A minute is for a lost wake, which is the fault sought.
                    let count = unsafe { libc::epoll_wait(poll.as_raw_fd(), &raw mut event, 1, 60_000) };
                    assert_ne!(count, 0, "{done} done, {} there", work.load(Ordering::SeqCst));
                }
                wake.end_sleep();
                done = work.load(Ordering::SeqCst);
            }
        });
    }
}
