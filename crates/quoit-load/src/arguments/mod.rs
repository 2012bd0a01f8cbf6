//! The command line of `quoit load`.

mod help;
mod output;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use quoit_host::console::say;
use quoit_host::usage;

use self::help::{EXAMPLES, JSON_FIELDS, MERGE_EXAMPLES, RPC_JSON_FIELDS, UDP_EXAMPLES, UDP_JSON_FIELDS};
use self::output::{Output, execute, publish};
use self::values::{
    Expected, HttpAddress, Slow, parse_expected, parse_host, parse_http_address, parse_label,
    parse_milliseconds, parse_path, parse_seconds, parse_slow, parse_time,
};
use super::plan::check_sources;
use super::rpc::RpcArguments;
use super::sizes::LARGEST;
use super::udp::UdpArguments;
use super::{
    Arrivals, Length, LoadError, LogFile, Offered, Phase, Plan, Sizes, SlowReaders, Target, Workload, merge,
};

pub(super) use self::values::{SourceRange, parse_positive_seconds, parse_rate, parse_source};

/// The intervals of the window, if nothing else is said: a second, in a shorter window a tenth of it.
const INTERVAL: Duration = Duration::from_secs(1);
const INTERVALS_AT_LEAST: u32 = 10;

/// Generate load, check every reply, and measure.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LoadArguments {
    #[command(subcommand)]
    command: LoadCommand,
}

#[derive(Debug, Subcommand)]
enum LoadCommand {
    #[command(flatten)]
    Run(Box<ProtocolArguments>),
    /// Join the reports of several generators into one
    #[command(after_help = MERGE_EXAMPLES)]
    Merge(MergeArguments),
}

#[derive(Debug, Args)]
struct MergeArguments {
    /// Files with what runs with --json printed, one report or more in each
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write the merged latencies to a file, as a log for HdrHistogram's tools
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl MergeArguments {
    fn execute(&self) -> Result<Option<String>, LoadError> {
        let findings = merge(&self.files)?;
        let log = self.hdr.as_deref().map(LogFile::create).transpose()?;
        publish(findings, self.json, log)
    }
}

#[derive(Debug, Subcommand)]
enum ProtocolArguments {
    #[command(flatten)]
    Stream(StreamArguments),
    /// Send datagrams that are numbered, to a sink that counts them or to an echo
    #[command(after_help = format!("{UDP_EXAMPLES}\n\n{UDP_JSON_FIELDS}"))]
    Udp(UdpArguments),
}

/// What has connections, requests and replies.
#[derive(Debug, Subcommand)]
enum StreamArguments {
    /// Send messages that the server must return unchanged
    #[command(after_help = format!("{EXAMPLES}\n\n{JSON_FIELDS}"))]
    Echo {
        /// The server: IP:PORT, [IPv6]:PORT, unix:/path or unix:@abstract-name
        #[arg(long, value_name = "ADDR")]
        connect: Target,
        #[command(flatten)]
        common: CommonArguments,
        /// Bytes of a message, at most 16 MiB [default: 64]
        #[arg(long, value_name = "BYTES", conflicts_with = "sizes",
              value_parser = RangedU64ValueParser::<u32>::new().range(1..=u64::from(LARGEST)))]
        size: Option<u32>,
        /// Bytes of messages at random: A..B, each size alike; or 64:80,1024:15,65536:5, sizes with weights
        #[arg(long, value_name = "SIZES")]
        sizes: Option<Sizes>,
    },
    /// Send HTTP/1.1 requests, GET or POST; every reply must be a 200 equal to the first one, and to --expect
    #[command(after_help = format!("{EXAMPLES}\n\n{JSON_FIELDS}"))]
    Http {
        /// The server: IP:PORT, [IPv6]:PORT, unix:/path, unix:@abstract-name or http://IP:PORT/path
        #[arg(long, value_name = "ADDR", value_parser = parse_http_address)]
        connect: HttpAddress,
        #[command(flatten)]
        common: CommonArguments,
        /// The path to request [default: the URL's, or /plaintext]
        #[arg(long, value_parser = parse_path)]
        path: Option<String>,
        /// The value of the Host field [default: the address]
        #[arg(long, value_parser = parse_host)]
        host: Option<String>,
        /// Send POST requests with a body of this many bytes, at most 16 MiB, in place of GET
        #[arg(long, value_name = "BYTES",
              value_parser = RangedU64ValueParser::<u32>::new().range(0..=u64::from(LARGEST)))]
        body: Option<u32>,
        /// The body that every reply must have: a text, or @FILE for what is in a file
        #[arg(long, value_name = "TEXT", value_parser = parse_expected)]
        expect: Option<Expected>,
    },
    /// Open streams of messages with credit, many per connection; every message is checked
    #[command(after_help = format!("{EXAMPLES}\n\n{JSON_FIELDS}\n\n{RPC_JSON_FIELDS}"))]
    Rpc {
        /// The server: IP:PORT, [IPv6]:PORT, unix:/path or unix:@abstract-name
        #[arg(long, value_name = "ADDR")]
        connect: Target,
        #[command(flatten)]
        common: CommonArguments,
        #[command(flatten)]
        streams: RpcArguments,
    },
}

#[derive(Debug, Args)]
struct CommonArguments {
    /// Connections to keep open, over all threads
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1_000_000))]
    connections: u32,
    /// Requests to keep outstanding on each connection; with --rate, the most of them
    #[arg(long, value_name = "D", default_value_t = 1,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=65_536))]
    pipeline: u32,
    /// Threads that generate the load; at most one per connection
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1_024))]
    threads: u32,
    /// Requests per second to offer over all connections, whatever the server does (an open loop); latency then
    /// counts from when a request was due
    #[arg(long, value_name = "R", value_parser = parse_rate)]
    rate: Option<f64>,
    /// How the requests of --rate are spread over time
    #[arg(long, value_name = "HOW", default_value = "poisson", requires = "rate")]
    schedule: Arrivals,
    /// Requests of --rate that fall due at once on a connection
    #[arg(long, value_name = "B", default_value_t = 1, requires = "rate",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=65_536))]
    batch: u32,
    /// Stop sleeping this many microseconds before a request of --rate is due: less lag, for a whole core
    #[arg(long, value_name = "US", default_value_t = 0, requires = "rate",
          value_parser = RangedU64ValueParser::<u32>::new().range(0..=1_000_000))]
    spin: u32,
    /// Touch this many KiB of memory whenever a thread of the generator has waited: a server on the same core then finds
    /// its caches as cold as beside other work
    #[arg(long, value_name = "KIB", default_value_t = 0,
          value_parser = RangedU64ValueParser::<u32>::new().range(0..=1_048_576))]
    displace: u32,
    /// What random times and sizes depend on
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Length of the measured window
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_positive_seconds)]
    seconds: Duration,
    /// Measure this many requests instead of a time; each thread has an equal share
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    requests: Option<u64>,
    /// Load before the measured window, to be discarded
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    warmup: Duration,
    /// Open the connections evenly over this time, before the warm-up
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    ramp_up: Duration,
    /// Begin the measured window at this time, as other generators do: RFC 3339, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    start_at: Option<Duration>,
    /// What to call this run in the report of `quoit load merge`: the machine, or its number [default: the file's name]
    #[arg(long, value_name = "TEXT", value_parser = parse_label)]
    label: Option<String>,
    /// Longest wait for a connection to open or for a reply
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_positive_seconds)]
    timeout: Duration,
    /// A local IP address to connect from, or a range such as 127.0.0.2-127.0.0.9; connections take turns on all
    #[arg(long, value_name = "ADDR", value_parser = parse_source)]
    source: Vec<SourceRange>,
    /// Open a new connection for every request; latency includes connecting
    #[arg(long, conflicts_with_all = ["pipeline", "slow", "ramp_up"])]
    churn: bool,
    /// Let N of the connections read slowly, BYTES per second each [default: 1000]; no figure includes them
    #[arg(long, value_name = "N[:BYTES]", value_parser = parse_slow)]
    slow: Option<Slow>,
    /// Shortest gap in which the generator did not run that is a slip, in milliseconds
    #[arg(long, value_name = "MS", default_value = "1", value_parser = parse_milliseconds)]
    slip: Duration,
    /// Print a line on standard error after every interval of this length
    #[arg(long, value_name = "SECONDS", value_parser = parse_positive_seconds)]
    interval: Option<Duration>,
    /// Write the latencies to a file, as a log for HdrHistogram's tools
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Once the connections are open, say on standard error when the measured window will be, for programs that
    /// watch the server: `window opens_ns=T lasts_ns=D in_ns=N`, T by CLOCK_MONOTONIC, N from now on
    #[arg(long, conflicts_with = "requests")]
    announce: bool,
    /// Show no progress bar (there is none unless standard error is a terminal)
    #[arg(long)]
    no_progress: bool,
}

impl CommonArguments {
    fn slow_readers(&self) -> Result<Option<SlowReaders>, String> {
        let Some(slow) = self.slow else {
            return Ok(None);
        };
        let least = slow.connections + self.threads as usize;
        if least > self.connections as usize {
            return Err(format!(
                "--slow {} with --threads {} needs at least {least} connections, but --connections is {}",
                slow.connections, self.threads, self.connections
            ));
        }
        Ok(Some(SlowReaders {
            connections: slow.connections,
            bytes_per_second: slow.bytes_per_second,
        }))
    }

    fn sources(&self, target: &Target) -> Result<Vec<std::net::IpAddr>, String> {
        let sources: Vec<_> = self.source.iter().flat_map(|range| range.0.clone()).collect();
        match target {
            Target::Ip(address) => check_sources(&sources, *address).map(|()| sources),
            _ if sources.is_empty() => Ok(sources),
            _ => Err(format!(
                "{target} is a Unix socket, which has no --source address"
            )),
        }
    }

    fn output(&self) -> Output<'_> {
        Output {
            json: self.json,
            no_progress: self.no_progress,
            announce: self.announce,
            lines: self.interval.is_some(),
            hdr: self.hdr.as_deref(),
        }
    }

    fn interval(&self) -> Duration {
        self.interval.unwrap_or_else(|| match self.requests {
            Some(_) => INTERVAL,
            None => INTERVAL
                .min(self.seconds / INTERVALS_AT_LEAST)
                .max(Duration::from_millis(1)),
        })
    }
}

impl StreamArguments {
    fn common(&self) -> &CommonArguments {
        match self {
            StreamArguments::Echo { common, .. }
            | StreamArguments::Http { common, .. }
            | StreamArguments::Rpc { common, .. } => common,
        }
    }

    fn plan(&self) -> Result<Plan, String> {
        let common = self.common();
        let mut pipeline = common.pipeline;
        let (target, workload) = match self {
            StreamArguments::Echo {
                connect, size, sizes, ..
            } => {
                let sizes = sizes.clone().unwrap_or(Sizes::Fixed(size.unwrap_or(64)));
                (connect.clone(), Workload::Echo { sizes })
            }
            StreamArguments::Http {
                connect,
                path,
                host,
                body,
                expect,
                ..
            } => {
                let HttpAddress {
                    target,
                    path: url_path,
                } = connect.clone();
                if path.is_some() && url_path.is_some() {
                    return Err("give the path in the URL or with --path, not both".to_owned());
                }
                let path = path
                    .clone()
                    .or(url_path)
                    .unwrap_or_else(|| "/plaintext".to_owned());
                let workload = Workload::Http {
                    path,
                    host: host.clone().unwrap_or_else(|| default_host(&target)),
                    body: *body,
                    expect: expect.as_ref().map(|Expected(body)| body.clone()),
                };
                (target, workload)
            }
            StreamArguments::Rpc { connect, streams, .. } => {
                if common.pipeline != 1 {
                    return Err(
                        "rpc has no --pipeline; --streams says how many streams a connection has".to_owned(),
                    );
                }
                pipeline = streams.streams;
                let streams = streams.streams(common.timeout)?;
                if streams.messages == 0 && (common.rate.is_some() || common.churn) {
                    return Err(
                        "--rate and --churn need streams that end; --messages 0 makes them endless"
                            .to_owned(),
                    );
                }
                if pipeline > 1 && common.churn {
                    return Err(
                        "--churn opens a connection for each stream, so --streams must be 1".to_owned(),
                    );
                }
                (connect.clone(), Workload::Rpc(streams))
            }
        };
        if common.threads > common.connections {
            return Err(format!(
                "--threads {} needs at least as many connections, but --connections is {}",
                common.threads, common.connections
            ));
        }
        Ok(Plan {
            sources: common.sources(&target)?,
            target,
            workload,
            connections: common.connections as usize,
            pipeline,
            threads: common.threads as usize,
            phases: vec![Phase {
                offered: common.rate.map(|rate| Offered {
                    rate,
                    arrivals: common.schedule,
                    batch: common.batch,
                }),
                length: common
                    .requests
                    .map_or(Length::Time(common.seconds), Length::Count),
            }],
            seed: common.seed,
            warmup: common.warmup,
            ramp_up: common.ramp_up,
            label: common.label.clone(),
            start_at: common.start_at,
            timeout: common.timeout,
            interval: common.interval(),
            slip: common.slip,
            spin: Duration::from_micros(u64::from(common.spin)),
            displace: common.displace as usize * 1024,
            churn: common.churn,
            slow: common.slow_readers()?,
        })
    }
}

impl ProtocolArguments {
    fn plan(&self) -> Result<Plan, String> {
        match self {
            ProtocolArguments::Stream(stream) => stream.plan(),
            ProtocolArguments::Udp(udp) => udp.plan(),
        }
    }

    fn output(&self) -> Output<'_> {
        match self {
            ProtocolArguments::Stream(stream) => stream.common().output(),
            ProtocolArguments::Udp(udp) => udp.output(),
        }
    }
}

impl UdpArguments {
    fn output(&self) -> Output<'_> {
        Output {
            json: self.json,
            no_progress: self.no_progress,
            ..Output::default()
        }
    }
}

/// The Host field of requests to a server. A zone is the client's own matter, and no part of it (RFC 6874, section 4).
fn default_host(target: &Target) -> String {
    match target {
        Target::Ip(address) => SocketAddr::new(address.ip(), address.port()).to_string(),
        _ => "localhost".to_owned(),
    }
}

/// Whether the words behind `quoit load` would be understood: for those who write them down long before they run.
///
/// # Errors
/// What is wrong with them, in one line.
pub fn check(words: &[String]) -> Result<(), String> {
    plan(words).map(drop)
}

/// The run that the words behind `quoit load` describe.
pub(super) fn plan(words: &[impl AsRef<str>]) -> Result<Plan, String> {
    #[derive(Parser)]
    #[command(name = "quoit load", no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        load: LoadArguments,
    }

    let words = words.iter().map(AsRef::as_ref);
    let parsed = Line::try_parse_from(words).map_err(|error| usage::one_line(&error))?;
    match parsed.load.command {
        LoadCommand::Run(run) => run.plan(),
        LoadCommand::Merge(_) => Err("`merge` makes no load".to_owned()),
    }
}

/// Runs `quoit load`. `Program` is the program's whole command line, for messages on wrong usage.
pub fn command<Program: CommandFactory>(arguments: &LoadArguments) -> ExitCode {
    let found = match &arguments.command {
        LoadCommand::Merge(merge) => merge.execute(),
        LoadCommand::Run(run) => match run.plan() {
            Ok(plan) => execute(&plan, &run.output()),
            Err(message) => {
                return usage::refuse(&Program::command().error(ErrorKind::ValueValidation, message));
            }
        },
    };
    match found {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(_)) => ExitCode::FAILURE,
        Err(error) => {
            say(format_args!("quoit load: {error}"));
            ExitCode::FAILURE
        }
    }
}
