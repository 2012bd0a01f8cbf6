//! Sockets that share a port: made together, closed and made again one by one, and flooded, of which the others must
//! notice nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use quoit::internals::engine::Engine;
use quoit::{DatagramSocket, DatagramSocketError, DatagramSocketId, Errno, Steering};
use quoit_sim_kernel::faces::SimSockets;
use quoit_sim_kernel::kernel::with;

use super::reference::Socket;
use crate::world::World;

/// Datagrams that come to the flooded one before each turn.
const FLOOD: usize = 40;
/// Turns, of a tenth of a second where nothing happens, after which every socket receives.
const MOST_TURNS: u32 = 1000;

/// The groups that were made, by the number of the first of the plan's sockets: the members, in order.
pub(crate) type Made = BTreeMap<usize, Vec<usize>>;

impl<E: Engine + 'static> World<E> {
    /// Makes a socket of the plan; where several are to share its port, all of them the first time. Returns each with its
    /// number.
    pub(super) fn bind_datagrams(
        &mut self,
        number: usize,
    ) -> Result<Vec<(usize, DatagramSocket)>, DatagramSocketError> {
        let lives = &mut self.datagrams;
        let plan = &lives.plan.sockets[number];
        let Some(sharing) = &plan.sharing else {
            let socket = DatagramSocket::bind_on(&SimSockets, &plan.address, &plan.options)?;
            return Ok(vec![(number, socket)]);
        };
        let free_port = |error: DatagramSocketError| {
            assert_ne!(
                error.errno(),
                Some(Errno::new(libc::EADDRINUSE)),
                "all on {} share it",
                plan.address
            );
            error
        };
        if lives.made.contains_key(&sharing.members[0]) {
            let socket = DatagramSocket::bind_on(&SimSockets, &plan.address, &plan.options);
            return Ok(vec![(number, socket.map_err(free_port)?)]);
        }
        // Those that live in this run.
        let waits = |member: usize| lives.to_open.iter().any(|&(_, number)| number == member);
        let mut members = sharing.members.clone();
        members.retain(|&member| member == number || waits(member));
        let (count, steering) = (members.len() as u16, sharing.steering);
        let sockets =
            DatagramSocket::bind_group_on(&SimSockets, &plan.address, &plan.options, count, steering);
        let sockets = sockets.map_err(free_port)?;
        assert_eq!(sockets.len(), members.len(), "the sockets of a group");
        lives.made.insert(sharing.members[0], members.clone());
        lives.to_open.retain(|(_, waiting)| !members.contains(waiting));
        Ok(members.into_iter().zip(sockets).collect())
    }

    /// Floods a member of each group, and expects that what comes to another is told within a bound of turns. Returns
    /// whether there was any.
    pub(crate) fn flood_members(&mut self) -> bool {
        let mut any = false;
        self.tells_all = true;
        let groups: Vec<_> = self.datagrams.made.values().cloned().collect();
        for members in groups {
            let open = |socket: &&Socket| {
                let active = socket.opened && !socket.closing && !socket.may_be_closing;
                // What is cut is told otherwise.
                active && !socket.plan.meddled_with && members.contains(&socket.number)
            };
            let mut open = self.datagrams.sockets.iter().filter(open).map(|socket| socket.id);
            if let (Some(flooded), Some(quiet)) = (open.next(), open.next()) {
                let choose = self.datagrams.random.chance(512);
                let (flooded, quiet) = if choose {
                    (flooded, quiet)
                } else {
                    (quiet, flooded)
                };
                self.flood(flooded, quiet);
                any = true;
            }
        }
        self.tells_all = false;
        any
    }

    fn flood(&mut self, flooded: DatagramSocketId, quiet: DatagramSocketId) {
        // A receive that had failed is made again after a while.
        self.await_delivery(quiet, None, MOST_TURNS);
        // The slots of the flooded one may all be on the way, each with a completion, of which a turn may take one; and so
        // may those of others, flooded before. Connections have their turns too: one receives and sends in between.
        let sockets = &self.datagrams.sockets;
        let slots: u32 = sockets.iter().map(|socket| socket.plan.options.slots).sum();
        let bound = 2 * (slots + self.event_loop.connections()) + 50;
        self.await_delivery(quiet, Some(flooded), bound);
    }

    /// Lets a datagram come to a socket, and turns pass until it is told; before each another one is flooded.
    fn await_delivery(&mut self, quiet: DatagramSocketId, flooded: Option<DatagramSocketId>, bound: u32) {
        let before = self.datagrams.state(quiet).delivered;
        self.datagrams.pour(quiet, 1);
        for turn in 0.. {
            // One may have been opened paused in the last turn.
            self.resume_all_datagrams();
            if let Some(flooded) = flooded {
                self.datagrams.pour(flooded, FLOOD);
            }
            self.turn(Some(Duration::from_millis(100)));
            self.datagrams.release_all();
            if self.datagrams.state(quiet).delivered > before {
                return;
            }
            assert!(
                turn < bound,
                "{turn} turns, and nothing is told of what came to {quiet:?}, which shares its port with {flooded:?}"
            );
        }
    }
}

impl super::DatagramLives {
    /// Datagrams come to a socket, as many as it has room for.
    fn pour(&mut self, id: DatagramSocketId, count: usize) {
        let state = self.state(id);
        let (descriptor, from) = (state.descriptor, state.plan.options.peer.clone());
        with(|kernel| kernel.pour_datagrams(descriptor, from, count));
    }

    /// The place of a socket among those of its group, and their count, if the processor steers it.
    pub(super) fn steered(&self, number: usize) -> Option<(usize, usize)> {
        let sharing = self.plan.sockets[number].sharing.as_ref()?;
        let made = self.made.get(&sharing.members[0])?;
        let place = made.iter().position(|&member| member == number)?;
        (sharing.steering == Steering::Cpu).then_some((place, made.len()))
    }
}
