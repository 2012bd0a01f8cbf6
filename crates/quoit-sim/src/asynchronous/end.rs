//! How a run of tasks ends, in three steps. First faults stop, and the run goes on until nothing happens: then no task may
//! wait for something that has happened. Next all tasks end. Last the loop ends, and nothing may be left.

use std::rc::Rc;
use std::time::Duration;

use quoit::EngineKind;
use quoit::internals::sys::SocketSys;
use quoit_sim_kernel::faces::SimSockets;
use quoit_sim_kernel::faults::Fault;
use quoit_sim_kernel::kernel::with;

use super::AsyncWorld;
use super::shared::Awaited;
use crate::world::Summary;

/// Nanoseconds in which everything must have come to its end once nothing is in the way.
const PATIENCE: u64 = 200_000_000_000;
/// Nanoseconds without anything after which nothing more is to be expected.
const QUIET: u64 = 12_000_000_000;
/// Nanoseconds in which a loop that was woken takes what was left for it.
const SOON: u64 = 10_000_000;
/// Steps that any of it may take.
const MOST_STEPS: u32 = 300_000;

impl AsyncWorld {
    /// Runs without faults, and without telling tasks to stop, until nothing happens any more. A task that waits then must
    /// wait for something that has not happened.
    pub(super) fn rest(&mut self) {
        with(|kernel| {
            kernel.become_fair();
            kernel.set_descriptor_room(4096);
        });
        let mut last = (0, 0);
        let mut quiet_since = with(|kernel| kernel.now());
        for step in 0.. {
            assert!(
                step < MOST_STEPS,
                "the tasks do not come to rest: {}",
                self.describe()
            );
            self.shared.release(None);
            self.go_on(Duration::from_secs(1));
            self.check_awake();
            let moved = (
                self.executor.polls.get(),
                with(|kernel| kernel.taken + kernel.given),
            );
            let now = with(|kernel| kernel.now());
            if moved != last {
                last = moved;
                quiet_since = now;
            }
            if now - quiet_since > QUIET {
                break;
            }
        }
        self.check_waiting();
        self.sockets.check_sent(self.simulation());
    }

    /// That the loop does not sleep while there is something that another thread has left for it.
    fn check_awake(&self) {
        let since = with(|kernel| kernel.now()) - self.executor.polled_at.get();
        assert!(
            since < SOON || !self.simulation().has_wanted(),
            "a wake was lost: something was left for the loop {since} ns ago, and it sleeps"
        );
    }

    /// That no task waits for something that has happened.
    fn check_waiting(&self) {
        let counters = self.simulation().counters();
        let forbidden = with(|kernel| kernel.profile().chance(Fault::AcceptForbidden)) > 0;
        // Who waits for room and reads nothing meanwhile may hold all the memory that there is.
        let is_held = self.is_tight && (counters.leases_copied_now > 0 || counters.pool_leased > 0);
        for awaited in self.shared.awaited() {
            match awaited {
                Awaited::Bytes { .. } | Awaited::Room { .. } if is_held => {}
                Awaited::Bytes { peer, offset } => with(|kernel| {
                    let peer_is = &kernel.peers[peer];
                    assert!(
                        peer_is.sent == offset && !peer_is.ended && !peer_is.gone,
                        "a wake was lost: a task waits for bytes of peer {peer} behind {offset}, which has sent {}{}{}",
                        peer_is.sent,
                        if peer_is.ended { ", ended" } else { "" },
                        if peer_is.gone { " and gone" } else { "" },
                    );
                }),
                Awaited::Connection { unix } => {
                    // Who is gone was there too briefly. With no room a connection may wait within the loop.
                    let has_come = |&&peer: &&usize| {
                        !self.shared.accepted.borrow().contains(&peer)
                            && with(|kernel| {
                                let peer = &kernel.peers[peer];
                                peer.plan.address.is_unix() == unix && peer.socket.is_some() && !peer.gone
                            })
                    };
                    let come = self.incoming.iter().filter(has_come).count();
                    let has_room = counters.connections < u64::from(self.config.connections);
                    assert!(
                        !has_room || forbidden || come == 0,
                        "a wake was lost: {come} connections have come, and those who wait for one were told of none"
                    );
                }
                Awaited::Datagram { socket } => self.sockets.check_nothing_to_read(socket),
                Awaited::Room { .. }
                | Awaited::DatagramRoom { .. }
                | Awaited::Attempt { .. }
                | Awaited::Time => {
                    panic!("a wake was lost: a task waits for {awaited:?}, with nothing in the way")
                }
            }
        }
    }

    /// All tasks come to their end, but for those that accept.
    pub(super) fn come_to_the_end(&mut self) {
        self.shared.stop.set(true);
        self.executor.make_all_ready();
        let begin = with(|kernel| kernel.now());
        for step in 0.. {
            if self.is_done() {
                return;
            }
            let time = with(|kernel| kernel.now()) - begin;
            assert!(
                time < PATIENCE && step < MOST_STEPS,
                "no progress although nothing is in the way: {}",
                self.describe()
            );
            self.shared.release(None);
            self.go_on(Duration::from_millis(100));
            self.check_awake();
        }
    }

    /// Whether nothing is left but acceptors, who have accepted all who came.
    fn is_done(&self) -> bool {
        let acceptors = self.shared.acceptors.borrow();
        let left = self
            .executor
            .tasks()
            .into_iter()
            .any(|task| !acceptors.contains(&task));
        let accepting = self
            .executor
            .tasks()
            .into_iter()
            .any(|task| acceptors.contains(&task));
        let forbidden = with(|kernel| kernel.profile().chance(Fault::AcceptForbidden)) > 0;
        let comes = |&peer: &usize| with(|kernel| !kernel.peers[peer].gone);
        let closed = self.shared.losers.left().is_empty() || self.shared.draining.get();
        !left && closed && (!accepting || forbidden || !self.incoming.iter().any(comes))
    }

    fn describe(&self) -> String {
        let peers: Vec<_> = with(|kernel| {
            let peers = kernel.peers.iter().enumerate().filter(|(_, peer)| !peer.gone);
            peers
                .map(|(number, peer)| {
                    format!(
                        "peer {number} sent {} of {}, received {} of {}",
                        peer.sent,
                        peer.plan.total,
                        peer.received,
                        peer.expected.len()
                    )
                })
                .collect()
        });
        format!(
            "{:?} wait for {:?}; {peers:?}; {:?} have connections that nobody has; {:?} connections",
            self.executor.names(),
            self.shared.awaited(),
            self.shared.losers.left(),
            self.simulation().counters().connections
        )
    }

    /// Ends the loop, and looks for what is left.
    pub(super) fn end(mut self) -> Summary {
        if self.random.chance(300) {
            self.stop_listening();
        }
        if !self.shared.draining.get() {
            self.drain(Duration::from_secs(3600));
        }
        if self.driver.is_some() && self.random.chance(512) {
            // As when a service has ended: the loop's thread makes its last turns without the runtime.
            self.simulation().clear_task();
            self.executor
                .abort(self.driver.take().expect("looked at just now"));
        }
        let begin = with(|kernel| kernel.now());
        for step in 0.. {
            if self.drained.get() {
                break;
            }
            let time = with(|kernel| kernel.now()) - begin;
            assert!(
                time < PATIENCE && step < MOST_STEPS,
                "the loop does not drain: {}",
                self.describe()
            );
            if self.driver.is_none() && self.config.pollable {
                // What tasks there still are is on other threads.
                (0..20).for_each(|_| self.executor.poll_one(true));
            }
            self.go_on(Duration::from_millis(100));
        }
        self.simulation().clear_task();
        self.finish_in_flight();
        self.simulation().end();
        self.end_tasks();
        self.check_end()
    }

    /// Makes turns until no operation of the engine is in flight.
    fn finish_in_flight(&mut self) {
        let watches_wakes = u64::from(self.engine == EngineKind::Uring);
        let mut left = 2 * self.plan.lives.len() + 20;
        while left > 0 && self.simulation().counters().in_flight > watches_wakes {
            left -= 1;
            let turned = self.simulation().turn(Some(Duration::from_millis(1)));
            assert!(turned.is_ok(), "the turn failed: {turned:?}");
        }
    }

    /// The tasks that still wait learn that the loop has ended, and end.
    fn end_tasks(&mut self) {
        self.shared.stop.set(true);
        for _ in 0..100 {
            self.executor.run_ready();
            if self.executor.tasks().is_empty() {
                return;
            }
            // Who rests goes on at the end of it.
            SimSockets.sleep(Duration::from_secs(1));
        }
        panic!(
            "the loop has ended, and {:?} still wait for {:?}",
            self.executor.names(),
            self.shared.awaited()
        );
    }

    fn check_end(mut self) -> Summary {
        self.shared.release(None);
        self.sockets.check_passed();
        // What was let go of behind its last turn.
        let turned = self.simulation().turn(Some(Duration::ZERO));
        assert!(turned.is_ok(), "the turn failed: {turned:?}");
        let simulation = self.simulation.take().expect("taken only here");
        let counters = simulation.counters();
        assert_eq!(counters.connections, 0, "connections are left");
        assert_eq!(counters.pool_leased, 0, "leases are left");
        assert_eq!(counters.leases_copied_now, 0, "copied leases are left");
        assert_eq!(counters.queued_bytes, 0, "bytes are left in queues");
        assert_eq!(counters.send_chunks_used, 0, "send memory is left");
        let watches_wakes = u64::from(self.engine == EngineKind::Uring);
        assert_eq!(counters.in_flight, watches_wakes, "operations are left");
        assert_eq!(simulation.holders(), 0, "sockets are left that nobody has");
        with(|kernel| {
            for (number, peer) in kernel.peers.iter().enumerate() {
                let complete = peer.received == peer.expected.len() as u64;
                assert!(
                    !peer.saw_end || complete || peer.excused || peer.broke_off,
                    "peer {number} saw the end after {} bytes, of {} that were taken for it",
                    peer.received,
                    peer.expected.len()
                );
            }
        });
        drop(with(|kernel| kernel.take_jobs()));
        assert_eq!(Rc::strong_count(&simulation), 1);
        drop(simulation);
        with(|kernel| {
            let left = kernel.left_over();
            assert!(left.is_empty(), "descriptors are left: {left:?}");
            assert_eq!(kernel.failure, None);
        });
        Summary {
            turns: u64::from(self.turns.get()),
            lives: with(|kernel| kernel.peers.len() as u64),
            bytes: counters.sent_bytes + counters.received_bytes,
            time: with(|kernel| kernel.now()),
        }
    }
}
