//! What the examples have in common: arguments, the line that says that they are ready, and their end at SIGTERM and SIGINT.

#![allow(dead_code, reason = "each example runs in one of the two ways")]

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use quoit_async::{
    Address, Config, Context, EngineChoice, EngineKind, Loops, LoopsConfig, Server, ServerConfig,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::signal::unix::{SignalKind, signal};

/// Serves until SIGTERM or SIGINT. Prints `listening on ADDR engine=E loops=N version=V` when it is ready.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    /// Where to listen, unless a listening socket was inherited (LISTEN_FDS)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// What the loops run on
    #[arg(long, value_enum, default_value_t = Engine::Auto)]
    engine: Engine,
    /// Loops; one for each processor if it is not said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    loops: Option<u16>,
    /// Connections that each loop may have
    #[arg(long, value_name = "N", default_value_t = Config::default().connections)]
    connections: u32,
    /// Pin each loop's thread to a processor of its own
    #[arg(long)]
    pin: bool,
    /// Seconds that connections have to end in once a signal has come; what is left then is reset
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,
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

impl Arguments {
    fn config(&self) -> Config {
        let engine = match self.engine {
            Engine::Auto => EngineChoice::Auto,
            Engine::Uring => EngineChoice::Require(EngineKind::Uring),
            Engine::Epoll => EngineChoice::Require(EngineKind::Epoll),
        };
        Config {
            engine,
            connections: self.connections,
            ..Config::default()
        }
    }

    /// How long connections have to end in once a signal has come.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.drain)
    }

    /// A loop and a runtime on each thread, which run the service until a signal comes.
    pub(crate) fn serve<F, S>(&self, service: F) -> io::Result<()>
    where
        F: Fn(Context) -> S + Send + Sync + 'static,
        S: Future<Output = io::Result<()>> + 'static,
    {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        // From a service manager, or the process that hands over to this one.
        let mut inherited = quoit::listen::inherited().map_err(io::Error::other)?;
        let listening = match inherited.is_empty() {
            true => ServerConfig::listen(self.listen),
            false => ServerConfig::listen_on(inherited.remove(0).into_parts().0)?,
        };
        let server = Server::start(
            ServerConfig {
                config: self.config(),
                loops: self.loops.unwrap_or(listening.loops),
                pin: self.pin,
                ..listening
            },
            service,
        )?;
        let drainer = server.drainer();
        let patience = self.patience();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                drainer.drain(patience);
            }
        });
        ready(&server.addresses()[0], server.engine(), server.counters().len());
        server.join()
    }

    /// Loops beside the program's own runtime, for all sockets that it opens from now on.
    pub(crate) fn start_loops(&self) -> io::Result<Started> {
        let defaults = LoopsConfig::default();
        let loops = Loops::start(LoopsConfig {
            config: self.config(),
            loops: self.loops.unwrap_or(defaults.loops),
            pin: self.pin,
        })?;
        let started = Started {
            engine: loops.engine(),
            loops: loops.counters().len(),
        };
        loops.make_default()?;
        Ok(started)
    }
}

/// The loops that have started.
pub(crate) struct Started {
    engine: EngineKind,
    loops: usize,
}

impl Started {
    /// Says that the program can be connected to.
    pub(crate) fn ready(&self, address: SocketAddr) {
        ready(&address.into(), self.engine, self.loops);
    }
}

fn ready(address: &Address, engine: EngineKind, loops: usize) {
    let version = env!("CARGO_PKG_VERSION");
    println!("listening on {address} engine={engine} loops={loops} version={version}");
}

/// Waits for SIGTERM or SIGINT, of which the first call takes note.
pub(crate) fn signals() -> io::Result<impl Future<Output = ()> + Send> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
