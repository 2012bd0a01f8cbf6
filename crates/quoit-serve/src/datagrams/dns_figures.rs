//! What became of the queries of `serve dns`, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use quoit::counters::Figure;
use quoit_workload::dns::Outcome;

const COUNT: usize = Outcome::ALL.len();

/// One loop's counts: written by its thread alone, read by any.
#[derive(Debug, Default)]
pub(crate) struct DnsFigures([AtomicU64; COUNT]);

impl DnsFigures {
    /// Counts one. Only the loop's own thread may call it.
    pub(super) fn count(&self, outcome: Outcome) {
        let place = &self.0[outcome.index()];
        // No atomic addition: nobody else writes.
        place.store(place.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Every figure with its name, its kind and its description, in a fixed order.
    pub(crate) fn figures(&self) -> Vec<(&'static str, Figure, &'static str, u64)> {
        Outcome::ALL
            .into_iter()
            .map(|outcome| {
                let (name, description) = name(outcome);
                let value = self.0[outcome.index()].load(Ordering::Relaxed);
                (name, Figure::Counter, description, value)
            })
            .collect()
    }
}

fn name(outcome: Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Answered => ("dns_answered", "Queries answered with an address"),
        Outcome::NoData => ("dns_no_data", "Queries for a name that has other records only"),
        Outcome::Refused => (
            "dns_refused",
            "Queries refused: for a name or a class that is not served, or for a transfer of the zone",
        ),
        Outcome::Malformed => ("dns_malformed", "Queries that could not be understood"),
        Outcome::NotImplemented => ("dns_not_implemented", "Messages that ask for another operation"),
        Outcome::BadVersion => ("dns_bad_version", "Queries of another version of EDNS than 0"),
        Outcome::Ignored => (
            "dns_ignored",
            "Datagrams left without an answer: responses, and what is too short or was cut",
        ),
    }
}
