//! For `quoit-sim`: the driver and the sockets over a loop on a simulated kernel, in a runtime that the simulator has.
//!
//! What `Loops` and `serve` do is here in steps, in the hands of who decides when each is made.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use quoit::internals::engine::Engine;
use quoit::internals::sys::SocketSys;
use quoit::{
    Address, Counters, DatagramCounters, DatagramSocket, ListenSocket, ListenerOptions, Loop, TurnError,
};

use crate::any_loop::is_in_turn;
use crate::connect;
use crate::driver::{Driver, Served, Turned, run_turn};
use crate::family::Family;
use crate::home::{self, Home};
use crate::listener::Listener;
use crate::turner::{Rest, Turner};
use crate::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};

/// What is left to do after a turn of a loop that a runtime drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Another turn, behind the tasks that were woken.
    Turn,
    /// Nothing, until the loop's descriptor is readable or this time has passed.
    Sleep(Option<Duration>),
    /// The loop has drained.
    Nothing,
}

/// A loop, its driver, and the sockets on it, on the thread that made it.
pub struct Simulation {
    driver: Rc<RefCell<Driver>>,
    home: Arc<Home>,
    turner: Rc<Turner>,
    family: Arc<Family>,
    served: RefCell<Option<Served>>,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Simulation({:?})", self.home)
    }
}

impl Simulation {
    /// Makes a loop the one of this thread.
    pub fn new<E: Engine + 'static, K: SocketSys + 'static>(event_loop: Loop<E, K>) -> Self {
        let home = Home::new(event_loop.remote(), event_loop.engine());
        let family = Family::joining(vec![Arc::clone(&home)]);
        let driver = Rc::new(RefCell::new(Driver::new(event_loop, Arc::clone(&home))));
        Self {
            served: RefCell::new(Some(Served::begin(&driver))),
            turner: Turner::new(&driver),
            family,
            driver,
            home,
        }
    }

    /// A turn as the threads of `Loops` make them. Returns whether the loop has drained.
    ///
    /// # Errors
    /// Those of [`Loop::turn`].
    pub fn turn(&self, timeout: Option<Duration>) -> Result<bool, TurnError> {
        run_turn(&self.driver, timeout).map(|turned| turned == Turned::Drained)
    }

    /// The waker of the task that makes turns, as in `serve`.
    pub fn set_task(&self, task: &Waker) {
        self.home.set_task(task);
    }

    /// No task makes turns any more: the loop waits in the kernel.
    pub fn clear_task(&self) {
        self.home.clear_task();
    }

    /// The poller has told of the loop's descriptor, as to the task of `serve`.
    pub fn told(&self) {
        self.turner.told();
    }

    /// A turn as the task of `serve` makes them.
    ///
    /// # Errors
    /// Those of [`Loop::turn`] and [`Loop::park`].
    pub fn turn_in_task(&self) -> Result<Left, TurnError> {
        match self.turner.turn() {
            Rest::None => Ok(Left::Turn),
            Rest::Parked(limit) => Ok(Left::Sleep(limit)),
            Rest::Over => match self.turner.outcome.borrow_mut().take() {
                Some(Err(error)) => Err(error),
                _ => Ok(Left::Nothing),
            },
        }
    }

    /// Until when the runtime's timer lets the loop sleep.
    #[must_use]
    pub fn alarm(&self) -> Option<Instant> {
        self.turner.alarm.get()
    }

    /// Says so.
    pub fn set_alarm(&self, alarm: Option<Instant>) {
        self.turner.alarm.set(alarm);
    }

    /// What `serve` does when its runtime has nothing to do.
    pub fn before_sleep(&self, now: impl FnOnce() -> Instant) {
        self.turner.before_sleep(now);
    }

    /// Whether the loop is parked, and nothing was done with it since.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.driver.borrow().is_parked()
    }

    /// What a poller waits on while the loop is parked.
    ///
    /// # Errors
    /// A loop that is not pollable.
    pub fn poll_descriptor(&self) -> io::Result<RawFd> {
        self.driver.borrow().poll_descriptor()
    }

    /// Whether the driver may hold the lock of a socket at this moment, for which another thread would have to wait.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        self.driver.try_borrow_mut().is_err() && !is_in_turn()
    }

    /// Runs `f` as on a thread that has no loop.
    pub fn elsewhere<R>(f: impl FnOnce() -> R) -> R {
        home::without(f)
    }

    /// Listens on a socket of the simulated kernel.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn listen_on(socket: ListenSocket) -> io::Result<TcpListener> {
        Listener::on(socket, ListenerOptions::default()).map(TcpListener::of)
    }

    /// As [`Self::listen_on`], of Unix sockets.
    ///
    /// # Errors
    /// As [`UnixListener::bind`].
    pub fn listen_on_unix(socket: ListenSocket) -> io::Result<UnixListener> {
        Listener::on(socket, ListenerOptions::default()).map(UnixListener::of)
    }

    /// Takes over a datagram socket of the simulated kernel.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub fn open_datagrams(socket: DatagramSocket) -> io::Result<UdpSocket> {
        UdpSocket::open(Ok(socket))
    }

    /// As [`UnixStream::connect_to`], from any thread.
    pub fn connect_unix(&self, address: Address) -> impl Future<Output = io::Result<UnixStream>> + use<> {
        let home = Arc::clone(&self.home);
        async move {
            connect::connect_from(&home, None, address, quoit::ConnectOptions::default())
                .await
                .map(UnixStream::of)
        }
    }

    /// As [`TcpStream::connect`] to these addresses, from any thread.
    pub fn connect(&self, addresses: Vec<SocketAddr>) -> impl Future<Output = io::Result<TcpStream>> + use<> {
        let home = Arc::clone(&self.home);
        async move {
            let link = connect::connect_first(&home, addresses).await?;
            Ok(TcpStream::of(link))
        }
    }

    /// As [`TcpStream::connect_timeout`], likewise.
    pub fn connect_timeout(
        &self,
        addresses: Vec<SocketAddr>,
        limit: Duration,
    ) -> impl Future<Output = io::Result<TcpStream>> + use<> {
        let home = Arc::clone(&self.home);
        let connecting = self.connect(addresses);
        async move { connect::within(&home, limit, connecting).await }
    }

    /// Whether other threads have left something that no turn has taken.
    #[must_use]
    pub fn has_wanted(&self) -> bool {
        self.home.has_wanted()
    }

    /// Ends the loop, as [`Loop::drain`].
    pub fn drain(&self, within: Duration) {
        self.driver.borrow_mut().event_loop.drain(within);
    }

    /// The loop's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.driver.borrow().event_loop.counters()
    }

    /// The counters of a datagram socket, while the loop has it.
    pub fn datagram_counters(&self, socket: &UdpSocket) -> Option<DatagramCounters> {
        let id = socket.port().id().ok()?;
        self.driver.borrow_mut().event_loop.datagram_counters(id)
    }

    /// The handle of the loop for other threads.
    #[must_use]
    pub fn remote(&self) -> quoit::Remote {
        self.home.remote.clone()
    }

    /// The loop has ended: tells all who have sockets of it.
    pub fn end(&self) {
        let served = self.served.take();
        drop(served);
    }

    /// The thread has no loop any more, and nothing of the one that it had ends: for runs that have failed.
    pub fn abandon(&self) {
        home::forget();
    }

    /// Sockets, and all else that has not let go of the loop.
    #[must_use]
    pub fn holders(&self) -> usize {
        // This, the family, the driver and the turner.
        Arc::strong_count(&self.home) - 4
    }

    /// Listeners that the family still knows of.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.family.acceptors_of(quoit::LoopIndex::default()).len()
    }
}
