//! Trying whether a ring tells of what happens elsewhere.
//!
//! A loop that sleeps in the ring must be told of another thread's wake, and one that is parked in a poller outside of
//! its completions. Kernels have lost the one and the other: since Linux 6.12.115 a ring with `DEFER_TASKRUN` writes its
//! registered eventfd once and then never ("io_uring: defer eventfd signaling when queued from a wakeup handler"), and in
//! 7.x only after an RCU grace period, some 14 ms. A server on such a ring answers nobody. So nothing is believed that was
//! not seen to work on this kernel, with another thread that acts and looks.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::entry;
use super::setup::{Telling, setup_flags};
use super::sys::{RingParameters, Trigger, UringSys};
use super::user_data::UserData;
use crate::errno::Errno;
use crate::features::FeatureSet;
use crate::sync::Eventfd;

/// Several in a row, as the kernels that lose tell of the first.
const ROUNDS: usize = 6;
/// So many more where none was prompt: on a machine whose processors are all taken the threads themselves come late.
const MORE_ROUNDS: usize = 30;
/// What has not been told by then is lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// The quickest of the rounds takes less if the kernel tells at once (0.05 to 1 ms, even emulated), and each takes more
/// where it waits for an RCU grace period.
const PROMPT: Duration = Duration::from_millis(5);
/// For the other side to fall asleep first.
const PAUSE: Duration = Duration::from_micros(100);

/// Tries one way of being told, on a ring of its own with `features`. See [`UringSys::try_telling`].
pub(super) fn try_telling<S: UringSys>(features: FeatureSet, telling: Telling) -> Result<(), Errno> {
    let (mut ring, _) = S::setup(&RingParameters {
        least_wait_us: 0,
        submission_entries: 4,
        completion_entries: 8,
        flags: setup_flags(features, false),
        poll_idle_ms: 0,
    })?;
    let eventfd = Eventfd::new(libc::EFD_NONBLOCK)?;
    if telling == Telling::Completions {
        ring.notify(eventfd.as_raw_fd())?;
    }
    ring.enable()?;
    let quickest = match telling {
        Telling::Wakes => wakes(&mut ring, &eventfd)?,
        Telling::Completions => completions(&mut ring, eventfd.as_raw_fd())?,
    };
    if quickest < PROMPT {
        Ok(())
    } else {
        Err(Errno::ETIME)
    }
}

/// Whether another round is to be made, after so many of which the quickest took so long.
fn goes_on(rounds: usize, quickest: Duration) -> bool {
    rounds < ROUNDS || (quickest >= PROMPT && rounds < ROUNDS + MORE_ROUNDS)
}

/// Another thread writes an eventfd for which the ring waits. Returns how long it took at best until the wait had ended.
fn wakes<S: UringSys>(ring: &mut S, eventfd: &Eventfd) -> Result<Duration, Errno> {
    thread::scope(|scope| {
        let (begin, begun) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let write = move || {
            for () in begun {
                thread::sleep(PAUSE);
                let at = Instant::now();
                eventfd.write();
                if tell.send(at).is_err() {
                    break;
                }
            }
        };
        if thread::Builder::new().spawn_scoped(scope, write).is_err() {
            return Ok(untried());
        }
        let (mut quickest, mut rounds) = (PATIENCE, 0);
        while goes_on(rounds, quickest) {
            rounds += 1;
            arm(ring, eventfd.as_raw_fd())?;
            let _ = begin.send(());
            take(ring)?;
            let now = Instant::now();
            let Ok(at) = told.recv() else { break };
            quickest = quickest.min(now.saturating_duration_since(at));
            drain(eventfd.as_raw_fd());
        }
        Ok(quickest)
    })
}

/// Another thread sends to sockets that the ring watches, and polls the registered eventfd, while the ring's owner sleeps
/// outside of it, as the threads of a runtime with a poller of its own do. Returns how long it took at best.
fn completions<S: UringSys>(ring: &mut S, eventfd: RawFd) -> Result<Duration, Errno> {
    let failed = |error: std::io::Error| Errno::from_io(&error);
    let (mut near, mut far) = UnixStream::pair().map_err(failed)?;
    let (near_datagrams, far_datagrams) = UnixDatagram::pair().map_err(failed)?;
    thread::scope(|scope| {
        let (begin, begun) = mpsc::channel::<usize>();
        let (tell, told) = mpsc::channel();
        let send = move || {
            for round in begun {
                thread::sleep(PAUSE);
                let at = Instant::now();
                let sent = if round % 2 == 0 {
                    far.write(&[1])
                } else {
                    far_datagrams.send(&[1])
                };
                let is_told = sent.is_ok() && becomes_readable(eventfd, PATIENCE);
                if tell.send(is_told.then(|| at.elapsed())).is_err() {
                    break;
                }
            }
        };
        if thread::Builder::new().spawn_scoped(scope, send).is_err() {
            return Ok(untried());
        }
        let (mut quickest, mut rounds) = (PATIENCE, 0);
        while goes_on(rounds, quickest) {
            let round = rounds;
            rounds += 1;
            ring.disarm_notifier();
            arm(
                ring,
                if round % 2 == 0 {
                    near.as_raw_fd()
                } else {
                    near_datagrams.as_raw_fd()
                },
            )?;
            run_deferred_work(ring)?;
            ring.arm_notifier(Trigger::Level);
            if begin.send(round).is_err() {
                break;
            }
            let Ok(Some(time)) = told.recv() else {
                return Err(Errno::ETIME);
            };
            quickest = quickest.min(time);
            take(ring)?;
            let mut byte = [0];
            if round % 2 == 0 {
                near.read(&mut byte).map_err(failed)?;
            } else {
                near_datagrams.recv(&mut byte).map_err(failed)?;
            }
        }
        Ok(quickest)
    })
}

/// A process that may not start a thread has none by which it could be woken.
fn untried() -> Duration {
    Duration::ZERO
}

/// Watches a descriptor for one event.
fn arm<S: UringSys>(ring: &mut S, descriptor: RawFd) -> Result<(), Errno> {
    let pushed = ring.try_push(&entry::poll(descriptor, libc::POLLIN, UserData::wake()));
    debug_assert!(pushed, "the queue has room for one");
    enter(ring, 0)
}

/// Until the kernel has put nothing off.
fn run_deferred_work<S: UringSys>(ring: &mut S) -> Result<(), Errno> {
    while ring.has_deferred_work() {
        enter(ring, 0)?;
    }
    Ok(())
}

/// Waits for one completion.
fn take<S: UringSys>(ring: &mut S) -> Result<(), Errno> {
    let end = Instant::now() + PATIENCE;
    while ring.pop().is_none() {
        if Instant::now() >= end {
            return Err(Errno::ETIME);
        }
        enter(ring, 1)?;
    }
    Ok(())
}

fn enter<S: UringSys>(ring: &mut S, wait_for: u32) -> Result<(), Errno> {
    match ring.enter(wait_for, Some(PATIENCE), 0) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Waits until a descriptor is readable. False: the time is over.
fn becomes_readable(descriptor: RawFd, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // SAFETY: one valid pollfd.
        match unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) } {
            count if count > 0 => return true,
            0 => return false,
            _ => {}
        }
    }
}

/// Makes an eventfd that does not wait unreadable.
fn drain(eventfd: RawFd) {
    let mut count = [0u8; 8];
    // SAFETY: room for the counter's eight bytes. With none to read the call fails, which is as good.
    let _ = unsafe { libc::read(eventfd, count.as_mut_ptr().cast(), count.len()) };
}
