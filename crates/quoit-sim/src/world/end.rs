//! How a run ends. First faults stop, and everything must arrive. Then everything is closed, and nothing may be left.

use std::time::Duration;

use quoit::internals::engine::Engine;
use quoit::{Address, ConnectionId, Token};
use quoit_sim_kernel::kernel::with;

use super::{Summary, World};
use crate::checks::{any_pending, first_pending};
use crate::partner::Partner;

/// The time in which everything must have come to its end once nothing goes wrong any more, in nanoseconds.
const PATIENCE: u64 = 8_000_000_000;
/// The turns that this may take.
const PATIENT_TURNS: u32 = 100_000;

/// Longer than any timer that could be left, but for that of draining.
const SLEEP: Duration = Duration::from_secs(1000);
/// Turns in which events may be told that were left, and nobody sleeps.
const MOST_LEFT: u32 = 1000;

/// What must happen yet when nothing is in the way.
enum Pending {
    /// Jobs of other threads.
    Jobs,
    /// That a wake is told.
    Wake,
    /// That a timer fires, which is due since so many nanoseconds.
    Timer(Token, u64),
    /// That datagrams come to their end, as the text says.
    Datagrams(String),
    /// That all arrives, of this connection and peer.
    Connection(ConnectionId, usize),
    /// The same of one that the second loop has.
    Partner(ConnectionId, usize),
    /// That so many connections are accepted, which wait at a listener though there is room for them.
    Accept(Address, usize),
}

impl<E: Engine + 'static> World<E> {
    /// Nothing goes wrong any more: all that can be delivered must be.
    pub(super) fn run_to_completion(&mut self) {
        with(|kernel| {
            kernel.become_fair();
            kernel.set_descriptor_room(4096);
        });
        let begin = with(|kernel| kernel.now());
        for turn in 0.. {
            self.release_all();
            self.resume_all();
            self.resume_listening();
            self.datagrams.release_all();
            self.resume_all_datagrams();
            self.turn(Some(Duration::from_millis(100)));
            let pending = self.find_pending();
            let Some(pending) = pending else { break };
            let time = with(|kernel| kernel.now()) - begin;
            assert!(
                time < PATIENCE && turn < PATIENT_TURNS,
                "no progress although nothing is in the way: {}",
                self.describe(pending)
            );
        }
    }

    /// Something that has not happened and must.
    fn find_pending(&mut self) -> Option<Pending> {
        let now = with(|kernel| kernel.now());
        if with(|kernel| kernel.has_jobs()) {
            return Some(Pending::Jobs);
        }
        if self.wake_owed.get() {
            return Some(Pending::Wake);
        }
        if let Some((&token, &due)) = self
            .reference
            .order
            .timers
            .iter()
            .find(|&(_, &due)| due + 100_000_000 < now)
        {
            return Some(Pending::Timer(Token(token), now - due));
        }
        if let Some((id, peer)) = any_pending(&mut self.reference) {
            return Some(Pending::Connection(id, peer));
        }
        if let Some(partner) = &self.partner
            && let Some((id, peer)) = partner.borrow_mut().any_pending()
        {
            return Some(Pending::Partner(id, peer));
        }
        if self.has_room_everywhere() {
            for listener in &self.listeners {
                // One that has failed by itself has no address any more.
                if let Some(address) = self.event_loop.listener_address(*listener) {
                    let queued = with(|kernel| kernel.queued_at(&address));
                    if queued > 0 {
                        return Some(Pending::Accept(address, queued));
                    }
                }
            }
        }
        self.find_pending_datagrams().map(Pending::Datagrams)
    }

    /// Whether no loop is at its limit of connections.
    fn has_room_everywhere(&self) -> bool {
        let most = u64::from(self.plan.config.connections);
        let partner = self.partner.as_ref();
        self.event_loop.counters().connections < most
            && partner.is_none_or(|partner| partner.borrow().connections() < most)
    }

    fn describe(&mut self, pending: Pending) -> String {
        match pending {
            Pending::Jobs => "other threads have not done".to_owned(),
            Pending::Datagrams(text) => text,
            Pending::Accept(address, queued) => {
                format!("{queued} connections wait at {address}, and nobody accepts")
            }
            Pending::Partner(id, peer) => {
                let first = self
                    .partner
                    .as_ref()
                    .and_then(|partner| partner.borrow_mut().first_pending());
                let (id, peer) = first.unwrap_or((id, peer));
                with(|kernel| {
                    let peer = &kernel.peers[peer];
                    format!(
                        "{id:?} of the second loop: peer sent {} of {}; {} of {} received",
                        peer.sent,
                        peer.plan.total,
                        peer.received,
                        peer.expected.len()
                    )
                })
            }
            Pending::Wake => "a wake was not told".to_owned(),
            Pending::Timer(token, ago) => format!("{token:?} is due since {ago} ns"),
            Pending::Connection(id, peer) => {
                let (id, peer) = first_pending(&mut self.reference).unwrap_or((id, peer));
                let state = self.reference.find(id).expect("found just now");
                let (received, lent, owed) = (state.notes.received, state.awaited(), state.writable_owed);
                with(|kernel| {
                    let peer = &kernel.peers[peer];
                    format!(
                        "{id:?}: peer sent {} of {}, {received} delivered; {} of {} received; {lent} lent, writable owed: {owed}",
                        peer.sent,
                        peer.plan.total,
                        peer.received,
                        peer.expected.len()
                    )
                })
            }
        }
    }

    /// Closes everything, and looks for what is left.
    pub(super) fn end(mut self) -> Summary {
        let begin = with(|kernel| kernel.now());
        self.ending = true;
        self.event_loop.drain(Duration::from_secs(3600));
        for turn in 0.. {
            for id in self.reference.open().to_vec() {
                self.close_fairly(id);
            }
            self.close_some_datagrams();
            self.release_all();
            self.datagrams.release_all();
            self.turn(Some(Duration::from_millis(100)));
            if self.reference.order.drained && self.drain_partner() {
                break;
            }
            let time = with(|kernel| kernel.now()) - begin;
            assert!(
                time < PATIENCE && turn < PATIENT_TURNS,
                "the loop does not drain: {} connections and {} listeners are open",
                self.event_loop.connections(),
                self.event_loop.listeners().count()
            );
        }
        // The last closes are submitted, and told of one by one where the completion queue is tiny.
        for _ in 0..self.plan.lives.len() + 2 {
            self.turn(Some(Duration::ZERO));
        }
        // A kernel's thread takes them in its own time, and while the loop sleeps for certain.
        let watches_wakes = u64::from(self.event_loop.engine() == quoit::EngineKind::Uring);
        // So are the cancellations of a batch of datagrams.
        for _ in 0..self.plan.lives.len() + 2 + 128 * self.plan.datagrams.sockets.len() {
            let partner = self.partner.as_ref();
            let partners = partner.map_or(0, |partner| partner.borrow().in_flight());
            if self.event_loop.counters().in_flight.max(partners) <= watches_wakes {
                break;
            }
            self.turn(Some(Duration::from_millis(1)));
        }
        self.check_sleep();
        let owed = &self.reference.refusals_owed;
        assert!(
            owed.is_empty(),
            "{owed:?} deliver after a pause, which is not refused"
        );
        self.check_end()
    }

    /// That nothing is left which would wake the loop, such as a timer of a connection that is gone.
    fn check_sleep(&mut self) {
        with(|kernel| kernel.stop_other_loop());
        for &token in self.reference.order.timers.keys() {
            self.event_loop.cancel_named_timer(Token(token));
        }
        for _ in 0..MOST_LEFT {
            let begin = with(|kernel| kernel.now());
            self.turn(Some(SLEEP));
            let slept = Duration::from_nanos(with(|kernel| kernel.now()) - begin);
            if slept >= SLEEP {
                return;
            }
            assert!(
                slept < SLEEP / 1000,
                "with nothing left to wake it, the loop sleeps {slept:?} of {SLEEP:?}"
            );
        }
        panic!("with nothing left to do, the loop does not sleep");
    }

    /// Drains the second loop, which is handed nothing more; returns whether it has drained.
    fn drain_partner(&mut self) -> bool {
        let Some(partner) = &self.partner else { return true };
        let mut partner = partner.borrow_mut();
        partner.drain();
        partner.has_drained()
    }

    fn check_end(mut self) -> Summary {
        let counters = self.event_loop.counters();
        assert_eq!(counters.connections, 0);
        assert_eq!(self.event_loop.datagram_sockets(), 0, "datagram sockets are left");
        assert_eq!(counters.pool_leased, 0, "leases are left");
        assert_eq!(counters.queued_bytes, 0, "bytes are left in queues");
        assert_eq!(counters.send_chunks_used, 0, "send memory is left");
        let partner = self.partner.as_ref();
        let partner = partner.map(|partner| partner.borrow().counters());
        let (partners, partners_lives) = partner.unwrap_or_default();
        let reference = &self.reference;
        assert_eq!(counters.accepted, reference.accepted, "connections accepted");
        assert_eq!(
            counters.accepted + partners.accepted,
            with(|kernel| kernel.accepted),
            "connections that were accepted, and those that a handler was told of"
        );
        assert_eq!(
            counters.sent_bytes + partners.sent_bytes,
            with(|kernel| kernel.taken),
            "bytes that sockets took"
        );
        assert!(counters.received_bytes >= reference.delivered);
        let is_ring = self.event_loop.engine() == quoit::EngineKind::Uring;
        let watches_wakes = u64::from(is_ring);
        assert_eq!(counters.in_flight, watches_wakes, "operations are left");
        with(|kernel| {
            for left in kernel.outstanding() {
                assert!(left.len() <= 1, "left in the ring: {left:?}");
            }
            for peer in &kernel.peers {
                let complete = peer.received == peer.expected.len() as u64;
                assert!(
                    !peer.saw_end || complete || peer.excused || peer.broke_off,
                    "a peer saw the end after {} bytes, of {} that were accepted for it",
                    peer.received,
                    peer.expected.len()
                );
            }
        });
        let summary = Summary {
            turns: u64::from(self.turns),
            lives: reference.closed_by.iter().sum::<u64>() + partners_lives,
            bytes: counters.sent_bytes + counters.received_bytes,
            time: with(|kernel| kernel.now()),
        };
        self.kept.clear();
        drop(self.datagrams);
        self.partner.take().into_iter().for_each(Partner::end);
        drop(self.event_loop);
        drop((self.remote, self.ended_loop));
        with(|kernel| {
            let left = kernel.left_over();
            assert!(left.is_empty(), "descriptors are left: {left:?}");
            assert_eq!(kernel.failure, None);
        });
        summary
    }
}
