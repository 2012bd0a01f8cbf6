//! The clock of one thread, which notices when the thread did not run.
//!
//! On a machine that is shared (and most virtual ones are) the generator itself is stopped now and then: its core
//! goes to another thread or another machine. What the server did meanwhile looks slow and was not. Such a gap, a
//! *slip*, is found in two ways: two readings of the clock inside one pass over events lie further apart than any
//! work between them can take; or a wait ends much later than its timer asked. A gap while the thread waits
//! for replies alone, with no timer to miss, cannot be told from a server that took that long.

use std::sync::Arc;

use super::control::Control;
use super::slips::{SlipHistory, Slips};

/// Reads the run's clock.
#[derive(Debug)]
pub(super) struct Clock {
    control: Arc<Control>,
    watch: Watch,
}

/// Finds slips among readings.
#[derive(Debug)]
struct Watch {
    /// The shortest gap that is one, in nanoseconds.
    limit: u64,
    last: u64,
    slips: Slips,
    history: SlipHistory,
}

impl Clock {
    /// Gaps longer than `limit` nanoseconds are slips.
    pub(super) fn new(control: Arc<Control>, limit: u64) -> Self {
        let watch = Watch {
            limit,
            last: control.now(),
            slips: Slips::default(),
            history: SlipHistory::default(),
        };
        Clock { control, watch }
    }

    /// The time, in nanoseconds of the run's clock.
    pub(super) fn now(&mut self) -> u64 {
        let now = self.control.now();
        self.watch.read(now);
        now
    }

    /// The time after a wait for events that was to end at `deadline`.
    pub(super) fn now_after_wait(&mut self, deadline: u64) -> u64 {
        let now = self.control.now();
        self.watch.read_after_wait(deadline, now);
        now
    }

    /// The slips so far.
    pub(super) fn slip_history(&self) -> &SlipHistory {
        &self.watch.history
    }

    /// The slips since the last call.
    pub(super) fn take_slips(&mut self) -> Slips {
        std::mem::take(&mut self.watch.slips)
    }
}

impl Watch {
    fn read(&mut self, now: u64) {
        self.check(self.last, now);
        self.last = now;
    }

    fn read_after_wait(&mut self, deadline: u64, now: u64) {
        // A deadline that had passed when the wait began asked for none.
        self.check(deadline.max(self.last), now);
        self.last = now;
    }

    fn check(&mut self, from: u64, now: u64) {
        let gap = now.saturating_sub(from);
        if gap > self.limit {
            self.history.add(from, now);
            self.slips.add(Slips {
                count: 1,
                total: gap,
                longest: gap,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_readings_and_late_wake_ups_are_slips() {
        let mut watch = Watch {
            limit: 100,
            last: 0,
            slips: Slips::default(),
            history: SlipHistory::default(),
        };
        watch.read(100);
        watch.read_after_wait(5_000, 1_000);
        watch.read_after_wait(5_000, 5_100);
        watch.read_after_wait(10, 5_200);
        assert_eq!((watch.slips, watch.history.last_end()), (Slips::default(), 0));
        watch.read(5_301);
        assert_eq!(watch.history.last_end(), 5_301);
        watch.read_after_wait(6_000, 6_150);
        let found = Slips {
            count: 2,
            total: 251,
            longest: 150,
        };
        assert_eq!((watch.slips, watch.history.last_end()), (found, 6_150));
    }
}
