//! What a run of datagrams is to do beside what all runs do.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quoit_workload::Header;

use crate::Sizes;
use crate::plan::check_sources;

/// Datagrams that one call may send with GSO (UDP_MAX_SEGMENTS of the kernel, 64 before Linux 6.9).
pub(super) const MOST_SEGMENTS: u32 = 64;

/// How datagrams are sent, and what is expected of them.
#[derive(Debug, Clone)]
pub(crate) struct Datagrams {
    /// How they are handed to the kernel.
    pub(super) mode: Mode,
    /// Those that are sent between two looks at the clock, at most; in one call, if the mode has such. At least one.
    pub(super) batch: u32,
    /// Their sizes, at least [`Header::BYTES`]; with GSO, one size.
    pub(super) sizes: Sizes,
    /// Whether every one is expected back.
    pub(crate) echo: bool,
    /// Those at the end.
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

impl Datagrams {
    /// Refuses what cannot go together, or from `sources` to `target`.
    pub(super) fn check(&self, target: SocketAddr, sources: &[IpAddr]) -> Result<(), String> {
        // What is left of 65,535 after the headers of IP and UDP; IPv6 does not count its own.
        let most = if target.is_ipv4() { 65_507 } else { 65_527 };
        let (least, largest) = (self.sizes.least(), self.sizes.largest());
        if least < Header::BYTES {
            return Err(format!(
                "a datagram of {least} bytes has no room for its number; the least is {}",
                Header::BYTES
            ));
        }
        if largest > most {
            return Err(format!(
                "a datagram of {largest} bytes is too large: the most that UDP can carry to {target} is {most}"
            ));
        }
        check_sources(sources, target)?;
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
