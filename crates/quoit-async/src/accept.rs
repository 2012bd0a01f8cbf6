//! Accepting: connections that have come, for who accepts them.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

use quoit::{Address, Command, Errno, ListenerId, LoopIndex, PostError, Remote};

use crate::lanes::Lanes;
use crate::link::Link;
use crate::lock::lock;
use crate::waiters::{WaiterKey, Waiters};

/// Connections that wait to be accepted here for each who accepts, from which on the others wait in the kernel's backlog.
const MOST_WAITING: usize = if cfg!(quoit_simulated) { 4 } else { 128 };

/// Connections of one listener, as they come, for those who accept them: on one loop, or on each of several.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// That of all connections, unless it listens on every address of the host.
    local: OnceLock<Address>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lanes: Lanes<Arc<Link>>,
    /// Who accepts, by lanes.
    holders: Vec<Holder>,
    /// The listeners that accept nothing for now, and how their loops are told. All loops have one of their own, or share one.
    paused: Vec<(ListenerId, Remote)>,
}

#[derive(Debug, Default)]
struct Holder {
    /// The first failure that nobody was told of.
    failure: Option<Errno>,
    ended: Option<Option<Errno>>,
    accepters: Waiters,
}

impl Acceptor {
    /// With a share for each loop that accepts by itself, or one for all.
    pub(crate) fn new(shares: usize) -> Arc<Self> {
        Arc::new(Self {
            local: OnceLock::new(),
            state: Mutex::new(State {
                lanes: Lanes::new(shares, MOST_WAITING),
                holders: std::iter::repeat_with(Holder::default).take(shares).collect(),
                paused: Vec::new(),
            }),
        })
    }

    /// The share of a loop.
    pub(crate) fn share(self: &Arc<Self>, lane: usize) -> Share {
        Share {
            acceptor: Arc::clone(self),
            lane,
        }
    }

    /// Says where it listens.
    pub(crate) fn listens_on(&self, address: &Address) {
        if !matches!(address, Address::Tcp(address) if address.ip().is_unspecified()) {
            let _ = self.local.set(address.clone());
        }
    }

    /// The local address of its connections, where they all have the same.
    pub(crate) fn local(&self) -> Option<&Address> {
        self.local.get()
    }

    /// A connection has come on a loop. Returns false if nobody accepts any more.
    pub(crate) fn push(
        &self,
        on: LoopIndex,
        link: &Arc<Link>,
        listener: ListenerId,
        wakers: &mut Vec<Waker>,
    ) -> bool {
        let state = &mut *lock(&self.state);
        let Some(lane) = state.lanes.place(state.lane_of(on)) else {
            return false;
        };
        state.lanes.push(lane, Arc::clone(link));
        state.holders[lane].accepters.take_all(wakers);
        if state.lanes.is_full() && !state.paused.iter().any(|(paused, _)| *paused == listener) {
            let family = link.home.family();
            let remote = &family.homes()[usize::from(listener.loop_index().get())].remote;
            // With the lock held, so that a resume cannot overtake it. If the inbox is full, it is asked again with the next one.
            if remote.post(Command::PauseListening { listener }).is_ok() {
                state.paused.push((listener, remote.clone()));
            }
        }
        true
    }

    /// Accepting failed for now, on a loop that accepts for all or for itself.
    pub(crate) fn fail(&self, on: LoopIndex, errno: Errno, wakers: &mut Vec<Waker>) {
        let state = &mut *lock(&self.state);
        let own = state.lane_of(on);
        let told = if state.lanes.has_holder(own) {
            own
        } else {
            (0..state.lanes.count())
                .find(|&lane| state.lanes.has_holder(lane))
                .unwrap_or(own)
        };
        let holder = &mut state.holders[told];
        holder.failure.get_or_insert(errno);
        holder.accepters.take_all(wakers);
    }

    /// The listener is gone.
    pub(crate) fn end(&self, error: Option<Errno>, wakers: &mut Vec<Waker>) {
        let state = &mut *lock(&self.state);
        for lane in 0..state.lanes.count() {
            state.end(lane, error, wakers);
        }
    }

    /// A loop is gone, and with it the share of who accepts there.
    pub(crate) fn end_share(&self, on: LoopIndex, wakers: &mut Vec<Waker>) {
        let state = &mut *lock(&self.state);
        state.end(state.lane_of(on), None, wakers);
    }

    pub(crate) fn is_shared(&self) -> bool {
        lock(&self.state).lanes.count() > 1
    }
}

impl State {
    fn lane_of(&self, on: LoopIndex) -> usize {
        if self.lanes.count() == 1 {
            0
        } else {
            usize::from(on.get())
        }
    }

    fn end(&mut self, lane: usize, error: Option<Errno>, wakers: &mut Vec<Waker>) {
        self.lanes.end(lane);
        let holder = &mut self.holders[lane];
        holder.ended = Some(error);
        holder.accepters.take_all(wakers);
    }

    /// Has the listeners accept again once few wait. Returns false if one could not be told.
    fn resume(&mut self) -> bool {
        if !self.paused.is_empty() && self.lanes.is_low() {
            // With the lock held, as the pause is.
            self.paused.retain(|&(listener, ref remote)| {
                let result = remote.post(Command::ResumeListening { listener });
                matches!(result, Err(PostError::Full(_)))
            });
            return self.paused.is_empty();
        }
        true
    }
}

/// A loop's share of what a listener accepts, or all of it. Dropped, it leaves that to those who have the others.
#[derive(Debug)]
pub(crate) struct Share {
    acceptor: Arc<Acceptor>,
    lane: usize,
}

impl Share {
    /// Somebody accepts from now on.
    pub(crate) fn take(&self) {
        lock(&self.acceptor.state).lanes.take(self.lane);
    }

    /// The next connection, with its peer's address.
    pub(crate) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
        future: Option<&mut Option<WaiterKey>>,
    ) -> Poll<io::Result<(Arc<Link>, Address)>> {
        let mut state = lock(&self.acceptor.state);
        if let Some(errno) = state.holders[self.lane].failure.take() {
            return Poll::Ready(Err(errno.into()));
        }
        if let Some(link) = state.lanes.pop(self.lane) {
            state.resume();
            drop(state);
            let peer = link.peer().cloned().unwrap_or(Address::UnixUnnamed);
            return Poll::Ready(Ok((link, peer)));
        }
        let holder = &mut state.holders[self.lane];
        if let Some(error) = holder.ended {
            let error = error.map_or_else(
                || io::Error::other("the listener has ended: its loop was drained, or is gone"),
                io::Error::from,
            );
            return Poll::Ready(Err(error));
        }
        let before = match future {
            Some(key) => holder.accepters.wait(key, cx.waker()),
            None => holder.accepters.poll(cx.waker()),
        };
        let resumed = state.resume();
        drop(state);
        drop(before);
        if !resumed {
            // The loop's inbox is full, and being emptied: nothing else would have it asked again.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Whether nothing comes any more.
    pub(crate) fn has_ended(&self) -> bool {
        let state = lock(&self.acceptor.state);
        state.holders[self.lane].ended.is_some() && state.lanes.is_empty(self.lane)
    }

    pub(crate) fn forget(&self, key: WaiterKey) {
        let waker = lock(&self.acceptor.state).holders[self.lane]
            .accepters
            .forget(key);
        drop(waker);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut wakers = Vec::new();
        let mut state = lock(&self.acceptor.state);
        let left = state.lanes.close(self.lane);
        // Some have more to accept now.
        for holder in &mut state.holders {
            holder.accepters.take_all(&mut wakers);
        }
        state.resume();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        // With nobody who accepts, it is reset, as what a kernel's socket has queued when it is closed.
        for link in left {
            link.drop_stream(true);
        }
    }
}
