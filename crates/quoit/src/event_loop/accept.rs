//! Listeners: accepting within the limits, pausing and trying again, stopping without losing what is queued.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::apply_stream_options;
use super::connection::{Connection, Phase};
use super::{Draining, Loop, TimerKey};
use crate::address::Address;
use crate::command::{AttachOptions, Command, StreamOptions};
use crate::engine::{Engine, Handle, Kind, Operation, is_of_one_accept};
use crate::errno::Errno;
use crate::event::{Event, Refusal};
use crate::id::{ConnectionId, ListenerId, Slot, Token};
use crate::listen::{ListenError, ListenOptions, ListenSocket, SocketFile, Step};
use crate::remote::{PostError, Remote};
use crate::sys::SocketSys;
use crate::timers::TimerId;

/// The first and the longest pause after accepting failed for something that may last, such as a want of
/// descriptors.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// How often taking what is queued is tried again after a listener was stopped: about four seconds in all.
const LAST_RETRIES: u32 = 10;
/// Connections that are asked for at once where the engine is to stop exactly.
const ACCEPT_BATCH: u32 = 256;
/// Connections that have come since the last time when all completions were taken, from which on they come in batches:
/// the kernel accepts for a multishot however busy the loop is, and what has been accepted waits longer and longer.
const ACCEPTS_BEHIND: u32 = 256;
/// Connections that wait for a slot to receive into, from which on no more are accepted. Those that come and go faster than
/// they are served would take up all connection slots, and wait no shorter than in the listener's backlog.
pub(super) const MOST_STARVED: usize = 256;

/// Whether an error of accepting ends the listener itself: no time mends it.
fn is_of_listener(error: Errno) -> bool {
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
    /// [`Event::Accepted`] by this listener. Name this loop too if it shall take its share.
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
}

/// One listener.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Option<ListenSocket>,
    accept: Accept,
    armed: Option<Armed>,
    stopping: bool,
    /// What failed for good.
    error: Option<Errno>,
    /// Waits for a connection slot, or until fewer connections wait for one of the pool.
    waiting: bool,
    /// Waits for descriptors or memory, or whatever else accepting failed for.
    retry: Option<TimerId>,
    next_retry: Duration,
    /// Times in a row that taking what is queued was put off after it was stopped.
    retries: u32,
}

/// An accept in flight.
#[derive(Clone, Copy, Debug)]
struct Armed {
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
        let socket = crate::listen::bind(&self.system, address, &listen)?;
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
        apply_stream_options(&self.system, descriptor, &options.stream)
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
            armed: None,
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

    /// Stops accepting. Connections that the kernel has queued already are still accepted, as far as there are
    /// slots; then the socket is closed and [`Event::ListenerClosed`] reported. No `Accepted` of this listener
    /// follows: where attached connections have taken the slots of some that it had accepted already, it closes
    /// when those have theirs. Without descriptors or memory for what is queued, that is tried again for some
    /// seconds, or until draining has taken too long; then the listener closes with the error, and what is queued
    /// is reset.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if it is stopping already.
    pub fn stop_listening(&mut self, listener: ListenerId) -> Result<(), Refusal> {
        if listener.loop_index() != self.index {
            return Err(Refusal::Stale);
        }
        let slot = listener.slot();
        let found = self
            .listeners
            .get_mut(slot, listener.generation())
            .ok_or(Refusal::Stale)?;
        if found.stopping {
            return Err(Refusal::Closing);
        }
        found.stopping = true;
        found.waiting = false;
        // However long its pauses are by now.
        found.next_retry = FIRST_RETRY;
        let retry = found.retry.take();
        let armed = found.armed.is_some();
        self.clear_timer(retry);
        if armed {
            self.cancel_accept(slot);
        } else {
            self.finish_listener(slot, None);
        }
        Ok(())
    }

    fn cancel_accept(&mut self, slot: Slot) {
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
        let own = self.unreserved();
        let margin = self.engine.accept_margin();
        let is_behind = self.accepts_behind >= ACCEPTS_BEHIND;
        let most = self.config.connections;
        let Some((listener, _)) = self.listeners.at(slot) else {
            return;
        };
        if listener.armed.is_some() || listener.stopping || listener.retry.is_some() {
            return;
        }
        if self.starved.len() >= MOST_STARVED {
            if !std::mem::replace(&mut listener.waiting, true) {
                self.counters.accept_paused_resources.add(1);
            }
            return;
        }
        let free = match &listener.accept {
            Accept::Spread(remotes) => remotes
                .iter()
                .map(|remote| most.saturating_sub(remote.connections()))
                .sum(),
            _ => own,
        };
        let (limit, reserved, exact) = match listener.accept {
            Accept::Descriptors => (if is_behind { ACCEPT_BATCH } else { u32::MAX }, 0, false),
            Accept::Spread(_) if free == 0 => {
                // The other loops do not say when they have room again.
                self.put_off_accept(slot);
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
            _ => (free.min(ACCEPT_BATCH), free.min(ACCEPT_BATCH), true),
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
        let (listener, _) = self
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
            Err(_) => self.put_off_accept(slot),
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

    fn take_accepted(&mut self, slot: Slot, descriptor: OwnedFd) {
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
            self.surplus_accepted.push_back((id, descriptor));
            return;
        }
        self.counters.accepted.add(1);
        let connection = Connection::new(descriptor, Phase::Open, Token::NONE, paused);
        let connection: ConnectionId = self.insert(connection).expect("there was room just now");
        self.events.push_back(Event::Accepted {
            listener: id,
            connection,
        });
        self.arm_receive(connection.slot());
    }

    /// Hands an accepted socket to the loop with the fewest connections, or the next that takes it.
    fn spread_accepted(&mut self, listener: ListenerId, descriptor: OwnedFd, remotes: &[Remote]) {
        let options = AttachOptions {
            paused: false,
            accepted_by: Some(listener),
        };
        let least = remotes.iter().min_by_key(|remote| remote.connections());
        let Some(least) = least.filter(|least| least.loop_index() != self.index) else {
            // A refusal closes the socket; there is nobody else to give it to.
            let _ = self.attach(descriptor, &options, Token::NONE);
            return;
        };
        least.expect_connection();
        let command = Command::Attach {
            descriptor,
            options,
            token: Token::NONE,
        };
        if let Err(PostError::Full(command) | PostError::Closed(command)) = least.post(command) {
            self.execute(command);
        }
    }

    /// Tries again after a while, longer each time, or when this loop closes something.
    fn put_off_accept(&mut self, slot: Slot) {
        self.counters.accept_paused_resources.add(1);
        let (listener, generation) = self.listeners.at(slot).expect("the caller has looked it up");
        if listener.stopping || listener.retry.is_some() {
            return;
        }
        let pause = listener.next_retry;
        listener.next_retry = (pause * 2).min(LAST_RETRY);
        let id = ListenerId::new(self.index, slot, generation);
        let timer = self.set_timer(pause, TimerKey::Accept(id));
        if let Some((listener, _)) = self.listeners.at(slot) {
            listener.retry = timer;
        }
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

    /// A connection was added: multishot accepts that now could bring too many are stopped.
    pub(super) fn after_slot_taken(&mut self) {
        let room = self.connections.room();
        if room >= self.engine.accept_margin().saturating_mul(self.listeners.len()) {
            return;
        }
        let crowded: Vec<_> = self.listeners.slots().map(|(slot, _)| slot).collect();
        for slot in crowded {
            let Some((listener, _)) = self.listeners.at(slot) else {
                continue;
            };
            let too_many = listener
                .armed
                .is_some_and(|armed| !armed.exact && armed.reserved > room);
            if too_many {
                self.cancel_accept(slot);
            }
        }
    }

    /// A connection was closed: what waited for its slot or its descriptor goes on.
    pub(super) fn after_slot_freed(&mut self) {
        if let Some((id, descriptor)) = self.surplus_accepted.pop_front() {
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

    /// Whether somebody has room for one more of this listener.
    fn has_room_for_accepted(&mut self, slot: Slot) -> bool {
        let own = self.connections.room() > self.surplus_accepted.len() as u32;
        let most = self.config.connections;
        self.listeners
            .at(slot)
            .is_some_and(|(listener, _)| match &listener.accept {
                Accept::Descriptors => true,
                Accept::Spread(remotes) => remotes.iter().any(|remote| remote.connections() < most),
                Accept::Connections | Accept::Paused => own,
            })
    }

    /// Takes what the kernel has queued for a stopped listener, and closes it once all that it has accepted has
    /// been reported.
    fn finish_listener(&mut self, slot: Slot, error: Option<Errno>) {
        let Some((listener, generation)) = self.listeners.at(slot) else {
            return;
        };
        let id = ListenerId::new(self.index, slot, generation);
        listener.stopping = true;
        listener.error = listener.error.or(error);
        if listener.error.is_none()
            && let Err(errno) = self.accept_queued(slot)
            && (is_of_listener(errno) || !self.put_off_finish(slot))
            && let Some((listener, _)) = self.listeners.at(slot)
        {
            listener.error = Some(errno);
        }
        if self
            .listeners
            .at(slot)
            .is_some_and(|(one, _)| one.retry.is_some())
        {
            return;
        }
        if self.surplus_accepted.iter().any(|(of, _)| *of == id) {
            // Goes on when a connection closes.
            return;
        }
        self.close_listener(slot);
    }

    /// Tries again after a while to take what is queued for a stopped listener; answers false once that was done
    /// often enough, or draining has taken too long.
    fn put_off_finish(&mut self, slot: Slot) -> bool {
        self.counters.accept_paused_resources.add(1);
        let overdue = self.draining == Draining::Overdue;
        let Some((listener, generation)) = self.listeners.at(slot) else {
            return false;
        };
        if overdue || listener.retries == LAST_RETRIES {
            return false;
        }
        listener.retries += 1;
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

    /// Draining has taken too long: stopped listeners that wait to try again do so for the last time.
    pub(super) fn finish_stopped_listeners(&mut self) {
        let slots: Vec<_> = self.listeners.slots().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some((listener, _)) = self.listeners.at(slot)
                && listener.stopping
                && let Some(retry) = listener.retry.take()
            {
                self.clear_timer(Some(retry));
                self.finish_listener(slot, None);
            }
        }
    }

    /// Accepts what the kernel has queued, as far as there are slots.
    ///
    /// # Errors
    /// There are no descriptors or no memory for it, or it is forbidden, and something is or may be queued; or
    /// [`is_of_listener`].
    fn accept_queued(&mut self, slot: Slot) -> Result<(), Errno> {
        while self.has_room_for_accepted(slot) {
            let Some((listener, _)) = self.listeners.at(slot) else {
                return Ok(());
            };
            let socket = listener.socket.as_ref().expect("present until closed");
            self.counters.system_calls.add(1);
            match self.system.accept_now(socket.as_fd()) {
                Ok(descriptor) => {
                    listener.retries = 0;
                    listener.next_retry = FIRST_RETRY;
                    let nonblocking = self.engine.wants_nonblocking();
                    if self
                        .system
                        .set_nonblocking(descriptor.as_fd(), nonblocking)
                        .is_ok()
                    {
                        self.take_accepted(slot, descriptor);
                    }
                }
                Err(errno) if is_of_one_accept(errno) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn close_listener(&mut self, slot: Slot) {
        let Some((_, generation)) = self.listeners.at(slot) else {
            return;
        };
        let id = ListenerId::new(self.index, slot, generation);
        let Some(mut listener) = self.listeners.remove(slot) else {
            return;
        };
        self.clear_timer(listener.retry.take());
        // The file goes first: a server that takes the path over finds it free.
        let (descriptor, file): (OwnedFd, Option<SocketFile>) =
            listener.socket.take().expect("present until closed").into_parts();
        drop(file);
        self.submit(Operation::Close {
            handle: Handle::Listener(slot),
            descriptor,
        });
        self.events.push_back(Event::ListenerClosed {
            listener: id,
            error: listener.error,
        });
    }
}
