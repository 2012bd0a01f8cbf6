//! The account of a case of datagrams in words: the table of the article on Registered I/O.

use super::view::{NONE, bytes, percent};
use crate::lab::results::model::{CaseResults, DatagramFigures, Recovery, ServerSummary};
use crate::lab::table;

/// What stands above the table.
pub(super) const ABOUT: &str = "Every datagram that was sent is handled or missing; the runs fail where the sums do \
    not close. Packets dropped are those of the socket, the last datagrams of a run included; one that GRO joined \
    holds many. Where an overload came first, recovered says how long after its end the last loss was: from then on \
    everything was handled. A stall of milliseconds much later is enough for a loss, so beside it stands how soon the first \
    second began without any, and the share that was handled from the overload's end on.";

/// The columns behind the server's name.
pub(super) const TITLES: [&str; 13] = [
    "sent",
    "handled",
    "share",
    "sent a second",
    "handled a second",
    "user CPU",
    "kernel CPU",
    "packets dropped",
    "socket memory, peak of bound",
    "pool",
    "recovered after",
    "a second without loss after",
    "share after the overload",
];

/// Whether there is such a table.
pub(super) fn has_some(case: &CaseResults) -> bool {
    case.servers
        .iter()
        .any(|server| server.figures.datagrams.is_some())
}

/// The row of a server; `None` if it has no such figures.
pub(super) fn row(server: &ServerSummary) -> Option<[String; TITLES.len()]> {
    let datagrams: DatagramFigures = server.figures.datagrams?;
    Some([
        table::count(datagrams.sent),
        table::count(server.figures.units),
        percent(datagrams.handled_share),
        table::count(datagrams.sent_per_second),
        table::count(server.figures.units_per_second),
        table::nanoseconds(datagrams.user_ns_per_unit),
        table::nanoseconds(datagrams.kernel_ns_per_unit),
        table::count(datagrams.dropped_packets),
        format!(
            "{} of {}",
            bytes(datagrams.peak_socket_bytes),
            bytes(datagrams.socket_bound_bytes)
        ),
        bytes(datagrams.pool_bytes),
        datagrams.recovery.as_ref().map_or(NONE.to_owned(), recovered),
        datagrams.recovery.as_ref().map_or(NONE.to_owned(), whole_second),
        datagrams.recovery.map_or(NONE.to_owned(), |recovery| {
            format!("{:.3} %", 100.0 * recovery.handled_share_after)
        }),
    ])
}

fn whole_second(recovery: &Recovery) -> String {
    recovery
        .whole_second_after
        .map_or_else(|| "none".to_owned(), |after| format!("{after:.1} s"))
}

fn recovered(recovery: &Recovery) -> String {
    if recovery.recovered_share < 1.0 {
        return format!(
            "not within {:.1} s in {} of the runs",
            recovery.of_seconds,
            percent(1.0 - recovery.recovered_share)
        );
    }
    format!("{:.1} s", recovery.seconds)
}
