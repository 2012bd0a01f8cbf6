//! Listeners: accepting within the limits, pausing and trying again. How they stop is in `stop_listening`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, Phase};
use super::{Loop, TimerKey};
use crate::address::Address;
use crate::command::StreamOptions;
use crate::engine::{Engine, Handle, Kind, Operation, is_of_one_accept};
use crate::errno::Errno;
use crate::event::{Event, Refusal};
use crate::id::{ConnectionId, ListenerId, Slot, Token};
use crate::listen::{ListenError, ListenOptions, ListenSocket, Step};
use crate::remote::Remote;
use crate::sys::SocketSys;
use crate::timers::TimerId;

/// The first and the longest pause after accepting failed for something that may last, such as a want of
/// descriptors.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(10);
pub(super) const LAST_RETRY: Duration = Duration::from_secs(1);
/// Connections that are asked for at once where the engine is to stop exactly.
const ACCEPT_BATCH: u32 = 256;
/// Connections that have come since the last time when all completions were taken, from which on they come in batches:
/// the kernel accepts for a multishot however busy the loop is, and what has been accepted waits longer and longer.
const ACCEPTS_BEHIND: u32 = 256;
/// Connections that wait for a slot to receive into, from which on no more are accepted. Those that come and go faster than
/// they are served would take up all connection slots, and wait no shorter than in the listener's backlog.
pub(super) const MOST_STARVED: usize = 256;

/// Whether an error of accepting ends the listener itself: no time mends it.
pub(super) fn is_of_listener(error: Errno) -> bool {
    matches!(
        error.code(),
        libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP | libc::EFAULT
    )
}

/// What becomes of accepted connections.
#[derive(Clone, Debug, Default)]
pub enum Accept {
    /// They become connections of this loop and receive at once.
    #[default]
    Connections,
    /// They become connections of this loop, receiving paused at first.
    Paused,
    /// They are handed out as plain descriptors, [`Event::AcceptedDescriptor`], to be attached to any loop.
    Descriptors,
    /// Each is handed to the loop of these that has the fewest connections, and reported there as
    /// [`Event::Accepted`] by this listener. Name this loop too if it shall take its share. While all of them have as many as
    /// they may ([`Config::connections`](crate::Config::connections)), accepting pauses; as other loops do not say when they
    /// have room, it is tried again after 10 ms, and then ever later, up to every second.
    Spread(Arc<[Remote]>),
}

/// How to listen.
#[derive(Clone, Debug, Default)]
pub struct ListenerOptions {
    /// Options of the listening socket.
    pub listen: ListenOptions,
    /// Options of the accepted sockets. They are set on the listening socket, from which Linux copies them.
    pub stream: StreamOptions,
    /// What becomes of accepted connections. Default: [`Accept::Connections`].
    pub accept: Accept,
    /// Tell of accepting that fails, by [`Event::AcceptFailed`]. Default: false; the counter `accept_paused_resources`
    /// counts it, and it is tried again by itself, in any case.
    pub tell_failures: bool,
}

/// One listener.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: Option<ListenSocket>,
    pub(super) accept: Accept,
    tell_failures: bool,
    pub(super) armed: Option<Armed>,
    /// Accepted sockets for which no loop had room, of one that [spreads](Accept::Spread) them.
    pub(super) unplaced: VecDeque<OwnedFd>,
    /// Its user wants no more for now.
    paused: bool,
    pub(super) stopping: bool,
    /// What failed for good.
    pub(super) error: Option<Errno>,
    /// Waits for a connection slot, of whatever loop, or until fewer connections wait for one of the pool.
    pub(super) waiting: bool,
    /// Waits for descriptors or memory, or whatever else accepting failed for.
    pub(super) retry: Option<TimerId>,
    pub(super) next_retry: Duration,
    /// Times in a row that taking what is queued was put off after it was stopped.
    pub(super) retries: u32,
}

/// An accept in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Armed {
    /// Connection slots kept for it.
    reserved: u32,
    /// Whether it ends by itself when they are used up.
    exact: bool,
    /// Whether it goes on however far behind the loop is.
    unpaced: bool,
    cancelled: bool,
}

impl Listener {
    pub(super) fn socket(&self) -> Option<&ListenSocket> {
        self.socket.as_ref()
    }
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Listens at `address`; port 0 is resolved, see [`Loop::listener_address`].
    ///
    /// # Errors
    /// What failed, on what address, and what to do.
    pub fn listen(
        &mut self,
        address: &Address,
        options: &ListenerOptions,
    ) -> Result<ListenerId, ListenError> {
        let mut listen = options.listen.clone();
        listen.receive_buffer = listen.receive_buffer.or(options.stream.receive_buffer);
        listen.send_buffer = listen.send_buffer.or(options.stream.send_buffer);
        let socket = crate::listen::bind_on(&self.system, address, &listen)?;
        self.listen_on(socket, options)
    }

    /// Accepts from a socket that listens already: inherited, or shared with other loops
    /// ([`ListenSocket::try_clone`]).
    ///
    /// # Errors
    /// What failed, on what address, and what to do.
    pub fn listen_on(
        &mut self,
        socket: ListenSocket,
        options: &ListenerOptions,
    ) -> Result<ListenerId, ListenError> {
        let descriptor = socket.as_fd();
        let failed = |step, errno| ListenError::System {
            address: socket.address().clone(),
            step,
            errno,
        };
        options
            .stream
            .apply_counted(&self.system, descriptor)
            .map_err(|(option, errno)| failed(Step::Option(option), errno))?;
        // Whatever the engine: other loops and processes may hold the same description, and would wait in accept4(2) for
        // ever where somebody was faster. io_uring waits for connections on such a socket, too.
        self.system
            .set_nonblocking(descriptor, true)
            .map_err(|errno| failed(Step::Mode, errno))?;
        let address = socket.address().clone();
        let listener = Listener {
            socket: Some(socket),
            accept: options.accept.clone(),
            tell_failures: options.tell_failures,
            armed: None,
            unplaced: VecDeque::new(),
            paused: false,
            stopping: false,
            error: None,
            waiting: false,
            retry: None,
            next_retry: FIRST_RETRY,
            retries: 0,
        };
        let (slot, generation) = self
            .listeners
            .insert(listener)
            .map_err(|_| ListenError::Limit { address })?;
        self.arm_accept(slot);
        Ok(ListenerId::new(self.index, slot, generation))
    }

    /// The address that a listener has, its port resolved; `None` if the id is stale.
    #[must_use]
    pub fn listener_address(&self, listener: ListenerId) -> Option<Address> {
        if listener.loop_index() != self.index {
            return None;
        }
        let found = self.listeners.get(listener.slot(), listener.generation())?;
        found.socket.as_ref().map(|socket| socket.address().clone())
    }

    /// Accepts nothing more until [`Loop::resume_listening`]: who connects meanwhile waits in the kernel's backlog
    /// ([`ListenOptions::backlog`]), as with a server that does not call accept(2). What the kernel has accepted before it
    /// hears of this is still reported, in this turn and the next. For a listener that is paused already it does nothing.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if it is stopping.
    pub fn pause_listening(&mut self, listener: ListenerId) -> Result<(), Refusal> {
        self.find_listener(listener)?.paused = true;
        self.cancel_accept(listener.slot());
        Ok(())
    }

    /// Accepts again, after [`Loop::pause_listening`]; of a listener that is not paused it does nothing. One for which there
    /// were no descriptors, or memory, is tried at once.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if it is stopping.
    pub fn resume_listening(&mut self, listener: ListenerId) -> Result<(), Refusal> {
        let found = self.find_listener(listener)?;
        if std::mem::take(&mut found.paused) {
            let retry = found.retry.take();
            self.clear_timer(retry);
        }
        // Where the accept that was cancelled has not ended yet, its end does this.
        self.arm_accept(listener.slot());
        Ok(())
    }

    /// A listener that is not stopping.
    pub(super) fn find_listener(&mut self, listener: ListenerId) -> Result<&mut Listener, Refusal> {
        if listener.loop_index() != self.index {
            return Err(Refusal::Stale);
        }
        let found = self
            .listeners
            .get_mut(listener.slot(), listener.generation())
            .ok_or(Refusal::Stale)?;
        if found.stopping {
            return Err(Refusal::Closing);
        }
        Ok(found)
    }

    pub(super) fn cancel_accept(&mut self, slot: Slot) {
        let Some((listener, _)) = self.listeners.at(slot) else {
            return;
        };
        if let Some(armed) = &mut listener.armed
            && !armed.cancelled
        {
            armed.cancelled = true;
            self.cancel(Handle::Listener(slot), Kind::Accept);
        }
    }

    /// Has a listener go on in batches if the loop is behind, or when those that it has accepted have slots to receive into.
    fn pace_accept(&mut self, slot: Slot) {
        let is_behind = self.accepts_behind >= ACCEPTS_BEHIND;
        let are_starved = self.starved.len() >= MOST_STARVED;
        if (is_behind || are_starved)
            && let Some((listener, _)) = self.listeners.at(slot)
            && listener.armed.is_some_and(|armed| armed.unpaced || are_starved)
        {
            self.cancel_accept(slot);
        }
    }

    /// Connection slots that nothing is promised.
    fn unreserved(&self) -> u32 {
        let reserved: u32 = self
            .listeners
            .slots()
            .filter_map(|(slot, generation)| self.listeners.get(slot, generation)?.armed)
            .map(|armed| armed.reserved)
            .sum();
        self.connections
            .room()
            .saturating_sub(reserved + self.surplus_accepted.len() as u32)
    }

    /// Arms accepting if the listener may accept now. Otherwise whatever changes that arms it.
    fn arm_accept(&mut self, slot: Slot) {
        let room = self.connections.room();
        let beyond_surplus = room.saturating_sub(self.surplus_accepted.len() as u32);
        // What is free may be kept for listeners to which nobody connects: each may ask for one at least.
        let own = self.unreserved().max(beyond_surplus.min(1));
        let listeners = self.listeners.len().max(1);
        let margin = self.engine.accept_margin();
        let is_behind = self.accepts_behind >= ACCEPTS_BEHIND;
        let Some((listener, _)) = self.listeners.at(slot) else {
            return;
        };
        if listener.armed.is_some() || listener.stopping || listener.retry.is_some() {
            return;
        }
        if !listener.unplaced.is_empty() && !self.place_rest(slot) {
            self.put_off_spreading(slot);
            return;
        }
        let Some((listener, _)) = self.listeners.at(slot) else {
            return;
        };
        if listener.paused {
            return;
        }
        if self.starved.len() >= MOST_STARVED {
            if !std::mem::replace(&mut listener.waiting, true) {
                self.counters.accept_paused_resources.add(1);
            }
            return;
        }
        let free = match &listener.accept {
            Accept::Spread(remotes) => {
                let remotes = Arc::clone(remotes);
                self.room_to_spread(&remotes)
            }
            _ => own,
        };
        let Some((listener, _)) = self.listeners.at(slot) else {
            return;
        };
        let (limit, reserved, exact) = match listener.accept {
            Accept::Descriptors => (if is_behind { ACCEPT_BATCH } else { u32::MAX }, 0, false),
            Accept::Spread(_) if free == 0 => {
                self.put_off_spreading(slot);
                return;
            }
            Accept::Spread(_) => (if is_behind { free.min(ACCEPT_BATCH) } else { free }, 0, true),
            _ if free == 0 => {
                if !listener.waiting {
                    listener.waiting = true;
                    self.counters.accept_paused_full.add(1);
                }
                return;
            }
            _ if margin > 0 && free >= margin && !is_behind => (free, margin, false),
            _ => {
                // A part, so that each listener has one.
                let share = free.div_ceil(listeners).min(ACCEPT_BATCH);
                (share, share, true)
            }
        };
        listener.waiting = false;
        listener.armed = Some(Armed {
            reserved,
            exact,
            unpaced: limit > ACCEPT_BATCH,
            cancelled: false,
        });
        let descriptor = listener
            .socket
            .as_ref()
            .expect("present until closed")
            .as_fd()
            .as_raw_fd();
        self.submit(Operation::Accept {
            listener: slot,
            descriptor,
            limit,
        });
    }

    pub(super) fn on_accepted(&mut self, slot: Slot, result: Result<OwnedFd, Errno>, more: bool) {
        let (listener, generation) = self
            .listeners
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        match &mut listener.armed {
            Some(armed) if more => {
                armed.reserved = armed
                    .reserved
                    .saturating_sub(u32::from(armed.exact && result.is_ok()));
            }
            armed => *armed = None,
        }
        let mut fatal = None;
        match result {
            Ok(descriptor) => {
                listener.next_retry = FIRST_RETRY;
                self.take_accepted(slot, descriptor);
                self.accepts_behind += 1;
                self.pace_accept(slot);
            }
            Err(errno) if is_of_listener(errno) => fatal = Some(errno),
            Err(Errno::ECANCELED | Errno::EAGAIN) => {}
            Err(errno) if is_of_one_accept(errno) => {}
            // Descriptors or memory are used up, or a limit, or accepting is forbidden: that lasts, and a loop
            // that tried again at once would spin.
            Err(errno) => {
                if listener.tell_failures && !listener.stopping {
                    let listener = ListenerId::new(self.index, slot, generation);
                    self.events.push_back(Event::AcceptFailed {
                        listener,
                        error: errno,
                    });
                }
                self.put_off_accept(slot);
            }
        }
        if more {
            return;
        }
        let stopping = self
            .listeners
            .at(slot)
            .is_some_and(|(listener, _)| listener.stopping);
        if stopping || fatal.is_some() {
            self.finish_listener(slot, fatal);
        } else {
            self.arm_accept(slot);
        }
    }

    pub(super) fn take_accepted(&mut self, slot: Slot, descriptor: OwnedFd) {
        let (listener, generation) = self.listeners.at(slot).expect("the caller has looked it up");
        let id = ListenerId::new(self.index, slot, generation);
        let paused = match &listener.accept {
            Accept::Descriptors => {
                self.counters.accepted.add(1);
                self.events.push_back(Event::AcceptedDescriptor {
                    listener: id,
                    descriptor,
                });
                return;
            }
            Accept::Spread(remotes) => {
                let remotes = Arc::clone(remotes);
                self.spread_accepted(id, descriptor, &remotes);
                return;
            }
            Accept::Paused => true,
            Accept::Connections => false,
        };
        if self.connections.room() == 0 {
            // Attached connections have taken the slots meanwhile.
            self.wait_for_connection_slot(id, descriptor);
            return;
        }
        self.adopt(id, descriptor, paused);
    }

    /// Makes an accepted socket a connection of this loop, which has room.
    pub(super) fn adopt(&mut self, listener: ListenerId, descriptor: OwnedFd, paused: bool) {
        self.counters.accepted.add(1);
        let connection = Connection::new(descriptor, Phase::Open, Token::NONE, paused);
        let connection: ConnectionId = self
            .insert(connection)
            .expect("the caller has seen that there is room");
        self.events.push_back(Event::Accepted { listener, connection });
        self.arm_receive(connection.slot());
    }

    /// There are no descriptors, or no memory: tries again after a while, longer each time, or when this loop closes something.
    fn put_off_accept(&mut self, slot: Slot) {
        self.counters.accept_paused_resources.add(1);
        self.try_accept_later(slot);
    }

    /// All loops that it spreads to are full: tries again as well, for the others do not say when they have room.
    fn put_off_spreading(&mut self, slot: Slot) {
        if let Some((listener, _)) = self.listeners.at(slot)
            && !std::mem::replace(&mut listener.waiting, true)
        {
            self.counters.accept_paused_full.add(1);
        }
        self.try_accept_later(slot);
    }

    fn try_accept_later(&mut self, slot: Slot) {
        if let Some((listener, _)) = self.listeners.at(slot)
            && !listener.stopping
            && listener.retry.is_none()
        {
            self.set_accept_retry(slot);
        }
    }

    /// Sets the time at which a listener is looked at again; false if there is no timer for it.
    pub(super) fn set_accept_retry(&mut self, slot: Slot) -> bool {
        let (listener, generation) = self.listeners.at(slot).expect("the caller has looked it up");
        let pause = listener.next_retry;
        listener.next_retry = (pause * 2).min(LAST_RETRY);
        let earlier = listener.retry.take();
        self.clear_timer(earlier);
        let id = ListenerId::new(self.index, slot, generation);
        let timer = self.set_timer(pause, TimerKey::Accept(id));
        if let Some((listener, _)) = self.listeners.at(slot) {
            listener.retry = timer;
        }
        timer.is_some()
    }

    pub(super) fn on_accept_retry(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.get_mut(id.slot(), id.generation()) {
            listener.retry = None;
            if listener.stopping {
                self.finish_listener(id.slot(), None);
            } else {
                self.arm_accept(id.slot());
            }
        }
    }

    /// A connection was added: accepts that now could bring too many are stopped. The only listener's exact one cannot, but
    /// for what is attached.
    pub(super) fn after_slot_taken(&mut self) {
        let room = self.connections.room();
        let listeners = self.listeners.len();
        let most = self.engine.accept_margin().max(ACCEPT_BATCH);
        if room >= most.saturating_mul(listeners) {
            return;
        }
        let crowded: Vec<_> = self.listeners.slots().map(|(slot, _)| slot).collect();
        for slot in crowded {
            let Some((listener, _)) = self.listeners.at(slot) else {
                continue;
            };
            let too_many = listener
                .armed
                .is_some_and(|armed| (!armed.exact || listeners > 1) && armed.reserved > room);
            if too_many {
                self.cancel_accept(slot);
            }
        }
    }

    /// A connection was closed: what waited for its slot or its descriptor goes on.
    pub(super) fn after_slot_freed(&mut self) {
        if let Some((id, descriptor)) = self.surplus_accepted.pop_front() {
            if id.loop_index() != self.index {
                self.adopt(id, descriptor, false);
                return;
            }
            self.take_accepted(id.slot(), descriptor);
            let listener = self.listeners.get(id.slot(), id.generation());
            if listener.is_some_and(|one| one.stopping && one.armed.is_none()) {
                self.finish_listener(id.slot(), None);
            }
            return;
        }
        self.resume_accepting();
    }

    /// Goes on with what waits for a connection slot, a descriptor or an end of the want of pool slots.
    pub(super) fn resume_accepting(&mut self) {
        let any = self.listeners.slots().any(|(slot, generation)| {
            self.listeners
                .get(slot, generation)
                .is_some_and(|one| one.waiting || one.retry.is_some())
        });
        if !any {
            return;
        }
        let slots: Vec<_> = self.listeners.slots().map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some((listener, _)) = self.listeners.at(slot) else {
                continue;
            };
            // A stopped one is tried at its own time: the descriptor that became free is closed only with the
            // next submission.
            if !listener.stopping && (listener.waiting || listener.retry.is_some()) {
                let retry = listener.retry.take();
                self.clear_timer(retry);
                self.arm_accept(slot);
            }
        }
    }
}
