//! When a request is due.
//!
//! In a closed loop each connection keeps so many requests outstanding, and a reply makes the next one due at
//! once. The server's pace sets the rate: while it stands still nothing is asked of it, and the wait of those who
//! would have asked is in no figure (coordinated omission). It compares servers at saturation.
//!
//! In an open loop requests fall due on a timetable that knows nothing of replies, as those of many independent
//! users do. Each connection has its own share of the timetable. A request that falls due while the connection has
//! as many outstanding as it may, or is not open, is sent as soon as it can be, and its latency counts from when
//! it was due.
//!
//! Here all that is sent is a request, and a connection whatever sends it: a sender of datagrams is one as well.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::plan::{Arrivals, Offered};
use super::random::draw_exponential;

/// Decides for the connections of one thread. Times are nanoseconds of the run's clock.
#[derive(Debug)]
pub(super) struct Pacing {
    depth: u32,
    /// Requests that may still be sent.
    allowance: u64,
    timetable: Option<Timetable>,
    /// When connections that wait for nothing else want to be looked at, and which: soonest first.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
}

/// The timetable of an open loop.
#[derive(Debug)]
struct Timetable {
    arrivals: Arrivals,
    seed: u64,
    /// Nanoseconds between arrivals over all connections, on average.
    interval: f64,
    /// Connections that share the timetable.
    connections: u64,
    /// Requests per arrival.
    batch: u32,
    /// When it began, and when it ends.
    begun: u64,
    end: u64,
}

/// Times at equal distances, on which several take turns. They are counted from the beginning, so that rounding does not
/// add up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Even {
    begun: u64,
    /// Nanoseconds from `begun` to the first of this one's times, and between them.
    first: f64,
    apart: f64,
}

impl Even {
    /// Those of number `turn.0` (from 0) of `turn.1`, where all together have one every `interval` nanoseconds from
    /// `begun` on.
    pub(super) fn new(begun: u64, interval: f64, turn: (u64, u64)) -> Self {
        Even {
            begun,
            first: turn.0 as f64 * interval,
            apart: turn.1 as f64 * interval,
        }
    }

    /// The time behind `count` others.
    pub(super) fn due(&self, count: u64) -> u64 {
        self.begun
            .saturating_add((self.first + count as f64 * self.apart) as u64)
    }
}

/// One connection's place in the timetable.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The connection's number among those that share the timetable, over all threads.
    number: u64,
    /// Arrivals that are over.
    count: u64,
    /// When the next arrival is due, and how many of its requests are left.
    due: u64,
    left: u32,
    /// Requests that were given back, to be sent once more: when they were due, the next one last.
    again: Vec<u64>,
    /// Whether the requests due have waited for something other than this program.
    blocked: bool,
    /// Whether it has an entry among the timers.
    armed: bool,
    /// Whether it keeps out of timetable and allowance, in a closed loop of its own.
    apart: bool,
}

/// A request that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// When its latency begins: when it was due by the timetable, or now.
    pub(super) start: u64,
    /// How late this program is with it, if nothing else held it up: an open loop only.
    pub(super) lag: Option<u64>,
}

impl Place {
    /// The place of connection `number` of those that share the timetable.
    pub(super) fn new(number: u64) -> Self {
        Place {
            number,
            ..Place::default()
        }
    }

    /// That of a connection in a closed loop of its own, whatever the others do.
    pub(super) fn apart() -> Self {
        Place {
            apart: true,
            ..Place::default()
        }
    }

    /// Notes that the connection cannot send for a reason that is not this program's.
    pub(super) fn block(&mut self) {
        self.blocked = true;
    }
}

impl Pacing {
    /// Keeps at most `depth` requests outstanding per connection. Nothing is due before an allowance is given.
    ///
    /// `offered` makes it an open loop, shared by `connections` connections over all threads.
    pub(super) fn new(depth: u32, offered: Option<&Offered>, connections: u64, seed: u64) -> Self {
        Pacing {
            depth,
            allowance: 0,
            timetable: offered.map(|offered| Timetable {
                arrivals: offered.arrivals,
                seed,
                interval: f64::from(offered.batch) * 1e9 / offered.rate,
                connections,
                batch: offered.batch,
                begun: 0,
                end: u64::MAX,
            }),
            timers: BinaryHeap::new(),
        }
    }

    /// Begins the timetable at `now`; at `end` and after nothing is due.
    pub(super) fn begin<'a>(&mut self, now: u64, end: u64, places: impl Iterator<Item = &'a mut Place>) {
        if let Some(timetable) = &mut self.timetable {
            timetable.begun = now;
            timetable.end = end;
            for place in places {
                place.due = timetable.due(place, now);
                place.left = timetable.batch;
            }
        }
    }

    /// Sets how many requests may be sent from now on.
    pub(super) fn allow(&mut self, requests: u64) {
        self.allowance = requests;
    }

    /// Whether no more requests may be sent on any connection.
    pub(super) fn is_exhausted(&self) -> bool {
        self.allowance == 0
    }

    /// Takes one request for connection `index`, which has `outstanding` ones, if one is due.
    pub(super) fn take(
        &mut self,
        place: &mut Place,
        index: usize,
        outstanding: u32,
        now: u64,
    ) -> Option<Due> {
        if self.allowance == 0 {
            return None;
        }
        let Some(timetable) = self.timetable.as_ref().filter(|_| !place.apart) else {
            if outstanding >= self.depth {
                return None;
            }
            self.allowance -= u64::from(!place.apart);
            return Some(Due {
                start: now,
                lag: None,
            });
        };
        if place.again.is_empty() && place.due >= timetable.end {
            return None;
        }
        let waits = place.again.is_empty() && place.due > now;
        if waits || outstanding >= self.depth {
            // A request may fall due while the connection has its fill: the timer tells, so that its wait is not
            // taken for this program's.
            place.blocked = !waits;
            if waits && !place.armed {
                self.timers.push(Reverse((place.due, index)));
                place.armed = true;
            }
            return None;
        }
        self.allowance -= 1;
        if let Some(start) = place.again.pop() {
            return Some(Due { start, lag: None });
        }
        let start = place.due;
        place.left -= 1;
        if place.left == 0 {
            place.count += 1;
            place.due = timetable.due(place, start);
            place.left = timetable.batch;
        }
        Some(Due {
            start,
            lag: (!place.blocked).then_some(now - start),
        })
    }

    /// Takes back a request that was due at `start`, which the server declined by announcing the connection's end, or
    /// which the kernel did not take. Of several, the one taken last is given back first.
    pub(super) fn give_back(&mut self, place: &mut Place, start: u64) {
        if !place.apart {
            self.allowance = self.allowance.saturating_add(1);
            if self.timetable.is_some() {
                place.again.push(start);
            }
        }
    }

    /// When a connection has to be looked at next, if one waits for the timetable.
    pub(super) fn next_timer(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// A connection whose time has come.
    pub(super) fn pop_timer(&mut self, now: u64) -> Option<usize> {
        let Reverse((at, index)) = *self.timers.peek()?;
        (at <= now).then(|| {
            self.timers.pop();
            index
        })
    }

    /// Has to be called for the place of each connection that [`Pacing::pop_timer`] gives.
    pub(super) fn timer_popped(place: &mut Place) {
        place.armed = false;
    }

    /// Requests that fell due before `end` and were not taken. The place is of no use after.
    pub(super) fn count_untaken(&self, place: &mut Place, end: u64) -> u64 {
        let Some(timetable) = self.timetable.as_ref().filter(|_| !place.apart) else {
            return 0;
        };
        let mut count = place.again.len() as u64;
        while place.due < end {
            count += u64::from(place.left);
            let due = place.due;
            place.count += 1;
            place.due = timetable.due(place, due);
            place.left = timetable.batch;
        }
        count
    }
}

impl Timetable {
    /// When the place's next arrival is due, the last one having been due at `last`.
    fn due(&self, place: &Place, last: u64) -> u64 {
        match self.arrivals {
            Arrivals::Fixed => {
                Even::new(self.begun, self.interval, (place.number, self.connections)).due(place.count)
            }
            // Independent Poisson processes make one together, with the sum of their rates.
            Arrivals::Poisson => {
                let mean = self.interval * self.connections as f64;
                let gap = draw_exponential(self.seed, place.number, place.count) * mean;
                last.saturating_add(gap as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(start: u64, lag: u64) -> Option<Due> {
        Some(Due {
            start,
            lag: Some(lag),
        })
    }

    #[test]
    fn a_closed_loop_is_due_up_to_the_depth_while_the_allowance_lasts() {
        let mut pacing = Pacing::new(2, None, 1, 0);
        let mut place = Place::new(0);
        let mut take = |pacing: &mut Pacing, outstanding| {
            pacing
                .take(&mut place, 0, outstanding, 7)
                .is_some_and(|due| due.start == 7)
        };
        assert!(pacing.is_exhausted());
        assert!(!take(&mut pacing, 0));
        pacing.allow(3);
        assert!(take(&mut pacing, 0) && take(&mut pacing, 1));
        assert!(!take(&mut pacing, 2));
        assert!(take(&mut pacing, 1));
        assert!(pacing.is_exhausted() && !take(&mut pacing, 0));
        pacing.give_back(&mut Place::new(0), 7);
        assert!(take(&mut pacing, 0) && !take(&mut pacing, 0));
    }

    fn fixed(rate: f64, batch: u32, connections: u64) -> (Pacing, Vec<Place>) {
        let offered = Offered {
            rate,
            arrivals: Arrivals::Fixed,
            batch,
        };
        let mut pacing = Pacing::new(2, Some(&offered), connections, 0);
        let mut places: Vec<Place> = (0..connections).map(Place::new).collect();
        pacing.begin(1_000, 1_100, places.iter_mut());
        pacing.allow(u64::MAX);
        (pacing, places)
    }

    #[test]
    fn fixed_arrivals_take_turns_on_the_connections() {
        // One each 10 ns over two connections.
        let (mut pacing, mut places) = fixed(1e8, 1, 2);
        assert_eq!(pacing.take(&mut places[0], 0, 0, 1_000), due(1_000, 0));
        assert_eq!(pacing.take(&mut places[0], 0, 1, 1_000), None);
        assert_eq!(pacing.take(&mut places[1], 1, 0, 1_000), None);
        assert_eq!(pacing.next_timer(), Some(1_010));
        assert_eq!(pacing.pop_timer(1_009), None);
        assert_eq!(pacing.pop_timer(1_012), Some(1));
        Pacing::timer_popped(&mut places[1]);
        assert_eq!(pacing.take(&mut places[1], 1, 0, 1_012), due(1_010, 2));
    }

    #[test]
    fn what_waits_for_the_server_counts_from_its_time_and_is_not_the_generators_lag() {
        let (mut pacing, mut places) = fixed(1e8, 1, 1);
        let place = &mut places[0];
        assert_eq!(pacing.take(place, 0, 0, 1_010), due(1_000, 10));
        assert_eq!(pacing.take(place, 0, 1, 1_010), due(1_010, 0));
        // The connection has its fill when the next one falls due at 1,020.
        assert_eq!(pacing.take(place, 0, 2, 1_010), None);
        assert_eq!(pacing.pop_timer(1_020), Some(0));
        Pacing::timer_popped(place);
        assert_eq!(pacing.take(place, 0, 2, 1_020), None);
        let blocked = Some(Due {
            start: 1_020,
            lag: None,
        });
        assert_eq!(pacing.take(place, 0, 1, 1_025), blocked);
        assert_eq!(pacing.count_untaken(place, 1_061), 4);
        // At 1,090 the last one is due.
        place.due = 1_090;
        place.count = 9;
        assert_eq!(
            pacing.take(place, 0, 0, 2_000),
            Some(Due {
                start: 1_090,
                lag: None
            })
        );
        assert_eq!(pacing.take(place, 0, 0, 2_000), None);
        assert_eq!(pacing.next_timer(), None);
    }

    #[test]
    fn a_batch_falls_due_at_once_at_the_same_rate() {
        let (mut pacing, mut places) = fixed(1e8, 3, 1);
        for outstanding in [0, 1, 1] {
            assert_eq!(pacing.take(&mut places[0], 0, outstanding, 1_000), due(1_000, 0));
        }
        assert_eq!(pacing.take(&mut places[0], 0, 0, 1_029), None);
        assert_eq!(pacing.take(&mut places[0], 0, 0, 1_030), due(1_030, 0));
    }

    #[test]
    fn a_declined_request_keeps_its_time() {
        let (mut pacing, mut places) = fixed(1e8, 1, 1);
        assert_eq!(pacing.take(&mut places[0], 0, 0, 1_000), due(1_000, 0));
        pacing.give_back(&mut places[0], 1_000);
        let again = pacing.take(&mut places[0], 0, 0, 1_001);
        assert_eq!(again.map(|due| due.start), Some(1_000));
    }

    #[test]
    fn a_seed_gives_each_connection_its_timetable() {
        let offered = Offered {
            rate: 1e6,
            arrivals: Arrivals::Poisson,
            batch: 1,
        };
        let dues = |seed, number| {
            let mut pacing = Pacing::new(u32::MAX, Some(&offered), 8, seed);
            let mut place = Place::new(number);
            pacing.begin(0, u64::MAX, std::iter::once(&mut place));
            pacing.allow(50);
            let dues = std::iter::from_fn(|| pacing.take(&mut place, 0, 0, u64::MAX));
            dues.map(|due| due.start).collect::<Vec<u64>>()
        };
        let first = dues(1, 0);
        assert_eq!(first.len(), 50);
        assert!(first.is_sorted());
        assert_eq!(first, dues(1, 0));
        assert_ne!(first, dues(1, 1));
        assert_ne!(first, dues(2, 0));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_its_spread() {
        let offered = Offered {
            rate: 1e6,
            arrivals: Arrivals::Poisson,
            batch: 1,
        };
        let mut pacing = Pacing::new(1, Some(&offered), 8, 3);
        let mut places: Vec<Place> = (0..8).map(Place::new).collect();
        pacing.begin(0, u64::MAX, places.iter_mut());
        // 100 ms at a million per second: the count has the mean 100,000 and the deviation 316.
        let count: u64 = places
            .iter_mut()
            .map(|place| pacing.count_untaken(place, 100_000_000))
            .sum();
        assert!(count.abs_diff(100_000) < 4 * 316, "{count}");
        assert_ne!(count, 100_000);
    }
}
