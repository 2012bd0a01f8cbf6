//! Signals that end calls, such as those by which runtimes stop their threads.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(unsafe_code, reason = "the standard library has no signals")]

mod support;

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use quoit::{Events, Loop, LoopIndex};
use support::{config, engines};

/// Those that were handled.
static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handle(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Has SIGUSR1 end whatever call of a thread it comes into: without SA_RESTART (`signal(7)`).
fn end_calls_by_a_signal() {
    // SAFETY: a structure for which all zeroes is a valid value, and a handler that does nothing but count.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut())
    };
    assert_eq!(result, 0);
}

/// Loops are made, turn and end on a thread that gets one signal after the other.
#[test]
fn no_signal_keeps_a_loop_from_its_life() {
    const LOOPS: u32 = 50;
    end_calls_by_a_signal();
    for engine in engines() {
        let before = HANDLED.load(Ordering::Relaxed);
        let ended = AtomicBool::new(false);
        // SAFETY: it takes nothing and answers this thread.
        let target = unsafe { libc::pthread_self() };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    // SAFETY: the thread lives at least as long as this scope.
                    assert_eq!(unsafe { libc::pthread_kill(target, libc::SIGUSR1) }, 0);
                }
            });
            while HANDLED.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
            let lives: Result<(), String> = (0..LOOPS).try_for_each(|_| {
                let mut event_loop =
                    Loop::new(LoopIndex::default(), config(engine)).map_err(|error| error.to_string())?;
                let turned = event_loop.turn([], &mut Events::with_capacity(8), Some(Duration::ZERO));
                turned.map(drop).map_err(|error| error.to_string())
            });
            ended.store(true, Ordering::Release);
            assert_eq!(lives, Ok(()), "{engine:?}");
        });
    }
}
