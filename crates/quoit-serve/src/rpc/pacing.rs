//! When the batches of paced streams are due: one clock for all streams of a connection that have the same period.

/// Different periods that a connection's streams may have at once.
pub(super) const MAX_PERIODS: usize = 16;

/// The streams of one period.
#[derive(Debug)]
struct Group {
    period: u64,
    /// When the next batches are due.
    next: u64,
    /// Slots of its streams.
    streams: Vec<u32>,
}

/// The clocks of one connection. Times are nanoseconds of the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    groups: Vec<Group>,
}

impl Pacing {
    /// Adds a stream. Its first batch is due with the next one of its period. False: there are too many periods.
    pub(super) fn add(&mut self, slot: u32, period: u64, now: u64) -> bool {
        if let Some(group) = self.groups.iter_mut().find(|group| group.period == period) {
            group.streams.push(slot);
            return true;
        }
        if self.groups.len() == MAX_PERIODS {
            return false;
        }
        self.groups.push(Group {
            period,
            next: now.saturating_add(period),
            streams: vec![slot],
        });
        true
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Option<u64> {
        self.groups.iter().map(|group| group.next).min()
    }

    /// Tells each stream of which batches are due by `now` how many, and since when the last of them is. Streams for
    /// which `each` returns false are left out from then on.
    pub(super) fn tick(&mut self, now: u64, mut each: impl FnMut(u32, u64, u64) -> bool) {
        for group in &mut self.groups {
            if group.next <= now {
                // A late loop makes up for what it missed.
                let batches = (now - group.next) / group.period + 1;
                let last = group.next + (batches - 1) * group.period;
                group.streams.retain(|&slot| each(slot, batches, last));
                group.next = last.saturating_add(group.period);
            }
        }
        self.groups.retain(|group| !group.streams.is_empty());
    }

    /// Leaves out a stream, because its slot will be another's.
    pub(super) fn remove(&mut self, slot: u32) {
        for group in &mut self.groups {
            group.streams.retain(|&found| found != slot);
        }
        self.groups.retain(|group| !group.streams.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(pacing: &mut Pacing, now: u64) -> Vec<(u32, u64, u64)> {
        let mut found = Vec::new();
        pacing.tick(now, |slot, batches, last| {
            found.push((slot, batches, last));
            true
        });
        found
    }

    #[test]
    fn streams_of_one_period_are_due_together() {
        let mut pacing = Pacing::default();
        assert!(pacing.add(1, 100, 1_000) && pacing.add(2, 100, 1_050) && pacing.add(3, 30, 1_050));
        assert_eq!(pacing.next(), Some(1_080));
        assert_eq!(due(&mut pacing, 1_079), []);
        assert_eq!(due(&mut pacing, 1_080), [(3, 1, 1_080)]);
        assert_eq!(due(&mut pacing, 1_100), [(1, 1, 1_100), (2, 1, 1_100)]);
        pacing.remove(3);
        pacing.remove(1);
        assert_eq!(pacing.next(), Some(1_200));
        assert_eq!(due(&mut pacing, 1_450), [(2, 3, 1_400)]);
        assert_eq!(pacing.next(), Some(1_500));
        pacing.remove(2);
        assert_eq!(pacing.next(), None);
    }

    #[test]
    fn periods_are_limited() {
        let mut pacing = Pacing::default();
        assert!((0..MAX_PERIODS as u32).all(|slot| pacing.add(slot, u64::from(slot) + 1, 0)));
        assert!(!pacing.add(99, 1_000, 0));
        assert!(pacing.add(99, 1, 0));
    }
}
