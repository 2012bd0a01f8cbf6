//! The counts of datagram sockets, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quoit::counters::Figure;
use quoit::{DatagramCounters, DatagramSocketId, Loop, Token};

/// How old the counts are at most that are shown.
const TICK: Duration = Duration::from_millis(500);

/// What names the timer.
const TIMER: Token = Token(1);

/// A figure: its name, kind and description, where it stands, and how those of several sockets become one.
type Row = (
    &'static str,
    Figure,
    &'static str,
    fn(&DatagramCounters) -> u64,
    fn(u64, u64) -> u64,
);

const SUM: fn(u64, u64) -> u64 = u64::saturating_add;

const ROWS: [Row; 22] = [
    (
        "datagrams_received",
        Figure::Counter,
        "Datagrams received",
        |of| of.received,
        SUM,
    ),
    (
        "datagrams_received_bytes",
        Figure::Counter,
        "Their bytes",
        |of| of.received_bytes,
        SUM,
    ),
    (
        "datagrams_received_buffers",
        Figure::Counter,
        "Buffers that they came in; with GRO each may hold many",
        |of| of.received_buffers,
        SUM,
    ),
    (
        "datagrams_receive_batches",
        Figure::Counter,
        "Turns that brought any",
        |of| of.receive_batches,
        SUM,
    ),
    (
        "datagrams_largest_batch",
        Figure::Gauge,
        "The most buffers that one turn brought",
        |of| of.largest_batch,
        u64::max,
    ),
    (
        "datagrams_kernel_drops",
        Figure::Counter,
        "Buffers that the kernel dropped because the socket's memory was full",
        |of| of.kernel_drops,
        SUM,
    ),
    (
        "datagrams_pauses",
        Figure::Counter,
        "Times that receiving paused because all slots were held",
        |of| of.pauses,
        SUM,
    ),
    (
        "datagrams_truncated",
        Figure::Counter,
        "Datagrams that came cut",
        |of| of.truncated,
        SUM,
    ),
    (
        "datagrams_control_truncated",
        Figure::Counter,
        "Datagrams dropped because their control messages came cut",
        |of| of.control_truncated,
        SUM,
    ),
    (
        "datagrams_arms",
        Figure::Counter,
        "Receives that were armed",
        |of| of.arms,
        SUM,
    ),
    (
        "datagrams_receive_errors",
        Figure::Counter,
        "Errors that receiving brought",
        |of| of.receive_errors,
        SUM,
    ),
    (
        "datagrams_sent",
        Figure::Counter,
        "Datagrams that the kernel took",
        |of| of.sent,
        SUM,
    ),
    (
        "datagrams_sent_bytes",
        Figure::Counter,
        "Their bytes",
        |of| of.sent_bytes,
        SUM,
    ),
    (
        "datagrams_sends",
        Figure::Counter,
        "Sends that they took",
        |of| of.sends,
        SUM,
    ),
    (
        "datagrams_send_batches",
        Figure::Counter,
        "Operations that those left in",
        |of| of.send_batches,
        SUM,
    ),
    (
        "datagrams_sends_refused",
        Figure::Counter,
        "Sends refused because the queue was full",
        |of| of.sends_refused,
        SUM,
    ),
    (
        "datagrams_send_errors",
        Figure::Counter,
        "Sends that failed",
        |of| of.send_errors,
        SUM,
    ),
    (
        "datagrams_segmentation_refused",
        Figure::Counter,
        "Sends in segments that were made one by one instead",
        |of| of.segmentation_refused,
        SUM,
    ),
    (
        "datagrams_slots",
        Figure::Gauge,
        "Slots of receive memory",
        |of| of.slots,
        SUM,
    ),
    (
        "datagrams_slots_leased",
        Figure::Gauge,
        "Slots that are held",
        |of| of.slots_leased,
        SUM,
    ),
    (
        "datagrams_slots_low_water",
        Figure::Gauge,
        "The fewest slots not held at any moment",
        |of| of.slots_low_water,
        SUM,
    ),
    (
        "datagrams_queued_bytes",
        Figure::Gauge,
        "Bytes queued for sending",
        |of| of.queued_bytes,
        SUM,
    ),
];

/// One loop's counts as last published: written by its thread, read by any.
#[derive(Debug)]
pub(crate) struct DatagramFigures {
    values: [AtomicU64; ROWS.len()],
    /// Whether anybody reads them.
    shown: bool,
}

impl DatagramFigures {
    /// All zero; published only if they are `shown`.
    pub(crate) fn new(shown: bool) -> Self {
        Self {
            values: [const { AtomicU64::new(0) }; ROWS.len()],
            shown,
        }
    }

    /// Lets the handler's timer fire when it is time to publish. Not where nobody reads what is published: as long as a
    /// loop has a timer, the kernel starts one of its own for each of the loop's sleeps, which costs 20 to 70 ns per
    /// datagram where many sleeps bring few each.
    pub(super) fn tick(&self, event_loop: &mut Loop) {
        if self.shown {
            // A loop has room for more than this one timer.
            let _ = event_loop.set_named_timer(TICK, TIMER);
        }
    }

    /// Publishes the counts of these sockets of a loop.
    pub(super) fn publish(&self, event_loop: &mut Loop, sockets: &[DatagramSocketId]) {
        let counters: Vec<DatagramCounters> = sockets
            .iter()
            .filter_map(|&socket| event_loop.datagram_counters(socket))
            .collect();
        for (published, (.., value, join)) in self.values.iter().zip(ROWS) {
            let joined = counters.iter().map(value).fold(0, join);
            published.store(joined, Ordering::Relaxed);
        }
    }

    /// Every figure with its name, its kind and its description, in a fixed order.
    pub(crate) fn figures(&self) -> Vec<(&'static str, Figure, &'static str, u64)> {
        let values = self.values.iter().map(|value| value.load(Ordering::Relaxed));
        ROWS.iter()
            .zip(values)
            .map(|(&(name, figure, description, ..), value)| (name, figure, description, value))
            .collect()
    }
}
