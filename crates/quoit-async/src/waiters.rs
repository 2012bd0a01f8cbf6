//! Who waits for something: the task that polls, and any number of futures beside it.

use std::task::Waker;

/// Names a waiting future, so that it can be forgotten when it is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterKey(u64);

/// Wakers of one direction. They are taken out to be woken, and woken or dropped by the caller without any lock: both may run
/// code of the program's, the drop of a task among it.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// That of the task that polled last, as tokio has it: a poll by another task takes its place.
    poller: Option<Waker>,
    /// Those of futures, each with the key by which it is forgotten.
    futures: Vec<(WaiterKey, Waker)>,
    next_key: u64,
}

impl Waiters {
    /// Has `waker` woken in place of the one of an earlier poll, which is returned to be dropped.
    #[must_use = "dropping a waker may run code of the program's: drop it without a lock"]
    pub(crate) fn poll(&mut self, waker: &Waker) -> Option<Waker> {
        match &self.poller {
            Some(present) if present.will_wake(waker) => None,
            _ => self.poller.replace(waker.clone()),
        }
    }

    /// Has a future's `waker` woken: `key` names it from its first poll on.
    #[must_use = "dropping a waker may run code of the program's: drop it without a lock"]
    pub(crate) fn wait(&mut self, key: &mut Option<WaiterKey>, waker: &Waker) -> Option<Waker> {
        if let Some(key) = *key
            && let Some((_, present)) = self.futures.iter_mut().find(|(of, _)| *of == key)
        {
            return if present.will_wake(waker) {
                None
            } else {
                Some(std::mem::replace(present, waker.clone()))
            };
        }
        self.next_key += 1;
        let new = WaiterKey(self.next_key);
        *key = Some(new);
        self.futures.push((new, waker.clone()));
        None
    }

    /// Forgets a future that is dropped.
    #[must_use = "dropping a waker may run code of the program's: drop it without a lock"]
    pub(crate) fn forget(&mut self, key: WaiterKey) -> Option<Waker> {
        let at = self.futures.iter().position(|(of, _)| *of == key)?;
        Some(self.futures.swap_remove(at).1)
    }

    /// Takes all of them, to be woken.
    pub(crate) fn take_all(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.poller.take());
        into.extend(self.futures.drain(..).map(|(_, waker)| waker));
    }
}
