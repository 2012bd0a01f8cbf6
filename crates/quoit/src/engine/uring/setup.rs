//! How a ring is set up, and how that fails.

use std::fmt;
use std::os::fd::RawFd;
use std::time::Duration;

use linux_raw_sys::io_uring as abi;

use super::sys::RingProperties;
use crate::errno::Errno;
use crate::features::{Feature, FeatureSet};

/// The sizes and modes of one engine's ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UringSettings {
    /// Submission queue entries; a power of two. A turn that submits more makes a further system call.
    pub submission_entries: u32,
    /// Completion queue entries; a power of two, more than `submission_entries`. Completions that find no room
    /// are kept by the kernel, at a cost.
    pub completion_entries: u32,
    /// Slots of the pool that the kernel holds for receiving; a power of two, at most 32,768.
    pub buffer_entries: u16,
    /// Let a thread of the kernel's take the submissions (`IORING_SETUP_SQPOLL`), which sleeps after this time
    /// without any; whole milliseconds. Excludes [`Feature::DeferTaskrun`] and
    /// [`Feature::CooperativeTaskrun`], and makes accepting single-shot.
    pub kernel_poll: Option<Duration>,
    /// Register the pool's memory with the ring, so that zero-copy sends out of it are cheaper. Charged against
    /// `RLIMIT_MEMLOCK`.
    pub register_pool: bool,
    /// How long a wait goes on for more than the first completion; zero: not at all.
    pub coalesce: Duration,
    /// Completions that end such a wait before that; at least 1.
    pub coalesce_at_most: u32,
    /// An eventfd that the kernel shall write with completions, for a poller outside. It must stay open as long as the
    /// engine, and excludes [`Feature::DeferTaskrun`].
    pub notifier: Option<RawFd>,
}

/// A step of probing or of setting up a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Making a ring (`io_uring_setup(2)`).
    Setup,
    /// Enabling it (`IORING_REGISTER_ENABLE_RINGS`).
    Enable,
    /// Asking which operations there are (`IORING_REGISTER_PROBE`).
    ListOperations,
    /// Looking for a property of the ring, an `IORING_FEAT_*`.
    Property(&'static str),
    /// Looking for an operation, an `IORING_OP_*`.
    Operation(&'static str),
    /// Making sockets to try operations on.
    Sockets,
    /// Trying a feature.
    Try(Feature),
    /// Registering the buffer ring (`IORING_REGISTER_PBUF_RING`).
    BufferRing,
    /// Registering the pool's memory (`IORING_REGISTER_BUFFERS`).
    RegisterPool,
    /// Registering the eventfd for a poller outside (`IORING_REGISTER_EVENTFD`).
    Notifier,
    /// Trying whether a loop is told of what happens elsewhere.
    Telling(Telling),
    /// Looking for a [level that was proven](FeatureSet::PROVEN).
    Proof,
}

/// Ways in which a loop is told of what happens while it is not in the kernel, or sleeps there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Telling {
    /// A write to the loop's eventfd by another thread ends a wait of the ring.
    Wakes,
    /// A completion makes the registered eventfd readable for whoever polls it, though nobody enters the ring.
    Completions,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup => f.write_str("making a ring (io_uring_setup)"),
            Self::Enable => f.write_str("enabling the ring (IORING_REGISTER_ENABLE_RINGS)"),
            Self::ListOperations => f.write_str("asking for its operations (IORING_REGISTER_PROBE)"),
            Self::Property(name) => write!(f, "looking for the property {name}"),
            Self::Operation(name) => write!(f, "looking for the operation {name}"),
            Self::Sockets => f.write_str("making sockets to try operations on"),
            Self::Try(feature) => write!(f, "trying {feature}"),
            Self::BufferRing => f.write_str("registering the buffer ring (IORING_REGISTER_PBUF_RING)"),
            Self::RegisterPool => f.write_str("registering the pool's memory (IORING_REGISTER_BUFFERS)"),
            Self::Notifier => f.write_str("registering an eventfd for a poller (IORING_REGISTER_EVENTFD)"),
            Self::Proof => f.write_str("looking for a set of features that was tried on any kernel"),
            Self::Telling(Telling::Wakes) => f.write_str("waking a ring that waits, from another thread,"),
            Self::Telling(Telling::Completions) => {
                f.write_str("being told of completions by a registered eventfd (IORING_REGISTER_EVENTFD)")
            }
        }
    }
}

/// io_uring cannot be used: which step failed, and how the kernel answered. What the kernel simply does not
/// have is `EOPNOTSUPP`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetupError {
    /// What failed.
    pub step: Step,
    /// The kernel's answer. `ENOMEM` passes when other rings of the same user have given back what they
    /// locked, so it is worth trying again for a while.
    pub errno: Errno,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "io_uring: {} failed: {}", self.step, self.errno)
    }
}

impl std::error::Error for SetupError {}

/// Attaches the step to the kernel's answer.
pub(super) trait During<T> {
    fn during(self, step: Step) -> Result<T, SetupError>;
}

impl<T> During<T> for Result<T, Errno> {
    fn during(self, step: Step) -> Result<T, SetupError> {
        self.map_err(|errno| SetupError { step, errno })
    }
}

/// The features that are flags of `io_uring_setup(2)`, each after what it needs.
pub(super) const SETUP_FEATURES: [Feature; 5] = [
    Feature::SubmitAll,
    Feature::CooperativeTaskrun,
    Feature::SingleIssuer,
    Feature::DeferTaskrun,
    Feature::NoSubmissionArray,
];

/// The flags of a ring with `features`. It is made disabled, as its owner is known later.
pub(super) fn setup_flags(features: FeatureSet, kernel_poll: bool) -> u32 {
    let mut flags = abi::IORING_SETUP_R_DISABLED;
    for feature in features.iter() {
        flags |= match feature {
            Feature::SubmitAll => abi::IORING_SETUP_SUBMIT_ALL,
            Feature::SingleIssuer => abi::IORING_SETUP_SINGLE_ISSUER,
            Feature::NoSubmissionArray => abi::IORING_SETUP_NO_SQARRAY,
            _ => 0,
        };
    }
    // The kernel's polling thread runs the ring's work itself, and refuses every flag about who shall.
    flags |= if kernel_poll {
        abi::IORING_SETUP_SQPOLL
    } else if features.contains(Feature::DeferTaskrun) {
        abi::IORING_SETUP_DEFER_TASKRUN | abi::IORING_SETUP_TASKRUN_FLAG
    } else if features.contains(Feature::CooperativeTaskrun) {
        abi::IORING_SETUP_COOP_TASKRUN | abi::IORING_SETUP_TASKRUN_FLAG
    } else {
        0
    };
    flags
}

/// How an engine waits for completions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    /// Whether a wait counts as one for a disk (`IORING_ENTER_NO_IOWAIT`).
    no_iowait: bool,
    /// Whether waits coalesce.
    pub(super) coalesces: bool,
    /// How many completions end a wait that coalesces.
    at_most: u32,
    /// How long to sleep before a wait, whatever completes: for a kernel that cannot wait for several and no longer.
    pub(super) sleep_before: Duration,
}

impl Waits {
    pub(super) fn of(settings: &UringSettings, features: FeatureSet, ring: &RingProperties) -> Self {
        let kernel_coalesces =
            !settings.coalesce.is_zero() && ring.features & abi::IORING_FEAT_MIN_TIMEOUT != 0;
        let no_iowait = features.contains(Feature::NoIowait);
        let (at_most, sleep_before) = if kernel_coalesces {
            // Not `clamp`: the queue may have a single entry, for which the kernel waits then.
            let completions = settings.coalesce_at_most.min(ring.completion_entries).max(2);
            (completions, Duration::ZERO)
        } else {
            (1, settings.coalesce)
        };
        Self {
            no_iowait,
            coalesces: true,
            at_most,
            sleep_before,
        }
    }

    /// Of `io_uring_enter(2)`.
    pub(super) fn flags(&self) -> u32 {
        if self.no_iowait {
            abi::IORING_ENTER_NO_IOWAIT
        } else {
            0
        }
    }

    /// How many completions end a wait.
    pub(super) fn completions(&self) -> u32 {
        if self.coalesces { self.at_most } else { 1 }
    }
}
