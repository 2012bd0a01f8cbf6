//! The epoll engine: proactor operations on readiness.
//!
//! - **One registration a socket.** Connections are registered once, edge-triggered; listeners once for each stretch of
//!   time in which they accept. What is not TCP is registered for room to send only while a send waits for it, as its
//!   sockets tell of room whether or not they were full: that is the only `EPOLL_CTL_MOD`, and few sends wait.
//! - **Inline first.** A send is tried before it is submitted, and what it sent is known without a completion. Receiving and accepting are tried as soon as
//!   nothing says that they would find nothing: each record keeps what the last edge told (its hints) until it
//!   has been used up, so an operation submitted later than its edge is not lost, and none is tried in vain.
//! - **A short read saves a call.** On TCP a read of less than was asked for has emptied the socket
//!   (`epoll(7)`, the ninth question), so no read is made only to be told `EAGAIN`. The exceptions are in
//!   `stream.rs`.
//! - **What is read is what is wanted.** [`Engine::wait`] only notes hints; bytes and connections are taken in
//!   [`Engine::reap`], directly into the loop's list, so a cancelled operation never has anything left over.
//! - **Fairness.** What is not done after its share of a turn goes to the end of the list and continues in the
//!   next turn.
//!
//! # When the kernel is asked
//!
//! A turn with completions at hand need not sleep, so asking for events would often find none: the call is left
//! out, but never twice in a row, so that a socket that is always ready delays the events of the others by one
//! turn at most. Sends that end at once leave no completion ([`Engine::send_at_once`]), so the usual pattern,
//! receive in one turn and send in the next, makes one call for every batch of requests.

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use self::datagram::Scratch;
use self::record::{Connection, DatagramSocket, Key, Listener, Outgoing};
use self::sys::{EpollSys, ReadyEvent};
use super::enters::EnterSizes;
use super::slot_table::SlotTable;
use super::{
    Completion, Completions, DatagramBatch, DatagramReceived, Engine, EngineKind, Handle, Kind, Message,
    Operation, PollDescriptor, ProvidedBuffer, Received, SendManner, Trigger, sleep_to_coalesce,
};
use crate::counters::LiveCounters;
use crate::errno::Errno;
use crate::id::Slot;
use crate::pool::Pool;
use crate::sys::{SocketSys, Time};

mod datagram;
mod linux;
mod listener;
mod record;
mod stream;
pub mod sys;
#[cfg(test)]
mod tests;

pub use linux::Epoll;

/// `EPOLL*` constants as the bits that events have.
const fn bits(flags: i32) -> u32 {
    flags as u32
}

/// What sockets are registered for besides while a send waits for room.
///
/// TCP tells of room only who has found none (`sk_stream_write_space`), so its connections are registered for it from the start.
/// Other sockets tell whenever the peer has taken something, full or not (`unix_write_space`, `sock_def_write_space`): each response
/// would wake the loop once more.
const ROOM: u32 = bits(libc::EPOLLOUT);

/// How much an epoll engine does at a time.
#[derive(Clone, Copy, Debug)]
pub struct EpollSettings {
    /// Connection slots to set memory aside for. Default 1,024. More are possible, but cost an allocation at
    /// their first use.
    pub connections: u32,
    /// Listener slots to set memory aside for. Default 16. More are possible likewise.
    pub listeners: u32,
    /// Events taken from the kernel at a time, at least 1. Default 512: what is beyond waits in the kernel, in
    /// order, for the next turn.
    pub events: u32,
    /// Reads for one connection in one turn, at least 1. Default 16.
    pub receives_per_turn: u32,
    /// Connections accepted for one listener in one turn, at least 1. Default 64.
    pub accepts_per_turn: u32,
    /// Datagrams taken from one socket in one turn, at least 1. Default 64.
    pub datagrams_per_turn: u32,
    /// How long a wait lasts at least, so that it ends with more than the first event. Default zero: not at all.
    pub coalesce: Duration,
}

impl Default for EpollSettings {
    fn default() -> Self {
        Self {
            connections: 1024,
            listeners: 16,
            events: 512,
            receives_per_turn: 16,
            accepts_per_turn: 64,
            datagrams_per_turn: 64,
            coalesce: Duration::ZERO,
        }
    }
}

/// The engine, on an epoll instance `P` and the socket calls `K`. See the module's page.
#[derive(Debug)]
pub struct EpollEngine<P, K> {
    kernel: P,
    system: K,
    settings: EpollSettings,
    /// Whether waits coalesce, if they may.
    coalesces: bool,
    connections: SlotTable<Connection>,
    listeners: SlotTable<Listener>,
    datagrams: SlotTable<DatagramSocket>,
    scratch: Scratch,
    /// Sockets with an operation that can go on, oldest first, but for those that had no slot in their turn.
    runnable: VecDeque<Key>,
    /// How many of those belong to this turn.
    share: usize,
    /// Completions of operations that ended when they were submitted or cancelled.
    ready: VecDeque<Completion>,
    /// Listeners that may have to be unregistered before the kernel is asked.
    idle_listeners: Vec<Key>,
    events: Box<[ReadyEvent]>,
    /// Whether the last turn left out asking the kernel.
    left_out: bool,
    /// Whether the last turn asked the kernel, and was told so little that there is hardly more: nothing, or of one socket.
    last_wait_was_small: bool,
    /// Operations that had been submitted when the kernel was asked last.
    submitted_before: u64,
    enter_sizes: EnterSizes,
    counters: Arc<LiveCounters>,
}

impl<P: EpollSys, K: SocketSys> EpollEngine<P, K> {
    /// An engine with an epoll instance of its own, on any thread.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)`.
    pub fn new(settings: EpollSettings, system: K) -> Result<Self, Errno> {
        let slots = settings.connections as usize + settings.listeners as usize;
        Ok(Self {
            kernel: P::create()?,
            system,
            connections: SlotTable::with_capacity(settings.connections),
            listeners: SlotTable::with_capacity(settings.listeners),
            datagrams: SlotTable::default(),
            scratch: Scratch::default(),
            runnable: VecDeque::with_capacity(slots),
            share: 0,
            ready: VecDeque::with_capacity(slots),
            idle_listeners: Vec::with_capacity(settings.listeners as usize),
            events: vec![ReadyEvent { events: 0, u64: 0 }; settings.events.max(1) as usize]
                .into_boxed_slice(),
            left_out: false,
            last_wait_was_small: false,
            submitted_before: 0,
            enter_sizes: EnterSizes::default(),
            counters: Arc::default(),
            settings,
            coalesces: true,
        })
    }

    /// Notes what an event says.
    fn note(&mut self, event: ReadyEvent) {
        let key = Key::from_bits(event.u64);
        if key == Key::WAKE {
            self.ready.push_back(Completion::Woken);
        } else if key.is_connection() {
            self.note_connection(key, event.events);
        } else if key.is_listener() {
            self.note_listener(key);
        } else {
            self.note_datagram(key, event.events);
        }
    }

    /// Asks the kernel for events and notes them.
    fn poll(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        self.counters.system_calls.add(1);
        self.counters.enters.add(1);
        let submissions = self.counters.submissions.get();
        let submitted = submissions - std::mem::replace(&mut self.submitted_before, submissions);
        self.enter_sizes.count(&self.counters, submitted);
        let count = match self.kernel.wait(&mut self.events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => {
                // What there may be was not looked at, and who watches the instance may have been told of it already.
                self.last_wait_was_small = false;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.last_wait_was_small = match self.events[..count] {
            [] => true,
            [event] => self.events.len() > 1 && Key::from_bits(event.u64).is_edge_triggered(),
            _ => false,
        };
        for index in 0..count {
            self.note(self.events[index]);
        }
        Ok(())
    }

    /// Has the kernel tell when a registered connection or datagram socket has room to send, or no longer.
    fn watch_room(&mut self, key: Key, watched: bool) -> Result<(), Errno> {
        let slot = key.slot();
        let (descriptor, was_watched, events) = if key.is_connection() {
            let connection = self.connections.get(slot);
            let was_watched = &mut connection.watched_for_room;
            (connection.descriptor, was_watched, stream::WATCHED)
        } else {
            let socket = self.datagrams.get(slot);
            (socket.descriptor, &mut socket.watched_for_room, datagram::WATCHED)
        };
        if *was_watched == watched {
            return Ok(());
        }
        let events = if watched { events | ROOM } else { events };
        self.counters.system_calls.add(1);
        self.kernel.modify(descriptor, events, key.to_bits())?;
        *was_watched = watched;
        Ok(())
    }

    /// A socket has told of room, and nobody waits for it.
    #[cold]
    fn stop_watching_room(&mut self, key: Key) {
        // Where it fails the socket goes on to tell, which costs time and nothing else.
        let _ = self.watch_room(key, false);
    }

    fn cancel(&mut self, handle: Handle, kind: Kind) {
        let ended = match (handle, kind) {
            (Handle::Listener(slot), Kind::Accept) => self.cancel_accept(slot),
            (Handle::Connection(slot), Kind::Connect) => {
                let connection = self.connections.get(slot);
                std::mem::take(&mut connection.connecting).then_some(Completion::Connected {
                    connection: slot,
                    result: Err(Errno::ECANCELED),
                })
            }
            (Handle::Connection(slot), Kind::Receive) => {
                let connection = self.connections.get(slot);
                (std::mem::take(&mut connection.budget) > 0).then_some(Completion::Received {
                    connection: slot,
                    received: Received::Stopped,
                    more: false,
                })
            }
            (Handle::Connection(slot), Kind::Send) => self.end_send(slot, Err(Errno::ECANCELED)),
            (Handle::Datagram(slot), Kind::Receive) => {
                let socket = self.datagrams.get(slot);
                std::mem::take(&mut socket.receiving).then_some(Completion::DatagramReceived {
                    socket: slot,
                    received: DatagramReceived::Stopped,
                    more: false,
                })
            }
            (Handle::Datagram(slot), Kind::Send) => self.cancel_datagrams(slot),
            (Handle::Listener(_), _)
            | (Handle::Datagram(_), Kind::Accept | Kind::Connect)
            | (Handle::Connection(_), Kind::Accept) => None,
        };
        self.ready.extend(ended);
    }

    fn close(&mut self, handle: Handle, descriptor: OwnedFd) {
        match handle {
            Handle::Connection(slot) => {
                let connection = self.connections.get(slot);
                debug_assert!(!connection.is_busy(), "close comes after everything else");
                // Closing the socket's last descriptor unregisters it. Where a duplicate keeps it open, its
                // edges go on to arrive, name a past use of the slot, and are dropped.
                connection.forget();
            }
            Handle::Listener(slot) => self.forget_listener(slot),
            Handle::Datagram(slot) => self.datagrams.get(slot).forget(),
        }
        self.counters.system_calls.add(1);
        self.kernel.close(descriptor);
    }
}

/// Whether nothing more comes of the operation.
fn is_terminal(completion: &Completion) -> bool {
    match completion {
        Completion::Accepted { more, .. }
        | Completion::Received { more, .. }
        | Completion::DatagramsFilled { more, .. }
        | Completion::DatagramReceived { more, .. } => !more,
        Completion::Connected { .. } | Completion::Sent { .. } | Completion::DatagramsSent { .. } => true,
        Completion::Released { .. } | Completion::Woken => false,
    }
}

impl<P: EpollSys, K: SocketSys> Engine for EpollEngine<P, K> {
    fn kind(&self) -> EngineKind {
        EngineKind::Epoll
    }

    fn bind(&mut self, wake: RawFd, _pool: &mut Pool) -> Result<(), Errno> {
        self.counters.system_calls.add(1);
        // Edge-triggered, and never read: each write to it is an edge.
        self.kernel
            .add(wake, bits(libc::EPOLLIN | libc::EPOLLET), Key::WAKE.to_bits())
    }

    fn submit(&mut self, operation: Operation, _pool: &mut Pool) {
        if !matches!(operation, Operation::Cancel { .. } | Operation::Close { .. }) {
            self.counters.in_flight.add(1);
        }
        self.counters.submissions.add(1);
        match operation {
            Operation::Accept {
                listener,
                descriptor,
                limit,
            } => self.submit_accept(listener, descriptor, limit),
            Operation::Connect {
                connection,
                descriptor,
                address,
            } => self.submit_connect(connection, descriptor, &address),
            Operation::Receive {
                connection,
                descriptor,
                budget,
                waited,
            } => self.submit_receive(connection, descriptor, budget, waited),
            Operation::Discard {
                connection,
                descriptor,
            } => self.submit_discard(connection, descriptor),
            Operation::Send {
                connection,
                descriptor,
                message,
                mode: _,
            } => self.submit_send(connection, descriptor, message.into()),
            Operation::SendFile {
                connection,
                descriptor,
                file,
                offset,
                length,
            } => self.submit_send(connection, descriptor, Outgoing::File { file, offset, length }),
            Operation::ReceiveDatagrams { socket } => self.start_datagrams(socket),
            Operation::Cancel { handle, kind } => self.cancel(handle, kind),
            Operation::Close { handle, descriptor } => self.close(handle, descriptor),
        }
    }

    #[inline]
    fn sends_at_once(&self, _bytes: usize, _offered: bool) -> bool {
        true
    }

    fn send_at_once(
        &mut self,
        connection: Slot,
        descriptor: RawFd,
        message: &mut Message,
    ) -> Option<Result<usize, Errno>> {
        self.send_message_at_once(connection, descriptor, message)
    }

    fn open_datagrams(
        &mut self,
        socket: Slot,
        descriptor: RawFd,
        control: u32,
        buffers: u16,
    ) -> Result<(), Errno> {
        self.prepare_datagrams(socket, descriptor, control, buffers)
    }

    #[inline]
    fn provide_datagram_buffers(&mut self, socket: Slot, pool: &mut Pool, count: usize, length: u32) {
        let buffers = &mut self.datagrams.get(socket).buffers;
        buffers.extend((0..count).map_while(|_| ProvidedBuffer::take(pool, length)));
    }

    fn send_datagrams(
        &mut self,
        socket: Slot,
        batch: Box<DatagramBatch>,
        manner: SendManner,
        _pool: &mut Pool,
    ) -> Option<Box<DatagramBatch>> {
        self.counters.submissions.add(1);
        self.submit_datagrams(socket, batch, manner)
    }

    fn may_sleep(&self) -> bool {
        self.ready.is_empty() && self.runnable.is_empty()
    }

    fn wait(&mut self, timeout: Option<Duration>, _pool: &mut Pool) -> Result<(), Errno> {
        let at_hand = !self.may_sleep();
        self.left_out = at_hand && !self.left_out;
        self.last_wait_was_small = false;
        if !self.left_out {
            if !self.idle_listeners.is_empty() {
                self.unregister_idle_listeners();
            }
            let timeout = if at_hand {
                Some(Duration::ZERO)
            } else if !self.coalesces {
                timeout
            } else {
                sleep_to_coalesce(
                    &self.system,
                    self.settings.coalesce,
                    timeout,
                    &self.counters.system_calls,
                )
            };
            self.poll(timeout)?;
        }
        self.share = self.runnable.len();
        Ok(())
    }

    fn coalesce(&mut self, on: bool) {
        self.coalesces = on;
    }

    fn poll_descriptor(&self) -> Option<PollDescriptor> {
        Some(PollDescriptor::Own(self.kernel.descriptor()))
    }

    /// Only once the kernel was asked and had next to nothing: as long as there is much each time, asking costs one call a
    /// round, where a wait in the poller and then asking cost two. After a wait that was told of one socket, and had room to
    /// be told of more, nothing is left in the instance: whatever comes makes it readable, also for a poller that is told
    /// of edges.
    fn park(&mut self, _trigger: Trigger, _pool: &mut Pool) -> bool {
        self.last_wait_was_small && self.may_sleep() && self.idle_listeners.is_empty()
    }

    fn reap(&mut self, pool: &mut Pool, limit: usize, completions: &mut Completions) -> bool {
        let (start, listed) = (completions.len(), completions.list.len());
        // What these cost was paid when they were submitted, and there are no more than operations: they count towards no
        // limit, or sends that always end at once would keep all receives waiting.
        if !self.ready.is_empty() {
            self.ready
                .drain(..)
                .for_each(|completion| completions.push(completion));
        }
        let mut uncounted = completions.len();
        while completions.len() - uncounted < limit && self.share > 0 {
            self.share -= 1;
            let Some(key) = self.runnable.pop_front() else {
                unreachable!("a turn's share is taken from the list and from nowhere else");
            };
            if key.is_connection() {
                let before = completions.len();
                if self.run_connection(key, pool, completions) {
                    // There are no more than slots. They come first, and as many in each turn as the limit has would keep
                    // those waiting that are behind them and have not waited for a slot yet.
                    uncounted += completions.len() - before;
                }
            } else if key.is_listener() {
                self.run_listener(key, completions);
            } else {
                self.run_datagram(key, completions);
            }
        }
        self.counters.completions.add((completions.len() - start) as u64);
        let terminal = completions.list[listed..]
            .iter()
            .filter(|completion| is_terminal(completion));
        self.counters.in_flight.subtract(terminal.count() as u64);
        self.share > 0
    }

    fn receivable(&self, pool: &Pool) -> usize {
        pool.free()
    }

    fn accept_margin(&self) -> u32 {
        0
    }

    fn wants_nonblocking(&self) -> bool {
        true
    }

    /// The kernel holds no memory of anyone's between two calls, so this only ends what is outstanding.
    fn quiesce(&mut self, _pool: &mut Pool, _patience: Duration, _now: &dyn Fn() -> Time) -> bool {
        for slot in self.listeners.slots() {
            self.cancel(Handle::Listener(slot), Kind::Accept);
        }
        for slot in self.connections.slots() {
            for kind in [Kind::Connect, Kind::Receive, Kind::Send] {
                self.cancel(Handle::Connection(slot), kind);
            }
        }
        for slot in self.datagrams.slots() {
            for kind in [Kind::Receive, Kind::Send] {
                self.cancel(Handle::Datagram(slot), kind);
            }
        }
        true
    }

    fn counters(&self) -> &Arc<LiveCounters> {
        &self.counters
    }
}
