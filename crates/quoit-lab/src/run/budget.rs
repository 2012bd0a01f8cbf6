//! The time that a quick run keeps to, whatever the machine and however many servers there are.

use std::time::{Duration, Instant};

/// What `--quick` promises.
pub(crate) const QUICK: Duration = Duration::from_secs(120);
/// Kept for what comes after the last pair: the results, the page.
const WIND_UP: Duration = Duration::from_secs(3);

/// How much time is left, and for which case. All times are since the beginning of the run.
#[derive(Debug)]
pub(crate) struct Budget {
    /// `None`: as long as it takes.
    whole: Option<Duration>,
    began: Instant,
    /// When the present case has to be done.
    case_ends: Duration,
    /// When the present step began.
    step_began: Duration,
    /// The longest step of the present case so far.
    longest: Duration,
}

impl Budget {
    /// A run that may take so long from `began` on; without a bound, as long as it takes.
    pub(crate) fn new(whole: Option<Duration>, began: Instant) -> Self {
        Self {
            whole: whole.map(|whole| whole.saturating_sub(WIND_UP)),
            began,
            case_ends: Duration::ZERO,
            step_began: Duration::ZERO,
            longest: Duration::ZERO,
        }
    }

    /// A case begins, and `cases` are left with it: it may use its share of what is left.
    pub(crate) fn case_begins(&mut self, cases: usize) {
        self.case_begins_at(self.began.elapsed(), cases);
    }

    fn case_begins_at(&mut self, now: Duration, cases: usize) {
        let left = self.whole.unwrap_or_default().saturating_sub(now);
        self.case_ends = now + left / u32::try_from(cases.max(1)).unwrap_or(u32::MAX);
        self.longest = Duration::ZERO;
    }

    /// A step, such as a pair, begins.
    pub(crate) fn step_begins(&mut self) {
        self.step_began = self.began.elapsed();
    }

    /// The step is over.
    pub(crate) fn step_ends(&mut self) {
        let took = self.began.elapsed().saturating_sub(self.step_began);
        self.longest = self.longest.max(took);
    }

    /// Whether the case has time for one more step like those before, with `after` left for what follows them.
    pub(crate) fn allows(&self, after: Duration) -> bool {
        self.allows_at(self.began.elapsed(), after)
    }

    fn allows_at(&self, now: Duration, after: Duration) -> bool {
        self.whole.is_none() || now + self.longest + after <= self.case_ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn every_case_has_its_share_of_what_is_left() {
        let mut budget = Budget::new(Some(seconds(100) + WIND_UP), Instant::now());
        budget.case_begins_at(seconds(0), 4);
        assert!(budget.allows_at(seconds(20), seconds(5)));
        assert!(!budget.allows_at(seconds(20), seconds(6)));
        budget.longest = seconds(8);
        assert!(budget.allows_at(seconds(17), Duration::ZERO));
        assert!(!budget.allows_at(seconds(18), Duration::ZERO));
        // What the first case did not use goes to the others.
        budget.case_begins_at(seconds(10), 3);
        assert!(budget.allows_at(seconds(40), Duration::ZERO));
        assert!(!budget.allows_at(seconds(41), Duration::ZERO));
        // One that comes too late has none.
        budget.case_begins_at(seconds(101), 1);
        assert!(!budget.allows_at(seconds(102), Duration::ZERO));
    }

    #[test]
    fn without_a_bound_there_is_always_time() {
        let mut budget = Budget::new(None, Instant::now());
        budget.case_begins_at(seconds(0), 1);
        budget.longest = seconds(60);
        assert!(budget.allows_at(seconds(1_000_000), seconds(60)));
    }
}
