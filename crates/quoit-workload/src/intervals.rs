//! Counts by the time at which datagrams were due, the same at both ends of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds of an interval.
const LENGTH: u64 = 100_000_000;

/// Intervals that are told apart: an hour. What is due later counts with the last.
const MOST: usize = 36_000;

/// How many datagrams were due in each tenth of a second since the run began, as their headers say.
///
/// A sender counts what it sends and a sink what it handles. As both go by the same times, they can be held against each
/// other interval by interval: what was lost of each is exact, however late it was handled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Intervals(Vec<u64>);

impl Intervals {
    /// The length of one.
    pub const LENGTH: Duration = Duration::from_nanos(LENGTH);

    /// Counts `more` datagrams that were due so many nanoseconds after the run began.
    #[inline]
    pub fn note(&mut self, due: u64, more: u64) {
        let place = usize::try_from(due / LENGTH).map_or(MOST - 1, |place| place.min(MOST - 1));
        match self.0.get_mut(place) {
            Some(count) => *count += more,
            None => {
                self.0.resize(place + 1, 0);
                self.0[place] += more;
            }
        }
    }

    /// Adds what another has counted of the same run.
    pub fn merge(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// The counts, the run's first interval first; those behind the last are zero.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    /// All together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What came to be until so many seconds after the run began; within an interval evenly.
    #[must_use]
    pub fn until(&self, seconds: f64) -> f64 {
        let at = seconds.max(0.0) / Self::LENGTH.as_secs_f64();
        let whole = at as usize;
        let before = self.0.iter().take(whole).sum::<u64>() as f64;
        before + self.0.get(whole).map_or(0.0, |&count| count as f64 * at.fract())
    }

    /// Of these, sent, what is not among the `handled`, interval by interval; `None` if more was handled than sent in one:
    /// those are no counts of one run.
    #[must_use]
    pub fn losses(&self, handled: &Self) -> Option<Self> {
        let lost = |(place, &sent): (usize, &u64)| {
            let handled = handled.0.get(place).copied().unwrap_or(0);
            sent.checked_sub(handled)
        };
        let beyond = handled.0.iter().skip(self.0.len()).any(|&count| count > 0);
        let losses = self
            .0
            .iter()
            .enumerate()
            .map(lost)
            .collect::<Option<Vec<u64>>>()?;
        (!beyond).then_some(Self(losses))
    }

    /// How long after `from` (since the run began) the interval ends that has the last of these; zero if none has any from
    /// then on.
    #[must_use]
    pub fn last_after(&self, from: Duration) -> Duration {
        let last = self.0.iter().rposition(|&count| count > 0);
        let ends = last.map_or(0, |place| (place as u64 + 1) * LENGTH);
        Duration::from_nanos(ends).saturating_sub(from)
    }

    /// How long after `from` (since the run began) the first intervals begin that have none of these for so `long`, all of
    /// them over by `end`; `None` if there are no such.
    #[must_use]
    pub fn first_without(&self, from: Duration, end: Duration, long: Duration) -> Option<Duration> {
        let place = |time: Duration| time.as_nanos() as u64 / LENGTH;
        let (first, last) = (from.as_nanos().div_ceil(LENGTH.into()) as u64, place(end));
        let wanted = place(long);
        let has_none = |place: u64| {
            let count = usize::try_from(place).ok().and_then(|place| self.0.get(place));
            count.is_none_or(|&count| count == 0)
        };
        let begins = (first..)
            .take_while(|begins| begins + wanted <= last)
            .find(|&begins| (begins..begins + wanted).all(has_none))?;
        Some(Duration::from_nanos(begins * LENGTH).saturating_sub(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[u64]) -> Intervals {
        Intervals(counts.to_vec())
    }

    #[test]
    fn the_first_stretch_without_any_is_found() {
        let tenths = |count: u64| Duration::from_nanos(count * LENGTH);
        let counts = of(&[9, 9, 3, 0, 0, 1, 0, 0, 0, 2]);
        let first = |from, end, long| counts.first_without(tenths(from), tenths(end), tenths(long));
        assert_eq!(first(2, 12, 2), Some(tenths(1)));
        assert_eq!(first(2, 12, 3), Some(tenths(4)));
        assert_eq!(first(2, 9, 3), Some(tenths(4)));
        // It would reach past the end, or into the last of these.
        assert_eq!((first(2, 8, 3), first(2, 12, 4)), (None, None));
        // Behind the last counted one there are none.
        assert_eq!(first(2, 20, 4), Some(tenths(8)));
        assert_eq!(
            of(&[]).first_without(tenths(3), tenths(5), tenths(2)),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn datagrams_count_where_they_were_due() {
        let mut counts = Intervals::default();
        counts.note(0, 2);
        counts.note(99_999_999, 1);
        counts.note(300_000_000, 5);
        assert_eq!(counts, of(&[3, 0, 0, 5]));
        counts.merge(&of(&[1, 0, 0, 0, 7]));
        assert_eq!((counts.counts(), counts.sum()), (&[4, 0, 0, 5, 7][..], 16));
        counts.note(u64::MAX, 1);
        assert_eq!((counts.counts().len(), counts.sum()), (MOST, 17));
    }

    #[test]
    fn counts_are_known_at_any_time() {
        let counts = of(&[10, 20]);
        let at = [-1.0, 0.0, 0.05, 0.1, 0.15, 0.2, 9.0].map(|seconds| counts.until(seconds).round());
        assert_eq!(at, [0.0, 0.0, 5.0, 10.0, 20.0, 30.0, 30.0]);
    }

    #[test]
    fn losses_end_with_the_last_interval_that_has_any() {
        let sent = of(&[10, 10, 10, 5, 5, 5]);
        let after = |handled: &[u64]| {
            let losses = sent.losses(&of(handled))?;
            Some(losses.last_after(Duration::from_millis(250)).as_millis())
        };
        assert_eq!(after(&[10, 9, 1, 5, 5, 5]), Some(50));
        assert_eq!(after(&[10, 9, 10, 5, 5, 5]), Some(0));
        assert_eq!(after(&[10, 9, 1, 5, 4, 5]), Some(250));
        assert_eq!(after(&[10, 10, 10, 5, 5, 5]), Some(0));
        // What was handled ends before what was sent does, or after it.
        assert_eq!(after(&[10, 9, 1, 5, 5]), Some(350));
        assert_eq!(after(&[10, 9, 1, 5, 5, 5, 0]), Some(50));
        assert_eq!(after(&[10, 9, 1, 5, 5, 5, 1]), None);
        assert_eq!(after(&[11]), None);
    }
}
