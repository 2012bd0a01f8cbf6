//! Burning processor time on purpose, for experiments with handlers that have work to do.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A fixed amount of computation.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    steps: u64,
}

/// Time for which the speed of this machine is measured.
const CALIBRATION: Duration = Duration::from_millis(50);

impl Work {
    /// Work that takes about `time` of this processor, undisturbed. Counted in steps, not timed: what the system
    /// takes away meanwhile prolongs it, as it would real work.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        if time.is_zero() {
            return Self { steps: 0 };
        }
        let mut best = f64::INFINITY;
        let begin = Instant::now();
        // The fastest of many short rounds: the others were disturbed.
        while begin.elapsed() < CALIBRATION {
            const ROUND: u64 = 10_000;
            let round = Instant::now();
            step(ROUND);
            best = best.min(round.elapsed().as_nanos() as f64 / ROUND as f64);
        }
        Self {
            steps: (time.as_nanos() as f64 / best).round() as u64,
        }
    }

    /// Does it.
    pub fn burn(self) {
        if self.steps > 0 {
            step(self.steps);
        }
    }
}

fn step(count: u64) {
    let mut value = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..count {
        // A xorshift step: each depends on the one before, so that none can be left out.
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        black_box(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_work_is_no_steps_and_more_time_is_more() {
        assert_eq!(Work::of(Duration::ZERO).steps, 0);
        assert!(Work::of(Duration::from_micros(100)).steps > 0);
    }
}
