//! The statistics of paired runs.
//!
//! Neighbours on a shared machine slow down whole stretches of time, so single runs cannot be compared.
//! Two runs next to each other share most of the disturbance, and their ratio is what is kept. The order
//! within the pairs alternates (AB BA AB BA ...), so that a drift favours neither side.

use super::random::Random;
use super::results::model::{Figures, Judge, Ratio, Verdict};

/// The seed of all bootstrap intervals: the same data give the same interval.
pub const SEED: u64 = 2_026;

/// Resamples of a bootstrap interval. More change its ends by less than the third digit.
const RESAMPLES: usize = 5_000;

/// Share of the resamples' medians that the interval covers.
const COVERAGE: f64 = 0.95;

/// Fewest pairs that are judged. The widest interval for a median that so many values can give lies between the
/// least and the greatest of them and misses it with a probability of 2 / 2^n: 6 % with five, 3 % with six. Fewer
/// cannot carry an interval of 95 %, however narrow the bootstrap makes it: one pair has a width of zero.
pub const LEAST_PAIRS: u32 = 6;

/// Which of the two sides of a comparison runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side in the ratio's numerator.
    A,
    /// The side in its denominator.
    B,
}

/// The order of the two runs of a pair: AB for even pairs, BA for odd ones.
pub fn order(pair: usize) -> [Side; 2] {
    if pair.is_multiple_of(2) {
        [Side::A, Side::B]
    } else {
        [Side::B, Side::A]
    }
}

impl Ratio {
    /// The median of `ratios` with a percentile bootstrap interval (Efron, 1979); `None` without ratios.
    pub fn of(ratios: &[f64], seed: u64) -> Option<Self> {
        if ratios.is_empty() {
            return None;
        }
        let mut random = Random::new(seed);
        let mut resample = vec![0.0; ratios.len()];
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                resample.fill_with(|| ratios[random.below(ratios.len())]);
                median(&mut resample)
            })
            .collect();
        medians.sort_unstable_by(f64::total_cmp);
        let tail = (1.0 - COVERAGE) / 2.0;
        let at = |share: f64| medians[(share * (RESAMPLES - 1) as f64).round() as usize];
        Some(Self {
            median: median(&mut ratios.to_vec()),
            low: at(tail),
            high: at(1.0 - tail),
        })
    }
}

impl Judge {
    /// What a pair is judged by.
    pub fn cost(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Cpu => Some(figures.server_cpu_ns_per_unit),
            // Less than a byte a connection is no memory that one could compare.
            Self::Memory => figures.bytes_per_connection.map(|bytes| bytes.max(1.0)),
            Self::Handled => Some(figures.units_per_second.recip()),
        }
    }
}

/// What two identical sides differ by: ratios between `1 / factor` and `factor` are noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseBand {
    /// At least 1.
    pub factor: f64,
    /// Pairs of the control that it was taken from.
    pub pairs: u32,
}

impl NoiseBand {
    /// The band of a control: its whole interval, made symmetric, because which of two identical sides is
    /// called A is arbitrary.
    pub fn of_control(control: Ratio, pairs: u32) -> Self {
        Self {
            factor: control.high.max(1.0 / control.low).max(1.0),
            pairs,
        }
    }

    /// Whether ratios within `share` of 1 (0.05 is 5 %) are already more than noise.
    pub fn is_within(self, share: f64) -> bool {
        self.factor <= 1.0 + share
    }
}

impl Verdict {
    /// What a ratio of costs, A over B, says about A: a win or a loss lies outside the control's band with its whole
    /// interval. Fewer than [`LEAST_PAIRS`], of the comparison or of the control, say nothing.
    pub fn of(cost: Ratio, pairs: u32, noise: NoiseBand) -> Self {
        if pairs.min(noise.pairs) < LEAST_PAIRS {
            Self::Unjudged
        } else if cost.low > noise.factor {
            Self::Loss
        } else if cost.high < 1.0 / noise.factor {
            Self::Win
        } else {
            Self::Tie
        }
    }
}

/// The median; sorts `values`, which are not empty.
pub fn median(values: &mut [f64]) -> f64 {
    assert!(!values.is_empty(), "the median of nothing");
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_abba() {
        let sides: Vec<Side> = (0..4).flat_map(order).collect();
        use Side::{A, B};
        assert_eq!(sides, [A, B, B, A, A, B, B, A]);
    }

    #[test]
    fn the_median_of_odd_and_even_counts() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let ratios = [0.91, 0.95, 0.93, 0.99, 0.90, 0.92, 1.30, 0.94, 0.93, 0.92];
        let first = Ratio::of(&ratios, 42);
        assert_eq!(first, Ratio::of(&ratios, 42));
        let first = first.expect("ratios were given");
        assert_eq!(first.median, 0.93);
        // One outlier among ten moves neither end to itself.
        assert!(first.low >= 0.91 && first.low <= first.median, "{first:?}");
        assert!(first.high <= 0.97 && first.high >= first.median, "{first:?}");
    }

    #[test]
    fn equal_ratios_have_no_spread_and_none_have_no_median() {
        assert_eq!(
            Ratio::of(&[1.5; 8], 1),
            Some(Ratio {
                median: 1.5,
                low: 1.5,
                high: 1.5
            })
        );
        assert_eq!(Ratio::of(&[], 1), None);
    }

    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        let mut random = Random::new(99);
        let trials = 200;
        let covered = (0..trials)
            .filter(|trial| {
                let sample: Vec<f64> = (0..15)
                    .map(|_| 0.5 + random.below(1001) as f64 / 1000.0)
                    .collect();
                let ratio = Ratio::of(&sample, *trial).expect("the sample is not empty");
                ratio.low <= 1.0 && 1.0 <= ratio.high
            })
            .count();
        assert!((170..=200).contains(&covered), "{covered} of {trials}");
    }

    #[test]
    fn verdicts_need_the_whole_interval_outside_the_band() {
        let control = Ratio {
            median: 0.99,
            low: 0.96,
            high: 1.02,
        };
        let band = NoiseBand::of_control(control, LEAST_PAIRS);
        assert!((band.factor - 1.0 / 0.96).abs() < 1e-12);
        let verdict = |low: f64, high: f64| {
            Verdict::of(
                Ratio {
                    median: (low + high) / 2.0,
                    low,
                    high,
                },
                LEAST_PAIRS,
                band,
            )
        };
        assert_eq!(verdict(1.05, 1.10), Verdict::Loss);
        assert_eq!(verdict(1.03, 1.10), Verdict::Tie);
        assert_eq!(verdict(0.90, 0.95), Verdict::Win);
        assert_eq!(verdict(0.90, 0.97), Verdict::Tie);
        assert_eq!(verdict(0.80, 1.30), Verdict::Tie);
    }

    #[test]
    fn too_few_pairs_are_never_more_than_a_tie() {
        let far_off = Ratio::of(&[2.0], SEED).expect("a ratio is given");
        assert_eq!(far_off.low, far_off.high);
        let even = Ratio::of(&[1.0], SEED).expect("a ratio is given");
        let verdict =
            |pairs, of_control| Verdict::of(far_off, pairs, NoiseBand::of_control(even, of_control));
        assert_eq!(verdict(LEAST_PAIRS - 1, LEAST_PAIRS), Verdict::Unjudged);
        assert_eq!(verdict(LEAST_PAIRS, LEAST_PAIRS - 1), Verdict::Unjudged);
        assert_eq!(verdict(LEAST_PAIRS, LEAST_PAIRS), Verdict::Loss);
    }

    #[test]
    fn losses_sort_first() {
        let mut verdicts = [Verdict::Unjudged, Verdict::Win, Verdict::Loss, Verdict::Tie];
        verdicts.sort();
        assert_eq!(
            verdicts,
            [Verdict::Loss, Verdict::Tie, Verdict::Win, Verdict::Unjudged]
        );
    }
}
