//! `quoit serve`: the servers that are measured, and what they share: the command line, starting, draining on a signal.
//!
//! They run on the core, [`quoit`], and are what stands in for a user's server: [`echo`], [`http_server`] with the
//! protocol in [`http`], [`rpc_server`] with that of [`rpc`], [`sink`], and those of [`datagrams`]. [`metrics`] is a
//! server beside them. What both ends of a measurement share is in `quoit-workload`; the load generator is no part of
//! this crate and knows nothing of it.

mod arguments;
mod datagrams;
mod descriptors;
mod echo;
mod foreign;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hand_over;
mod http;
mod http_server;
mod idle;
mod liveness;
mod manager;
mod metrics;
mod queue;
pub mod rpc;
mod rpc_figures;
mod rpc_server;
mod signals;
mod sink;
mod threads;

pub use arguments::ServeArguments;
pub use descriptors::needed as descriptors_needed;

use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quoit::proxy_protocol::{Proxied, ProxyOptions, ProxyProtocol};
use quoit::{Address, EngineKind, Handler, Listen, Loop, Remote, Runtime, StartError};
use quoit_workload::{SinkReport, Work};

use arguments::Protocol;
use datagrams::{Dns, SinkRun, Sockets, UdpEcho, UdpSink};
use echo::Echo;
use hand_over::{Claim, Giver, Offer, Taken, Use};
use http_server::{HttpServer, Timeouts};
use idle::Idle;
use manager::Manager;
use metrics::Published;
use quoit_host::console::{print, say};
use rpc_server::RpcServer;
use signals::Ending;
use sink::Sink;

/// The exit status after wrong usage, as of that which is found while the command line is read.
const WRONG_USAGE: u8 = 2;

/// Runs `quoit serve`: until a signal, then drains.
pub fn command(arguments: &ServeArguments) -> ExitCode {
    if let Err(message) = arguments.check() {
        say(format_args!("quoit serve: {message}; --help tells more"));
        return ExitCode::from(WRONG_USAGE);
    }
    match serve(arguments) {
        Ok(code) => code,
        Err(message) => {
            say(format_args!("quoit serve: {message}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &ServeArguments) -> Result<ExitCode, String> {
    // From here on a signal waits until there is something to drain.
    let signals = signals::subscribe().map_err(|error| format!("cannot wait for signals: {error}"))?;
    let manager = Manager::from_environment();
    let protocol = arguments.protocol();
    let drain = arguments.drain();
    let metrics_address = arguments.metrics();
    let timeouts = Timeouts {
        head: arguments.head_timeout(),
        idle: arguments.idle_timeout(),
        keep_idle: arguments.keep_idle()?,
    };
    let work = Work::of(arguments.work());
    let proxy = arguments.proxy_protocol()?;
    let hand_over = arguments.hand_over()?;
    let mut taken = match hand_over {
        Some(path) => hand_over::take(path, signals.as_fd())?,
        None => None,
    };
    let mut config = arguments.runtime_config(taken.as_mut())?;
    let mut metrics_listen = metrics_address.map(|address| {
        let socket = taken
            .as_mut()
            .and_then(|taken| taken.socket(Use::Metrics, &address));
        socket.map_or(Listen::Address(address), Listen::Socket)
    });
    let shows_metrics = metrics_listen.is_some();
    let mut offer = Offer::after(taken.as_ref().map(Taken::files).unwrap_or_default());
    if hand_over.is_some() {
        config.listeners = std::mem::take(&mut config.listeners)
            .into_iter()
            .map(|(listen, options)| {
                let listen = offer.keep(Use::Connections, listen, &options.listen)?;
                Ok((listen, options))
            })
            .collect::<Result<_, String>>()?;
        if let Some(listen) = metrics_listen.take() {
            metrics_listen = Some(offer.keep(Use::Metrics, listen, &metrics::options().listen)?);
        }
    }
    // Before the loops accept: whom they had accepted would be reset if it failed.
    let claim = hand_over.map(Claim::at).transpose()?;
    if let Some(warning) = descriptors::prepare(&mut config, arguments.connections_were_given()) {
        say(format_args!("quoit serve: warning: {warning}"));
    }
    let loops = config.loops;
    let mut published = match protocol {
        Protocol::Rpc { .. } => Published::with_rpc(loops),
        Protocol::UdpEcho(_) | Protocol::UdpSink(_) => Published::with_datagrams(loops, shows_metrics),
        Protocol::Dns(_) => Published::with_dns(loops, shows_metrics),
        Protocol::Echo | Protocol::Http | Protocol::Sink => Published::default(),
    };
    published.add_threads(loops);
    if proxy.is_some() {
        published.add_headers(loops);
    }
    let published = Arc::new(published);
    let sockets = match protocol.datagrams() {
        Some(options) => Some(Arc::new(Sockets::bind(
            &arguments.addresses(),
            &options.options(),
            options.steering(),
            loops,
        )?)),
        None => None,
    };
    let (sink_run, sink_is_over) = SinkRun::new(loops);
    let sink_run = Arc::new(sink_run);

    let shared = Shared {
        published: Arc::clone(&published),
        timeouts,
        work,
        sockets: sockets.clone(),
        sink_run: Arc::clone(&sink_run),
    };
    let driven = Driven {
        config,
        proxy,
        elsewhere: arguments.waits_elsewhere(),
        published: Arc::clone(&published),
    };
    let runtime = start(protocol.clone(), driven, shared).map_err(|error| error.to_string())?;
    published.publish(&runtime);
    let metrics = match metrics_listen {
        Some(listen) => {
            Some(metrics::serve(listen, &published, timeouts).map_err(|error| error.to_string())?)
        }
        None => None,
    };
    // Before the ready lines: whoever waits for those finds the rest said.
    if let Some(metrics) = &metrics {
        say(format_args!("metrics on {}", metrics.addresses()[0]));
    }
    if arguments.lets_engine_be_chosen() {
        say(format_args!(
            "engine {}: {}",
            runtime.engine(),
            runtime.engine_reason()
        ));
    }
    let engine = runtime.engine();
    let addresses = sockets
        .as_ref()
        .map_or(runtime.addresses(), |sockets| sockets.addresses());
    let status = status(arguments.protocol(), addresses, &runtime, loops);
    let remotes: Vec<Remote> = runtime.remotes().cloned().collect();
    let stopping = {
        let (published, remotes, manager) = (Arc::clone(&published), remotes.clone(), manager.clone());
        move || {
            published.drains(drain);
            let connections = remotes
                .iter()
                .map(|event_loop| u64::from(event_loop.connections()));
            manager.stopping(drain, connections.sum());
        }
    };
    let given_up = match taken {
        Some(taken) if signals.arrived() => Some(taken.give_up()),
        Some(taken) => taken.finish(signals.as_fd()).err(),
        None => None,
    };
    let giver = match claim.filter(|_| given_up.is_none()) {
        Some(claim) => {
            let (stopping, drainer) = (stopping.clone(), runtime.drainer());
            let metrics = metrics.as_ref().map(Runtime::drainer);
            let giver = Giver::start(claim, offer, move || {
                stopping();
                drainer.drain(drain);
                if let Some(metrics) = &metrics {
                    // The successor's are served by now.
                    metrics.drain(drain);
                }
            });
            giver.place().inspect_err(|_| giver.ends())?;
            Some(giver)
        }
        None => None,
    };
    if let Some(reason) = &given_up {
        say(format_args!("quoit serve: {reason}"));
        // Whom the loops have accepted meanwhile is served.
        stopping();
        runtime.drainer().drain(drain);
    } else {
        if let Err(error) = print_ready(addresses, engine, loops) {
            say(format_args!(
                "quoit serve: the ready line cannot be written to standard output: {error}"
            ));
        }
        manager.ready(&status);
        manager.watch(remotes, status);
    }
    let stopping = {
        let giver = giver.clone();
        move || {
            if let Some(giver) = &giver {
                giver.drains();
            }
            stopping();
        }
    };

    let drainer = runtime.drainer();
    let stopping_too = stopping.clone();
    std::thread::spawn(move || {
        // An error means that the servers have ended otherwise.
        if sink_is_over.recv().is_ok() {
            stopping_too();
            drainer.drain(drain);
        }
    });
    let code = match signals::wait_for_end(runtime, signals, drain, stopping) {
        Ending::Drained => {
            if let Some(metrics) = metrics {
                metrics::end(metrics);
            }
            given_up.map_or(ExitCode::SUCCESS, |_| ExitCode::FAILURE)
        }
        Ending::Forced => {
            say("quoit serve: a second signal ended draining early");
            ExitCode::FAILURE
        }
        Ending::Failed(error) => return Err(error.to_string()),
        Ending::Panicked => return Err("a loop panicked: this is a fault of the program".to_owned()),
    };
    if let Some(giver) = giver {
        giver.ends();
    }
    match published.cut().load(Ordering::Relaxed) {
        0 => {}
        cut => say(format_args!(
            "quoit serve: the end of the drain reset {cut} open connections; --drain {} was not enough for them",
            drain.as_secs()
        )),
    }
    if let Protocol::UdpSink(options) = protocol {
        let report = sink_run.report(engine, arguments.work(), *options);
        print_report(report).map_err(|error| format!("the report cannot be made or written: {error}"))?;
    }
    Ok(code)
}

/// One line a listener, for people and for the programs that start this one. Words may be added at its end; who reads
/// it passes over those that it does not know.
fn print_ready(addresses: &[Address], engine: EngineKind, loops: u16) -> io::Result<()> {
    let lines = addresses.iter().map(|address| {
        format!(
            "listening on {address} engine={engine} loops={loops} version={}\n",
            env!("CARGO_PKG_VERSION")
        )
    });
    print(&lines.collect::<String>())
}

/// One line for the service manager, which shows it to whoever asks how the service is.
fn status(protocol: &Protocol, addresses: &[Address], runtime: &Runtime, loops: u16) -> String {
    let addresses: Vec<String> = addresses.iter().map(Address::to_string).collect();
    format!(
        "serving {} on {}; loops={loops} engine={}: {}",
        protocol.name(),
        addresses.join(", "),
        runtime.engine(),
        runtime.engine_reason()
    )
}

/// What a sink found, in one line.
fn print_report(report: io::Result<SinkReport>) -> io::Result<()> {
    print(&format!("{}\n", serde_json::to_string(&report?)?))
}

/// What the handlers of all loops share.
struct Shared {
    published: Arc<Published>,
    timeouts: Timeouts,
    work: Work,
    /// Of a server of datagrams.
    sockets: Option<Arc<Sockets>>,
    sink_run: Arc<SinkRun>,
}

/// How loops are run.
struct Driven {
    config: quoit::RuntimeConfig,
    /// What the headers of the PROXY protocol may take that all connections begin with.
    proxy: Option<ProxyOptions>,
    /// They wait in an epoll instance of the program.
    elsewhere: bool,
    published: Arc<Published>,
}

impl Driven {
    fn start<H: Handler + 'static>(
        self,
        make_handler: impl Fn(&mut Loop) -> H + Send + Sync + 'static,
    ) -> Result<Runtime, StartError> {
        let published = self.published;
        let make_handler = move |event_loop: &mut Loop| {
            published.runs_here(event_loop.index());
            make_handler(event_loop)
        };
        if self.elsewhere {
            Runtime::start_driven(self.config, make_handler, foreign::drive)
        } else {
            Runtime::start(self.config, make_handler)
        }
    }

    /// The same of a server of connections.
    fn start_streams<H: Proxied + 'static>(
        self,
        make_handler: impl Fn(&mut Loop) -> H + Send + Sync + 'static,
    ) -> Result<Runtime, StartError> {
        let Some(options) = self.proxy else {
            return self.start(make_handler);
        };
        let published = Arc::clone(&self.published);
        self.start(move |event_loop| {
            let counters = published.headers(event_loop.index());
            ProxyProtocol::with_counters(make_handler(event_loop), options, counters)
        })
    }
}

fn start(protocol: Protocol, driven: Driven, shared: Shared) -> Result<Runtime, StartError> {
    let Shared {
        published,
        timeouts,
        work,
        sockets,
        sink_run,
    } = shared;
    let sockets_of = move || Arc::clone(sockets.as_ref().expect("servers of datagrams have sockets"));
    match protocol {
        Protocol::Echo => driven.start_streams(move |_| Idle::new(Echo::new(work), timeouts.idle)),
        Protocol::Rpc { streams } => {
            let figures = Arc::clone(&published);
            driven.start_streams(move |event_loop| {
                let figures = figures.rpc(event_loop.index());
                Idle::new(RpcServer::new(streams as usize, work, figures), timeouts.idle)
            })
        }
        Protocol::Sink => driven.start_streams(move |_| Idle::new(Sink::new(work), timeouts.idle)),
        Protocol::Http => {
            let shown = Arc::clone(&published);
            driven.start_streams(move |_| {
                HttpServer::new(timeouts, work, metrics::observed(&shown)).counting_cut(shown.cut())
            })
        }
        Protocol::UdpEcho(_) => driven.start(move |event_loop| {
            let figures = published.datagrams(event_loop.index());
            UdpEcho::new(event_loop, &sockets_of(), work, figures)
        }),
        Protocol::UdpSink(_) => driven.start(move |event_loop| {
            let figures = published.datagrams(event_loop.index());
            UdpSink::new(event_loop, &sockets_of(), work, Arc::clone(&sink_run), figures)
        }),
        Protocol::Dns(dns) => driven.start(move |event_loop| {
            let index = event_loop.index();
            let figures = (published.datagrams(index), published.dns(index));
            Dns::new(event_loop, &sockets_of(), dns.responder(), work, figures)
        }),
    }
}
