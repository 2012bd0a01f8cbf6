//! What a ring takes from the process it gives back. One test in a process of its own, as it counts everything
//! that the process has.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like the test")]

use std::fs;
use std::time::Duration;

use quoit::features::{Feature, FeatureSet};
use quoit::internals::engine::uring::sys::{RingParameters, UringSys};
use quoit::internals::engine::uring::{Ring, probe};
use quoit_skipped::skip_this;

/// More than a thread can have registered at a time (16, `IO_RINGFD_REG_MAX`).
const RINGS: usize = 100;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings_of_rings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("io_uring")).count()
}

fn used_ring(features: FeatureSet) -> Ring {
    let parameters = RingParameters {
        least_wait_us: 0,
        submission_entries: 8,
        completion_entries: 16,
        flags: 0,
        poll_idle_ms: 0,
    };
    let (mut ring, properties) = Ring::setup(&parameters).unwrap();
    assert_eq!(
        (properties.submission_entries, properties.completion_entries),
        (8, 16)
    );
    if features.contains(Feature::RegisteredRing) {
        ring.register_ring_descriptor().unwrap();
    }
    if features.contains(Feature::BufferRing) {
        ring.register_buffer_ring(0, 8).unwrap();
    }
    let mut memory = vec![0; 4096];
    ring.register_memory(memory.as_mut_ptr(), memory.len()).unwrap();
    assert_eq!(ring.enter(1, Some(Duration::ZERO), 0), Err(quoit::Errno::ETIME));
    ring
}

#[test]
fn rings_leave_nothing_behind() {
    let features = match probe::<Ring>(FeatureSet::EMPTY, false) {
        Ok(capabilities) => capabilities.features,
        Err(error) => return skip_this(error),
    };
    // What the runtime opens lazily is open after a first ring.
    drop(used_ring(features));
    let before = (descriptors(), mappings_of_rings());
    for _ in 0..RINGS {
        drop(used_ring(features));
        // Its thread's end takes the registration of its descriptor back.
        drop(std::thread::spawn(move || used_ring(features)).join().unwrap());
        probe::<Ring>(FeatureSet::EMPTY, false).unwrap();
    }
    assert_eq!((descriptors(), mappings_of_rings()), before);
}
