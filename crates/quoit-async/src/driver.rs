//! The loop's side: makes turns, and brings what happened to the sockets that it happened to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use quoit::{ConnectionId, DatagramSocketId, Delivery, Event, Events, ListenerId, Refusal, Token, TurnError};

use crate::alarm::{NoAlarm, Outcome};
use crate::any_loop::{AnyLoop, admit, end_delivery};
use crate::closing::Socket;
use crate::family::Family;
use crate::home::{Call, Entered, Home, Wanted};
use crate::link::Link;
use crate::port::Port;
use crate::signal::Signal;
use crate::table::Table;

/// Events that one turn takes.
const EVENTS: usize = 1024;

/// What a turn brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turned {
    /// The loop goes on; somebody is to be woken or not.
    Running,
    /// The loop has drained.
    Drained,
}

/// A loop with the sockets on it.
///
/// Its turns only gather whom to wake. The caller wakes them when it has let go of the driver, as a waker may run anything.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) event_loop: AnyLoop,
    pub(crate) home: Arc<Home>,
    pub(crate) family: Arc<Family>,
    links: Table<ConnectionId, Link>,
    ports: Table<DatagramSocketId, Port>,
    events: Option<Events>,
    alarms: HashMap<Token, Arc<Signal<Outcome>>>,
    wakers: Vec<Waker>,
    /// Empty: the memory of what was left last.
    wanted: Wanted,
    parked: bool,
    /// How many turns have begun; from 1 on.
    pub(crate) turns: u64,
    /// Draining has begun.
    pub(crate) draining: Arc<Signal>,
    /// It has ended.
    drained: bool,
}

/// A loop that is this thread's. Dropped, also by a panic of what runs on it, it tells all that the loop has ended.
pub(crate) struct Served {
    driver: Rc<RefCell<Driver>>,
    entered: Option<Entered>,
}

impl Served {
    /// Makes a driver the one of this thread.
    pub(crate) fn begin(driver: &Rc<RefCell<Driver>>) -> Self {
        let home = Arc::clone(&driver.borrow().home);
        Self {
            driver: Rc::clone(driver),
            entered: Some(Entered::enter(&home, driver)),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.entered.take());
        let mut driver = self.driver.borrow_mut();
        let calls = driver.end();
        let wakers = driver.take_wakers();
        drop(driver);
        // Dropped, they tell who waits for them.
        drop(calls);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Makes turns that wait, and wakes whom they concern when nothing is borrowed any more, until the loop has drained.
pub(crate) fn run_turns(driver: &RefCell<Driver>) -> Result<(), TurnError> {
    while run_turn(driver, None)? == Turned::Running {}
    Ok(())
}

/// Makes one of them, which waits for no longer than this.
pub(crate) fn run_turn(driver: &RefCell<Driver>, timeout: Option<Duration>) -> Result<Turned, TurnError> {
    let (turned, mut wakers) = {
        let mut driver = driver.borrow_mut();
        let turned = driver.turn(timeout)?;
        (turned, driver.take_wakers())
    };
    for waker in wakers.drain(..) {
        waker.wake();
    }
    driver.borrow_mut().keep_wakers(wakers);
    Ok(turned)
}

impl Driver {
    /// The driver of a loop.
    pub(crate) fn new(event_loop: impl Into<AnyLoop>, home: Arc<Home>) -> Self {
        Self {
            event_loop: event_loop.into(),
            family: home.family(),
            home,
            links: Table::default(),
            ports: Table::default(),
            events: Some(Events::with_capacity(EVENTS)),
            alarms: HashMap::new(),
            wakers: Vec::new(),
            wanted: Wanted::default(),
            parked: false,
            turns: 1,
            draining: Arc::default(),
            drained: false,
        }
    }

    /// A socket has had something done on this thread, which the next turn has to carry out. Returns whether that turn has to
    /// be asked for: tasks that never let the runtime sleep would put it off for ever otherwise.
    pub(crate) fn disturb(&mut self) -> bool {
        std::mem::take(&mut self.parked)
    }

    /// Those whom the turns since the last call have found to be woken.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    /// Gives an emptied list back, so that the next turn needs no new one.
    pub(crate) fn keep_wakers(&mut self, wakers: Vec<Waker>) {
        if self.wakers.capacity() == 0 {
            self.wakers = wakers;
        }
    }

    pub(crate) fn wakes_anybody(&self) -> bool {
        !self.wakers.is_empty()
    }

    /// What a poller waits on while the loop is parked. It is open as long as the loop exists.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_descriptor(&self) -> std::io::Result<std::os::fd::RawFd> {
        use std::os::fd::AsRawFd;
        let descriptor = self.event_loop.poll_descriptor().map_err(std::io::Error::other)?;
        Ok(descriptor.as_raw_fd())
    }

    /// Parks the loop, as [`Loop::park_edge_triggered`]: mio, and by that tokio, watches edges.
    #[cfg(feature = "tokio")]
    pub(crate) fn park(&mut self) -> Result<Option<Duration>, TurnError> {
        let limit = self.event_loop.park_edge_triggered()?;
        self.parked = limit != Some(Duration::ZERO);
        Ok(limit)
    }

    /// Whether it is parked, and no socket has had anything done since.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_parked(&self) -> bool {
        self.parked
    }

    /// Makes a turn: what was wanted from other threads first, then the kernel.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> Result<Turned, TurnError> {
        self.parked = false;
        self.turns += 1;
        self.carry_out_wanted();
        // Who is to be woken is woken after the turn.
        let timeout = if self.wakes_anybody() {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        let mut events = self.events.take().expect("put back by every turn");
        let result = self.event_loop.turn([], &mut events, timeout);
        if result.is_ok() {
            let mut delivery = Delivery::default();
            for event in events.drain() {
                if let Some(event) = admit(&mut self.event_loop, &mut delivery, event) {
                    self.on_event(event);
                }
            }
            end_delivery(&mut self.event_loop, delivery);
        }
        self.events = Some(events);
        result.map(|_| {
            if self.drained {
                self.finish()
            } else {
                Turned::Running
            }
        })
    }

    /// The loop has drained. A connection may have been begun since its last look, as a task tries the next address when one has
    /// failed by the drain: it ends as the others have.
    fn finish(&mut self) -> Turned {
        if self.event_loop.connections() == 0 {
            return Turned::Drained;
        }
        for connection in self.links.ids() {
            // It may be closing already.
            let _ = self.event_loop.abort(connection);
        }
        Turned::Running
    }

    /// Does what was left to be done by other threads, also between turns.
    pub(crate) fn carry_out_wanted(&mut self) {
        let mut wanted = std::mem::take(&mut self.wanted);
        if self.home.take_wanted(&mut wanted) {
            for call in wanted.calls.drain(..) {
                call(self);
            }
            for link in wanted.links.drain(..) {
                self.carry_out(&link);
            }
            for port in wanted.ports.drain(..) {
                port.carry_out(&mut self.event_loop, &mut self.wakers);
            }
        }
        self.wanted = wanted;
    }

    /// Does what a stream left to be done.
    pub(crate) fn carry_out(&mut self, link: &Arc<Link>) {
        link.carry_out(&mut self.event_loop, &mut self.wakers);
        link.let_others_send(&mut self.event_loop);
    }

    /// Has a connection's events brought to `link`.
    pub(crate) fn add_link(&mut self, connection: ConnectionId, link: Arc<Link>) {
        self.links.add(connection, link);
    }

    /// Has a datagram socket's events brought to `port`.
    pub(crate) fn add_port(&mut self, socket: DatagramSocketId, port: Arc<Port>) {
        self.ports.add(socket, port);
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Data { connection, data } => {
                if let Some(link) = self.links.get(connection) {
                    link.on_data(data, &mut self.wakers);
                }
            }
            Event::EndOfStream { connection } => {
                if let Some(link) = self.links.get(connection) {
                    link.on_end_of_stream(&mut self.wakers);
                }
            }
            Event::Sent { connection, token } => {
                if let Some(link) = self.links.get(connection) {
                    link.on_sent(token, &mut self.event_loop, &mut self.wakers);
                }
            }
            Event::FileShort {
                connection,
                token,
                missing,
                error,
            } => {
                if let Some(link) = self.links.get(connection) {
                    link.on_file_short(token, missing, error, &mut self.wakers);
                }
            }
            Event::SendFailed { connection, error } => {
                if let Some(link) = self.links.get(connection) {
                    link.on_send_failed(error, &mut self.wakers);
                }
            }
            Event::Writable { connection } => {
                if let Some(link) = self.links.get(connection) {
                    link.on_writable(&mut self.event_loop, &mut self.wakers);
                }
            }
            Event::Deadline { connection } => {
                if let Some(link) = self.links.get(connection) {
                    link.on_deadline(&mut self.event_loop);
                }
            }
            Event::Opened { connection, .. } => self.on_opened(connection),
            Event::Accepted { listener, connection } => self.on_accepted(listener, connection),
            Event::Closed {
                connection, reason, ..
            } => {
                if let Some(link) = self.links.remove(connection) {
                    link.on_closed(reason, &mut self.wakers);
                }
            }
            Event::ListenerClosed { listener, error } => {
                self.family
                    .closing
                    .end(Socket::Listener(listener), &mut self.wakers);
                // One that was drained goes on waiting, as long as its loop is there: there is nothing to tell who accepts.
                if error.is_some()
                    && let Some(acceptor) = self.family.remove_listener(listener)
                {
                    acceptor.end(error, &mut self.wakers);
                }
            }
            Event::AcceptFailed { listener, error } => {
                if let Some(acceptor) = self.family.acceptor(listener) {
                    acceptor.fail(self.event_loop.index(), error, &mut self.wakers);
                }
            }
            Event::Datagrams { socket, datagrams } => {
                if let Some(port) = self.ports.get(socket) {
                    port.on_datagrams(datagrams, &mut self.wakers);
                }
            }
            Event::DatagramError { socket, error } => {
                if let Some(port) = self.ports.get(socket) {
                    port.on_error(error, &mut self.wakers);
                }
            }
            Event::DatagramWritable { socket } => {
                if let Some(port) = self.ports.get(socket) {
                    port.on_writable(&mut self.event_loop, &mut self.wakers);
                }
            }
            Event::DatagramClosed { socket, error, .. } => {
                if let Some(port) = self.ports.remove(socket) {
                    port.on_closed(error, &mut self.wakers);
                }
                // Behind that: who drops it from then on knows that it is closed.
                self.family
                    .closing
                    .end(Socket::Datagrams(socket), &mut self.wakers);
            }
            Event::Timer { token } => {
                if let Some(alarm) = self.alarms.remove(&token) {
                    alarm.raise(Ok(()), &mut self.wakers);
                }
            }
            Event::Draining => self.draining.raise((), &mut self.wakers),
            Event::Drained => self.drained = true,
            // Nobody asks for the others: commands are given by calls, and what they are refused with is their result.
            _ => {}
        }
    }

    /// Stops a listener that was dropped.
    pub(crate) fn stop_listening(&mut self, listener: ListenerId) {
        if self.event_loop.stop_listening(listener) == Err(Refusal::Stale) {
            // It was drained, and is closed.
            self.family
                .closing
                .end(Socket::Listener(listener), &mut self.wakers);
        }
        self.family.remove_listener(listener);
    }

    /// Raises an alarm after some time.
    pub(crate) fn set_alarm(&mut self, token: Token, after: Duration, alarm: Arc<Signal<Outcome>>) {
        match self.event_loop.set_named_timer(after, token) {
            Ok(()) => {
                self.alarms.insert(token, alarm);
            }
            // At once rather than never.
            Err(_) => alarm.raise(Err(NoAlarm::NoTimer), &mut self.wakers),
        }
    }

    /// Raises it no more.
    pub(crate) fn cancel_alarm(&mut self, token: Token) {
        if self.alarms.remove(&token).is_some() {
            self.event_loop.cancel_named_timer(token);
        }
    }

    /// Tells a stream that it could not be made.
    pub(crate) fn refuse(&mut self, link: &Link, refusal: Refusal) {
        link.refuse(refusal, &mut self.wakers);
    }

    fn on_opened(&mut self, connection: ConnectionId) {
        if let Some(link) = self.links.get(connection) {
            let names = (
                self.event_loop.local_address(connection),
                self.event_loop.peer_address(connection),
            );
            link.on_opened(names, &mut self.wakers);
        }
    }

    fn on_accepted(&mut self, listener: ListenerId, connection: ConnectionId) {
        let Some(acceptor) = self.family.acceptor(listener) else {
            // Its listener was dropped: what came for it ends as the kernel ends what is in a closed backlog.
            let _ = self.event_loop.abort(connection);
            return;
        };
        // One without has ended before anybody could have it, and nothing can be told of it but an address that nobody knows.
        let Some(peer) = self.event_loop.peer_address(connection) else {
            let _ = self.event_loop.abort(connection);
            return;
        };
        let local = acceptor.local().cloned();
        let link = Link::accepted(Arc::clone(&self.home), connection, (local, Some(peer)));
        let on = self.event_loop.index();
        if acceptor.push(on, &link, listener, &mut self.wakers) {
            self.add_link(connection, link);
        } else {
            let _ = self.event_loop.abort(connection);
        }
    }

    /// Tells all that the loop has ended. What was still to be done on its thread is returned, to be dropped by who has let go of
    /// the driver.
    #[must_use = "dropping a call may run code of the program's: drop it without the driver"]
    pub(crate) fn end(&mut self) -> Vec<Call> {
        let left = self.home.end(&mut self.wakers);
        for link in self.links.drain() {
            link.on_gone(&mut self.wakers);
        }
        for port in self.ports.drain() {
            port.on_gone(&mut self.wakers);
        }
        for link in left.links {
            link.on_gone(&mut self.wakers);
        }
        for port in left.ports {
            port.on_gone(&mut self.wakers);
        }
        for acceptor in self.family.acceptors_of(self.event_loop.index()) {
            acceptor.end_share(self.event_loop.index(), &mut self.wakers);
        }
        for (_, alarm) in self.alarms.drain() {
            alarm.raise(Err(NoAlarm::Gone), &mut self.wakers);
        }
        let closing = &self.family.closing;
        closing.end_all_of(self.event_loop.index(), &mut self.wakers);
        left.calls
    }
}
