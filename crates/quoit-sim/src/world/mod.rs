//! One run: a loop under test, a handler that does whatever the seed says, and the reference beside them.

mod end;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use quoit::internals::LoopMemory;
use quoit::internals::engine::Engine;
use quoit::internals::engine::epoll::{EpollEngine, EpollSettings};
use quoit::{
    Accept, CloseReason, Command, Config, ConnectionId, Counters, Delivery, EngineKind, Errno, Event, Events,
    Lease, ListenOptions, ListenerId, ListenerOptions, Loop, LoopIndex, Refusal, Remote, Token,
};
use quoit_sim_kernel::faces::{SimEpoll, SimSockets};
use quoit_sim_kernel::kernel::{Outside, do_jobs, wait_outside, with};
use quoit_sim_kernel::pattern;
use quoit_sim_kernel::random::Random;

use crate::checks::{Kept, check_end_of_stream, check_send_error, transfers_lack_memory};
use crate::datagrams::{DatagramLives, KeptDatagrams};
use crate::options::Options;
use crate::partner::Partner;
use crate::plan::{Accepted, Plan};
use crate::reference::{Connection, Reference};
use crate::sim_loop::SimLoop;
use crate::style::Style;

/// A turn that took longer has slept, in nanoseconds.
const SLEEP: u64 = 100_000;
/// Turns in a row that might have slept and did not, and brought no event and no byte, after which the loop spins.
const IDLE_TURNS: u32 = 150;
/// Turns that waited, and left nothing to do, after which nothing may be queued any more for a socket that takes no more.
const FAILED_TURNS: u32 = 10;

/// The run.
pub struct World<E: Engine> {
    pub(crate) random: Random,
    /// For sends of pieces at once, which not all runs have.
    pub(crate) gather_random: Random,
    /// What is drawn for files that are too short.
    pub(crate) file_random: Random,
    /// For pausing listeners, which not all runs do.
    pub(crate) listening_random: Random,
    pub(crate) plan: Plan,
    pub(crate) event_loop: SimLoop<E>,
    pub(crate) remote: Remote,
    /// The second loop, if there is one.
    partner: Option<Rc<RefCell<Partner<E>>>>,
    /// Of a loop that has ended.
    ended_loop: Remote,
    /// Another thread has woken the loop, and it has not said so yet.
    pub(crate) wake_owed: Rc<Cell<bool>>,
    pub(crate) reference: Reference,
    pub(crate) kept: VecDeque<Kept>,
    pub(crate) datagrams: DatagramLives,
    pub(crate) listeners: Vec<ListenerId>,
    /// Those that are still to be connected from here, the last first: the turn and the peer.
    connects: Vec<(u32, usize)>,
    /// The life that each peer is.
    pub(crate) styles: Vec<Style>,
    pub(crate) next_token: u64,
    /// In place of a mark of what is lent and tells nobody when it is let go of.
    pub(crate) always_free: Arc<AtomicBool>,
    /// For the next turn.
    pub(crate) batch: Vec<Command<'static>>,
    /// Not here while a turn's are handled.
    events: Option<Events>,
    /// Room for what they give reason to.
    occasions: Vec<Occasion>,
    /// Everything is being closed.
    pub(crate) ending: bool,
    /// Each turn may tell of all that there is: whoever takes few events is flooded by nobody else.
    pub(crate) tells_all: bool,
    turns: u32,
    idle_turns: u32,
    last_time: u64,
    last_bytes: u64,
    last_waits: u64,
}

/// Something for the handler to react to.
pub(crate) enum Occasion {
    Data(Kept),
    Datagrams(KeptDatagrams),
    DatagramPressure,
    End(ConnectionId),
    Descriptor(OwnedFd),
    Pressure,
    Any(ConnectionId),
}

fn is_of_datagrams(event: &Event) -> bool {
    matches!(
        event,
        Event::DatagramOpened { .. }
            | Event::Datagrams { .. }
            | Event::DatagramSent { .. }
            | Event::DatagramError { .. }
            | Event::DatagramWritable { .. }
            | Event::DatagramPressure { .. }
            | Event::DatagramClosed { .. }
            | Event::DatagramRefused { .. }
    )
}

/// Looks whether a peer that reads was cut off: a graceful close lasts as long as it takes something.
fn check_not_cut(id: ConnectionId, state: &Connection, reason: CloseReason, limit: Duration) {
    let (true, CloseReason::Timeout, Some(peer)) = (state.notes.closed_patiently, reason, state.notes.peer)
    else {
        return;
    };
    with(|kernel| {
        let peer = &kernel.peers[peer];
        let idle = peer.idle_when_reset.unwrap_or(u64::MAX);
        assert!(
            peer.broke_off || peer.received_at == 0 || idle >= limit.as_nanos() as u64,
            "{id:?} was closed for as long as its peer takes something, and cut {idle} ns after it had"
        );
    });
}

/// Looks at how a connection ended.
fn check_closed(id: ConnectionId, state: &Connection, reason: CloseReason, hard_limit: bool) {
    // A peer that was lost earlier may be found so only now, by an error that is a timeout too: the kernel's.
    let broke_off = state
        .notes
        .peer
        .is_some_and(|peer| with(|kernel| kernel.peers[peer].broke_off));
    assert!(
        !state.notes.closed_fairly || reason != CloseReason::Timeout || broke_off,
        "{id:?} was closed with nothing in the way, and timed out"
    );
    // What has another way to go, or room later, is no reason.
    let for_want = matches!(reason, CloseReason::Error(Errno::ENOBUFS | Errno::ENOMEM));
    let lacks_memory = transfers_lack_memory();
    assert!(
        !for_want || lacks_memory,
        "{id:?} was closed for want of memory, of which there was enough"
    );
    // Whoever breaks it, and whatever is sent meanwhile: what had arrived is the handler's. A receive that fails for want of
    // memory ends it, too, and so does a hard limit of leases, for the reason that it had already.
    let by_peer = match reason {
        CloseReason::Reset | CloseReason::Timeout => true,
        CloseReason::Error(errno) => errno.code() == libc::EHOSTUNREACH,
        _ => false,
    };
    let is_ended_here =
        state.closing || state.notes.may_be_closing || !state.established || lacks_memory || hard_limit;
    if let Some(peer) = state.notes.peer.filter(|_| by_peer && !is_ended_here) {
        let sent = with(|kernel| kernel.peers[peer].sent);
        assert_eq!(
            state.notes.received, sent,
            "{id:?} was ended by its peer ({reason}), and not all was delivered that had arrived"
        );
    }
    // An attempt to connect that is given up may have succeeded already, and its peer sees the end of nothing.
    if let Some(peer) = state.notes.peer.filter(|_| !state.established) {
        with(|kernel| kernel.peers[peer].excused = true);
    }
}

/// The handle of a loop that has ended, which outlives it and takes nothing.
fn ended_loop() -> Remote {
    let index = LoopIndex::new(1).expect("there can be two loops");
    let config = Config {
        connections: 1,
        listeners: 1,
        datagram_sockets: 1,
        receive_slots: 1,
        receive_slot_size: 64,
        send_pieces: 1,
        send_chunks: 1,
        inbox: 1,
        ..Config::default()
    };
    let memory = LoopMemory::new(index, &config).expect("eventfds are to be had");
    let engine = EpollEngine::<SimEpoll, _>::new(EpollSettings::default(), SimSockets)
        .expect("instances are to be had");
    Loop::with_engine(index, config, memory, engine, String::new(), SimSockets).remote()
}

/// What a run came to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Summary {
    /// Turns of the loop.
    pub turns: u64,
    /// Connections that closed.
    pub lives: u64,
    /// Bytes delivered, and sent.
    pub bytes: u64,
    /// Virtual nanoseconds.
    pub time: u64,
}

impl<E: Engine + 'static> World<E> {
    /// Makes the loop and its surroundings in the installed kernel.
    pub fn new(options: &Options, plan: Plan, make: impl Fn(&Plan, &mut LoopMemory) -> E) -> Self {
        let make_loop = |index| {
            let mut memory = LoopMemory::new(index, &plan.config).expect("eventfds are to be had");
            let engine = make(&plan, &mut memory);
            let config = plan.config.clone();
            Loop::with_engine(index, config, memory, engine, String::new(), SimSockets)
        };
        let event_loop = make_loop(LoopIndex::default());
        let remote = event_loop.remote();
        let wake_owed = Rc::default();
        let partner = plan.partner.then(|| {
            let index = LoopIndex::new(2).expect("there can be three loops");
            let event_loop = make_loop(index);
            Partner::start(event_loop, options.seed, remote.clone(), Rc::clone(&wake_owed))
        });
        let ended_loop = ended_loop();
        let mut world = Self {
            random: Random::new(options.seed, 3),
            gather_random: Random::new(options.seed, 235),
            file_random: Random::new(options.seed, 243),
            listening_random: Random::new(options.seed, 281),
            event_loop: SimLoop::new(event_loop),
            remote,
            partner,
            ended_loop,
            wake_owed,
            reference: Reference::default(),
            kept: VecDeque::new(),
            datagrams: DatagramLives::new(options.seed, plan.datagrams.clone(), |number| {
                let number = plan.lives.len() + number;
                options.only.as_ref().is_none_or(|only| only.contains(&number))
            }),
            listeners: Vec::new(),
            connects: Vec::new(),
            styles: Vec::new(),
            next_token: 1,
            always_free: Arc::new(AtomicBool::new(true)),
            batch: Vec::new(),
            events: Some(Events::with_capacity(64)),
            occasions: Vec::new(),
            ending: false,
            tells_all: false,
            turns: 0,
            idle_turns: 0,
            last_time: 0,
            last_bytes: 0,
            last_waits: 0,
            plan,
        };
        world.listen();
        world.populate(options);
        world
    }

    fn listen(&mut self) {
        for (address, accepted, backlog) in self.plan.listeners.clone() {
            let accept = match accepted {
                Accepted::Connections => Accept::Connections,
                Accepted::Paused => Accept::Paused,
                Accepted::Descriptors => Accept::Descriptors,
                Accepted::Spread => {
                    let partner = self.partner.iter().map(|partner| partner.borrow().remote());
                    let own = [self.remote.clone(), self.ended_loop.clone()];
                    Accept::Spread(own.into_iter().chain(partner).collect())
                }
            };
            let options = ListenerOptions {
                listen: ListenOptions {
                    backlog,
                    ..ListenOptions::default()
                },
                accept,
                tell_failures: true,
                ..ListenerOptions::default()
            };
            // For want of descriptors there may be fewer.
            if let Ok(listener) = self.event_loop.listen(&address, &options) {
                self.listeners.push(listener);
            }
        }
        let room = self.plan.descriptors;
        with(|kernel| kernel.set_descriptor_room(room));
    }

    fn populate(&mut self, options: &Options) {
        for (number, life) in self.plan.lives.iter().enumerate() {
            if options.only.as_ref().is_some_and(|only| !only.contains(&number)) {
                continue;
            }
            let random = Random::new(options.seed, 5000 + number as u64);
            let peer = with(|kernel| kernel.add_peer(life.peer.clone(), random));
            self.styles.push(life.style);
            if let Some(turn) = life.connect_at {
                self.connects.push((turn, peer));
            }
        }
        self.connects.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// Runs it all.
    ///
    /// # Panics
    /// If anything is not as it must be.
    pub fn run(mut self) -> Summary {
        while self.turns < self.plan.turns {
            self.connect_some();
            self.act_at_random();
            self.act_with_datagrams(self.turns);
            let timeout = match self.random.below(4) {
                0 => Some(Duration::ZERO),
                1 => Some(Duration::from_nanos(self.random.magnitude(10_000_000))),
                _ => Some(Duration::from_secs(1)),
            };
            self.turn(timeout);
        }
        self.run_to_completion();
        if self.flood_members() {
            self.run_to_completion();
        }
        self.end()
    }

    fn connect_some(&mut self) {
        while let Some(&(turn, peer)) = self.connects.last()
            && turn <= self.turns
        {
            self.connects.pop();
            self.connect(peer);
        }
    }

    /// As much of a turn's wait as can be spent in a poller outside.
    fn park(&mut self, timeout: Option<Duration>) {
        let limit = if self.plan.edges {
            self.event_loop.park_edge_triggered()
        } else {
            self.event_loop.park()
        };
        let limit = limit.expect("the loop is pollable, and on its thread");
        let timeout = match (limit, timeout) {
            (Some(Duration::ZERO), _) => return,
            (Some(limit), Some(timeout)) => Some(limit.min(timeout)),
            (limit, timeout) => limit.or(timeout),
        };
        let descriptor = self
            .event_loop
            .poll_descriptor()
            .expect("the loop is pollable")
            .as_raw_fd();
        let outside = match self.event_loop.engine() {
            EngineKind::Uring if self.plan.edges => Outside::Writes(descriptor),
            EngineKind::Uring => Outside::Notifier(descriptor),
            EngineKind::Epoll => Outside::Instance(descriptor as usize),
        };
        let nanoseconds = |timeout: Duration| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        wait_outside(outside, timeout.map(nanoseconds), || false);
    }

    /// One turn, and what the handler makes of its events.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) {
        self.turns += 1;
        // Other threads also act while the loop is awake.
        if self.random.chance(500) {
            do_jobs();
        }
        let room = if self.tells_all {
            usize::from(u16::MAX)
        } else {
            self.random.magnitude(self.plan.events) as usize
        };
        let mut events = self.events.take().expect("put back by the last turn");
        events.set_capacity(room);
        let batch = std::mem::take(&mut self.batch);
        let mut wait = timeout;
        if self.plan.config.pollable && batch.is_empty() && timeout != Some(Duration::ZERO) {
            self.park(timeout);
            wait = Some(Duration::ZERO);
        }
        let count = match self.event_loop.turn(batch, &mut events, wait) {
            Ok(count) => count,
            Err(error) => panic!("the turn failed: {error}"),
        };
        let failure = with(|kernel| kernel.failure.take());
        if let Some(failure) = failure {
            panic!("{failure}");
        }
        self.datagrams.note_passed();
        self.watch_for_spinning(count, timeout != Some(Duration::ZERO));
        if !events.is_empty() {
            self.handle_events(&mut events);
        }
        self.events = Some(events);
        self.check_counters();
        self.watch_failed_sends();
    }

    /// Checks a turn's events, and does what the handler makes of them.
    fn handle_events(&mut self, events: &mut Events) {
        // All of a turn's events are true at its end, so all are checked before anything is done about any.
        let mut occasions = std::mem::take(&mut self.occasions);
        if self.plan.one_by_one {
            let mut delivery = Delivery::default();
            for event in events.drain() {
                if let Some(event) = delivery.admit(&mut self.event_loop, event) {
                    self.take(event, &mut occasions);
                    for occasion in occasions.drain(..) {
                        self.react(occasion);
                    }
                }
            }
            delivery.end(&mut self.event_loop);
        } else {
            for event in events.drain() {
                self.take(event, &mut occasions);
            }
            for occasion in occasions.drain(..) {
                self.react(occasion);
            }
        }
        self.occasions = occasions;
    }

    fn watch_for_spinning(&mut self, events: usize, may_sleep: bool) {
        let (now, bytes) =
            with(|kernel| (kernel.now(), kernel.taken + kernel.given + kernel.datagrams_moved));
        let slept = now - self.last_time > SLEEP;
        let moved = std::mem::replace(&mut self.last_bytes, bytes) != bytes;
        self.last_time = now;
        self.idle_turns = if events > 0 || slept || moved {
            0
        } else {
            self.idle_turns + u32::from(may_sleep)
        };
        assert!(
            self.idle_turns < IDLE_TURNS,
            "the loop spins: {IDLE_TURNS} turns without an event or a byte"
        );
    }

    /// Checks an event, and notes what the handler is to react to.
    fn take(&mut self, event: Event, occasions: &mut Vec<Occasion>) {
        let now = self.event_loop.now().as_nanos();
        with(|kernel| kernel.note(|| format!("event {event:?}")));
        match &event {
            Event::Accepted { connection, .. } => {
                let paused = self.event_loop.is_paused(*connection);
                self.reference.begin(*connection, Token::NONE, true, paused);
                self.identify(*connection);
                let is_known = self.event_loop.peer_address(*connection).is_some();
                assert!(
                    is_known || self.event_loop.descriptor(*connection).is_none(),
                    "the address of an accepted connection's peer is not known"
                );
                self.reference.accepted += 1;
            }
            Event::Opened { connection, .. } => self.identify(*connection),
            Event::AcceptedDescriptor { .. } => self.reference.accepted += 1,
            Event::Data { connection, .. } | Event::EndOfStream { connection } => {
                let has_ended = self.event_loop.descriptor(*connection).is_none();
                let is_paused = self.event_loop.is_paused(*connection);
                if let Some(state) = self.reference.find(*connection) {
                    state.notes.came_late |= has_ended;
                    // It was ending when the batch was to pause it: the pause is refused, and what came before the end is
                    // delivered.
                    if state.paused && state.notes.pause_may_be_refused && !is_paused {
                        state.paused = false;
                        self.reference.refusals_owed.push(*connection);
                    }
                }
            }
            Event::Woken => self.wake_owed.set(false),
            _ => {}
        }
        let closed = self.reference.check(&event, now);
        if is_of_datagrams(&event) {
            occasions.extend(self.take_datagram_event(event));
            return;
        }
        let occasion = match event {
            Event::Data { connection, data } => self.check_data(connection, data),
            Event::EndOfStream { connection } => {
                check_end_of_stream(&mut self.reference, connection);
                Some(Occasion::End(connection))
            }
            Event::AcceptedDescriptor { descriptor, .. } => Some(Occasion::Descriptor(descriptor)),
            Event::SendFailed { connection, error } => {
                check_send_error(connection, error);
                Some(Occasion::Any(connection))
            }
            Event::Accepted { connection, .. }
            | Event::Opened { connection, .. }
            | Event::Writable { connection }
            | Event::Sent { connection, .. }
            | Event::FileShort { connection, .. }
            | Event::Deadline { connection } => Some(Occasion::Any(connection)),
            Event::Pressure { .. } => Some(Occasion::Pressure),
            Event::Closed {
                connection, reason, ..
            } => {
                let closed = closed.expect("the reference knew it");
                let hard_limit = self.event_loop.config().close_at_lease_limit;
                check_closed(connection, &closed, reason, hard_limit);
                // What is sent without a copy is waited for when the peer has taken it, too.
                if self.plan.config.zero_copy_threshold.is_none() {
                    check_not_cut(connection, &closed, reason, self.plan.config.close_deadline);
                }
                None
            }
            Event::Refused {
                connection: Some(id),
                refusal: refusal @ (Refusal::Stale | Refusal::Closing),
                ..
            } => {
                self.reference.refusals_owed.retain(|&owed| owed != id);
                let state = self.reference.find(id).is_some();
                assert!(
                    refusal == Refusal::Closing || !state || self.event_loop.descriptor(id).is_none(),
                    "{id:?} is open, and refused as stale"
                );
                None
            }
            _ => None,
        };
        occasions.extend(occasion);
    }

    fn react(&mut self, occasion: Occasion) {
        match occasion {
            Occasion::Data(kept) => {
                let id = kept.connection;
                self.handle(kept);
                self.on_occasion(id);
            }
            Occasion::Datagrams(kept) => self.handle_datagrams(kept),
            Occasion::DatagramPressure if self.datagrams_let_go() => self.release_some_datagrams(),
            Occasion::DatagramPressure => {}
            Occasion::End(id) => self.on_end(id),
            Occasion::Descriptor(descriptor) => self.attach(descriptor),
            Occasion::Pressure if self.random.chance(700) => self.release_some(),
            Occasion::Pressure => {}
            Occasion::Any(id) => self.on_occasion(id),
        }
    }

    /// The turns so far.
    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    /// Finds out who is at the other end.
    fn identify(&mut self, id: ConnectionId) {
        let descriptor = self
            .event_loop
            .descriptor(id)
            .map(|descriptor| descriptor.as_raw_fd());
        if let (Some(descriptor), Some(state)) = (descriptor, self.reference.find(id)) {
            state.notes.peer = state
                .notes
                .peer
                .or_else(|| with(|kernel| kernel.peer_of(descriptor)));
        }
    }

    /// That the bytes are those which were sent, and come next.
    fn check_data(&mut self, id: ConnectionId, data: Lease) -> Option<Occasion> {
        let state = self.reference.find(id).expect("checked just now");
        // Without one, it was gone before anybody could ask who it was.
        let peer = state.notes.peer?;
        let kept = Kept {
            connection: id,
            peer,
            offset: state.notes.received,
            data,
        };
        if let Some(at) = pattern::first_difference(peer as u64, kept.offset, &kept.data) {
            panic!(
                "{id:?} was given a wrong byte at offset {at}, in {} bytes from {}",
                kept.data.len(),
                kept.offset
            );
        }
        state.notes.received += kept.data.len() as u64;
        self.reference.delivered += kept.data.len() as u64;
        Some(Occasion::Data(kept))
    }

    fn on_end(&mut self, id: ConnectionId) {
        if self.random.chance(600) {
            self.close(id);
        } else if self.random.chance(500) {
            self.shutdown(id);
        }
    }

    /// What is queued for a socket that takes no more is of no use, and others may want the memory. It is dropped when
    /// the kernel does not read it any more, or with the connection, whose end may wait until what is cancelled has
    /// ended: for all that is in the queues of the engine and its ring.
    fn watch_failed_sends(&mut self) {
        let waits = with(|kernel| kernel.waits());
        let has_waited = std::mem::replace(&mut self.last_waits, waits) != waits;
        if !has_waited || with(|kernel| !kernel.has_failed_sends() || !kernel.rings_rest()) {
            return;
        }
        for id in self.event_loop.connection_ids() {
            let queued = self.event_loop.queued(id);
            let descriptor = self.event_loop.descriptor(id).filter(|_| queued > 0);
            let Some(descriptor) = descriptor.map(|descriptor| descriptor.as_raw_fd()) else {
                continue;
            };
            let turns = with(|kernel| kernel.count_turn_after_failure(descriptor));
            assert!(
                turns.is_none_or(|turns| turns < FAILED_TURNS),
                "{queued} bytes are still queued for {id:?}, {FAILED_TURNS} turns after its socket was known to take no \
                 more"
            );
        }
    }

    fn check_counters(&mut self) {
        let counters: Counters = self.event_loop.counters();
        assert!(counters.pool_leased <= counters.pool_slots);
        let closed = [
            counters.closed_local,
            counters.closed_peer,
            counters.closed_reset,
            counters.closed_timeout,
            counters.closed_limit,
            counters.closed_error,
        ];
        for (seen, counted) in self.reference.closed_by.into_iter().zip(closed) {
            assert!(
                seen <= counted,
                "closed {:?}, counted {closed:?}",
                self.reference.closed_by
            );
        }
        let queued: usize = self
            .event_loop
            .connection_ids()
            .map(|id| self.event_loop.queued(id))
            .sum();
        assert_eq!(counters.queued_bytes, queued as u64, "bytes queued for sending");
        self.check_datagram_counters();
    }
}
