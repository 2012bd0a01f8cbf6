//! Looking at a sink and its socket, once a second, while datagrams are sent; and at the machine's UDP memory ten times.
//!
//! The sink times and counts itself; these looks show the course of it. Each takes a few files below /proc.

use std::time::{Duration, SystemTime};

use quoit_host::monotonic_now;
use quoit_report::results::model::Sample;
use quoit_workload::Intervals;

use super::Halt;
use super::generator::Generator;
use super::interrupt::{Interrupts, Woken};
use super::process_tree::{ProcessTree, Usage, page_bytes};
use crate::server::Server;
use crate::sockets::{DatagramSockets, datagram_sockets, udp_pages};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Between two glances at the memory of all UDP sockets, which is one line below /proc.
const GLANCE: Duration = Duration::from_millis(100);

/// One look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Seconds since 1970: the senders say by that clock when the run began.
    at: f64,
    server: Usage,
    sockets: DatagramSockets,
    /// The most memory that the machine's UDP sockets had at any glance since the look before.
    pub(super) udp_memory: Option<u64>,
}

/// Looks at a sink. It ends by itself once all is sent, and then there is nothing more to see.
#[derive(Debug)]
pub(super) struct SinkWatch {
    server: ProcessTree,
    address: std::net::SocketAddr,
    looks: Vec<Look>,
    /// Since the last look.
    udp_memory: Option<u64>,
}

impl SinkWatch {
    /// With a first look.
    pub(super) fn new(server: &Server) -> Self {
        let mut watch = Self {
            server: ProcessTree::of(server.process_id()),
            address: server.address(),
            looks: Vec::new(),
            udp_memory: None,
        };
        watch.glance();
        watch.look();
        watch
    }

    fn look(&mut self) {
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seen = self
            .server
            .usage(false)
            .ok()
            .zip(datagram_sockets(self.server.root(), self.address));
        if let Some((server, sockets)) = seen {
            self.looks.push(Look {
                at: at.unwrap_or_default().as_secs_f64(),
                server,
                sockets,
                udp_memory: self.udp_memory.take(),
            });
        }
    }

    fn glance(&mut self) {
        let bytes = udp_pages(self.server.root()).map(|pages| pages * page_bytes());
        self.udp_memory = self.udp_memory.max(bytes);
    }

    /// Looks until the generator has ended or is to have. What was glanced at since the last look goes to that one: a run
    /// shorter than a second has no other.
    ///
    /// # Errors
    /// The run was interrupted.
    pub(super) fn watch(
        mut self,
        interrupts: &Interrupts,
        generator: &Generator,
        deadline: Duration,
    ) -> Result<Vec<Look>, Halt> {
        let mut next = monotonic_now() + PERIOD;
        loop {
            let until = next.min(deadline).min(monotonic_now() + GLANCE);
            if generator.wait_until(interrupts, until)? == Woken::Ended || until == deadline {
                if let Some(last) = self.looks.last_mut() {
                    last.udp_memory = last.udp_memory.max(self.udp_memory);
                }
                return Ok(self.looks);
            }
            self.glance();
            if monotonic_now() < next {
                continue;
            }
            self.look();
            // A look that comes late takes no other's place.
            while next <= monotonic_now() {
                next += PERIOD;
            }
        }
    }
}

/// One sample for each look after the first, of a run that began at `started_at` (seconds since 1970), with what was sent and
/// what was handled of it.
pub(super) fn samples(looks: &[Look], started_at: f64, sent: &Intervals, handled: &Intervals) -> Vec<Sample> {
    let sample = |pair: &[Look]| {
        let [before, after] = pair else {
            return Sample::default();
        };
        let used = after.server.since(&before.server);
        let user = used.user_share().unwrap_or(0.0);
        let (from, to) = (before.at - started_at, after.at - started_at);
        let within = |counts: &Intervals| Some((counts.until(to) - counts.until(from)).max(0.0));
        Sample {
            at_seconds: to.max(0.0),
            units: within(handled),
            sent: within(sent),
            server_user_ns: used.cpu_ns * user,
            server_kernel_ns: used.cpu_ns * (1.0 - user),
            resident_bytes: Some(after.server.resident_bytes),
            drops: after.sockets.drops.saturating_sub(before.sockets.drops),
            socket_bytes: Some(after.sockets.held),
            udp_memory_bytes: after.udp_memory,
            ..Sample::default()
        }
    };
    looks.windows(2).map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_what_was_sent_and_handled_between_looks() {
        let look = |at: f64, cpu_ns: f64, held: u64, drops: u64| Look {
            at,
            server: Usage {
                cpu_ns,
                user_ticks: (cpu_ns / 1e7) as u64,
                ..Usage::default()
            },
            sockets: DatagramSockets { held, drops },
            udp_memory: Some(held + 4096),
        };
        let (mut sent, mut handled) = (Intervals::default(), Intervals::default());
        for second in 0..2_u64 {
            sent.note(second * 1_000_000_000 + 50_000_000, 100);
            handled.note(second * 1_000_000_000 + 50_000_000, 100 - 40 * second);
        }
        let looks = [
            look(99.9, 0.0, 0, 7),
            look(101.0, 5e8, 2000, 7),
            look(102.0, 9e8, 0, 47),
        ];
        let samples = samples(&looks, 100.0, &sent, &handled);
        assert_eq!(samples.len(), 2);
        let seen = |sample: &Sample| (sample.at_seconds, sample.sent, sample.units);
        assert_eq!(seen(&samples[0]), (1.0, Some(100.0), Some(100.0)));
        assert_eq!(seen(&samples[1]), (2.0, Some(100.0), Some(60.0)));
        assert_eq!((samples[0].drops, samples[1].drops), (0, 40));
        assert_eq!(
            (samples[0].socket_bytes, samples[1].socket_bytes),
            (Some(2000), Some(0))
        );
        assert_eq!(samples[0].udp_memory_bytes, Some(6096));
        assert_eq!(
            (samples[0].server_user_ns, samples[0].server_kernel_ns),
            (5e8, 0.0)
        );
    }
}
