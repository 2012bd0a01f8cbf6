//! Connecting to several addresses: which there are, and what must be true of the one that wins and of those that lose.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use quoit::{Address, Config};
use quoit_sim_kernel::faults::{Fault, Profile};
use quoit_sim_kernel::kernel::{Answer, Ending, PeerPlan, with};
use quoit_sim_kernel::random::Random;

use super::plan::{Life, PURPOSE};
use crate::options::Options;

/// The most addresses beside the first one.
const MOST_OTHERS: u64 = 4;
/// Of 1,024 lives that connect, so many have them.
const SHARE: u32 = 700;
/// How long an address is tried before the next one is, too, in nanoseconds.
const ATTEMPT_DELAY: u64 = 250_000_000;
/// How much later than is due for it a race may be won, in nanoseconds: tasks and the loop wait for each other.
const LATENESS: u64 = 100_000_000;
/// The longest time that peers take to answer, in nanoseconds.
const ANSWER: u64 = 2_000_000;

/// The addresses of a life beside the one of its peer.
#[derive(Clone, Debug)]
pub struct Race {
    /// Who is there.
    pub others: Vec<PeerPlan>,
    /// How many of them are named before the peer.
    pub place: usize,
}

/// The other addresses of a life, if it is to have some.
pub(super) fn draw_race(options: &Options, number: u64, life: &Life, profile: &Profile) -> Option<Race> {
    let random = &mut Random::new(options.seed, PURPOSE + 3000 + number);
    let chosen = random.chance(SHARE);
    if !chosen || life.connect_after.is_none() {
        return None;
    }
    let others: Vec<_> = (0..random.magnitude(MOST_OTHERS))
        .map(|other| {
            let ip: IpAddr = if random.chance(512) {
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, other as u16, number as u16).into()
            } else {
                [10, 1, other as u8, number as u8].into()
            };
            let after = random.magnitude(ANSWER);
            let answers = [
                Answer::Accept { after },
                Answer::Refuse,
                Answer::Never,
                Answer::Lose {
                    after,
                    error: libc::ENETUNREACH,
                },
            ];
            let answer = *random.choose(&answers);
            let fails =
                profile.chance(Fault::ConnectFails) > 0 && !options.without.contains(Fault::ConnectFails);
            // Who accepts is a loser that has to be closed.
            let answer = if fails || random.chance(300) {
                answer
            } else {
                answers[0]
            };
            let ending = *random.choose(&[Ending::ReadFirst, Ending::EndFirst]);
            PeerPlan::draw_ordinary(
                random,
                SocketAddr::new(ip, 80).into(),
                None,
                answer,
                (false, ending),
            )
        })
        .collect();
    let place = random.below(others.len() as u64 + 1) as usize;
    Some(Race { others, place })
}

/// Whom an attempt may reach.
pub(super) struct Candidates {
    /// Peers, in the order in which they are named.
    peers: Vec<usize>,
    /// When it has begun.
    pub(super) begun: Cell<u64>,
}

impl Candidates {
    pub(super) fn new(peers: Vec<usize>) -> Self {
        Self {
            peers,
            begun: Cell::new(0),
        }
    }

    /// Their addresses, in that order.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        with(|kernel| {
            let addresses = self.peers.iter().map(|&peer| &kernel.peers[peer].plan.address);
            addresses
                .map(|address| match address {
                    Address::Tcp(address) => *address,
                    other => unreachable!("{other} is not connected to by its address alone"),
                })
                .collect()
        })
    }

    /// The one that stands for all.
    pub(super) fn first(&self) -> usize {
        self.peers[0]
    }

    /// The order in which they are tried: the families take turns.
    fn order(&self) -> Vec<usize> {
        let addresses = self.addresses();
        let is_like_first = |&at: &usize| addresses[at].is_ipv4() == addresses[0].is_ipv4();
        let (like, unlike): (Vec<_>, Vec<_>) = (0..addresses.len()).partition(is_like_first);
        let mut order = Vec::new();
        for turn in 0..addresses.len() {
            order.extend(like.get(turn));
            order.extend(unlike.get(turn));
        }
        order
    }

    /// It has come to a connection with this address: whose that is.
    pub(super) fn winner(&self, address: &Address, losers: &Losers) -> usize {
        let peer = with(|kernel| kernel.peer_at(address));
        let peer = peer.filter(|peer| self.peers.contains(peer));
        let peer = peer.unwrap_or_else(|| panic!("nobody asked for a connection to {address}"));
        losers.add(self.peers.iter().copied().filter(|&other| other != peer));
        peer
    }

    /// It was won in time by this peer, whoever of those before it did not answer.
    pub(super) fn check_time(&self, winner: usize) {
        if self.peers.len() == 1 {
            return;
        }
        let place = self.order().into_iter().position(|at| self.peers[at] == winner);
        let place = place.expect("it is one of them") as u64;
        let time = with(|kernel| kernel.now()) - self.begun.get();
        assert!(
            time <= place * ATTEMPT_DELAY + ANSWER + LATENESS,
            "peer {winner}, the address number {place} of {}, has won after {time} ns",
            self.peers.len()
        );
    }

    /// It has failed, or was given up.
    pub(super) fn lost(&self, losers: &Losers) {
        with(|kernel| {
            for &peer in &self.peers {
                // It may have succeeded where nobody waited any more.
                kernel.peers[peer].excused = true;
            }
        });
        losers.add(self.peers.iter().copied());
    }

    /// Whether one of them would have taken the connection, and kept it.
    pub(super) fn has_taker(&self) -> bool {
        with(|kernel| {
            let takes = |&peer: &usize| {
                let peer = &kernel.peers[peer];
                matches!(peer.plan.answer, Answer::Accept { .. }) && !peer.broke_off
            };
            self.peers.iter().any(takes)
        })
    }
}

/// Whether attempts may fail for want of something: descriptors, memory, or time.
pub(super) fn is_scarce(config: &Config, descriptors: usize, peers: usize, profile: &Profile) -> bool {
    let faults = [
        Fault::NoDescriptors,
        Fault::NoMemory,
        Fault::TransferFails,
        Fault::ClockJump,
    ];
    faults.into_iter().any(|fault| profile.chance(fault) > 0)
        || config.connections as usize <= 2 * peers + 2
        || descriptors < 4096
        || u128::from(2 * (ANSWER + LATENESS)) > config.connect_timeout.as_nanos()
}

/// The peers that were connected to, and whose connections nobody has.
#[derive(Default)]
pub(super) struct Losers(RefCell<Vec<usize>>);

impl Losers {
    fn add(&self, peers: impl Iterator<Item = usize>) {
        self.0.borrow_mut().extend(peers);
    }

    /// Those that have a connection all the same.
    pub(super) fn left(&self) -> Vec<usize> {
        with(|kernel| {
            let losers = self.0.borrow();
            let has_one = |&&peer: &&usize| kernel.peers[peer].socket.is_some() && !kernel.peers[peer].gone;
            losers.iter().filter(has_one).copied().collect()
        })
    }
}
