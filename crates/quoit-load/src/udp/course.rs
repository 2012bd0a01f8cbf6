//! The course of one sender through one phase: when its datagrams are due, and when the phase is over.

use crate::control::nanoseconds;
use crate::pacing::{Pacing, Place};
use crate::{Phase, Plan};

/// A sender is to [`Pacing`] what a connection is to it, the only one of its thread. Times are nanoseconds of the run's
/// clock.
#[derive(Debug)]
pub(super) struct Course {
    pacing: Pacing,
    place: Place,
    /// Whether datagrams are due at times of a timetable.
    pub(super) has_timetable: bool,
    /// When the phase begins and, unless it ends by count, when it ends.
    pub(super) begins: u64,
    pub(super) until: u64,
    /// Datagrams of this phase that were sent.
    pub(super) sent: u64,
}

impl Course {
    /// That of sender `index` in a phase of `plan` that begins at `begins`.
    pub(super) fn new(plan: &Plan, phase: Phase, begins: u64, index: usize) -> Self {
        let until = phase
            .length
            .time()
            .map_or(u64::MAX, |time| begins.saturating_add(nanoseconds(time)));
        let mut place = Place::new(index as u64);
        let mut pacing = Pacing::new(
            plan.pipeline,
            phase.offered.as_ref(),
            plan.connections as u64,
            plan.seed,
        );
        pacing.begin(begins, until, std::iter::once(&mut place));
        pacing.allow(phase.length.share(plan.threads, index).unwrap_or(u64::MAX));
        Self {
            pacing,
            place,
            has_timetable: phase.offered.is_some(),
            begins,
            until,
            sent: 0,
        }
    }

    /// Whether nothing more of it is to be sent at `now`.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.until || self.pacing.is_exhausted()
    }

    /// Takes up to `most` datagrams that are due at `now`, of which so many are `unanswered` before: to `starts`, when
    /// each was due.
    pub(super) fn take(&mut self, now: u64, unanswered: u32, most: usize, starts: &mut Vec<u64>) {
        if self.pacing.pop_timer(now).is_some() {
            Pacing::timer_popped(&mut self.place);
        }
        starts.clear();
        // A batch is at most 1,024.
        while starts.len() < most
            && let Some(due) = self
                .pacing
                .take(&mut self.place, 0, unanswered + starts.len() as u32, now)
        {
            starts.push(due.start);
        }
    }

    /// Notes that `count` of those that were due at `starts` were sent. The others are due still.
    pub(super) fn note_sent(&mut self, count: usize, starts: &[u64]) {
        self.sent += count as u64;
        for &start in starts[count..].iter().rev() {
            self.pacing.give_back(&mut self.place, start);
        }
    }

    /// Until when nothing is due, unless a reply makes it so.
    pub(super) fn next_due(&self) -> u64 {
        self.pacing
            .next_timer()
            .map_or(self.until, |due| due.min(self.until))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Length;
    use crate::arguments;

    /// That of sender `index` with these options, in a phase of this length that begins at `begins`.
    fn course(options: &str, length: Length, begins: u64, index: usize) -> Course {
        let words: Vec<_> = "udp --connect 127.0.0.1:9"
            .split(' ')
            .chain(options.split(' '))
            .collect();
        let plan = arguments::plan(&words).unwrap();
        let offered = plan.phases[0].offered;
        Course::new(&plan, Phase { offered, length }, begins, index)
    }

    const EVERY_1000_NS: &str = "--rate 1000000";
    const FLAT_OUT: &str = "--senders 1";

    fn take(course: &mut Course, now: u64) -> Vec<u64> {
        let mut starts = Vec::new();
        course.take(now, 0, 8, &mut starts);
        course.note_sent(starts.len(), &starts);
        starts
    }

    #[test]
    fn even_senders_take_turns_and_catch_up() {
        let [mut first, mut second] =
            [0, 1].map(|index| course("--rate 1000000 --senders 2", Length::Count(9), 0, index));
        assert_eq!(take(&mut first, 0), [0]);
        assert_eq!(take(&mut second, 0), [0_u64; 0]);
        assert_eq!(second.next_due(), 1000);
        assert_eq!(take(&mut first, 10), [0_u64; 0]);
        assert_eq!(first.next_due(), 2000);
        // Late: all that fell due, with the times at which they did.
        assert_eq!(take(&mut first, 6500), [2000, 4000, 6000]);
        assert!(!first.is_over(1_000_000));
        assert_eq!(take(&mut first, 1_000_000), [8000]);
        assert!(first.is_over(1_000_000));
        // Four of nine.
        assert_eq!(take(&mut second, 1_000_000).len(), 4);
        assert!(second.is_over(1_000_000));
    }

    #[test]
    fn time_ends_a_run_and_no_wait_is_longer() {
        let time = Length::Time(Duration::from_nanos(50));
        let mut even = course(EVERY_1000_NS, time, 0, 0);
        assert_eq!(take(&mut even, 0), [0]);
        assert_eq!(take(&mut even, 1), [0_u64; 0]);
        assert_eq!(even.next_due(), 50);
        assert!(!even.is_over(49) && even.is_over(50));
        let mut flat_out = course(FLAT_OUT, time, 0, 0);
        assert_eq!(take(&mut flat_out, 49), [49; 8]);
    }

    #[test]
    fn a_later_phase_has_a_timetable_of_its_own() {
        let time = Length::Time(Duration::from_nanos(2500));
        let mut course = course("--rate 1000000 --senders 2", time, 10_000, 1);
        assert_eq!((course.begins, course.until), (10_000, 12_500));
        // Its first is the second of the phase, and nothing of an earlier one is owed.
        assert_eq!(take(&mut course, 10_500), [0_u64; 0]);
        assert_eq!(course.next_due(), 11_000);
        assert_eq!(take(&mut course, 11_200), [11_000]);
        assert_eq!(take(&mut course, 11_300), [0_u64; 0]);
        assert_eq!((course.next_due(), course.sent), (12_500, 1));
        assert!(course.is_over(12_500));
    }

    #[test]
    fn what_the_kernel_did_not_take_is_due_still_and_in_order() {
        let mut starts = Vec::new();
        for (options, again) in [
            (EVERY_1000_NS, &[1000, 2000, 3000, 4000][..]),
            (FLAT_OUT, &[4001; 4]),
        ] {
            let mut course = course(options, Length::Count(5), 0, 0);
            course.take(3000, 0, 4, &mut starts);
            course.note_sent(1, &starts);
            assert_eq!(take(&mut course, 4001), again);
            assert!(course.is_over(4001));
            assert_eq!(course.sent, 5);
        }
    }

    #[test]
    fn unanswered_datagrams_keep_others_back() {
        let mut course = course("--echo --outstanding 2", Length::Count(10), 0, 0);
        let mut starts = Vec::new();
        for (unanswered, expected) in [(0, 2), (1, 1), (2, 0)] {
            course.take(5, unanswered, 8, &mut starts);
            assert_eq!(starts.len(), expected);
        }
        assert_eq!(course.next_due(), u64::MAX);
    }
}
