//! The intervals of the measured window, over all threads, and how the rate varies between them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::LoadError;
use super::recorder::IntervalPart;
use super::report::{Interval, Rate};
use super::tally::add_histogram;

/// Merges what the threads found in each interval.
#[derive(Debug)]
pub(super) struct Intervals {
    threads: usize,
    seconds: f64,
    /// Of which some threads have told, by index: how many, and the sum.
    begun: BTreeMap<u32, (usize, IntervalPart)>,
    complete: Vec<Interval>,
}

impl Intervals {
    pub(super) fn new(threads: usize, length: Duration) -> Self {
        Intervals {
            threads,
            seconds: length.as_secs_f64(),
            begun: BTreeMap::new(),
            complete: Vec::new(),
        }
    }

    /// Adds what one thread found: the interval, if it is complete by that. A thread tells of its intervals in
    /// their order, so that they become complete in it.
    ///
    /// # Errors
    /// The threads' histograms have different bounds.
    pub(super) fn add(&mut self, part: &IntervalPart) -> Result<Option<Interval>, LoadError> {
        let threads = match self.begun.get_mut(&part.index) {
            None => {
                self.begun.insert(part.index, (1, part.clone()));
                1
            }
            Some((threads, sum)) => {
                *threads += 1;
                sum.requests += part.requests;
                sum.errors += part.errors;
                add_histogram(&mut sum.latencies, &part.latencies)?;
                *threads
            }
        };
        if threads < self.threads {
            return Ok(None);
        }
        let Some((_, sum)) = self.begun.remove(&part.index) else {
            return Ok(None);
        };
        let percentile = |quantile| {
            let latencies = &sum.latencies;
            (!latencies.is_empty()).then(|| latencies.value_at_quantile(quantile))
        };
        let interval = Interval {
            at_seconds: f64::from(sum.index + 1) * self.seconds,
            requests: sum.requests,
            requests_per_second: sum.requests as f64 / self.seconds,
            p50_ns: percentile(0.5),
            p99_ns: percentile(0.99),
            errors: sum.errors,
        };
        self.complete.push(interval);
        Ok(Some(interval))
    }

    /// The complete intervals.
    pub(super) fn finish(self) -> Vec<Interval> {
        self.complete
    }
}

/// How the rate varied: `None` for fewer than two intervals.
pub(super) fn rate(intervals: &[Interval]) -> Option<Rate> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::new_histogram;

    fn part(index: u32, requests: u64, latency: u64) -> IntervalPart {
        let mut latencies = new_histogram(1_000_000).unwrap();
        latencies.record_n(latency, requests).unwrap();
        IntervalPart {
            index,
            requests,
            errors: 1,
            latencies,
        }
    }

    #[test]
    fn an_interval_is_complete_once_all_threads_have_told() {
        let mut intervals = Intervals::new(2, Duration::from_millis(500));
        assert_eq!(intervals.add(&part(0, 10, 100)).unwrap(), None);
        assert_eq!(intervals.add(&part(1, 10, 100)).unwrap(), None);
        let complete = intervals.add(&part(0, 30, 200)).unwrap().unwrap();
        let expected = Interval {
            at_seconds: 0.5,
            requests: 40,
            requests_per_second: 80.0,
            p50_ns: Some(200),
            p99_ns: Some(200),
            errors: 2,
        };
        assert_eq!(complete, expected);
        assert_eq!(intervals.finish(), [expected]);
    }

    #[test]
    fn the_rate_has_its_mean_deviation_and_share() {
        let intervals: Vec<Interval> = [8.0, 10.0, 12.0, 10.0, 20.0]
            .into_iter()
            .map(|requests_per_second| Interval {
                requests_per_second,
                ..Interval::default()
            })
            .collect();
        let found = rate(&intervals).unwrap();
        assert_eq!(found.mean, 12.0);
        assert!((found.standard_deviation - 22.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(found.within_standard_deviation, 0.8);
        assert_eq!(rate(&intervals[..1]), None);
    }
}
