//! The datagram sockets of tasks: what must be true of what they receive and send.
//!
//! Each datagram that the kernel hands over is read once, whole but for what the reader had no room for, in the kernel's order
//! and with its sender. Each that leaves is one that was sent, and leaves once.

pub mod plan;
mod tasks;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quoit::{Address, DatagramSocket, Datagrams, Gro};
use quoit_async_sim::UdpSocket;
use quoit_async_sim::simulation::Simulation;
use quoit_sim_kernel::faces::SimSockets;
use quoit_sim_kernel::kernel::{Handed, in_fairness, with};
use quoit_sim_kernel::random::Random;

use super::plan::PURPOSE;
use super::shared::Shared;
use crate::datagrams::sending::Sending;
use crate::options::Options;
use plan::{AsyncDatagrams, SocketPlan};

/// What is known of one socket.
pub(super) struct Reference {
    number: usize,
    plan: SocketPlan,
    descriptor: RawFd,
    /// The number under which the kernel keeps what passes through it.
    watch: usize,
    /// Handed over by the kernel and not read: each with how much of it was, as joined ones are read one by one.
    handed: VecDeque<(Handed, usize)>,
    /// Taken, and not known to have left.
    sends: Vec<Sending>,
    /// Whether lent memory was let go of.
    frees: Vec<Arc<AtomicBool>>,
}

impl Reference {
    /// Takes in what has passed through the socket in the kernel.
    fn note_passed(&mut self) {
        let Some(passed) = with(|kernel| kernel.take_passed(self.watch)) else {
            return;
        };
        // Those whose control messages were cut are dropped.
        let whole = passed.handed.into_iter().filter(|handed| !handed.control_cut);
        self.handed.extend(whole.map(|handed| (handed, 0)));
        for message in passed.departed {
            let found = self
                .sends
                .iter_mut()
                .position(|sending| sending.matches(&message));
            let Some(found) = found else {
                panic!(
                    "socket {} sent {} bytes to {:?} ({:?}), and nobody wanted that, or not again",
                    self.number,
                    message.bytes.len(),
                    message.to,
                    message.wishes
                );
            };
            if self.sends[found].has_left() && self.sends[found].is_distinct() {
                self.sends.remove(found);
            }
        }
    }

    /// The step in which the first of what was handed over is read.
    fn step(&self, handed: &Handed) -> Option<usize> {
        let step = usize::from(handed.facts.segment_size);
        (step > 0 && self.plan.options.gro != Gro::Raw).then_some(step)
    }

    /// One datagram was copied into `buffer`, which has so much room.
    fn copied(&mut self, bytes: &[u8], room: usize, from: SocketAddr) {
        self.note_passed();
        let number = self.number;
        let Some((handed, offset)) = self.handed.front() else {
            panic!(
                "of socket {number} {} bytes from {from} were read, and nothing was received",
                bytes.len()
            );
        };
        let rest = &handed.bytes[*offset..handed.length];
        let size = self.step(handed).map_or(rest.len(), |step| step.min(rest.len()));
        assert_eq!(
            Address::from(from),
            handed.from,
            "who sent what was read of socket {number}"
        );
        assert!(
            *bytes == rest[..size.min(room)],
            "of socket {number} {} bytes were read with room for {room}, and {size} others were received",
            bytes.len()
        );
        if size == rest.len() {
            self.handed.pop_front();
        } else if let Some((_, offset)) = self.handed.front_mut() {
            *offset += size;
        }
    }

    /// Datagrams were taken in the memory that they came in.
    fn taken(&mut self, datagrams: &Datagrams) {
        self.note_passed();
        let number = self.number;
        let Some((handed, offset)) = self.handed.pop_front() else {
            panic!("of socket {number} {datagrams:?} were read, and nothing was received");
        };
        let rest = &handed.bytes[offset..handed.length];
        let expected: Vec<&[u8]> = match self.step(&handed) {
            Some(step) if !rest.is_empty() => rest.chunks(step).collect(),
            _ => vec![rest],
        };
        assert!(
            datagrams.iter().map(|one| one.bytes()).eq(expected),
            "of socket {number} {datagrams:?} were read, and {} other bytes were received",
            rest.len()
        );
        let whole = datagrams.whole();
        assert_eq!(
            whole.peer(),
            handed.from,
            "who sent what was read of socket {number}"
        );
        assert_eq!(
            whole.is_truncated(),
            handed.length < handed.bytes.len(),
            "whether what was read of socket {number} came cut"
        );
    }

    /// Who sent what is read next.
    fn next_from(&mut self) -> Option<SocketAddr> {
        self.note_passed();
        match self.handed.front().map(|(handed, _)| &handed.from) {
            Some(Address::Tcp(from)) => Some(*from),
            _ => None,
        }
    }

    /// A send was taken.
    fn sent(&mut self, sending: Sending) {
        self.frees.extend(sending.free.clone());
        self.sends.push(sending);
        self.note_passed();
    }

    /// That this is an error which the network or the kernel may have brought. Returns whether the socket has ended.
    fn check_error(&self, shared: &Shared, what: &str, error: &io::Error) -> bool {
        with(|kernel| kernel.note(|| format!("task: {what} of socket {} fails: {error}", self.number)));
        match error.raw_os_error() {
            // Of a socket that has closed, or is closing.
            None | Some(libc::ENOTCONN) => {
                assert!(
                    shared.draining.get(),
                    "{what} of socket {}, which is open, fails: {error} ({:?})",
                    self.number,
                    error.kind()
                );
                true
            }
            Some(code) => {
                let expected = [
                    libc::ECONNREFUSED,
                    libc::EHOSTUNREACH,
                    libc::EMSGSIZE,
                    libc::ENOBUFS,
                    libc::ENOMEM,
                ];
                assert!(
                    expected.contains(&code),
                    "{what} of socket {} fails: {error}",
                    self.number
                );
                false
            }
        }
    }
}

/// The sockets of a run.
#[derive(Default)]
pub(super) struct Sockets {
    references: Vec<Rc<RefCell<Reference>>>,
    open: Vec<Weak<UdpSocket>>,
}

impl Sockets {
    /// Opens those that are to live, whose lives are numbered from `first` on, and begins their tasks.
    pub(super) fn open(
        &mut self,
        options: &Options,
        datagrams: &AsyncDatagrams,
        first: usize,
        shared: &Rc<Shared>,
    ) {
        let is_lived = |number: usize| {
            let number = first + number;
            options.only.as_ref().is_none_or(|only| only.contains(&number))
        };
        for (index, (number, peer)) in datagrams.peers.iter().enumerate() {
            if is_lived(*number) {
                let random = Random::new(options.seed, PURPOSE + 5000 + index as u64);
                with(|kernel| kernel.add_datagram_peer(peer.clone(), random));
            }
        }
        for (number, plan) in datagrams.sockets.iter().enumerate() {
            if !is_lived(number) {
                continue;
            }
            let mut watched = None;
            let socket = in_fairness(|| {
                let socket = DatagramSocket::bind_on(&SimSockets, &plan.address.into(), &plan.options);
                let socket = socket.expect("the address is free");
                let descriptor = socket.as_fd().as_raw_fd();
                watched = Some((descriptor, with(|kernel| kernel.watch_datagrams(descriptor, 0))));
                Simulation::open_datagrams(socket).expect("the loop has room")
            });
            let socket = Rc::new(socket);
            assert_eq!(socket.local_addr().ok(), Some(plan.address), "where it is bound");
            let (descriptor, watch) = watched.expect("it was bound");
            let reference = Rc::new(RefCell::new(Reference {
                number: self.references.len(),
                plan: plan.clone(),
                descriptor,
                watch,
                handed: VecDeque::new(),
                sends: Vec::new(),
                frees: Vec::new(),
            }));
            self.open.push(Rc::downgrade(&socket));
            self.references.push(Rc::clone(&reference));
            let random = Random::new(options.seed, PURPOSE + 5500 + number as u64);
            tasks::begin(shared, &socket, &reference, &datagrams.targets, random);
        }
    }

    /// That who waits for a datagram waits for one that has not come.
    pub(super) fn check_nothing_to_read(&self, number: usize) {
        let mut reference = self.references[number].borrow_mut();
        reference.note_passed();
        let queued = with(|kernel| kernel.datagram_state(reference.descriptor));
        let queued = queued.map_or(0, |(queued, _)| queued);
        assert!(
            reference.handed.is_empty() && queued == 0,
            "a wake was lost: a task waits for datagrams of socket {number}, of which {} have been received, and {queued} are \
             in the kernel",
            reference.handed.len(),
        );
    }

    /// That all has left that was sent, but for what has failed.
    pub(super) fn check_sent(&self, simulation: &Simulation) {
        for (reference, socket) in self.references.iter().zip(&self.open) {
            let mut reference = reference.borrow_mut();
            reference.note_passed();
            let Some(counters) = socket
                .upgrade()
                .and_then(|socket| simulation.datagram_counters(&socket))
            else {
                continue;
            };
            let number = reference.number;
            assert_eq!(counters.queued_bytes, 0, "bytes are queued on socket {number}");
            let left = reference
                .sends
                .iter()
                .filter(|sending| !sending.has_left())
                .count() as u64;
            assert!(
                left <= counters.send_errors + counters.receive_errors,
                "{left} datagrams of socket {number} were sent and have not left, with {} errors",
                counters.send_errors + counters.receive_errors
            );
        }
    }

    /// All is over: what has passed was right to the end, and no lent memory is held.
    pub(super) fn check_passed(&self) {
        for reference in &self.references {
            let mut reference = reference.borrow_mut();
            reference.note_passed();
            for free in &reference.frees {
                assert!(
                    free.load(Ordering::Relaxed),
                    "memory that was lent to socket {} is still held",
                    reference.number
                );
            }
        }
    }
}
