//! Datagram sockets in a run: what they are ([`plan`]), what the handler does with them here, and what must hold of them
//! ([`reference`]).

mod acts;
mod events;
mod groups;
pub mod plan;
pub(crate) mod reference;
pub(crate) mod sending;
mod sharing;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::rc::Rc;

use quoit::{DatagramSocketId, Datagrams, Token};
use quoit_sim_kernel::kernel::{Handed, with};
use quoit_sim_kernel::random::Random;

use plan::DatagramPlan;
use reference::Socket;

/// Answers that a handler gives in one run: two sockets that echo would never end.
const ANSWERS: u32 = 200;

/// Datagrams that the handler keeps.
pub(crate) struct KeptDatagrams {
    pub(crate) socket: DatagramSocketId,
    pub(crate) handed: Handed,
    pub(crate) datagrams: Datagrams,
}

impl KeptDatagrams {
    /// That nobody wrote to them while they were held.
    pub(crate) fn check(&self) {
        assert!(
            self.datagrams.whole().bytes() == &self.handed.bytes[..self.handed.length],
            "datagrams of {:?} changed while they were held",
            self.socket
        );
    }
}

/// A socket that was given to the loop by a command, and is not known to be open.
pub(crate) struct Opening {
    token: Token,
    number: usize,
    descriptor: RawFd,
    watch: usize,
}

/// All that a run has of datagrams.
pub(crate) struct DatagramLives {
    /// Not the stream of the rest: runs without datagrams are the same with and without this.
    random: Random,
    plan: DatagramPlan,
    /// Those that are to be opened: the turn and the socket, the last first.
    to_open: Vec<(u32, usize)>,
    opening: Vec<Opening>,
    /// The groups on one port that were made.
    made: sharing::Made,
    /// Those that are open.
    sockets: Vec<Socket>,
    kept: VecDeque<KeptDatagrams>,
    answers_left: u32,
    next_stream: u64,
    /// Sends that another thread could not post.
    unposted: Rc<RefCell<Vec<Token>>>,
}

impl DatagramLives {
    /// Those of a run; `has` says which sockets are to live.
    pub(crate) fn new(seed: u64, plan: DatagramPlan, has: impl Fn(usize) -> bool) -> Self {
        let mut to_open: Vec<_> = plan
            .sockets
            .iter()
            .enumerate()
            .filter(|&(number, _)| has(number))
            .map(|(number, socket)| (socket.open_at, number))
            .collect();
        to_open.sort_unstable_by(|one, other| other.cmp(one));
        for (index, (number, peer)) in plan.peers.iter().enumerate() {
            if has(*number) {
                let random = Random::new(seed, 7000 + index as u64);
                with(|kernel| kernel.add_datagram_peer(peer.clone(), random));
            }
        }
        Self {
            random: Random::new(seed, 6),
            plan,
            to_open,
            opening: Vec::new(),
            made: sharing::Made::new(),
            sockets: Vec::new(),
            kept: VecDeque::new(),
            answers_left: ANSWERS,
            next_stream: 0,
            unposted: Rc::default(),
        }
    }

    /// Whether the run has none, and nothing needs to be done.
    pub(crate) fn is_absent(&self) -> bool {
        self.plan.sockets.is_empty()
    }

    /// One that is open.
    fn find(&mut self, id: DatagramSocketId) -> Option<&mut Socket> {
        self.sockets.iter_mut().find(|socket| socket.id == id)
    }

    /// One that is open, as an event says.
    fn state(&mut self, id: DatagramSocketId) -> &mut Socket {
        self.find(id)
            .unwrap_or_else(|| panic!("{id:?} has never begun, or has closed and goes on"))
    }

    /// Takes in what has passed through the sockets.
    pub(crate) fn note_passed(&mut self) {
        if self.is_absent() {
            return;
        }
        with(|kernel| {
            for socket in &mut self.sockets {
                if let Some(passed) = kernel.take_passed(socket.watch) {
                    socket.note_passed(passed);
                }
            }
        });
        for token in self.unposted.borrow_mut().drain(..) {
            self.sockets
                .iter_mut()
                .for_each(|socket| socket.forget_send(token));
        }
    }

    /// Lets go of all that is kept.
    pub(crate) fn release_all(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        for kept in self.kept.drain(..) {
            kept.check();
        }
    }
}
