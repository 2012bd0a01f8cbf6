//! Reading a server's own counters while it serves: what that costs the server, and whether it is done at all.
//!
//! The server's work for its answer is in its processor time like all else that it does, and only servers that show
//! counters pay it. So the cost is measured before anything is compared, on a server without load, and a server is
//! read every second only while it does so much that nobody can see the difference.

use std::net::SocketAddr;
use std::time::Duration;

use quoit_host::monotonic_now;
use quoit_report::results::model::ReadingCost;

use super::process_tree::ProcessTree;
use crate::counters::Counters;
use crate::cpu;
use crate::error::Result;
use crate::placement::site::Site;
use crate::server::Server;

/// The largest share of a server's processor time that reading it every second may take: a tenth of the band that the
/// control is to reach.
const MOST_SHARE: f64 = 0.005;
/// Readings that are not timed, so that memory is mapped and caches are warm as later.
const UNTIMED: u32 = 4;
/// Readings over which the cost is the mean.
const TIMED: u32 = 16;

/// A server's counters at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// By CLOCK_MONOTONIC.
    pub(crate) at: Duration,
    pub(crate) counters: Counters,
}

/// Reads the counters of one server.
pub(crate) struct Reader<'a> {
    site: &'a Site,
    address: SocketAddr,
    cost: Option<ReadingCost>,
}

impl<'a> Reader<'a> {
    /// Without a cost, the counters are read at the bounds of the window only.
    pub(crate) fn new(address: SocketAddr, cost: Option<ReadingCost>, site: &'a Site) -> Self {
        Self { site, address, cost }
    }

    /// `None` if they cannot be read: a server without counters is measured all the same.
    pub(crate) fn read(&self) -> Option<Reading> {
        let before = monotonic_now();
        let read = || Counters::read(self.address).map_err(std::io::Error::other);
        let counters = self.site.near_server(read).ok()?;
        // Somewhere in between the server has looked at them.
        let at = before + (monotonic_now() - before) / 2;
        Some(Reading { at, counters })
    }

    /// Whether a server that used so many nanoseconds of processor time in the last `elapsed` is read without
    /// changing its figures.
    pub(crate) fn is_bearable(&self, used_ns: f64, elapsed: Duration) -> bool {
        let a_second = used_ns / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        self.cost
            .is_some_and(|cost| cost.server_ns <= a_second * MOST_SHARE)
    }
}

/// What a reading costs a server that has nothing else to do, and the lab; `None` if its counters cannot be read.
///
/// # Errors
/// The server's processes cannot be read: it has ended.
pub(crate) fn cost(server: &Server, address: SocketAddr, site: &Site) -> Result<Option<ReadingCost>> {
    let reader = Reader::new(address, None, site);
    let tree = ProcessTree::of(server.process_id());
    for _ in 0..UNTIMED {
        if reader.read().is_none() {
            return Ok(None);
        }
    }
    let observer = cpu::cpu_time_ns(std::process::id())?;
    let before = tree.usage(false)?;
    for _ in 0..TIMED {
        if reader.read().is_none() {
            return Ok(None);
        }
    }
    let used = tree.usage(false)?.since(&before);
    let observed = cpu::cpu_time_ns(std::process::id())?.saturating_sub(observer);
    Ok(Some(ReadingCost {
        server_ns: used.cpu_ns / f64::from(TIMED),
        observer_ns: observed as f64 / f64::from(TIMED),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment;

    #[test]
    fn a_server_that_does_little_is_not_read() {
        let (experiment, _) = experiment::find("floor").expect("it is built in");
        let site = Site::prepare(&experiment).expect("there is a core");
        let address = "127.0.0.1:1".parse().expect("an address");
        let cost = ReadingCost {
            server_ns: 100_000.0,
            observer_ns: 50_000.0,
        };
        let reader = Reader::new(address, Some(cost), &site);
        let half = Duration::from_millis(500);
        assert!(reader.is_bearable(10_000_000.0, half));
        assert!(!reader.is_bearable(9_900_000.0, half));
        assert!(!reader.is_bearable(0.0, Duration::ZERO));
        assert!(!Reader::new(address, None, &site).is_bearable(1e9, half));
        assert!(reader.read().is_none());
    }
}
