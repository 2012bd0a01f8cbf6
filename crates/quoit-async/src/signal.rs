//! Something that happens once, and who waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::lock::lock;
use crate::waiters::{WaiterKey, Waiters};

/// A time that has come, a drain that has begun, a loop that has ended; `T` is what is to be said of it.
#[derive(Debug)]
pub(crate) struct Signal<T = ()> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    raised: Option<T>,
    waiting: Waiters,
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        let waiting = Waiters::default();
        Self {
            state: Mutex::new(State {
                raised: None,
                waiting,
            }),
        }
    }
}

impl<T> Signal<T> {
    /// It has happened. Who waits is to be woken.
    pub(crate) fn raise(&self, what: T, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.raised.get_or_insert(what);
        state.waiting.take_all(wakers);
    }

    pub(crate) fn is_raised(&self) -> bool {
        lock(&self.state).raised.is_some()
    }

    /// Waits until it has happened.
    pub(crate) fn wait(self: &Arc<Self>) -> Raised<T> {
        Raised {
            signal: Arc::clone(self),
            key: None,
        }
    }
}

/// Waits for a [`Signal`], which forgets it when it is dropped.
#[derive(Debug)]
pub(crate) struct Raised<T = ()> {
    signal: Arc<Signal<T>>,
    key: Option<WaiterKey>,
}

impl<T> Raised<T> {
    pub(crate) fn signal(&self) -> &Arc<Signal<T>> {
        &self.signal
    }
}

impl<T: Copy> Future for Raised<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let mut state = lock(&this.signal.state);
        if let Some(what) = state.raised {
            return Poll::Ready(what);
        }
        let before = state.waiting.wait(&mut this.key, cx.waker());
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl<T> Drop for Raised<T> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = lock(&self.signal.state).waiting.forget(key);
            drop(waker);
        }
    }
}
