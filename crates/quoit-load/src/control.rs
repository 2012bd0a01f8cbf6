//! What the threads of a run share: its clock, the schedule, the order to stop, and their progress.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;

/// When the measured window lies, in nanoseconds of the run's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) from: u64,
    /// The end, if the window is limited in time.
    pub(super) until: Option<u64>,
}

/// What one thread found in one interval of the measured window.
#[derive(Debug, Clone)]
pub(super) struct IntervalPart {
    /// From 0.
    pub(super) index: u32,
    /// Right replies.
    pub(super) requests: u64,
    pub(super) errors: u64,
    /// Of the requests that have a latency, slips included.
    pub(super) latencies: Histogram<u64>,
}

/// What a thread tells the coordinator.
#[derive(Debug)]
pub(super) enum Message {
    /// All connections are open, or the time for it is over.
    Opened {
        open: usize,
        first_error: Option<String>,
    },
    /// An interval of the measured window is over.
    Interval(IntervalPart),
    /// The thread has ended.
    Ended,
}

/// One thread's progress, on a cache line of its own: it is written after every batch of events or datagrams.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ThreadProgress {
    open: AtomicU64,
    replies: AtomicU64,
    done: AtomicU64,
}

/// How far a thread, or all together, have come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Open connections.
    pub(super) open: u64,
    /// Replies since the start, warm-up included.
    pub(super) replies: u64,
    /// What [`Length::Count`](super::Length::Count) counts: requests answered or lost in the measured window, or
    /// datagrams sent.
    pub(super) done: u64,
}

#[derive(Debug)]
pub(super) struct Control {
    start: Instant,
    /// The start on the wall clock, since 1970.
    wall_start: Duration,
    stop: AtomicBool,
    schedule: OnceLock<Schedule>,
    threads: Box<[ThreadProgress]>,
}

impl Control {
    /// The run's clock starts now.
    pub(super) fn new(threads: usize) -> Self {
        Control {
            start: Instant::now(),
            wall_start: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
            stop: AtomicBool::new(false),
            schedule: OnceLock::new(),
            threads: (0..threads).map(|_| ThreadProgress::default()).collect(),
        }
    }

    /// Nanoseconds since the start.
    pub(super) fn now(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }

    /// What the wall clock shows, since 1970, at a time of the run's clock. A wall clock that is set meanwhile is
    /// not followed.
    pub(super) fn wall(&self, time: u64) -> Duration {
        self.wall_start + Duration::from_nanos(time)
    }

    /// The time of the run's clock at which the wall clock shows `wall`, if that lies after the start.
    pub(super) fn at_wall(&self, wall: Duration) -> Option<u64> {
        let since = wall.checked_sub(self.wall_start)?;
        u64::try_from(since.as_nanos()).ok()
    }

    /// Lets all threads end: the user wants it, or one of them failed.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Sets the schedule; the workers begin once they are woken.
    pub(super) fn begin(&self, schedule: Schedule) -> Schedule {
        *self.schedule.get_or_init(|| schedule)
    }

    pub(super) fn schedule(&self) -> Option<&Schedule> {
        self.schedule.get()
    }

    /// Tells how far `thread` has come.
    pub(super) fn publish(&self, thread: usize, sums: Sums) {
        let progress = &self.threads[thread];
        progress.open.store(sums.open, Ordering::Relaxed);
        progress.replies.store(sums.replies, Ordering::Relaxed);
        progress.done.store(sums.done, Ordering::Relaxed);
    }

    /// How far all threads have come.
    pub(super) fn sums(&self) -> Sums {
        self.threads.iter().fold(Sums::default(), |sums, thread| Sums {
            open: sums.open + thread.open.load(Ordering::Relaxed),
            replies: sums.replies + thread.replies.load(Ordering::Relaxed),
            done: sums.done + thread.done.load(Ordering::Relaxed),
        })
    }
}

/// All of a duration, or the longest that fits: 584 years.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
