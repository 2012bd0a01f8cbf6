//! Several loops, one thread each, behind the same listeners.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::address::Address;
use crate::affinity;
use crate::config::{Config, EngineChoice};
use crate::engine::EngineKind;
use crate::event_loop::{Accept, ListenerOptions, Loop, TurnError};
use crate::handler::Handler;
use crate::id::LoopIndex;
use crate::listen::{self, ListenSocket};
use crate::remote::Remote;
use crate::selected::StartError;

/// How several loops share a listening address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// The first loop accepts and hands each connection to the loop that has the fewest. It keeps what that one refuses: a loop
    /// that drains is handed none.
    #[default]
    HandOver,
    /// All loops accept from one socket; the kernel wakes one of them for each connection. Costs no hand-over,
    /// but a loop that is awake takes what others might: on io_uring, 64 long-lived connections that came at once
    /// were all on one of two loops when this was measured.
    Shared,
    /// Each loop has a socket of its own on the same port (`SO_REUSEPORT`), and the kernel spreads by hash. For
    /// TCP addresses only; Unix and inherited sockets are shared instead. Two losses: a second server on the port
    /// gets no error, and when a loop ends, what is queued on its socket is reset.
    ReusePort,
}

/// Where to listen.
#[derive(Debug)]
pub enum Listen {
    /// At this address.
    Address(Address),
    /// On this socket, inherited for instance.
    Socket(ListenSocket),
}

/// What a [`Runtime`] is made from.
#[derive(Debug)]
pub struct RuntimeConfig {
    /// Loops, and so threads. Default 1.
    pub loops: u16,
    /// Pin each loop's thread to a processor of its own, in turn, of those that this process may use. Default off.
    pub pin: bool,
    /// Let each loop's thread wait for its turn instead of interrupting whoever runs when something arrives
    /// (`SCHED_BATCH`, `sched(7)`). Default off. Where clients or other work share the processor, more gathers for
    /// each turn, which costs less time for all of it; the price is latency under contention.
    pub batch: bool,
    /// The configuration of each loop.
    pub config: Config,
    /// Where to listen, and how. The options' `accept` is chosen by `spread` if it is
    /// [`Accept::Connections`] and there are several loops.
    pub listeners: Vec<(Listen, ListenerOptions)>,
    /// How the loops share them.
    pub spread: Spread,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            loops: 1,
            pin: false,
            batch: false,
            config: Config::default(),
            listeners: Vec::new(),
            spread: Spread::default(),
        }
    }
}

/// Running loops. Dropping it aborts all connections and waits for the threads.
pub struct Runtime {
    workers: Vec<(Remote, JoinHandle<Result<(), TurnError>>)>,
    addresses: Vec<Address>,
    engine: EngineKind,
    engine_reason: String,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Runtime({} loops on {}, {:?})",
            self.workers.len(),
            self.engine,
            self.addresses
        )
    }
}

impl Runtime {
    /// Makes the loops and listeners, then starts a thread for each loop, which makes its handler by
    /// `make_handler` and runs it. All loops run the same engine: with [`EngineChoice::Auto`] they all fall back
    /// if one ring cannot be made.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub fn start<H: Handler + 'static>(
        config: RuntimeConfig,
        make_handler: impl Fn(&mut Loop) -> H + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        Self::start_driven(config, make_handler, Loop::run)
    }

    /// As [`Runtime::start`], with `drive` in place of [`Loop::run`] on each loop's thread: for loops that wait in the loop of
    /// another library ([`Loop::park`]). It is to return once [`Loop::run_turn`] has answered that the loop has drained:
    /// the loop is dropped then, with all that is left on it. If it fails, the other loops drain.
    ///
    /// # Errors
    /// As [`Runtime::start`].
    pub fn start_driven<H: Handler + 'static>(
        config: RuntimeConfig,
        make_handler: impl Fn(&mut Loop) -> H + Send + Sync + 'static,
        drive: impl Fn(&mut Loop, &mut H) -> Result<(), TurnError> + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        Self::start_owned(config, move |event_loop| {
            let mut event_loop = event_loop;
            let mut handler = make_handler(&mut event_loop);
            drive(&mut event_loop, &mut handler)
        })
    }

    /// As [`Runtime::start_driven`], with each loop given away to `run` on its thread: for those who keep it elsewhere than on
    /// the stack, as where tasks reach it. `run` is to return once the loop has drained, and to drop it before.
    ///
    /// # Errors
    /// As [`Runtime::start`].
    pub fn start_owned(
        config: RuntimeConfig,
        run: impl Fn(Loop) -> Result<(), TurnError> + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let count = config.loops.max(1);
        let mut loops = make_loops(&config.config, count)?;
        let addresses = add_listeners(&mut loops, config.listeners, config.spread)?;
        let engine = loops[0].engine();
        let engine_reason = loops[0].engine_reason().to_owned();
        let cpus = if config.pin {
            affinity::available_cpus()
        } else {
            Vec::new()
        };
        let batch = config.batch;
        let run = Arc::new(run);
        let drainer = Drainer {
            remotes: loops.iter().map(Loop::remote).collect(),
        };
        // Dropped on an error, it ends the loops that run already.
        let mut runtime = Self {
            workers: Vec::with_capacity(loops.len()),
            addresses,
            engine,
            engine_reason,
        };
        for event_loop in loops {
            let remote = event_loop.remote();
            let drainer = drainer.clone();
            let run = Arc::clone(&run);
            let index = usize::from(event_loop.index().get());
            let cpu = (!cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let thread = std::thread::Builder::new()
                .name(format!("quoit-loop-{index}"))
                .spawn(move || {
                    if batch {
                        // Where it is forbidden, the loop costs more and does the same.
                        let _ = affinity::schedule_as_batch();
                    }
                    if let Some(cpu) = cpu {
                        // The processor was available a moment ago; if it is not any more, run anywhere.
                        let _ = affinity::pin_current_thread(cpu);
                    }
                    let mut others = DrainOthers {
                        drainer,
                        within: event_loop.config().close_deadline,
                        drained: false,
                    };
                    // The loop is dropped before `others`, which tell nobody who is gone.
                    let result = run(event_loop);
                    others.drained = result.is_ok();
                    result
                })
                .map_err(|error| StartError::Kernel {
                    doing: "starting a loop's thread",
                    errno: crate::Errno::from_io(&error),
                })?;
            runtime.workers.push((remote, thread));
        }
        Ok(runtime)
    }

    /// Which engine runs.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Why it runs: see [`Loop::engine_reason`].
    #[must_use]
    pub fn engine_reason(&self) -> &str {
        &self.engine_reason
    }

    /// The listeners' addresses, ports resolved, in the order in which they were given.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The loops' handles.
    pub fn remotes(&self) -> impl Iterator<Item = &Remote> {
        self.workers.iter().map(|(remote, _)| remote)
    }

    /// Tells every loop to drain; see [`Command::Drain`](crate::Command::Drain). Then [`Runtime::join`].
    pub fn drain(&self, within: Duration) {
        drain(self.remotes(), within);
    }

    /// What drains these loops from another thread, while this one is in [`Runtime::join`].
    #[must_use]
    pub fn drainer(&self) -> Drainer {
        Drainer {
            remotes: self.remotes().cloned().collect(),
        }
    }

    /// Waits until all loops have drained. If one fails, or its handler panics, the others drain within
    /// [`Config::close_deadline`]: a server without some of its loops would only seem to work.
    ///
    /// The loops are waited for in their order, so a failure or a panic of a later one is told by this only when
    /// those before it have drained.
    ///
    /// # Errors
    /// The first loop's error, if one failed.
    ///
    /// # Panics
    /// If a handler panicked.
    pub fn join(mut self) -> Result<(), TurnError> {
        let mut result = Ok(());
        self.workers.reverse();
        while let Some((_, thread)) = self.workers.pop() {
            match thread.join() {
                Ok(ended) => result = result.and(ended),
                // The others are still in `self`, which unwinding drops.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    }
}

/// Tells loops to drain, from any thread: those of a [`Runtime`] ([`Runtime::drainer`]), or one that runs by itself
/// (`Drainer::from(event_loop.remote())`). Does nothing once they have ended.
#[derive(Clone, Debug)]
pub struct Drainer {
    remotes: Arc<[Remote]>,
}

impl From<Remote> for Drainer {
    fn from(remote: Remote) -> Self {
        Self {
            remotes: Arc::new([remote]),
        }
    }
}

impl Drainer {
    /// Tells every loop to drain; see [`Command::Drain`](crate::Command::Drain).
    pub fn drain(&self, within: Duration) {
        drain(self.remotes.iter(), within);
    }
}

/// Drains all loops when one of them ends without having drained.
struct DrainOthers {
    drainer: Drainer,
    within: Duration,
    drained: bool,
}

impl Drop for DrainOthers {
    fn drop(&mut self) {
        if !self.drained {
            self.drainer.drain(self.within);
        }
    }
}

fn drain<'a>(remotes: impl Iterator<Item = &'a Remote>, within: Duration) {
    remotes.for_each(|remote| remote.drain(within));
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.drain(Duration::ZERO);
        for (_, thread) in std::mem::take(&mut self.workers) {
            // Whether it panicked is told by `join`; a drop must not.
            let _ = thread.join();
        }
    }
}

fn make_loops(config: &Config, count: u16) -> Result<Vec<Loop>, StartError> {
    let make = |config: &Config| -> Result<Vec<Loop>, StartError> {
        (0..count)
            .map(|index| {
                let index = LoopIndex::new(index).ok_or(StartError::Kernel {
                    doing: "numbering the loops",
                    errno: crate::Errno::EINVAL,
                })?;
                Loop::new(index, config.clone())
            })
            .collect()
    };
    let loops = make(config)?;
    let fell_back = loops.iter().find(|one| one.engine() != loops[0].engine());
    let Some(reason) = fell_back.map(|one| one.engine_reason().to_owned()) else {
        return Ok(loops);
    };
    drop(loops);
    let epoll = Config {
        engine: EngineChoice::Require(EngineKind::Epoll),
        ..config.clone()
    };
    let mut loops = make(&epoll)?;
    for one in &mut loops {
        one.set_engine_reason(format!("a ring could not be made for every loop: {reason}"));
    }
    Ok(loops)
}

fn add_listeners(
    loops: &mut [Loop],
    listeners: Vec<(Listen, ListenerOptions)>,
    spread: Spread,
) -> Result<Vec<Address>, StartError> {
    let remotes: Arc<[Remote]> = loops.iter().map(Loop::remote).collect();
    let mut addresses = Vec::with_capacity(listeners.len());
    for (listen, mut options) in listeners {
        let several = loops.len() > 1 && matches!(options.accept, Accept::Connections);
        // Unix sockets have no ports, and an inherited socket was bound without the option: those are shared.
        let per_loop =
            several && spread == Spread::ReusePort && matches!(&listen, Listen::Address(Address::Tcp(_)));
        options.listen.reuse_port |= per_loop;
        let socket = match listen {
            Listen::Address(address) => listen::bind(&address, &options.listen)?,
            Listen::Socket(socket) => socket,
        };
        let address = socket.address().clone();
        if several && spread != Spread::HandOver {
            for one in &mut loops[1..] {
                let own = if per_loop {
                    listen::bind(&address, &options.listen)?
                } else {
                    socket.try_clone()?
                };
                one.listen_on(own, &options)?;
            }
        } else if several {
            options.accept = Accept::Spread(Arc::clone(&remotes));
        }
        loops[0].listen_on(socket, &options)?;
        addresses.push(address);
    }
    Ok(addresses)
}
