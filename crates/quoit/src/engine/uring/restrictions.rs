//! What a ring may be asked for: nothing but what the engine asks (`IORING_REGISTER_RESTRICTIONS` in
//! `io_uring_register(2)`). So whoever comes to write into the ring's memory, or holds its descriptor, has no file
//! opened or read by it, no command sent to a device and no memory registered.

use linux_raw_sys::io_uring as abi;
use linux_raw_sys::io_uring::io_uring_op as Opcode;
use linux_raw_sys::io_uring::io_uring_register_op as Registration;
use linux_raw_sys::io_uring::io_uring_register_restriction_op as Restriction;

use super::entry::{BUFFER_SELECT, ENTRY_FLAGS, SKIP_SUCCESS};
use super::sys::SubmissionEntry;
use crate::features::{Feature, FeatureSet};

/// Operations that the engine needs on every kernel.
const OPERATIONS: [Opcode; 10] = [
    Opcode::IORING_OP_ACCEPT,
    Opcode::IORING_OP_CONNECT,
    Opcode::IORING_OP_SEND,
    Opcode::IORING_OP_SENDMSG,
    Opcode::IORING_OP_RECV,
    Opcode::IORING_OP_RECVMSG,
    Opcode::IORING_OP_POLL_ADD,
    Opcode::IORING_OP_ASYNC_CANCEL,
    Opcode::IORING_OP_CLOSE,
    Opcode::IORING_OP_NOP,
];

/// What a ring with certain features is asked for, once it is enabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restrictions {
    /// `IORING_OP_*`, as a bit set by opcode.
    operations: u128,
    /// `IOSQE_*`.
    entry_flags: u8,
    /// `IORING_REGISTER_*`, as a bit set.
    registrations: u64,
}

impl Restrictions {
    /// Those of a ring with these features, on a kernel that knows these operations: of others it does not take a rule.
    #[must_use]
    pub fn of(features: FeatureSet, known: u128) -> Self {
        let mut operations = set(&OPERATIONS);
        if !features.contains(Feature::MultishotPoll) {
            // The wake's counter is read instead.
            operations |= set(&[Opcode::IORING_OP_READ]);
        }
        if features.contains(Feature::ZeroCopySend) {
            operations |= set(&[Opcode::IORING_OP_SEND_ZC, Opcode::IORING_OP_SENDMSG_ZC]);
        }
        let mut entry_flags = ENTRY_FLAGS;
        if !features.contains(Feature::BufferRing) {
            entry_flags &= !BUFFER_SELECT;
        }
        if !features.contains(Feature::CompletionSkip) {
            entry_flags &= !SKIP_SUCCESS;
        }
        let mut registrations = 0;
        let mut allow = |list: &[Registration]| {
            for &registration in list {
                registrations |= 1 << registration as u32;
            }
        };
        if features.contains(Feature::RegisteredRing) {
            allow(&[
                Registration::IORING_REGISTER_RING_FDS,
                Registration::IORING_UNREGISTER_RING_FDS,
            ]);
        }
        if features.contains(Feature::BufferRing) {
            // Datagram sockets have theirs, which come and go.
            allow(&[
                Registration::IORING_REGISTER_PBUF_RING,
                Registration::IORING_UNREGISTER_PBUF_RING,
            ]);
        }
        Self {
            operations: operations & known,
            entry_flags,
            registrations,
        }
    }

    /// Whether the kernel takes this entry.
    #[must_use]
    pub fn allow(&self, entry: &SubmissionEntry) -> bool {
        self.operations & 1 << entry.opcode != 0 && entry.flags & !self.entry_flags == 0
    }

    /// Whether the kernel takes this `IORING_REGISTER_*`.
    #[must_use]
    pub fn allow_registration(&self, operation: u32) -> bool {
        self.registrations & 1 << operation != 0
    }

    /// As the kernel reads them.
    pub(super) fn list(&self) -> Vec<abi::io_uring_restriction> {
        let operations = (0..u128::BITS)
            .filter(|bit| self.operations & 1 << bit != 0)
            .map(|bit| rule(Restriction::IORING_RESTRICTION_SQE_OP, bit as u8));
        let registrations = (0..u64::BITS)
            .filter(|bit| self.registrations & 1 << bit != 0)
            .map(|bit| rule(Restriction::IORING_RESTRICTION_REGISTER_OP, bit as u8));
        let flags = rule(
            Restriction::IORING_RESTRICTION_SQE_FLAGS_ALLOWED,
            self.entry_flags,
        );
        operations.chain(registrations).chain([flags]).collect()
    }
}

fn set(operations: &[Opcode]) -> u128 {
    operations
        .iter()
        .fold(0, |set, &operation| set | 1 << operation as u32)
}

fn rule(kind: Restriction, value: u8) -> abi::io_uring_restriction {
    abi::io_uring_restriction {
        opcode: kind as u16,
        // Whichever it is, it is that byte.
        __bindgen_anon_1: abi::io_uring_restriction__bindgen_ty_1 { sqe_op: value },
        resv: 0,
        resv2: [0; 3],
    }
}
