//! What the threads of the loops take of the processors: how busy a loop is, which its own counters do not say.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

/// The folder of a loop's thread below `/proc`, known once the loop runs.
#[derive(Debug, Default)]
pub(super) struct LoopThread(OnceLock<String>);

/// What a thread has had of the processors since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadTimes {
    /// On a processor.
    pub(super) running: Duration,
    /// With something to do, and without a processor.
    pub(super) waiting: Duration,
}

impl LoopThread {
    /// The calling thread is the loop's.
    pub(super) fn is_this(&self) {
        // Where it cannot be told, the figures are left out.
        if let Ok(thread) = fs::read_link("/proc/thread-self") {
            let _ = self.0.set(format!("/proc/{}/schedstat", thread.display()));
        }
    }

    /// None if the thread has ended, or the kernel does not say. A thread that has not begun has had nothing: a
    /// scrape that comes before it shall find its series, as rates are taken from the first.
    pub(super) fn times(&self) -> Option<ThreadTimes> {
        match self.0.get() {
            Some(path) => read(path),
            None => read("/proc/thread-self/schedstat").map(|_| ThreadTimes::default()),
        }
    }
}

/// What the kernel says of a thread.
fn read(path: &str) -> Option<ThreadTimes> {
    parse(&fs::read_to_string(path).ok()?)
}

/// Nanoseconds, nanoseconds, and how often it ran (`sched-stats.rst` of the kernel's documentation).
fn parse(text: &str) -> Option<ThreadTimes> {
    let mut figures = text
        .split_whitespace()
        .map(|figure| figure.parse().ok().map(Duration::from_nanos));
    Some(ThreadTimes {
        running: figures.next()??,
        waiting: figures.next()??,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_taken_apart() {
        let times = ThreadTimes {
            running: Duration::from_nanos(1_500_000_000),
            waiting: Duration::from_nanos(7),
        };
        assert_eq!(parse("1500000000 7 12\n"), Some(times));
        for wrong in ["", "5", "5 x 1", "x 5 1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_thread_that_has_not_begun_has_had_nothing_and_then_what_the_kernel_says() {
        if read("/proc/thread-self/schedstat").is_none() {
            return quoit_skipped::skip_this("the kernel does not tell the times of a thread");
        }
        let thread = LoopThread::default();
        assert_eq!(thread.times(), Some(ThreadTimes::default()));
        thread.is_this();
        // This thread has run: until here.
        while thread.times().unwrap().running.is_zero() {}
    }

    #[test]
    fn a_thread_that_has_ended_has_no_times() {
        let thread = std::thread::spawn(|| {
            let thread = LoopThread::default();
            thread.is_this();
            thread
        });
        let thread = thread.join().unwrap();
        assert!(thread.0.get().is_some());
        // Joining waits for the thread's end in user space; the kernel takes its folder away after that.
        while thread.times().is_some() {}
    }
}
