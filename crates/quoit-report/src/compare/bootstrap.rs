//! The ratio of two medians that were measured at different times, so that nothing pairs them.

use crate::pairs;
use crate::random::Random;
use crate::results::model::Ratio;

/// As for the ratios of a run.
const RESAMPLES: usize = 2_000;
/// The same data give the same interval.
const SEED: u64 = 2_026;

/// The median of `new` over that of `old` with a 95 % percentile bootstrap interval, both resampled on their own;
/// `None` with fewer than two values on a side, or where a ratio is no number.
pub(super) fn ratio_of_medians(old: &[f64], new: &[f64]) -> Option<Ratio> {
    if old.len() < 2 || new.len() < 2 || old.iter().chain(new).any(|value| *value <= 0.0) {
        return None;
    }
    let mut random = Random::new(SEED);
    let mut resampled = |values: &[f64]| {
        let mut drawn: Vec<f64> = values
            .iter()
            .map(|_| values[random.below(values.len())])
            .collect();
        pairs::median(&mut drawn)
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| resampled(new) / resampled(old)).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    Some(Ratio {
        median: pairs::median(&mut new.to_vec()) / pairs::median(&mut old.to_vec()),
        low: ratios[RESAMPLES / 40],
        high: ratios[RESAMPLES - 1 - RESAMPLES / 40],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_ratio_and_needs_values() {
        let old = [98.0, 100.0, 101.0, 103.0, 99.0];
        let new = old.map(|value| value * 1.5);
        let ratio = ratio_of_medians(&old, &new).expect("there are values");
        assert!((ratio.median - 1.5).abs() < 1e-9);
        assert!(
            ratio.low < 1.5 && ratio.low > 1.4 && ratio.high > 1.5 && ratio.high < 1.6,
            "{ratio:?}"
        );
        assert_eq!(ratio_of_medians(&old[..1], &new), None);
        assert_eq!(ratio_of_medians(&old, &[0.0, 1.0]), None);
    }
}
