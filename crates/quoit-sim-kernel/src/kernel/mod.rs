//! The simulated kernel: sockets, peers, a clock, and the rings and epoll instances through which a program sees
//! them.
//!
//! One exists a thread at a time, made by [`install`] and reached through [`with`]: the engines' traits have
//! constructors without a context, as the real kernel has none. Everything in it is decided by the run's seed.
//!
//! Time only passes here: a little with each call, and in a wait as far as to the next thing that happens. What will
//! happen stands in the agenda; peers are played from there.

mod agenda;
mod connecting;
mod datagram;
mod descriptors;
mod object;
mod outside;
mod peer;
mod poll;
mod ring;
mod stream;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use quoit::Address;

use crate::faults::{Fault, FaultCounts, Profile};
use crate::random::Random;
use agenda::Agenda;
use datagram::Network;
use descriptors::Table;
use object::Object;

pub use agenda::{Job, do_jobs};
pub use datagram::groups::MOST_GROUPS;
pub use datagram::{DatagramPeerPlan, Departed, Facts, Handed, LARGEST_V4, NARROW_NETWORK, Passed, Wishes};
pub use outside::{Outside, wait_outside};
pub use peer::{Answer, Ending, Manner, Peer, PeerPlan};

pub(crate) use agenda::Step;
pub(crate) use descriptors::FIRST as FIRST_DESCRIPTOR;
pub(crate) use object::{Kind, ObjectId};
pub(crate) use poll::PollSet;
pub(crate) use ring::{OPERATIONS, Ring, RingId, Shown, enter};

/// The kernel of one run.
pub struct Kernel {
    pub(crate) random: Random,
    /// For what was added when there were seeds that are kept.
    late_random: Random,
    /// For which of several sockets on one port gets what.
    port_random: Random,
    profile: Profile,
    /// No more faults: what is left must come to its end.
    fair: bool,
    now: u64,
    agenda: Agenda,
    /// What other threads do, by number.
    jobs: BTreeMap<u64, Job>,
    due_jobs: VecDeque<Job>,
    next_job: u64,
    other_loop: Option<agenda::OtherLoop>,
    pub(crate) table: Table,
    objects: Vec<Object>,
    /// The addresses in use.
    bound: Vec<(Address, ObjectId)>,
    next_port: u16,
    pub(crate) polls: Vec<Option<PollSet>>,
    pub(crate) rings: Vec<Option<Ring>>,
    /// Who plays the other ends, in the order of their lives.
    pub peers: Vec<Peer>,
    /// Datagrams under way, and their peers.
    network: Network,
    /// What passed through the datagram sockets that are watched, by the number of each.
    passed: Vec<Passed>,
    /// Datagrams that the program's sockets have received or sent, and those that have left their memory.
    pub datagrams_moved: u64,
    /// A message to a full Unix receiver is spent (`Kernel::send_message`): it is a fault of Linux, and may be mended.
    spends_messages: bool,
    /// Rings can wait for several completions and no longer than some time (`IORING_FEAT_MIN_TIMEOUT`).
    pub(crate) waits_for_several: bool,
    /// Registering an eventfd with a ring waits until no request of it is in flight, as until Linux 5.18.
    registering_waits: bool,
    /// Nobody may accept, for good.
    accepting_is_forbidden: bool,
    /// Until when there are no descriptors.
    exhausted_until: u64,
    /// Connections that the program has accepted.
    pub accepted: u64,
    /// Bytes that sockets of the program have taken.
    pub taken: u64,
    /// Bytes that they have given, those that the program drops included.
    pub given: u64,
    /// Times that a loop has waited, as it had nothing at hand.
    pub(crate) waits: u64,
    /// The loop's turn, as its driver counts.
    program_turn: u64,
    /// Calls and bytes of one connection in one turn, at most.
    most_work: Option<(u64, u64)>,
    /// Sockets that take no more.
    failed_sends: Vec<stream::FailedSend>,
    /// What struck so far.
    pub counts: FaultCounts,
    /// The first thing that the program did and must not.
    pub failure: Option<String>,
    trace: Option<Vec<String>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Box<Kernel>>> = const { RefCell::new(None) };
}

/// Makes `kernel` the calling thread's.
///
/// # Panics
/// If it has one.
pub fn install(kernel: Kernel) {
    CURRENT.with_borrow_mut(|current| {
        assert!(current.is_none(), "one kernel a thread");
        *current = Some(Box::new(kernel));
    });
}

/// Takes the calling thread's kernel away, if it has one.
pub fn remove() -> Option<Box<Kernel>> {
    CURRENT
        .try_with(|current| current.try_borrow_mut().ok()?.take())
        .ok()?
}

/// Calls `body` with the calling thread's kernel.
///
/// # Panics
/// If it has none.
pub fn with<T>(body: impl FnOnce(&mut Kernel) -> T) -> T {
    CURRENT.with_borrow_mut(|current| body(current.as_mut().expect("a simulated kernel is installed")))
}

/// As [`with`], for calls that also come without one, as those of the test harness.
fn with_any<T>(body: impl FnOnce(&mut Kernel) -> T) -> Option<T> {
    CURRENT
        .try_with(|current| current.try_borrow_mut().ok()?.as_deref_mut().map(body))
        .ok()?
}

/// Whether two addresses are equal; those that are not have mostly other ports, which is quickly seen.
fn same(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp(one), Address::Tcp(other)) => one.port() == other.port() && one == other,
        _ => one == other,
    }
}

/// Calls `body` while no fault strikes.
pub fn in_fairness<T>(body: impl FnOnce() -> T) -> T {
    with(|kernel| kernel.fair = true);
    let result = body();
    with(|kernel| {
        kernel.fair = false;
        kernel.taken = 0;
    });
    result
}

impl Kernel {
    /// A kernel at the beginning of time.
    #[must_use]
    pub fn new(seed: u64, profile: Profile, descriptors: usize, trace: bool) -> Self {
        Self {
            random: Random::new(seed, 1),
            late_random: Random::new(seed, 8),
            port_random: Random::new(seed, 18),
            profile,
            fair: false,
            now: 1_000_000_000,
            agenda: Agenda::default(),
            jobs: BTreeMap::new(),
            due_jobs: VecDeque::new(),
            next_job: 0,
            other_loop: None,
            table: Table::new(descriptors),
            objects: Vec::new(),
            bound: Vec::new(),
            next_port: 40_000,
            polls: Vec::new(),
            rings: Vec::new(),
            peers: Vec::new(),
            network: Network::default(),
            passed: Vec::new(),
            datagrams_moved: 0,
            spends_messages: Random::new(seed, 10).chance(768),
            waits_for_several: Random::new(seed, 236).chance(512),
            registering_waits: Random::new(seed, 237).chance(512),
            accepting_is_forbidden: false,
            exhausted_until: 0,
            accepted: 0,
            taken: 0,
            given: 0,
            waits: 0,
            program_turn: 0,
            most_work: None,
            failed_sends: Vec::new(),
            counts: FaultCounts::default(),
            failure: None,
            trace: trace.then(Vec::new),
        }
    }

    /// The time, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Times that a loop has waited, as it had nothing at hand.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// The program begins another of its turns.
    pub fn begin_turn(&mut self) {
        self.program_turn += 1;
    }

    /// From now on the program is at fault if one connection has more calls or bytes in one of its turns.
    pub fn limit_work(&mut self, calls: u64, bytes: u64) {
        self.most_work = Some((calls, bytes));
    }

    /// Requests and notifications that each ring has in flight.
    pub fn outstanding(&self) -> impl Iterator<Item = Vec<String>> {
        self.rings.iter().flatten().map(Ring::outstanding)
    }

    /// Whether a fault strikes on this occasion.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let struck = !self.fair && self.random.chance(self.profile.chance(fault));
        if struck {
            self.counts.count(fault);
        }
        struck
    }

    /// The chances of this run.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// From now on nothing goes wrong any more, peers do their part without delay, and those that were silent speak.
    pub fn become_fair(&mut self) {
        self.fair = true;
        self.exhausted_until = 0;
        for index in 0..self.peers.len() {
            self.calm_peer(index);
        }
    }

    /// Whether [`Kernel::become_fair`] was called.
    #[must_use]
    pub fn is_fair(&self) -> bool {
        self.fair
    }

    /// Notes what happens, if the run is being traced.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>13} {}", self.now - 1_000_000_000, line()));
        }
    }

    /// Notes that the program did what it must not. The run ends at the next look at it.
    pub(crate) fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(what());
        }
    }

    /// Completes the counts of what struck.
    pub fn end_counting(&mut self) {
        self.counts.take_errors();
        self.counts.incidents.descriptors_reused = self.table.reused;
    }

    /// Whoever is at the other end of a Unix socket that is given up may see less than was accepted for it: Unix
    /// sockets have no reset.
    pub(crate) fn excuse_unix(&mut self, object: ObjectId) {
        let peer = self.stream(object).filter(|stream| stream.unix);
        if let Some(peer) = peer.and_then(|stream| stream.peer_number) {
            self.peers[peer].excused = true;
        }
    }

    /// What was noted.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// A file of `length` bytes, those of the pattern's stream of this number.
    pub(crate) fn file(&mut self, stream: u64, length: u64) -> std::os::fd::RawFd {
        let file = self.add_object(Kind::File { stream, length });
        // Opened by the program before, with a descriptor that it had.
        self.table.insert(file)
    }

    /// The peer at the other end of a descriptor's connection.
    #[must_use]
    pub fn peer_of(&self, descriptor: std::os::fd::RawFd) -> Option<usize> {
        let Kind::Stream(stream) = &self.objects[self.table.get(descriptor)?].kind else {
            return None;
        };
        stream.peer_number
    }

    fn bound_to(&self, address: &Address) -> Option<ObjectId> {
        self.bound
            .iter()
            .find(|(bound, _)| same(bound, address))
            .map(|&(_, object)| object)
    }

    /// Objects that the program still holds, descriptions of them.
    #[must_use]
    pub fn left_over(&self) -> Vec<String> {
        self.table
            .iter()
            .map(|(descriptor, object)| format!("descriptor {descriptor}: {:?}", self.objects[object].kind))
            .collect()
    }
}
