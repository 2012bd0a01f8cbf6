//! The doubles: the same names on loom's objects.
//!
//! loom treats a sequentially consistent access as one that only acquires or releases, but has the fence
//! (`fence(SeqCst)`). So the doubles put that fence before every sequentially consistent access that loads, which
//! gives all of them the one order that they promise. It orders what stands before it as well, which the real one
//! does not: an access that is `Relaxed` by mistake, right before a `SeqCst` one, may not be found.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

pub(crate) use loom::sync::atomic::fence;
use loom::sync::atomic::{self as loomed};
pub(crate) use loom::thread::yield_now;

use super::Ordering;
use crate::errno::Errno;

/// The ordering that loom is given, after the fence that makes up for the difference.
fn fenced(ordering: Ordering, loads: bool, stores: bool) -> Ordering {
    if ordering != Ordering::SeqCst {
        return ordering;
    }
    if loads {
        fence(Ordering::SeqCst);
    }
    match (loads, stores) {
        (true, true) => Ordering::AcqRel,
        (true, false) => Ordering::Acquire,
        _ => Ordering::Release,
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[derive(Debug)]
        pub(crate) struct $name(loomed::$name);

        #[allow(
            dead_code,
            reason = "what the standard library's has, as far as one of them is used"
        )]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(loomed::$name::new(value))
            }

            pub(crate) fn load(&self, ordering: Ordering) -> $value {
                self.0.load(fenced(ordering, true, false))
            }

            pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                self.0.store(value, fenced(ordering, false, true));
            }

            pub(crate) fn swap(&self, value: $value, ordering: Ordering) -> $value {
                self.0.swap(value, fenced(ordering, true, true))
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let failure = match failure {
                    Ordering::SeqCst => Ordering::Acquire,
                    other => other,
                };
                let success = fenced(success, true, true);
                self.0.compare_exchange(current, new, success, failure)
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

impl Default for AtomicU64 {
    fn default() -> Self {
        Self::new(0)
    }
}

macro_rules! counting {
    ($name:ident, $value:ty) => {
        impl $name {
            pub(crate) fn fetch_add(&self, value: $value, ordering: Ordering) -> $value {
                self.0.fetch_add(value, fenced(ordering, true, true))
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU8, u8);
atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
counting!(AtomicU32, u32);

impl AtomicU32 {
    pub(crate) fn fetch_sub(&self, value: u32, ordering: Ordering) -> u32 {
        self.0.fetch_sub(value, fenced(ordering, true, true))
    }

    pub(crate) fn fetch_or(&self, value: u32, ordering: Ordering) -> u32 {
        self.0.fetch_or(value, fenced(ordering, true, true))
    }

    pub(crate) fn fetch_and(&self, value: u32, ordering: Ordering) -> u32 {
        self.0.fetch_and(value, fenced(ordering, true, true))
    }
}

counting!(AtomicU64, u64);

/// A bounded queue that promises what `crossbeam_queue::ArrayQueue` does, and no more: pushes and pops each have an
/// order, a pop happens after the push of what it takes, and one that finds nothing is sequentially consistent.
#[derive(Debug)]
pub(crate) struct ArrayQueue<T> {
    pushed: AtomicU32,
    popped: AtomicU32,
    capacity: usize,
    /// Not loom's: no thread is interrupted while it holds this, and nothing becomes visible by it.
    items: Mutex<HashMap<u32, T>>,
}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            pushed: AtomicU32::new(0),
            popped: AtomicU32::new(0),
            capacity,
            items: Mutex::default(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut pushed = self.pushed.load(Ordering::SeqCst);
        loop {
            let popped = self.popped.load(Ordering::SeqCst);
            if pushed.wrapping_sub(popped) as usize >= self.capacity {
                // An old value is no reason to refuse.
                let now = self.pushed.load(Ordering::SeqCst);
                if now == pushed {
                    return Err(item);
                }
                pushed = now;
                continue;
            }
            match self
                .pushed
                .compare_exchange(pushed, pushed + 1, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => break,
                Err(now) => pushed = now,
            }
        }
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.insert(pushed, item);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut popped = self.popped.load(Ordering::SeqCst);
        loop {
            if popped >= self.pushed.load(Ordering::SeqCst) {
                return None;
            }
            match self
                .popped
                .compare_exchange(popped, popped + 1, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => break,
                Err(now) => popped = now,
            }
        }
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        Some(items.remove(&popped).expect("each number is taken once"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        let popped = self.popped.load(Ordering::SeqCst);
        popped >= self.pushed.load(Ordering::SeqCst)
    }
}

/// What an eventfd is to a poller that watches it edge-triggered: written since it was last waited for, or not.
#[derive(Debug, Default)]
struct Edge {
    written: loom::sync::Mutex<bool>,
    change: loom::sync::Condvar,
}

/// Edges by the numbers that stand for descriptors, in ascending order.
type Edges = VecDeque<(RawFd, Arc<Edge>)>;

/// Those of the present execution.
static EDGES: LazyLock<Mutex<Edges>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
pub(crate) struct Eventfd {
    number: RawFd,
    edge: Arc<Edge>,
}

impl Eventfd {
    pub(crate) fn new(_flags: i32) -> Result<Self, Errno> {
        let edge = Arc::new(Edge::default());
        let mut edges = EDGES.lock().unwrap_or_else(PoisonError::into_inner);
        let number = edges.back().map_or(0, |(number, _)| number + 1);
        edges.push_back((number, Arc::clone(&edge)));
        Ok(Self { number, edge })
    }

    pub(crate) fn write(&self) {
        *self.edge.written.lock().expect("no thread panics and goes on") = true;
        self.edge.change.notify_one();
    }

    /// Waits as a poller does, until the eventfd with this number is written, or was since the last wait.
    #[cfg(test)]
    pub(crate) fn wait(number: RawFd) {
        let edge = {
            let edges = EDGES.lock().unwrap_or_else(PoisonError::into_inner);
            let found = edges.iter().find(|(other, _)| *other == number);
            Arc::clone(&found.expect("it exists as long as its loop").1)
        };
        let mut written = edge.written.lock().expect("no thread panics and goes on");
        while !*written {
            written = edge.change.wait(written).expect("no thread panics and goes on");
        }
        *written = false;
    }
}

impl Drop for Eventfd {
    fn drop(&mut self) {
        let mut edges = EDGES.lock().unwrap_or_else(PoisonError::into_inner);
        edges.retain(|(number, _)| *number != self.number);
    }
}

impl AsRawFd for Eventfd {
    fn as_raw_fd(&self) -> RawFd {
        self.number
    }
}
