//! Who waits for send chunks, in the order in which they were refused.

use std::collections::VecDeque;

use crate::id::ConnectionId;

/// Connections that were refused for want of send chunks with nothing else queued. Those that end meanwhile stay in the list
/// until they are met, or are as many as the others: taking each out by itself would make many ends a quadratic cost.
#[derive(Debug, Default)]
pub(super) struct ChunkWaiters {
    list: VecDeque<ConnectionId>,
    /// How many of the list still exist.
    waiting: usize,
    looked_at: u64,
}

/// Connections that have ended and stay in the list in any case.
const STALE: usize = 16;

impl ChunkWaiters {
    pub(super) fn push(&mut self, connection: ConnectionId) {
        self.list.push_back(connection);
        self.waiting += 1;
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The first of the list, which may have ended.
    pub(super) fn first(&self) -> Option<ConnectionId> {
        self.list.front().copied()
    }

    /// Takes the first out, which `exists` or has ended.
    pub(super) fn take_first(&mut self, exists: bool) {
        self.list.pop_front();
        self.waiting -= usize::from(exists);
    }

    /// One of the list has ended; `exists` tells of each whether it has not.
    pub(super) fn end_one(&mut self, exists: impl Fn(ConnectionId) -> bool) {
        self.waiting -= 1;
        if self.list.len() > 2 * self.waiting + STALE {
            self.looked_at += self.list.len() as u64;
            self.list.retain(|&connection| exists(connection));
            assert_eq!(self.list.len(), self.waiting, "those that wait");
        }
    }

    /// Entries that were looked at for those that have ended.
    pub(super) fn looked_at(&self) -> u64 {
        self.looked_at
    }
}
