//! Waking a loop that sleeps, from any thread, without a system call while it runs.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

use crate::errno::Errno;
use crate::sync::{AtomicU8, AtomicU64, Eventfd, Ordering};

const RUNNING: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;
const PARKED: u8 = 3;

/// The sleeping state of one loop and the eventfd that ends its sleep.
///
/// The protocol: a producer publishes its work first, then calls [`Wake::wake`]. The loop calls
/// [`Wake::prepare_sleep`] and sleeps only if it returns true, then [`Wake::end_sleep`], and only then looks
/// for work. Whichever of the two comes second sees the other: either the loop finds the state NOTIFIED and
/// does not sleep, or the producer finds it SLEEPING and writes the eventfd. Nothing resets the eventfd:
/// both engines watch it edge-triggered, and a 64-bit counter does not fill up.
///
/// A loop that is parked on a poller outside may have to be woken another way, by its notifier: the state PARKED
/// says so.
#[derive(Debug)]
pub(crate) struct Wake {
    state: AtomicU8,
    writes: AtomicU64,
    eventfd: Eventfd,
    notifier: OnceLock<Eventfd>,
}

impl Wake {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            state: AtomicU8::new(RUNNING),
            writes: AtomicU64::new(0),
            eventfd: Eventfd::new(0)?,
            notifier: OnceLock::new(),
        })
    }

    /// The notifier: an eventfd that a poller outside watches, that the kernel writes with completions, and that is
    /// read without waiting. Made at the first call.
    pub(crate) fn notifier(&self) -> Result<RawFd, Errno> {
        if let Some(notifier) = self.notifier.get() {
            return Ok(notifier.as_raw_fd());
        }
        let made = Eventfd::new(libc::EFD_NONBLOCK)?;
        Ok(self.notifier.get_or_init(|| made).as_raw_fd())
    }

    /// Makes the loop look for work soon. Callable from any thread, also after the loop has gone.
    pub(crate) fn wake(&self) {
        let eventfd = match self.state.swap(NOTIFIED, Ordering::SeqCst) {
            SLEEPING => &self.eventfd,
            PARKED => self
                .notifier
                .get()
                .expect("no loop parks on a notifier that was not made"),
            _ => return,
        };
        self.writes.fetch_add(1, Ordering::Relaxed);
        eventfd.write();
    }

    /// Announces sleep. False means that there was a wake since the last [`Wake::end_sleep`]: do not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.state
            .compare_exchange(RUNNING, SLEEPING, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// As [`Wake::prepare_sleep`], but a wake then writes the notifier, which must have been made.
    pub(crate) fn prepare_park(&self) -> bool {
        debug_assert!(self.notifier.get().is_some(), "a wake must find it");
        self.state
            .compare_exchange(RUNNING, PARKED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Ends sleep, or the decision not to. Returns whether there was a wake. Look for work after this.
    pub(crate) fn end_sleep(&self) -> bool {
        self.state.swap(RUNNING, Ordering::SeqCst) == NOTIFIED
    }

    /// Whether there was a wake since the last [`Wake::end_sleep`]: for a loop that waits awake.
    pub(crate) fn is_notified(&self) -> bool {
        self.state.load(Ordering::SeqCst) == NOTIFIED
    }

    /// Whether a wake would cost a system call. Who reads so also reads what the loop has written before it went to sleep.
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), SLEEPING | PARKED)
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

#[cfg(not(quoit_loom))]
#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, OwnedFd};

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
    #[cfg_attr(miri, ignore = "system calls")]
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
    #[cfg_attr(miri, ignore = "system calls")]
    fn a_parked_loop_is_woken_by_its_notifier() {
        let wake = Wake::new().unwrap();
        let notifier = wake.notifier().unwrap();
        assert_eq!(wake.notifier(), Ok(notifier));
        assert!(wake.prepare_park());
        wake.wake();
        let mut count = [0; 8];
        // SAFETY: room for eight bytes.
        let read = unsafe { libc::read(notifier, count.as_mut_ptr().cast(), count.len()) };
        assert_eq!((read, u64::from_ne_bytes(count)), (8, 1));
        assert!(!readable(&wake));
        assert!(!wake.prepare_park());
        assert!(wake.end_sleep());
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls")]
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
    #[cfg_attr(miri, ignore = "system calls")]
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
