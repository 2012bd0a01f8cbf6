//! What a run has measured so far.

use std::collections::BTreeMap;

use quoit_report::pairs::{self, Side};
use quoit_report::results::model::{ReadingCost, Slice};

use super::journal::Entry;
use super::plan::Work;

/// What was measured of one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// What the baseline reaches in a closed loop, in requests per second.
    pub(crate) peak: Option<f64>,
    /// All slices as they ran, spoiled ones included.
    pub(crate) slices: Vec<Slice>,
    /// Finished pairs of each series.
    pub(crate) pairs: BTreeMap<String, u32>,
    /// System calls per unit of each server, or why they were not counted.
    pub(crate) system_calls: BTreeMap<String, Result<f64, String>>,
}

/// What was measured of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    /// By the name of the case's [`Work`].
    works: BTreeMap<String, Record>,
    /// By the case without its pace.
    pub(crate) peaks: BTreeMap<String, f64>,
    pub(crate) versions: BTreeMap<String, String>,
    /// What reading the counters costs, of each server that was asked; `None` if it shows none.
    pub(crate) readings: BTreeMap<String, Option<ReadingCost>>,
    /// Wall-clock seconds of the finished pairs.
    pub(crate) seconds: f64,
}

impl Records {
    /// What a diary says.
    pub(crate) fn from_entries(entries: Vec<Entry>) -> Self {
        let mut records = Self::default();
        for entry in entries {
            records.add(entry);
        }
        records
    }

    pub(crate) fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Begin { .. } => {}
            Entry::Peak { case, of, per_second } => {
                self.works.entry(case).or_default().peak = Some(per_second);
                self.peaks.insert(of, per_second);
            }
            Entry::Pair {
                case,
                series,
                slices,
                seconds,
                ..
            } => {
                let record = self.works.entry(case).or_default();
                *record.pairs.entry(series).or_default() += 1;
                record.slices.extend(slices);
                self.seconds += seconds;
            }
            Entry::Version { server, version } => {
                self.versions.insert(server, version);
            }
            Entry::Reading { server, cost } => {
                self.readings.insert(server, cost);
            }
            Entry::SystemCalls {
                case,
                server,
                per_unit,
                reason,
            } => {
                let counted = per_unit.ok_or_else(|| reason.unwrap_or_default());
                let record = self.works.entry(case).or_default();
                record.system_calls.insert(server, counted);
            }
        }
    }

    pub(crate) fn of(&self, work: &Work<'_>) -> Option<&Record> {
        self.works.get(&work.name)
    }

    /// What reading the counters of a server costs, if that is known.
    pub(crate) fn reading(&self, server: &str) -> Option<ReadingCost> {
        self.readings.get(server).copied().flatten()
    }

    /// All slices of the run.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.works.values().flat_map(|record| &record.slices)
    }
}

impl Record {
    /// The slices of a series that count, pair by pair: the ratio's numerator and denominator.
    pub(crate) fn pairs_of(&self, series: &str) -> Vec<[&Slice; 2]> {
        let mut pairs: BTreeMap<u32, [Option<&Slice>; 2]> = BTreeMap::new();
        let counting = |slice: &&Slice| slice.series == series && slice.spoiled.is_none();
        for slice in self.slices.iter().filter(counting) {
            let order = pairs::order(slice.pair as usize);
            let side = match order.get(slice.position as usize) {
                Some(Side::A) => 0,
                Some(Side::B) => 1,
                None => continue,
            };
            pairs.entry(slice.pair).or_default()[side] = Some(slice);
        }
        pairs.into_values().filter_map(|[a, b]| Some([a?, b?])).collect()
    }
}
