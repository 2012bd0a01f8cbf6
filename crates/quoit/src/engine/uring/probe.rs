//! Which features the kernel has, found by using them.
//!
//! Kernel versions say little: distributions carry features back, and containers forbid calls. So the probe
//! makes small rings and lets them work on sockets of its own.

use std::fmt;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use linux_raw_sys::io_uring as abi;
use linux_raw_sys::io_uring::io_uring_op as Opcode;

use super::entry;
use super::restrictions::Restrictions;
use super::setup::{During, SETUP_FEATURES, SetupError, Step, Telling, setup_flags};
use super::sys::{
    CompletionEntry, ProbeSockets, ProvidedBuffer, RingParameters, RingProperties, STREAM_GROUP,
    SubmissionEntry, UringSys,
};
use super::user_data::{Tag, UserData};
use crate::errno::Errno;
use crate::features::{Feature, FeatureSet};
use crate::id::Slot;
use crate::reserved::Reserved;

/// Why io_uring cannot be used at all.
pub type ProbeError = SetupError;

/// What this kernel's io_uring can do, less what was switched off.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The features that are there, each with all that it needs.
    pub features: FeatureSet,
    /// The others, and why they are not used.
    pub missing: Vec<(Feature, Missing)>,
}

/// Why a feature is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The configuration says so.
    SwitchedOff,
    /// It needs another one, which is missing.
    Needs(Feature),
    /// The kernel does not list it.
    NotListed,
    /// The kernel refused it with this error.
    Refused(Errno),
    /// The kernel took it, but it did not do what it should.
    Misbehaved,
    /// The loop is [pollable](crate::Config::pollable), and does without.
    Pollable,
    /// With it the loop was not told at once of what happens elsewhere.
    Untold(Telling),
    /// It is there, but no kernel that was tried has it together with as little else as there is here.
    Unproven,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SwitchedOff => f.write_str("switched off"),
            Self::Needs(feature) => write!(f, "needs {feature}"),
            Self::NotListed => f.write_str("not listed by this kernel"),
            Self::Refused(errno) => write!(f, "refused by this kernel: {errno}"),
            Self::Misbehaved => f.write_str("accepted by this kernel, but without effect"),
            Self::Pollable => f.write_str(
                "not used by a pollable loop: kernels report deferred work to a poller late or never",
            ),
            Self::Untold(Telling::Wakes) => {
                f.write_str("with it, this kernel reports another thread's wake to a loop late or never")
            }
            Self::Untold(Telling::Completions) => {
                f.write_str("with it, this kernel reports completions to a poller late or never")
            }
            Self::Unproven => f.write_str(
                "not used, as no kernel that was tried has it without the features that are missing here; used if io_uring is required",
            ),
        }
    }
}

impl Capabilities {
    /// These, or as much of them as makes a [level that was proven](FeatureSet::PROVEN); what is over is left out.
    /// Features in `without`, and what needs them, are not there by choice, and count as if they were. So do those that
    /// decide when the kernel's work is run, and the one by which the ring is restricted: at every level everything was run
    /// with and without them. [`None`]: not even the oldest level is there.
    #[must_use]
    pub fn proven(mut self, without: FeatureSet) -> Option<Self> {
        let chosen = FeatureSet::ALL.without(without).usable();
        let mut there: FeatureSet = FeatureSet::ALL.without(chosen);
        there.extend(self.features.iter());
        there.insert(Feature::DeferTaskrun);
        there.insert(Feature::CooperativeTaskrun);
        there.insert(Feature::RestrictedRing);
        let mut levels = FeatureSet::PROVEN.into_iter().rev();
        let level = levels.find(|level| level.without(there).is_empty())?;
        let surplus = self.features.without(level);
        self.missing
            .extend(surplus.iter().map(|feature| (feature, Missing::Unproven)));
        self.features = self.features.intersection(level);
        Some(self)
    }
}

/// Without these properties there is no engine. All are in kernel 5.11.
const NEEDED_PROPERTIES: [(u32, &str); 5] = [
    (abi::IORING_FEAT_SINGLE_MMAP, "IORING_FEAT_SINGLE_MMAP"),
    (abi::IORING_FEAT_NODROP, "IORING_FEAT_NODROP"),
    (abi::IORING_FEAT_SUBMIT_STABLE, "IORING_FEAT_SUBMIT_STABLE"),
    (abi::IORING_FEAT_EXT_ARG, "IORING_FEAT_EXT_ARG"),
    (abi::IORING_FEAT_FAST_POLL, "IORING_FEAT_FAST_POLL"),
];

/// Without these operations there is no engine. All are in kernel 5.6.
const NEEDED_OPERATIONS: [(Opcode, &str); 10] = [
    (Opcode::IORING_OP_ACCEPT, "IORING_OP_ACCEPT"),
    (Opcode::IORING_OP_CONNECT, "IORING_OP_CONNECT"),
    (Opcode::IORING_OP_SEND, "IORING_OP_SEND"),
    (Opcode::IORING_OP_RECV, "IORING_OP_RECV"),
    (Opcode::IORING_OP_SENDMSG, "IORING_OP_SENDMSG"),
    (Opcode::IORING_OP_POLL_ADD, "IORING_OP_POLL_ADD"),
    (Opcode::IORING_OP_ASYNC_CANCEL, "IORING_OP_ASYNC_CANCEL"),
    (Opcode::IORING_OP_CLOSE, "IORING_OP_CLOSE"),
    (Opcode::IORING_OP_NOP, "IORING_OP_NOP"),
    (Opcode::IORING_OP_READ, "IORING_OP_READ"),
];

const ZERO_COPY_OPERATIONS: [Opcode; 2] = [Opcode::IORING_OP_SEND_ZC, Opcode::IORING_OP_SENDMSG_ZC];

/// The probe's rings are tiny, as their memory counts against the user's limit until the kernel has taken them
/// down.
const PROBE_ENTRIES: u32 = 4;
const PROBE_BUFFERS: u16 = 8;
const PROBE_BUFFER_SIZE: u32 = 16;
/// More bytes than a Unix socket takes at once, unless its system is set up strangely.
const FLOOD: u32 = 4 << 20;
/// What is tried completes at once; a kernel that has not answered by then misbehaves.
const PATIENCE: Duration = Duration::from_secs(5);

/// Finds out what the calling thread's kernel can do, for a loop that is [pollable](crate::Config::pollable) or not.
/// Features in `without` are not tried.
///
/// # Errors
/// The step that failed and the kernel's answer, where io_uring cannot be used at all: `ENOSYS` and `EPERM` of
/// kernels and containers that deny it, `ENOMEM` past `RLIMIT_MEMLOCK`, `EOPNOTSUPP` where the kernel is too
/// old, `ETIME` where it does not tell a loop of what happens elsewhere.
pub fn probe<S: UringSys>(without: FeatureSet, pollable: bool) -> Result<Capabilities, ProbeError> {
    let mut found = Findings {
        wanted: FeatureSet::ALL.without(without),
        features: FeatureSet::EMPTY,
        missing: without
            .iter()
            .map(|feature| (feature, Missing::SwitchedOff))
            .collect(),
    };
    if pollable && found.wanted.contains(Feature::DeferTaskrun) {
        found.wanted.remove(Feature::DeferTaskrun);
        found.missing.push((Feature::DeferTaskrun, Missing::Pollable));
    }
    let (mut ring, properties) = find_setup_flags::<S>(&mut found)?;
    for (bit, name) in NEEDED_PROPERTIES {
        needed(properties.features & bit != 0, Step::Property(name))?;
    }
    let operations = ring.supported_operations().during(Step::ListOperations)?;
    if found.tries(Feature::RestrictedRing) {
        let result = restrict(&mut ring, operations);
        found.record(Feature::RestrictedRing, result.map_err(Missing::Refused));
    }
    ring.enable().during(Step::Enable)?;
    let supports = |opcode: Opcode| operations & 1 << opcode as u32 != 0;
    for (opcode, name) in NEEDED_OPERATIONS {
        needed(supports(opcode), Step::Operation(name))?;
    }
    for (feature, listed) in [
        (
            Feature::CompletionSkip,
            properties.features & abi::IORING_FEAT_CQE_SKIP != 0,
        ),
        (
            Feature::NoIowait,
            properties.features & abi::IORING_FEAT_NO_IOWAIT != 0,
        ),
    ] {
        found.record(feature, listed.then_some(()).ok_or(Missing::NotListed));
    }
    if found.tries(Feature::RegisteredRing) {
        let result = ring.register_ring_descriptor().map_err(Missing::Refused);
        found.record(Feature::RegisteredRing, result);
    }
    let mut trial = Trial {
        ring,
        sockets: S::probe_sockets().during(Step::Sockets)?,
        memory: vec![0; usize::from(PROBE_BUFFERS) * PROBE_BUFFER_SIZE as usize],
    };
    let result = trial.run(&mut found, ZERO_COPY_OPERATIONS.into_iter().all(supports));
    if result.is_err() {
        // Something may still be outstanding that names this memory.
        std::mem::forget(std::mem::take(&mut trial.memory));
    }
    result?;
    // Their memory counts against the same limit as that of the next.
    drop(trial);
    find_telling::<S>(&mut found, pollable)?;
    Ok(Capabilities {
        features: found.features,
        missing: found.missing,
    })
}

/// Restricts the ring to what a loop with all features uses: all that follows is tried under that. A kernel takes no rule for a
/// registration that it does not know, and does not tell which it knows; so those are left out, the newest first.
fn restrict<S: UringSys>(ring: &mut S, operations: u128) -> Result<(), Errno> {
    let mut features = FeatureSet::ALL;
    for newest in [Feature::BufferRing, Feature::RegisteredRing] {
        match ring.restrict(&Restrictions::of(features, operations)) {
            Err(Errno::EINVAL) => features.remove(newest),
            result => return result,
        }
    }
    ring.restrict(&Restrictions::of(features, operations))
}

fn needed(is_there: bool, step: Step) -> Result<(), ProbeError> {
    is_there.then_some(()).ok_or(Errno::EOPNOTSUPP).during(step)
}

/// Adds one flag after the other: a ring with one that the kernel does not know is refused with `EINVAL`, which
/// does not say which one it was. Returns the last ring that could be made.
fn find_setup_flags<S: UringSys>(found: &mut Findings) -> Result<(S, RingProperties), ProbeError> {
    let make = |features| {
        S::setup(&RingParameters {
            least_wait_us: 0,
            submission_entries: PROBE_ENTRIES,
            completion_entries: PROBE_ENTRIES * 2,
            flags: setup_flags(features, false),
            poll_idle_ms: 0,
        })
    };
    let mut made = make(found.features).during(Step::Setup)?;
    for feature in SETUP_FEATURES {
        if !found.tries(feature) {
            continue;
        }
        let mut features = found.features;
        features.insert(feature);
        match make(features) {
            Ok(ring) => {
                made = ring;
                found.record(feature, Ok(()));
            }
            Err(Errno::EINVAL) => found.record(feature, Err(Missing::Refused(Errno::EINVAL))),
            Err(errno) => return Err(errno).during(Step::Setup),
        }
    }
    Ok(made)
}

/// Tries whether a loop would be told of what happens elsewhere, and leaves out what keeps it from being told.
fn find_telling<S: UringSys>(found: &mut Findings, pollable: bool) -> Result<(), ProbeError> {
    let ways: &[_] = if pollable {
        &[Telling::Wakes, Telling::Completions]
    } else {
        &[Telling::Wakes]
    };
    for &telling in ways {
        while let Err(errno) = S::try_telling(found.features, telling) {
            // Those of whose work the kernel's is part, the one that decides first.
            let suspect = [Feature::DeferTaskrun, Feature::CooperativeTaskrun]
                .into_iter()
                .find(|&feature| errno == Errno::ETIME && found.features.contains(feature));
            let Some(suspect) = suspect else {
                return Err(errno).during(Step::Telling(telling));
            };
            found.features.remove(suspect);
            found.missing.push((suspect, Missing::Untold(telling)));
        }
    }
    Ok(())
}

/// What is known so far.
struct Findings {
    wanted: FeatureSet,
    features: FeatureSet,
    missing: Vec<(Feature, Missing)>,
}

impl Findings {
    /// Whether to try `feature`; if what it needs is missing, so is it.
    fn tries(&mut self, feature: Feature) -> bool {
        if !self.wanted.contains(feature) {
            return false;
        }
        match feature.needs() {
            Some(needed) if !self.features.contains(needed) => {
                self.missing.push((feature, Missing::Needs(needed)));
                false
            }
            _ => true,
        }
    }

    fn record(&mut self, feature: Feature, result: Result<(), Missing>) {
        if !self.wanted.contains(feature) {
            return;
        }
        match result {
            Ok(()) => self.features.insert(feature),
            Err(reason) => self.missing.push((feature, reason)),
        }
    }
}

/// A ring and what it may work on.
struct Trial<S> {
    ring: S,
    sockets: ProbeSockets,
    memory: Vec<u8>,
}

/// The first completion of what is tried.
struct Outcome {
    result: i32,
    more: bool,
}

impl Outcome {
    /// Whether it was armed, and ended when it was cancelled.
    fn was_armed(&self) -> Result<(), Missing> {
        self.was(|outcome| outcome.result == -libc::ECANCELED)
    }

    fn was(&self, expected: impl FnOnce(&Self) -> bool) -> Result<(), Missing> {
        if expected(self) {
            Ok(())
        } else if self.result < 0 {
            Err(Missing::Refused(Errno::new(-self.result)))
        } else {
            Err(Missing::Misbehaved)
        }
    }
}

fn data(tag: Tag) -> UserData {
    UserData::new(tag, Slot::new(0), 0)
}

impl<S: UringSys> Trial<S> {
    fn run(&mut self, found: &mut Findings, lists_zero_copy: bool) -> Result<(), ProbeError> {
        let listener = self.sockets.listener.as_raw_fd();
        let [near, far] = [0, 1].map(|end: usize| self.sockets.pair[end].as_raw_fd());

        if found.tries(Feature::MultishotPoll) {
            let poll = entry::poll_multishot(near, libc::POLLIN, data(Tag::Receive));
            let outcome = self.attempt(Feature::MultishotPoll, [poll], true)?;
            found.record(Feature::MultishotPoll, outcome.was_armed());
        }
        if found.tries(Feature::MultishotAccept) {
            let accept = entry::accept(listener, true, data(Tag::Accept));
            let outcome = self.attempt(Feature::MultishotAccept, [accept], true)?;
            found.record(Feature::MultishotAccept, outcome.was_armed());
        }
        if found.tries(Feature::BufferRing) {
            let result = self.ring.register_buffer_ring(STREAM_GROUP, PROBE_BUFFERS);
            match result {
                Ok(()) => self.provide_buffers(),
                Err(Errno::ENOMEM) => return result.during(Step::BufferRing),
                Err(_) => (),
            }
            found.record(Feature::BufferRing, result.map_err(Missing::Refused));
        }
        let message = self.memory.as_ptr().expose_provenance() as u64;
        if found.tries(Feature::MultishotReceive) {
            let receive = entry::receive_multishot(near, 0, data(Tag::Receive));
            let send = entry::send(far, message, 1, data(Tag::Send));
            let outcome = self.attempt(Feature::MultishotReceive, [receive, send], false)?;
            let result = outcome.was(|outcome| outcome.result == 1 && outcome.more);
            found.record(Feature::MultishotReceive, result);
        }
        if found.tries(Feature::ReceiveBudget) {
            let receive = entry::receive_multishot(near, 1, data(Tag::Receive));
            let send = entry::send(far, message, 1, data(Tag::Send));
            let outcome = self.attempt(Feature::ReceiveBudget, [receive, send], false)?;
            let result = outcome.was(|outcome| outcome.result == 1 && !outcome.more);
            found.record(Feature::ReceiveBudget, result);
        }
        if found.tries(Feature::ZeroCopySend) {
            let result = if lists_zero_copy {
                let mut send = entry::send(far, message, 1, data(Tag::Send));
                entry::make_zero_copy(&mut send, false);
                let outcome = self.attempt(Feature::ZeroCopySend, [send], false)?;
                // Unix-domain sockets cannot; a kernel that says so has understood the request.
                outcome.was(|outcome| outcome.result == 1 || outcome.result == -libc::EOPNOTSUPP)
            } else {
                Err(Missing::NotListed)
            };
            found.record(Feature::ZeroCopySend, result);
        }
        // Last, as it leaves a socket full.
        if found.tries(Feature::AttemptedSend) {
            let result = self.attempt_sends(far, message)?;
            found.record(Feature::AttemptedSend, result);
        }
        Ok(())
    }

    /// A send that the socket takes must complete in silence, and one that it takes in part must not.
    fn attempt_sends(&mut self, socket: RawFd, byte: u64) -> Result<Result<(), Missing>, ProbeError> {
        let step = Step::Try(Feature::AttemptedSend);
        let flood = Reserved::new(FLOOD as usize).during(step)?;
        let mut fits = entry::send(socket, byte, 1, data(Tag::Connect));
        let mut floods = entry::send(
            socket,
            flood.address().as_ptr().expose_provenance() as u64,
            FLOOD,
            data(Tag::Send),
        );
        entry::make_attempt(&mut fits);
        entry::make_attempt(&mut floods);
        for entry in [fits, floods, entry::nothing(data(Tag::Wake))] {
            self.push(&entry).during(step)?;
        }
        let mut told = Err(Missing::Misbehaved);
        loop {
            let completion = self.next().during(step)?;
            match UserData::from_bits(completion.user_data).tag() {
                Tag::Send
                    if completion.res == -libc::EAGAIN || (1..FLOOD as i32).contains(&completion.res) =>
                {
                    told = Ok(());
                }
                Tag::Wake => return Ok(told),
                _ => {
                    // Told what it should have been silent of, or the socket took it all.
                    while self
                        .ring
                        .pop()
                        .is_some_and(|more| more.user_data != data(Tag::Wake).to_bits())
                    {}
                    return Ok(Err(Missing::Misbehaved));
                }
            }
        }
    }

    fn provide_buffers(&mut self) {
        for (id, buffer) in self
            .memory
            .chunks_exact_mut(PROBE_BUFFER_SIZE as usize)
            .enumerate()
        {
            self.ring.provide_buffer(
                STREAM_GROUP,
                ProvidedBuffer {
                    address: buffer.as_mut_ptr(),
                    length: PROBE_BUFFER_SIZE,
                    id: id as u16,
                },
            );
        }
        self.ring.publish_buffers(STREAM_GROUP);
    }

    /// Submits `entries`, cancels the first one at once if `cancel` or else as soon as it has shown to go on,
    /// and waits until all have ended. Returns the first completion of the first one.
    fn attempt<const N: usize>(
        &mut self,
        feature: Feature,
        entries: [SubmissionEntry; N],
        cancel: bool,
    ) -> Result<Outcome, ProbeError> {
        let step = Step::Try(feature);
        let target = UserData::from_bits(entries[0].user_data);
        let mut outstanding = N;
        for entry in entries {
            self.push(&entry).during(step)?;
        }
        let mut cancelled = false;
        let mut outcome = None;
        if cancel {
            cancelled = true;
            outstanding += 1;
            self.push(&entry::cancel(target, false)).during(step)?;
        }
        while outstanding > 0 {
            let completion = self.next().during(step)?;
            let more = completion.flags & abi::IORING_CQE_F_MORE != 0;
            if completion.user_data == target.to_bits() {
                outcome.get_or_insert(Outcome {
                    result: completion.res,
                    more,
                });
                if more && !cancelled && target.tag() == Tag::Receive {
                    cancelled = true;
                    outstanding += 1;
                    self.push(&entry::cancel(target, false)).during(step)?;
                }
            }
            if !more {
                outstanding -= 1;
            }
        }
        outcome.ok_or(Errno::ENOENT).during(step)
    }

    fn push(&mut self, entry: &SubmissionEntry) -> Result<(), Errno> {
        while !self.ring.try_push(entry) {
            self.ring.enter(0, None, 0)?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<CompletionEntry, Errno> {
        loop {
            if let Some(completion) = self.ring.pop() {
                return Ok(completion);
            }
            match self.ring.enter(1, Some(PATIENCE), 0) {
                Ok(_) | Err(Errno::EINTR) => (),
                Err(errno) => return Err(errno),
            }
        }
    }
}
