//! The calls of io_uring, as a trait.
//!
//! One value is one ring: its queues, its buffer ring and its registrations. The real one maps the kernel's
//! memory; a simulated one keeps vectors. Memory shared with the kernel is reached only through here.

use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use linux_raw_sys::io_uring::{io_uring_cqe, io_uring_sqe};

pub use super::restrictions::Restrictions;
pub use super::setup::Telling;
pub use crate::engine::{ProvidedBuffer, Trigger};
use crate::errno::Errno;
use crate::features::FeatureSet;

/// One submission queue entry, exactly as the kernel reads it.
pub type SubmissionEntry = io_uring_sqe;
/// One completion queue entry of 16 bytes, exactly as the kernel writes it.
pub type CompletionEntry = io_uring_cqe;

/// How to make a ring (`io_uring_setup(2)`).
#[derive(Clone, Copy, Debug)]
pub struct RingParameters {
    /// Submission queue entries; a power of two.
    pub submission_entries: u32,
    /// Completion queue entries; a power of two, more than `submission_entries`.
    pub completion_entries: u32,
    /// `IORING_SETUP_*`; `CQSIZE` and `CLAMP` are implied.
    pub flags: u32,
    /// With `IORING_SETUP_SQPOLL`: milliseconds after which the kernel's idle thread sleeps.
    pub poll_idle_ms: u32,
    /// Microseconds after which a wait for several completions ends with the first; zero: it does not. Such waits are
    /// for rings that have `IORING_FEAT_MIN_TIMEOUT`.
    pub least_wait_us: u32,
}

/// What the kernel answered.
#[derive(Clone, Copy, Debug)]
pub struct RingProperties {
    /// `IORING_FEAT_*`.
    pub features: u32,
    /// Submission queue entries that were made.
    pub submission_entries: u32,
    /// Completion queue entries that were made.
    pub completion_entries: u32,
}

/// The only buffer group that the engine registers for stream sockets. Those of datagram sockets follow it.
pub const STREAM_GROUP: u16 = 0;

/// Sockets for the probe to try operations on, of whatever kind costs least (Unix-domain ones on Linux).
#[derive(Debug)]
pub struct ProbeSockets {
    /// A listening stream socket to which nobody connects.
    pub listener: OwnedFd,
    /// Two stream sockets, connected to each other.
    pub pair: [OwnedFd; 2],
}

/// One ring. Dropping it closes the ring and unmaps its memory.
pub trait UringSys: Sized {
    /// Bytes from which a call for one send alone costs little beside what it copies: for 32 KiB the copy takes some
    /// 4 us, the call 0.2 us.
    const LONG_SEND: usize = 32 * 1024;
    /// The same for pieces that are offered and not queued: the call also spares their sender keeping them until a later
    /// turn.
    const LONG_OFFER: usize = 8 * 1024;

    /// Makes a ring (`io_uring_setup(2)`) and maps its queues.
    ///
    /// # Errors
    /// `EINVAL` for flags that the kernel does not know; `EPERM`, `ENOSYS`, `ENOMEM`, `EMFILE` as in
    /// `io_uring_setup(2)`.
    fn setup(parameters: &RingParameters) -> Result<(Self, RingProperties), Errno>;

    /// Makes the sockets that the probe needs.
    ///
    /// # Errors
    /// Those of `socketpair(2)`, `socket(2)`, `bind(2)` and `listen(2)`.
    fn probe_sockets() -> Result<ProbeSockets, Errno>;

    /// Restricts what a ring that is disabled may be asked for once it is enabled.
    ///
    /// # Errors
    /// Those of `IORING_REGISTER_RESTRICTIONS`.
    fn restrict(&mut self, restrictions: &Restrictions) -> Result<(), Errno>;

    /// Enables a ring that was made disabled; with `SINGLE_ISSUER` the calling thread owns it from now on.
    ///
    /// # Errors
    /// Those of `IORING_REGISTER_ENABLE_RINGS`.
    fn enable(&mut self) -> Result<(), Errno>;

    /// Registers the ring's own descriptor, so that later enters need no table lookup. Owner thread only.
    ///
    /// # Errors
    /// Those of `IORING_REGISTER_RING_FDS`.
    fn register_ring_descriptor(&mut self) -> Result<(), Errno>;

    /// Has the kernel write an eventfd whenever a completion has come (`IORING_REGISTER_EVENTFD`), unless that is
    /// [stopped](Self::disarm_notifier); it must stay open as long as the ring. To be called before anything is
    /// submitted: until Linux 5.18 the call waits until no request is in flight. A ring's own descriptor does not tell
    /// a poller of deferred work.
    ///
    /// # Errors
    /// Those of `IORING_REGISTER_EVENTFD`: `EEXIST` from another thread than the owner.
    fn notify(&mut self, eventfd: RawFd) -> Result<(), Errno>;

    /// That eventfd.
    fn notifier(&self) -> Option<RawFd>;

    /// Has the eventfd not written until [`Self::arm_notifier`]: while the ring's owner runs, it looks by itself.
    fn disarm_notifier(&mut self);

    /// Has the eventfd written with each completion from now on. A completion before this call may not have been told; look for
    /// one behind it. For a poller that is told of levels the eventfd is made unreadable as well. Does nothing without one.
    fn arm_notifier(&mut self, trigger: Trigger);

    /// Tries whether a ring with `features` tells at once of what another thread does: a few rounds on a ring of its
    /// own. A process that may start no thread is not tried.
    ///
    /// # Errors
    /// `ETIME` if it was not told, or late each time; those of the calls that make the ring and what it watches.
    fn try_telling(features: FeatureSet, telling: Telling) -> Result<(), Errno>;

    /// The operations (`IORING_OP_*`) that the kernel supports, as a bit set by opcode.
    ///
    /// # Errors
    /// Those of `IORING_REGISTER_PROBE`.
    fn supported_operations(&self) -> Result<u128, Errno>;

    /// Registers a ring for provided buffers with room for `entries` (a power of two, at most 32,768).
    ///
    /// # Errors
    /// Those of `IORING_REGISTER_PBUF_RING`.
    fn register_buffer_ring(&mut self, group: u16, entries: u16) -> Result<(), Errno>;

    /// Takes a buffer ring away from the kernel, with the buffers in it. Nothing that uses it may be outstanding.
    ///
    /// # Errors
    /// Those of `IORING_UNREGISTER_PBUF_RING`.
    fn unregister_buffer_ring(&mut self, group: u16) -> Result<(), Errno>;

    /// Puts a buffer into the buffer ring; the kernel sees it after [`UringSys::publish_buffers`]. The caller
    /// keeps count and never puts more than the ring has room for.
    fn provide_buffer(&mut self, group: u16, buffer: ProvidedBuffer);

    /// Shows the kernel all buffers put so far.
    fn publish_buffers(&mut self, group: u16);

    /// Registers one memory range as fixed buffer 0.
    ///
    /// # Errors
    /// Those of `IORING_REGISTER_BUFFERS`; `ENOMEM` past `RLIMIT_MEMLOCK`.
    fn register_memory(&mut self, address: *mut u8, length: usize) -> Result<(), Errno>;

    /// Takes an entry into the submission queue, or returns false if it is full.
    fn try_push(&mut self, entry: &SubmissionEntry) -> bool;

    /// Entries taken and not yet consumed by the kernel.
    fn unsubmitted(&self) -> u32;

    /// Shows the kernel the entries taken, submits them, runs the kernel's deferred work and, with `wait_for`
    /// above 0, waits until that many completions are there or `timeout` and the thread's slack have passed
    /// (`io_uring_enter(2)` with `GETEVENTS` and `EXT_ARG`; `flags` are added, such as `IORING_ENTER_NO_IOWAIT`). Returns
    /// how many entries were consumed. Makes no system call if the kernel's polling thread needs none.
    ///
    /// # Errors
    /// `EINTR`, `ETIME` when the time is over, `EBUSY`, `EAGAIN`, `EEXIST` from another thread than the owner,
    /// and the others of `io_uring_enter(2)`.
    fn enter(&mut self, wait_for: u32, timeout: Option<Duration>, flags: u32) -> Result<u32, Errno>;

    /// Whether a completion is there to be popped.
    fn has_completion(&self) -> bool;

    /// How many of the completions that are there to be popped name a provided buffer, which is used.
    fn buffers_in_completions(&self) -> u32;

    /// Takes the oldest completion.
    fn pop(&mut self) -> Option<CompletionEntry>;

    /// Whether the kernel holds completions that found no room (`IORING_SQ_CQ_OVERFLOW`).
    fn has_overflowed(&self) -> bool;

    /// Whether deferred work waits for an enter (`IORING_SQ_TASKRUN`): what came since the last one, and what that one
    /// left of more than its share (`io_run_local_work_continue()` in the kernel).
    fn has_deferred_work(&self) -> bool;

    /// Calls to `io_uring_enter(2)` so far.
    fn enters(&self) -> u64;
}
