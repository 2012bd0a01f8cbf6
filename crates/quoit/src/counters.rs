//! What a loop counts: changed by its thread alone, and read by any as a snapshot.

use std::sync::atomic::{AtomicU64, Ordering};

/// One figure as it is kept. The loop's thread changes it by a plain load and store, no dearer than a plain number, and
/// others read it at any moment. Changed by this crate alone: engines also go by what they have counted.
#[derive(Default, Debug)]
pub struct Count(AtomicU64);

impl Count {
    /// The figure now.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces it. As all that change a figure, for the loop's thread alone.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds to it.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.set(self.get() + count);
    }

    /// Takes from it what was added before.
    #[inline]
    pub(crate) fn subtract(&self, count: u64) {
        self.set(self.get() - count);
    }

    /// Raises it to a value that is higher.
    #[inline]
    pub(crate) fn raise(&self, value: u64) {
        if value > self.get() {
            self.set(value);
        }
    }
}

/// Whether a figure only grows or goes up and down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Only grows.
    Counter,
    /// The present value.
    Gauge,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $figure:ident $name:ident,)+) => {
        /// A snapshot of one loop's counters. All are since the loop was made; gauges are of now.
        /// Read by another thread while the loop runs, two of them may be of moments a little apart.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        /// The counters as the loop and its engine keep them, in the order of [`Counters`].
        #[derive(Default, Debug)]
        #[repr(C)]
        #[expect(missing_docs, reason = "each is documented in `Counters`")]
        pub struct LiveCounters {
            $(pub $name: Count,)+
        }

        impl LiveCounters {
            /// All as they are now.
            #[must_use]
            pub fn snapshot(&self) -> Counters {
                Counters { $($name: self.$name.get(),)+ }
            }
        }

        impl Counters {
            /// Every figure with its name, its kind and its description, in a fixed order: for exporters.
            pub fn figures(&self) -> impl Iterator<Item = (&'static str, Figure, &'static str, u64)> {
                [$((stringify!($name), Figure::$figure, concat!($($doc),+).trim_ascii(), self.$name)),+].into_iter()
            }

            /// The sum of two loops' figures, name by name; but the lower of the low waters and the longer lag.
            #[must_use]
            pub fn merge(&self, other: &Self) -> Self {
                let mut merged = Self { $($name: self.$name.saturating_add(other.$name),)+ };
                merged.pool_low_water = match (self.pool_slots, other.pool_slots) {
                    // Of no loop, as the sum that others are added to begins.
                    (0, _) => other.pool_low_water,
                    (_, 0) => self.pool_low_water,
                    _ => self.pool_low_water.min(other.pool_low_water),
                };
                merged.loop_lag_max_ns = self.loop_lag_max_ns.max(other.loop_lag_max_ns);
                merged
            }
        }
    };
}

/// Hands the list of all figures to the macro named, as `#[doc = ...]* Kind name,`: one place says what there is, and
/// other front doors make their own structures of it.
///
/// New figures go to the end: foreign structures only grow.
#[macro_export]
#[doc(hidden)]
macro_rules! each_counter {
    ($make:ident) => {
        $make! {
            /// Turns of the loop.
            Counter turns,
            /// Entries into the kernel to wait or submit: `io_uring_enter(2)` or `epoll_pwait2(2)`.
            Counter enters,
            /// System calls that the engine and the loop made for data and connections, `enters` included.
            Counter system_calls,
            /// Submission queue entries handed to the kernel; on epoll, operations handed to the engine.
            Counter submissions,
            /// Completion queue entries received, which successes in silence have none of; on epoll, operations' completions.
            Counter completions,
            /// Times that the submission queue was full and had to be flushed early.
            Counter submission_queue_full,
            /// Times that the kernel was found to hold completions for which the queue had no room.
            Counter completion_queue_overflows,
            /// Operations in the kernel's hands; on epoll, in the engine's.
            Gauge in_flight,

            /// Connections that exist.
            Gauge connections,
            /// Connections accepted.
            Counter accepted,
            /// Accept operations armed.
            Counter accept_arms,
            /// Times that accepting paused because all connection slots were taken.
            Counter accept_paused_full,
            /// Times that accepting was put off: for want of descriptors or memory, because 256 connections wait for a
            /// slot of the receive pool, or because it failed for another reason that may last.
            Counter accept_paused_resources,
            /// Connections established from this end.
            Counter connected,
            /// Connections closed because this end did.
            Counter closed_local,
            /// Connections closed after the peer ended first.
            Counter closed_peer,
            /// Connections reset by the peer.
            Counter closed_reset,
            /// Connections that timed out.
            Counter closed_timeout,
            /// Connections closed at a limit.
            Counter closed_limit,
            /// Connections closed by another error.
            Counter closed_error,

            /// Bytes received.
            Counter received_bytes,
            /// Pieces received: slots filled.
            Counter received_pieces,
            /// Receive operations armed, first times included.
            Counter receive_arms,
            /// Receives that found no free slot.
            Counter receive_no_buffers,
            /// Pieces that arrived after a pause or past a lease cap, and were kept.
            Counter receive_overshoot,
            /// Times that a connection's receiving paused because it held all the leases it may.
            Counter lease_cap_reached,
            /// Slots of the receive pool.
            Gauge pool_slots,
            /// Slots that handlers hold, or that are held back from them.
            Gauge pool_leased,
            /// The fewest slots not leased at any moment.
            Gauge pool_low_water,

            /// Send operations that ended.
            Counter sends,
            /// Pieces of memory in them.
            Counter send_pieces,
            /// Bytes sent.
            Counter sent_bytes,
            /// Sends of handlers that left together with an earlier one.
            Counter sends_coalesced,
            /// Send operations that the socket took only in part.
            Counter short_sends,
            /// Sends refused because the queue was full.
            Counter sends_refused,
            /// Bytes queued for sending.
            Gauge queued_bytes,
            /// Chunks of send memory in use.
            Gauge send_chunks_used,
            /// Zero-copy send operations.
            Counter zero_copy_sends,
            /// Of those, the ones that were copied after all: by the kernel, or for want of memory to lock.
            Counter zero_copy_copied,

            /// Wakes that found the loop asleep and so wrote its eventfd.
            Counter wake_writes,
            /// Commands that came through the inbox.
            Counter posted_commands,
            /// Timers that fired.
            Counter timers_fired,
            /// The longest time between the end of a wait and the next one: how long a handler kept others waiting.
            Gauge loop_lag_max_ns,
            /// Events that found no room in their turn and were kept for the next.
            Counter surplus_events,

            // How much each of `enters` carried, by powers of two: a mean hides that some carry all and most nothing.
            /// Enters that submitted nothing.
            Counter enters_submitting_0,
            /// Enters that submitted one operation.
            Counter enters_submitting_1,
            /// Enters that submitted 2 or 3 operations.
            Counter enters_submitting_2,
            /// Enters that submitted 4 to 7 operations.
            Counter enters_submitting_4,
            /// Enters that submitted 8 to 15 operations.
            Counter enters_submitting_8,
            /// Enters that submitted 16 to 31 operations.
            Counter enters_submitting_16,
            /// Enters that submitted 32 to 63 operations.
            Counter enters_submitting_32,
            /// Enters that submitted 64 to 127 operations.
            Counter enters_submitting_64,
            /// Enters that submitted 128 to 255 operations.
            Counter enters_submitting_128,
            /// Enters that submitted 256 or more operations.
            Counter enters_submitting_256,
            /// Enters that brought no completion; what an enter brought is counted at the next one.
            Counter enters_bringing_0,
            /// Enters that brought one completion.
            Counter enters_bringing_1,
            /// Enters that brought 2 or 3 completions.
            Counter enters_bringing_2,
            /// Enters that brought 4 to 7 completions.
            Counter enters_bringing_4,
            /// Enters that brought 8 to 15 completions.
            Counter enters_bringing_8,
            /// Enters that brought 16 to 31 completions.
            Counter enters_bringing_16,
            /// Enters that brought 32 to 63 completions.
            Counter enters_bringing_32,
            /// Enters that brought 64 to 127 completions.
            Counter enters_bringing_64,
            /// Enters that brought 128 to 255 completions.
            Counter enters_bringing_128,
            /// Enters that brought 256 or more completions.
            Counter enters_bringing_256,

            /// Pieces received that were copied out of their slots, as their connections had their shares of the pool.
            Counter leases_copied,
            /// Of those, the ones that are held.
            Gauge leases_copied_now,
            /// Connections closed at a limit because their peers took nothing while the loop's memory was short.
            Counter stalled_closed,
            /// Sleeps that were to go on for more than the first event, with [`WaitMode::Coalesce`](crate::WaitMode::Coalesce).
            Counter coalesced_sleeps,
            /// Of the sends, those that another thread made while the loop slept; each is a system call.
            Counter direct_sends,
        }
    };
}

each_counter!(counters);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_named_and_described_once() {
        let counters = Counters {
            turns: 3,
            ..Counters::default()
        };
        let names: Vec<_> = counters.figures().map(|(name, ..)| name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        assert!(
            counters
                .figures()
                .any(|figure| figure == ("turns", Figure::Counter, "Turns of the loop.", 3))
        );
    }

    #[test]
    fn merging_sums_but_keeps_the_lowest_water() {
        let one = Counters {
            turns: 1,
            pool_slots: 8,
            pool_low_water: 5,
            ..Counters::default()
        };
        let two = Counters {
            turns: 2,
            pool_slots: 8,
            pool_low_water: 3,
            ..Counters::default()
        };
        let both = one.merge(&two);
        assert_eq!((both.turns, both.pool_low_water), (3, 3));
        let sum = [two, one]
            .iter()
            .fold(Counters::default(), |sum, of| sum.merge(of));
        assert_eq!(sum, both);
        assert_eq!(both.merge(&Counters::default()), both);
    }
}
