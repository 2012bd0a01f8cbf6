//! Choosing an engine, and the loop over whichever was chosen.

use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Config, ConfigError, EngineChoice};
use crate::counters::LiveCounters;
use crate::engine::epoll::{Epoll, EpollEngine, EpollSettings};
use crate::engine::uring::{Capabilities, Ring, SetupError, Step, UringEngine, UringSettings, probe};
use crate::engine::{
    Completions, DatagramBatch, Engine, EngineKind, Message, Operation, PollDescriptor, SendManner, SendMode,
    Trigger,
};
use crate::errno::Errno;
use crate::event_loop::{Loop, LoopMemory};
use crate::features::FeatureSet;
use crate::footprint::Footprint;
use crate::host::{self, Diagnosis, HostFacts};
use crate::id::{LoopIndex, Slot};
use crate::pool::Pool;
use crate::reserved::{self, Reserved};
use crate::sys::{Linux, Time};

/// Between two attempts to make a ring for which there was no memory.
const MEMORY_RETRY: Duration = Duration::from_millis(20);

/// The engine that was chosen, on the real kernel. There is one a loop, and boxing the larger would cost a step an
/// operation.
pub enum AnyEngine {
    /// io_uring.
    Uring(UringEngine<Ring, Linux>),
    /// epoll.
    Epoll(EpollEngine<Epoll, Linux>),
}

impl fmt::Debug for AnyEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyEngine({})", self.kind())
    }
}

macro_rules! either {
    ($self:expr, $engine:ident => $call:expr) => {
        match $self {
            AnyEngine::Uring($engine) => $call,
            AnyEngine::Epoll($engine) => $call,
        }
    };
}

impl Engine for AnyEngine {
    fn kind(&self) -> EngineKind {
        either!(self, engine => engine.kind())
    }

    fn bind(&mut self, wake: RawFd, pool: &mut Pool) -> Result<(), Errno> {
        either!(self, engine => engine.bind(wake, pool))
    }

    #[inline]
    fn submit(&mut self, operation: Operation, pool: &mut Pool) {
        either!(self, engine => engine.submit(operation, pool));
    }

    #[inline(always)]
    fn send(
        &mut self,
        connection: Slot,
        descriptor: RawFd,
        message: Message,
        mode: SendMode,
        pool: &mut Pool,
    ) {
        either!(self, engine => engine.send(connection, descriptor, message, mode, pool));
    }

    #[inline]
    fn sends_at_once(&self, bytes: usize, offered: bool) -> bool {
        either!(self, engine => engine.sends_at_once(bytes, offered))
    }

    #[inline]
    fn send_at_once(
        &mut self,
        connection: Slot,
        descriptor: RawFd,
        message: &mut Message,
    ) -> Option<Result<usize, Errno>> {
        either!(self, engine => engine.send_at_once(connection, descriptor, message))
    }

    fn open_datagrams(
        &mut self,
        socket: Slot,
        descriptor: RawFd,
        control: u32,
        buffers: u16,
    ) -> Result<(), Errno> {
        either!(self, engine => engine.open_datagrams(socket, descriptor, control, buffers))
    }

    #[inline]
    fn provide_datagram_buffers(&mut self, socket: Slot, pool: &mut Pool, count: usize, length: u32) {
        either!(self, engine => engine.provide_datagram_buffers(socket, pool, count, length));
    }

    #[inline]
    fn send_datagrams(
        &mut self,
        socket: Slot,
        batch: Box<DatagramBatch>,
        manner: SendManner,
        pool: &mut Pool,
    ) -> Option<Box<DatagramBatch>> {
        either!(self, engine => engine.send_datagrams(socket, batch, manner, pool))
    }

    #[inline]
    fn may_sleep(&self) -> bool {
        either!(self, engine => engine.may_sleep())
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>, pool: &mut Pool) -> Result<(), Errno> {
        either!(self, engine => engine.wait(timeout, pool))
    }

    fn coalesce(&mut self, on: bool) {
        either!(self, engine => engine.coalesce(on));
    }

    fn poll_descriptor(&self) -> Option<PollDescriptor> {
        either!(self, engine => engine.poll_descriptor())
    }

    fn park(&mut self, trigger: Trigger, pool: &mut Pool) -> bool {
        either!(self, engine => engine.park(trigger, pool))
    }

    #[inline]
    fn reap(&mut self, pool: &mut Pool, limit: usize, completions: &mut Completions) -> bool {
        either!(self, engine => engine.reap(pool, limit, completions))
    }

    #[inline]
    fn receivable(&self, pool: &Pool) -> usize {
        either!(self, engine => engine.receivable(pool))
    }

    fn surely_receivable(&self, pool: &Pool) -> usize {
        either!(self, engine => engine.surely_receivable(pool))
    }

    fn datagram_buffers_at_once(&self) -> u32 {
        either!(self, engine => engine.datagram_buffers_at_once())
    }

    fn accept_margin(&self) -> u32 {
        either!(self, engine => engine.accept_margin())
    }

    fn wants_nonblocking(&self) -> bool {
        either!(self, engine => engine.wants_nonblocking())
    }

    fn quiesce(&mut self, pool: &mut Pool, patience: Duration, now: &dyn Fn() -> Time) -> bool {
        either!(self, engine => engine.quiesce(pool, patience, now))
    }

    fn counters(&self) -> &Arc<LiveCounters> {
        either!(self, engine => engine.counters())
    }
}

/// A loop could not be made.
#[derive(Debug)]
pub enum StartError {
    /// The configuration is not valid.
    Config(ConfigError),
    /// The engine that was required is not to be had here. One line: what is missing, and the remedy.
    Engine {
        /// The engine.
        engine: EngineKind,
        /// What is missing, and the remedy.
        reason: String,
    },
    /// The kernel refused what every loop needs.
    Kernel {
        /// What was being done.
        doing: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// A listening socket could not be made or used.
    Listen(crate::listen::ListenError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Engine { engine, reason } => write!(f, "engine {engine} is not usable: {reason}"),
            Self::Kernel { doing, errno } => {
                write!(f, "{doing} failed: {errno}")?;
                remedy(*errno).map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
            Self::Listen(error) => error.fmt(f),
        }
    }
}

/// What to do where a loop, or its thread, could not be made.
fn remedy(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::EMFILE => Some(
            "raise this process's limit on descriptors (`ulimit -n`, LimitNOFILE= under systemd, --ulimit nofile= for \
             a container), or run fewer loops",
        ),
        Errno::ENFILE => Some("raise the system's limit on open files, the sysctl fs.file-max"),
        Errno::EAGAIN => Some(
            "raise the limit on threads (`ulimit -u`, TasksMax= under systemd, --pids-limit for a container), or run \
             fewer loops",
        ),
        Errno::ENOMEM => Some(reserved::REMEDY),
        _ => None,
    }
}

impl std::error::Error for StartError {}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<crate::listen::ListenError> for StartError {
    fn from(error: crate::listen::ListenError) -> Self {
        Self::Listen(error)
    }
}

impl Loop {
    /// A loop on the real kernel, with the engine that `config` asks for. It may be made on any thread, and
    /// moved to the one that is to run it before its first turn.
    ///
    /// # Errors
    /// [`StartError`]. With [`EngineChoice::Auto`] the lack of io_uring is none: the loop runs on epoll, and
    /// [`Loop::engine_reason`] says why.
    pub fn new(index: LoopIndex, config: Config) -> Result<Self, StartError> {
        config.validate()?;
        // Of many small allocations one that finds no address space ends the process, so there has to be enough for all.
        let needed = Footprint::of(&config, FeatureSet::OLDEST).address_space();
        drop(
            Reserved::new(needed as usize).map_err(|errno| StartError::Kernel {
                doing: "reserving the loop's memory",
                errno,
            })?,
        );
        let mut memory = LoopMemory::new(index, &config).map_err(|errno| StartError::Kernel {
            doing: "making the loop's memory and its eventfd",
            errno,
        })?;
        let (engine, reason) = choose(&config, &mut memory)?;
        Ok(Self::with_engine(index, config, memory, engine, reason, Linux))
    }
}

/// Has this crate compile the loop on the real kernel. rustc shares such code between crates below `opt-level = 2`, so that
/// the many test programs do not compile it once more each.
#[cfg(debug_assertions)]
#[used]
static COMPILED_HERE: fn(&mut Loop, &mut crate::Events) -> Result<usize, crate::TurnError> =
    |event_loop, events| event_loop.turn([], events, None);

fn choose(config: &Config, memory: &mut LoopMemory) -> Result<(AnyEngine, String), StartError> {
    let reason = match config.engine {
        EngineChoice::Require(EngineKind::Epoll) => "epoll was asked for".to_owned(),
        EngineChoice::Require(EngineKind::Uring) => {
            return match uring(config, memory) {
                Ok((engine, _)) => Ok((AnyEngine::Uring(engine), "io_uring was asked for".to_owned())),
                Err(diagnosis) => Err(StartError::Engine {
                    engine: EngineKind::Uring,
                    reason: diagnosis.to_string(),
                }),
            };
        }
        EngineChoice::Auto => match uring(config, memory) {
            Ok((engine, _)) => return Ok((AnyEngine::Uring(engine), "io_uring is usable here".to_owned())),
            Err(diagnosis) => diagnosis.to_string(),
        },
    };
    let settings = EpollSettings {
        receives_per_turn: config.receives_per_turn,
        events: config.completions_per_turn.min(1024),
        coalesce: config.wait.coalesces(),
        ..EpollSettings::default()
    };
    let engine = EpollEngine::new(settings, Linux).map_err(|errno| StartError::Kernel {
        doing: "making an epoll instance",
        errno,
    })?;
    Ok((AnyEngine::Epoll(engine), reason))
}

/// Finds out whether a loop with `config` could run on io_uring here, by making its ring and dropping it, whatever
/// [`Config::engine`] says. Returns what the ring has.
///
/// # Errors
/// What is missing and the remedy. The configuration must be [valid](Config::validate).
pub fn try_uring(config: &Config) -> Result<Capabilities, Diagnosis> {
    let no_loop = LoopIndex::default();
    let mut memory = LoopMemory::new(no_loop, config).map_err(|errno| {
        host::explain(
            "making a loop's memory and its eventfd",
            errno,
            &HostFacts::read(),
        )
    })?;
    uring(config, &mut memory).map(|(_, capabilities)| capabilities)
}

/// A ring as configured, or why there can be none.
fn uring(
    config: &Config,
    memory: &mut LoopMemory,
) -> Result<(UringEngine<Ring, Linux>, Capabilities), Diagnosis> {
    let notifier = if config.pollable {
        let made = memory.notifier();
        Some(made.map_err(|errno| host::explain("making an eventfd", errno, &HostFacts::read()))?)
    } else {
        None
    };
    let settings = |features| UringSettings {
        submission_entries: config.submission_queue,
        completion_entries: config.completion_entries(features),
        buffer_entries: config.buffer_ring as u16,
        kernel_poll: config.kernel_poll,
        register_pool: config.register_pool,
        coalesce: config.wait.coalesces(),
        coalesce_at_most: config.completions_per_turn,
        notifier,
    };
    let begin = Instant::now();
    loop {
        let made = probe::<Ring>(config.without, config.pollable).and_then(|found| {
            let capabilities = match config.engine {
                EngineChoice::Auto => found.proven(config.without).ok_or(SetupError {
                    step: Step::Proof,
                    errno: Errno::EOPNOTSUPP,
                })?,
                EngineChoice::Require(_) => found,
            };
            let engine = UringEngine::new(
                &settings(capabilities.features),
                &capabilities,
                Linux,
                memory.pool(),
            )?;
            Ok((engine, capabilities))
        });
        match made {
            Ok(made) => return Ok(made),
            // The memory of rings closed just now is given back late, by a kernel worker.
            Err(error) if error.errno == Errno::ENOMEM && begin.elapsed() < config.ring_memory_patience => {
                std::thread::sleep(MEMORY_RETRY);
            }
            Err(error) => return Err(explain(&error)),
        }
    }
}

/// What is missing, and the remedy.
fn explain(error: &SetupError) -> Diagnosis {
    if error.step == Step::Proof {
        return Diagnosis {
            missing: "io_uring has fewer features here than on any kernel that Quoit was tried on".to_owned(),
            remedy: "run Linux 6.1 or newer, or require io_uring".to_owned(),
        };
    }
    host::explain(&error.step.to_string(), error.errno, &HostFacts::read())
}
