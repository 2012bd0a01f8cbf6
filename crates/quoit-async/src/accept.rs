//! Accepting: connections that have come, for who accepts them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

use quoit::{Address, Command, Errno, ListenerId, PostError, Remote};

use crate::link::Link;
use crate::lock::lock;
use crate::waiters::{WaiterKey, Waiters};

/// Connections that wait to be accepted here, from which on the others wait in the kernel's backlog.
const MOST_WAITING: usize = if cfg!(quoit_simulated) { 4 } else { 128 };

/// Connections of one listener, as they come, for those who accept them.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// The listener, and the loop that has it; known with the first connection.
    source: OnceLock<(ListenerId, Remote)>,
    /// That of all connections, unless it listens on every address of the host.
    local: OnceLock<Address>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arc<Link>>,
    /// The first failure that nobody was told of.
    failure: Option<Errno>,
    paused: bool,
    ended: Option<Option<Errno>>,
    dropped: bool,
    accepters: Waiters,
}

impl Acceptor {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            source: OnceLock::new(),
            local: OnceLock::new(),
            state: Mutex::default(),
        })
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

    /// A connection has come. Returns false if nobody accepts any more.
    pub(crate) fn push(&self, link: &Arc<Link>, listener: ListenerId, wakers: &mut Vec<Waker>) -> bool {
        let mut state = lock(&self.state);
        if state.dropped {
            return false;
        }
        let (_, remote) = self.source.get_or_init(|| {
            let family = link.home.family();
            (
                listener,
                family.homes()[usize::from(listener.loop_index().get())]
                    .remote
                    .clone(),
            )
        });
        state.waiting.push_back(Arc::clone(link));
        state.accepters.take_all(wakers);
        // With the lock held, so that a resume cannot overtake it. If the inbox is full, it is asked again with the next one.
        if !state.paused && state.waiting.len() >= MOST_WAITING {
            state.paused = remote.post(Command::PauseListening { listener }).is_ok();
        }
        true
    }

    /// Accepting failed for now.
    pub(crate) fn fail(&self, errno: Errno, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.failure.get_or_insert(errno);
        state.accepters.take_all(wakers);
    }

    /// The listener is gone.
    pub(crate) fn end(&self, error: Option<Errno>, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.ended = Some(error);
        state.accepters.take_all(wakers);
    }

    /// The next connection, with its peer's address.
    pub(crate) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
        future: Option<&mut Option<WaiterKey>>,
    ) -> Poll<io::Result<(Arc<Link>, Address)>> {
        let mut state = lock(&self.state);
        if let Some(errno) = state.failure.take() {
            return Poll::Ready(Err(errno.into()));
        }
        if let Some(link) = state.waiting.pop_front() {
            drop(state);
            self.resume();
            let peer = link.peer().cloned().unwrap_or(Address::UnixUnnamed);
            return Poll::Ready(Ok((link, peer)));
        }
        if let Some(error) = state.ended {
            let error = error.map_or_else(
                || io::Error::other("the listener has ended: its loop was drained, or is gone"),
                io::Error::from,
            );
            return Poll::Ready(Err(error));
        }
        let before = match future {
            Some(key) => state.accepters.wait(key, cx.waker()),
            None => state.accepters.poll(cx.waker()),
        };
        drop(state);
        drop(before);
        if !self.resume() {
            // The loop's inbox is full, and being emptied: nothing else would have it asked again.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Has the loop accept again once few wait. Returns false if it could not be told.
    fn resume(&self) -> bool {
        let mut state = lock(&self.state);
        if !state.paused || state.waiting.len() > MOST_WAITING / 2 {
            return true;
        }
        let Some(&(listener, ref remote)) = self.source.get() else {
            return true;
        };
        // With the lock held, as the pause is.
        let full = matches!(
            remote.post(Command::ResumeListening { listener }),
            Err(PostError::Full(_))
        );
        state.paused = full;
        !full
    }

    pub(crate) fn forget(&self, key: WaiterKey) {
        let waker = lock(&self.state).accepters.forget(key);
        drop(waker);
    }

    /// Nobody accepts any more: what waits is reset, as what a kernel's socket has queued when it is closed.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.dropped = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for link in waiting {
            link.drop_stream(true);
        }
    }
}
