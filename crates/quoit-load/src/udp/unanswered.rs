//! The datagrams of a sender that wait for their reply.

use std::collections::VecDeque;

/// Datagrams that are unanswered. One that has been so for longer than the timeout makes room for another. Times are in
/// nanoseconds.
#[derive(Debug)]
pub(super) struct Unanswered {
    timeout: u64,
    /// The number of the first of `datagrams`.
    first: u64,
    /// When each was sent; `None` once it is answered. The first is unanswered.
    datagrams: VecDeque<Option<u64>>,
    count: u32,
}

impl Unanswered {
    pub(super) fn new(timeout: u64) -> Self {
        Self {
            timeout,
            first: 0,
            datagrams: VecDeque::new(),
            count: 0,
        }
    }

    /// How many there are at `now`.
    pub(super) fn count(&mut self, now: u64) -> u32 {
        while self.next_overdue().is_some_and(|at| at <= now) {
            self.answered(self.first);
        }
        self.count
    }

    /// When the first of them has waited for too long.
    pub(super) fn next_overdue(&self) -> Option<u64> {
        let sent_at = self.datagrams.front().copied().flatten()?;
        Some(sent_at.saturating_add(self.timeout))
    }

    /// Notes that so many more were sent at `now`.
    pub(super) fn sent(&mut self, count: usize, now: u64) {
        self.datagrams.extend(std::iter::repeat_n(Some(now), count));
        self.count += count as u32;
    }

    /// Notes that datagram `sequence` was answered.
    pub(super) fn answered(&mut self, sequence: u64) {
        let place = sequence
            .checked_sub(self.first)
            .and_then(|place| usize::try_from(place).ok());
        let Some(datagram) = place.and_then(|place| self.datagrams.get_mut(place)) else {
            return;
        };
        if datagram.take().is_some() {
            self.count -= 1;
        }
        while let Some(None) = self.datagrams.front() {
            self.datagrams.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answered_and_late_datagrams_make_room() {
        let mut unanswered = Unanswered::new(100);
        assert_eq!((unanswered.count(0), unanswered.next_overdue()), (0, None));
        unanswered.sent(2, 0);
        assert_eq!((unanswered.count(1), unanswered.next_overdue()), (2, Some(100)));
        // Out of order; again; never sent.
        for sequence in [1, 1, 7] {
            unanswered.answered(sequence);
        }
        assert_eq!(unanswered.count(2), 1);
        unanswered.sent(1, 2);
        assert_eq!((unanswered.count(3), unanswered.next_overdue()), (2, Some(100)));
        assert_eq!(unanswered.count(100), 1);
        unanswered.answered(0);
        assert_eq!((unanswered.count(101), unanswered.next_overdue()), (1, Some(102)));
        assert_eq!(unanswered.count(102), 0);
    }
}
