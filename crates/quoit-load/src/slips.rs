//! Gaps in which a thread of the generator did not run ([`super::clock`] finds them).

/// Gaps in which the thread did not run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Slips {
    pub(super) count: u64,
    /// Nanoseconds of all, and of the longest.
    pub(super) total: u64,
    pub(super) longest: u64,
}

impl Slips {
    /// Adds those of another thread.
    pub(super) fn add(&mut self, other: Slips) {
        self.count += other.count;
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }
}

/// How many are remembered: an hour of one in twenty milliseconds. Of older ones it is no longer known how much of a
/// latency they are.
const MOST_REMEMBERED: usize = 1 << 18;

/// The slips so far, by which is told how much of a latency may be the generator's own.
#[derive(Debug, Default)]
pub(super) struct SlipHistory {
    slips: Vec<Slip>,
}

#[derive(Debug, Clone, Copy)]
struct Slip {
    begin: u64,
    end: u64,
    /// Nanoseconds of all that went before.
    before: u64,
}

impl SlipHistory {
    pub(super) fn add(&mut self, begin: u64, end: u64) {
        let before = self
            .slips
            .last()
            .map_or(0, |last| last.before + (last.end - last.begin));
        if self.slips.len() == MOST_REMEMBERED {
            self.slips.drain(..MOST_REMEMBERED / 2);
        }
        self.slips.push(Slip { begin, end, before });
    }

    /// When the last one ended: what began before and ends now has overlapped one.
    pub(super) fn last_end(&self) -> u64 {
        self.slips.last().map_or(0, |last| last.end)
    }

    /// For how many nanoseconds since `start` the thread did not run.
    pub(super) fn since(&self, start: u64) -> u64 {
        let Some(last) = self.slips.last().filter(|last| last.end > start) else {
            return 0;
        };
        let first = self.slips[self.slips.partition_point(|slip| slip.end <= start)];
        let total = last.before + (last.end - last.begin) - first.before;
        total - start.saturating_sub(first.begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_the_thread_did_not_run_since_a_time_is_known() {
        let mut history = SlipHistory::default();
        assert_eq!(history.since(0), 0);
        for (begin, end) in [(100, 150), (200, 230), (230, 240), (500, 600)] {
            history.add(begin, end);
        }
        for (start, expected) in [
            (0, 190),
            (100, 190),
            (120, 170),
            (150, 140),
            (215, 125),
            (230, 110),
            (499, 100),
            (599, 1),
            (600, 0),
            (700, 0),
        ] {
            assert_eq!(history.since(start), expected, "since {start}");
        }
        for at in 0..MOST_REMEMBERED as u64 {
            history.add(1_000 + 10 * at, 1_001 + 10 * at);
        }
        assert!(history.slips.len() <= MOST_REMEMBERED);
        assert_eq!(history.since(history.last_end() - 25), 3);
    }
}
