//! The soak (`make soak MINUTES=n`): real servers on both engines under peers that come and go in every way, for as long
//! as is asked for. No byte may be wrong; between rounds, with all peers gone, everything that was taken must have been
//! given back, and memory must not grow; at the end the servers drain and end with code 0.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

mod peers;
#[path = "../program/support.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of the program, which use all of it"
)]
mod support;
mod target;
mod watched;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::peers::{Random, Tally};
use crate::target::{Service, Target};

/// Peers at once, for each server.
const PEERS: u64 = 3;
/// What each peer does in a round.
const ACTS: u32 = 40;
/// Rounds at least, so that there is something to compare.
const ROUNDS: usize = 8;
/// Growth of the resident set that is not a leak: of its middle, from the second quarter of the rounds to the last one.
/// The allocator keeps and splits what was freed, more of it the longer, but never much more.
const GROWTH_KIB: u64 = 2048;
const GROWTH_PERCENT: u64 = 10;

/// A number of the environment, or what holds without it.
fn setting(name: &str, default: impl FnOnce() -> u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text}: give a whole number")),
        Err(_) => default(),
    }
}

#[test]
#[ignore = "takes minutes: make soak MINUTES=n"]
fn soak() {
    let length = Duration::from_secs(60 * setting("MINUTES", || 5));
    let seed = setting("SEED", || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().as_secs()
    });
    println!("soak of {} s, SEED={seed}", length.as_secs());
    let mut targets = Vec::new();
    for &engine in support::engines() {
        for service in [Service::Echo, Service::Http, Service::Rpc, Service::Datagrams] {
            targets.push(Target::start(engine, service));
        }
    }
    let tally = Tally::default();
    let progress = Progress::new(length);
    let begin = Instant::now();
    let mut rounds = 0;
    while begin.elapsed() < length || rounds < ROUNDS {
        std::thread::scope(|scope| {
            for (index, target) in targets.iter().enumerate() {
                for peer in 0..PEERS {
                    let (tally, number) = (&tally, rounds as u64 * 1000 + index as u64 * PEERS + peer);
                    scope.spawn(move || {
                        let mut random = Random::new(seed, number);
                        for _ in 0..ACTS {
                            peers::act(target, &mut random, tally);
                        }
                    });
                }
            }
        });
        for target in &mut targets {
            target.all_given_back();
        }
        rounds += 1;
        progress.tell(begin.elapsed(), &format!("{rounds} rounds, {tally}"));
    }
    progress.end();
    for target in targets {
        let (early, late) = quarters(target.resident_kib());
        println!(
            "{target}: resident {} KiB after the first round, {early} KiB in the second quarter, {late} KiB in the last",
            target.resident_kib()[0]
        );
        assert!(
            late <= early + early * GROWTH_PERCENT / 100 + GROWTH_KIB,
            "{target}: memory grows: {:?} KiB",
            target.resident_kib()
        );
        target.drain();
    }
    println!(
        "SOUND: {} s, {rounds} rounds, {tally}; no wrong byte, nothing left, memory flat, all drained; SEED={seed}",
        begin.elapsed().as_secs()
    );
}

/// The middle of the second quarter and that of the last one.
fn quarters(figures: &[u64]) -> (u64, u64) {
    let quarter = figures.len() / 4;
    let middle = |part: &[u64]| {
        let mut sorted = part.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    let last = &figures[figures.len() - quarter..];
    (middle(&figures[quarter..2 * quarter]), middle(last))
}

/// A bar on a terminal; elsewhere a line every ten seconds.
struct Progress {
    bar: Option<ProgressBar>,
    length: Duration,
    told: std::cell::Cell<Duration>,
}

impl Progress {
    fn new(length: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}").unwrap();
            ProgressBar::new(length.as_secs()).with_style(style)
        });
        Self {
            bar,
            length,
            told: std::cell::Cell::default(),
        }
    }

    fn tell(&self, elapsed: Duration, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(elapsed.as_secs().min(self.length.as_secs()));
            bar.set_message(what.to_owned());
        } else if elapsed - self.told.get() >= Duration::from_secs(10) {
            self.told.set(elapsed);
            println!("{} of {} s: {what}", elapsed.as_secs(), self.length.as_secs());
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
