//! A small seeded generator: resampling has to give the same interval for the same data.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// SplitMix64, whose sequence is fixed by its publication.
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::from_seed(seed.to_le_bytes()))
    }

    /// A number below `bound`, which is not 0. The bias of the multiplication (below 2^-50 for the few
    /// dozen samples of a comparison) does not matter here.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0);
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_results_are_resampled_as_they_were() {
        // The first outputs for seed 0, as in the reference implementation's test vectors.
        let mut random = Random::new(0);
        for expected in [
            0xe220_a839_7b1d_cdaf_u64,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ] {
            assert_eq!(random.0.next_u64(), expected);
        }
        let mut random = Random::new(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
