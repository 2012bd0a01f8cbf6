//! Rings of io_uring: queues, deferred work, overflow.

mod enter;
mod issue;
mod notification;
mod request;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use linux_raw_sys::io_uring as abi;
use linux_raw_sys::io_uring::io_uring_register_op as Registration;
use quoit::internals::engine::uring::sys::{ProvidedBuffer, Restrictions, SubmissionEntry};

use super::Kernel;
use super::object::ObjectId;
use super::stream::FailedSend;
use crate::faults::Fault;
use notification::Notification;
use request::Request;

pub(crate) use enter::enter;
pub(crate) use issue::OPERATIONS;

/// The number of a ring within its run.
pub(crate) type RingId = usize;

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) user_data: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
    /// What changes in the kernel when the program takes it.
    effect: Effect,
}

/// What the kernel notes when the program takes a completion, as the program knows it from then on.
#[derive(Clone, Copy, Debug)]
enum Effect {
    /// Nothing that anybody looks at.
    Nothing,
    /// That a send on this socket has failed for good.
    Failure(ObjectId),
    /// That the memory of a zero-copy send on this socket is free.
    Release(ObjectId),
}

/// Requests by their numbers, which are never used again within a run.
#[derive(Default)]
struct Requests {
    /// The low bits of a number are the place here.
    entries: Vec<Option<(u64, Request)>>,
    free: Vec<usize>,
    count: u64,
}

impl Requests {
    const PLACE_BITS: u32 = 16;

    fn insert(&mut self, request: Request) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        debug_assert!(place < 1 << Self::PLACE_BITS);
        self.count += 1;
        let number = self.count << Self::PLACE_BITS | place as u64;
        self.entries[place] = Some((number, request));
        number
    }

    fn place(number: u64) -> usize {
        (number & ((1 << Self::PLACE_BITS) - 1)) as usize
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Request> {
        match self.entries.get_mut(Self::place(number)) {
            Some(Some((found, request))) if *found == number => Some(request),
            _ => None,
        }
    }

    /// Takes one out for a while: its number stays its own until [`Requests::free`] or [`Requests::put_back`].
    fn take(&mut self, number: u64) -> Option<Request> {
        self.get_mut(number)?;
        self.entries[Self::place(number)]
            .take()
            .map(|(_, request)| request)
    }

    fn put_back(&mut self, number: u64, request: Request) {
        self.entries[Self::place(number)] = Some((number, request));
    }

    /// The number of one that was taken out is over.
    fn free(&mut self, number: u64) {
        self.free.push(Self::place(number));
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &Request)> {
        self.entries
            .iter()
            .flatten()
            .map(|(number, request)| (*number, request))
    }
}

/// What the program sees of a ring without a call, as in the memory that both have mapped.
#[derive(Default, Debug)]
pub(crate) struct Shown {
    /// Completions that can be taken.
    pub(crate) completions: Cell<usize>,
    /// There are others, for which there was no room.
    pub(crate) overflowed: Cell<bool>,
    /// Calls so far.
    pub(crate) enters: Cell<u64>,
}

/// One ring.
pub(crate) struct Ring {
    shown: Rc<Shown>,
    flags: u32,
    pub(crate) submission_entries: u32,
    pub(crate) completion_entries: u32,
    submissions: VecDeque<SubmissionEntry>,
    completions: VecDeque<Completion>,
    /// Completions that found no room.
    overflow: VecDeque<Completion>,
    pub(crate) enabled: bool,
    /// What it takes, if that is restricted.
    restrictions: Option<Restrictions>,
    requests: Requests,
    next_notification: u64,
    /// Requests for which something happened, to be gone on with in the task's own time.
    woken: VecDeque<u64>,
    /// Room for those that are gone on with.
    running: Vec<u64>,
    /// Completions that are to be posted then.
    late: VecDeque<Completion>,
    notifications: BTreeMap<u64, Notification>,
    /// Rings of provided buffers, by group.
    groups: Vec<Option<BufferGroup>>,
    /// The kernel's thread that takes the submissions.
    thread: Option<PollThread>,
    /// A multishot receive that has emptied its socket waits, without looking for a buffer first: kernels that learn
    /// from each receive what is left (`msg_inq`) do, others look once more.
    pub(super) stops_when_empty: bool,
    /// Nanoseconds after which a wait for several completions ends with one.
    pub(crate) least_wait: u64,
    /// Completions that found no room, in all.
    overflows: u64,
    /// Submissions that found none.
    refused: u64,
    /// The eventfd that is written with completions, and whether it was since it was last read. Of work that waits for an
    /// enter (`IORING_SETUP_DEFER_TASKRUN`) it does not tell: since Linux 6.12.115 kernels tell late, or never.
    pub(super) notifier: Option<ObjectId>,
    pub(super) signalled: bool,
    /// Whether it is not written (`IORING_CQ_EVENTFD_DISABLED`), as the ring's owner runs and looks by itself.
    pub(crate) muted: bool,
    /// Whether a poller was told of a write, and its loop has not been parked again.
    pub(super) reported: bool,
}

/// One ring of provided buffers.
#[derive(Debug, Default)]
struct BufferGroup {
    entries: u32,
    staged: Vec<ProvidedBuffer>,
    buffers: VecDeque<ProvidedBuffer>,
    /// Provided buffers that are with the kernel, by id.
    provided: Vec<bool>,
}

/// The thread of a ring with `IORING_SETUP_SQPOLL`.
#[derive(Debug)]
struct PollThread {
    /// Nanoseconds without submissions after which it sleeps.
    idle: u64,
    awake_until: u64,
    /// Submissions that it has been shown.
    shown: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({:?})", self.outstanding())
    }
}

impl Ring {
    fn runs_when_entered(&self) -> bool {
        self.flags & abi::IORING_SETUP_DEFER_TASKRUN != 0
    }

    fn runs_cooperatively(&self) -> bool {
        self.flags & abi::IORING_SETUP_COOP_TASKRUN != 0
    }

    fn has_work(&self) -> bool {
        !self.woken.is_empty() || !self.late.is_empty()
    }

    /// Whether an enter would find something.
    pub(super) fn has_news(&self) -> bool {
        self.has_work() || !self.completions.is_empty() || self.has_overflowed()
    }

    pub(crate) fn shows_deferred_work(&self) -> bool {
        self.flags & abi::IORING_SETUP_TASKRUN_FLAG != 0 && self.has_work()
    }

    /// Restricts it from when it is enabled on.
    pub(crate) fn restrict(&mut self, restrictions: Restrictions) {
        assert!(
            !self.enabled,
            "a ring is restricted before it is enabled (EBADFD)"
        );
        assert!(
            self.restrictions.replace(restrictions).is_none(),
            "a ring is restricted once (EBUSY)"
        );
    }

    /// Stops a registration that the ring would refuse (`EACCES`).
    pub(crate) fn check_registration(&self, registration: Registration) {
        if self.enabled
            && let Some(restrictions) = &self.restrictions
        {
            assert!(
                restrictions.allow_registration(registration as u32),
                "the restricted ring was asked for {registration:?}"
            );
        }
    }

    pub(crate) fn try_push(&mut self, entry: &SubmissionEntry) -> bool {
        if self.submissions.len() >= self.submission_entries as usize {
            self.refused += 1;
            return false;
        }
        if let Some(restrictions) = &self.restrictions {
            assert!(
                restrictions.allow(entry),
                "the restricted ring was asked for operation {} with flags {:#x}",
                entry.opcode,
                entry.flags
            );
        }
        // SAFETY: a structure of integers, for which bytes are bytes.
        self.submissions.push_back(unsafe { std::ptr::read(entry) });
        true
    }

    /// The first `count` submissions, and those that are linked to the last of them.
    fn to_the_end_of_chain(&self, count: usize) -> usize {
        let mut end = count;
        while end > 0 && end < self.submissions.len() && self.submissions[end - 1].flags & issue::LINKED != 0
        {
            end += 1;
        }
        end
    }

    pub(crate) fn unsubmitted(&self) -> u32 {
        self.submissions.len() as u32
    }

    pub(crate) fn shown(&self) -> Rc<Shown> {
        Rc::clone(&self.shown)
    }

    /// How many of the completions that can be taken name a buffer.
    pub(crate) fn buffers_in_completions(&self) -> u32 {
        let named = |completion: &&Completion| completion.flags & abi::IORING_CQE_F_BUFFER != 0;
        self.completions.iter().filter(named).count() as u32
    }

    /// To be called when the completions have changed.
    fn show(&self) {
        self.shown.completions.set(self.completions.len());
        self.shown.overflowed.set(!self.overflow.is_empty());
    }

    fn pop(&mut self) -> Option<Completion> {
        let completion = self.completions.pop_front();
        self.show();
        completion
    }

    fn has_overflowed(&self) -> bool {
        !self.overflow.is_empty()
    }

    fn count_enter(&self) {
        self.shown.enters.update(|enters| enters + 1);
    }

    /// Whether an accept goes on. Kernels before Linux 6.10, those that do not learn from a receive what is left, coalesce 16
    /// completions of deferred work beside the queue before they look whether it is full.
    fn has_room_for_accepts(&self) -> bool {
        const BESIDE: usize = 16;
        let coalesces = self.runs_when_entered() && !self.stops_when_empty;
        self.has_room() || (coalesces && self.overflow.len() < BESIDE)
    }

    fn has_room(&self) -> bool {
        self.overflow.is_empty() && self.completions.len() < self.completion_entries as usize
    }

    fn post(&mut self, completion: Completion) {
        self.signalled |= !self.muted;
        if self.has_room() {
            self.completions.push_back(completion);
        } else {
            self.overflows += 1;
            self.overflow.push_back(completion);
        }
        self.show();
    }

    fn flush_overflow(&mut self) {
        if self.overflow.is_empty() {
            return;
        }
        while self.completions.len() < self.completion_entries as usize {
            let Some(completion) = self.overflow.pop_front() else {
                break;
            };
            self.completions.push_back(completion);
        }
        self.show();
    }

    pub(crate) fn stage_buffer(&mut self, group: u16, buffer: ProvidedBuffer) {
        if let Some(group) = self.group(group) {
            group.staged.push(buffer);
        }
    }

    fn group(&mut self, group: u16) -> Option<&mut BufferGroup> {
        self.groups.get_mut(usize::from(group))?.as_mut()
    }

    /// The buffer that the next receive with this group takes.
    fn first_buffer(&mut self, group: u16) -> Option<ProvidedBuffer> {
        self.group(group)?.buffers.front().copied()
    }

    /// Requests that have not ended, and notifications that have not come.
    pub(crate) fn outstanding(&self) -> Vec<String> {
        let requests = self.requests.iter().map(|(_, request)| format!("{request:?}"));
        requests
            .chain(
                self.notifications
                    .keys()
                    .map(|number| format!("notification {number}")),
            )
            .collect()
    }
}

impl Kernel {
    /// Moves completions that have overflowed into the queue, as far as there is room. A kernel before Linux 5.18, told by
    /// what it does not have, may never return from that.
    fn flush_overflow(&mut self, id: RingId) {
        let ring = self.ring(id);
        if ring.has_overflowed() && ring.flags & abi::IORING_SETUP_SUBMIT_ALL == 0 {
            let entries = ring.completion_entries;
            self.fail(|| {
                format!("{entries} completions have overflowed, and this kernel may lock the ring's thread up for good")
            });
        }
        self.ring(id).flush_overflow();
    }

    /// `io_uring_setup(2)`.
    pub(crate) fn add_ring(
        &mut self,
        flags: u32,
        submissions: u32,
        completions: u32,
        poll_idle_ms: u32,
    ) -> RingId {
        let thread = (flags & abi::IORING_SETUP_SQPOLL != 0).then(|| PollThread {
            idle: u64::from(poll_idle_ms) * 1_000_000,
            awake_until: 0,
            shown: 0,
        });
        let stops_when_empty = self.random.chance(512);
        self.rings.push(Some(Ring {
            shown: Rc::default(),
            stops_when_empty,
            flags,
            submission_entries: submissions,
            completion_entries: completions,
            submissions: VecDeque::new(),
            completions: VecDeque::new(),
            overflow: VecDeque::new(),
            enabled: flags & abi::IORING_SETUP_R_DISABLED == 0,
            restrictions: None,
            requests: Requests::default(),
            next_notification: 0,
            woken: VecDeque::new(),
            running: Vec::new(),
            late: VecDeque::new(),
            notifications: BTreeMap::new(),
            groups: Vec::new(),
            thread,
            least_wait: 0,
            overflows: 0,
            refused: 0,
            notifier: None,
            signalled: false,
            muted: false,
            reported: false,
        }));
        self.rings.len() - 1
    }

    /// The ring goes, and what is outstanding with it.
    pub(crate) fn remove_ring(&mut self, id: RingId) {
        let Some(ring) = self.rings[id].take() else { return };
        self.counts.incidents.completion_overflows += ring.overflows;
        self.counts.incidents.submission_queue_full += ring.refused;
        for (number, request) in ring.requests.iter() {
            let object = request.object;
            self.objects[object]
                .waiters
                .retain(|&waiter| waiter != (id, number));
            self.release(object);
        }
    }

    pub(crate) fn ring(&mut self, id: RingId) -> &mut Ring {
        self.rings[id].as_mut().expect("a ring is used while it is open")
    }

    /// `IORING_REGISTER_PBUF_RING`.
    pub(crate) fn register_buffers(&mut self, id: RingId, group: u16, entries: u16) -> Result<(), i32> {
        // The first is made with the loop, before there is anything to run out of.
        if group > 0 && self.strikes(Fault::NoMemory) {
            return Err(libc::ENOMEM);
        }
        let groups = &mut self.ring(id).groups;
        let index = usize::from(group);
        if groups.len() <= index {
            groups.resize_with(index + 1, || None);
        }
        if groups[index].is_some() {
            return Err(libc::EEXIST);
        }
        groups[index] = Some(BufferGroup {
            entries: u32::from(entries),
            ..BufferGroup::default()
        });
        Ok(())
    }

    /// `IORING_UNREGISTER_PBUF_RING`.
    pub(crate) fn unregister_buffers(&mut self, id: RingId, group: u16) -> Result<(), i32> {
        let used = self
            .ring(id)
            .requests
            .iter()
            .any(|(_, request)| request.uses_group(group));
        if used {
            self.fail(|| format!("buffer ring {group} is unregistered while a receive uses it"));
        }
        let groups = &mut self.ring(id).groups;
        let entry = groups.get_mut(usize::from(group)).and_then(Option::take);
        entry.map(drop).ok_or(libc::EINVAL)
    }

    /// Whether nothing is in the queues of any ring, and no work is put off.
    pub fn rings_rest(&self) -> bool {
        self.rings.iter().flatten().all(|ring| {
            ring.completions.is_empty()
                && ring.overflow.is_empty()
                && ring.submissions.is_empty()
                && !ring.has_work()
        })
    }

    /// The program takes a completion.
    pub(crate) fn pop(&mut self, id: RingId) -> Option<Completion> {
        let completion = self.ring(id).pop()?;
        match completion.effect {
            Effect::Nothing => {}
            Effect::Failure(socket) => self.failed_sends.push(FailedSend::new(socket)),
            Effect::Release(socket) => {
                if let Some(stream) = self.stream(socket) {
                    stream.held -= 1;
                }
            }
        }
        Some(completion)
    }

    /// Shows the kernel the buffers staged so far.
    pub(crate) fn publish_buffers(&mut self, id: RingId, number: u16) {
        let Some(group) = self.ring(id).group(number) else {
            return self.fail(|| format!("buffers are provided to group {number}, which is not registered"));
        };
        let mut twice = None;
        for buffer in group.staged.drain(..) {
            let id = usize::from(buffer.id);
            if group.provided.len() <= id {
                group.provided.resize(id + 1, false);
            }
            if std::mem::replace(&mut group.provided[id], true) {
                twice = Some(buffer.id);
            }
            group.buffers.push_back(buffer);
        }
        let too_many = group.buffers.len() > group.entries as usize;
        if let Some(buffer) = twice {
            self.fail(|| format!("buffer {buffer} is provided, and is provided already"));
        }
        if too_many {
            self.fail(|| "more buffers are provided than the buffer ring has room for".to_owned());
        }
    }

    /// Runs the work that waits for the task, and posts what has completed.
    fn run_work(&mut self, id: RingId) {
        let ring = self.ring(id);
        if !ring.has_work() {
            return;
        }
        let mut woken = std::mem::take(&mut ring.running);
        woken.extend(ring.woken.drain(..));
        while let Some(completion) = ring.late.pop_front() {
            ring.post(completion);
        }
        if woken.len() > 1 && self.strikes(Fault::Reorder) {
            for index in (1..woken.len()).rev() {
                let other = self.random.below(index as u64 + 1) as usize;
                woken.swap(index, other);
            }
        }
        for request in woken.drain(..) {
            if let Some(request) = self.ring(id).requests.get_mut(request) {
                request.queued = false;
            }
            self.go_on(id, request);
        }
        self.ring(id).running = woken;
    }

    /// The thread enters the kernel by another call, or is interrupted: rings whose work does not wait for an enter
    /// run it.
    pub(crate) fn cross(&mut self) {
        for id in 0..self.rings.len() {
            let Some(ring) = &self.rings[id] else { continue };
            let by_thread = ring.thread.is_some();
            if ring.enabled && ring.has_work() && !ring.runs_when_entered() && !by_thread {
                self.run_work(id);
            }
        }
    }

    /// The kernel's thread of a ring that has one goes on: takes up to `most` of the submissions that it has been
    /// shown, unless it sleeps, and runs work.
    fn run_thread(&mut self, id: RingId, most: usize) {
        let now = self.now;
        let ring = self.ring(id);
        let Some(thread) = &mut ring.thread else { return };
        if thread.shown > 0 && now <= thread.awake_until {
            thread.awake_until = now + thread.idle;
            let most = most.min(thread.shown);
            let count = ring.to_the_end_of_chain(most);
            if let Some(thread) = &mut ring.thread {
                thread.shown = thread.shown.saturating_sub(count);
            }
            self.issue_some(id, count);
        }
        if self.ring(id).has_work() {
            self.run_work(id);
        }
    }

    /// The kernel's threads do all that they have to.
    pub(super) fn run_threads(&mut self) {
        for id in 0..self.rings.len() {
            if self.rings[id].as_ref().is_some_and(|ring| ring.enabled) {
                self.run_thread(id, usize::MAX);
            }
        }
    }

    /// The thread is awake for its time from now on.
    fn rouse_thread(&mut self, id: RingId) {
        let now = self.now;
        if let Some(thread) = &mut self.ring(id).thread {
            thread.awake_until = now + thread.idle;
        }
    }

    /// An interrupt comes between two instructions of the program, or the kernel's thread goes on meanwhile.
    pub(crate) fn interrupt(&mut self, id: RingId) {
        let ring = self.ring(id);
        if ring.thread.is_some() && ring.enabled {
            if self.random.chance(300) {
                let most = self.random.magnitude(64) as usize;
                self.run_thread(id, most);
            }
            return;
        }
        let may = ring.enabled && ring.has_work() && !ring.runs_when_entered() && !ring.runs_cooperatively();
        if may && self.random.chance(300) {
            self.run_work(id);
        }
    }

    /// Takes so many submissions, chain by chain.
    fn issue_some(&mut self, id: RingId, count: usize) {
        let mut left = count;
        while left > 0 {
            let Some(first) = self.ring(id).submissions.pop_front() else {
                return;
            };
            left -= 1;
            // Most have nothing linked to them, and so no memory is allocated for it.
            let mut chain = VecDeque::new();
            let mut linked = first.flags & issue::LINKED != 0;
            while linked && left > 0 {
                let Some(entry) = self.ring(id).submissions.pop_front() else {
                    break;
                };
                left -= 1;
                linked = entry.flags & issue::LINKED != 0;
                chain.push_back(entry);
            }
            self.issue(id, &first, chain);
        }
    }

    /// Submits; returns how many were taken, and whether the call goes on to its other parts.
    fn submit(&mut self, id: RingId) -> Result<(u32, bool), i32> {
        let waiting = self.ring(id).unsubmitted();
        if waiting == 0 {
            return Ok((0, true));
        }
        if self.strikes(Fault::EnterAgain) {
            return Err(libc::EAGAIN);
        }
        let mut count = waiting;
        if waiting > 1 && self.strikes(Fault::PartialSubmit) {
            count = self.random.between(1, u64::from(waiting) - 1) as u32;
            // A chain that is cut is two, and the second does not wait for the first: what is linked for its order's
            // sake would lose it. Linux does so for want of memory only.
            count = self.ring(id).to_the_end_of_chain(count as usize) as u32;
        }
        self.issue_some(id, count as usize);
        Ok((count, count == waiting))
    }
}
