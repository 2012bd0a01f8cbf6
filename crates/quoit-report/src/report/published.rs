//! Tables that somebody published, and the same figures of a run beside them.

use super::datagrams;
use super::view::{self, bytes, or_none, percent};
use crate::results::model::{DatagramFigures, Results};
use crate::table;

/// What stands above ours.
pub(super) const ABOUT: &str = "The same of this run: medians over the slices of each server. Time in the kernel is that of \
    the whole process by the time that passed, as the tick divides it.";

/// The columns of ours.
pub(super) const TITLES: [&str; 10] = [
    "case",
    "server",
    "sent",
    "handled",
    "share",
    "user CPU",
    "kernel CPU",
    "time in the kernel",
    "kernel memory: the socket's peak of its bound, UDP memory of the machine",
    "pool, of it pinned",
];

/// The rows of ours: all servers of all cases of datagrams. Empty if nothing was published, as every case has these
/// figures already.
pub(super) fn rows(results: &Results) -> Vec<[String; TITLES.len()]> {
    if results.experiment.published.is_empty() {
        return Vec::new();
    }
    let servers = results
        .cases
        .iter()
        .flat_map(|case| view::servers(case).into_iter().map(move |server| (case, server)));
    let rows = servers.filter_map(|(case, server)| {
        let figures: DatagramFigures = server.figures.datagrams?;
        let in_kernel = figures.kernel_ns_per_unit * server.figures.units_per_second / 1e9;
        Some([
            case.name.clone(),
            server.server.clone(),
            table::count(figures.sent),
            table::count(server.figures.units),
            percent(figures.handled_share),
            table::nanoseconds(figures.user_ns_per_unit),
            table::nanoseconds(figures.kernel_ns_per_unit),
            percent(in_kernel),
            format!(
                "{}, {}",
                datagrams::socket_memory(&figures),
                or_none(figures.peak_udp_memory_bytes, bytes)
            ),
            datagrams::pool(&figures),
        ])
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;
    use crate::results::model::Published;

    #[test]
    fn ours_stands_beside_what_was_published() {
        let mut results = example::results();
        results.cases.push(example::datagrams());
        assert!(rows(&results).is_empty(), "nothing was published");
        results.experiment.published = vec![Published::default()];
        let datagrams = results.cases.last_mut().expect("it was added");
        datagrams.servers[0]
            .figures
            .datagrams
            .as_mut()
            .expect("of datagrams")
            .wanted_buffer_bytes = Some(67_108_864.0);
        let rows = rows(&results);
        assert_eq!(rows.len(), 2, "a server each, and none of other loads");
        let ours = rows
            .iter()
            .find(|row| row[1] == "quoit/uring")
            .expect("it is there");
        assert_eq!(
            ours[2..8],
            ["1,000,000", "800,000", "80.0 %", "2.0 µs", "500 ns", "12.0 %"]
        );
        assert_eq!(ours[9], "128.0 KiB, 4.0 KiB");
        let asked = |row: &&[String; TITLES.len()]| {
            row[8] == "207.0 KiB of 208.0 KiB (64.0 MiB was asked for and not granted), 256.0 KiB"
        };
        assert_eq!(rows.iter().filter(asked).count(), 1, "{rows:?}");
    }
}
