//! The siege: a loop with many peers that misuse it in ways that might keep others from being served, and some that behave.
//!
//! Whatever the many do, each request of those that behave has its response within a bound of turns, the loop does no more
//! for one connection than its share before it looks for others, and what is queued stays within its memory. When the
//! many have gone, all that they held has come back.

pub mod plan;
mod service;

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::Duration;

use quoit::internals::LoopMemory;
use quoit::internals::engine::Engine;
use quoit::{CloseReason, ConnectionId, Delivery, Event, Events, ListenerOptions, Loop, LoopIndex, Token};
use quoit_sim_kernel::faces::SimSockets;
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::random::Random;

use crate::options::Options;
use crate::plan::Plan;
use crate::reference::Reference;
use crate::sim_loop::SimLoop;
use crate::world::Summary;
use plan::SiegePlan;
use service::Served;

/// Turns that a response may take for each event that may be before it.
const PATIENCE: u64 = 8;
/// Turns that it may take although nobody is before it.
const LEAST_PATIENCE: u64 = 400;
/// Turns of a siege, at most: some requests may be left then.
const MOST_TURNS: u32 = 3000;
/// Turns in which all must be given back once those that besiege have gone.
const TURNS_AFTER: u32 = 5000;
/// Nanoseconds from then on in which a reset must be noticed that nothing tells of, and after which the handler lets go of
/// what it kept.
const TIME_UNTIL_LET_GO: u64 = 3_000_000_000;
/// Bytes and calls of one connection in one turn: what is sent at once, and what a pool, a queue and one more send have.
const MOST_SENT_AT_ONCE: u64 = 4 << 20;
const MOST_CALLS: u64 = 1024 + 8;

/// A peer that behaves: how far it has come, and the turns since then in which it waited for the loop.
#[derive(Clone, Copy, Default)]
struct Waiting {
    progress: u64,
    turns: u64,
}

/// The run.
pub struct Siege<E: Engine> {
    plan: SiegePlan,
    event_loop: SimLoop<E>,
    random: Random,
    reference: Reference,
    served: BTreeMap<ConnectionId, Served>,
    /// Not here while a turn's are handled.
    events: Option<Events>,
    /// Room for events in a turn.
    room: usize,
    turns: u32,
    most_turns: u32,
    /// Everything is being closed.
    ending: bool,
    /// Those that behave.
    waiting: Vec<Waiting>,
    /// Turns for which one may wait.
    patience: u64,
    /// Bytes that may be queued.
    most_queued: u64,
}

impl<E: Engine + 'static> Siege<E> {
    /// Makes the loop and its surroundings in the installed kernel.
    ///
    /// # Panics
    /// If the simulated kernel has no memory for it, which it has.
    pub fn new(
        options: &Options,
        run: &Plan,
        mut plan: SiegePlan,
        make: impl Fn(&Plan, &mut LoopMemory) -> E,
    ) -> Self {
        if let Some(only) = &options.only {
            let besieging = (0..plan.besieging).filter(|number| only.contains(number)).count();
            let mut numbers = 0..;
            plan.peers
                .retain(|_| numbers.next().is_some_and(|number| only.contains(&number)));
            plan.besieging = besieging;
        }
        let config = run.config.clone();
        let mut memory = LoopMemory::new(LoopIndex::default(), &config).expect("eventfds are to be had");
        let engine = make(run, &mut memory);
        let mut event_loop = Loop::with_engine(
            LoopIndex::default(),
            config.clone(),
            memory,
            engine,
            String::new(),
            SimSockets,
        );
        event_loop
            .listen(&plan.address, &ListenerOptions::default())
            .expect("the address is free");
        let random = Random::new(options.seed, 242);
        let longest = (plan.chunk as u64).max(u64::from(config.receive_slot_size));
        let pool = u64::from(config.receive_slots) * u64::from(config.receive_slot_size);
        with(|kernel| {
            for (number, peer) in plan.peers.iter().enumerate() {
                kernel.add_peer(peer.clone(), Random::new(options.seed, 6000 + number as u64));
            }
            kernel.limit_work(
                MOST_CALLS + u64::from(config.receives_per_turn.max(config.receive_slots)),
                MOST_SENT_AT_ONCE + pool + u64::from(config.high_water) + 2 * longest,
            );
        });
        let budget = u64::from(config.send_chunks) * u64::from(config.send_chunk_size);
        let peers = plan.peers.len() as u64;
        let room = run.events.max(16) as usize;
        let events_before = u64::from(config.receive_slots) + 4 * peers;
        let queues = [
            room as u32,
            config.completions_per_turn,
            config.submission_queue,
            config.completion_queue,
        ];
        let per_turn = u64::from(queues.into_iter().min().unwrap_or(1));
        Self {
            waiting: vec![Waiting::default(); plan.peers.len() - plan.besieging],
            patience: LEAST_PATIENCE + PATIENCE * events_before.div_ceil(per_turn),
            most_queued: budget + peers * longest,
            plan,
            event_loop: SimLoop::new(event_loop),
            random,
            reference: Reference::default(),
            served: BTreeMap::new(),
            events: Some(Events::with_capacity(room)),
            room,
            turns: 0,
            ending: false,
            most_turns: options.turns.map_or(MOST_TURNS, |turns| turns.min(MOST_TURNS)),
        }
    }

    /// Runs it all.
    ///
    /// # Panics
    /// If anybody was kept from being served, or anything else is not as it must be.
    pub fn run(mut self) -> Summary {
        while self.turns < self.most_turns && !self.all_are_answered() {
            let timeout = match self.random.below(4) {
                0 => Duration::ZERO,
                _ => Duration::from_secs(1),
            };
            self.turn(timeout);
            self.watch_those_that_behave();
        }
        self.lift();
        self.end()
    }

    fn behaving(&self) -> std::ops::Range<usize> {
        self.plan.besieging..self.plan.peers.len()
    }

    fn all_are_answered(&self) -> bool {
        with(|kernel| {
            self.behaving()
                .all(|number| kernel.peers[number].received == kernel.peers[number].plan.total)
        })
    }

    /// One turn, and what the handler makes of its events.
    fn turn(&mut self, timeout: Duration) {
        self.turns += 1;
        with(|kernel| kernel.begin_turn());
        let mut events = self.events.take().expect("put back by the last turn");
        events.set_capacity(self.room);
        if let Err(error) = self.event_loop.turn([], &mut events, Some(timeout)) {
            panic!("the turn failed: {error}");
        }
        let mut delivery = Delivery::default();
        for event in events.drain() {
            if let Some(event) = delivery.admit(&mut self.event_loop, event) {
                self.take(event);
            }
        }
        delivery.end(&mut self.event_loop);
        self.events = Some(events);
        let failure = with(|kernel| kernel.failure.take());
        if let Some(failure) = failure {
            panic!("{failure}");
        }
        let queued = self.event_loop.counters().queued_bytes;
        assert!(
            queued <= self.most_queued,
            "{queued} bytes are queued for sending, where no more than {} may be",
            self.most_queued
        );
    }

    fn watch_those_that_behave(&mut self) {
        for number in self.behaving() {
            let (progress, waits) = with(|kernel| kernel.progress_of_requests(number));
            let waiting = &mut self.waiting[number - self.plan.besieging];
            let is_stuck = waits && std::mem::replace(&mut waiting.progress, progress) == progress;
            waiting.turns = if is_stuck { waiting.turns + 1 } else { 0 };
            let turns = waiting.turns;
            assert!(
                turns <= self.patience,
                "peer {number}, which reads and writes, has not been served for {turns} turns of the loop, which holds {:?}",
                self.held()
            );
        }
    }

    /// Checks an event, and does what the handler makes of it.
    fn take(&mut self, event: Event) {
        with(|kernel| kernel.note(|| format!("event {event:?}")));
        if let Event::Accepted { connection, .. } = event {
            self.reference.begin(connection, Token::NONE, true, false);
        }
        self.reference.check(&event, self.event_loop.now().as_nanos());
        match event {
            Event::Accepted { connection, .. } => {
                // One that was reset at once has gone already, and its end is on the way.
                let descriptor = self
                    .event_loop
                    .descriptor(connection)
                    .map(|descriptor| descriptor.as_raw_fd());
                if let Some(peer) =
                    descriptor.and_then(|descriptor| with(|kernel| kernel.peer_of(descriptor)))
                {
                    let besieges = peer < self.plan.besieging;
                    self.served.insert(connection, Served::new(peer, besieges));
                }
            }
            Event::Data { connection, data } => self.on_data(connection, data),
            Event::Sent { connection, .. } => self.on_sent(connection),
            Event::Writable { connection } => self.on_writable(connection),
            // As a server does that has nothing to say to a peer who does not listen.
            Event::SendFailed { connection, .. } => self.abort(connection),
            Event::EndOfStream { connection } => self.close(connection),
            Event::Closed {
                connection, reason, ..
            } => self.on_closed(connection, reason),
            _ => {}
        }
    }

    fn close(&mut self, id: ConnectionId) {
        if self.event_loop.close(id, None).is_ok()
            && let Some(state) = self.reference.find(id)
        {
            state.closing = true;
        }
    }

    fn on_closed(&mut self, id: ConnectionId, reason: CloseReason) {
        let Some(served) = self.served.remove(&id) else {
            return;
        };
        let answered = with(|kernel| {
            let peer = &kernel.peers[served.peer];
            peer.received == peer.plan.total
        });
        assert!(
            served.besieges || answered || self.ending,
            "peer {}, which reads and writes, was closed before its responses: {reason:?}",
            served.peer
        );
    }

    /// Those that besiege go; what they held must come back.
    fn lift(&mut self) {
        with(|kernel| (0..self.plan.besieging).for_each(|number| kernel.dismiss_peer(number)));
        let end = with(|kernel| kernel.now()) + TIME_UNTIL_LET_GO;
        let mut keeps = true;
        // The clock may have jumped, and what the loop does at its times takes turns.
        let mut left = self.patience.min(u64::from(TURNS_AFTER) / 2);
        for _ in 0..TURNS_AFTER {
            if keeps && with(|kernel| kernel.now()) >= end {
                left -= 1;
            }
            if keeps && left == 0 {
                keeps = false;
                self.check_resets();
                // What they sent before they went is for the handler, which has to make room for it.
                self.let_go();
            }
            let held = self.held();
            if self.served.values().all(|served| !served.besieges) && held.iter().all(|&(_, held)| held == 0)
            {
                return;
            }
            self.turn(Duration::from_secs(1));
        }
        panic!(
            "those that besieged have gone, and the loop still has of them: {:?}, {} connections",
            self.held(),
            self.served.len()
        );
    }

    /// That a connection of which nothing is left to be read does not outlive its peer's reset.
    fn check_resets(&self) {
        for (&id, served) in self.served.iter().filter(|(_, served)| served.besieges) {
            let descriptor = self
                .event_loop
                .descriptor(id)
                .map(|descriptor| descriptor.as_raw_fd());
            let is_gone = descriptor.is_some_and(|descriptor| {
                with(|kernel| kernel.has_failed_behind(descriptor, served.received))
            });
            assert!(
                !is_gone,
                "peer {} has reset {id:?}, of which nothing is left to be read, and nobody has noticed",
                served.peer
            );
        }
    }

    /// What the loop holds for its connections.
    fn held(&self) -> [(&'static str, u64); 4] {
        let counters = self.event_loop.counters();
        [
            ("leased slots", counters.pool_leased),
            ("copied leases", counters.leases_copied_now),
            ("bytes queued", counters.queued_bytes),
            ("send chunks", counters.send_chunks_used),
        ]
    }

    fn end(mut self) -> Summary {
        self.ending = true;
        self.event_loop.drain(Duration::from_secs(3600));
        for _ in 0..TURNS_AFTER {
            for id in self.reference.open().to_vec() {
                self.close(id);
            }
            self.turn(Duration::from_millis(100));
            if self.reference.order.drained {
                break;
            }
        }
        assert!(self.reference.order.drained, "the loop does not drain");
        let watches_wakes = u64::from(self.event_loop.engine() == quoit::EngineKind::Uring);
        for _ in 0..2 * self.plan.peers.len() + 2 {
            self.turn(Duration::from_millis(1));
        }
        let counters = self.event_loop.counters();
        assert_eq!(counters.in_flight, watches_wakes, "operations are left");
        assert_eq!(counters.connections, 0);
        drop(self.event_loop);
        with(|kernel| {
            let left = kernel.left_over();
            assert!(left.is_empty(), "descriptors are left: {left:?}");
            assert_eq!(kernel.failure, None);
        });
        Summary {
            turns: u64::from(self.turns),
            lives: self.plan.peers.len() as u64,
            bytes: counters.sent_bytes + counters.received_bytes,
            time: with(|kernel| kernel.now()),
        }
    }
}
