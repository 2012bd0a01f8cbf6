//! A loop and a runtime per thread: the fast way.
//!
//! Each thread has one loop and one current-thread runtime of tokio, and one task in it makes the loop's turns:
//!
//! - A turn that wakes somebody is followed by another one behind the tasks that it woke, and never waits. All that those
//!   tasks write leaves with it, in one system call on io_uring.
//! - A turn that wakes nobody parks the loop ([`quoit::Loop::park`]), whose descriptor tokio's poller watches. When nothing is
//!   left to do, tokio sleeps for both.
//! - What is written after that, by tasks that somebody else woke, leaves before tokio sleeps (`on_thread_park`).

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use quoit::{
    Address, Config, Counters, Drainer, EngineKind, Listen, ListenSocket, ListenerOptions, Loop, Runtime,
    RuntimeConfig, Spread, TurnError,
};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::{Sleep, sleep_until};

use crate::accept::{Acceptor, Share};
use crate::driver::{Driver, Served, run_turns};
use crate::errors::{listen_error, start_error};
use crate::family::Family;
use crate::home::Home;
use crate::listener::Listener;
use crate::lock::lock;
use crate::loops::{Started, tell_engine};
use crate::signal::Signal;
use crate::tcp::TcpListener;
use crate::turner::{Rest, Turner};
use crate::unix::UnixListener;
use crate::watch::{Watched, watch};

/// What a [`Server`] is made from.
#[derive(Debug)]
pub struct ServerConfig {
    /// Loops, each with a runtime on a thread of its own. Default: one for each processor.
    pub loops: u16,
    /// Pin each thread to a processor of its own. Default: off.
    pub pin: bool,
    /// The configuration of each loop. [`Config::pollable`] is set.
    pub config: Config,
    /// Where to listen, and how. Default: nowhere; a service may listen by itself, for its own loop.
    pub listeners: Vec<(Listen, ListenerOptions)>,
    /// How the loops share the listeners.
    pub spread: Spread,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            loops: u16::try_from(processors).unwrap_or(u16::MAX),
            pin: false,
            config: Config::default(),
            listeners: Vec::new(),
            spread: Spread::default(),
        }
    }
}

impl ServerConfig {
    /// Listens on one address, and the rest as by default.
    #[must_use]
    pub fn listen(address: impl Into<Address>) -> Self {
        Self {
            listeners: vec![(Listen::Address(address.into()), ListenerOptions::default())],
            ..Self::default()
        }
    }

    /// Listens on a socket that listens already, as an inherited one or the standard library's, and the rest as by default.
    ///
    /// # Errors
    /// `InvalidInput` if it is no stream socket that listens.
    pub fn listen_on(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        let socket = ListenSocket::adopt(socket.into()).map_err(listen_error)?;
        Ok(Self {
            listeners: vec![(Listen::Socket(socket), ListenerOptions::default())],
            ..Self::default()
        })
    }
}

/// What all threads of a server share.
struct Shared<F> {
    started: Started,
    /// Those of the listeners, with a share for each loop.
    acceptors: Vec<Arc<Acceptor>>,
    service: F,
    drainer: Mutex<Option<Drainer>>,
    failure: Mutex<Option<io::Error>>,
}

impl<F> Shared<F> {
    /// One loop's service has failed: the others end as well, or the server would only seem to work.
    fn fail(&self, error: io::Error, within: Duration) {
        lock(&self.failure).get_or_insert(error);
        if let Some(drainer) = lock(&self.drainer).as_ref() {
            drainer.drain(within);
        }
    }
}

/// What a service is given on each thread.
#[derive(Debug)]
pub struct Context {
    home: Arc<Home>,
    listeners: Vec<Option<(Address, Share)>>,
    draining: Arc<Signal>,
}

impl Context {
    /// The number of this loop among those of the server, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        usize::from(self.home.remote.loop_index().get())
    }

    /// The engine of all loops.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.home.engine
    }

    /// The counters of this loop as of now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.home.remote.counters()
    }

    fn take(&mut self, wanted: impl Fn(&Address) -> bool) -> io::Result<Listener> {
        let listener = self
            .listeners
            .iter_mut()
            .find_map(|listener| listener.take_if(|(address, _)| wanted(address)));
        let (address, share) = listener.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "the server's configuration has no further listener of this family; add one to `ServerConfig::listeners`",
            )
        })?;
        Ok(Listener::of_runtime(Arc::clone(&self.home), share, address))
    }

    /// The next of the server's TCP listeners: this loop's share of what it accepts.
    ///
    /// The share of a loop that does not take its own, or has dropped it, is accepted by those that do. Such a connection stays
    /// on the loop that it came to, and is used across threads.
    ///
    /// # Errors
    /// `NotFound` once all were taken.
    pub fn listener(&mut self) -> io::Result<TcpListener> {
        self.take(|address| !address.is_unix()).map(TcpListener::of)
    }

    /// The next of the server's Unix listeners.
    ///
    /// # Errors
    /// As [`listener`](Self::listener).
    pub fn unix_listener(&mut self) -> io::Result<UnixListener> {
        self.take(Address::is_unix).map(UnixListener::of)
    }

    /// Waits until the server is told to drain: what to give to `with_graceful_shutdown`.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        self.draining.wait()
    }
}

/// Loops with a runtime each, which run a service. Dropping it resets all connections and waits for the threads.
#[derive(Debug)]
pub struct Server {
    runtime: Runtime,
    failure: Arc<dyn Failure>,
}

trait Failure: std::fmt::Debug + Send + Sync {
    fn take(&self) -> Option<io::Error>;
}

impl<F: Send + Sync> Failure for Shared<F> {
    fn take(&self) -> Option<io::Error> {
        lock(&self.failure).take()
    }
}

impl<F> std::fmt::Debug for Shared<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Server {
    /// Starts the loops, and calls `service` on the thread of each. What it returns runs on that thread, in a runtime of tokio
    /// with all its drivers: it need not be `Send`, and what it spawns by `tokio::spawn` and `tokio::task::spawn_local` runs
    /// there as well.
    ///
    /// A service that fails drains the other loops.
    ///
    /// # Errors
    /// What failed, and what to do: an address in use, io_uring that is denied and was required, a thread or memory that cannot
    /// be had.
    pub fn start<F, S>(config: ServerConfig, service: F) -> io::Result<Self>
    where
        F: Fn(Context) -> S + Send + Sync + 'static,
        S: Future<Output = io::Result<()>> + 'static,
    {
        let loops = config.loops.max(1);
        let acceptors = config
            .listeners
            .iter()
            .map(|_| Acceptor::new(usize::from(loops)))
            .collect();
        let shared = Arc::new(Shared {
            started: Started::default(),
            acceptors,
            service,
            drainer: Mutex::new(None),
            failure: Mutex::new(None),
        });
        let on_thread = Arc::clone(&shared);
        let mut listeners = config.listeners;
        for (_, options) in &mut listeners {
            options.tell_failures = true;
        }
        let runtime = Runtime::start_owned(
            RuntimeConfig {
                loops,
                pin: config.pin,
                batch: false,
                config: Config {
                    pollable: true,
                    ..config.config
                },
                listeners,
                spread: config.spread,
            },
            move |event_loop| run(event_loop, &on_thread),
        )
        .map_err(start_error)?;
        tell_engine(&runtime);
        *lock(&shared.drainer) = Some(runtime.drainer());
        shared
            .started
            .set(Family::of(&runtime), runtime.addresses().to_vec());
        Ok(Self {
            runtime,
            failure: shared,
        })
    }

    /// Where it listens, ports resolved, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        self.runtime.addresses()
    }

    /// The engine of all loops.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.runtime.engine()
    }

    /// Why it is that one, and what io_uring lacks here if it is not. One line.
    #[must_use]
    pub fn engine_reason(&self) -> &str {
        self.runtime.engine_reason()
    }

    /// The counters of each loop as of now.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        self.runtime.remotes().map(quoit::Remote::counters).collect()
    }

    /// What drains it from another thread, as at a signal.
    #[must_use]
    pub fn drainer(&self) -> Drainer {
        self.runtime.drainer()
    }

    /// Waits until all services have ended, or all loops have drained.
    ///
    /// # Errors
    /// What a service returned, or a loop failed with.
    ///
    /// # Panics
    /// If a service panicked.
    pub fn join(self) -> io::Result<()> {
        let result = self.runtime.join().map_err(io::Error::other);
        match self.failure.take() {
            Some(error) => Err(error),
            None => result,
        }
    }
}

/// Runs a service on loops that each have a thread and a runtime: [`Server::start`], then [`Server::join`].
///
/// # Errors
/// Those of both.
///
/// # Panics
/// If a service panicked.
pub fn serve<F, S>(config: ServerConfig, service: F) -> io::Result<()>
where
    F: Fn(Context) -> S + Send + Sync + 'static,
    S: Future<Output = io::Result<()>> + 'static,
{
    Server::start(config, service)?.join()
}

thread_local! {
    /// What makes turns on this thread, for the hook of its runtime.
    static TURNER: RefCell<Option<Rc<Turner>>> = const { RefCell::new(None) };
}

/// The hook of the runtimes.
fn before_sleep() {
    let turner = TURNER.with_borrow(Clone::clone);
    if let Some(turner) = turner {
        turner.before_sleep(Instant::now);
    }
}

/// The task that makes the loop's turns.
struct Drive {
    turner: Rc<Turner>,
    descriptor: AsyncFd<Watched>,
    sleep: Pin<Box<Sleep>>,
}

impl Future for Drive {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = &mut *self;
        this.turner.home.set_task(cx.waker());
        // Before the turn: what comes after it makes the descriptor readable again.
        while let Poll::Ready(Ok(mut ready)) = this.descriptor.poll_read_ready(cx) {
            ready.clear_ready();
            this.turner.told();
        }
        match this.turner.turn() {
            Rest::Over => return Poll::Ready(()),
            Rest::None => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Rest::Parked(None) => this.turner.alarm.set(None),
            Rest::Parked(Some(limit)) => {
                let until = Instant::now() + limit;
                // An earlier alarm finds nothing to do, and sets the next.
                let armed = this.turner.alarm.get().is_some_and(|alarm| alarm <= until);
                if !armed || this.sleep.is_elapsed() {
                    this.sleep.as_mut().reset(until.into());
                    this.turner.alarm.set(Some(until));
                }
                if this.sleep.as_mut().poll(cx).is_ready() {
                    this.turner.alarm.set(None);
                    cx.waker().wake_by_ref();
                }
            }
        }
        Poll::Pending
    }
}

/// Runs a loop and its service on their thread.
fn run<F, S>(event_loop: Loop, shared: &Shared<F>) -> Result<(), TurnError>
where
    F: Fn(Context) -> S,
    S: Future<Output = io::Result<()>> + 'static,
{
    let index = usize::from(event_loop.index().get());
    let patience = event_loop.config().close_deadline;
    let (family, addresses) = shared.started.wait();
    let home = Arc::clone(&family.homes()[index]);
    for ((listener, _), acceptor) in event_loop.listeners().zip(&shared.acceptors) {
        family.add_listener(listener, Arc::clone(acceptor));
    }
    let listeners = addresses.iter().zip(&shared.acceptors);
    for (address, acceptor) in listeners.clone() {
        acceptor.listens_on(address);
    }
    let listeners = listeners
        .map(|(address, acceptor)| Some((address.clone(), acceptor.share(index))))
        .collect();
    let driver = Driver::new(event_loop, Arc::clone(&home));
    let context = Context {
        home: Arc::clone(&home),
        listeners,
        draining: Arc::clone(&driver.draining),
    };
    let driver = Rc::new(RefCell::new(driver));
    let _served = Served::begin(&driver);
    let turner = Turner::new(&driver);
    let ended = run_service(&turner, context, shared);
    if let Err(error) = ended {
        shared.fail(error, patience);
    }
    finish(&turner, patience)
}

/// Lets the runtime's hook make no turns any more, also after a panic of the service.
struct NoTurns;

impl Drop for NoTurns {
    fn drop(&mut self) {
        TURNER.set(None);
    }
}

fn run_service<F, S>(turner: &Rc<Turner>, context: Context, shared: &Shared<F>) -> io::Result<()>
where
    F: Fn(Context) -> S,
    S: Future<Output = io::Result<()>> + 'static,
{
    // Dropped behind the runtime, whose tasks may still have the loop do something.
    let _no_turns = NoTurns;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .on_thread_park(before_sleep)
        .build_local(LocalOptions::default())?;
    let entered = runtime.enter();
    let descriptor = turner.driver.borrow().poll_descriptor()?;
    let drive = Drive {
        turner: Rc::clone(turner),
        descriptor: watch(descriptor)?,
        sleep: Box::pin(sleep_until(tokio::time::Instant::now())),
    };
    drop(entered);
    let service = (shared.service)(context);
    TURNER.set(Some(Rc::clone(turner)));
    runtime.block_on(async {
        let mut drive = tokio::task::spawn_local(drive);
        let mut service = std::pin::pin!(service);
        poll_fn(|cx| {
            if let Poll::Ready(result) = service.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            // The loop has drained, or failed: there is nothing left to serve with.
            Pin::new(&mut drive).poll(cx).map(|_| Ok(()))
        })
        .await
    })
}

/// The service has ended, and its tasks are dropped: what their connections have still to send is sent.
fn finish(turner: &Turner, within: Duration) -> Result<(), TurnError> {
    if let Some(outcome) = turner.outcome.borrow_mut().take() {
        return outcome;
    }
    turner.home.clear_task();
    turner.driver.borrow_mut().event_loop.drain(within);
    run_turns(&turner.driver)
}
