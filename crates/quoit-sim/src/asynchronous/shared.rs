//! What the tasks of a run share: what each future waits for and for how long, which leases are kept, and whether a
//! stream may fail.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quoit::{Datagrams, Lease};
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::pattern;
use quoit_sim_kernel::random::Random;

use super::executor::{Executor, TaskId};
use super::race::Losers;

/// What a future waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    /// Bytes or the end from this peer, of which so many were read.
    Bytes { peer: usize, offset: u64 },
    /// That this peer takes something.
    Room { peer: usize },
    /// A connection to the listener, of TCP or of Unix sockets.
    Connection { unix: bool },
    /// An attempt to connect.
    Attempt { peer: usize },
    /// Something that this datagram socket receives.
    Datagram { socket: usize },
    /// That it has room to send.
    DatagramRoom { socket: usize },
    /// A time.
    Time,
}

/// How long a future is let wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// Whatever happens.
    Always,
    /// Until the tasks are told to come to their end.
    UntilTheEnd,
    /// It is dropped after its first poll.
    None,
    /// It is dropped after so many nanoseconds. If both have come at once, the time is first or not.
    For { nanoseconds: u64, first: bool },
}

/// A lease that a task keeps.
pub(super) struct Kept {
    pub(super) peer: usize,
    pub(super) offset: u64,
    pub(super) data: Lease,
}

/// What the tasks of a run share.
pub(super) struct Shared {
    pub(super) executor: Rc<Executor>,
    /// The tasks are to come to their end.
    pub(super) stop: Cell<bool>,
    /// The loop is draining, or has ended.
    pub(super) draining: Cell<bool>,
    /// Connections may fail though their peers do nothing for it.
    pub(super) is_lossy: bool,
    /// Attempts to connect may fail, or take their time, though somebody takes them.
    pub(super) is_scarce: bool,
    /// Nanoseconds for which a peer has to have taken nothing before the loop may reset it for the memory that it holds.
    stall_limit: u64,
    /// Whose connections nobody has.
    pub(super) losers: Losers,
    awaited: RefCell<BTreeMap<u64, Awaited>>,
    next: Cell<u64>,
    pub(super) kept: RefCell<Vec<Kept>>,
    /// Datagrams that tasks keep, and what they are.
    kept_datagrams: RefCell<Vec<(Vec<u8>, Datagrams)>>,
    /// The peers whose connections tasks have accepted.
    pub(super) accepted: RefCell<BTreeSet<usize>>,
    /// Those that accept, and those that have a stream.
    pub(super) acceptors: RefCell<Vec<TaskId>>,
}

impl Shared {
    pub(super) fn new(
        executor: Rc<Executor>,
        is_lossy: bool,
        is_scarce: bool,
        stall_limit: Duration,
    ) -> Rc<Self> {
        Rc::new(Self {
            executor,
            stop: Cell::new(false),
            draining: Cell::new(false),
            is_lossy,
            is_scarce,
            stall_limit: stall_limit.as_nanos() as u64,
            losers: Losers::default(),
            awaited: RefCell::default(),
            next: Cell::new(0),
            kept: RefCell::default(),
            kept_datagrams: RefCell::default(),
            accepted: RefCell::default(),
            acceptors: RefCell::default(),
        })
    }

    /// Counts that a future has ended or was dropped.
    pub(super) fn progress(&self) {
        self.executor.progress.set(self.executor.progress.get() + 1);
    }

    /// All that is waited for.
    pub(super) fn awaited(&self) -> Vec<Awaited> {
        self.awaited.borrow().values().copied().collect()
    }

    /// Lets a future wait for as long as `patience` says. `None`: it is dropped, in the midst of what it does.
    pub(super) async fn wait<T>(
        self: &Rc<Self>,
        patience: Patience,
        awaited: Awaited,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let _noted = Noted::new(self, awaited);
        let mut future = pin!(future);
        let (timer, timer_first) = match patience {
            Patience::For { nanoseconds, first } => (Some(self.timer(nanoseconds)), first),
            _ => (None, false),
        };
        let is_late = |cx: &mut Context<'_>| timer.as_ref().is_some_and(|timer| timer.poll(cx).is_ready());
        let result = poll_fn(|cx| {
            let stops = matches!(patience, Patience::UntilTheEnd | Patience::For { .. });
            if stops && self.stop.get() || timer_first && is_late(cx) {
                return Poll::Ready(None);
            }
            if let Poll::Ready(result) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            if patience == Patience::None || is_late(cx) {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await;
        self.progress();
        result
    }

    /// Waits for some time.
    pub(super) async fn rest(self: &Rc<Self>, nanoseconds: u64) {
        let timer = self.timer(nanoseconds);
        self.wait(Patience::UntilTheEnd, Awaited::Time, poll_fn(|cx| timer.poll(cx)))
            .await;
    }

    fn timer(self: &Rc<Self>, nanoseconds: u64) -> Timer {
        let timer = Timer::default();
        let (fired, waker) = (Rc::clone(&timer.fired), Rc::clone(&timer.waker));
        let executor = Rc::clone(&self.executor);
        let job = move || {
            fired.set(true);
            if let Some(waker) = waker.take() {
                waker.wake();
            }
            executor.plan();
        };
        with(|kernel| kernel.plan_job(nanoseconds, Box::new(job)));
        timer
    }

    /// Whether a stream to this peer may fail, or end before all that the peer has sent.
    pub(super) fn may_fail(&self, peer: usize) -> bool {
        self.is_lossy
            || self.draining.get()
            || with(|kernel| {
                let peer = &kernel.peers[peer];
                // What it had sent and nobody reads may fill a pool of few slots, however much memory for sends there is.
                let stood_still = peer.idle_when_reset.is_some_and(|idle| idle >= self.stall_limit);
                peer.broke_off || peer.saw_error.is_some() || stood_still
            })
    }

    /// That a stream to this peer may have failed so.
    pub(super) fn check_failure(&self, peer: usize, what: &str, error: &io::Error) {
        with(|kernel| kernel.note(|| format!("task: {what} of peer {peer} fails: {error}")));
        assert!(
            self.may_fail(peer),
            "{what} of peer {peer}, which has done nothing for it, fails: {error} ({:?})",
            error.kind()
        );
    }

    /// Keeps a lease, or lets go of it.
    pub(super) fn keep(&self, kept: Kept) {
        self.kept.borrow_mut().push(kept);
    }

    /// Keeps datagrams likewise.
    pub(super) fn keep_datagrams(&self, datagrams: Datagrams) {
        let bytes = datagrams.whole().bytes().to_vec();
        self.kept_datagrams.borrow_mut().push((bytes, datagrams));
    }

    /// Lets go of some of what is kept, or of all.
    pub(super) fn release(&self, mut random: Option<&mut Random>) {
        let mut datagrams = self.kept_datagrams.borrow_mut();
        if !datagrams.is_empty() {
            let most = datagrams.len();
            let count = random
                .as_deref_mut()
                .map_or(most, |random| random.below(most as u64 + 1) as usize);
            for (bytes, datagrams) in datagrams.drain(..count) {
                assert!(
                    datagrams.whole().bytes() == bytes,
                    "{datagrams:?} changed while they were kept"
                );
            }
        }
        let mut kept = self.kept.borrow_mut();
        let count = random.map_or(kept.len(), |random| random.below(kept.len() as u64 + 1) as usize);
        for kept in kept.drain(..count) {
            let different = pattern::first_difference(kept.peer as u64, kept.offset, &kept.data);
            assert_eq!(
                different, None,
                "leased bytes of peer {} changed while they were kept",
                kept.peer
            );
        }
    }
}

/// A time that comes. Another thread wakes the task then.
#[derive(Default)]
struct Timer {
    fired: Rc<Cell<bool>>,
    waker: Rc<Cell<Option<Waker>>>,
}

impl Timer {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.fired.get() {
            return Poll::Ready(());
        }
        self.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// That a future waits.
struct Noted<'a> {
    shared: &'a Shared,
    number: u64,
}

impl<'a> Noted<'a> {
    fn new(shared: &'a Shared, awaited: Awaited) -> Self {
        let number = shared.next.get();
        shared.next.set(number + 1);
        shared.awaited.borrow_mut().insert(number, awaited);
        Self { shared, number }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.shared.awaited.borrow_mut().remove(&self.number);
    }
}
