//! What the threads of a run share: its clock, the schedule, the order to stop, and their progress.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::recorder::IntervalPart;

/// When the measured window lies, in nanoseconds of the run's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) from: u64,
    /// The end, if the window is limited in time.
    pub(super) until: Option<u64>,
}

/// What a worker tells the coordinator.
#[derive(Debug)]
pub(super) enum Message {
    /// All connections are open, or the time for it is over.
    Opened {
        open: usize,
        first_error: Option<String>,
    },
    /// An interval of the measured window is over.
    Interval(IntervalPart),
    /// The worker has ended.
    Ended,
}

/// One worker's progress, on a cache line of its own: it is written after every batch of events.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WorkerProgress {
    open: AtomicU64,
    replies: AtomicU64,
    settled: AtomicU64,
}

/// The sums over all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Open connections.
    pub(super) open: u64,
    /// Replies since the start, warm-up included.
    pub(super) replies: u64,
    /// Requests answered or lost in the measured window.
    pub(super) settled: u64,
}

#[derive(Debug)]
pub(super) struct Control {
    start: Instant,
    /// The start on the wall clock, since 1970.
    wall_start: Duration,
    stop: AtomicBool,
    schedule: OnceLock<Schedule>,
    workers: Box<[WorkerProgress]>,
}

impl Control {
    /// The run's clock starts now.
    pub(super) fn new(workers: usize) -> Self {
        Control {
            start: Instant::now(),
            wall_start: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
            stop: AtomicBool::new(false),
            schedule: OnceLock::new(),
            workers: (0..workers).map(|_| WorkerProgress::default()).collect(),
        }
    }

    /// Nanoseconds since the start: enough for 584 years.
    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
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

    pub(super) fn publish(&self, worker: usize, open: usize, replies: u64, settled: u64) {
        let progress = &self.workers[worker];
        progress.open.store(open as u64, Ordering::Relaxed);
        progress.replies.store(replies, Ordering::Relaxed);
        progress.settled.store(settled, Ordering::Relaxed);
    }

    pub(super) fn sums(&self) -> Sums {
        self.workers.iter().fold(Sums::default(), |sums, worker| Sums {
            open: sums.open + worker.open.load(Ordering::Relaxed),
            replies: sums.replies + worker.replies.load(Ordering::Relaxed),
            settled: sums.settled + worker.settled.load(Ordering::Relaxed),
        })
    }
}
