//! The simulated kernel against the real one: scripts that make the same calls, through the engines' own traits, on
//! both, and note what is answered. The notes must be the same. Where the real kernel may answer in several ways, the
//! simulated one must be able to answer in the way that was seen, under some seed with faults.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

mod datagram_ports;
mod datagram_rings;
mod datagrams;
mod rings;
mod sockets;

use quoit::Address;
use quoit_sim_kernel::faults::{FaultSet, Profile};
use quoit_sim_kernel::kernel::{self, Kernel};
use quoit_sim_kernel::random::Random;

/// Seeds with faults that are tried where a run without faults differs from what was seen.
const SEEDS: u64 = 200;

/// What a script notes.
type Notes = Vec<String>;

fn simulated(seed: u64, profile: Profile, script: &dyn Fn() -> Notes) -> Notes {
    kernel::install(Kernel::new(seed, profile, 4096, false));
    let notes = script();
    let kernel = kernel::remove().unwrap();
    assert_eq!(kernel.failure, None);
    assert!(kernel.left_over().is_empty(), "{:?}", kernel.left_over());
    notes
}

/// Compares what both kernels answered.
fn compare(name: &str, real: &Notes, script: &dyn Fn() -> Notes) {
    let kind = simulated(0, Profile::kind(), script);
    if kind == *real {
        return;
    }
    // Shown if a script cannot go on under a seed.
    println!(
        "{name}: without faults the simulated kernel answers otherwise.\nreal: {real:#?}\nsimulated: {kind:#?}"
    );
    // What the scripts do not expect, as it does not happen to the real kernel here either.
    let without: FaultSet = "no-descriptors,no-memory,transfer-fails,accept-aborted"
        .parse()
        .unwrap();
    let can = (1..SEEDS).any(|seed| simulated(seed, Profile::kind(), script) == *real)
        || (0..SEEDS).any(|seed| {
            let profile = Profile::draw(&mut Random::new(seed, 2), without);
            simulated(seed, profile, script) == *real
        });
    assert!(
        can,
        "{name}: the simulated kernel never answers as the real one did.\nreal:      {real:#?}\nsimulated: {kind:#?}"
    );
}

/// An address that nobody has, of the family.
fn fresh_address(unix: bool) -> Address {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !unix {
        return Address::Tcp(([127, 0, 0, 1], 0).into());
    }
    let name = format!(
        "quoit-sim-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    Address::UnixAbstract(name.into_bytes().into())
}
