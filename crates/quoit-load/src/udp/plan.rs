//! What a run is to do.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quoit_workload::Header;

use crate::plan::check_sources;
use crate::{Length, Sizes};

/// Datagrams that one call may send with GSO (UDP_MAX_SEGMENTS of the kernel, 64 before Linux 6.9).
pub(super) const MOST_SEGMENTS: u32 = 64;

/// One run. All counts are over all senders.
#[derive(Debug, Clone)]
pub(crate) struct UdpPlan {
    /// The server.
    pub(super) target: SocketAddr,
    /// How datagrams are handed to the kernel.
    pub(super) mode: Mode,
    /// Datagrams that are sent between two looks at the clock, at most; in one call, if the mode has such. At least one.
    pub(super) batch: u32,
    /// Their sizes, at least [`Header::BYTES`]; with GSO, one size.
    pub(super) sizes: Sizes,
    /// What random sizes depend on.
    pub(super) seed: u64,
    /// Senders, each with a thread and a socket. At least one.
    pub(super) senders: u16,
    /// The local addresses that the sockets are bound to, in turn; none: the kernel's choice.
    pub(super) sources: Vec<IpAddr>,
    /// The run's parts, one after the other. At least one.
    pub(super) phases: Vec<Phase>,
    /// Replies, if they are expected.
    pub(super) echo: Option<EchoPlan>,
    /// The datagrams at the end.
    pub(super) shutdown: Shutdown,
    /// SO_SNDBUF of the sockets, if it is to be set.
    pub(super) send_buffer: Option<u32>,
}

/// How datagrams are handed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// One datagram per call: sendto(2)
    Sendto,
    /// Many datagrams per call: sendmmsg(2)
    Sendmmsg,
    /// One buffer per call, which the kernel or the device cuts up: UDP_SEGMENT (udp(7))
    Gso,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Sendto => "sendto",
            Mode::Sendmmsg => "sendmmsg",
            Mode::Gso => "gso",
        }
    }
}

/// A part of a run: how fast is sent, and how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phase {
    /// Datagrams per second, evenly spaced; `None`: as fast as it goes.
    pub(super) rate: Option<f64>,
    /// When it ends. All but a run's only phase end by time.
    pub(super) length: Length,
}

/// What is expected of an echo.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EchoPlan {
    /// Datagrams of a sender that may be unanswered, if there is no rate.
    pub(super) outstanding: u32,
    /// How long a reply may take before it counts as lost.
    pub(super) timeout: Duration,
}

/// The datagrams that say that a run is over, and what was sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shutdown {
    /// How often each sender sends one; zero: none are sent.
    pub(super) rounds: u32,
    /// The time between two rounds.
    pub(super) every: Duration,
    /// Their size: at least [`Header::BYTES`].
    pub(super) size: u32,
}

impl UdpPlan {
    /// The length of all phases together.
    pub(super) fn length(&self) -> Length {
        let times = self.phases.iter().map(|phase| match phase.length {
            Length::Time(time) => Ok(time),
            Length::Count(count) => Err(count),
        });
        // Only a single one has a count.
        match times.sum::<Result<Duration, u64>>() {
            Ok(time) => Length::Time(time),
            Err(count) => Length::Count(count),
        }
    }

    /// Refuses what cannot go together.
    pub(super) fn check(&self) -> Result<(), String> {
        // What is left of 65,535 after the headers of IP and UDP; IPv6 does not count its own.
        let most = if self.target.is_ipv4() { 65_507 } else { 65_527 };
        let (least, largest) = (self.sizes.least(), self.sizes.largest());
        if least < Header::BYTES {
            return Err(format!(
                "a datagram of {least} bytes has no room for its number; the least is {}",
                Header::BYTES
            ));
        }
        if largest > most {
            return Err(format!(
                "a datagram of {largest} bytes is too large: the most that UDP can carry to {} is {most}",
                self.target
            ));
        }
        check_sources(&self.sources, self.target)?;
        if self.mode == Mode::Gso {
            if !matches!(self.sizes, Sizes::Fixed(_)) {
                return Err("--mode gso cuts one buffer into equal pieces; give one --size".to_owned());
            }
            let fit = (most / largest).min(MOST_SEGMENTS as usize);
            if self.batch as usize > fit {
                return Err(format!(
                    "with --mode gso a call carries at most {fit} datagrams of {largest} bytes; give --batch {fit} or \
                     less"
                ));
            }
        }
        if let Length::Count(count) = self.length()
            && count < u64::from(self.senders)
        {
            return Err(format!(
                "--senders {} need at least as many datagrams, but --count is {count}",
                self.senders
            ));
        }
        Ok(())
    }

    /// The most datagrams that one call can carry in this mode, no more than `wanted`.
    pub(super) fn fitting_batch(mode: Mode, sizes: &Sizes, wanted: u32) -> u32 {
        match mode {
            Mode::Gso => {
                let fit = 65_507 / sizes.largest().max(1) as u32;
                wanted.min(MOST_SEGMENTS).min(fit.max(1))
            }
            Mode::Sendto | Mode::Sendmmsg => wanted,
        }
    }
}
