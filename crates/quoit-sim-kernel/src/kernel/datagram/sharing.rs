//! Several sockets on one port (`SO_REUSEPORT`): who may be bound there, and which of them gets what is sent to it.
//!
//! The rules are those of `reuseport_select_sock`, `__reuseport_detach_sock` and `udp4_lib_lookup2`. What a processor
//! handles is mostly what it has handled of the sender before, as with the queues of a network card.

use std::net::SocketAddr;

use bytes::Bytes;
use quoit::Address;

use super::super::Kernel;
use super::super::object::{Kind, ObjectId};
use super::super::same;
use super::{Arrived, Facts};

/// The processors of the machine.
const PROCESSORS: u8 = 4;
/// How many of a sender's datagrams another processor handles than the others, out of 1,024.
const MOVED: u32 = 100;

/// The sockets that share a port (`struct sock_reuseport`).
#[derive(Debug)]
pub(super) struct PortGroup {
    address: Address,
    members: Vec<ObjectId>,
    /// It has lost a member, whose place the last one has taken.
    changed: bool,
    /// The count that the attached program divides the processor's number by, if there is one.
    steered: Option<u16>,
}

/// Mixes an address into a number, as a flow's hash does.
fn hash(address: &Address) -> u32 {
    let Address::Tcp(address) = address else { return 0 };
    let (ip, port) = (address.ip().to_canonical(), address.port());
    let octets = match ip {
        std::net::IpAddr::V4(ip) => u128::from(u32::from(ip)),
        std::net::IpAddr::V6(ip) => u128::from(ip),
    };
    let mixed = (octets as u64 ^ (octets >> 64) as u64 ^ u64::from(port) << 32)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

impl Kernel {
    /// Whether a socket may be bound to an address that others have: all of them, and it, share their port.
    pub(in crate::kernel) fn may_share(&self, id: ObjectId, address: &Address) -> bool {
        let shares = |id: ObjectId| match &self.objects[id].kind {
            Kind::Datagram(socket) => socket.shares_port && !socket.is_unix(),
            _ => false,
        };
        let mut there = self.bound.iter().filter(|(bound, _)| same(bound, address));
        shares(id) && there.all(|&(_, other)| shares(other))
    }

    /// A socket that shares its port was bound.
    pub(super) fn join_port(&mut self, id: ObjectId, address: &Address) {
        let groups = &mut self.network.port_groups;
        match groups.iter_mut().find(|group| same(&group.address, address)) {
            Some(group) => group.members.push(id),
            None => groups.push(PortGroup {
                address: address.clone(),
                members: vec![id],
                changed: false,
                steered: None,
            }),
        }
    }

    /// A socket was closed: the last of its group takes its place. The group ends with its last member.
    pub(super) fn leave_port(&mut self, id: ObjectId) {
        let groups = &mut self.network.port_groups;
        for group in groups.iter_mut() {
            if let Some(place) = group.members.iter().position(|&member| member == id) {
                group.members.swap_remove(place);
                group.changed = true;
            }
        }
        groups.retain(|group| !group.members.is_empty());
    }

    /// `SO_ATTACH_REUSEPORT_CBPF` with a program that returns the processor's number modulo `count`.
    pub(super) fn steer_by_processor(&mut self, id: ObjectId, count: u16) -> Result<(), i32> {
        let mut groups = self.network.port_groups.iter_mut();
        let group = groups.find(|group| group.members.contains(&id));
        group.ok_or(libc::EINVAL)?.steered = Some(count.max(1));
        Ok(())
    }

    /// The datagram socket that gets what comes from one address for another; and, if a program chose it in a group that
    /// is as it was made, the number of the processor.
    pub(super) fn receiver_of(&mut self, from: &Address, to: &Address) -> Option<(ObjectId, Option<u8>)> {
        let mut groups = self.network.port_groups.iter();
        let Some(place) = groups.position(|group| same(&group.address, to)) else {
            let found = self.bound_to(to)?;
            return self.datagram_at(found).map(|_| (found, None));
        };
        let hash = hash(from) ^ hash(to).rotate_left(16);
        let processor = if self.port_random.chance(MOVED) {
            self.port_random.below(PROCESSORS.into()) as u8
        } else {
            hash as u8 % PROCESSORS
        };
        let group = &self.network.port_groups[place];
        let members = &group.members;
        let peer_of = |id: ObjectId| self.datagram_at(id).and_then(|socket| socket.peer.as_ref());
        // One that is connected to the sender has more in common with the datagram than the others.
        if let Some(&connected) = members.iter().find(|&&member| peer_of(member) == Some(from)) {
            return Some((connected, None));
        }
        let chosen = group.steered.map(|count| u16::from(processor) % count);
        if let Some(&member) = chosen.and_then(|place| members.get(usize::from(place)))
            && peer_of(member).is_none()
        {
            return Some((member, (!group.changed).then_some(processor)));
        }
        // Also where the program names none that is there. Those that are connected to others are passed over.
        let first = ((u64::from(hash) * members.len() as u64) >> 32) as usize;
        let mut order = (first..members.len()).chain(0..first);
        let place = order.find(|&place| peer_of(members[place]).is_none())?;
        Some((members[place], None))
    }

    /// So many datagrams reach a socket now, from its peer or from somebody.
    pub fn pour_datagrams(&mut self, descriptor: i32, from: Option<Address>, count: usize) {
        let Some(id) = self.table.get(descriptor) else {
            return;
        };
        let Some(Address::Tcp(local)) = self.datagram_at(id).and_then(|socket| socket.local.clone()) else {
            return;
        };
        let from = from.unwrap_or_else(|| SocketAddr::new(local.ip(), 9).into());
        for _ in 0..count {
            let facts = Facts {
                to: local.ip(),
                ecn: 0,
                time: self.now,
                segment_size: 0,
                drops: 0,
                steered: None,
            };
            let (from, bytes) = (from.clone(), Bytes::from_static(b"flood"));
            self.enqueue(id, Arrived { from, bytes, facts });
        }
    }

    /// Whether a watched socket is still there, by the number under which is kept what passes through it.
    #[must_use]
    pub fn has_datagram_socket(&self, watch: usize) -> bool {
        let mut bound = self.bound.iter();
        bound.any(|&(_, id)| {
            self.datagram_at(id)
                .is_some_and(|socket| socket.watch == Some(watch))
        })
    }
}
