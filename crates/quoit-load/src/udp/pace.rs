//! When a datagram may go.

use std::collections::VecDeque;

use super::plan::{EchoPlan, Phase};
use crate::Length;
use crate::control::nanoseconds;
use crate::pacing::Even;

/// The timetable of one sender for one phase, in nanoseconds since the run's beginning.
#[derive(Debug)]
pub(super) struct Pace {
    kind: Kind,
    /// When the phase begins.
    begins: u64,
    /// Datagrams that it sends at most.
    count: u64,
    /// When it stops.
    until: u64,
    /// Datagrams of this phase that were sent.
    sent: u64,
}

#[derive(Debug)]
enum Kind {
    FlatOut,
    Even(Even),
    Outstanding(Outstanding),
}

/// What a sender may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// Send so many, at least one.
    Send(u64),
    /// Send nothing before this time, unless a reply comes.
    Wait(u64),
    /// Send nothing any more.
    Over,
}

impl Pace {
    /// That of sender `index` of `senders` in a phase that begins at `begins`.
    pub(super) fn new(
        Phase { rate, length }: Phase,
        begins: u64,
        echo: Option<EchoPlan>,
        (index, senders): (u16, u16),
    ) -> Self {
        let until = match length {
            Length::Count(_) => u64::MAX,
            Length::Time(time) => begins.saturating_add(nanoseconds(time)),
        };
        let kind = match (rate, echo) {
            (Some(rate), _) => Kind::Even(Even::new(begins, 1e9 / rate, (index.into(), senders.into()))),
            (None, Some(echo)) => Kind::Outstanding(Outstanding::new(echo)),
            (None, None) => Kind::FlatOut,
        };
        Self {
            kind,
            begins,
            count: length.share(senders.into(), index.into()).unwrap_or(u64::MAX),
            until,
            sent: 0,
        }
    }

    /// When the phase begins and, unless it ends by count, when it ends.
    pub(super) fn span(&self) -> (u64, u64) {
        (self.begins, self.until)
    }

    /// Datagrams of this phase that were sent.
    pub(super) fn so_far(&self) -> u64 {
        self.sent
    }

    /// What may be done at `now`.
    pub(super) fn permit(&mut self, now: u64) -> Permit {
        if self.sent >= self.count || now >= self.until {
            return Permit::Over;
        }
        let left = self.count - self.sent;
        let permit = match &mut self.kind {
            Kind::FlatOut => Permit::Send(left),
            Kind::Even(even) => match even.count_until(now) {
                due if due > self.sent => Permit::Send(due - self.sent),
                // Rounded up: one that is woken too early would only wait again.
                _ => Permit::Wait(even.due(self.sent) + 1),
            },
            Kind::Outstanding(outstanding) => outstanding.permit(now),
        };
        match permit {
            Permit::Send(count) => Permit::Send(count.min(left)),
            Permit::Wait(until) => Permit::Wait(until.min(self.until)),
            Permit::Over => Permit::Over,
        }
    }

    /// When the datagram was due that is sent as the `ahead`th from now, at `now`: then, if there is no timetable.
    pub(super) fn due(&self, ahead: u64, now: u64) -> u64 {
        match &self.kind {
            Kind::Even(even) => even.due(self.sent + ahead),
            Kind::FlatOut | Kind::Outstanding(_) => now,
        }
    }

    /// Whether datagrams are due at times of a timetable.
    pub(super) fn has_timetable(&self) -> bool {
        matches!(self.kind, Kind::Even(_))
    }

    /// Notes that so many were sent at `now`.
    pub(super) fn sent(&mut self, count: u64, now: u64) {
        self.sent += count;
        if let Kind::Outstanding(outstanding) = &mut self.kind {
            outstanding.sent(count, now);
        }
    }

    /// Notes that datagram `sequence` was answered.
    pub(super) fn answered(&mut self, sequence: u64) {
        if let Kind::Outstanding(outstanding) = &mut self.kind {
            outstanding.answered(sequence);
        }
    }
}

/// Datagrams that are unanswered. One that has been so for longer than the timeout makes room for another.
#[derive(Debug)]
struct Outstanding {
    limit: usize,
    timeout: u64,
    /// The number of the first of `datagrams`.
    first: u64,
    /// When each was sent; `None` once it is answered. The first is unanswered.
    datagrams: VecDeque<Option<u64>>,
    open: usize,
}

impl Outstanding {
    fn new(echo: EchoPlan) -> Self {
        Self {
            limit: echo.outstanding as usize,
            timeout: nanoseconds(echo.timeout),
            first: 0,
            datagrams: VecDeque::with_capacity(echo.outstanding as usize),
            open: 0,
        }
    }

    fn permit(&mut self, now: u64) -> Permit {
        while let Some(&Some(sent_at)) = self.datagrams.front()
            && sent_at.saturating_add(self.timeout) <= now
        {
            self.answered(self.first);
        }
        match (self.limit - self.open, self.datagrams.front()) {
            (0, Some(&Some(sent_at))) => Permit::Wait(sent_at.saturating_add(self.timeout)),
            (room, _) => Permit::Send(room as u64),
        }
    }

    fn sent(&mut self, count: u64, now: u64) {
        for _ in 0..count {
            self.datagrams.push_back(Some(now));
        }
        self.open += count as usize;
    }

    fn answered(&mut self, sequence: u64) {
        let place = sequence
            .checked_sub(self.first)
            .and_then(|place| usize::try_from(place).ok());
        let Some(datagram) = place.and_then(|place| self.datagrams.get_mut(place)) else {
            return;
        };
        if datagram.take().is_some() {
            self.open -= 1;
        }
        while let Some(None) = self.datagrams.front() {
            self.datagrams.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn phase(length: Length, rate: Option<f64>) -> Phase {
        Phase { rate, length }
    }

    const ECHO: EchoPlan = EchoPlan {
        outstanding: 2,
        timeout: Duration::from_nanos(100),
    };

    #[test]
    fn even_senders_take_turns_and_catch_up() {
        // A datagram every 1000 ns over both.
        let pace = |index| Pace::new(phase(Length::Count(9), Some(1e6)), 0, None, (index, 2));
        let (mut first, mut second) = (pace(0), pace(1));
        assert_eq!(first.permit(0), Permit::Send(1));
        assert_eq!(second.permit(0), Permit::Wait(1001));
        first.sent(1, 0);
        assert_eq!(first.permit(10), Permit::Wait(2001));
        // Late: all that fell due, with the times at which they did.
        assert_eq!(first.permit(6500), Permit::Send(3));
        assert_eq!((first.due(0, 6500), first.due(2, 6500)), (2000, 6000));
        first.sent(3, 6500);
        assert_eq!(first.permit(1_000_000), Permit::Send(1));
        first.sent(1, 1_000_000);
        assert_eq!(first.permit(1_000_000), Permit::Over);
        // Four of nine.
        assert_eq!(second.permit(1_000_000), Permit::Send(4));
    }

    #[test]
    fn time_ends_a_run_and_no_wait_is_longer() {
        let time = Length::Time(Duration::from_nanos(50));
        let mut pace = Pace::new(phase(time, Some(1e6)), 0, None, (0, 1));
        pace.sent(1, 0);
        assert_eq!(pace.permit(1), Permit::Wait(50));
        assert_eq!(pace.permit(50), Permit::Over);
        let mut pace = Pace::new(phase(time, None), 0, None, (0, 1));
        assert_eq!(pace.permit(49), Permit::Send(u64::MAX));
    }

    #[test]
    fn a_later_phase_has_a_timetable_of_its_own() {
        let time = Length::Time(Duration::from_nanos(2500));
        let mut pace = Pace::new(phase(time, Some(1e6)), 10_000, None, (1, 2));
        assert_eq!(pace.span(), (10_000, 12_500));
        // Its first is the second of the phase, and nothing of an earlier one is owed.
        assert_eq!(pace.permit(10_500), Permit::Wait(11_001));
        assert_eq!(pace.permit(11_200), Permit::Send(1));
        assert_eq!(pace.due(0, 11_200), 11_000);
        pace.sent(1, 11_200);
        assert_eq!((pace.permit(11_300), pace.so_far()), (Permit::Wait(12_500), 1));
        assert_eq!(pace.permit(12_500), Permit::Over);
    }

    #[test]
    fn outstanding_datagrams_make_room_when_answered_or_late() {
        let mut pace = Pace::new(phase(Length::Count(10), None), 0, Some(ECHO), (0, 1));
        assert_eq!(pace.permit(0), Permit::Send(2));
        pace.sent(2, 0);
        assert_eq!(pace.permit(1), Permit::Wait(100));
        // Out of order; again; never sent.
        for sequence in [1, 1, 7] {
            pace.answered(sequence);
        }
        assert_eq!(pace.permit(2), Permit::Send(1));
        pace.sent(1, 2);
        assert_eq!(pace.permit(3), Permit::Wait(100));
        assert_eq!(pace.permit(100), Permit::Send(1));
        pace.answered(0);
        assert_eq!(pace.permit(100), Permit::Send(1));
        assert_eq!(pace.permit(102), Permit::Send(2));
    }
}
