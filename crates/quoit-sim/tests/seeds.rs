//! A fixed count of seeds on both engines, and the seeds that have found faults before.

use quoit::EngineKind::{self, Epoll, Uring};
use quoit_sim::options::{Options, Workload};
use quoit_sim::run::{catch_panics, run};

/// Seeds of each engine: some seconds' worth. `make hunt` goes on from there.
const SEEDS: u64 = 2000;

fn check(seed: u64, engine: EngineKind) {
    if let Err(message) = run(&Options::new(seed, engine)).result {
        panic!("{message}\nto see it: quoit-sim run --from {seed} --seeds 1 --engine {engine}");
    }
}

#[test]
fn all_is_well_on_io_uring() {
    catch_panics();
    (0..SEEDS).for_each(|seed| check(seed, Uring));
}

#[test]
fn all_is_well_on_epoll() {
    catch_panics();
    (0..SEEDS).for_each(|seed| check(seed, Epoll));
}

/// Seeds of each engine with tasks.
const ASYNC_SEEDS: u64 = 400;

fn with_tasks(seed: u64, engine: EngineKind) -> Options {
    Options {
        workload: Workload::Async,
        ..Options::new(seed, engine)
    }
}

#[test]
fn all_is_well_with_tasks() {
    catch_panics();
    for seed in 0..ASYNC_SEEDS {
        for engine in [Uring, Epoll] {
            if let Err(message) = run(&with_tasks(seed, engine)).result {
                panic!(
                    "{message}\nto see it: quoit-sim run --workload async --from {seed} --seeds 1 --engine {engine}"
                );
            }
        }
    }
}

/// Runs that fail without the mending of what they found (`bugs/found-*.patch`). What a seed does changes with the
/// workload: `bugs/prove.sh` finds new ones for the same bugs.
const REGRESSIONS: &[(u64, EngineKind, &str)] = &[
    (56, Uring, "an eventfd that is registered with requests in flight"),
    (
        20,
        Uring,
        "completions that overflow where that locks the thread up",
    ),
    (17, Uring, "a poller that is not told of work that was put off"),
    (55, Uring, "data of an aborted connection in a later turn"),
    (960, Uring, "cancelling sends that have ended, for ever"),
    (
        11_707,
        Uring,
        "a deadline of an attempt to connect that had been given up",
    ),
    (
        93_328,
        Uring,
        "a receive that is always armed when the only buffer is used",
    ),
    (242, Uring, "a stream cut short that looked complete"),
    (
        54,
        Uring,
        "lent memory that is not acknowledged when both have ended",
    ),
    (
        1906,
        Epoll,
        "pressure of a datagram socket that was closed in the same turn",
    ),
    (
        8206,
        Uring,
        "a datagram socket that is gone and keeps the loop awake",
    ),
    (
        544,
        Epoll,
        "a Unix datagram that waits for room of which nobody tells",
    ),
    (
        149,
        Uring,
        "a Unix datagram that waited for room and came without its bytes",
    ),
    (105_957, Uring, "a turn for each datagram of a batch to nobody"),
    (
        2299,
        Uring,
        "a send blamed for what another had met, of which a receive had told",
    ),
    (
        7_227_170,
        Uring,
        "a send blamed at its socket's end for what another had met",
    ),
    (
        4_156_362,
        Epoll,
        "a lease that the reference let go of after the second loop's last turn",
    ),
    (
        11_000_023_999,
        Epoll,
        "queues of failed sends that wait for their turn to end, one a turn",
    ),
    (
        8_000_007_250,
        Uring,
        "a pause behind a resume that found the connection at its end",
    ),
    (
        5_172_802,
        Epoll,
        "a pause in a batch, whose connection a failing send ended before the turn",
    ),
    (
        5_442_513,
        Epoll,
        "a peer that begins to read between the look at its progress and the reset",
    ),
    (
        5_010_044_335,
        Uring,
        "a loop that accepts one for each that it closes, taken to spin",
    ),
    (
        4_363_205,
        Uring,
        "a receive that waits for a slot while completions come faster than they are taken",
    ),
    (
        3_423_118,
        Uring,
        "send memory that those who take nothing have filled to the last quarter",
    ),
    (
        2_547_324,
        Epoll,
        "copies of what was received up to the last quarter",
    ),
    (
        1_720_914,
        Epoll,
        "send chunks that are told of and taken by those that come before",
    ),
    (
        2_490_272,
        Epoll,
        "a look at memory for connections of which there are none",
    ),
    (31, Uring, "what had come to a paused connection whose send fails"),
    (
        76_011_059,
        Uring,
        "what had come to a connection that is paused while it ends",
    ),
];

#[test]
fn what_failed_once_does_not_fail_again() {
    catch_panics();
    for &(seed, engine, what) in REGRESSIONS {
        let outcome = run(&Options::new(seed, engine));
        assert!(outcome.result.is_ok(), "{what}: {:?}", outcome.result);
    }
}

/// The same, with tasks.
const ASYNC_REGRESSIONS: &[(u64, EngineKind, &str)] = &[
    (
        10,
        Uring,
        "a lease, and a mark that is waited for, that were lent to a queue which takes no more pieces",
    ),
    (
        10_861,
        Epoll,
        "a connection that had failed before it was told of, accepted as one without an address",
    ),
    (
        21_867,
        Uring,
        "an attempt to connect that a loop was to begin, and had ended before",
    ),
    (25_005, Epoll, "the same, on epoll"),
    (
        91_250,
        Uring,
        "a peer that takes nothing and has the only slot, reset for it",
    ),
];

#[test]
fn what_failed_once_with_tasks_does_not_fail_again() {
    catch_panics();
    for &(seed, engine, what) in ASYNC_REGRESSIONS {
        let outcome = run(&with_tasks(seed, engine));
        assert!(outcome.result.is_ok(), "{what}: {:?}", outcome.result);
    }
}

#[test]
fn a_seed_always_does_the_same() {
    catch_panics();
    for engine in [Uring, Epoll] {
        for seed in 0..20 {
            for options in [Options::new(seed, engine), with_tasks(seed, engine)] {
                let options = Options {
                    trace: true,
                    ..options
                };
                check_same(&options);
            }
        }
    }
}

fn check_same(options: &Options) {
    let [one, other] = [(); 2].map(|()| run(options).trace);
    // Addresses of memory differ from run to run, and stand in submissions only.
    let told = |trace: Vec<String>| -> Vec<String> {
        trace
            .into_iter()
            .filter(|line| !line.contains("submission"))
            .collect()
    };
    assert_eq!(
        told(one),
        told(other),
        "seed {} on {}",
        options.seed,
        options.engine
    );
}
