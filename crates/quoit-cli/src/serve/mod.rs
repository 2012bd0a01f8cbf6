//! The servers behind `quoit serve`, and what they share: the command line, starting, draining on a signal.

mod arguments;
mod echo;
pub(crate) mod http;
mod http_server;
mod metrics;
mod signals;
mod sink;
mod work;

pub(crate) use arguments::ServeArguments;

use std::process::ExitCode;
use std::sync::Arc;

use quoit::{Runtime, StartError};

use arguments::Protocol;
use echo::Echo;
use http_server::{HttpServer, Timeouts};
use metrics::Published;
use signals::Ending;
use sink::Sink;
use work::Work;

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
    let published = Arc::new(Published::default());
    let loops = config.loops;

    let runtime = start(protocol, config, &published, timeouts, work).map_err(|error| error.to_string())?;
    published.publish(&runtime);
    let metrics = match metrics_address {
        Some(address) => {
            Some(metrics::serve(address, &published, timeouts).map_err(|error| error.to_string())?)
        }
        None => None,
    };
    for address in runtime.addresses() {
        println!(
            "listening on {address} engine={} loops={}",
            runtime.engine(),
            loops
        );
    }
    if let Some(metrics) = &metrics {
        eprintln!("metrics on {}", metrics.addresses()[0]);
    }
    if arguments.chooses_engine() {
        eprintln!("engine {}: {}", runtime.engine(), runtime.engine_reason());
    }

    let code = match signals::wait_for_end(runtime, signals, drain) {
        Ending::Drained => ExitCode::SUCCESS,
        Ending::Forced => {
            eprintln!("quoit serve: a second signal ended draining early");
            ExitCode::FAILURE
        }
        Ending::Failed(error) => return Err(error.to_string()),
    };
    drop(metrics);
    Ok(code)
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
        Protocol::Sink => Runtime::start(config, move |_| Sink::new(work)),
        Protocol::Http => {
            let for_metrics = Arc::clone(published);
            Runtime::start(config, move |_| {
                HttpServer::new(timeouts, work, metrics::writer(&for_metrics))
            })
        }
    }
}
