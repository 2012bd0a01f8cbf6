//! The command line of `quoit serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand, ValueEnum};
use quoit::address::{ParseAddressError, UNIX_PATH_LIMIT};
use quoit::listen;
use quoit::proxy_protocol::ProxyOptions;
use quoit::{
    Address, Config, EngineChoice, EngineKind, FeatureSet, Listen, ListenOptions, ListenerOptions,
    RuntimeConfig, Spread, WaitMode,
};

use super::datagrams::{DatagramArguments, DnsArguments};
use super::hand_over::{Taken, Use};

const EXAMPLES: &str = "\
Examples:
  quoit serve http --listen 127.0.0.1:8080
  quoit serve echo --listen unix:/run/echo.sock --engine epoll
  quoit serve http --listen [::]:8080 --loops 4 --pin --metrics 127.0.0.1:9100
  quoit serve rpc --listen 127.0.0.1:7000 --streams 1024
  quoit serve http --listen 10.0.0.7:8080 --proxy-protocol
  quoit serve http --without multishot-receive,receive-budget
  quoit serve udp-echo --listen 127.0.0.1:9000 --loops 2 --gro
  quoit serve udp-sink --listen 127.0.0.1:9000 --work 2000 --wait spin:50
  quoit serve dns --listen [::]:5300 --record www.example.test=192.0.2.7 --record *.example.test=2001:db8::7
  systemd-socket-activate -l 8080 quoit serve http
  quoit serve http --listen [::]:8080 --hand-over /run/quoit/hand-over

When ready, prints a line `listening on ADDR engine=E loops=N version=V` for each listener. Then
serves until SIGINT or SIGTERM. A service manager is told of all that, and its watchdog while every
loop turns (NOTIFY_SOCKET, WATCHDOG_USEC). The signals drain: connections are finished, or aborted at
the deadline.
A second signal ends at once. If the connections need it, the soft limit on descriptors is raised
to the hard limit; a process with CAP_SYS_RESOURCE raises both.

Exit status: 0 after draining, 1 if serving failed or was cut short, 2 for wrong usage.";

/// Serve real traffic: echo, HTTP/1.1, RPC streams, a sink, datagrams, or DNS.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArguments {
    /// What to serve
    #[command(subcommand)]
    protocol: Protocol,
    #[command(flatten)]
    common: Common,
}

/// What to serve.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum Protocol {
    /// Send back what is received
    #[command(after_help = EXAMPLES)]
    Echo,
    /// HTTP/1.1: /plaintext, /json, /bytes/N, /echo, /metrics, /healthz, /readyz, /livez
    #[command(after_help = EXAMPLES)]
    Http,
    /// Streams of messages with credit, many per connection; docs/rpc.md has the wire format
    #[command(after_help = EXAMPLES)]
    Rpc {
        /// Streams that a connection may have open
        #[arg(long, value_name = "N", default_value_t = 4096,
              value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 20))]
        streams: u32,
    },
    /// Receive everything and send nothing back
    #[command(after_help = EXAMPLES)]
    Sink,
    /// Send datagrams back to their sender, but not to ports of servers: those below 1024, and its own
    #[command(after_help = EXAMPLES)]
    UdpEcho(DatagramArguments),
    /// Take the datagrams of one run of `quoit load udp`, work --work for each, and end with a report in JSON: what
    /// was handled, what was lost and by whom, and the time and memory that it took
    #[command(after_help = EXAMPLES)]
    UdpSink(DatagramArguments),
    /// Answer DNS queries over UDP with the addresses of a few names, authoritatively
    #[command(after_help = EXAMPLES)]
    Dns(DnsArguments),
}

impl Protocol {
    /// As it is named on the command line.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Http => "http",
            Self::Rpc { .. } => "rpc",
            Self::Sink => "sink",
            Self::UdpEcho(_) => "udp-echo",
            Self::UdpSink(_) => "udp-sink",
            Self::Dns(_) => "dns",
        }
    }

    /// The options of its sockets, if it serves datagrams.
    pub(super) fn datagrams(&self) -> Option<DatagramArguments> {
        match self {
            Self::UdpEcho(arguments) | Self::UdpSink(arguments) => Some(*arguments),
            Self::Dns(arguments) => Some(arguments.datagrams),
            Self::Echo | Self::Http | Self::Rpc { .. } | Self::Sink => None,
        }
    }
}

/// Why nothing was inherited that `--inherited` asks for.
fn nothing_inherited() -> String {
    let read = |name| std::env::var(name).unwrap_or_default();
    let (sockets, process) = (read("LISTEN_FDS"), read("LISTEN_PID"));
    let own = std::process::id().to_string();
    if matches!(sockets.as_str(), "" | "0") || process == own {
        return "no listening socket was inherited (LISTEN_FDS), as --inherited asks for; start the .socket unit in place of the \
                service, or name an address with --listen"
            .to_owned();
    }
    let process = if process.is_empty() {
        "no process"
    } else {
        &process
    };
    format!(
        "the sockets of LISTEN_FDS={sockets} are for {process} (LISTEN_PID), and not for this process, {own}; set LISTEN_PID to the \
         process that becomes this one by exec(2), as sd_listen_fds(3) says"
    )
}

/// Where metrics are served: whoever can connect reads them, so that a port alone is one of this host.
fn metrics_address(text: &str) -> Result<Address, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port)).into()),
        Err(_) if port.parse::<i128>().is_ok() => Err(format!(
            "{port} is not a port from 0 to 65535; write, for example, 9100 or 127.0.0.1:9100"
        )),
        Err(_) => text.parse().map_err(|error: ParseAddressError| error.to_string()),
    }
}

/// How a loop waits.
#[derive(Debug, Clone, Copy)]
enum Wait {
    /// In its own turns.
    Own(WaitMode),
    /// In an epoll instance of the program.
    Foreign,
}

/// A time of 1 to so many microseconds.
fn microseconds(text: &str, most: u64) -> Option<Duration> {
    let count = text.parse().ok().filter(|count| (1..=most).contains(count))?;
    Some(Duration::from_micros(count))
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = match text.split_once(':') {
            None if text == "block" => WaitMode::Block,
            None if text == "poll" => WaitMode::Poll,
            Some(("spin", count)) => WaitMode::Spin(
                microseconds(count, 1_000_000)
                    .ok_or("spin takes 1 to 1000000 microseconds, such as spin:50")?,
            ),
            // Its earlier name, too.
            Some(("coalesce" | "gather", count)) => WaitMode::Coalesce(
                microseconds(count, 100_000)
                    .ok_or("coalesce takes 1 to 100000 microseconds, such as coalesce:100")?,
            ),
            None if text == "foreign" => return Ok(Self::Foreign),
            _ => {
                return Err(
                    "expected block, poll, foreign, spin:MICROSECONDS, or coalesce:MICROSECONDS".to_owned(),
                );
            }
        };
        Ok(Self::Own(mode))
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Engine {
    /// io_uring where it is usable, otherwise epoll
    Auto,
    /// io_uring, or fail
    Uring,
    /// epoll
    Epoll,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SpreadName {
    /// The first loop accepts and hands over to the loop with the fewest connections
    HandOver,
    /// All loops accept from one socket
    Shared,
    /// A socket for each loop (SO_REUSEPORT): no error for a second server, resets when a loop ends
    ReusePort,
}

#[derive(Debug, Args)]
struct Common {
    /// Where to listen: IP:PORT, [IPv6]:PORT, unix:/path or unix:@abstract-name; port 0 lets the kernel choose.
    /// Default: the sockets inherited from the service manager (LISTEN_FDS), or 127.0.0.1:8080
    #[arg(long, global = true, value_name = "ADDR")]
    listen: Vec<Address>,
    /// Listen on the sockets inherited from the service manager (LISTEN_FDS), and fail if there are none
    #[arg(long, global = true)]
    inherited: bool,
    /// The engine
    #[arg(long, global = true, value_enum, default_value = "auto")]
    engine: Engine,
    /// Loops, and so threads
    #[arg(long, global = true, value_name = "N", default_value_t = 1,
          value_parser = RangedU64ValueParser::<u16>::new().range(1..=1024))]
    loops: u16,
    /// Pin each loop's thread to a processor of its own, in turn
    #[arg(long, global = true)]
    pin: bool,
    /// Do not let the loops' threads interrupt others when they are woken (SCHED_BATCH): fewer, larger turns where
    /// clients share the processor, for more latency under contention
    #[arg(long, global = true)]
    batch: bool,
    /// How several loops share a listener
    #[arg(long, global = true, value_enum, default_value = "hand-over")]
    spread: SpreadName,
    /// Features of io_uring not to use, separated by commas; `quoit doctor` lists them
    #[arg(
        long,
        global = true,
        value_name = "LIST",
        default_value = "",
        hide_default_value = true
    )]
    without: FeatureSet,
    /// Lend sends of at least this many bytes to the kernel instead of copying them, where the engine can
    #[arg(long, global = true, value_name = "BYTES",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 30))]
    zero_copy: Option<u32>,
    /// Register the receive pool with the ring, for zero-copy sends of received bytes; no effect on datagrams, as each
    /// of their sockets has memory of its own
    #[arg(long, global = true)]
    register_pool: bool,
    /// Let a kernel thread poll the submission queue, and sleep after this idle time; costs up to a processor per loop
    #[arg(long, global = true, value_name = "MS",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=60_000))]
    kernel_poll: Option<u32>,
    /// How a loop waits: block sleeps at once; spin:US polls for so many microseconds first; poll never sleeps, and
    /// takes a processor per loop; coalesce:US may make responses later by so many microseconds, where the loop finds
    /// that this saves processor time; foreign sleeps in an epoll instance of this program, as inside another library's
    /// loop
    #[arg(long, global = true, value_name = "HOW", default_value = "block")]
    wait: Wait,
    /// Connections that each loop may have
    /// [default: 16384]
    #[arg(long, global = true, value_name = "N",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 20))]
    connections: Option<u32>,
    /// Processor time to burn for each piece or datagram received, in nanoseconds: a handler with work to do
    #[arg(long, global = true, value_name = "NS", default_value_t = 0)]
    work: u64,
    /// Serve /metrics, /readyz, /livez and /healthz on this address too; a port alone, such as 9100 or :9100, is one of 127.0.0.1
    #[arg(long, global = true, value_name = "ADDR|PORT", value_parser = metrics_address)]
    metrics: Option<Address>,
    /// Every connection begins with a header of the PROXY protocol, version 1 or 2, in which a balancer names the client;
    /// one without is reset. Only balancers must be able to connect. Not for datagrams
    #[arg(long, global = true)]
    proxy_protocol: bool,
    /// http: seconds that a request head may take. With --proxy-protocol: that its header may take, with any protocol
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 10,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=86_400))]
    head_timeout: u32,
    /// Seconds without a byte, either way, after which a connection is closed
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 60,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=86_400))]
    idle_timeout: u32,
    /// Seconds for draining after SIGINT or SIGTERM, or when another process has taken over
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 10,
          value_parser = RangedU64ValueParser::<u32>::new().range(0..=86_400))]
    drain: u32,
    /// http: seconds of a drain in which connections between two requests stay open, so that a request that is on its
    /// way is answered, with `Connection: close`; then they are closed
    /// [default: 0; with --hand-over half of --drain]
    #[arg(long, global = true, value_name = "SECONDS",
          value_parser = RangedU64ValueParser::<u32>::new().range(0..=86_400))]
    keep_idle: Option<u32>,
    /// Restart without a refused client: take the listening sockets from the process that serves with the same PATH, if
    /// there is one, which then drains; and hand them over in the same way to the next. A Unix socket is made there, for
    /// processes of this user
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "inherited")]
    hand_over: Option<PathBuf>,
}

impl ServeArguments {
    pub(super) fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// Refuses options that do not go together.
    ///
    /// # Errors
    /// One line: which do not.
    pub(super) fn check(&self) -> Result<(), String> {
        let common = &self.common;
        if common.inherited && !common.listen.is_empty() {
            return Err("--listen and --inherited exclude each other".to_owned());
        }
        if common.inherited && self.protocol.datagrams().is_some() {
            return Err(format!(
                "{} has sockets of its own: name their address with --listen in place of --inherited",
                self.protocol.name()
            ));
        }
        self.keep_idle()?;
        self.proxy_protocol()?;
        self.hand_over()?;
        Ok(())
    }

    pub(super) fn drain(&self) -> Duration {
        Duration::from_secs(u64::from(self.common.drain))
    }

    /// How long connections between two requests stay open while it drains.
    ///
    /// # Errors
    /// It is longer than the drain.
    pub(super) fn keep_idle(&self) -> Result<Duration, String> {
        let drain = self.drain();
        match self.common.keep_idle {
            Some(seconds) if u64::from(seconds) > drain.as_secs() => Err(format!(
                "--keep-idle {seconds} is longer than the drain, after which nothing is kept: --drain {}",
                drain.as_secs()
            )),
            Some(seconds) => Ok(Duration::from_secs(u64::from(seconds))),
            None if self.common.hand_over.is_some() => Ok(drain / 2),
            None => Ok(Duration::ZERO),
        }
    }

    /// Where the sockets are taken over and handed over.
    ///
    /// # Errors
    /// It cannot be done with these servers.
    pub(super) fn hand_over(&self) -> Result<Option<&Path>, String> {
        let Some(path) = &self.common.hand_over else {
            return Ok(None);
        };
        if self.protocol.datagrams().is_some() {
            return Err(
                "--hand-over is for connections, and this protocol has none; leave it out".to_owned(),
            );
        }
        if matches!(self.common.spread, SpreadName::ReusePort) {
            return Err(
                "--hand-over hands one socket over for each address, and --spread reuse-port makes one for each loop; \
                 use --spread hand-over or shared"
                    .to_owned(),
            );
        }
        Ok(Some(path))
    }

    pub(super) fn metrics(&self) -> Option<Address> {
        self.common.metrics.as_ref().map(|address| self.settled(address))
    }

    /// An address that is the same one for a successor, which may have been started in another folder: with --hand-over
    /// the path of a Unix socket is one from the root on, if that fits.
    fn settled(&self, address: &Address) -> Address {
        let fits = |path: &PathBuf| path.as_os_str().len() <= UNIX_PATH_LIMIT;
        match address {
            Address::UnixPath(path) if self.common.hand_over.is_some() => std::path::absolute(path)
                .ok()
                .filter(fits)
                .map_or_else(|| address.clone(), Address::UnixPath),
            _ => address.clone(),
        }
    }

    pub(super) fn head_timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.common.head_timeout))
    }

    /// What headers of the PROXY protocol may take, if connections begin with them.
    ///
    /// # Errors
    /// There are no connections.
    pub(super) fn proxy_protocol(&self) -> Result<Option<ProxyOptions>, String> {
        if !self.common.proxy_protocol {
            return Ok(None);
        }
        if self.protocol.datagrams().is_some() {
            return Err(
                "--proxy-protocol is for connections, and this protocol has none; leave it out".to_owned(),
            );
        }
        Ok(Some(ProxyOptions {
            within: self.head_timeout(),
            ..ProxyOptions::default()
        }))
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.common.idle_timeout))
    }

    pub(super) fn work(&self) -> Duration {
        Duration::from_nanos(self.common.work)
    }

    /// Whether the engine is found by a probe, so that its reason is news.
    pub(super) fn lets_engine_be_chosen(&self) -> bool {
        matches!(self.common.engine, Engine::Auto)
    }

    /// Whether loops wait in an epoll instance of the program.
    pub(super) fn waits_elsewhere(&self) -> bool {
        matches!(self.common.wait, Wait::Foreign)
    }

    pub(super) fn connections_were_given(&self) -> bool {
        self.common.connections.is_some()
    }

    /// Where a server of datagrams receives. Sockets are not inherited.
    pub(super) fn addresses(&self) -> Vec<Address> {
        match &self.common.listen[..] {
            [] => vec![default_address()],
            addresses => addresses.to_vec(),
        }
    }

    /// What is asked for, on the sockets of a predecessor if there is one.
    ///
    /// # Errors
    /// One line: what was inherited cannot be used, or nothing was that was asked for.
    pub(super) fn runtime_config(&self, mut taken: Option<&mut Taken>) -> Result<RuntimeConfig, String> {
        let common = &self.common;
        let config = Config {
            engine: match common.engine {
                Engine::Auto => EngineChoice::Auto,
                Engine::Uring => EngineChoice::Require(EngineKind::Uring),
                Engine::Epoll => EngineChoice::Require(EngineKind::Epoll),
            },
            without: common.without,
            connections: common.connections.unwrap_or(Config::default().connections),
            wait: match common.wait {
                Wait::Own(mode) => mode,
                Wait::Foreign => WaitMode::Block,
            },
            pollable: self.waits_elsewhere(),
            zero_copy_threshold: common.zero_copy,
            register_pool: common.register_pool,
            kernel_poll: common
                .kernel_poll
                .map(|idle| Duration::from_millis(u64::from(idle))),
            ..Config::default()
        };
        if self.protocol.datagrams().is_some() {
            return Ok(RuntimeConfig {
                loops: common.loops,
                pin: common.pin,
                batch: common.batch,
                // No room is taken for connections, of which there are none.
                config: Config {
                    connections: 1,
                    receive_slots: 1,
                    ..config
                },
                ..RuntimeConfig::default()
            });
        }
        let options = ListenerOptions {
            listen: ListenOptions {
                unlink_existing: true,
                ..ListenOptions::default()
            },
            ..ListenerOptions::default()
        };
        let mut of_predecessor = |address: &Address| taken.as_mut()?.socket(Use::Connections, address);
        let listen = |address: &Address| {
            let address = self.settled(address);
            match of_predecessor(&address) {
                Some(socket) => Listen::Socket(socket),
                None => Listen::Address(address),
            }
        };
        let mut listens: Vec<Listen> = common.listen.iter().map(listen).collect();
        if listens.is_empty()
            && let Some(taken) = taken
        {
            listens.extend(taken.sockets(Use::Connections).into_iter().map(Listen::Socket));
        }
        if listens.is_empty() {
            let inherited = listen::inherited().map_err(|error| error.to_string())?;
            listens.extend(inherited.into_iter().map(Listen::Socket));
            if common.inherited && listens.is_empty() {
                return Err(nothing_inherited());
            }
        }
        if listens.is_empty() {
            listens.push(Listen::Address(default_address()));
        }
        Ok(RuntimeConfig {
            loops: common.loops,
            pin: common.pin,
            batch: common.batch,
            config,
            listeners: listens
                .into_iter()
                .map(|listen| (listen, options.clone()))
                .collect(),
            spread: match common.spread {
                SpreadName::HandOver => Spread::HandOver,
                SpreadName::Shared => Spread::Shared,
                SpreadName::ReusePort => Spread::ReusePort,
            },
        })
    }
}

fn default_address() -> Address {
    SocketAddr::from(([127, 0, 0, 1], 8080)).into()
}
