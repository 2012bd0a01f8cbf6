//! What a restricted ring refuses, by the kernel's own word.

use linux_raw_sys::io_uring as abi;

use super::*;
use crate::engine::uring::entry;
use crate::engine::uring::sys::{Restrictions, SubmissionEntry};

/// A ring that is restricted to what a loop with all features uses.
fn restricted() -> Option<Ring> {
    if !has(Feature::RestrictedRing) {
        return None;
    }
    let (mut ring, _) = Ring::setup(&RingParameters {
        submission_entries: 4,
        completion_entries: 8,
        flags: abi::IORING_SETUP_R_DISABLED,
        poll_idle_ms: 0,
        least_wait_us: 0,
    })
    .unwrap();
    let known = ring.supported_operations().unwrap();
    ring.restrict(&Restrictions::of(FeatureSet::ALL, known)).unwrap();
    ring.enable().unwrap();
    Some(ring)
}

/// What the kernel makes of an entry.
fn outcome(ring: &mut Ring, entry: &SubmissionEntry) -> i32 {
    assert!(ring.try_push(entry));
    ring.enter(1, Some(PATIENCE), 0).unwrap();
    ring.pop().expect("it waited for a completion").res
}

#[test]
fn only_what_a_loop_uses_is_done() {
    let Some(mut ring) = restricted() else { return };
    assert_eq!(outcome(&mut ring, &entry::nothing(UserData::marker())), 0);

    let mut counter = 0;
    let wake = Wake::new().unwrap();
    let read = entry::read_counter(wake.descriptor(), &raw mut counter, UserData::wake());
    assert_eq!(outcome(&mut ring, &read), -libc::EACCES);

    let mut drained = entry::nothing(UserData::marker());
    drained.flags = 1 << abi::io_uring_sqe_flags_bit::IOSQE_IO_DRAIN_BIT as u8;
    assert_eq!(outcome(&mut ring, &drained), -libc::EACCES);
}

#[test]
fn no_memory_is_registered_later() {
    let Some(mut ring) = restricted() else { return };
    let mut memory = vec![0_u8; 4096];
    assert_eq!(
        ring.register_memory(memory.as_mut_ptr(), memory.len()),
        Err(Errno::EACCES)
    );
    assert_eq!(ring.register_buffer_ring(STREAM_GROUP, 4), Ok(()));
}
