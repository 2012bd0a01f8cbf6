//! The options of `quoit load udp`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use quoit_workload::{Header, Intervals, MOST_SENDERS};

use super::plan::{Datagrams, Mode, Shutdown};
use crate::arguments::{SourceRange, parse_positive_seconds, parse_rate, parse_source};
use crate::{Arrivals, Length, Offered, Phase, Plan, Sizes, Target, Workload};

/// Bytes of a datagram, unless it is said: those of the article on Registered I/O.
const SIZE: u32 = 1024;

/// Datagrams a batch, unless it is said.
const BATCH: u32 = 32;

/// Bytes of a shutdown datagram, unless it is said; another size than that of the others.
const SHUTDOWN_SIZES: [u32; 2] = [64, 128];

/// How long a run is, unless it is said.
const LENGTH: Duration = Duration::from_secs(5);

/// What is sent, how, and what is expected.
#[derive(Debug, Clone, Args)]
pub(crate) struct UdpArguments {
    /// The server: IP:PORT or [IPv6]:PORT
    #[arg(long, value_name = "ADDR", value_parser = parse_target)]
    connect: SocketAddr,
    /// How datagrams are handed to the kernel
    #[arg(long, value_enum, default_value = "sendto")]
    mode: Mode,
    /// Datagrams between two looks at the clock, and with sendmmsg and gso in one call
    /// [default: 32, or with gso what fits]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=1024))]
    batch: Option<u32>,
    /// Bytes of a datagram, 40 or more [default: 1024]
    #[arg(long, value_name = "BYTES", conflicts_with = "sizes")]
    size: Option<u32>,
    /// Bytes of datagrams at random: A..B, each size alike; or 64:80,1024:15,8192:5, sizes with weights
    #[arg(long, value_name = "SIZES")]
    sizes: Option<Sizes>,
    /// What random sizes depend on
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Senders, each a thread with a socket, and so a source port, of its own
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = RangedU64ValueParser::<u16>::new().range(1..=u64::from(MOST_SENDERS)))]
    senders: u16,
    /// A local IP address to send from, or a range such as 127.0.0.2-127.0.0.9; senders take turns on all
    #[arg(long, value_name = "ADDR", value_parser = parse_source)]
    source: Vec<SourceRange>,
    /// Datagrams per second over all senders, evenly spaced [default: as fast as possible]
    #[arg(long, value_name = "R", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Send this many datagrams, over all senders
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000_000_000))]
    count: Option<u64>,
    /// Send for this long [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = parse_positive_seconds)]
    seconds: Option<Duration>,
    /// A part of the run: RATE:SECONDS, the rate in datagrams per second over all senders, or `flat` for as fast as
    /// possible. Several follow one another, such as --phase 400000:2 --phase 50000:5: overload, and then what can be
    /// sustained
    #[arg(long = "phase", value_name = "RATE:SECONDS", value_parser = parse_phase,
          conflicts_with_all = ["rate", "count", "seconds", "echo"])]
    phases: Vec<Phase>,
    /// Expect every datagram back, and measure how long that takes: with --rate from when it was due
    #[arg(long)]
    echo: bool,
    /// Datagrams of each sender that may wait for their reply, if there is no --rate
    #[arg(long, value_name = "N", default_value_t = 1, requires = "echo", conflicts_with = "rate",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=65_536))]
    outstanding: u32,
    /// How long a reply may take before it counts as lost
    #[arg(long, value_name = "SECONDS", default_value = "1", requires = "echo", value_parser = parse_positive_seconds)]
    timeout: Duration,
    /// Rounds of shutdown datagrams at the end, which tell a sink how much each sender sent; 0: none
    /// [default: 10, or with --echo 0]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(0..=100_000))]
    shutdowns: Option<u32>,
    /// Milliseconds between two rounds of shutdown datagrams
    #[arg(long, value_name = "MS", default_value_t = 100,
          value_parser = RangedU64ValueParser::<u32>::new().range(0..=60_000))]
    shutdown_every: u32,
    /// Bytes of a shutdown datagram, 40 or more [default: 64, or 128 if the others have 64]
    #[arg(long, value_name = "BYTES",
          value_parser = RangedU64ValueParser::<u32>::new().range(Header::BYTES as u64..=65_507))]
    shutdown_size: Option<u32>,
    /// Size of each socket's send buffer in bytes [default: the system's]
    #[arg(long, value_name = "BYTES", value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 30))]
    send_buffer: Option<u32>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress bar (there is none unless standard error is a terminal)
    #[arg(long)]
    pub(crate) no_progress: bool,
}

fn parse_phase(text: &str) -> Result<Phase, String> {
    let (rate, seconds) = text.split_once(':').ok_or_else(|| {
        format!("`{text}` is not a phase; expected RATE:SECONDS such as 50000:5, or flat:SECONDS")
    })?;
    Ok(Phase {
        offered: match rate {
            "flat" => None,
            rate => Some(evenly(parse_rate(rate)?)),
        },
        length: Length::Time(parse_positive_seconds(seconds)?),
    })
}

/// The timetable of so many datagrams per second.
fn evenly(rate: f64) -> Offered {
    Offered {
        rate,
        arrivals: Arrivals::Fixed,
        batch: 1,
    }
}

fn parse_target(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err("port 0 cannot be sent to".to_owned()),
        Ok(address) => Ok(address),
        Err(_) => Err(format!(
            "`{text}` is not an address; expected an IP address and port such as 127.0.0.1:8080 or [::1]:8080 (names \
             are not resolved)"
        )),
    }
}

impl UdpArguments {
    /// The run, if the options go together.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let sizes = self
            .sizes
            .clone()
            .unwrap_or(Sizes::Fixed(self.size.unwrap_or(SIZE)));
        let other_size = SHUTDOWN_SIZES
            .into_iter()
            .find(|&size| sizes != Sizes::Fixed(size));
        let shutdown_size = self.shutdown_size.or(other_size).unwrap_or(SHUTDOWN_SIZES[0]);
        if sizes == Sizes::Fixed(shutdown_size) {
            return Err(format!(
                "--shutdown-size {shutdown_size} must be another size than that of the other datagrams"
            ));
        }
        let datagrams = Datagrams {
            mode: self.mode,
            batch: self
                .batch
                .unwrap_or_else(|| Datagrams::fitting_batch(self.mode, &sizes, BATCH)),
            sizes,
            echo: self.echo,
            shutdown: Shutdown {
                rounds: self.shutdowns.unwrap_or(if self.echo { 0 } else { 10 }),
                every: Duration::from_millis(u64::from(self.shutdown_every)),
                size: shutdown_size,
            },
            send_buffer: self.send_buffer,
        };
        let sources: Vec<_> = self.source.iter().flat_map(|range| range.0.clone()).collect();
        datagrams.check(self.connect, &sources)?;
        if let Some(count) = self.count
            && count < u64::from(self.senders)
        {
            return Err(format!(
                "--senders {} need at least as many datagrams, but --count is {count}",
                self.senders
            ));
        }
        let length = self
            .count
            .map_or(Length::Time(self.seconds.unwrap_or(LENGTH)), Length::Count);
        let only = Phase {
            offered: self.rate.map(evenly),
            length,
        };
        Ok(Plan {
            target: Target::Ip(self.connect),
            workload: Workload::Datagrams(datagrams),
            connections: self.senders.into(),
            pipeline: if self.echo && self.rate.is_none() {
                self.outstanding
            } else {
                u32::MAX
            },
            threads: self.senders.into(),
            phases: if self.phases.is_empty() {
                vec![only]
            } else {
                self.phases.clone()
            },
            seed: self.seed,
            timeout: self.timeout,
            interval: Intervals::LENGTH,
            sources,
            // What is of connections alone.
            warmup: Duration::ZERO,
            ramp_up: Duration::ZERO,
            label: None,
            start_at: None,
            slip: Duration::MAX,
            spin: Duration::ZERO,
            displace: 0,
            churn: false,
            slow: None,
        })
    }
}
