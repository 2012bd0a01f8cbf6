//! The command line of `quoit load`.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::rpc::RpcArguments;
use super::{Length, LoadError, Plan, Progress, Report, Target, Workload, run};

const EXAMPLES: &str = "\
Examples:
  quoit load http --connect http://127.0.0.1:8080/plaintext
  quoit load http --connect 127.0.0.1:8080 --path /plaintext --connections 256 --pipeline 16
  quoit load echo --connect [::1]:7000 --size 1024 --threads 2 --seconds 10
  quoit load echo --connect unix:/run/echo.sock --requests 100000 --json
  quoit load echo --connect unix:@echo --warmup 0
  quoit load rpc --connect 127.0.0.1:7000 --connections 16 --streams 1000 --messages 32
  quoit load rpc --connect 127.0.0.1:7000 --messages 0 --credit 70000 --size 1024
  quoit load rpc --connect 127.0.0.1:7000 --streams 100 --messages 0 --batch 1 --every 1

Exit status: 0 if every reply was right, 1 if the run failed or its figures are invalid (any error),
2 for wrong usage. An interrupt (SIGINT) ends the run early and still reports what was measured.";

const JSON_FIELDS: &str = "\
Fields of the JSON object (units in the names; null: nothing to say):
  protocol, target, message_bytes (echo) or path (http), connections,
  pipeline, threads, warmup_seconds   what was run
  elapsed_seconds                length of the measured window
  requests                       replies of the window that were wholly right
  requests_per_second            requests by elapsed_seconds
  received_bytes                 bytes received in the window
  received_megabytes_per_second  in millions of bytes
  latency                        from a request's write to its reply's last read:
                                 mean_ns, standard_deviation_ns, p50_ns,
                                 p90_ns, p99_ns, p99_9_ns, max_ns
  errors                         counts over the whole run, warm-up included
    connect_refused, connect_other           connection attempts
    reset, closed_early, timeouts            open connections
    wrong_content, wrong_status              replies
    lost_requests                            requests never answered
  first_error                    the first error in words
  reconnects                     connections opened again
  generator_cpu_ns_per_request   user and system time of the load's threads
  generator_cpu_utilization      0 to 1; near 1 the generator may be the limit
  interrupted                    whether the run was ended before its time
  invalid                        why the figures must not be used";

const RPC_JSON_FIELDS: &str = "\
With rpc, `requests` are messages, `pipeline` is streams a connection, and `latency` is that of
messages, one way: from the server's send time to this end's read of the whole message. It means
something on one machine only; use --untimed otherwise. Besides:
  rpc
    direction, messages_per_stream, credit, batch, every_seconds   what was run
    streams_ended                streams of the window that came to their right end
    stream_latency               as latency: from a stream's opening to its end";

/// Generate load, check every reply, and measure.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArguments {
    #[command(subcommand)]
    protocol: ProtocolArguments,
}

#[derive(Debug, Subcommand)]
enum ProtocolArguments {
    /// Send messages that the server must return unchanged
    #[command(after_help = format!("{EXAMPLES}\n\n{JSON_FIELDS}"))]
    Echo {
        /// The server: IP:PORT, [IPv6]:PORT, unix:/path or unix:@abstract-name
        #[arg(long, value_name = "ADDR")]
        connect: Target,
        #[command(flatten)]
        common: CommonArguments,
        /// Bytes of a message, at most 16 MiB
        #[arg(long, value_name = "BYTES", default_value_t = 64,
              value_parser = RangedU64ValueParser::<u32>::new().range(1..=16 * 1024 * 1024))]
        size: u32,
    },
    /// Send HTTP/1.1 GET requests; every reply must be a 200 equal to the first one
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
    },
    /// Open streams of messages with credit, many a connection; every message is checked
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
    /// Requests to keep outstanding on each connection
    #[arg(long, value_name = "D", default_value_t = 1,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=65_536))]
    pipeline: u32,
    /// Threads that generate the load; at most one a connection
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1_024))]
    threads: u32,
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
    /// Longest wait for a connection to open or for a reply
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_positive_seconds)]
    timeout: Duration,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Show no progress bar (there is none unless standard error is a terminal)
    #[arg(long)]
    no_progress: bool,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    const DAY: f64 = 86_400.0;
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.0..=DAY).contains(&seconds) {
        return Err(format!("must lie between 0 and {DAY}"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(super) fn parse_positive_seconds(text: &str) -> Result<Duration, String> {
    parse_seconds(text).and_then(|time| {
        if time.is_zero() {
            Err("must be more than 0".to_owned())
        } else {
            Ok(time)
        }
    })
}

fn parse_path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err("a path starts with `/`".to_owned());
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a path has only visible ASCII characters; encode others with %".to_owned());
    }
    Ok(text.to_owned())
}

fn parse_host(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a host has only visible ASCII characters, and at least one".to_owned());
    }
    Ok(text.to_owned())
}

/// What `--connect` of an HTTP run names: the server, and the path if it is a URL with one.
#[derive(Debug, Clone)]
struct HttpAddress {
    target: Target,
    path: Option<String>,
}

fn parse_http_address(text: &str) -> Result<HttpAddress, String> {
    if text.starts_with("https://") {
        return Err("TLS is not supported; use http://".to_owned());
    }
    let Some(rest) = text.strip_prefix("http://") else {
        return Ok(HttpAddress {
            target: text.parse()?,
            path: None,
        });
    };
    let (authority, path) = match rest.find('/') {
        Some(slash) => (&rest[..slash], Some(parse_path(&rest[slash..])?)),
        None => (rest, None),
    };
    if authority.starts_with("unix:") {
        return Err("a URL cannot name a Unix socket; use --connect unix:... with --path".to_owned());
    }
    // An IPv6 address has colons of its own, within brackets.
    let has_port = authority
        .rfind(':')
        .is_some_and(|colon| !authority[colon..].contains(']'));
    let target = if has_port {
        authority.parse()?
    } else {
        format!("{authority}:80").parse()?
    };
    Ok(HttpAddress { target, path })
}

impl ProtocolArguments {
    fn common(&self) -> &CommonArguments {
        match self {
            ProtocolArguments::Echo { common, .. }
            | ProtocolArguments::Http { common, .. }
            | ProtocolArguments::Rpc { common, .. } => common,
        }
    }

    fn plan(&self) -> Result<Plan, String> {
        let common = self.common();
        let mut pipeline = common.pipeline;
        let (target, workload) = match self {
            ProtocolArguments::Echo { connect, size, .. } => {
                (connect.clone(), Workload::Echo { size: *size as usize })
            }
            ProtocolArguments::Http {
                connect, path, host, ..
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
                let default_host = match &target {
                    Target::Tcp(address) => address.to_string(),
                    _ => "localhost".to_owned(),
                };
                (
                    target,
                    Workload::Http {
                        path,
                        host: host.clone().unwrap_or(default_host),
                    },
                )
            }
            ProtocolArguments::Rpc { connect, streams, .. } => {
                if common.pipeline != 1 {
                    return Err(
                        "rpc has no --pipeline; --streams says how many streams a connection has".to_owned(),
                    );
                }
                pipeline = streams.streams;
                (connect.clone(), Workload::Rpc(streams.streams(common.timeout)?))
            }
        };
        if common.threads > common.connections {
            return Err(format!(
                "--threads {} needs at least as many connections, but --connections is {}",
                common.threads, common.connections
            ));
        }
        Ok(Plan {
            target,
            workload,
            connections: common.connections as usize,
            pipeline,
            threads: common.threads as usize,
            length: common
                .requests
                .map_or(Length::Time(common.seconds), Length::Requests),
            warmup: common.warmup,
            timeout: common.timeout,
        })
    }
}

/// Runs `quoit load`. `Program` is the program's whole command line, for messages on wrong usage.
pub(crate) fn command<Program: CommandFactory>(arguments: &LoadArguments) -> ExitCode {
    let common = arguments.protocol.common();
    let plan = match arguments.protocol.plan() {
        Ok(plan) => plan,
        Err(message) => Program::command()
            .error(ErrorKind::ValueValidation, message)
            .exit(),
    };
    match execute(&plan, common) {
        Ok(report) if report.invalid.is_none() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("quoit load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(plan: &Plan, common: &CommonArguments) -> Result<Report, LoadError> {
    let stop = Arc::new(AtomicBool::new(false));
    // The second interrupt ends the program at once; registered first, it sees the flag of the first one.
    flag::register_conditional_shutdown(SIGINT, 130, stop.clone())
        .and_then(|_| flag::register(SIGINT, stop.clone()))
        .map_err(|error| LoadError::new(format!("cannot handle SIGINT: {error}")))?;
    let bar = progress_bar(common)?;
    let report = run(plan, &stop, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let report = report?;
    print(&report, common.json)
        .map_err(|error| LoadError::new(format!("cannot write the report to standard output: {error}")))?;
    Ok(report)
}

fn print(report: &Report, json: bool) -> io::Result<()> {
    let text = if json {
        serde_json::to_string(report)?
    } else {
        report.to_table()
    };
    let mut output = io::stdout().lock();
    writeln!(output, "{text}")?;
    output.flush()
}

fn progress_bar(common: &CommonArguments) -> Result<ProgressBar, LoadError> {
    if common.no_progress || !io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("[{bar:40}] {percent:>3}% {msg}")
        .map_err(|error| LoadError::new(format!("cannot draw the progress bar: {error}")))?
        .progress_chars("=> ");
    Ok(ProgressBar::new(1_000).with_style(style))
}

fn show(bar: &ProgressBar, progress: Progress) {
    let (fraction, message) = match progress {
        Progress::Opening { open, connections } => {
            let fraction = open as f64 / connections.max(1) as f64;
            (fraction, format!("opening: {open} of {connections} connections"))
        }
        Progress::WarmUp { fraction, replies } => (fraction, format!("warming up: {replies} replies")),
        Progress::Measuring { fraction, replies } => (fraction, format!("measuring: {replies} replies")),
    };
    bar.set_position((fraction * 1_000.0) as u64);
    bar.set_message(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http_address_may_be_a_url() {
        for (text, target, path) in [
            (
                "http://127.0.0.1:8080/json?x=1",
                "127.0.0.1:8080",
                Some("/json?x=1"),
            ),
            ("http://127.0.0.1", "127.0.0.1:80", None),
            ("http://[::1]/", "[::1]:80", Some("/")),
            ("http://[::1]:81", "[::1]:81", None),
            ("[::1]:81", "[::1]:81", None),
            ("unix:@x", "unix:@x", None),
        ] {
            let found = parse_http_address(text).unwrap();
            assert_eq!(
                (found.target.to_string().as_str(), found.path.as_deref()),
                (target, path),
                "{text}"
            );
        }
        for text in [
            "https://127.0.0.1/",
            "http://localhost/",
            "http:///x",
            "http://unix:/x",
            "ftp://1.1.1.1",
        ] {
            assert!(parse_http_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_finite_and_not_negative() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("0"), Ok(Duration::ZERO));
        for text in ["-1", "NaN", "inf", "1e9", "x"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert!(parse_positive_seconds("0").is_err());
    }
}
