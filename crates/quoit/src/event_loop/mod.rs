//! The loop: all connection logic, above whichever engine moves the bytes.
//!
//! [`Loop`] holds what is common; each file beside this adds one concern: `commands` what may be asked,
//! `accept` listeners, `stop_listening` their end, `receive` and `send` the two directions, `flush` what leaves, `direct` what
//! other threads send, `memory` each connection's share of it, `water_marks` how much may be queued, `inspect` those of which
//! nothing is heard, `teardown` how connections end, `datagram` datagram sockets, `turn` the turn, `spin` waiting awake, `park`
//! waiting elsewhere, `report` handing events over. `connection`, `table` and `event_queue` are what these work on.

mod accept;
mod chunk_waiters;
mod coalescing;
mod commands;
mod connection;
mod datagram;
mod direct;
mod event_queue;
mod flush;
mod inspect;
mod memory;
mod park;
mod receive;
mod report;
mod send;
mod spin;
mod spread;
mod stop_listening;
mod table;
mod teardown;
mod turn;
mod water_marks;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::address::Address;
use crate::config::Config;
use crate::counters::{Counters, LiveCounters};
use crate::engine::{Completions, Engine, EngineKind, Gather, Handle, Kind, Operation, PollDescriptor};
use crate::event::CloseReason;
use crate::id::{ConnectionId, DatagramSocketId, ListenerId, LoopIndex, Slot, Token};
use crate::listen::ListenSocket;
use crate::remote::Remote;
use crate::selected::AnyEngine;
use crate::sys::{Linux, SocketSys, Time};
use crate::thread::ThreadNumber;
use crate::timers::{TimerId, Wheel};

use chunk_waiters::ChunkWaiters;
use coalescing::Coalescing;
use connection::Connection;
use direct::DirectSends;
use event_queue::EventQueue;
use memory::Memory;
use table::Table;
use water_marks::Promised;

pub use accept::{Accept, ListenerOptions};
pub use memory::LoopMemory;
pub use park::NotPollable;
pub(crate) use report::Fate;
pub use turn::TurnError;

/// Room in the lists that a turn fills, from the start: what a turn ordinarily needs.
const FIRST_ENTRIES: usize = 128;

/// What a timer of the wheel is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimerKey {
    /// The handler's deadline for a connection.
    Deadline(ConnectionId),
    /// The limit of an attempt or of a graceful close.
    Limit(ConnectionId),
    /// A listener's back-off is over.
    Accept(ListenerId),
    /// The handler's timer.
    Timer(Token),
    /// The limit of a datagram socket's close.
    DatagramLimit(DatagramSocketId),
    /// Receiving on a datagram socket is tried again.
    DatagramRetry(DatagramSocketId),
    /// Draining has taken long enough.
    Drain,
    /// Connections of which nothing is heard are looked after.
    Inspection,
}

impl TimerKey {
    /// Whether it was set by the handler, and not by the loop for itself.
    fn is_handlers(self) -> bool {
        matches!(self, Self::Deadline(_) | Self::Timer(_))
    }
}

/// One loop: connections, listeners and timers that one thread serves.
///
/// A loop is made on any thread and belongs to the one that makes its first [`turn`](Loop::turn); later turns
/// from another thread are refused. Its methods only queue what the next turn does, so call them between turns
/// or from a [`Handler`](crate::Handler). Other threads reach it through its [`Remote`].
///
/// Drop it on its thread, or on any other after that thread has ended: the kernel must be done with the loop's
/// memory before it is freed, and where that cannot be made sure the memory is leaked instead.
///
/// The type parameters are the engine and the kernel's calls; leave them at their defaults. Others are for
/// simulation.
#[derive(Debug)]
pub struct Loop<E: Engine = AnyEngine, K: SocketSys = Linux> {
    index: LoopIndex,
    config: Config,
    memory: Memory,
    engine: E,
    engine_reason: String,
    system: K,
    owner: Option<ThreadNumber>,
    now: Time,
    waited_until: Option<Time>,

    connections: Table<Connection>,
    listeners: Table<accept::Listener>,
    datagrams: Table<datagram::State>,
    /// Datagram sockets with something to send.
    dirty_datagrams: Vec<Slot>,
    /// When the kernel's counts of dropped datagrams are looked at again.
    look_at_drops_from: Time,
    /// Accepted sockets, here or by another loop, for which this one's own connections had taken the slots meanwhile.
    surplus_accepted: VecDeque<(ListenerId, std::os::fd::OwnedFd)>,
    timers: Wheel<TimerKey>,
    /// Room for those that are due.
    due_timers: Vec<TimerKey>,
    named_timers: HashMap<Token, TimerId>,
    /// Timers of the handler's that are set, which alone are limited by the configuration.
    handlers_timers: u32,

    /// Events not yet reported.
    events: EventQueue,
    /// Connections of which the last turn reported the end of stream.
    reported_ends: Vec<ConnectionId>,
    completions: Completions,
    more_completions: bool,
    /// Whether sleeps coalesce, where the mode allows it.
    coalescing: Option<Coalescing>,
    /// Whether sleep outside is announced.
    parked: bool,
    /// What a poller outside waits on, if the loop was made for one.
    poll_descriptor: Option<PollDescriptor>,
    /// Whether there was a wake that no turn has followed up yet.
    notified: bool,
    /// Operations from before the first turn.
    early: Vec<Operation>,
    /// Connections with something to send.
    dirty: Vec<Slot>,
    /// What threads share that send by themselves.
    direct: DirectSends,
    /// Connections whose receive waits for pool slots, first come, first served.
    starved: VecDeque<ConnectionId>,
    /// Connections accepted since all completions were taken last.
    accepts_behind: u32,
    /// Bytes queued for sending, of each connection no more than its high-water mark.
    queue_load: u64,
    chunk_waiters: ChunkWaiters,
    /// Those that were told of them, in the order of their events.
    promised: VecDeque<Promised>,
    /// Connections that hold all the leases they may.
    capped: u32,
    /// Those of them that hold their share of the memory, first come, first looked at again.
    short: VecDeque<ConnectionId>,
    /// The next [inspection](inspect), if there is to be one.
    inspection: Option<TimerId>,
    pressure_reported: bool,
    #[expect(
        clippy::vec_box,
        reason = "operations take them boxed: the kernel reads them in place"
    )]
    spare_gathers: Vec<Box<Gather>>,

    draining: Draining,
    /// The engine's too.
    counters: Arc<LiveCounters>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Draining {
    No,
    /// Connections may go on until then.
    Until {
        end: Time,
        timer: Option<TimerId>,
    },
    /// Whatever is left or comes is aborted.
    Overdue,
    Done,
}

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// A loop over an engine that was made with this `memory`.
    ///
    /// # Panics
    /// If the configuration is not valid, or wants a pollable loop of an engine that was not made for a poller.
    #[doc(hidden)]
    pub fn with_engine(
        index: LoopIndex,
        config: Config,
        memory: LoopMemory,
        engine: E,
        engine_reason: String,
        system: K,
    ) -> Self {
        assert_eq!(config.validate(), Ok(()));
        let poll_descriptor = engine.poll_descriptor().filter(|_| config.pollable);
        assert!(
            !config.pollable || poll_descriptor.is_some(),
            "the engine of a pollable loop is made for a poller"
        );
        let now = system.now();
        let counters = Arc::clone(engine.counters());
        let direct = DirectSends::new(engine.kind());
        counters.pool_slots.set(config.receive_slots.into());
        memory.remote.show_counters(Arc::clone(&counters));
        Self {
            index,
            memory: Memory::new(memory.pool, memory.chunks, memory.remote),
            engine,
            engine_reason,
            system,
            owner: None,
            now,
            waited_until: None,
            connections: memory.tables.connections,
            listeners: memory.tables.listeners,
            datagrams: memory.tables.datagrams,
            dirty_datagrams: Vec::with_capacity(config.datagram_sockets as usize),
            look_at_drops_from: now + datagram::LOOK_AT_DROPS,
            surplus_accepted: VecDeque::new(),
            timers: memory.tables.timers,
            due_timers: Vec::new(),
            handlers_timers: 0,
            named_timers: HashMap::new(),
            events: EventQueue::with_capacity(FIRST_ENTRIES),
            reported_ends: Vec::new(),
            completions: Completions::with_capacity(config.completions_per_turn as usize),
            more_completions: false,
            coalescing: Some(config.wait.coalesces())
                .filter(|time| !time.is_zero())
                .map(|time| Coalescing::new(time, now)),
            parked: false,
            poll_descriptor,
            notified: false,
            early: Vec::new(),
            dirty: Vec::with_capacity(FIRST_ENTRIES),
            direct,
            starved: VecDeque::new(),
            accepts_behind: 0,
            queue_load: 0,
            chunk_waiters: ChunkWaiters::default(),
            promised: VecDeque::new(),
            capped: 0,
            short: VecDeque::new(),
            inspection: None,
            pressure_reported: false,
            spare_gathers: Vec::new(),
            draining: Draining::No,
            counters,
            config,
        }
    }

    /// The number that this loop's ids carry.
    #[must_use]
    pub fn index(&self) -> LoopIndex {
        self.index
    }

    /// Which engine runs.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.engine.kind()
    }

    /// Why this engine runs: what was asked for, or what io_uring lacks here and the remedy. One line.
    #[must_use]
    pub fn engine_reason(&self) -> &str {
        &self.engine_reason
    }

    /// Says what the runtime knows better: that it was another loop's ring that could not be made.
    pub(crate) fn set_engine_reason(&mut self, reason: String) {
        self.engine_reason = reason;
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The handle for other threads. Cheap to clone; outlives the loop.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote::new(Arc::clone(&self.memory.remote))
    }

    /// The time at which the present turn's events were taken in.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Connections that exist, those being made or closed included.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.len()
    }

    /// The ids of the connections that exist, in no particular order.
    pub fn connection_ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.connections
            .slots()
            .map(|(slot, generation)| ConnectionId::new(self.index, slot, generation))
    }

    /// The local address of a connection (`getsockname(2)`), or `None` if the id is stale.
    #[must_use]
    pub fn local_address(&self, connection: ConnectionId) -> Option<Address> {
        let socket = self.descriptor(connection)?;
        self.system
            .local_address(socket)
            .ok()
            .and_then(|address| Address::try_from(&address).ok())
    }

    /// The peer's address, also of one that has reset the connection; `None` if the id is stale.
    #[must_use]
    pub fn peer_address(&self, connection: ConnectionId) -> Option<Address> {
        let socket = self.descriptor(connection)?;
        self.system
            .peer_address(socket)
            .ok()
            .and_then(|address| Address::try_from(&address).ok())
    }

    /// A connection's socket, for options and names; do not read, write or close it. `None` if the id is stale.
    #[must_use]
    pub fn descriptor(&self, connection: ConnectionId) -> Option<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.look_up(connection)?.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// The counters as of now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.note_gauges();
        self.memory.remote.counters()
    }

    /// Notes the figures that are kept elsewhere and go up and down.
    fn note_gauges(&self) {
        let Memory { pool, chunks, .. } = &self.memory;
        self.counters.connections.set(self.connections.len().into());
        self.counters.pool_leased.set(pool.leased().into());
        self.counters.pool_low_water.set(pool.low_water().into());
        self.counters.send_chunks_used.set(chunks.used().into());
        self.counters.leases_copied_now.set(pool.copied().into());
    }

    /// Hands an operation to the engine, or keeps it for the first turn: a ring accepts nothing before it has
    /// an owner.
    fn submit(&mut self, operation: Operation) {
        if self.owner.is_some() {
            let memory = &mut self.memory;
            self.engine.submit(operation, &mut memory.pool);
        } else {
            self.early.push(operation);
        }
    }

    fn cancel(&mut self, handle: Handle, kind: Kind) {
        self.submit(Operation::Cancel { handle, kind });
    }

    /// Sets a timer; `None` if the handler has as many as it may. The wheel has room for all of the loop's own.
    fn set_timer(&mut self, after: Duration, key: TimerKey) -> Option<TimerId> {
        if key.is_handlers() && self.handlers_timers >= self.config.timer_limit() {
            return None;
        }
        // The cached time is that of the last wait; a handler that computes for long would set its timers short.
        let now = self.system.now();
        let timer = self.timers.insert(now, now + after, key);
        self.handlers_timers += u32::from(timer.is_some() && key.is_handlers());
        timer
    }

    fn clear_timer(&mut self, timer: Option<TimerId>) {
        if let Some(timer) = timer
            && let Some(key) = self.timers.cancel(timer)
        {
            self.handlers_timers -= u32::from(key.is_handlers());
        }
    }

    /// The connections that are left end with the loop, and of what goes up and down nothing is left: its remotes go on to tell.
    fn count_rest(&self) {
        for (slot, generation) in self.connections.slots() {
            let connection = self.connections.get(slot, generation);
            let reason = connection.and_then(|connection| connection.reason);
            self.count_close(reason.unwrap_or(CloseReason::Local));
        }
        self.memory.remote.set_connections(0);
        let counters = &self.counters;
        for gauge in [
            &counters.connections,
            &counters.pool_leased,
            &counters.leases_copied_now,
            &counters.queued_bytes,
            &counters.send_chunks_used,
        ] {
            gauge.set(0);
        }
    }

    fn count_close(&self, reason: CloseReason) {
        let counter = match reason {
            CloseReason::Local => &self.counters.closed_local,
            CloseReason::PeerClosed => &self.counters.closed_peer,
            CloseReason::Reset => &self.counters.closed_reset,
            CloseReason::Timeout => &self.counters.closed_timeout,
            CloseReason::Limit => &self.counters.closed_limit,
            CloseReason::Error(_) => &self.counters.closed_error,
        };
        counter.add(1);
    }

    /// The listening sockets of this loop, with their addresses.
    pub fn listeners(&self) -> impl Iterator<Item = (ListenerId, &ListenSocket)> {
        self.listeners.slots().filter_map(|(slot, generation)| {
            let listener = self.listeners.get(slot, generation)?;
            Some((ListenerId::new(self.index, slot, generation), listener.socket()?))
        })
    }
}

impl<E: Engine, K: SocketSys> Drop for Loop<E, K> {
    fn drop(&mut self) {
        self.memory.remote.close();
        self.count_rest();
        self.direct.end();
        self.datagrams
            .values_mut()
            .for_each(|socket| socket.end_lending());
        let on_owner = self.owner.is_none_or(|owner| owner == ThreadNumber::current());
        let patience = if on_owner {
            Duration::from_secs(5)
        } else {
            Duration::ZERO
        };
        let system = &self.system;
        if self
            .engine
            .quiesce(&mut self.memory.pool, patience, &|| system.now())
        {
            self.counters.in_flight.set(0);
        } else {
            // The kernel may still use this memory: it must never be freed. Descriptors are no memory: closed, or
            // their peers would wait for ever.
            let mut connections = std::mem::replace(&mut self.connections, Table::none());
            connections
                .values_mut()
                .for_each(|connection| drop(connection.descriptor.take()));
            let mut datagrams = std::mem::replace(&mut self.datagrams, Table::none());
            datagrams.values_mut().for_each(datagram::State::close_descriptor);
            self.memory.leak();
            std::mem::forget(connections);
            std::mem::forget(datagrams);
            std::mem::forget(std::mem::take(&mut self.completions));
        }
    }
}
