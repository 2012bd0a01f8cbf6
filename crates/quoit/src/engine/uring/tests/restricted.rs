//! What a restricted ring refuses: by the rules, and by the kernel's own word.

use linux_raw_sys::io_uring as abi;
use linux_raw_sys::io_uring::io_uring_op as Opcode;
use linux_raw_sys::io_uring::io_uring_register_op as Registration;

use super::*;
use crate::engine::uring::entry;
use crate::engine::uring::sys::{Restrictions, SubmissionEntry};

/// A ring that is restricted to what a loop with all features that there are uses.
fn restricted() -> Option<(Ring, FeatureSet)> {
    if !has(Feature::RestrictedRing) {
        return None;
    }
    let features = found()?;
    let (mut ring, _) = Ring::setup(&RingParameters {
        submission_entries: 4,
        completion_entries: 8,
        flags: abi::IORING_SETUP_R_DISABLED,
        poll_idle_ms: 0,
        least_wait_us: 0,
    })
    .unwrap();
    let known = ring.supported_operations().unwrap();
    ring.restrict(&Restrictions::of(features, known)).unwrap();
    ring.enable().unwrap();
    Some((ring, features))
}

/// What the kernel makes of an entry.
fn outcome(ring: &mut Ring, entry: &SubmissionEntry) -> i32 {
    assert!(ring.try_push(entry));
    ring.enter(1, Some(PATIENCE), 0).unwrap();
    ring.pop().expect("it waited for a completion").res
}

#[test]
fn only_what_a_loop_uses_is_done() {
    let Some((mut ring, features)) = restricted() else {
        return;
    };
    assert_eq!(outcome(&mut ring, &entry::nothing(UserData::marker())), 0);

    let mut counter = 0;
    let wake = Wake::new().unwrap();
    let read = entry::read_counter(wake.descriptor(), &raw mut counter, UserData::wake());
    if features.contains(Feature::MultishotPoll) {
        assert_eq!(outcome(&mut ring, &read), -libc::EACCES);
    }

    let mut drained = entry::nothing(UserData::marker());
    drained.flags = 1 << abi::io_uring_sqe_flags_bit::IOSQE_IO_DRAIN_BIT as u8;
    assert_eq!(outcome(&mut ring, &drained), -libc::EACCES);
}

#[test]
fn no_memory_is_registered_later() {
    let Some((mut ring, features)) = restricted() else {
        return;
    };
    let mut memory = vec![0_u8; 4096];
    assert_eq!(
        ring.register_memory(memory.as_mut_ptr(), memory.len()),
        Err(Errno::EACCES)
    );
    if features.contains(Feature::BufferRing) {
        assert_eq!(ring.register_buffer_ring(STREAM_GROUP, 4), Ok(()));
    }
}

/// An entry with nothing but an operation and flags.
fn of(operation: Opcode, flags: u8) -> SubmissionEntry {
    let mut entry = entry::nothing(UserData::marker());
    entry.opcode = operation as u8;
    entry.flags = flags;
    entry
}

#[test]
fn the_rules_follow_the_features() {
    let all = Restrictions::of(FeatureSet::ALL, u128::MAX);
    let none = Restrictions::of(FeatureSet::EMPTY, u128::MAX);
    for operation in [
        Opcode::IORING_OP_RECV,
        Opcode::IORING_OP_SENDMSG,
        Opcode::IORING_OP_CLOSE,
    ] {
        assert!(all.allow(&of(operation, 0)) && none.allow(&of(operation, 0)));
    }
    for operation in [Opcode::IORING_OP_OPENAT, Opcode::IORING_OP_URING_CMD] {
        assert!(!all.allow(&of(operation, 0)) && !none.allow(&of(operation, 0)));
    }
    // The wake's counter is read where it cannot be polled again and again.
    let read = of(Opcode::IORING_OP_READ, 0);
    assert!(!all.allow(&read) && none.allow(&read));
    let zero_copy = of(Opcode::IORING_OP_SEND_ZC, 0);
    assert!(all.allow(&zero_copy) && !none.allow(&zero_copy));
    let select = of(Opcode::IORING_OP_RECV, entry::BUFFER_SELECT);
    assert!(all.allow(&select) && !none.allow(&select));
    let quiet = of(Opcode::IORING_OP_SEND, entry::SKIP_SUCCESS);
    assert!(all.allow(&quiet) && !none.allow(&quiet));

    let buffers = Registration::IORING_REGISTER_PBUF_RING as u32;
    assert!(all.allow_registration(buffers) && !none.allow_registration(buffers));
    assert!(!all.allow_registration(Registration::IORING_REGISTER_BUFFERS as u32));
}

#[test]
fn a_kernel_gets_no_rule_for_an_operation_that_it_does_not_know() {
    let known = 1 << Opcode::IORING_OP_SEND as u32 | 1 << Opcode::IORING_OP_OPENAT as u32;
    let rules = Restrictions::of(FeatureSet::EMPTY, known);
    assert!(rules.allow(&of(Opcode::IORING_OP_SEND, 0)));
    assert!(!rules.allow(&of(Opcode::IORING_OP_RECV, 0)));
    assert!(!rules.allow(&of(Opcode::IORING_OP_OPENAT, 0)));
}
