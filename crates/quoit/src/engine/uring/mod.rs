//! The io_uring engine.
//!
//! One `io_uring_enter(2)` a turn submits everything, runs the kernel's deferred work and waits. What a kernel
//! lacks is done without, feature by feature: see [`probe()`].

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use linux_raw_sys::io_uring as abi;

use self::datagram::DatagramSocket;
use self::receive::ReceiveMode;
use self::restrictions::Restrictions;
use self::setup::{During, Waits, setup_flags};
use self::state::{Connection, Listener};
use self::submission::is_passing;
use self::sys::{RingParameters, STREAM_GROUP, SubmissionEntry, UringSys};
use self::user_data::{Tag, UserData};
use super::enters::EnterSizes;
use super::slot_table::SlotTable;
use super::{
    Completion, Completions, DatagramBatch, Engine, EngineKind, Handle, Message, Operation, PollDescriptor,
    Received, SendManner, SendMode, Trigger, sleep_to_coalesce,
};
use crate::counters::LiveCounters;
use crate::errno::Errno;
use crate::features::{Feature, FeatureSet};
use crate::id::Slot;
use crate::pool::Pool;
use crate::sys::{SocketSys, Time};
use crate::thread::ThreadNumber;

mod buffer_ring;
mod cancel;
mod complete;
mod connect;
mod datagram;
mod entry;
mod mapping;
mod probe;
mod receive;
mod restrictions;
mod ring;
mod send;
mod setup;
mod state;
mod submission;
pub mod sys;
mod telling;
mod user_data;

#[cfg(test)]
mod tests;

pub use self::probe::{Capabilities, Missing, ProbeError, probe};
pub use self::ring::Ring;
pub use self::setup::{SetupError, Step, Telling, UringSettings};

/// Accepts beyond those in the completion queue that can come after accepting was told to stop: one whose
/// completion found no room, those that take the places of completions taken meanwhile, and the 16 that kernels before
/// 6.10 keep beside the queue until they look whether it is full (`io_fill_cqe_req_aux` with `IO_URING_F_COMPLETE_DEFER`).
const ACCEPT_SLACK: u32 = 8 + 16;

/// The engine on io_uring, over a ring `S` and the socket calls `K`.
///
/// Dropping it does not wait for what is outstanding: see [`Engine::quiesce`]. Descriptors whose closes the kernel
/// has not taken by then are closed.
pub struct UringEngine<S: UringSys, K: SocketSys> {
    sys: S,
    system: K,
    connections: SlotTable<Connection>,
    listeners: SlotTable<Listener>,
    datagrams: SlotTable<DatagramSocket>,
    /// Completions that came about without the ring.
    ready: VecDeque<Completion>,
    /// Entries that found no room in the submission queue although it was flushed; they go first.
    spilled: VecDeque<SubmissionEntry>,
    /// Closes that the kernel has not taken yet: the number of the submission, and the descriptor, which is the
    /// kernel's from then on.
    closing: Vec<(u64, OwnedFd)>,
    /// Room in the submission queue.
    submission_entries: usize,
    /// Buffers in the kernel's buffer ring, and how many shall be there.
    buffers: u32,
    buffer_entries: u32,
    receive_mode: ReceiveMode,
    accepts_multishot: bool,
    accept_margin: u32,
    zero_copy: bool,
    registered_pool: bool,
    skips_success: bool,
    /// Whether a thread of the kernel's takes the submissions (`IORING_SETUP_SQPOLL`).
    kernel_polls: bool,
    /// Whether a send is first tried without waiting, and without a completion if that succeeds: most do, and
    /// telling each would end the wait of the very call that submits it. Not if the kernel's thread submits: then
    /// nothing ends at a known moment.
    attempts_sends: bool,
    /// Attempts whose end is not known yet: the number of the submission, and the connection.
    attempts: Vec<(u64, Slot)>,
    /// The number of a submission that marks the end of some of them, until it has completed.
    marker: Option<u64>,
    /// The last enter has left attempts behind that nobody waited for then, but perhaps does now. The next one must
    /// not wait either: their success is silent.
    attempts_left: bool,
    waits: Waits,
    flush_flags: u32,
    features: FeatureSet,
    wake: RawFd,
    /// Where the wake's counter is read to, where it cannot be watched without reading.
    wake_counter: Option<Box<u64>>,
    /// Whether the wake is being watched.
    watching: bool,
    owner: Option<ThreadNumber>,
    quiescing: bool,
    overflowed: bool,
    failure: Option<Errno>,
    enter_sizes: EnterSizes,
    counters: Arc<LiveCounters>,
}

impl<S: UringSys, K: SocketSys> UringEngine<S, K> {
    /// Makes the ring, disabled: [`Engine::bind`] enables it on the thread that will own it.
    ///
    /// # Errors
    /// The step that failed and the kernel's error. `ENOMEM` is worth trying again for a while, as other rings
    /// of the same user give back what they locked only later.
    pub fn new(
        settings: &UringSettings,
        capabilities: &Capabilities,
        system: K,
        pool: &mut Pool,
    ) -> Result<Self, SetupError> {
        let features = capabilities.features.usable();
        let kernel_poll = settings.kernel_poll.is_some();
        let (mut sys, properties) = S::setup(&RingParameters {
            submission_entries: settings.submission_entries,
            completion_entries: settings.completion_entries,
            flags: setup_flags(features, kernel_poll),
            poll_idle_ms: settings
                .kernel_poll
                .map_or(0, |idle| u32::try_from(idle.as_millis()).unwrap_or(u32::MAX)),
            least_wait_us: u32::try_from(settings.coalesce.as_micros()).unwrap_or(u32::MAX),
        })
        .during(Step::Setup)?;
        if let Some(notifier) = settings.notifier {
            assert!(
                !features.contains(Feature::DeferTaskrun) || kernel_poll,
                "a poller is told late or never of work that is put off"
            );
            // Before anything is submitted: until Linux 5.18 this waits until the ring has no request in flight
            // (`io_register_op_must_quiesce` there), for ever as soon as one waits for a peer.
            sys.notify(notifier).during(Step::Notifier)?;
        }
        let mut buffer_entries = 0;
        if features.contains(Feature::BufferRing) {
            sys.register_buffer_ring(STREAM_GROUP, settings.buffer_entries)
                .during(Step::BufferRing)?;
            buffer_entries = u32::from(settings.buffer_entries);
        }
        if settings.register_pool {
            let (address, length) = pool.memory();
            sys.register_memory(address, length).during(Step::RegisterPool)?;
        }
        if features.contains(Feature::RestrictedRing) {
            // What was registered above is past: these hold from when the ring is enabled.
            let known = sys.supported_operations().during(Step::ListOperations)?;
            sys.restrict(&Restrictions::of(features, known))
                .during(Step::Try(Feature::RestrictedRing))?;
        }
        // With the kernel's own thread accepting while completions are being taken there would be no bound.
        let accepts_multishot = features.contains(Feature::MultishotAccept) && !kernel_poll;
        Ok(Self {
            sys,
            system,
            connections: SlotTable::default(),
            listeners: SlotTable::default(),
            datagrams: SlotTable::default(),
            ready: VecDeque::with_capacity(128),
            spilled: VecDeque::new(),
            closing: Vec::new(),
            submission_entries: properties.submission_entries as usize,
            buffers: 0,
            buffer_entries,
            receive_mode: ReceiveMode::of(features),
            accepts_multishot,
            accept_margin: if accepts_multishot {
                properties.completion_entries + ACCEPT_SLACK
            } else {
                0
            },
            zero_copy: features.contains(Feature::ZeroCopySend),
            registered_pool: settings.register_pool,
            skips_success: features.contains(Feature::CompletionSkip),
            kernel_polls: kernel_poll,
            attempts_sends: features.contains(Feature::AttemptedSend) && !kernel_poll,
            attempts: Vec::with_capacity(128),
            marker: None,
            attempts_left: false,
            waits: Waits::of(settings, features, &properties),
            flush_flags: if kernel_poll { abi::IORING_ENTER_SQ_WAIT } else { 0 },
            features,
            wake: -1,
            wake_counter: None,
            watching: false,
            owner: None,
            quiescing: false,
            overflowed: false,
            failure: None,
            enter_sizes: EnterSizes::default(),
            counters: Arc::default(),
        })
    }

    /// Whether a completion comes of an entry that succeeds, but for sends that are attempts.
    #[inline]
    fn is_counted(&self, tag: Tag) -> bool {
        !(self.skips_success && matches!(tag, Tag::Cancel | Tag::Close))
    }

    fn watch_wake(&mut self, pool: &mut Pool) {
        self.watching = true;
        let entry = if self.features.contains(Feature::MultishotPoll) {
            entry::poll_multishot(self.wake, libc::POLLIN, UserData::wake())
        } else {
            // A poll for one event would find the counter above zero for ever, as nobody else reads it.
            let counter = self.wake_counter.get_or_insert_default();
            entry::read_counter(self.wake, &raw mut **counter, UserData::wake())
        };
        self.push(entry, pool);
    }

    fn woken(&mut self, result: i32, more: bool, pool: &mut Pool, completions: &mut Completions) {
        self.watching = more;
        if result >= 0 {
            completions.push(Completion::Woken);
        } else if !matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN) {
            self.failure = Some(Errno::new(-result));
            return;
        }
        if !more && !self.quiescing {
            self.watch_wake(pool);
        }
    }

    fn close(&mut self, handle: Handle, descriptor: OwnedFd, pool: &mut Pool) {
        let slot = match handle {
            Handle::Connection(slot) => {
                if let Some(connection) = self.connections.find(slot) {
                    debug_assert!(
                        connection.is_idle(),
                        "a connection is closed when nothing is outstanding"
                    );
                    let number = connection.receive.number;
                    *connection = Connection::default();
                    // Cancellations of its last receive may be on their way yet.
                    connection.receive.number = number;
                }
                slot
            }
            Handle::Listener(slot) => {
                if let Some(listener) = self.listeners.find(slot) {
                    debug_assert!(
                        !listener.accepting,
                        "a listener is closed when nothing is outstanding"
                    );
                }
                // At once, not with the next submission: its address is free when its end is reported.
                drop(descriptor);
                self.counters.system_calls.add(1);
                return;
            }
            Handle::Datagram(slot) => {
                self.forget_datagrams(slot);
                // At once, as above.
                drop(descriptor);
                self.counters.system_calls.add(1);
                return;
            }
        };
        let data = UserData::new(Tag::Close, slot, 0);
        let entry = entry::close(descriptor.as_raw_fd(), self.skips_success, data);
        self.closing.push((self.counters.submissions.get(), descriptor));
        self.push_silent(entry, pool);
    }

    fn is_owner(&self) -> bool {
        self.owner == Some(ThreadNumber::current())
    }

    fn is_quiet(&self) -> bool {
        self.counters.in_flight.get() == 0
            && self.sys.unsubmitted() == 0
            && self.spilled.is_empty()
            && !self.sys.has_completion()
    }
}

impl<S: UringSys, K: SocketSys> Engine for UringEngine<S, K> {
    fn kind(&self) -> EngineKind {
        EngineKind::Uring
    }

    fn bind(&mut self, wake: RawFd, pool: &mut Pool) -> Result<(), Errno> {
        self.sys.enable()?;
        self.owner = Some(ThreadNumber::current());
        if self.features.contains(Feature::RegisteredRing) {
            // A thread has room for 16; without, an enter costs a little more.
            let _ = self.sys.register_ring_descriptor();
        }
        self.wake = wake;
        self.watch_wake(pool);
        Ok(())
    }

    #[inline(always)]
    fn send(
        &mut self,
        connection: Slot,
        descriptor: RawFd,
        message: Message,
        mode: SendMode,
        pool: &mut Pool,
    ) {
        self.start_send(connection, descriptor, message, mode, pool);
    }

    /// What is long: the call costs little beside the copy, and then the caller can use the same memory for what comes next, which
    /// is in the processor's cache.
    #[inline]
    fn sends_at_once(&self, bytes: usize, offered: bool) -> bool {
        let long = if offered { S::LONG_OFFER } else { S::LONG_SEND };
        bytes >= long && !self.kernel_polls
    }

    fn send_at_once(
        &mut self,
        _connection: Slot,
        descriptor: RawFd,
        message: &mut Message,
    ) -> Option<Result<usize, Errno>> {
        self.send_long(descriptor, message)
    }

    #[inline]
    fn submit(&mut self, operation: Operation, pool: &mut Pool) {
        match operation {
            Operation::Send {
                connection,
                descriptor,
                message,
                mode,
            } => self.start_send(connection, descriptor, message, mode, pool),
            Operation::Receive {
                connection,
                descriptor,
                budget,
                waited,
            } => self.start_receive(connection, descriptor, budget, waited, pool),
            Operation::Discard {
                connection,
                descriptor,
            } => self.start_discard(connection, descriptor, pool),
            Operation::Accept {
                listener,
                descriptor,
                limit,
            } => self.start_accept(listener, descriptor, limit, pool),
            Operation::Connect {
                connection,
                descriptor,
                address,
            } => self.start_connect(connection, descriptor, address, pool),
            Operation::SendFile {
                connection,
                descriptor,
                file,
                offset,
                length,
            } => self.start_send_file(connection, descriptor, file, offset, length, pool),
            Operation::ReceiveDatagrams { socket } => self.start_datagrams(socket, pool),
            Operation::Cancel { handle, kind } => self.cancel(handle, kind, pool),
            Operation::Close { handle, descriptor } => self.close(handle, descriptor, pool),
        }
    }

    fn open_datagrams(
        &mut self,
        socket: Slot,
        descriptor: RawFd,
        control: u32,
        buffers: u16,
    ) -> Result<(), Errno> {
        self.prepare_datagrams(socket, descriptor, control, buffers)
    }

    #[inline]
    fn provide_datagram_buffers(&mut self, socket: Slot, pool: &mut Pool, count: usize, length: u32) {
        self.take_datagram_buffers(socket, pool, count, length);
    }

    fn send_datagrams(
        &mut self,
        socket: Slot,
        batch: Box<DatagramBatch>,
        manner: SendManner,
        pool: &mut Pool,
    ) -> Option<Box<DatagramBatch>> {
        self.submit_datagrams(socket, batch, manner, pool)
    }

    #[inline]
    fn may_sleep(&self) -> bool {
        !self.sys.has_completion()
            && self.ready.is_empty()
            && self.spilled.is_empty()
            && !self.attempts_left
            && !self.sys.has_overflowed()
    }

    fn wait(&mut self, timeout: Option<Duration>, pool: &mut Pool) -> Result<(), Errno> {
        debug_assert!(self.is_owner(), "an engine belongs to the thread that bound it");
        if let Some(errno) = self.failure {
            return Err(errno);
        }
        // The loop is not parked now, whatever it enters the ring for before it is again.
        self.sys.disarm_notifier();
        if !self.spilled.is_empty() {
            self.unspill(pool);
        }
        self.provide_buffers(pool);
        self.note_overflow();
        let at_hand = !self.may_sleep();
        let sleeps = !at_hand && timeout != Some(Duration::ZERO);
        let enters = sleeps || self.sys.unsubmitted() > 0 || self.overflowed || self.sys.has_deferred_work();
        if !enters {
            // Everything was submitted before, attempts included: taking completions in resolves them.
            self.attempts_left = false;
            return Ok(());
        }
        let (wait_for, left, flags) = if sleeps {
            let left = self.sleep_first(timeout);
            (self.waits.completions(), left, self.waits.flags())
        } else {
            (0, None, 0)
        };
        let result = self.enter(wait_for, left, flags);
        self.attempts_left = !self.attempts.is_empty() && self.sys.unsubmitted() > 0;
        match result {
            Ok(_) => Ok(()),
            Err(errno) if is_passing(errno) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn coalesce(&mut self, on: bool) {
        self.waits.coalesces = on;
    }

    /// The notifier. A wake of the loop's own eventfd would have to come through the ring, which watches it, to the
    /// registered one: a write to an eventfd from within a write to another. The kernel puts those off, and not all
    /// of them came (seen on 6.18).
    fn poll_descriptor(&self) -> Option<PollDescriptor> {
        self.sys.notifier().map(PollDescriptor::Notifier)
    }

    fn park(&mut self, trigger: Trigger, pool: &mut Pool) -> bool {
        self.provide_buffers(pool);
        let at_rest = |of: &Self| of.may_sleep() && of.sys.unsubmitted() == 0 && !of.sys.has_deferred_work();
        if !at_rest(self) {
            return false;
        }
        // Between two looks at the ring: what came before shows in the ring after it, and what comes later is told.
        self.sys.arm_notifier(trigger);
        self.counters
            .system_calls
            .add(u64::from(trigger == Trigger::Level));
        at_rest(self)
    }

    #[inline]
    fn reap(&mut self, pool: &mut Pool, limit: usize, completions: &mut Completions) -> bool {
        // They cost nothing more, and count towards no limit: else those that always end at once would keep the ring waiting.
        if !self.ready.is_empty() {
            self.ready
                .drain(..)
                .for_each(|completion| completions.push(completion));
        }
        let mut taken = 0;
        while taken < limit
            && let Some(entry) = self.sys.pop()
        {
            self.complete(&entry, pool, completions);
            taken += 1;
        }
        self.resolve_attempts(pool, completions);
        !self.may_sleep()
    }

    fn receivable(&self, pool: &Pool) -> usize {
        pool.free() + self.buffers as usize
    }

    fn surely_receivable(&self, pool: &Pool) -> usize {
        if self.sys.has_overflowed() {
            // What has completed and cannot be seen may have used any of those in the ring.
            return pool.free();
        }
        let used = self.sys.buffers_in_completions();
        pool.free() + self.buffers.saturating_sub(used) as usize
    }

    fn accept_margin(&self) -> u32 {
        self.accept_margin
    }

    fn datagram_buffers_at_once(&self) -> u32 {
        const TWO_SHARES_OF_A_TURN: u32 = 128;
        if self.multishots_yield() {
            u32::MAX
        } else {
            TWO_SHARES_OF_A_TURN
        }
    }

    fn wants_nonblocking(&self) -> bool {
        false
    }

    fn quiesce(&mut self, pool: &mut Pool, patience: Duration, now: &dyn Fn() -> Time) -> bool {
        if !self.is_owner() {
            // Only the owner may enter. A poll for wakes names no memory.
            let harmless = u64::from(self.watching && self.wake_counter.is_none());
            return self.counters.in_flight.get() == harmless;
        }
        let deadline = now() + patience;
        self.quiescing = true;
        self.cancel_everything(pool);
        let mut dropped = Completions::default();
        loop {
            let left = deadline.since(now());
            if !self.spilled.is_empty() {
                self.unspill(pool);
            }
            let wait_for = u32::from(self.counters.in_flight.get() > 0 && self.may_sleep());
            self.note_overflow();
            match self.enter(wait_for, Some(left), self.waits.flags()) {
                Err(errno) if !is_passing(errno) => return false,
                _ => (),
            }
            self.reap(pool, usize::MAX, &mut dropped);
            for completion in dropped.list.drain(..) {
                if let Completion::Received {
                    received: Received::Data { slot, .. },
                    ..
                } = completion
                {
                    pool.give_back(slot);
                }
            }
            dropped.clear();
            if self.is_quiet() {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    fn counters(&self) -> &Arc<LiveCounters> {
        &self.counters
    }
}

impl<S: UringSys, K: SocketSys> Drop for UringEngine<S, K> {
    fn drop(&mut self) {
        if self.counters.in_flight.get() > 0 {
            // The kernel may yet read and write there: better leaked than used by two.
            std::mem::forget(self.wake_counter.take());
            std::mem::forget(std::mem::take(&mut self.connections));
            std::mem::forget(std::mem::take(&mut self.datagrams));
        }
        if self.kernel_polls {
            // The kernel's thread takes them at any moment until the ring is gone: better leaked than closed
            // twice.
            for (_, descriptor) in self.closing.drain(..) {
                let _ = descriptor.into_raw_fd();
            }
        }
    }
}
