//! What the whole machine did meanwhile: time that others took, packets that were dropped.

use std::fs;

use super::process_tree::nanoseconds_a_tick;
use crate::error::{LabError, Result};

/// Counters of dropped packets, in `netstat` and `snmp` below `/proc/PID/net` (Documentation/networking/snmp_counter.rst).
const DROPS: [(&str, &str, &[&str]); 2] = [
    (
        "netstat",
        "TcpExt:",
        &[
            "ListenDrops",
            "TCPBacklogDrop",
            "TCPRcvQDrop",
            "PFMemallocDrop",
            "TCPReqQFullDrop",
        ],
    ),
    ("snmp", "Udp:", &["RcvbufErrors", "SndbufErrors"]),
];

/// Time of all processors since the start of the machine, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessorTimes {
    pub(crate) total: u64,
    /// Spent on processes and interrupts.
    pub(crate) busy: u64,
    /// Given to other machines by the hypervisor.
    pub(crate) stolen: u64,
}

impl ProcessorTimes {
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").map_err(LabError::io("reading /proc/stat"))?;
        Self::parse(&text).ok_or_else(|| LabError::new("/proc/stat has no line `cpu` that can be read"))
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // Guests' time, after these eight, is in the users' too.
        let [user, nice, system, idle, wait, interrupt, soft_interrupt, stolen] =
            *ticks.first_chunk::<8>()?;
        let busy = user + nice + system + interrupt + soft_interrupt;
        Some(Self {
            total: busy + idle + wait + stolen,
            busy,
            stolen,
        })
    }

    /// The share of the time since `before` that was stolen, and the share that processes used beyond `known_ns`
    /// of CPU time; `None` if no tick has passed.
    pub(crate) fn shares_since(&self, before: &Self, known_ns: f64) -> Option<(f64, f64)> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)? as f64;
        let busy = self.busy.saturating_sub(before.busy) as f64;
        let stolen = self.stolen.saturating_sub(before.stolen) as f64 / total;
        let foreign = (busy - known_ns / nanoseconds_a_tick()) / total;
        Some((stolen.min(1.0), foreign.clamp(0.0, 1.0)))
    }
}

/// Packets that sockets have dropped in the network namespace of a process, since that began. What this kernel does
/// not count is left out.
pub(crate) fn drops(process: u32) -> u64 {
    let counted = DROPS.iter().map(|(file, prefix, names)| {
        let text = fs::read_to_string(format!("/proc/{process}/net/{file}")).unwrap_or_default();
        sum_of(&text, prefix, names)
    });
    counted.sum()
}

/// These files have a line of names and, after it, a line of values with the same prefix.
fn sum_of(text: &str, prefix: &str, names: &[&str]) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let (Some(header), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let named = header.split_whitespace().zip(values.split_whitespace());
    named
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_all_processors_are_read() {
        let times = ProcessorTimes::parse("cpu  100 1 50 800 20 3 6 20 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        let times = times.expect("it is a line of Linux");
        assert_eq!(
            times,
            ProcessorTimes {
                total: 1000,
                busy: 160,
                stolen: 20
            }
        );
        assert_eq!(ProcessorTimes::parse("cpu  1 2 3\n"), None);
        assert!(ProcessorTimes::read().expect("this machine has one").total > 0);

        let shares = times.shares_since(&ProcessorTimes::default(), 60.0 * nanoseconds_a_tick());
        assert_eq!(shares, Some((0.02, 0.1)));
        assert_eq!(times.shares_since(&times, 0.0), None);
        // The ticks may say less than the exact clocks.
        let shares = times.shares_since(&ProcessorTimes::default(), 600.0 * nanoseconds_a_tick());
        assert_eq!(shares.map(|(_, foreign)| foreign), Some(0.0));
    }

    #[test]
    fn drops_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent ListenDrops TCPBacklogDrop\nTcpExt: 5 7 2\nIpExt: ListenDrops\nIpExt: 9\n";
        assert_eq!(sum_of(text, "TcpExt:", &["ListenDrops", "TCPBacklogDrop"]), 9);
        assert_eq!(sum_of("", "TcpExt:", &["ListenDrops"]), 0);
    }
}
