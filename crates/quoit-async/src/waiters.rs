//! Who waits for something: the task that polls, and any number of futures beside it.

use std::task::Waker;

/// Names a waiting future, so that it can be forgotten when it is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterKey {
    place: usize,
    /// Tells it from those that had the place before and have been woken.
    number: u64,
}

/// A future's waker at a place of its own, so that neither a poll nor a drop looks for it.
#[derive(Debug)]
enum Place {
    Taken(u64, Waker),
    /// With the next that is free; as many as there are if none is.
    Free(usize),
}

/// Wakers of one direction. They are taken out to be woken, and woken or dropped by the caller without any lock: both may run
/// code of the program's, the drop of a task among it.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// That of the task that polled last, as tokio has it: a poll by another task takes its place.
    poller: Option<Waker>,
    /// Those of futures.
    places: Vec<Place>,
    /// The first place that is free, as in [`Place::Free`].
    free: usize,
    last_number: u64,
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
            && let Some(Place::Taken(number, present)) = self.places.get_mut(key.place)
            && *number == key.number
        {
            return if present.will_wake(waker) {
                None
            } else {
                Some(std::mem::replace(present, waker.clone()))
            };
        }
        self.last_number += 1;
        let (place, number) = (self.free, self.last_number);
        let taken = Place::Taken(number, waker.clone());
        match self.places.get_mut(place) {
            Some(free) => {
                let Place::Free(next) = std::mem::replace(free, taken) else {
                    unreachable!("only places that are free are in their list");
                };
                self.free = next;
            }
            None => {
                self.places.push(taken);
                self.free = self.places.len();
            }
        }
        *key = Some(WaiterKey { place, number });
        None
    }

    /// Forgets a future that is dropped.
    #[must_use = "dropping a waker may run code of the program's: drop it without a lock"]
    pub(crate) fn forget(&mut self, key: WaiterKey) -> Option<Waker> {
        let place = self.places.get_mut(key.place)?;
        if !matches!(place, Place::Taken(number, _) if *number == key.number) {
            return None;
        }
        let before = std::mem::replace(place, Place::Free(self.free));
        self.free = key.place;
        match before {
            Place::Taken(_, waker) => Some(waker),
            Place::Free(_) => None,
        }
    }

    /// Takes all of them, to be woken.
    pub(crate) fn take_all(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.poller.take());
        self.free = 0;
        into.extend(self.places.drain(..).filter_map(|place| match place {
            Place::Taken(_, waker) => Some(waker),
            Place::Free(_) => None,
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    fn task() -> (Arc<Task>, Waker) {
        let task = Arc::new(Task);
        (Arc::clone(&task), Waker::from(task))
    }

    #[test]
    fn who_is_dropped_is_forgotten_and_its_place_used_again() {
        let (task, waker) = task();
        let mut waiters = Waiters::default();
        let mut keys = [None; 5];
        for _ in 0..100 {
            for key in &mut keys {
                assert!(waiters.wait(key, &waker).is_none());
            }
            assert_eq!(Arc::strong_count(&task), 2 + keys.len());
            // Not in the order in which they came.
            for at in [3, 0, 4, 1, 2] {
                drop(waiters.forget(keys[at].unwrap()));
                assert!(waiters.forget(keys[at].unwrap()).is_none());
            }
            assert_eq!(Arc::strong_count(&task), 2);
        }
        assert_eq!(waiters.places.len(), keys.len());
    }

    #[test]
    fn a_poll_again_takes_no_further_place() {
        let ((one, its), (other, others)) = (task(), task());
        let mut waiters = Waiters::default();
        let mut key = None;
        assert!(waiters.wait(&mut key, &its).is_none());
        // Whether it is the same waker is the best guess of the standard library, and wrong under Miri.
        drop(waiters.wait(&mut key, &its));
        drop(waiters.wait(&mut key, &others));
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (2, 3));
        assert_eq!(waiters.places.len(), 1);
    }

    #[test]
    fn the_key_of_who_was_woken_names_nobody_else() {
        let (_, waker) = task();
        let mut waiters = Waiters::default();
        let (mut woken, mut later) = (None, None);
        let _ = waiters.wait(&mut woken, &waker);
        let mut wakers = Vec::new();
        waiters.take_all(&mut wakers);
        assert_eq!(wakers.len(), 1);
        // Where the other was.
        let _ = waiters.wait(&mut later, &waker);
        assert!(waiters.forget(woken.unwrap()).is_none());
        let _ = waiters.wait(&mut woken, &waker);
        waiters.take_all(&mut wakers);
        assert_eq!(wakers.len(), 3);
    }
}
