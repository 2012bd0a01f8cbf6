//! Random numbers that are the same for a seed on every machine and with every version of every crate.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// One stream of random numbers: xoshiro256++, whose sequence is fixed by its publication. How numbers are drawn
/// from it is fixed here, and not left to a crate that may improve it.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream for one `purpose` of a run. Purposes have streams of their own, so that leaving one thing out of a
    /// run does not change what all others draw.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        // An odd multiplier spreads purposes over all seeds; seeding itself mixes once more (SplitMix64).
        let mixed = seed ^ purpose.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        debug_assert!(end > 0);
        // The high half of a 64 by 64 bit product: even enough for choices, and free of loops.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `chance` times out of 1,024.
    pub fn chance(&mut self, chance: u32) -> bool {
        chance > 0 && self.below(1024) < u64::from(chance)
    }

    /// A number from 1 to `most` whose magnitude, not its value, is even: small ones are as likely as large ones.
    pub fn magnitude(&mut self, most: u64) -> u64 {
        let bits = self.below(u64::from(most.max(1).ilog2()) + 1) as u32;
        // As `between(1 << bits, (2 << bits) - 1)`, whose product is no more than a shift.
        (1 << bits | self.bits() >> 1 >> (63 - bits)).min(most)
    }

    /// One of a list, which must not be empty.
    pub fn choose<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut random = Random::new(1, 2);
        let drawn: Vec<_> = (0..4).map(|_| random.below(1_000_000)).collect();
        assert_eq!(drawn, [623_116, 895_395, 167_185, 59_035]);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = Random::new(3, 4);
        for _ in 0..10_000 {
            assert!(random.below(7) < 7);
            assert!((5..=9).contains(&random.between(5, 9)));
            assert!((1..=1000).contains(&random.magnitude(1000)));
            assert!(!random.chance(0) && random.chance(1024));
        }
    }

    #[test]
    fn a_magnitude_is_a_number_between_two_powers_of_two() {
        let mut random = Random::new(5, 6);
        for most in (1..5000).chain([u64::MAX / 2]) {
            let mut other = random.clone();
            let bits = other.below(u64::from(most.ilog2()) + 1);
            let expected = other.between(1 << bits, (2 << bits) - 1).min(most);
            assert_eq!(random.magnitude(most), expected);
        }
    }
}
