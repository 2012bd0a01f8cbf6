//! Making a failing run small: fewer lives, fewer faults, fewer turns, as long as it still fails.

use quoit_sim_kernel::faults::Fault;

use crate::options::Options;
use crate::plan::Plan;
use crate::run::run;

/// Runs that shrinking makes at most.
const MOST_RUNS: u32 = 400;

struct Shrinker {
    best: Options,
    runs: u32,
}

impl Shrinker {
    /// Keeps `smaller` if it fails too, in whatever way.
    fn attempt(&mut self, smaller: Options) -> bool {
        if self.runs == MOST_RUNS || smaller == self.best {
            return false;
        }
        self.runs += 1;
        let fails = run(&smaller).result.is_err();
        if fails {
            self.best = smaller;
        }
        fails
    }

    /// Leaves out as many lives as possible, first in large groups, then one by one.
    fn shrink_lives(&mut self) {
        let count = Plan::draw(&self.best).all_lives();
        let mut lives = self.best.only.clone().unwrap_or_else(|| (0..count).collect());
        let mut group = lives.len().div_ceil(2).max(1);
        loop {
            let mut start = 0;
            while start < lives.len() {
                let mut fewer = lives.clone();
                fewer.drain(start..(start + group).min(lives.len()));
                let options = Options {
                    only: Some(fewer.clone()),
                    ..self.best.clone()
                };
                if self.attempt(options) {
                    lives = fewer;
                } else {
                    start += group;
                }
            }
            if group == 1 {
                return;
            }
            group = group.div_ceil(2);
        }
    }

    fn shrink_faults(&mut self) {
        for &fault in Fault::ALL {
            let mut options = self.best.clone();
            options.without.insert(fault);
            // One that cannot strike anyway would only lengthen the command.
            if Plan::draw(&self.best).profile.chance(fault) > 0 {
                self.attempt(options);
            }
        }
    }

    fn shrink_turns(&mut self) {
        let mut turns = Plan::draw(&self.best).turns;
        while turns > 1 {
            turns /= 2;
            let options = Options {
                turns: Some(turns),
                ..self.best.clone()
            };
            if !self.attempt(options) {
                return;
            }
        }
    }
}

/// The smallest run found that fails as well.
#[must_use]
pub fn shrink(options: &Options) -> Options {
    let mut shrinker = Shrinker {
        best: options.clone(),
        runs: 0,
    };
    shrinker.shrink_turns();
    shrinker.shrink_lives();
    shrinker.shrink_faults();
    shrinker.shrink_lives();
    shrinker.best
}
