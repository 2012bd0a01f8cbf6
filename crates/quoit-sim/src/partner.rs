//! A second live loop, as on another thread: it takes connections that the first accepts and hands over.
//!
//! The simulated kernel runs its turns, between any two calls of the first loop and while that one sleeps. Its handler is
//! simple, as the first loop has the random one: what counts here is what passes between the two.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use quoit::internals::engine::Engine;
use quoit::{ConnectionId, Counters, Event, Events, Lease, Loop, Payload, Refusal, Remote, Token};
use quoit_sim_kernel::faces::SimSockets;
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::pattern;
use quoit_sim_kernel::random::Random;

use crate::checks::{Kept, any_pending, check_end_of_stream, check_send_error, first_pending};
use crate::reference::Reference;
use crate::sim_loop::SimLoop;

/// The time between its turns, in nanoseconds, at most: while something happens, and while nothing does.
const PAUSE: u64 = 60_000;
const LONGEST_PAUSE: u64 = 50_000_000;

/// Something to react to.
enum Occasion {
    Data(Kept),
    End(ConnectionId),
}

/// The loop, and what is known of it.
pub(crate) struct Partner<E: Engine> {
    event_loop: SimLoop<E>,
    random: Random,
    reference: Reference,
    kept: VecDeque<Kept>,
    events: Events,
    /// Room for a turn's events, and for what they give reason to.
    taken: Vec<Event>,
    occasions: Vec<Occasion>,
    ending: bool,
    /// The time to its next turn, at most: longer and longer while nothing happens, as a loop sleeps then.
    pause: u64,
    /// The first loop, and whether it has been woken and has not said so.
    other: Remote,
    wake_owed: Rc<Cell<bool>>,
}

impl<E: Engine + 'static> Partner<E> {
    /// Begins to have turns in the installed kernel.
    pub(crate) fn start(
        event_loop: Loop<E, SimSockets>,
        seed: u64,
        other: Remote,
        wake_owed: Rc<Cell<bool>>,
    ) -> Rc<RefCell<Self>> {
        let partner = Rc::new(RefCell::new(Self {
            event_loop: SimLoop::new(event_loop),
            random: Random::new(seed, 12),
            reference: Reference::default(),
            kept: VecDeque::new(),
            events: Events::with_capacity(16),
            taken: Vec::new(),
            occasions: Vec::new(),
            ending: false,
            pause: PAUSE,
            other,
            wake_owed,
        }));
        // The kernel does not keep it: it would outlive a run that fails, and then end without a kernel.
        let this = Rc::downgrade(&partner);
        with(|kernel| {
            kernel.start_other_loop(Rc::new(move || {
                let Some(this) = this.upgrade() else { return };
                // In the midst of its own turn it cannot have another.
                if let Ok(mut partner) = this.try_borrow_mut() {
                    partner.turn();
                    let most = partner.pause;
                    let pause = partner.random.magnitude(most);
                    with(|kernel| kernel.plan_other_loop(pause));
                }
            }));
        });
        partner
    }

    pub(crate) fn remote(&self) -> Remote {
        self.event_loop.remote()
    }

    /// Everything is to come to its end.
    pub(crate) fn drain(&mut self) {
        self.ending = true;
        self.event_loop.drain(Duration::from_secs(3600));
    }

    pub(crate) fn has_drained(&self) -> bool {
        self.reference.order.drained
    }

    /// Its counters, and the connections that it has closed.
    pub(crate) fn counters(&self) -> (Counters, u64) {
        (self.event_loop.counters(), self.reference.closed_by.iter().sum())
    }

    /// Operations that have not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        self.event_loop.counters().in_flight
    }

    fn turn(&mut self) {
        let room = self.random.between(1, 16) as usize;
        self.events.set_capacity(room);
        if let Err(error) = self.event_loop.turn([], &mut self.events, Some(Duration::ZERO)) {
            panic!("the second loop's turn failed: {error}");
        }
        let mut taken = std::mem::take(&mut self.taken);
        taken.extend(self.events.drain());
        self.pause = match taken.is_empty() {
            true => (self.pause * 2).min(LONGEST_PAUSE),
            false => PAUSE,
        };
        // All of a turn's events are true at its end, so all are checked before anything is done about any.
        let mut occasions = std::mem::take(&mut self.occasions);
        occasions.extend(taken.drain(..).filter_map(|event| self.take(event)));
        for occasion in occasions.drain(..) {
            match occasion {
                Occasion::Data(kept) => self.handle(kept),
                Occasion::End(id) => self.close(id, Some(Duration::from_secs(60))),
            }
        }
        self.taken = taken;
        self.occasions = occasions;
        let fair = with(|kernel| kernel.is_fair());
        while self.kept.len() > 4 || (fair && !self.kept.is_empty()) {
            self.kept.pop_front().expect("there is one").check();
        }
        if self.ending {
            for id in self.reference.open().to_vec() {
                self.close(id, Some(Duration::from_secs(60)));
            }
        } else if !fair {
            self.act();
        }
    }

    fn act(&mut self) {
        if self.random.chance(20) {
            self.wake_owed.set(true);
            self.other.wake();
        }
        if self.random.chance(20) && !self.reference.open().is_empty() {
            let id = *self.random.choose(self.reference.open());
            if self.random.chance(500) {
                self.close(id, None);
            } else if self.event_loop.abort(id).is_ok()
                && let Some(state) = self.reference.find(id)
            {
                state.closing = true;
            }
        }
    }

    fn close(&mut self, id: ConnectionId, deadline: Option<Duration>) {
        // Refused, it is closing already, or has ended by itself.
        if self.event_loop.close(id, deadline).is_ok()
            && let Some(state) = self.reference.find(id)
        {
            state.closing = true;
        }
    }

    /// Checks an event, and returns what is to be done about it.
    fn take(&mut self, event: Event) -> Option<Occasion> {
        with(|kernel| kernel.note(|| format!("second loop's event {event:?}")));
        if let Event::Accepted { connection, .. } = event {
            self.reference.begin(connection, Token::NONE, true, false);
            let descriptor = self
                .event_loop
                .descriptor(connection)
                .map(|descriptor| descriptor.as_raw_fd());
            if let (Some(descriptor), Some(state)) = (descriptor, self.reference.find(connection)) {
                state.notes.peer = with(|kernel| kernel.peer_of(descriptor));
            }
        }
        let closed = self.reference.check(&event, self.event_loop.now().as_nanos());
        match event {
            Event::Data { connection, data } => return self.check_data(connection, data),
            Event::EndOfStream { connection } => {
                check_end_of_stream(&mut self.reference, connection);
                return Some(Occasion::End(connection));
            }
            Event::Closed { .. } => {
                let state = closed.expect("the reference knew it");
                assert!(state.established, "attached connections are established");
            }
            _ => {}
        }
        None
    }

    fn check_data(&mut self, connection: ConnectionId, data: Lease) -> Option<Occasion> {
        let state = self.reference.find(connection).expect("checked just now");
        let peer = state.notes.peer?;
        let offset = state.notes.received;
        state.notes.received += data.len() as u64;
        if let Some(at) = pattern::first_difference(peer as u64, offset, &data) {
            panic!("{connection:?} was given a wrong byte at offset {at}");
        }
        Some(Occasion::Data(Kept {
            connection,
            peer,
            offset,
            data,
        }))
    }

    fn handle(&mut self, kept: Kept) {
        if self.random.chance(400) {
            self.send(kept.connection, kept.peer, &kept.data);
        }
        if self.random.chance(400) {
            self.kept.push_back(kept);
        }
    }

    fn send(&mut self, id: ConnectionId, peer: usize, bytes: &[u8]) {
        let result = self.event_loop.send(id, Payload::Copy(bytes), Token::NONE);
        let full = self.event_loop.is_full(id);
        match result {
            Ok(()) => with(|kernel| kernel.peers[peer].expected.extend_from_slice(bytes)),
            Err(Refusal::Full | Refusal::Closing | Refusal::Stale | Refusal::TooLarge) => {}
            Err(Refusal::Error(errno)) => check_send_error(id, errno),
            Err(refusal) => panic!("a send on {id:?} is refused: {refusal}"),
        }
        if result == Err(Refusal::Full) || (result.is_ok() && full) {
            self.reference.full(id);
        }
    }

    /// A connection of which something must happen yet when nothing is in the way.
    pub(crate) fn any_pending(&mut self) -> Option<(ConnectionId, usize)> {
        any_pending(&mut self.reference)
    }

    /// How many it has.
    pub(crate) fn connections(&self) -> u64 {
        self.event_loop.counters().connections
    }

    /// The first of them.
    pub(crate) fn first_pending(&mut self) -> Option<(ConnectionId, usize)> {
        first_pending(&mut self.reference)
    }

    /// Looks for what is left, and drops the loop.
    pub(crate) fn end(partner: Rc<RefCell<Self>>) {
        with(|kernel| kernel.stop_other_loop());
        let Some(partner) = Rc::into_inner(partner) else {
            panic!("the second loop has a turn at its end");
        };
        let Self {
            mut event_loop,
            mut kept,
            mut events,
            mut reference,
            ..
        } = partner.into_inner();
        kept.clear();
        // Leases that were let go of since its last turn are collected by the next.
        if let Err(error) = event_loop.turn([], &mut events, Some(Duration::ZERO)) {
            panic!("the second loop's last turn failed: {error}");
        }
        for event in events.drain() {
            reference.check(&event, event_loop.now().as_nanos());
        }
        let counters = event_loop.counters();
        assert_eq!(counters.connections, 0);
        assert_eq!(counters.pool_leased, 0, "leases of the second loop are left");
        assert_eq!(
            counters.queued_bytes, 0,
            "bytes are left in the second loop's queues"
        );
        assert_eq!(
            counters.send_chunks_used, 0,
            "send memory of the second loop is left"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use quoit::internals::LoopMemory;
    use quoit::internals::engine::epoll::{EpollEngine, EpollSettings};
    use quoit::{Config, LoopIndex};
    use quoit_sim_kernel::faces::SimEpoll;
    use quoit_sim_kernel::faults::Profile;
    use quoit_sim_kernel::kernel::{self, Kernel};

    use super::*;

    #[test]
    fn a_run_that_fails_leaves_no_loop_to_its_kernel() {
        kernel::install(Kernel::new(1, Profile::kind(), 4096, false));
        let failed = catch_unwind(AssertUnwindSafe(|| {
            let (index, config) = (LoopIndex::default(), Config::default());
            let memory = LoopMemory::new(index, &config).expect("eventfds are to be had");
            let engine = EpollEngine::<SimEpoll, _>::new(EpollSettings::default(), SimSockets)
                .expect("instances are to be had");
            let event_loop = Loop::with_engine(index, config, memory, engine, String::new(), SimSockets);
            let remote = event_loop.remote();
            let _partner = Partner::start(event_loop, 1, remote, Rc::default());
            panic!("as a check of the run does");
        }));
        assert!(failed.is_err());
        // A loop in it would close its descriptors now, and panic as there is no kernel.
        drop(kernel::remove());
    }
}
