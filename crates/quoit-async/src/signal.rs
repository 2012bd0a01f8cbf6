//! Something that happens once, and who waits for it.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use crate::lock::lock;
use crate::waiters::{WaiterKey, Waiters};

/// A time that has come, a drain that has begun, a loop that has ended.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    raised: bool,
    waiting: Waiters,
}

impl Signal {
    /// It has happened. Who waits is to be woken.
    pub(crate) fn raise(&self, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.raised = true;
        state.waiting.take_all(wakers);
    }

    /// Waits until it has happened. `key` is the waiting future's own.
    pub(crate) fn poll(&self, cx: &mut Context<'_>, key: &mut Option<WaiterKey>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.raised {
            return Poll::Ready(());
        }
        let before = state.waiting.wait(key, cx.waker());
        drop(state);
        drop(before);
        Poll::Pending
    }
}
