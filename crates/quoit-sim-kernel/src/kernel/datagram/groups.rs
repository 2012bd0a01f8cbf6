//! Multicast: which sockets are members of which groups, and who gets what is sent to one.
//!
//! Simpler than a real host: there is one interface, and a member gets what is sent to the group at its own port whatever
//! address it is bound to.

use std::net::IpAddr;

use quoit::Address;
use quoit::internals::sys::DatagramFamily;

use super::super::object::{Kind, ObjectId};
use super::{DatagramSocket, Kernel};

/// Groups that a socket can be a member of (`net.ipv4.igmp_max_memberships`, there 20).
pub const MOST_GROUPS: usize = 3;

impl DatagramSocket {
    /// `IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP` and their opposites.
    pub(super) fn set_membership(&mut self, group: IpAddr, member: bool) -> Result<(), i32> {
        if !group.is_multicast() || group.is_ipv4() != (self.family == DatagramFamily::V4) {
            return Err(libc::EINVAL);
        }
        let place = self.groups.iter().position(|&known| known == group);
        match (place, member) {
            (Some(_), true) => return Err(libc::EADDRINUSE),
            (None, true) if self.groups.len() == MOST_GROUPS => return Err(libc::ENOBUFS),
            (None, true) => self.groups.push(group),
            (Some(place), false) => drop(self.groups.remove(place)),
            (None, false) => return Err(libc::EADDRNOTAVAIL),
        }
        Ok(())
    }
}

impl Kernel {
    /// The groups that a socket is a member of, in the order in which it has joined them; `None` if it is closed.
    #[must_use]
    pub fn memberships(&self, descriptor: i32) -> Option<&[IpAddr]> {
        let socket = self.datagram_at(self.table.get(descriptor)?)?;
        Some(&socket.groups)
    }

    /// The sockets that get what is sent to a group; `None` if the address is that of none.
    pub(super) fn members_of(&self, to: &Address) -> Option<Vec<ObjectId>> {
        let Address::Tcp(to) = to else { return None };
        if !to.ip().is_multicast() {
            return None;
        }
        let is_member = |bound: &Address, object: ObjectId| match (bound, &self.objects[object].kind) {
            (Address::Tcp(bound), Kind::Datagram(socket)) => {
                bound.port() == to.port() && socket.groups.contains(&to.ip())
            }
            _ => false,
        };
        let bound = self.bound.iter();
        let members = bound.filter(|(bound, object)| is_member(bound, *object));
        Some(members.map(|&(_, object)| object).collect())
    }
}
