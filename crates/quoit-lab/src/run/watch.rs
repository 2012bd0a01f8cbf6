//! Looking at a server and at the machine while load is made: once at each bound of the window and once a second.
//!
//! The lab's own thread does it, and sleeps in between; a look takes a handful of files below /proc and two calls for
//! each process of the server, and where the server shows counters and can bear it, one request for them. What looking
//! costs is measured and reported.

use std::collections::BTreeMap;
use std::time::Duration;

use quoit_host::monotonic_now;
use quoit_report::results::model::Sample;

use super::Halt;
use super::generator::{Generator, Window};
use super::interrupt::{Interrupts, Woken};
use super::machine::{self, ProcessorTimes};
use super::process_tree::{ProcessTree, Usage};
use super::reading::{Reader, Reading};
use crate::counters::Counters;
use crate::cpu;
use crate::error::{LabError, Result};
use crate::server::Server;
use crate::syscalls::SystemCallCounter;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// The last look comes so long before the window closes, or a hundredth of the window if that is less: after it the
/// server has nothing to do but to close connections, which is no part of the work.
const MARGIN: Duration = Duration::from_millis(5);

/// What is looked at.
pub(crate) struct Watch<'a> {
    server: ProcessTree,
    /// Of the server's own counters, if it shows any.
    reader: Option<Reader<'a>>,
    /// When was looked last, and the server's processor time by then.
    before: Option<(Duration, f64)>,
    /// The client under test; our own generator states its CPU time itself.
    client: Option<ProcessTree>,
    system_calls: Option<Vec<SystemCallCounter>>,
}

/// One look.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// By CLOCK_MONOTONIC.
    pub(crate) at: Duration,
    pub(crate) server: Usage,
    pub(crate) client: Option<Usage>,
    /// Since counting began.
    pub(crate) system_calls: Option<u64>,
    drops: u64,
    /// At the bounds of the window, and in between where the server can bear it.
    counters: Option<Reading>,
    processors: ProcessorTimes,
    observer_ns: f64,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(server: &Server, reader: Option<Reader<'a>>) -> Self {
        Self {
            server: ProcessTree::of(server.process_id()),
            reader,
            before: None,
            client: None,
            system_calls: None,
        }
    }

    /// Looks at a client, too.
    pub(crate) fn with_client(mut self, process: u32) -> Self {
        self.client = Some(ProcessTree::of(process));
        self
    }

    /// Counts the system calls of the server from now on. That makes each of them dearer, so what is counted must
    /// not be timed.
    ///
    /// # Errors
    /// Why this machine does not permit it, as a sentence for the user.
    pub(crate) fn count_system_calls(&mut self) -> std::result::Result<(), String> {
        let counters: std::result::Result<Vec<_>, String> =
            self.server.members().map(SystemCallCounter::start).collect();
        self.system_calls = Some(counters?);
        Ok(())
    }

    /// The look at the beginning. The counters are read before the clocks, so that their reading is in no figure.
    pub(crate) fn look_first(&mut self) -> Result<Look> {
        self.server.find_members();
        let counters = self.read_counters();
        let look = self.look(true)?;
        Ok(Look { counters, ..look })
    }

    /// The look at the end, with the counters after the clocks.
    fn look_last(&mut self) -> Result<Look> {
        self.server.find_members();
        let look = self.look(true)?;
        let counters = self.read_counters();
        Ok(Look { counters, ..look })
    }

    /// A look in between, with the counters only if their reading disappears in what the server did since the last
    /// look.
    fn look_between(&mut self) -> Result<Look> {
        let before = self.before;
        let look = self.look(false)?;
        let bearable = self
            .reader
            .as_ref()
            .zip(before)
            .is_some_and(|(reader, (at, used))| {
                reader.is_bearable(look.server.cpu_ns - used, look.at.saturating_sub(at))
            });
        let counters = if bearable { self.read_counters() } else { None };
        Ok(Look { counters, ..look })
    }

    fn read_counters(&self) -> Option<Reading> {
        self.reader.as_ref().and_then(Reader::read)
    }

    fn look(&mut self, whole: bool) -> Result<Look> {
        let system_calls = self.system_calls.as_mut().map(|counters| {
            counters
                .iter_mut()
                .map(SystemCallCounter::read)
                .sum::<std::io::Result<u64>>()
        });
        let at = monotonic_now();
        let server = self.server.usage(whole)?;
        self.before = Some((at, server.cpu_ns));
        Ok(Look {
            at,
            server,
            // It may have ended, and then what was seen last stands.
            client: self.client.as_mut().and_then(|client| {
                client.find_members();
                client.usage(true).ok()
            }),
            system_calls: system_calls
                .transpose()
                .map_err(LabError::io("reading the count of system calls"))?,
            drops: machine::drops(self.server.root()),
            counters: None,
            processors: ProcessorTimes::read()?,
            observer_ns: cpu::cpu_time_ns(std::process::id())? as f64,
        })
    }

    /// Looks from the window's opening to shortly before its end, or until the generator ends, the latest moment
    /// being `deadline`. Without a window the first look is the caller's, before it starts the generator.
    ///
    /// # Errors
    /// The run was interrupted, or the server's process cannot be read: it has ended.
    pub(crate) fn looks(
        &mut self,
        interrupts: &Interrupts,
        generator: &Generator,
        window: Option<Window>,
        deadline: Duration,
    ) -> std::result::Result<Vec<Look>, Halt> {
        let opens = window.map_or_else(monotonic_now, |window| window.opens);
        let last = window.map_or(deadline, |window| {
            window.closes - MARGIN.min((window.closes - window.opens) / 100)
        });
        let mut looks = Vec::new();
        if window.is_some() {
            let mut woken = Woken::Time;
            while woken == Woken::Time
                && let Some(until) = next_warming(monotonic_now(), opens)
            {
                let _ = self.read_counters();
                woken = generator.wait_until(interrupts, until)?;
            }
            if woken == Woken::Ended || generator.wait_until(interrupts, opens)? == Woken::Ended {
                return Ok(looks);
            }
            looks.push(self.look_first()?);
        }
        let mut next = opens + PERIOD;
        loop {
            let until = next.min(last);
            let woken = generator.wait_until(interrupts, until)?;
            if woken == Woken::Ended || until == last {
                looks.push(self.look_last()?);
                return Ok(looks);
            }
            looks.push(self.look_between()?);
            // A look that comes late takes no other's place.
            while next <= monotonic_now() {
                next += PERIOD;
            }
        }
    }
}

/// While a server is warmed up, its counters are read each second, as in the window: a runtime compiles anew what it has run some
/// tens of times, a moment after that. Returns the time after the next such reading; `None` where that would be in the window.
fn next_warming(now: Duration, opens: Duration) -> Option<Duration> {
    let next = now + PERIOD;
    (next <= opens).then_some(next)
}

/// What lies between the first and the last look, and each second of it.
pub(crate) struct Seen<'a> {
    looks: &'a [Look],
    first: &'a Look,
    last: &'a Look,
}

impl<'a> Seen<'a> {
    /// `None` if there are fewer than two looks.
    pub(crate) fn of(looks: &'a [Look]) -> Option<Self> {
        let [first, .., last] = looks else { return None };
        Some(Self { looks, first, last })
    }

    pub(crate) fn server(&self) -> Usage {
        self.last.server.since(&self.first.server)
    }

    /// What the client used from the first look on, or from its beginning if it began after that, as far as it was seen.
    pub(crate) fn client(&self) -> Option<Usage> {
        let seen = || self.looks.iter().filter_map(|look| look.client);
        let mut usage = seen().next_back()?;
        if let Some(before) = self.first.client {
            usage = usage.since(&before);
        }
        // A process that has ended has no memory any more.
        usage.resident_bytes = seen().map(|usage| usage.resident_bytes).max()?;
        usage.peak_resident_bytes = seen().filter_map(|usage| usage.peak_resident_bytes).max();
        Some(usage)
    }

    /// What a figure that grew with the work, from the first look to the last, comes to over the whole window: the
    /// looks lie a little inside it. `None` if they do not lie in it at all.
    pub(crate) fn scale(&self, window: Window) -> Option<f64> {
        scale(self.first.at, self.last.at, window)
    }

    pub(crate) fn system_calls(&self) -> Option<u64> {
        Some(self.last.system_calls?.saturating_sub(self.first.system_calls?))
    }

    /// What the server's own counters rose by: over the whole window if there is one, else from the first look to the
    /// last.
    pub(crate) fn counters(&self, window: Option<Window>) -> BTreeMap<String, f64> {
        let (Some(before), Some(after)) = (&self.first.counters, &self.last.counters) else {
            return BTreeMap::new();
        };
        // They are read at other moments than the clocks.
        let scale = window.map_or(Some(1.0), |window| scale(before.at, after.at, window));
        let Some(scale) = scale else {
            return BTreeMap::new();
        };
        rise(before, after)
            .into_iter()
            .map(|(name, value)| (name, value * scale))
            .collect()
    }

    /// Shares of the processors' time that were stolen, and that went to processes other than server and
    /// generator, which used `known_ns`, and the lab.
    pub(crate) fn shares(&self, known_ns: f64) -> Option<(f64, f64)> {
        let observer = self.last.observer_ns - self.first.observer_ns;
        self.last
            .processors
            .shares_since(&self.first.processors, known_ns + observer)
    }

    /// CPU of the lab, as a share of one core.
    pub(crate) fn observer_share(&self) -> f64 {
        let elapsed = (self.last.at - self.first.at).as_nanos() as f64;
        (self.last.observer_ns - self.first.observer_ns) / elapsed.max(1.0)
    }

    /// One sample for each look after the first. `units` returns how many units were done from the opening of the
    /// window until so many seconds later.
    pub(crate) fn samples(&self, opens: Duration, units: impl Fn(f64) -> Option<f64>) -> Vec<Sample> {
        let seconds = |look: &Look| look.at.saturating_sub(opens).as_secs_f64();
        // Ticks of 10 ms are too coarse for the split of a short time; then that of the whole stands in.
        let overall = self.server().user_share();
        let sample = |pair: &[Look]| {
            let [before, after] = pair else {
                return Sample::default();
            };
            let used = after.server.since(&before.server);
            let user = used.user_share().or(overall).unwrap_or(0.0);
            Sample {
                at_seconds: seconds(after),
                units: units(seconds(after))
                    .zip(units(seconds(before)))
                    .map(|(after, before)| (after - before).max(0.0)),
                server_user_ns: used.cpu_ns * user,
                server_kernel_ns: used.cpu_ns * (1.0 - user),
                resident_bytes: Some(after.server.resident_bytes),
                drops: after.drops.saturating_sub(before.drops),
                sent: None,
                socket_bytes: None,
                udp_memory_bytes: None,
                counters: match (&before.counters, &after.counters) {
                    (Some(before), Some(after)) => rise(before, after),
                    (None, _) | (_, None) => BTreeMap::new(),
                },
            }
        };
        self.looks.windows(2).map(sample).collect()
    }
}

/// The time that the generators counted over the part of the window that lies between two moments.
fn scale(from: Duration, to: Duration, window: Window) -> Option<f64> {
    let (from, to) = (from.max(window.opens), to.min(window.closes));
    let covered = to.checked_sub(from).filter(|covered| !covered.is_zero())?;
    Some(window.seconds() / covered.as_secs_f64())
}

/// What counters rose by between two readings.
fn rise(before: &Reading, after: &Reading) -> BTreeMap<String, f64> {
    let mut rise = Counters::default();
    rise.add_difference(&before.counters, &after.counters);
    rise.iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_while_a_server_warms_up_and_not_right_before_the_window() {
        let seconds = Duration::from_secs_f64;
        assert_eq!(next_warming(seconds(3.0), seconds(5.5)), Some(seconds(4.0)));
        assert_eq!(next_warming(seconds(4.0), seconds(5.5)), Some(seconds(5.0)));
        assert_eq!(next_warming(seconds(5.0), seconds(5.5)), None);
        assert_eq!(next_warming(seconds(6.0), seconds(5.5)), None);
    }

    fn look(milliseconds: u64, cpu_ns: f64) -> Look {
        Look {
            at: Duration::from_millis(milliseconds),
            server: Usage {
                cpu_ns,
                user_ticks: (cpu_ns / 1e7) as u64,
                resident_bytes: 4096,
                ..Usage::default()
            },
            client: None,
            system_calls: Some(milliseconds * 2),
            drops: milliseconds / 1000,
            counters: None,
            processors: ProcessorTimes::default(),
            observer_ns: 0.0,
        }
    }

    const WINDOW: Window = Window {
        opens: Duration::from_millis(1000),
        closes: Duration::from_millis(3000),
        counted: Duration::from_millis(2000),
    };

    #[test]
    fn looks_inside_the_window_are_scaled_to_it() {
        let looks = [look(1010, 1e9), look(2000, 2e9), look(2990, 2.98e9)];
        let seen = Seen::of(&looks).expect("there are looks");
        let scale = seen.scale(WINDOW).expect("they lie in it");
        assert!((seen.server().cpu_ns * scale - 2e9).abs() < 1e3);
        assert_eq!(seen.system_calls(), Some(3960));
        // A look after the end has all of the window, and nothing that counts beyond it.
        let looks = [look(1000, 0.0), look(3100, 2e9)];
        assert_eq!(Seen::of(&looks).expect("two").scale(WINDOW), Some(1.0));
        // What several generators have in common, each of which counted for longer.
        let shared = Window {
            opens: Duration::from_millis(1400),
            ..WINDOW
        };
        let looks = [look(1400, 0.0), look(3000, 1.6e9)];
        assert_eq!(Seen::of(&looks).expect("two").scale(shared), Some(1.25));
        let looks = [look(3001, 0.0), look(3100, 2e9)];
        assert_eq!(Seen::of(&looks).expect("two").scale(WINDOW), None);
        assert!(Seen::of(&looks[..1]).is_none());
    }

    #[test]
    fn a_client_that_was_there_before_is_seen_from_the_first_look_on() {
        let client = |cpu_ns: f64, resident_bytes: u64| {
            Some(Usage {
                cpu_ns,
                resident_bytes,
                ..Usage::default()
            })
        };
        let mut looks = [look(1000, 0.0), look(2000, 0.0), look(3000, 0.0)];
        (looks[0].client, looks[1].client) = (client(7e9, 9000), client(8e9, 5000));
        let seen = Seen::of(&looks).expect("there are looks").client();
        assert_eq!(
            seen.map(|usage| (usage.cpu_ns, usage.resident_bytes)),
            Some((1e9, 9000))
        );
        looks[0].client = None;
        let seen = Seen::of(&looks).expect("there are looks").client();
        assert_eq!(seen.map(|usage| usage.cpu_ns), Some(8e9));
    }

    #[test]
    fn samples_lie_between_looks() {
        let looks = [look(1000, 0.0), look(2000, 5e8), look(2995, 9e8)];
        let seen = Seen::of(&looks).expect("there are looks");
        let samples = seen.samples(WINDOW.opens, |seconds| Some(seconds * 100.0));
        assert_eq!(samples.len(), 2);
        assert_eq!((samples[0].at_seconds, samples[0].units), (1.0, Some(100.0)));
        assert_eq!(
            (samples[0].server_user_ns, samples[0].server_kernel_ns),
            (5e8, 0.0)
        );
        assert_eq!((samples[0].drops, samples[1].drops), (1, 0));
        assert_eq!(samples[1].at_seconds, 1.995);
        assert!(seen.samples(WINDOW.opens, |_| None)[0].units.is_none());
        assert!(samples.iter().all(|sample| sample.counters.is_empty()));
    }

    #[test]
    fn counters_are_sampled_where_they_were_read() {
        let read = |milliseconds: u64, sends: u32| Reading {
            at: Duration::from_millis(milliseconds),
            counters: Counters::parse(&format!("quoit_sends_total {sends}")),
        };
        let mut looks = [1000, 2000, 2500, 2900].map(|at| look(at, 0.0));
        looks[0].counters = Some(read(1100, 10));
        looks[1].counters = Some(read(2000, 40));
        looks[3].counters = Some(read(2900, 100));
        let seen = Seen::of(&looks).expect("there are looks");
        let sends: Vec<Option<f64>> = seen
            .samples(WINDOW.opens, |_| None)
            .iter()
            .map(|sample| sample.counters.get("sends").copied())
            .collect();
        assert_eq!(sends, [Some(30.0), None, None]);
        let sends = |window| seen.counters(window)["sends"];
        // 90 of them in 1.8 of the 2 seconds.
        assert!((sends(Some(WINDOW)) - 100.0).abs() < 1e-9);
        assert_eq!(sends(None), 90.0);
        let later = Window {
            opens: Duration::from_secs(3),
            closes: Duration::from_secs(4),
            ..WINDOW
        };
        assert!(seen.counters(Some(later)).is_empty());
    }
}
