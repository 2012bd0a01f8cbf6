//! The course of a run: case by case, pair by pair.

use std::time::{Duration, Instant};

use quoit_report::pairs::{self, Side};
use quoit_report::results::model::{LeftOut, Slice};

use super::Halt;
use super::budget::Budget;
use super::journal::{Entry, Journal};
use super::plan::Work;
use super::progress::Progress;
use super::record::{Record, Records};
use super::schedule::{self, Series};
use super::slice::{COUNT_SECONDS, Job, Measured, Rig};
use super::{disturbed, summary};
use crate::error::LabError;
use crate::experiment::model::Effort;

/// What counting the system calls of a server takes beside its load, about.
const COUNTING: Duration = Duration::from_millis(500);
/// Slices from which the baseline's peak is taken, as their median.
const PEAK_SLICES: usize = 3;

/// Leads a run.
pub(crate) struct Conductor<'a> {
    pub(crate) rig: Rig<'a>,
    pub(crate) effort: Effort,
    pub(crate) baseline: &'a str,
    pub(crate) journal: Journal,
    pub(crate) records: Records,
    pub(crate) progress: Progress,
    pub(crate) budget: Budget,
    /// What was left out for want of time.
    pub(crate) left_out: Vec<LeftOut>,
}

type Outcome<T> = Result<T, Halt>;

impl Conductor<'_> {
    /// Measures what is left.
    ///
    /// # Errors
    /// The run was interrupted, or a server or generator failed; what was measured is in the records.
    pub(crate) fn conduct(&mut self, works: &[Work<'_>]) -> Outcome<()> {
        let nothing = Record::default();
        let left = works.iter().map(|work| {
            let record = self.records.of(work).unwrap_or(&nothing);
            schedule::left(&summary::standings(record, work, &self.effort), &self.effort)
        });
        self.progress.begin(left.sum());
        for (index, work) in works.iter().enumerate() {
            self.budget.case_begins(works.len() - index);
            self.price_readings(work)?;
            self.find_peak(work)?;
            while let Some(turn) = self.turn(work) {
                if !self.budget.allows(self.time_to_count(work)) {
                    self.leave_pairs_out(work);
                    break;
                }
                self.budget.step_begins();
                self.pair(work, &work.series[turn])?;
                self.budget.step_ends();
            }
            self.count_system_calls(work)?;
        }
        Ok(())
    }

    /// What counting the system calls of all servers of a case is thought to take.
    fn time_to_count(&self, work: &Work<'_>) -> Duration {
        if !work.is_watched() {
            return Duration::ZERO;
        }
        let load = self.rig.warm_up + self.rig.seconds.min(COUNT_SECONDS);
        (Duration::from_secs_f64(load) + COUNTING) * work.servers.len() as u32
    }

    /// Says which pairs of a case are not measured because the time is over.
    fn leave_pairs_out(&mut self, work: &Work<'_>) {
        let nothing = Record::default();
        let record = self.records.of(work).unwrap_or(&nothing);
        let standings = summary::standings(record, work, &self.effort);
        let missing: Vec<String> = work
            .series
            .iter()
            .zip(standings)
            .filter(|(_, standing)| standing.pairs < self.effort.pairs)
            .map(|(series, standing)| format!("{} has {}", series.name(), standing.pairs))
            .collect();
        // A control that is only not as narrow as was aimed at says so itself.
        if missing.is_empty() {
            return;
        }
        let left_out = LeftOut {
            what: format!("pairs of {}", work.name),
            why: format!(
                "the time of a quick run was over; of {} pairs {}",
                self.effort.pairs,
                missing.join(", ")
            ),
        };
        self.progress.say(&format!("{}: {}", left_out.what, left_out.why));
        self.left_out.push(left_out);
    }

    fn turn(&self, work: &Work<'_>) -> Option<usize> {
        let nothing = Record::default();
        let record = self.records.of(work).unwrap_or(&nothing);
        schedule::next(&summary::standings(record, work, &self.effort), &self.effort)
    }

    fn peak(&self, work: &Work<'_>) -> Option<f64> {
        self.records.of(work)?.peak
    }

    /// Measures what it costs to read the counters of the servers of a case, once in a run for each.
    fn price_readings(&mut self, work: &Work<'_>) -> Outcome<()> {
        if !work.is_watched() {
            return Ok(());
        }
        for server in &work.servers {
            if server.metrics.is_none() || self.records.readings.contains_key(&server.name) {
                continue;
            }
            self.progress
                .working_on(&work.name, &format!("reading the counters of {}", server.name), 0);
            let cost = self.rig.cost_of_reading(Job {
                server,
                case: work.case,
                client: work.client,
                rate: None,
                reading: None,
            })?;
            self.keep(Entry::Reading {
                server: server.name.clone(),
                cost,
            })?;
        }
        Ok(())
    }

    /// Measures what the baseline reaches in a closed loop, if the rate of the case is a share of it.
    fn find_peak(&mut self, work: &Work<'_>) -> Outcome<()> {
        if work.share_of_peak().is_none() || self.peak(work).is_some() {
            return Ok(());
        }
        let case = work.closed();
        // It may be known from another share of the same peak.
        let of = format!(
            "{:?} by {:?}",
            case.workload,
            work.client.map(|client| &client.name)
        );
        let per_second = match self.records.peaks.get(&of) {
            Some(peak) => *peak,
            None => {
                self.progress
                    .say(&format!("{}: the peak of {}", work.name, self.baseline));
                let server = work.server(self.baseline).ok_or_else(|| {
                    LabError::new(format!(
                        "the baseline {} does not take part in {}",
                        self.baseline, work.name
                    ))
                })?;
                let mut rates = Vec::new();
                while rates.len() < PEAK_SLICES {
                    let measured = self.rig.measure(Job {
                        server,
                        case: &case,
                        client: work.client,
                        rate: None,
                        reading: None,
                    })?;
                    if let Some(nothing) = measured.nothing {
                        return Err(LabError::new(nothing).into());
                    }
                    rates.push(measured.slice.figures.units_per_second);
                }
                pairs::median(&mut rates)
            }
        };
        self.keep(Entry::Peak {
            case: work.name.clone(),
            of,
            per_second,
        })
    }

    /// Measures the next pair of a series.
    fn pair(&mut self, work: &Work<'_>, series: &Series) -> Outcome<()> {
        let started = Instant::now();
        let name = series.name();
        let done = |record: &Record| record.pairs.get(&name).copied().unwrap_or(0);
        let pair = self.records.of(work).map_or(0, done);
        self.progress.working_on(&work.name, &name, pair);
        let [a, b] = series.sides();
        let mut slices = Vec::new();
        for (position, side) in pairs::order(pair as usize).into_iter().enumerate() {
            let server = match side {
                Side::A => a,
                Side::B => b,
            };
            self.slices(work, server, &mut slices, |slice| {
                slice.series.clone_from(&name);
                slice.pair = pair;
                slice.position = position as u32;
            })?;
        }
        self.keep(Entry::Pair {
            case: work.name.clone(),
            series: name.clone(),
            pair,
            slices,
            seconds: started.elapsed().as_secs_f64(),
        })?;
        let told = self.records.of(work).map(|record| told(record, work, series));
        self.progress
            .pair_done(&work.name, &name, pair, &told.unwrap_or_default());
        if series.against.is_none() && pair + 1 >= self.effort.pairs && self.turn(work).is_some() {
            self.progress.grown();
        }
        Ok(())
    }

    /// Measures one slice, again if the machine spoiled it.
    fn slices(
        &mut self,
        work: &Work<'_>,
        server: &str,
        slices: &mut Vec<Slice>,
        place: impl Fn(&mut Slice),
    ) -> Outcome<()> {
        let spec = work
            .server(server)
            .ok_or_else(|| LabError::new(format!("{server} does not take part in {}", work.name)))?;
        let job = Job {
            server: spec,
            case: work.case,
            client: work.client,
            rate: work.rate(self.peak(work)),
            reading: self.records.reading(server),
        };
        let mut times = 0;
        loop {
            let Measured {
                mut slice,
                version,
                nothing,
            } = self.rig.measure(job)?;
            place(&mut slice);
            if let Some(version) = version
                && self.records.versions.get(server) != Some(&version)
            {
                self.keep(Entry::Version {
                    server: server.to_owned(),
                    version,
                })?;
            }
            let all = || self.records.slices().chain(slices.iter());
            let spoiled = all().filter(|slice| slice.spoiled.is_some()).count() as u32;
            let Some(reason) = disturbed::reason(&slice) else {
                slices.push(slice);
                return Ok(());
            };
            if !disturbed::may_repeat(times, spoiled, all().count() as u32) {
                if let Some(nothing) = nothing {
                    return Err(LabError::new(format!(
                        "{}, tried {} times: {nothing}",
                        work.name,
                        times + 1
                    ))
                    .into());
                }
                // Its figures stand: the pairs and the medians have to even it out.
                slices.push(slice);
                return Ok(());
            }
            self.progress
                .say(&format!("{}: {server} is measured again: {reason}", work.name));
            slice.spoiled = Some(reason);
            slices.push(slice);
            times += 1;
        }
    }

    /// Counts the system calls of all servers of a case.
    fn count_system_calls(&mut self, work: &Work<'_>) -> Outcome<()> {
        if !work.is_watched() {
            return Ok(());
        }
        for server in &work.servers {
            let counted = |record: &Record| record.system_calls.contains_key(&server.name);
            if self.records.of(work).is_some_and(counted) {
                continue;
            }
            if !self.budget.allows(Duration::ZERO) {
                self.left_out.push(LeftOut {
                    what: format!("system calls of {} in {}", server.name, work.name),
                    why: "the time of a quick run was over".to_owned(),
                });
                continue;
            }
            self.progress
                .working_on(&work.name, &format!("system calls of {}", server.name), 0);
            let counted = self.rig.count_system_calls(Job {
                server,
                case: work.case,
                client: work.client,
                rate: work.rate(self.peak(work)),
                reading: None,
            })?;
            self.keep(Entry::SystemCalls {
                case: work.name.clone(),
                server: server.name.clone(),
                per_unit: counted.as_ref().ok().copied(),
                reason: counted.err(),
            })?;
        }
        Ok(())
    }

    fn keep(&mut self, entry: Entry) -> Outcome<()> {
        self.journal.write(&entry)?;
        self.records.add(entry);
        Ok(())
    }
}

/// How a series stands, in words.
fn told(record: &Record, work: &Work<'_>, series: &Series) -> String {
    let name = series.name();
    if series.against.is_none() {
        return summary::band(record, work, &name).map_or_else(String::new, |(_, band)| {
            format!("band ±{:.1} %", (band.factor - 1.0) * 100.0)
        });
    }
    summary::cost_of(record, work, &name).map_or_else(String::new, |cost| {
        format!("cost {:.3} [{:.3}, {:.3}]", cost.median, cost.low, cost.high)
    })
}
