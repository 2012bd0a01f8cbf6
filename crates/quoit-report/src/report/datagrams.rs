//! The account of a case of datagrams in words: the table of the article on Registered I/O.

use super::view::{NONE, bytes, or_none, percent};
use crate::results::model::{CaseResults, DatagramFigures, Recovery, ServerSummary};
use crate::table;

/// What stands above the table.
pub(super) const ABOUT: &str = "Every datagram that was sent is handled or missing; the runs fail where the sums do \
    not close. Packets dropped are those of the socket, the last datagrams of a run included; one that GRO joined \
    holds many. The socket's memory is that of SO_MEMINFO, with the kernel's overhead; a run fails whose socket held more than \
    its bound and what the processors may have been adding. UDP memory is what all such sockets of the machine had \
    together (/proc/net/sockstat), at the worst of ten glances per second, give or take the megabyte that the kernel keeps to \
    hand for each processor. Pinned is what the process has pinned for the \
    kernel (VmPin): receive buffers need not be. Where an overload came first, recovered says how long after its end the last loss was: from then on \
    everything was handled. A stall of milliseconds much later is enough for a loss, so beside it stands how soon the first \
    second began without any, and the share that was handled from the overload's end on.";

/// The columns behind the server's name.
pub(super) const TITLES: [&str; 14] = [
    "sent",
    "handled",
    "share",
    "sent per second",
    "handled per second",
    "user CPU",
    "kernel CPU",
    "packets dropped",
    "socket memory, peak of bound",
    "UDP memory of the machine",
    "pool, of it pinned",
    "recovered after",
    "time until one second without loss",
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
        socket_memory(&datagrams),
        or_none(datagrams.peak_udp_memory_bytes, bytes),
        pool(&datagrams),
        datagrams.recovery.as_ref().map_or(NONE.to_owned(), recovered),
        datagrams.recovery.as_ref().map_or(NONE.to_owned(), whole_second),
        datagrams.recovery.map_or(NONE.to_owned(), |recovery| {
            format!("{:.3} %", 100.0 * recovery.handled_share_after)
        }),
    ])
}

/// The most that the socket held, its bound, and the bound that was asked for where less was granted.
pub(super) fn socket_memory(datagrams: &DatagramFigures) -> String {
    let wanted = datagrams
        .wanted_buffer_bytes
        .filter(|&wanted| wanted > datagrams.socket_bound_bytes);
    format!(
        "{} of {}{}",
        bytes(datagrams.peak_socket_bytes),
        bytes(datagrams.socket_bound_bytes),
        wanted.map_or_else(String::new, |wanted| format!(
            " ({} was asked for and not granted)",
            bytes(wanted)
        ))
    )
}

/// What is received into, and what the server has pinned for the kernel.
pub(super) fn pool(datagrams: &DatagramFigures) -> String {
    let pinned = or_none(datagrams.pinned_bytes, bytes);
    format!("{}, {pinned}", bytes(datagrams.pool_bytes))
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
