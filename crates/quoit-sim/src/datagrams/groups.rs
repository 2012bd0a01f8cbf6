//! Multicast groups: joined and left, by the method and by a command, also where that is refused.

use std::collections::BTreeSet;
use std::net::IpAddr;

use quoit::internals::engine::Engine;
use quoit::{Command, DatagramSocketId, Errno, MulticastGroup, Refusal};
use quoit_sim_kernel::kernel::{MOST_GROUPS, with};

use crate::world::World;

/// The groups of one socket, as its user knows them.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    joined: BTreeSet<IpAddr>,
    /// A command that was given with a batch, and how it ends. Until it has ended no other is given.
    asked: Option<Result<(), Errno>>,
}

impl Groups {
    pub(crate) fn new(of: &[MulticastGroup]) -> Self {
        Self {
            joined: of.iter().map(|group| group.group).collect(),
            asked: None,
        }
    }

    /// Joins or leaves a group, as a host does it.
    fn change(&mut self, group: IpAddr, v4: bool, member: bool) -> Result<(), Errno> {
        let refused = |code| Err(Errno::new(code));
        if group.is_ipv4() != v4 {
            return refused(libc::EINVAL);
        }
        match (self.joined.contains(&group), member) {
            (true, true) => refused(libc::EADDRINUSE),
            (false, true) if self.joined.len() == MOST_GROUPS => refused(libc::ENOBUFS),
            (false, false) => refused(libc::EADDRNOTAVAIL),
            (false, true) => {
                self.joined.insert(group);
                Ok(())
            }
            (true, false) => {
                self.joined.remove(&group);
                Ok(())
            }
        }
    }

    /// A command without a token was refused: the one that was asked for, if a join or leave was.
    pub(crate) fn note_refusal(&mut self, refusal: Refusal) {
        if let Refusal::Error(errno) = refusal {
            assert_eq!(
                self.asked.take(),
                Some(Err(errno)),
                "a command on groups is refused"
            );
        }
    }
}

impl<E: Engine + 'static> World<E> {
    /// Joins or leaves one of the socket's groups.
    pub(super) fn change_groups(&mut self, id: DatagramSocketId) {
        let lives = &mut self.datagrams;
        let Some(state) = lives.sockets.iter_mut().find(|socket| socket.id == id) else {
            return;
        };
        if state.closing || state.may_be_closing || state.groups.asked.is_some() {
            return;
        }
        let group = *lives.random.choose(&state.plan.groups);
        let member = lives.random.chance(600);
        let v4 = matches!(&state.plan.address, quoit::Address::Tcp(own) if own.is_ipv4());
        let expected = state.groups.change(group, v4, member);
        let place = MulticastGroup { group, interface: 0 };
        with(|kernel| {
            kernel.note(|| format!("{id:?} in {group}: {member}, {expected:?} is expected"));
        });
        if !self.plan.one_by_one && self.datagrams.random.chance(400) {
            self.datagrams.state(id).groups.asked = Some(expected);
            self.batch.push(Command::SetMembership {
                socket: id,
                group: place,
                member,
            });
            return;
        }
        let result = if member {
            self.event_loop.join_multicast(id, place)
        } else {
            self.event_loop.leave_multicast(id, place)
        };
        assert_eq!(
            result,
            expected.map_err(Refusal::Error),
            "{id:?} joins or leaves {group} ({member})"
        );
        self.check_groups(id);
    }

    /// That the kernel knows of the same groups as the model, unless a command is on the way.
    fn check_groups(&mut self, id: DatagramSocketId) {
        let state = self.datagrams.state(id);
        if state.groups.asked.is_some() {
            return;
        }
        let descriptor = state.descriptor;
        let known = with(|kernel| {
            kernel
                .memberships(descriptor)
                .map(|groups| groups.iter().copied().collect())
        });
        // Closed, and not told yet.
        let Some(known) = known else { return };
        let known: BTreeSet<IpAddr> = known;
        assert_eq!(known, state.groups.joined, "the groups of {id:?}");
    }

    /// The turn has carried the batch out: what was asked for has been done, or its refusal is among the events.
    pub(crate) fn conclude_group_changes(&mut self) {
        for index in 0..self.datagrams.sockets.len() {
            let state = &mut self.datagrams.sockets[index];
            if state.groups.asked == Some(Ok(())) && self.batch.is_empty() {
                state.groups.asked = None;
                let (id, quiet) = (state.id, !state.closing && !state.may_be_closing && !self.ending);
                if quiet {
                    self.check_groups(id);
                }
            }
        }
    }
}
