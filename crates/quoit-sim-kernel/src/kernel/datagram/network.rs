//! What lies between datagram sockets: delay, loss, duplication, errors, and peers that are played from the agenda.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use quoit::Address;
use quoit::internals::sys::DatagramFamily;

use super::super::agenda::Action;
use super::super::object::{ObjectId, events};
use super::super::same;
use super::sharing::PortGroup;
use super::{Arrived, Facts, Kernel, OVERHEAD, Wishes};
use crate::faults::Fault;
use crate::pattern;
use crate::random::Random;

/// What a peer of datagrams does.
#[derive(Clone, Debug)]
pub struct DatagramPeerPlan {
    /// Where it is.
    pub address: Address,
    /// Whom it sends to.
    pub target: Address,
    /// When it begins, in nanoseconds from the start.
    pub start: u64,
    /// Times that it sends.
    pub times: u32,
    /// Datagrams at a time, at most.
    pub burst: u64,
    /// Bytes of each, at most.
    pub longest: u64,
    /// Nanoseconds between the times, at most.
    pub pause: u64,
    /// The chance, out of 1,024, that it answers what it receives.
    pub answers: u32,
    /// Datagrams of a burst have one size and come joined, where the receiver takes that.
    pub joined: bool,
}

/// A peer of datagrams.
#[derive(Debug)]
pub(super) struct DatagramPeer {
    plan: DatagramPeerPlan,
    random: Random,
    left: u32,
}

/// A datagram under way.
#[derive(Debug)]
struct Flight {
    /// The socket of the program's that sent it, and what it holds of that one's memory.
    sender: Option<(ObjectId, usize)>,
    to: Address,
    arrived: Arrived,
    /// A router's answer, instead of an arrival.
    error: Option<i32>,
}

/// Everything that is under way, and the peers.
#[derive(Default, Debug)]
pub(in crate::kernel) struct Network {
    flights: BTreeMap<u64, Flight>,
    /// Room that comes back to sockets.
    rooms: BTreeMap<u64, (ObjectId, usize)>,
    next: u64,
    peers: Vec<DatagramPeer>,
    /// The sockets that share a port.
    pub(super) port_groups: Vec<PortGroup>,
}

impl Network {
    pub(super) fn has_peer(&self, address: &Address) -> bool {
        self.peers.iter().any(|peer| same(&peer.plan.address, address))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

pub(super) fn ip(address: &Address) -> IpAddr {
    match address {
        Address::Tcp(address) => address.ip(),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

impl Kernel {
    /// Adds a peer of datagrams.
    pub fn add_datagram_peer(&mut self, plan: DatagramPeerPlan, random: Random) {
        let peers = &mut self.network.peers;
        peers.push(DatagramPeer {
            left: plan.times,
            random,
            plan,
        });
        let (number, start) = (peers.len() - 1, peers[peers.len() - 1].plan.start);
        self.plan(start, Action::DatagramPeer(number));
    }

    /// Whether datagrams are under way, or peers have not sent all.
    #[must_use]
    pub fn datagrams_move(&self) -> bool {
        !self.network.flights.is_empty() || self.network.peers.iter().any(|peer| peer.left > 0)
    }

    /// Bytes of a socket's send memory are given back later.
    pub(super) fn plan_room(&mut self, id: ObjectId, size: usize) {
        let number = self.network.number();
        self.network.rooms.insert(number, (id, size));
        let after = self.random.magnitude(200_000);
        self.plan(after, Action::DatagramRoom(number));
    }

    pub(in crate::kernel) fn give_room(&mut self, number: u64) {
        if let Some((id, size)) = self.network.rooms.remove(&number) {
            self.free_send_memory(id, size);
        }
    }

    fn free_send_memory(&mut self, id: ObjectId, size: usize) {
        if let Some(socket) = self.datagram(id) {
            socket.sending -= size;
            if socket.has_space() {
                // Requested by an edge each time, also if nobody wants to send (`sock_def_write_space`).
                self.datagrams_moved += 1;
                self.wake(id, events::OUT);
            }
        }
    }

    /// A datagram of the program's leaves.
    pub(super) fn transmit(&mut self, id: ObjectId, to: &Address, bytes: Bytes, wishes: Wishes) {
        let size = bytes.len() + OVERHEAD;
        let Some(socket) = self.datagram(id) else { return };
        let Some(mut from) = socket.local.clone() else {
            return;
        };
        if let (Address::Tcp(from), Some(source)) = (&mut from, wishes.source) {
            from.set_ip(source);
        }
        let is_told = socket.peer.as_ref() == Some(to) || socket.queues_errors;
        socket.sending += size;
        let step = usize::from(wishes.segment_size);
        let cut = step > 0 && bytes.len() > step;
        let arrived = Arrived {
            from,
            facts: Facts {
                to: ip(to),
                ecn: wishes.ecn,
                time: self.now,
                segment_size: if cut { wishes.segment_size } else { 0 },
                drops: 0,
                steered: None,
            },
            bytes,
        };
        let lost = self.strikes(Fault::DatagramLost);
        let refused = is_told && self.strikes(Fault::DatagramRefused);
        let doubled = self.strikes(Fault::DatagramDoubled);
        let error = refused.then(|| {
            *self
                .random
                .choose(&[libc::EHOSTUNREACH, libc::ECONNREFUSED, libc::EMSGSIZE])
        });
        let flight = Flight {
            sender: Some((id, size)),
            to: to.clone(),
            arrived,
            error,
        };
        if doubled && !lost {
            let copy = Flight {
                sender: None,
                to: to.clone(),
                arrived: flight.arrived.clone(),
                error: None,
            };
            self.send_off(copy);
        }
        if lost {
            self.free_send_memory(id, size);
        } else {
            self.send_off(flight);
        }
    }

    fn send_off(&mut self, flight: Flight) {
        if self.strikes(Fault::DatagramLate) {
            let after = self.random.magnitude(5_000_000);
            let number = self.network.number();
            self.network.flights.insert(number, flight);
            self.plan(after, Action::DatagramArrives(number));
        } else {
            self.land(flight);
        }
    }

    pub(in crate::kernel) fn datagram_arrives(&mut self, number: u64) {
        if let Some(flight) = self.network.flights.remove(&number) {
            self.land(flight);
        }
    }

    fn land(&mut self, flight: Flight) {
        let Flight {
            sender,
            to,
            arrived,
            error,
        } = flight;
        if let Some((id, size)) = sender {
            self.free_send_memory(id, size);
        }
        if let Some(error) = error {
            if let Some((id, _)) = sender {
                self.report_network_error(id, &to, error);
            }
            return;
        }
        if let Some(members) = self.members_of(&to) {
            // If there are none, nobody answers.
            for member in members {
                self.reach_socket(member, arrived.clone());
            }
            return;
        }
        if self.network.has_peer(&to) {
            self.reach_peer(&to, arrived.from, arrived.bytes.len());
            return;
        }
        match self.receiver_of(&arrived.from, &to) {
            Some((found, steered)) => {
                let facts = Facts {
                    steered,
                    ..arrived.facts
                };
                self.reach_socket(found, Arrived { facts, ..arrived });
            }
            // Nobody is at the port.
            None => {
                if let Some((id, _)) = sender {
                    self.report_network_error(id, &to, libc::ECONNREFUSED);
                }
            }
        }
    }

    /// What was sent in segments stays joined for those who take it so, and is taken apart for others.
    fn reach_socket(&mut self, id: ObjectId, arrived: Arrived) {
        let step = usize::from(arrived.facts.segment_size);
        let joins = self.datagram(id).is_some_and(|socket| socket.requested.joins);
        if step == 0 || joins {
            self.enqueue(id, arrived);
            return;
        }
        let length = arrived.bytes.len();
        for begin in (0..length).step_by(step) {
            let arrived = Arrived {
                bytes: arrived.bytes.slice(begin..length.min(begin + step)),
                from: arrived.from.clone(),
                facts: Facts {
                    segment_size: 0,
                    ..arrived.facts
                },
            };
            self.enqueue(id, arrived);
        }
    }

    /// A peer receives something, and may answer.
    pub(super) fn reach_peer(&mut self, to: &Address, from: Address, length: usize) {
        let Some(number) = self
            .network
            .peers
            .iter()
            .position(|peer| same(&peer.plan.address, to))
        else {
            return;
        };
        let fair = self.fair;
        let peer = &mut self.network.peers[number];
        let chance = peer.plan.answers;
        if fair || !peer.random.chance(chance) || from == Address::UnixUnnamed {
            return;
        }
        let stream = peer.random.below(1 << 20);
        let bytes = Bytes::from_static(pattern::bytes(stream, 0, length.min(pattern::LONGEST)));
        let after = peer.random.magnitude(100_000);
        let arrived = Arrived {
            from: to.clone(),
            bytes,
            facts: Facts {
                to: ip(&from),
                ecn: 0,
                time: self.now,
                segment_size: 0,
                drops: 0,
                steered: None,
            },
        };
        let number = self.network.number();
        let flight = Flight {
            sender: None,
            to: from,
            arrived,
            error: None,
        };
        self.network.flights.insert(number, flight);
        self.plan(after, Action::DatagramArrives(number));
    }

    /// A peer sends what it sends at a time.
    pub(in crate::kernel) fn play_datagram_peer(&mut self, number: usize) {
        let peer = &mut self.network.peers[number];
        if peer.left == 0 {
            return;
        }
        peer.left -= 1;
        let count = peer.random.between(1, peer.plan.burst) as usize;
        let size = peer.random.magnitude(peer.plan.longest + 1) as usize - 1;
        let joined = peer.plan.joined && size > 0 && count > 1;
        let ecn = peer.random.below(4) as u8;
        let pause = peer.random.magnitude(peer.plan.pause);
        let (from, to) = (peer.plan.address.clone(), peer.plan.target.clone());
        let count = if joined {
            count.min(60_000 / size).max(1)
        } else {
            count
        };
        let sizes: Vec<usize> = if joined {
            let last = peer.random.between(1, size as u64) as usize;
            vec![(size * (count - 1) + last).min(60_000)]
        } else {
            (0..count)
                .map(|_| peer.random.magnitude(peer.plan.longest + 1) as usize - 1)
                .collect()
        };
        for length in sizes {
            let stream = self.network.peers[number].random.below(1 << 20);
            let arrived = Arrived {
                from: from.clone(),
                bytes: Bytes::from_static(pattern::bytes(stream, 0, length)),
                facts: Facts {
                    to: ip(&to),
                    ecn,
                    time: self.now,
                    segment_size: if joined && length > size { size as u16 } else { 0 },
                    drops: 0,
                    steered: None,
                },
            };
            self.send_from_peer(to.clone(), arrived);
        }
        if self.network.peers[number].left > 0 {
            self.plan(pause, Action::DatagramPeer(number));
        }
    }

    fn send_from_peer(&mut self, to: Address, arrived: Arrived) {
        if to.is_unix() {
            // Its sends wait for room no longer than it takes to be told that there is none.
            let found = self.bound_to(&to);
            let full = found.and_then(|found| self.datagram(found)).is_none_or(|socket| {
                socket.family != DatagramFamily::Unix || socket.queue.len() > super::UNIX_QUEUE
            });
            if let (Some(found), false) = (found, full) {
                self.enqueue(found, arrived);
            }
            return;
        }
        if self.strikes(Fault::DatagramLost) {
            return;
        }
        let doubled = self.strikes(Fault::DatagramDoubled);
        let flight = |arrived| Flight {
            sender: None,
            to: to.clone(),
            arrived,
            error: None,
        };
        if doubled {
            self.send_off(flight(arrived.clone()));
        }
        self.send_off(flight(arrived));
    }
}
