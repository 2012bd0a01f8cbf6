//! What a loop takes of the machine's memory.

use crate::config::Config;
use crate::features::{Feature, FeatureSet};
use crate::reserved::stride;

/// Bytes of a submission queue entry (`struct io_uring_sqe`).
const SUBMISSION_ENTRY: u64 = 64;
/// Bytes of a completion queue entry (`struct io_uring_cqe`).
const COMPLETION_ENTRY: u64 = 16;
/// Bytes of an index into the submission queue entries, where the kernel wants an array of them.
const SUBMISSION_INDEX: u64 = 4;
/// Bytes of a provided buffer's entry (`struct io_uring_buf`).
const BUFFER_ENTRY: u64 = 16;
/// Bytes before the completion queue's entries (`struct io_rings`), rounded up.
const QUEUE_HEADER: u64 = 512;
/// Address space for finding out what io_uring has, before the loop is made: a send that no socket takes at once, and the
/// stack of a thread that wakes a ring.
const TRYING: u64 = 24 << 20;
/// Bytes of a page. Where pages are larger, areas are rounded up to those.
const PAGE: u64 = 4096;

/// Bytes of memory that one loop takes, by purpose.
///
/// What the kernel pins is charged against `RLIMIT_MEMLOCK`, which all processes of a user share and which does
/// not bind those with `CAP_IPC_LOCK`. The registered pool is charged by every kernel; the queues and the buffer
/// ring by those before 5.12 and since 6.14, and by the others to the memory control group instead (kernel commit
/// 26bfa89e25f4, `io_create_region` in `io_uring/memmap.c`). So [`Footprint::locked`] is what to allow for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footprint {
    /// Pinned: the submission and completion queues.
    pub queues: u64,
    /// Pinned: the ring of provided buffers; 0 without [`Feature::BufferRing`].
    pub buffer_ring: u64,
    /// Pinned: the receive pool, if it is registered ([`Config::register_pool`]); else 0.
    pub registered_pool: u64,
    /// Reserved, touched as it is used: the receive pool. Another 64 KiB beside it take what is received only to be
    /// dropped.
    pub receive_pool: u64,
    /// Reserved, touched as it is used: the chunks for copied sends.
    pub send_memory: u64,
    /// Allocated, most of it touched as it is used: what keeps account of connections, timers, slots and posted commands. An
    /// upper bound.
    pub tables: u64,
}

impl Footprint {
    /// Bytes that the probe's small rings take, and give back late, when a loop is made: two pages for each of the
    /// six rings that it makes at most, and one for its buffers. To allow for once under `RLIMIT_MEMLOCK`.
    pub const PROBE: u64 = 13 * PAGE;

    /// Of a loop with `config`, on io_uring with `features`.
    #[must_use]
    pub fn of(config: &Config, features: FeatureSet) -> Self {
        let pages = |bytes: u64| bytes.next_multiple_of(PAGE);
        let submissions = u64::from(config.submission_queue);
        let indices = if features.contains(Feature::NoSubmissionArray) {
            0
        } else {
            submissions * SUBMISSION_INDEX
        };
        let completions = u64::from(config.completion_entries(features)) * COMPLETION_ENTRY;
        let receive_pool = u64::from(config.receive_slots) * stride(config.receive_slot_size) as u64;
        Self {
            queues: pages(submissions * SUBMISSION_ENTRY) + pages(QUEUE_HEADER + completions + indices),
            buffer_ring: if features.contains(Feature::BufferRing) {
                pages(u64::from(config.buffer_ring) * BUFFER_ENTRY)
            } else {
                0
            },
            registered_pool: if config.register_pool { receive_pool } else { 0 },
            receive_pool,
            send_memory: u64::from(config.send_chunks) * stride(config.send_chunk_size) as u64,
            tables: tables(config),
        }
    }

    /// Bytes to allow for under `RLIMIT_MEMLOCK`.
    #[must_use]
    pub fn locked(&self) -> u64 {
        self.queues + self.buffer_ring + self.registered_pool
    }

    /// Bytes of address space reserved, touched as they are used.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.receive_pool + self.send_memory
    }

    /// Bytes of address space that there must be for the loop to be made. An upper bound.
    #[must_use]
    pub fn address_space(&self) -> u64 {
        self.queues + self.buffer_ring + self.reserved() + self.tables + TRYING
    }
}

/// At most what is allocated for a loop, as `tests/address_space.rs` finds it to be.
fn tables(config: &Config) -> u64 {
    /// A connection and its record in the engine.
    const CONNECTION: u64 = 512;
    const TIMER: u64 = 64;
    const DATAGRAM_SOCKET: u64 = 2048;
    /// A slot of the receive pool, and a lease of it over the C ABI.
    const SLOT: u64 = 128;
    const POSTED: u64 = 128;
    /// All that has a size of its own, and what the allocator asks the kernel for beyond that.
    const REST: u64 = 2 << 20;
    u64::from(config.connections + config.listeners) * CONNECTION
        + u64::from(config.timer_limit() + config.own_timers()) * TIMER
        + u64::from(config.datagram_sockets) * DATAGRAM_SOCKET
        + u64::from(config.receive_slots) * SLOT
        + u64::from(config.inbox) * POSTED
        + REST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_what_its_parts_are() {
        let footprint = Footprint::of(&Config::default(), FeatureSet::ALL);
        // 512 submissions are 8 pages; 4,096 completions 16 and one for the header; 256 buffers one.
        assert_eq!(footprint.queues, (8 + 17) * PAGE);
        assert_eq!(footprint.buffer_ring, PAGE);
        assert_eq!(footprint.locked(), 26 * PAGE);
        // Slots and chunks of whole pages have a cache line more each.
        assert_eq!(footprint.receive_pool, (16 << 20) + (64 << 10));
        assert_eq!(footprint.send_memory, (64 << 20) + (1 << 20));
    }

    #[test]
    fn options_and_missing_features_count() {
        let config = Config {
            register_pool: true,
            submission_queue: 4096,
            ..Config::default()
        };
        let footprint = Footprint::of(&config, FeatureSet::OLDEST);
        // 65,536 completions, which cannot overflow, are 256 pages.
        assert_eq!(footprint.queues, (64 + 256 + 5) * PAGE);
        assert_eq!(footprint.buffer_ring, 0);
        assert_eq!(footprint.locked(), footprint.queues + (16 << 20) + (64 << 10));
    }
}
