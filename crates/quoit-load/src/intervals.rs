//! The intervals of the measured window, over all threads.

use std::collections::BTreeMap;
use std::time::Duration;

use super::control::IntervalPart;
use super::error::LoadError;
use super::report::Interval;
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
}
