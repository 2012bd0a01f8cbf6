//! The servers behind `quoit serve`, and what they share: the command line, starting, draining on a signal.

mod arguments;
mod descriptors;
mod echo;
pub(crate) mod http;
mod http_server;
mod metrics;
mod queue;
pub(crate) mod rpc;
mod rpc_figures;
mod rpc_server;
mod signals;
mod sink;

pub(crate) use arguments::ServeArguments;
pub(crate) use descriptors::needed as descriptors_needed;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use quoit::{Runtime, StartError};
use quoit_yardstick::Work;

use arguments::Protocol;
use echo::Echo;
use http_server::{HttpServer, Timeouts};
use metrics::Published;
use rpc_server::RpcServer;
use signals::Ending;
use sink::Sink;

/// Runs `quoit serve`: until a signal, then drains.
pub(crate) fn command(arguments: &ServeArguments) -> ExitCode {
    match serve(arguments) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("quoit serve: {message}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &ServeArguments) -> Result<ExitCode, String> {
    // From here on a signal waits until there is something to drain.
    let signals = signals::subscribe().map_err(|error| format!("cannot wait for signals: {error}"))?;
    let protocol = arguments.protocol();
    let drain = arguments.drain();
    let metrics_address = arguments.metrics();
    let timeouts = Timeouts {
        head: arguments.head_timeout(),
        idle: arguments.idle_timeout(),
    };
    let work = Work::of(arguments.work());
    let config = arguments.runtime_config()?;
    if let Some(warning) = descriptors::prepare(&config, arguments.connections_were_given()) {
        eprintln!("quoit serve: warning: {warning}");
    }
    let loops = config.loops;
    let published = Arc::new(match protocol {
        Protocol::Rpc { .. } => Published::with_rpc(loops),
        Protocol::Echo | Protocol::Http | Protocol::Sink => Published::default(),
    });

    let runtime = start(protocol, config, &published, timeouts, work).map_err(|error| error.to_string())?;
    published.publish(&runtime);
    let metrics = match metrics_address {
        Some(address) => {
            Some(metrics::serve(address, &published, timeouts).map_err(|error| error.to_string())?)
        }
        None => None,
    };
    // Before the ready lines: whoever waits for those finds the rest said.
    if let Some(metrics) = &metrics {
        eprintln!("metrics on {}", metrics.addresses()[0]);
    }
    if arguments.lets_engine_be_chosen() {
        eprintln!("engine {}: {}", runtime.engine(), runtime.engine_reason());
    }
    if let Err(error) = print_ready(&runtime, loops) {
        eprintln!("quoit serve: the ready line cannot be written to standard output: {error}");
    }

    let code = match signals::wait_for_end(runtime, signals, drain) {
        Ending::Drained => ExitCode::SUCCESS,
        Ending::Forced => {
            eprintln!("quoit serve: a second signal ended draining early");
            ExitCode::FAILURE
        }
        Ending::Failed(error) => return Err(error.to_string()),
        Ending::Panicked => return Err("a loop panicked: this is a fault of the program".to_owned()),
    };
    drop(metrics);
    Ok(code)
}

/// One line a listener, for people and for the programs that start this one. Words may be added at its end; who reads
/// it passes over those that it does not know.
fn print_ready(runtime: &Runtime, loops: u16) -> io::Result<()> {
    let mut output = io::stdout().lock();
    for address in runtime.addresses() {
        writeln!(
            output,
            "listening on {address} engine={} loops={loops} version={}",
            runtime.engine(),
            env!("CARGO_PKG_VERSION")
        )?;
    }
    output.flush()
}

fn start(
    protocol: Protocol,
    config: quoit::RuntimeConfig,
    published: &Arc<Published>,
    timeouts: Timeouts,
    work: Work,
) -> Result<Runtime, StartError> {
    match protocol {
        Protocol::Echo => Runtime::start(config, move |_| Echo::new(work)),
        Protocol::Rpc { streams } => {
            let figures = Arc::clone(published);
            Runtime::start(config, move |quoit| {
                RpcServer::new(streams as usize, work, figures.rpc(quoit.index()))
            })
        }
        Protocol::Sink => Runtime::start(config, move |_| Sink::new(work)),
        Protocol::Http => {
            let for_metrics = Arc::clone(published);
            Runtime::start(config, move |_| {
                HttpServer::new(timeouts, work, metrics::writer(&for_metrics))
            })
        }
    }
}
