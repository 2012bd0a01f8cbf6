//! Whether sleeps coalesce events: only where that saves processor time, which is found out by trying.
//!
//! A sleep that goes on for more than the first event spares wake-ups, and costs a timer. Which of the two is dearer
//! depends on the load, the machine and what peers wait for, and nothing that the loop can see tells it beforehand. So it
//! measures: stretches with and without coalescing follow each other, and their processor time is set against the bytes
//! that were received. That is so many times a request's, however many requests one receive brings.

use std::time::Duration;

use super::Loop;
use crate::engine::Engine;
use crate::sys::{SocketSys, Time};

/// The shortest stretch, so that one busy moment does not decide.
const SHORTEST: Duration = Duration::from_millis(20);
/// Completions that a stretch has, for the same reason. Not sleeps: of these there are fewer with coalescing, and its
/// stretches would be the longer ones.
const COMPLETIONS: u64 = 256;
/// A stretch with fewer is over after so long, or after the time of [`SLEEPS`], whichever is longer.
const LONG: Duration = Duration::from_millis(200);
/// Sleeps that coalesce, one after the other, for which such a stretch has the time.
const SLEEPS: u32 = 100;
/// Pairs of stretches that must have saved something. By chance alone so many do before two have not, in one trial of a
/// hundred.
const PAIRS_WON: u32 = 6;
/// Pairs that end the trial as they have saved nothing.
const PAIRS_LOST: u32 = 2;
/// What a pair must save to count, in hundredths: later responses for next to nothing are no bargain.
const LEAST_SAVING: u64 = 2;
/// Stretches from the end of a trial to the next. So where coalescing is dearer, it is tried in one stretch of sixty.
const BETWEEN_TRIALS: u32 = 128;
/// Completions that are to be expected within the time of a sleep, or there is nothing to coalesce.
const LEAST_EXPECTED: u32 = 2;

/// What a stretch took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cost {
    processor: Duration,
    /// Bytes, or where there are only datagrams, their number.
    work: u64,
}

impl Cost {
    /// Whether it is less than the other by what counts.
    fn saves(self, other: Self) -> bool {
        let of = |cost: Self, work: u64| cost.processor.as_nanos() * u128::from(work);
        of(self, other.work) * 100 < of(other, self.work) * u128::from(100 - LEAST_SAVING)
    }
}

/// Where the search for the cheaper way is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// A pair's first stretch coalesces, its second does not.
    Trial {
        won: u32,
        lost: u32,
        /// Of the first, once it is over.
        coalesced: Option<Cost>,
    },
    Settled {
        /// Stretches until the next trial.
        left: u32,
    },
}

const TRIAL: Phase = Phase::Trial {
    won: 0,
    lost: 0,
    coalesced: None,
};

/// The choice, and the stretch that is under way.
#[derive(Debug)]
pub(super) struct Coalescing {
    /// How long a sleep lasts that coalesces.
    time: Duration,
    phase: Phase,
    /// What the last trial has found.
    saves: bool,
    /// Whether sleeps coalesce now.
    on: bool,
    begun: Time,
    /// The thread's processor time at the beginning.
    processor: Duration,
    /// Bytes that had been received on connections by the beginning.
    received: u64,
    /// What may end a sleep, since the beginning: each datagram, and no send that has ended at once.
    completions: u64,
}

impl Coalescing {
    /// Begins with a stretch that coalesces, of which the beginning is not known, and then a trial.
    pub(super) fn new(time: Duration, now: Time) -> Self {
        debug_assert!(!time.is_zero());
        Self {
            time,
            phase: Phase::Settled { left: 0 },
            saves: false,
            on: true,
            begun: now,
            processor: Duration::ZERO,
            received: 0,
            completions: 0,
        }
    }

    /// So many completions were taken in.
    #[inline]
    pub(super) fn note(&mut self, completions: usize) {
        self.completions += completions as u64;
    }

    /// Whether sleeps coalesce now.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether the stretch is over, so that a choice is due.
    #[inline]
    fn is_over(&self, now: Time) -> bool {
        let least = if self.completions >= COMPLETIONS {
            SHORTEST
        } else {
            LONG.max(self.time * SLEEPS)
        };
        now.since(self.begun) >= least
    }

    /// A stretch is over: chooses for the next one. `processor` and `received` are the thread's and the loop's so far.
    fn choose(&mut self, now: Time, processor: Duration, received: u64) {
        let took = now.since(self.begun);
        let expected = u128::from(self.completions) * self.time.as_nanos();
        let is_little = expected < u128::from(LEAST_EXPECTED) * took.as_nanos();
        let is_trial = matches!(self.phase, Phase::Trial { .. });
        // Peers that wait for responses send less while these are late, so in a trial only the other stretch tells.
        if is_little && !(is_trial && self.on) {
            // With so little to do a trial would only make it later. What was found holds for when there is more.
            self.on = false;
            if is_trial {
                self.phase = TRIAL;
            }
        } else {
            let cost = Cost {
                processor: processor.saturating_sub(self.processor),
                work: match received - self.received {
                    0 => self.completions,
                    bytes => bytes,
                },
            };
            self.on = self.next(cost);
        }
        self.begun = now;
        self.processor = processor;
        self.received = received;
        self.completions = 0;
    }

    /// Goes on after a stretch with enough to do. Returns whether the next one coalesces.
    fn next(&mut self, cost: Cost) -> bool {
        match &mut self.phase {
            Phase::Settled { left: 0 } => {
                self.phase = TRIAL;
                true
            }
            Phase::Settled { left } => {
                *left -= 1;
                self.saves
            }
            Phase::Trial { won, lost, coalesced } => match coalesced.take() {
                None if self.on => {
                    *coalesced = Some(cost);
                    false
                }
                // The trial begins with the next stretch: in this one too little was expected.
                None => true,
                Some(coalesced) => {
                    if coalesced.saves(cost) {
                        *won += 1;
                    } else {
                        *lost += 1;
                    }
                    if *won < PAIRS_WON && *lost < PAIRS_LOST {
                        return true;
                    }
                    self.saves = *won >= PAIRS_WON;
                    self.phase = Phase::Settled { left: BETWEEN_TRIALS };
                    self.saves
                }
            },
        }
    }
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Before a sleep: decides whether it coalesces.
    pub(super) fn prepare_to_coalesce(&mut self, now: Time) {
        let Some(coalescing) = &mut self.coalescing else {
            return;
        };
        if coalescing.is_over(now) {
            coalescing.choose(
                now,
                self.system.processor_time(),
                self.counters.received_bytes.get(),
            );
            self.engine.coalesce(coalescing.is_on());
        }
        self.counters.coalesced_sleeps.add(u64::from(coalescing.is_on()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Completions per second, also while they coalesce, what a thousand bytes cost with and without coalescing, and the bytes
    /// of a completion.
    #[derive(Clone, Copy, Debug)]
    struct Load {
        rate: u64,
        rate_on: u64,
        on: Duration,
        off: Duration,
        bytes: u64,
    }

    const BUSY: Load = Load {
        rate: 50_000,
        rate_on: 50_000,
        on: Duration::from_micros(80),
        off: Duration::from_micros(100),
        bytes: 100,
    };

    impl Load {
        fn of_rate(self, rate: u64) -> Self {
            Self {
                rate,
                rate_on: rate,
                ..self
            }
        }
    }

    /// A loop's choices, without the loop.
    struct Bench {
        coalescing: Coalescing,
        now: Time,
        processor: Duration,
        received: u64,
    }

    impl Bench {
        fn new() -> Self {
            let now = Time::from_nanos(1_000_000_000);
            Self {
                coalescing: Coalescing::new(Duration::from_micros(100), now),
                now,
                // Whatever the thread did before.
                processor: Duration::from_secs(3),
                received: 0,
            }
        }

        /// One stretch. Returns whether it coalesced.
        fn stretch(&mut self, load: Load) -> bool {
            let on = self.coalescing.is_on();
            loop {
                self.now = self.now + Duration::from_micros(200);
                let completions = if on { load.rate_on } else { load.rate } / 5_000;
                self.coalescing.note(usize::try_from(completions).unwrap());
                self.received += completions * load.bytes;
                let cost = if on { load.on } else { load.off };
                let work = if load.bytes == 0 {
                    completions * 1_000
                } else {
                    completions * load.bytes
                };
                self.processor += cost * u32::try_from(work).unwrap() / 1_000;
                if self.coalescing.is_over(self.now) {
                    self.coalescing.choose(self.now, self.processor, self.received);
                    return on;
                }
            }
        }

        /// So many stretches. Returns how many of them coalesced.
        fn stretches(&mut self, count: u32, load: Load) -> u32 {
            (0..count).map(|_| u32::from(self.stretch(load))).sum()
        }
    }

    /// From a trial's first stretch to the next one's, where it is won and where it is lost.
    const WON: u32 = 2 * PAIRS_WON + BETWEEN_TRIALS + 1;
    const LOST: u32 = 2 * PAIRS_LOST + BETWEEN_TRIALS + 1;

    #[test]
    fn what_saves_is_kept_and_what_does_not_is_only_tried() {
        for bytes in [100, 0] {
            let load = Load { bytes, ..BUSY };
            let mut bench = Bench::new();
            assert_eq!(bench.stretches(1, load), 1, "a stretch of unknown beginning");
            assert_eq!(bench.stretches(10 * WON, load), 10 * (WON - PAIRS_WON));

            let dearer = Load {
                off: load.on,
                on: load.off,
                ..load
            };
            let mut bench = Bench::new();
            bench.stretch(dearer);
            assert_eq!(bench.stretches(10 * LOST, dearer), 10 * PAIRS_LOST);
        }
    }

    #[test]
    fn a_saving_that_is_next_to_nothing_is_none() {
        let load = Load {
            on: Duration::from_micros(99),
            ..BUSY
        };
        let mut bench = Bench::new();
        bench.stretch(load);
        assert_eq!(bench.stretches(LOST, load), PAIRS_LOST);
    }

    #[test]
    fn with_too_little_to_do_no_response_is_made_later() {
        let little = BUSY.of_rate(10_000);
        let mut bench = Bench::new();
        bench.stretch(little);
        assert_eq!(bench.stretches(10 * LOST, little), 0);
    }

    #[test]
    fn a_pause_forgets_no_finding_and_breaks_off_a_trial() {
        let little = BUSY.of_rate(5_000);
        let mut bench = Bench::new();
        bench.stretches(1 + 2 * PAIRS_WON - 1, BUSY);
        // One stretch is missing.
        assert_eq!(bench.stretches(2, little), 0);
        assert_eq!(bench.stretches(1, BUSY), 0, "what it brings is known only then");
        assert_eq!(
            bench.stretches(2 * PAIRS_WON, BUSY),
            PAIRS_WON,
            "from the beginning"
        );
        assert_eq!(bench.stretches(10, BUSY), 10);
        assert_eq!(bench.stretches(2, little), 1);
        assert_eq!(bench.stretches(11, BUSY), 10);
    }

    /// One connection that waits for each response: coalescing brings one completion per sleep, whatever the time.
    #[test]
    fn peers_that_wait_for_responses_are_made_to_wait_in_trials_only() {
        let waiting = Load {
            rate_on: 10_000,
            on: BUSY.off,
            off: BUSY.on,
            ..BUSY
        };
        let mut bench = Bench::new();
        bench.stretches(2, waiting);
        assert_eq!(bench.stretches(10 * LOST, waiting), 10 * PAIRS_LOST);
    }

    #[test]
    fn a_stretch_of_next_to_nothing_ends_too() {
        let now = Time::from_nanos(1);
        let mut coalescing = Coalescing::new(Duration::from_micros(100), now);
        assert!(coalescing.is_over(now + LONG));
        coalescing.note(usize::try_from(COMPLETIONS).unwrap() - 1);
        assert!(!coalescing.is_over(now + LONG / 2));
        coalescing.note(1);
        assert!(coalescing.is_over(now + LONG / 2));
        let coalescing = Coalescing::new(LONG, now);
        assert!(!coalescing.is_over(now + LONG * 2));
    }

    proptest! {
        /// Trying is all that it costs: one stretch in sixty where coalescing is dearer, one in twenty where it is not.
        #[test]
        fn it_is_never_much_dearer_than_the_cheaper_way(on in 20_u64..500, off in 20_u64..500, rate in 25_000_u64..1_000_000) {
            let load = Load {
                on: Duration::from_micros(on),
                off: Duration::from_micros(off),
                ..BUSY.of_rate(rate)
            };
            let mut bench = Bench::new();
            bench.stretch(load);
            if on * 100 < off * (100 - LEAST_SAVING) {
                prop_assert_eq!(bench.stretches(WON, load), WON - PAIRS_WON);
            } else {
                prop_assert_eq!(bench.stretches(LOST, load), PAIRS_LOST);
            }
        }
    }
}
