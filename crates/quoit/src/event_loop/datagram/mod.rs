//! Datagram sockets: opening and closing here, `receive` and `send` the two directions, `queue` what waits to be sent, of which
//! `entries` keeps each and `copies` the bytes, `segmentation` what is known of routes that take no segments.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::{Loop, TimerKey};
use crate::address::Address;
use crate::command::Command;
use crate::datagram::{
    CONTROL_OFFSET, DatagramCounters, DatagramOptions, DatagramSocket, DatagramSocketError, DatagramStep,
    Datagrams, Gro, Meta, MulticastGroup, Way, is_v6, space,
};
use crate::direct::LentDatagramSocket;
use crate::engine::{DatagramBatch, Engine, Handle, Kind, Operation};
use crate::errno::Errno;
use crate::event::{Event, Refusal};
use crate::id::{DatagramSocketId, Slot, Token};
use crate::listen::SocketFile;
use crate::pool::Pool;
use crate::sys::{DatagramFamily, DatagramOption, SocketSys};
use crate::timers::TimerId;

use queue::Queue;

mod copies;
mod entries;
mod queue;
mod receive;
mod segmentation;
mod send;

/// Between two looks at the kernel's counts of drops, which go round at 2^32: millions a second are dropped at most.
pub(super) const LOOK_AT_DROPS: Duration = Duration::from_secs(60);

/// Bytes of a slot for joined datagrams: whatever an IP packet can carry.
const JOINED: u32 = 65_535;

/// Where a socket is in its life. It only moves down this list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// Nothing more is received; what is queued is sent.
    Draining,
    /// Nothing more is sent either. When the last operation has ended, the descriptor is closed.
    Ending,
}

/// One datagram socket.
#[derive(Debug)]
pub(super) struct State {
    descriptor: Option<OwnedFd>,
    file: Option<SocketFile>,
    family: DatagramFamily,
    address: Address,
    /// Whether it has a peer, and whether packets to that are of IPv6.
    connected: bool,
    peer_v6: bool,
    token: Token,
    phase: Phase,
    /// What ended it.
    error: Option<Errno>,
    /// The limit of a close.
    limit: Option<TimerId>,

    /// Receive memory.
    pool: Pool,
    /// Bytes before the payload in each slot.
    head: u32,
    /// Bytes of a slot that are received into.
    room: u32,
    raw: bool,
    /// The kernel keeps what the network returns in an error queue.
    queues_errors: bool,
    /// Slots that the engine holds to receive into, and how many it may hold at a time.
    provided: u32,
    most_provided: u32,
    receiving: bool,
    receive_cancelled: bool,
    pub(super) paused: bool,
    /// Receiving has stopped for want of slots.
    starved: bool,
    pressure_reported: bool,
    /// Receiving is tried again later, after a failure.
    retry: Option<TimerId>,
    /// Arrived past a pause.
    pub(super) held_back: VecDeque<Datagrams>,
    /// What a driver had in its hand was held back: all that follows in its hand is, too.
    pub(super) held_in_hand: bool,
    /// The turn of the last buffer received, and how many came in it.
    batch_turn: u64,
    batch_size: u64,

    queue: Queue,
    sending: bool,
    /// The batch that is not in flight.
    spare: Option<Box<DatagramBatch>>,
    dirty: bool,
    wants_writable: bool,
    /// What other threads send by.
    lent: Option<Arc<LentDatagramSocket>>,

    counters: DatagramCounters,
    /// The kernel's count of drops when it was last seen.
    drops_seen: Option<u32>,
}

impl State {
    /// Whether what comes is to be delivered.
    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    fn is_quiet(&self) -> bool {
        !self.receiving && !self.sending
    }

    fn way(&self) -> Way {
        Way {
            family: self.family,
            connected: self.connected,
            peer_v6: self.peer_v6,
        }
    }

    /// What other threads send by, made at the first time.
    pub(super) fn lend(
        &mut self,
        make: impl FnOnce(RawFd, Way, bool) -> Arc<LentDatagramSocket>,
    ) -> Result<Arc<LentDatagramSocket>, Refusal> {
        if self.phase != Phase::Open {
            return Err(Refusal::Closing);
        }
        if self.lent.is_none() {
            let descriptor = self.descriptor.as_ref().expect("present until closed");
            let answers_once = self.connected && !self.queues_errors && self.family != DatagramFamily::Unix;
            let lent = make(descriptor.as_raw_fd(), self.way(), answers_once);
            lent.socket.set_idle(self.queue.is_empty());
            self.lent = Some(lent);
        }
        Ok(Arc::clone(self.lent.as_ref().expect("just made")))
    }

    /// Says whether all has left that the loop was given, so that others may send.
    fn set_idle(&self, idle: bool) {
        if let Some(lent) = &self.lent {
            lent.socket.set_idle(idle);
        }
    }

    /// What the network has answered another thread's datagrams with.
    fn take_answer(&self) -> Option<Errno> {
        self.lent.as_ref()?.socket.take_error()
    }

    /// No other thread sends from here on. Returns whether none does any more.
    fn take_back(&self) -> bool {
        self.lent.as_ref().is_none_or(|lent| {
            lent.socket.close();
            lent.socket.take_back()
        })
    }

    /// Has no other thread send from here on.
    pub(super) fn end_lending(&self) {
        if let Some(lent) = &self.lent {
            lent.socket.end();
        }
    }

    /// For a loop whose memory the kernel may still use: descriptors are no memory.
    pub(super) fn close_descriptor(&mut self) {
        drop(self.descriptor.take());
    }
}

/// Bytes for control messages, as the options ask for them: exactly, so that none is cut unless somebody has set
/// others, and at least what the description needs that takes their place.
fn control_room(family: DatagramFamily, options: &DatagramOptions) -> u32 {
    const WORD: usize = size_of::<u32>();
    let internet = family != DatagramFamily::Unix;
    let wanted = [
        (true, space(WORD)),
        (options.receive_timestamps, space(size_of::<libc::timespec>())),
        (internet && options.gro != Gro::Off, space(WORD)),
        // Mapped addresses have their own form of it, and never both.
        (internet && options.receive_ecn, space(WORD)),
        (
            internet && options.receive_local_address,
            space(size_of::<libc::in6_pktinfo>()),
        ),
    ];
    let room: usize = wanted
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .map(|(_, room)| room)
        .sum();
    room.max(Meta::SIZE) as u32
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Makes a datagram socket bound to `address` and opens it on this loop; see [`DatagramSocket::bind`].
    /// [`Event::DatagramOpened`] follows.
    ///
    /// # Errors
    /// What failed, on what address, and what to do.
    pub fn bind_datagram(
        &mut self,
        address: &Address,
        options: &DatagramOptions,
        token: Token,
    ) -> Result<DatagramSocketId, DatagramSocketError> {
        let socket = DatagramSocket::bind_on(&self.system, address, options)?;
        self.open_datagram(socket, token)
    }

    /// Opens a datagram socket on this loop, which owns it from here on. [`Event::DatagramOpened`] follows.
    ///
    /// # Errors
    /// [`DatagramSocketError::Limit`] with [`Config::datagram_sockets`](crate::Config::datagram_sockets) open; the
    /// kernel's, if it cannot be prepared. The socket is closed.
    pub fn open_datagram(
        &mut self,
        socket: DatagramSocket,
        token: Token,
    ) -> Result<DatagramSocketId, DatagramSocketError> {
        let address = socket.address().clone();
        let failed = |step| DatagramSocketError::of(&address, step);
        self.system
            .set_nonblocking(socket.as_fd(), self.engine.wants_nonblocking())
            .map_err(failed(DatagramStep::Mode))?;
        // What was dropped so far is none of this loop's.
        let drops_seen = self.system.datagram_drops(socket.as_fd()).ok();
        self.counters.system_calls.add(2);
        let family = socket.family();
        let connected = socket.peer().is_some();
        let peer_v6 = socket.peer().is_some_and(is_v6);
        let (descriptor, options, file) = socket.into_parts();
        let control = control_room(family, &options);
        let head = CONTROL_OFFSET + control;
        let payload = if options.gro == Gro::Off || family == DatagramFamily::Unix {
            options.max_datagram
        } else {
            JOINED
        };
        let wake = self.memory.remote.wake_handle();
        let mut queue = Queue::new(options.high_water, options.low_water, options.queued_sends)
            .map_err(failed(DatagramStep::Buffers))?;
        let size = (head + payload).next_multiple_of(64);
        let pool = Pool::new(options.slots, size, 0, wake).map_err(failed(DatagramStep::Buffers))?;
        if family == DatagramFamily::Unix {
            queue.be_unix();
        }
        let raw_descriptor = descriptor.as_raw_fd();
        let state = State {
            descriptor: Some(descriptor),
            file,
            family,
            address: address.clone(),
            connected,
            peer_v6,
            token,
            phase: Phase::Open,
            error: None,
            limit: None,
            // Aligned, so that no two slots share a line of the caches.
            pool,
            head,
            room: head + payload,
            raw: options.gro == Gro::Raw,
            queues_errors: options.receive_errors && family != DatagramFamily::Unix,
            provided: 0,
            most_provided: self.engine.datagram_buffers_at_once(),
            receiving: false,
            receive_cancelled: false,
            paused: options.paused,
            starved: false,
            pressure_reported: false,
            retry: None,
            held_back: VecDeque::with_capacity(options.slots as usize),
            held_in_hand: false,
            batch_turn: 0,
            batch_size: 0,
            queue,
            sending: false,
            spare: Some(Box::default()),
            dirty: false,
            wants_writable: false,
            lent: None,
            counters: DatagramCounters::default(),
            drops_seen,
        };
        let (slot, generation) = self
            .datagrams
            .insert(state)
            .map_err(|_| DatagramSocketError::Limit)?;
        let opened = self
            .engine
            .open_datagrams(slot, raw_descriptor, control, options.slots as u16);
        if let Err(errno) = opened {
            self.datagrams.remove(slot);
            return Err(failed(DatagramStep::Buffers)(errno));
        }
        let id = DatagramSocketId::new(self.index, slot, generation);
        self.events.push_back(Event::DatagramOpened { socket: id, token });
        Ok(id)
    }

    /// Datagram sockets that are open or being closed.
    #[must_use]
    pub fn datagram_sockets(&self) -> u32 {
        self.datagrams.len()
    }

    /// The address that a datagram socket is bound to, its port resolved; `None` if the id is stale.
    #[must_use]
    pub fn datagram_address(&self, socket: DatagramSocketId) -> Option<&Address> {
        self.look_up_datagram(socket).map(|state| &state.address)
    }

    /// A datagram socket's descriptor, for options and names; do not read, write or close it, and set no option that
    /// brings further control messages. `None` if the id is stale.
    #[must_use]
    pub fn datagram_descriptor(&self, socket: DatagramSocketId) -> Option<BorrowedFd<'_>> {
        let state = self.look_up_datagram(socket)?;
        state.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// What a datagram socket has done so far; `None` if the id is stale. Asks the kernel for the drops, which it counts
    /// modulo 2^32. So do turns, once a minute: where a loop makes none for longer, ask before half as many can have
    /// happened.
    pub fn datagram_counters(&mut self, socket: DatagramSocketId) -> Option<DatagramCounters> {
        self.look_up_datagram(socket)?;
        self.look_at_drops(socket.slot());
        let state = self.look_up_datagram(socket)?;
        let (sent, sent_bytes) = state.lent.as_ref().map_or((0, 0), |lent| lent.sent());
        Some(DatagramCounters {
            sent: state.counters.sent + sent,
            sent_bytes: state.counters.sent_bytes + sent_bytes,
            sends: state.counters.sends + sent,
            send_batches: state.counters.send_batches + sent,
            direct_sends: sent,
            slots: state.pool.slots().into(),
            slots_leased: state.pool.leased().into(),
            slots_low_water: state.pool.low_water().into(),
            queued_bytes: state.queue.queued() as u64,
            ..state.counters
        })
    }

    /// Joins a multicast group.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; the kernel's: `ENODEV` where no interface leads there, `EINVAL` for what is no group of the
    /// socket's family, `EADDRINUSE` if it is a member.
    pub fn join_multicast(&mut self, socket: DatagramSocketId, group: MulticastGroup) -> Result<(), Refusal> {
        self.set_membership(socket, group, true)
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; the kernel's: `EADDRNOTAVAIL` if it is no member.
    pub fn leave_multicast(
        &mut self,
        socket: DatagramSocketId,
        group: MulticastGroup,
    ) -> Result<(), Refusal> {
        self.set_membership(socket, group, false)
    }

    pub(super) fn set_membership(
        &mut self,
        socket: DatagramSocketId,
        group: MulticastGroup,
        member: bool,
    ) -> Result<(), Refusal> {
        let state = self.look_up_datagram(socket).ok_or(Refusal::Stale)?;
        let descriptor = state.descriptor.as_ref().ok_or(Refusal::Stale)?;
        let option = DatagramOption::Membership {
            group: group.group,
            interface: group.interface,
            member,
        };
        self.system.set_datagram_option(descriptor.as_fd(), option)?;
        self.counters.system_calls.add(1);
        Ok(())
    }

    /// Closes a datagram socket: nothing more is delivered, what is queued is sent, and [`Event::DatagramClosed`]
    /// follows, at the latest after [`Config::close_deadline`](crate::Config::close_deadline).
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if it is being closed already.
    pub fn close_datagram(&mut self, socket: DatagramSocketId) -> Result<(), Refusal> {
        let state = self.find_datagram(socket)?;
        if state.phase != Phase::Open {
            return Err(Refusal::Closing);
        }
        state.phase = Phase::Draining;
        state.set_idle(false);
        state.held_back.clear();
        let retry = state.retry.take();
        let empty = state.queue.is_empty();
        self.clear_timer(retry);
        self.events.check_queued();
        self.cancel_datagram_receive(socket.slot());
        if empty {
            self.end_datagram(socket.slot(), None);
            return Ok(());
        }
        let limit = self.set_timer(self.config.close_deadline, TimerKey::DatagramLimit(socket));
        match limit {
            Some(_) => self.find_datagram(socket)?.limit = limit,
            // Without a timer the wait for the socket would have no end.
            None => self.end_datagram(socket.slot(), None),
        }
        Ok(())
    }

    /// A close has taken too long.
    pub(super) fn on_datagram_limit(&mut self, socket: DatagramSocketId) {
        if let Ok(state) = self.find_datagram(socket) {
            state.limit = None;
            self.end_datagram(socket.slot(), None);
        }
    }

    /// Begins the end: everything in flight is asked to stop.
    fn end_datagram(&mut self, slot: Slot, error: Option<Errno>) {
        let Some((state, _)) = self.datagrams.at(slot) else {
            return;
        };
        if state.phase == Phase::Ending {
            return;
        }
        state.phase = Phase::Ending;
        state.set_idle(false);
        state.error = error;
        state.held_back.clear();
        let sending = state.sending;
        let timers = (state.limit.take(), state.retry.take());
        self.clear_timer(timers.0);
        self.clear_timer(timers.1);
        self.cancel_datagram_receive(slot);
        if sending {
            self.cancel(Handle::Datagram(slot), Kind::Send);
        }
        self.finish_datagram_if_quiet(slot);
    }

    /// The last step, once the kernel and other threads are done with everything of an ending socket.
    pub(super) fn finish_datagram_if_quiet(&mut self, slot: Slot) {
        let Some((state, generation)) = self.datagrams.at(slot) else {
            return;
        };
        if state.phase != Phase::Ending || !state.is_quiet() {
            return;
        }
        if !state.take_back() {
            self.direct.end_later(slot);
            return;
        }
        let id = DatagramSocketId::new(self.index, slot, generation);
        let Some(mut state) = self.datagrams.remove(slot) else {
            return;
        };
        state.queue.clear();
        // What was queued is not to be sent any more. Where others are left, the next turn finds that out; without any it would
        // not look, and the loop stay awake for ever.
        if self.datagrams.len() == 0 {
            self.dirty_datagrams.clear();
        }
        // The file goes first: a server that takes the path over finds it free.
        drop(state.file.take());
        let descriptor = state.descriptor.take().expect("present until closed");
        // Not kept for the first turn: the engine takes no ring for this, and the slot may be used again at once.
        let memory = &mut self.memory;
        let close = Operation::Close {
            handle: Handle::Datagram(slot),
            descriptor,
        };
        self.engine.submit(close, &mut memory.pool);
        self.events.push_back(Event::DatagramClosed {
            socket: id,
            token: state.token,
            error: state.error,
        });
    }

    /// Ends them all: draining has taken too long.
    pub(super) fn abort_datagrams(&mut self) {
        let slots: Vec<_> = self.datagrams.slots().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.end_datagram(slot, None);
        }
    }

    /// Closes them all: draining has found that nothing else is left which might need them.
    pub(super) fn close_datagrams(&mut self) {
        let index = self.index;
        let sockets: Vec<_> = self
            .datagrams
            .slots()
            .map(|(slot, generation)| DatagramSocketId::new(index, slot, generation))
            .collect();
        for socket in sockets {
            // One that is being closed already is as good.
            let _ = self.close_datagram(socket);
        }
    }

    /// What a turn does for datagram sockets before it waits: takes in returned leases, arms what they were waited for,
    /// and submits what is queued.
    // Not inlined: loops without any pass it by.
    #[inline(never)]
    pub(super) fn serve_datagrams(&mut self) {
        let slots = self.datagrams.slot_count();
        if self.now >= self.look_at_drops_from {
            self.look_at_all_drops();
        }
        for index in 0..slots {
            self.provide_datagram_slots(Slot::new(index));
        }
        let dirty = self.dirty_datagrams.len();
        for index in 0..dirty {
            // The end of the last socket forgets them all.
            let Some(&slot) = self.dirty_datagrams.get(index) else {
                break;
            };
            self.flush_datagrams(slot);
        }
        // What flushing itself made dirty is for the next turn, which does not wait.
        if self.dirty_datagrams.len() <= dirty {
            self.dirty_datagrams.clear();
        } else {
            self.dirty_datagrams.drain(..dirty);
        }
        let mut sleeps = None;
        for index in 0..slots {
            let slot = Slot::new(index);
            if !self.receives_on(slot) {
                // A turn that will not sleep is soon followed by another: what is starved waits until many slots are
                // back, and does not take each one by itself.
                let sleeps = *sleeps.get_or_insert_with(|| !self.has_work());
                self.arm_datagrams(slot, sleeps);
            }
        }
    }

    #[cold]
    fn look_at_all_drops(&mut self) {
        self.look_at_drops_from = self.now + LOOK_AT_DROPS;
        for index in 0..self.datagrams.slot_count() {
            self.look_at_drops(Slot::new(index));
        }
    }

    /// Carries out one command that concerns a datagram socket; a refusal becomes an event.
    #[cold]
    pub(super) fn execute_datagram(&mut self, command: Command<'_>) {
        let (token, socket, result) = match command {
            Command::OpenDatagram { socket, token } => {
                let refusal =
                    |error: DatagramSocketError| error.errno().map_or(Refusal::Limit, Refusal::Error);
                let result = self.open_datagram(*socket, token);
                (token, None, result.map(drop).map_err(refusal))
            }
            Command::SendDatagrams { socket, datagrams } => {
                for datagram in datagrams {
                    let token = datagram.token;
                    if let Err(refusal) = self.send_datagram(socket, datagram) {
                        self.refuse_datagram(token, Some(socket), refusal);
                    }
                }
                return;
            }
            Command::PauseDatagrams { socket } => (Token::NONE, Some(socket), self.pause_datagrams(socket)),
            Command::ResumeDatagrams { socket } => (Token::NONE, Some(socket), self.resume_datagrams(socket)),
            Command::SetMembership {
                socket,
                group,
                member,
            } => (
                Token::NONE,
                Some(socket),
                self.set_membership(socket, group, member),
            ),
            Command::CloseDatagram { socket } => (Token::NONE, Some(socket), self.close_datagram(socket)),
            Command::RefuseDatagram {
                socket,
                token,
                refusal,
            } => (token, socket, Err(refusal)),
            other => unreachable!("{other:?} concerns no datagram socket"),
        };
        if let Err(refusal) = result {
            self.refuse_datagram(token, socket, refusal);
        }
    }

    fn refuse_datagram(&mut self, token: Token, socket: Option<DatagramSocketId>, refusal: Refusal) {
        self.events.push_back(Event::DatagramRefused {
            token,
            socket,
            refusal,
        });
    }

    /// Whether returned leases of datagram sockets are waited for, which then wake the loop.
    pub(super) fn wants_datagram_leases(&mut self) -> bool {
        let mut any = false;
        for state in self.datagrams.values_mut() {
            state.pool.want(state.starved);
            any |= state.starved && state.pool.has_returns();
        }
        any
    }

    pub(super) fn find_datagram(&mut self, id: DatagramSocketId) -> Result<&mut State, Refusal> {
        if id.loop_index() != self.index {
            return Err(Refusal::Stale);
        }
        self.datagrams
            .get_mut(id.slot(), id.generation())
            .ok_or(Refusal::Stale)
    }

    pub(super) fn look_up_datagram(&self, id: DatagramSocketId) -> Option<&State> {
        if id.loop_index() != self.index {
            return None;
        }
        self.datagrams.get(id.slot(), id.generation())
    }
}
