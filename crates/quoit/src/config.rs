//! The limits and choices of one loop. Everything that can grow has a limit.

use std::fmt;
use std::time::Duration;

use crate::engine::EngineKind;
use crate::features::{Feature, FeatureSet};
use crate::id::MAX_SLOTS;
use crate::pool::MAX_POOL_SLOTS;

/// Which engine to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineChoice {
    /// io_uring where a probe finds it usable, and epoll otherwise.
    /// [`Loop::engine_reason`](crate::Loop::engine_reason) says why.
    #[default]
    Auto,
    /// This engine only. If it cannot run, making the loop fails with the reason.
    Require(EngineKind),
}

/// The most entries that a completion queue can have (`IORING_MAX_CQ_ENTRIES`).
const MOST_COMPLETIONS: u64 = 65_536;

/// The range of [`WaitMode::Coalesce`]: how long a loop may wait for more than the first event.
const COALESCING: std::ops::RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_millis(100);

/// How a loop waits until something happens. The mode does not change how the loop handles it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WaitMode {
    /// Sleep in the kernel. A busy loop hardly ever sleeps, and an idle loop costs nothing.
    #[default]
    Block,
    /// Poll for this long, then sleep. This saves the wake-up, some microseconds, if the next event usually comes within
    /// this time. The processor is busy meanwhile.
    Spin(Duration),
    /// Poll, and never sleep. It takes a whole processor for this loop alone. A turn with a time limit still ends at it.
    Poll,
    /// Sleep, and handle the events of this time together where that saves processor time. Such a sleep lasts for this
    /// time even if an event comes earlier. It ends early once as many events have come as one turn handles
    /// ([`Config::completions_per_turn`]). So there are fewer turns, and each has more to do. Responses are later by up to
    /// this time.
    ///
    /// Whether it saves anything, the loop finds out by trying: every few seconds it sets the processor time of stretches
    /// that coalesce against that of others, 20 ms each or longer, and coalesces only if six saved at least 2 % before two did
    /// not. What is dearer is tried in one stretch of sixty. With fewer than two events to be expected within this time
    /// it coalesces none, and does not try. [`Counters::coalesced_sleeps`](crate::Counters::coalesced_sleeps) tells.
    ///
    /// After this time the next event ends the sleep at once. So a loop that was idle responds as with
    /// [`WaitMode::Block`]. A turn's time limit and due timers end the sleep sooner. Wakes do not. The range is 1 µs to
    /// 100 ms.
    ///
    /// On io_uring since Linux 6.12 the kernel counts the events (`min_wait_usec`, `io_uring_enter(2)`). On older kernels,
    /// and on epoll, the loop sleeps for this time whatever comes, and then waits. The kernel adds the thread's timer slack
    /// to that sleep (50 µs; `prctl(2)`, `PR_SET_TIMERSLACK`). The mode has no effect while the loop is parked in another
    /// library's poller.
    Coalesce(Duration),
}

impl WaitMode {
    /// How long a sleep lasts even if an event comes earlier. It is zero for every mode but [`WaitMode::Coalesce`].
    #[must_use]
    pub const fn coalesces(self) -> Duration {
        match self {
            Self::Coalesce(time) => time,
            Self::Block | Self::Spin(_) | Self::Poll => Duration::ZERO,
        }
    }
}

/// The most bytes of the receive pool, and of the chunks for sends. It is more than one thread can fill, and small enough
/// that sums of such sizes do not overflow.
const MOST_MEMORY: u64 = 64 << 30;

/// The configuration of one loop. Start from [`Config::default`] and change what must differ.
///
/// The loop reserves memory for all of it when it is made, and touches that memory as it is used. If the kernel does not
/// reserve it, as under a low `RLIMIT_AS`, making the loop fails with `ENOMEM`. [`Footprint::address_space`] tells how
/// much is reserved.
///
/// [`Footprint::address_space`]: crate::Footprint::address_space
#[derive(Clone, Debug)]
pub struct Config {
    /// Which engine to run. Default: [`EngineChoice::Auto`].
    pub engine: EngineChoice,
    /// Features of io_uring that the loop does not use even if the kernel has them. Default: none.
    pub without: FeatureSet,
    /// Connections at once, at most 2^20. A connection counts until its [`Closed`](crate::Event::Closed) is reported. At
    /// the limit, accepting pauses. Default 16,384. The loop reserves memory for all of them (about 4 MiB of addresses),
    /// and touches it as it is used.
    pub connections: u32,
    /// Listeners at once. Default 64.
    pub listeners: u32,
    /// Datagram sockets at once, at most 1,024. Each has its own receive memory
    /// ([`DatagramOptions::slots`](crate::DatagramOptions::slots)). Default 64.
    pub datagram_sockets: u32,
    /// Timers that the handler may have set at once. Deadlines of connections count. The loop's own timers do not count,
    /// and can always be set: limits of connection attempts and closes, retries, draining. Default: two per connection,
    /// and 1,024 more.
    pub timers: Option<u32>,

    /// Slots of receive memory, at most 2^15. When all are leased, receiving pauses. Default 1,024.
    pub receive_slots: u32,
    /// Bytes of one slot. This is the most that one [`Event::Data`](crate::Event::Data) can carry. Default 16 KiB, as
    /// larger slots gain little on bulk transfers. With 1,024 of them a loop reserves 16 MiB, and touches what it has in
    /// use at once.
    pub receive_slot_size: u32,
    /// Leases that one connection may hold before its receiving pauses. Default 64. It pauses earlier if the connection
    /// holds its share of the loop's memory. That share shrinks as more of the memory is held (`docs/buffers.md`).
    pub leases_per_connection: u16,
    /// Close a connection, with reason `Limit`, if more arrives while it holds all the leases it may. The default, off, is
    /// to pause it. What arrives then is dropped. [`Event::Pressure`](crate::Event::Pressure) still comes first, when the
    /// connection reaches the limit.
    pub close_at_lease_limit: bool,

    /// Bytes that may be queued for sending on one connection. Past this mark, further sends are refused. Default 256 KiB.
    /// For copied sends the mark is lower while much is queued on all connections together: three quarters of the bytes of
    /// all chunks are shared out, and one connection may have an eighth of what is left of them.
    pub high_water: u32,
    /// After a refused send, [`Event::Writable`](crate::Event::Writable) follows once at most this many bytes are queued.
    /// Default 64 KiB.
    pub low_water: u32,
    /// Pieces of memory that may be queued for sending on one connection. Past this number, further sends are refused.
    /// Default 16,384: sixteen full gathered sends (`IOV_MAX` is 1,024).
    pub send_pieces: u32,
    /// Bytes of one chunk of memory for copied sends. Default 4 KiB. Several small sends share a chunk.
    pub send_chunk_size: u32,
    /// Chunks for copied sends in the whole loop. Received bytes that are held for long are copied too, and count here. The
    /// last quarter is kept for connections that have no chunk yet, one chunk for each. If no chunk is left for a
    /// connection, its copied sends are refused as full. Default 16,384: 64 MiB, touched as it is used.
    pub send_chunks: u32,
    /// Sends of at least this many bytes are lent to the kernel without a copy (`IORING_OP_SEND_ZC`), where the engine can
    /// do that. Default `None`: never. On loopback the kernel copies anyway, and below some KiB pinning costs more than
    /// copying. On a connection whose notifications say that the kernel copied, it turns itself off.
    pub zero_copy_threshold: Option<u32>,

    /// Entries of the submission queue. Default 512. A turn that has more to submit does it in parts.
    pub submission_queue: u32,
    /// Entries of the completion queue. Default 4,096: room for two completions of each of 2,048 connections between two
    /// turns. Where the queue must not overflow, it has more entries: see [`Config::completion_entries`].
    pub completion_queue: u32,
    /// Slots that may lie in the kernel's buffer ring, ready to be received into: a power of two, at most 32,768. A loop
    /// never uses more of them than its pool has. Default 256. With fewer slots, fewer cache lines are in use.
    pub buffer_ring: u32,
    /// Let a kernel thread poll the submission queue (`IORING_SETUP_SQPOLL`), and sleep after this idle time.
    /// Default `None`. It saves the system calls that submit. It takes up to a whole processor for each loop. The kernel
    /// cannot defer completion work then, so that work interrupts the loop's thread.
    pub kernel_poll: Option<Duration>,
    /// Register the receive pool's memory with the ring, for zero-copy sends of leases. Default off. That memory is
    /// charged against `RLIMIT_MEMLOCK`. Datagram sockets have memory of their own, which this does not affect.
    pub register_pool: bool,

    /// Make a loop that another library's poller can wait for. Only such a loop has a
    /// [`Loop::poll_descriptor`](crate::Loop::poll_descriptor) and can be parked. Default off. The ring of a pollable loop
    /// does not defer work ([`Feature::DeferTaskrun`]), as kernels tell a poller of deferred work late or never. Linux
    /// 6.12.115 and later releases of 6.12 tell it once, and 7.x after 14 ms.
    ///
    /// [`Feature::DeferTaskrun`]: crate::Feature::DeferTaskrun
    pub pollable: bool,
    /// How the loop waits. Default: [`WaitMode::Block`].
    pub wait: WaitMode,
    /// About how many completions one turn handles. The others come in the next turn, which does not wait. Default 64. What
    /// a turn receives is handled at its end, and this much is still in the processor's caches by then. With 1,024, a
    /// thousand busy connections cost the epoll engine 1.7 times as much (`docs/results-history.md`).
    pub completions_per_turn: u32,
    /// Pool slots that one connection may fill in one turn of the epoll engine before others get theirs.
    /// Default 16.
    pub receives_per_turn: u32,
    /// The most commands that may wait in the [`Remote`](crate::Remote)'s inbox. Default 4,096.
    pub inbox: u32,

    /// Time limit of a connection attempt whose [`ConnectOptions`](crate::ConnectOptions) set none. Default 30 s.
    pub connect_timeout: Duration,
    /// How long a graceful close waits for a peer that takes nothing, if its command sets no deadline. After this time the
    /// connection is closed if the kernel has all that was sent, and the kernel goes on sending. If something is still
    /// queued in the loop, the connection is reset once its peer has taken nothing for this time. The loop notices that
    /// within as much time again. Default 10 s.
    pub close_deadline: Duration,
    /// How long a connection may hold memory without progress while the loop's memory is short. Without progress means: its
    /// peer has taken nothing, and its handler has returned no lease. After this time, to within two seconds, the
    /// connection is reset with reason `Limit`. Those without progress for longest go first, and no more of them than
    /// needed. Default 30 s.
    pub stall_limit: Duration,
    /// How long the loop goes on trying to make a ring that the kernel has no memory for (`ENOMEM`). The kernel frees the
    /// memory of closed rings late. Default 2 s.
    pub ring_memory_patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: EngineChoice::Auto,
            without: FeatureSet::default(),
            connections: 16_384,
            listeners: 64,
            datagram_sockets: 64,
            timers: None,
            receive_slots: 1024,
            receive_slot_size: 16 * 1024,
            leases_per_connection: 64,
            close_at_lease_limit: false,
            high_water: 256 * 1024,
            low_water: 64 * 1024,
            send_pieces: 16_384,
            send_chunk_size: 4096,
            send_chunks: 16_384,
            zero_copy_threshold: None,
            submission_queue: 512,
            completion_queue: 4096,
            buffer_ring: 256,
            kernel_poll: None,
            register_pool: false,
            pollable: false,
            wait: WaitMode::Block,
            completions_per_turn: 64,
            receives_per_turn: 16,
            inbox: 4096,
            connect_timeout: Duration::from_secs(30),
            close_deadline: Duration::from_secs(10),
            stall_limit: Duration::from_secs(30),
            ring_memory_patience: Duration::from_secs(2),
        }
    }
}

/// A field of a [`Config`] is out of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigError {
    field: &'static str,
    requirement: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration: `{}` must be {}", self.field, self.requirement)
    }
}

impl std::error::Error for ConfigError {}

/// Whether a limit holds, the field that it is for, and what it asks for.
type Limit = (bool, &'static str, &'static str);

const fn memory(count: u32, size: u32) -> u64 {
    count as u64 * size as u64
}

const fn is_power_of_two(value: u32, most: u32) -> bool {
    value.is_power_of_two() && value <= most
}

impl Config {
    /// The most timers of the handler at once: as configured, or enough for every connection.
    pub(crate) fn timer_limit(&self) -> u32 {
        self.timers.unwrap_or(self.connections * 2 + 1024)
    }

    /// The most timers of the loop's own at once: one per connection for its limit, one per listener for its retry, two
    /// per datagram socket (one of each kind), one for draining and one for the next inspection.
    pub(crate) fn own_timers(&self) -> u32 {
        self.connections + self.listeners + 2 * self.datagram_sockets + 2
    }

    /// Entries of the completion queue of a ring that has `features`. They are as configured. Where the queue must not
    /// overflow, there are enough for all that may be in flight, but at most the kernel's 65,536.
    ///
    /// The queue must not overflow if [`Feature::SubmitAll`] is missing, as the kernel may then be a 5.15. Maintained
    /// releases of 5.15 have a fault: if they have to reschedule while they move overflowed completions, they unlock the
    /// ring's mutex, which nobody has locked, and then lock it for good. The loop's next call then never returns, and its
    /// thread cannot be ended. The change was carried back from 6.13 ("io_uring: check if we need to reschedule during
    /// overflow flush"), but only since 6.10 is the lock held at that place. Seen on Ubuntu 22.04's 5.15.0-204.
    #[must_use]
    pub fn completion_entries(&self, features: FeatureSet) -> u32 {
        if features.contains(Feature::SubmitAll) {
            return self.completion_queue;
        }
        // Per connection: a receive, a send, and a cancellation of each. The same per listener and per datagram socket.
        // And a few wakes.
        let operations =
            4 * (u64::from(self.connections) + u64::from(self.listeners) + u64::from(self.datagram_sockets));
        let entries = (operations + 16).next_power_of_two().min(MOST_COMPLETIONS);
        self.completion_queue.max(entries as u32)
    }

    /// Checks every field against its range.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let checks = self
            .limits_of_objects()
            .into_iter()
            .chain(self.limits_of_receiving());
        let mut checks = checks
            .chain(self.limits_of_sending())
            .chain(self.limits_of_turns());
        match checks.find(|(holds, ..)| !holds) {
            Some((_, field, requirement)) => Err(ConfigError { field, requirement }),
            None => Ok(()),
        }
    }

    /// What a loop has how many of.
    fn limits_of_objects(&self) -> [Limit; 4] {
        [
            (
                (1..=MAX_SLOTS).contains(&self.connections),
                "connections",
                "from 1 to 1,048,576",
            ),
            (
                (1..=65_536).contains(&self.listeners),
                "listeners",
                "from 1 to 65,536",
            ),
            (self.datagram_sockets <= 1024, "datagram_sockets", "at most 1,024"),
            (
                self.timers.is_none_or(|timers| timers <= 1 << 24),
                "timers",
                "at most 16,777,216",
            ),
        ]
    }

    /// Memory for what is received.
    fn limits_of_receiving(&self) -> [Limit; 5] {
        [
            (
                (1..=MAX_POOL_SLOTS).contains(&self.receive_slots),
                "receive_slots",
                "from 1 to 32,768",
            ),
            (
                (64..=1 << 24).contains(&self.receive_slot_size),
                "receive_slot_size",
                "from 64 bytes to 16 MiB",
            ),
            (
                memory(self.receive_slots, self.receive_slot_size) <= MOST_MEMORY,
                "receive_slots",
                "few enough that together they have at most 64 GiB",
            ),
            (
                self.leases_per_connection >= 1,
                "leases_per_connection",
                "at least 1",
            ),
            (
                is_power_of_two(self.buffer_ring, MAX_POOL_SLOTS),
                "buffer_ring",
                "a power of two, at most 32,768",
            ),
        ]
    }

    /// Memory for what is sent.
    fn limits_of_sending(&self) -> [Limit; 6] {
        [
            (
                memory(self.send_chunks, self.send_chunk_size) <= MOST_MEMORY,
                "send_chunks",
                "few enough that together they have at most 64 GiB",
            ),
            (
                (1..=1 << 30).contains(&self.high_water),
                "high_water",
                "from 1 byte to 1 GiB",
            ),
            (
                self.low_water < self.high_water,
                "low_water",
                "below `high_water`",
            ),
            (self.send_pieces >= 1, "send_pieces", "at least 1"),
            (
                (64..=1 << 24).contains(&self.send_chunk_size),
                "send_chunk_size",
                "from 64 bytes to 16 MiB",
            ),
            (
                (1..=1 << 24).contains(&self.send_chunks),
                "send_chunks",
                "from 1 to 16,777,216",
            ),
        ]
    }

    /// The queues that a loop shares with the kernel and with other threads, and how much a turn does.
    fn limits_of_turns(&self) -> [Limit; 6] {
        [
            (
                is_power_of_two(self.submission_queue, 32_768),
                "submission_queue",
                "a power of two, at most 32,768",
            ),
            (
                is_power_of_two(self.completion_queue, MOST_COMPLETIONS as u32)
                    && self.completion_queue >= self.submission_queue,
                "completion_queue",
                "a power of two from `submission_queue` to 65,536",
            ),
            (
                !matches!(self.wait, WaitMode::Coalesce(time) if !COALESCING.contains(&time)),
                "wait",
                "coalescing for 1 µs to 100 ms, or another mode",
            ),
            (
                self.completions_per_turn >= 1,
                "completions_per_turn",
                "at least 1",
            ),
            (self.receives_per_turn >= 1, "receives_per_turn", "at least 1"),
            (
                (1..=1 << 20).contains(&self.inbox),
                "inbox",
                "from 1 to 1,048,576",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        Config::default().validate().unwrap();
    }

    #[test]
    fn coalescing_has_bounds() {
        let coalescing = |time| Config {
            wait: WaitMode::Coalesce(time),
            ..Config::default()
        };
        for time in [Duration::from_micros(1), Duration::from_millis(100)] {
            coalescing(time).validate().unwrap();
        }
        for time in [
            Duration::ZERO,
            Duration::from_nanos(999),
            Duration::from_millis(101),
        ] {
            let message = coalescing(time).validate().unwrap_err().to_string();
            assert!(
                message.contains("`wait` must be coalescing for 1 µs to 100 ms"),
                "{message}"
            );
        }
    }

    #[test]
    fn an_error_names_the_field() {
        let config = Config {
            low_water: 1 << 20,
            ..Config::default()
        };
        let message = config.validate().unwrap_err().to_string();
        assert_eq!(message, "configuration: `low_water` must be below `high_water`");
    }
}
