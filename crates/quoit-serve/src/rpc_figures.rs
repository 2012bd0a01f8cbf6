//! The counts of `serve rpc`, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use quoit::counters::Figure;

use super::rpc::Totals;

/// One loop's counts as last published: written by its thread, read by any.
#[derive(Debug, Default)]
pub(super) struct RpcFigures {
    streams: AtomicU64,
    streams_opened: AtomicU64,
    streams_refused: AtomicU64,
    messages_sent: AtomicU64,
    messages_received: AtomicU64,
    connections_failed: AtomicU64,
}

impl RpcFigures {
    pub(super) fn publish(&self, totals: &Totals) {
        for (figure, value) in [
            (&self.streams, totals.streams),
            (&self.streams_opened, totals.streams_opened),
            (&self.streams_refused, totals.streams_refused),
            (&self.messages_sent, totals.messages_sent),
            (&self.messages_received, totals.messages_received),
            (&self.connections_failed, totals.connections_failed),
        ] {
            figure.store(value, Ordering::Relaxed);
        }
    }

    /// Every figure with its name, its kind and its description, in a fixed order.
    pub(super) fn figures(&self) -> [(&'static str, Figure, &'static str, u64); 6] {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        [
            (
                "rpc_streams",
                Figure::Gauge,
                "Streams that are open",
                read(&self.streams),
            ),
            (
                "rpc_streams_opened",
                Figure::Counter,
                "Streams opened",
                read(&self.streams_opened),
            ),
            (
                "rpc_streams_refused",
                Figure::Counter,
                "Streams refused: at a limit, out of range, or while draining",
                read(&self.streams_refused),
            ),
            (
                "rpc_messages_sent",
                Figure::Counter,
                "Messages produced whole for sending",
                read(&self.messages_sent),
            ),
            (
                "rpc_messages_received",
                Figure::Counter,
                "Messages received whole",
                read(&self.messages_received),
            ),
            (
                "rpc_connections_failed",
                Figure::Counter,
                "Connections that broke the protocol and were closed for it",
                read(&self.connections_failed),
            ),
        ]
    }
}
