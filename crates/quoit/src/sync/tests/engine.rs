//! An engine whose kernel is a number of bytes that have arrived, and whose wait is the double of an eventfd.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;

use crate::counters::LiveCounters;
use crate::engine::{
    Completion, Completions, Engine, EngineKind, Kind, Operation, PollDescriptor, Received, Trigger,
};
use crate::errno::Errno;
use crate::id::Slot;
use crate::pool::{Pool, PoolSlot};
use crate::sync::Eventfd;
use crate::sys::Time;

/// Who touches the memory of each slot, for loom to see whether two do at once.
#[derive(Clone, Debug)]
pub(super) struct Touched(Arc<[UnsafeCell<u8>]>);

impl Touched {
    pub(super) fn new(slots: u32) -> Self {
        Self((0..slots).map(|_| UnsafeCell::new(0)).collect())
    }

    /// The slot's memory is read by whoever holds its lease, which has the slot's number.
    pub(super) fn read(&self, number: usize) {
        self.0[number].with(|_| ());
    }

    fn write(&self, slot: PoolSlot) {
        self.0[slot.index()].with_mut(|_| ());
    }
}

/// See the module. It serves one connection, to which `arrived` bytes come, one at a time.
#[derive(Debug)]
pub(super) struct Scripted {
    arrived: u32,
    touched: Touched,
    wake: Option<RawFd>,
    notifier: RawFd,
    armed: Option<Slot>,
    completions: Vec<Completion>,
    counters: Arc<LiveCounters>,
}

impl Scripted {
    /// One that can be waited for by `notifier`.
    pub(super) fn new(arrived: u32, touched: Touched, notifier: RawFd) -> Self {
        Self {
            arrived,
            touched,
            wake: None,
            notifier,
            armed: None,
            completions: Vec::new(),
            counters: Arc::default(),
        }
    }

    fn complete(&mut self, connection: Slot, received: Received) {
        self.armed = None;
        self.completions.push(Completion::Received {
            connection,
            received,
            more: false,
        });
    }
}

impl Engine for Scripted {
    fn kind(&self) -> EngineKind {
        EngineKind::Epoll
    }

    fn bind(&mut self, wake: RawFd, _pool: &mut Pool) -> Result<(), Errno> {
        self.wake = Some(wake);
        Ok(())
    }

    fn submit(&mut self, operation: Operation, _pool: &mut Pool) {
        match operation {
            Operation::Receive { connection, .. } => self.armed = Some(connection),
            Operation::Cancel {
                kind: Kind::Receive, ..
            } => {
                if let Some(connection) = self.armed {
                    self.complete(connection, Received::Stopped);
                }
            }
            Operation::Close { descriptor, .. } => drop(descriptor),
            other => panic!("no test asks for {other:?}"),
        }
    }

    fn coalesce(&mut self, _on: bool) {}

    fn may_sleep(&self) -> bool {
        self.completions.is_empty()
    }

    fn wait(&mut self, timeout: Option<Duration>, pool: &mut Pool) -> Result<(), Errno> {
        if let Some(connection) = self.armed.filter(|_| self.arrived > 0) {
            match pool.take() {
                Some(slot) => {
                    self.arrived -= 1;
                    self.touched.write(slot);
                    self.complete(connection, Received::Data { slot, length: 1 });
                }
                None => self.complete(connection, Received::NoBuffers),
            }
        } else if timeout != Some(Duration::ZERO) {
            // No timer is due before a wake that is on its way: one that was lost shows as a deadlock.
            Eventfd::wait(self.wake.expect("a loop binds its engine first"));
        }
        Ok(())
    }

    fn poll_descriptor(&self) -> Option<PollDescriptor> {
        Some(PollDescriptor::Notifier(self.notifier))
    }

    fn park(&mut self, _trigger: Trigger, _pool: &mut Pool) -> bool {
        self.completions.is_empty()
    }

    fn reap(&mut self, _pool: &mut Pool, _limit: usize, completions: &mut Completions) -> bool {
        completions.list.append(&mut self.completions);
        false
    }

    fn receivable(&self, pool: &Pool) -> usize {
        pool.free()
    }

    fn accept_margin(&self) -> u32 {
        1
    }

    fn wants_nonblocking(&self) -> bool {
        true
    }

    fn quiesce(&mut self, _pool: &mut Pool, _patience: Duration, _now: &dyn Fn() -> Time) -> bool {
        true
    }

    fn counters(&self) -> &Arc<LiveCounters> {
        &self.counters
    }
}
