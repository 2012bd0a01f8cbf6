//! What descriptors refer to.

use std::collections::VecDeque;

use quoit::Address;

use super::Kernel;
use super::connecting::Insistence;
use super::datagram::DatagramSocket;
use super::ring::RingId;
use super::stream::Stream;

/// The number of an object, never used again within a run.
pub(crate) type ObjectId = usize;

/// What a descriptor, a request or a peer refers to (an open file description).
#[derive(Debug)]
pub(crate) struct Object {
    /// Descriptors, requests and peers that refer to it.
    pub(super) references: u32,
    pub(crate) kind: Kind,
    pub(crate) nonblocking: bool,
    /// The epoll instances that watch it.
    pub(super) polls: Vec<usize>,
    /// The requests that wait for it.
    pub(super) waiters: Vec<(RingId, u64)>,
}

/// The kinds of object.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A socket that is neither connected nor listening.
    Fresh {
        /// Of the Unix family.
        unix: bool,
        /// What it was bound to.
        bound: Option<Address>,
    },
    /// A listening socket.
    Listener(Listener),
    /// A socket that is or was connected, or is being connected.
    Stream(Box<Stream>),
    /// A datagram socket.
    Datagram(Box<DatagramSocket>),
    /// An eventfd.
    Counter(u64),
    /// A file of so many bytes, those of the stream of this number.
    File {
        /// Its stream in [`crate::pattern`].
        stream: u64,
        /// Its length in bytes.
        length: u64,
    },
    /// Nothing refers to it any more.
    Released,
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: Address,
    pub(super) backlog: usize,
    pub(super) queue: VecDeque<ObjectId>,
    pub(super) insistence: Insistence,
}

/// The events of `poll(2)` and `epoll_ctl(2)`; both use the same bits.
pub(crate) mod events {
    pub(crate) const IN: u32 = libc::EPOLLIN as u32;
    pub(crate) const OUT: u32 = libc::EPOLLOUT as u32;
    pub(crate) const ERR: u32 = libc::EPOLLERR as u32;
    pub(crate) const HUP: u32 = libc::EPOLLHUP as u32;
    pub(crate) const RDHUP: u32 = libc::EPOLLRDHUP as u32;
}

impl Kernel {
    pub(super) fn add_object(&mut self, kind: Kind) -> ObjectId {
        self.objects.push(Object {
            references: 1,
            kind,
            nonblocking: false,
            polls: Vec::new(),
            waiters: Vec::new(),
        });
        self.objects.len() - 1
    }

    pub(crate) fn object(&mut self, id: ObjectId) -> &mut Object {
        &mut self.objects[id]
    }

    pub(super) fn refer(&mut self, id: ObjectId) {
        self.objects[id].references += 1;
    }

    /// One reference less; without any the object ends.
    pub(super) fn release(&mut self, id: ObjectId) {
        let object = &mut self.objects[id];
        object.references -= 1;
        if object.references > 0 {
            return;
        }
        debug_assert!(object.waiters.is_empty(), "a request refers to what it waits for");
        for poll in std::mem::take(&mut object.polls) {
            if let Some(poll) = &mut self.polls[poll] {
                poll.forget(id);
            }
        }
        match std::mem::replace(&mut self.objects[id].kind, Kind::Released) {
            Kind::Listener(listener) => {
                self.bound.retain(|(address, _)| *address != listener.address);
                for queued in listener.queue {
                    // What nobody has accepted is reset.
                    if let Kind::Stream(stream) = &mut self.objects[queued].kind {
                        stream.reset_on_close = true;
                    }
                    self.release(queued);
                }
            }
            Kind::Stream(stream) => self.end_stream(*stream),
            Kind::Datagram(socket) => self.end_datagram(id, *socket),
            Kind::Fresh {
                bound: Some(bound), ..
            } => {
                self.bound.retain(|(address, _)| *address != bound);
            }
            _ => {}
        }
    }

    /// What `poll(2)` says of it. Whoever asks is told of the room that is not there when there is some (`tcp_poll` sets
    /// `SOCK_NOSPACE`; `unix_write_space` tells of all room anyway): another thread may have filled what was told of before.
    pub(crate) fn mask(&mut self, id: ObjectId) -> u32 {
        let mask = match &self.objects[id].kind {
            Kind::Fresh { .. } => events::OUT | events::HUP,
            Kind::Listener(listener) if listener.queue.is_empty() => 0,
            Kind::Listener(_) => events::IN,
            Kind::Stream(stream) => self.stream_mask(stream),
            Kind::Datagram(socket) => self.datagram_mask(socket),
            Kind::Counter(0) => events::OUT,
            Kind::Counter(_) => events::IN | events::OUT,
            Kind::File { .. } | Kind::Released => 0,
        };
        if mask & events::OUT == 0
            && let Some(stream) = self.stream(id)
        {
            stream.no_space = true;
        }
        mask
    }

    /// Tells those that watch or wait that something happened.
    pub(super) fn wake(&mut self, id: ObjectId, happened: u32) {
        if let Kind::Stream(stream) = &self.objects[id].kind
            && stream.is_peers
        {
            // A peer neither polls nor submits: it looks by itself.
            if let Some(peer) = stream.peer_number {
                self.rouse_peer(peer);
            }
            return;
        }
        for index in 0..self.objects[id].polls.len() {
            let poll = self.objects[id].polls[index];
            if let Some(poll) = &mut self.polls[poll] {
                poll.happened(id, happened);
            }
        }
        for index in 0..self.objects[id].waiters.len() {
            let (ring, request) = self.objects[id].waiters[index];
            self.wake_request(ring, request, happened);
        }
    }
}
