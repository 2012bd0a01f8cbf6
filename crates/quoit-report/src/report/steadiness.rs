//! How steady a server was: its slowest second beside what it did as a rule, and what was different in it.

use std::collections::BTreeSet;

use crate::pairs;
use crate::results::WHOLE_SECOND;
use crate::results::model::{CaseResults, Sample};
use crate::table;

/// A counter has to differ by this factor to be named, and to have counted so much.
const NOTABLE: f64 = 1.25;
const LEAST_COUNT: f64 = 10.0;
/// Counters that are named at most.
const MOST_NAMED: usize = 3;

/// A server's slowest second of all slices that count.
#[derive(Debug)]
pub(crate) struct Steadiness {
    /// How many seconds there were.
    pub(crate) seconds: usize,
    /// Units per second, in the median second and in the slowest.
    pub(crate) median: f64,
    pub(crate) slowest: f64,
    /// Server CPU of a unit, in user space and in the kernel, in the slowest second.
    pub(crate) cpu_ns: [f64; 2],
    /// The same of a median second.
    pub(crate) usual_cpu_ns: [f64; 2],
    /// Packets dropped in the slowest second.
    pub(crate) drops: u64,
    /// The counters that differ most by unit: name, in a median second, in the slowest.
    pub(crate) counters: Vec<(String, f64, f64)>,
    /// How many of the seconds have counters.
    pub(crate) counted: usize,
}

/// One second: what was sampled, and how long it really was.
struct Second<'a> {
    sample: &'a Sample,
    length: f64,
    units: f64,
}

impl Second<'_> {
    fn rate(&self) -> f64 {
        self.units / self.length
    }

    fn counter(&self, name: &str) -> f64 {
        self.sample.counters.get(name).copied().unwrap_or(0.0) / self.units
    }
}

/// `None` of a server with fewer than two seconds in which it did something.
pub(crate) fn of(case: &CaseResults, server: &str) -> Option<Steadiness> {
    let slices = case.slices.iter();
    let seconds: Vec<Second<'_>> = slices
        .filter(|slice| slice.server == server && slice.spoiled.is_none())
        .flat_map(|slice| seconds(&slice.samples))
        .collect();
    let slowest = seconds
        .iter()
        .min_by(|one, other| one.rate().total_cmp(&other.rate()))?;
    if seconds.len() < 2 {
        return None;
    }
    let median = |figure: &dyn Fn(&Second<'_>) -> f64| {
        let mut values: Vec<f64> = seconds.iter().map(figure).collect();
        pairs::median(&mut values)
    };
    let cpu: [fn(&Second<'_>) -> f64; 2] = [
        |second| second.sample.server_user_ns / second.units,
        |second| second.sample.server_kernel_ns / second.units,
    ];
    Some(Steadiness {
        seconds: seconds.len(),
        median: median(&|second| second.rate()),
        slowest: slowest.rate(),
        cpu_ns: cpu.map(|figure| figure(slowest)),
        usual_cpu_ns: cpu.map(|figure| median(&figure)),
        drops: slowest.sample.drops,
        counters: different(slowest, &seconds),
        counted: seconds
            .iter()
            .filter(|second| !second.sample.counters.is_empty())
            .count(),
    })
}

/// The samples of a slice that stand for a second in which something was done.
fn seconds(samples: &[Sample]) -> Vec<Second<'_>> {
    let mut begun = 0.0;
    let mut seconds = Vec::new();
    for sample in samples {
        let length = sample.at_seconds - begun;
        begun = sample.at_seconds;
        let units = sample.units.filter(|units| *units > 0.0);
        if let Some(units) = units.filter(|_| length >= WHOLE_SECOND) {
            seconds.push(Second {
                sample,
                length,
                units,
            });
        }
    }
    seconds
}

/// The counters of a second that differ most from those of a median one.
fn different(second: &Second<'_>, all: &[Second<'_>]) -> Vec<(String, f64, f64)> {
    let counted: Vec<&Second<'_>> = all
        .iter()
        .filter(|other| !other.sample.counters.is_empty())
        .collect();
    if second.sample.counters.is_empty() || counted.len() < 2 {
        return Vec::new();
    }
    let names: BTreeSet<&String> = counted
        .iter()
        .flat_map(|second| second.sample.counters.keys())
        .collect();
    // What did not happen counts as half an event, so that its ratio is finite.
    let at_least = 0.5 / second.units;
    let distance =
        |(_, usual, here): &(String, f64, f64)| (here.max(at_least) / usual.max(at_least)).ln().abs();
    let mut different: Vec<(String, f64, f64)> = names
        .into_iter()
        .map(|name| {
            let mut values: Vec<f64> = counted.iter().map(|second| second.counter(name)).collect();
            (name.clone(), pairs::median(&mut values), second.counter(name))
        })
        .filter(|(_, usual, here)| usual.max(*here) * second.units >= LEAST_COUNT)
        .filter(|differing| distance(differing) >= NOTABLE.ln())
        .collect();
    different.sort_by(|one, other| distance(other).total_cmp(&distance(one)));
    different.truncate(MOST_NAMED);
    different
}

impl Steadiness {
    /// The counters that differ, in words.
    pub(crate) fn differences(&self) -> Option<String> {
        let words: Vec<String> = self
            .counters
            .iter()
            .map(|(name, usual, here)| {
                format!(
                    "{name} {} (else {})",
                    table::per_unit(*here),
                    table::per_unit(*usual)
                )
            })
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    #[test]
    fn the_slowest_second_is_set_beside_the_others() {
        let mut results = example::results();
        let case = &mut results.cases[0];
        let slice = case
            .slices
            .iter_mut()
            .find(|slice| slice.server == "quoit/uring" && slice.spoiled.is_none())
            .expect("it took part");
        let second = &mut slice.samples[2];
        let units = second.units.expect("they are counted") / 4.0;
        second.units = Some(units);
        second.drops = 7;
        second.counters.insert("enters".to_owned(), units);
        second.counters.insert("buffer_pauses".to_owned(), 500.0);
        second.counters.insert("wakes".to_owned(), 3.0);
        let steadiness = of(case, "quoit/uring").expect("it has seconds");
        assert!(steadiness.slowest < 0.4 * steadiness.median, "{steadiness:?}");
        assert_eq!(steadiness.drops, 7);
        assert_eq!(steadiness.counted, steadiness.seconds);
        assert!(
            steadiness.cpu_ns[0] > 2.0 * steadiness.usual_cpu_ns[0],
            "{steadiness:?}"
        );
        let names: Vec<&str> = steadiness
            .counters
            .iter()
            .map(|(name, ..)| name.as_str())
            .collect();
        // What never happened else comes first; three wakes are nothing; the others are four times as many, because
        // the units are a quarter.
        assert_eq!(names[0], "buffer_pauses");
        assert!(
            names.contains(&"enters") && !names.contains(&"wakes"),
            "{names:?}"
        );
        assert!(names.len() <= MOST_NAMED);
        let words = steadiness.differences().expect("there are some");
        assert!(
            words.starts_with("buffer_pauses ") && words.contains("(else 0.0000)"),
            "{words}"
        );
    }

    #[test]
    fn without_seconds_there_is_no_slowest() {
        let mut results = example::results();
        let case = &mut results.cases[0];
        let tokio = of(case, "tokio").expect("it has seconds");
        assert_eq!((tokio.counted, tokio.differences()), (0, None));
        for slice in &mut case.slices {
            slice.samples.truncate(1);
            slice.samples[0].at_seconds = 0.4;
        }
        assert!(of(case, "tokio").is_none());
    }
}
