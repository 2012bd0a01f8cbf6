//! The intervals of a run, and how the rate varied between them.

use serde::{Deserialize, Serialize};

/// How the requests per second varied from interval to interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rate {
    pub(crate) mean: f64,
    pub(crate) standard_deviation: f64,
    /// The share of the intervals that lie within one standard deviation of the mean, 0 to 1.
    pub(crate) within_standard_deviation: f64,
}

/// One interval of the measured window. Its latencies are those of all requests, slips or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interval {
    /// Its end, since the window's beginning.
    pub(crate) at_seconds: f64,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    /// Absent if nothing was answered.
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) errors: u64,
}

impl Rate {
    /// `None` for fewer than two intervals.
    pub(crate) fn of(intervals: &[Interval]) -> Option<Rate> {
        if intervals.len() < 2 {
            return None;
        }
        let count = intervals.len() as f64;
        let rates = intervals.iter().map(|interval| interval.requests_per_second);
        let mean = rates.clone().sum::<f64>() / count;
        let variance = rates.clone().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let deviation = variance.sqrt();
        let within = rates.filter(|rate| (rate - mean).abs() <= deviation).count();
        Some(Rate {
            mean,
            standard_deviation: deviation,
            within_standard_deviation: within as f64 / count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_has_its_mean_deviation_and_share() {
        let intervals: Vec<Interval> = [8.0, 10.0, 12.0, 10.0, 20.0]
            .into_iter()
            .map(|requests_per_second| Interval {
                requests_per_second,
                ..Interval::default()
            })
            .collect();
        let found = Rate::of(&intervals).unwrap();
        assert_eq!(found.mean, 12.0);
        assert!((found.standard_deviation - 22.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(found.within_standard_deviation, 0.8);
        assert_eq!(Rate::of(&intervals[..1]), None);
    }
}
