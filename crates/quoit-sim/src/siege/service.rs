//! The handler of a siege. It does what the documentation tells users to do, and no more.

use bytes::Bytes;
use quoit::internals::engine::Engine;
use quoit::{ConnectionId, Lease, Payload, Refusal, Token};

use super::Siege;
use super::plan::Service;
use crate::checks::check_send_error;
use quoit_event_order::Lent;
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::pattern;

/// A send of which the handler is told.
const TOLD: Token = Token(1);

/// One connection, as its handler sees it.
pub(super) struct Served {
    pub(super) peer: usize,
    pub(super) besieges: bool,
    /// Bytes that came.
    pub(super) received: u64,
    /// What is kept of what it said.
    kept: Vec<Lease>,
    /// A response for which there was no room.
    waiting: Vec<u8>,
    /// An endless response is under way.
    streams: bool,
    /// Bytes of it so far.
    streamed: u64,
}

impl Served {
    pub(super) fn new(peer: usize, besieges: bool) -> Self {
        Self {
            peer,
            besieges,
            received: 0,
            kept: Vec::new(),
            waiting: Vec::new(),
            streams: false,
            streamed: 0,
        }
    }
}

impl<E: Engine + 'static> Siege<E> {
    pub(super) fn on_data(&mut self, id: ConnectionId, data: Lease) {
        let Some(served) = self.served.get_mut(&id) else {
            return;
        };
        served.received += data.len() as u64;
        match self.plan.service {
            Service::Keeps if served.besieges => served.kept.push(data),
            Service::Source if served.besieges => {
                drop(data);
                if !std::mem::replace(&mut served.streams, true) {
                    self.stream(id);
                }
            }
            Service::Echo => self.send_back(id, data),
            Service::Copies | Service::Keeps | Service::Source => {
                served.waiting.extend_from_slice(&data);
                drop(data);
                self.send_waiting(id);
            }
        }
    }

    /// Lets go of what is kept, and keeps nothing more.
    pub(super) fn let_go(&mut self) {
        if self.plan.service == Service::Keeps {
            self.plan.service = Service::Copies;
        }
        self.served.values_mut().for_each(|served| served.kept.clear());
    }

    pub(super) fn on_writable(&mut self, id: ConnectionId) {
        self.send_waiting(id);
        if self
            .served
            .get(&id)
            .is_some_and(|served| served.waiting.is_empty())
        {
            self.pause(id, false);
        }
    }

    pub(super) fn on_sent(&mut self, id: ConnectionId) {
        if self.served.get(&id).is_some_and(|served| served.streams) {
            self.stream(id);
        }
    }

    /// What is to be sent to it has nobody to take it.
    pub(super) fn abort(&mut self, id: ConnectionId) {
        if self.event_loop.abort(id).is_ok()
            && let Some(state) = self.reference.find(id)
        {
            state.closing = true;
        }
    }

    fn pause(&mut self, id: ConnectionId, paused: bool) {
        let result = if paused {
            self.event_loop.pause(id)
        } else {
            self.event_loop.resume(id)
        };
        if result.is_ok()
            && let Some(state) = self.reference.find(id)
        {
            state.paused = paused;
        }
    }

    /// Notes what a send came to.
    fn note_send(&mut self, id: ConnectionId, peer: usize, bytes: &[u8], refusal: Option<Refusal>) {
        let full = self.event_loop.is_full(id);
        with(|kernel| {
            kernel.note(|| {
                let length = bytes.len();
                match refusal {
                    None => format!("send of {length} bytes to {id:?}"),
                    Some(refusal) => format!("send of {length} bytes to {id:?} is refused: {refusal}"),
                }
            });
        });
        match refusal {
            None => with(|kernel| {
                if !kernel.takes_all(peer) {
                    kernel.peers[peer].expected.extend_from_slice(bytes);
                }
            }),
            Some(Refusal::Full | Refusal::Closing | Refusal::Stale) => {}
            Some(Refusal::Error(errno)) => check_send_error(id, errno),
            Some(refusal) => panic!("a send on {id:?} is refused: {refusal}"),
        }
        if refusal == Some(Refusal::Full) || (refusal.is_none() && full) {
            self.reference.full(id);
        }
    }

    fn send_back(&mut self, id: ConnectionId, data: Lease) {
        let peer = self.served[&id].peer;
        let bytes = data.to_vec();
        let result = self.event_loop.send(id, Payload::Lease(data), Token::NONE);
        self.note_send(id, peer, &bytes, result.err());
        if self.event_loop.is_full(id) {
            self.pause(id, true);
        }
    }

    /// Sends copies of what waits, and takes nothing in as long as there is no room for them.
    fn send_waiting(&mut self, id: ConnectionId) {
        let most = self.event_loop.config().high_water as usize;
        let Some(served) = self.served.get_mut(&id) else {
            return;
        };
        let (peer, waiting) = (served.peer, std::mem::take(&mut served.waiting));
        let mut rest = &waiting[..];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(most));
            let result = self.event_loop.send(id, Payload::Copy(piece), Token::NONE);
            self.note_send(id, peer, piece, result.err());
            match result {
                Ok(()) => rest = later,
                Err(Refusal::Full) => break,
                Err(_) => return self.abort(id),
            }
        }
        let left = rest.to_vec();
        let is_behind = !left.is_empty() || self.event_loop.is_full(id);
        if let Some(served) = self.served.get_mut(&id) {
            served.waiting = left;
        }
        if is_behind {
            self.pause(id, true);
        }
    }

    /// Goes on with an endless response: at once, as long as the socket takes it.
    fn stream(&mut self, id: ConnectionId) {
        let chunk = self.plan.chunk;
        loop {
            let Some(served) = self.served.get(&id) else {
                return;
            };
            let (peer, streamed) = (served.peer, served.streamed);
            let bytes = pattern::bytes(peer as u64 + 1, streamed, chunk);
            let taken = match self.event_loop.try_send(id, bytes) {
                Ok(taken) => taken,
                Err(Refusal::Closing | Refusal::Stale) => return,
                Err(Refusal::Error(errno)) => {
                    check_send_error(id, errno);
                    return self.abort(id);
                }
                Err(refusal) => panic!("a send on {id:?} is refused: {refusal}"),
            };
            self.note_send(id, peer, &bytes[..taken], None);
            let rest = &bytes[taken..];
            let mut queued = Ok(());
            if !rest.is_empty() {
                queued = self
                    .event_loop
                    .send(id, Payload::Bytes(Bytes::from_static(rest)), TOLD);
                self.note_send(id, peer, rest, queued.err());
                if queued.is_ok()
                    && let Some(state) = self.reference.find(id)
                {
                    state.lent.push_back(Lent::unwatched(TOLD));
                }
            }
            if let Some(served) = self.served.get_mut(&id) {
                served.streamed += taken as u64;
                if queued.is_ok() {
                    served.streamed += rest.len() as u64;
                }
            }
            let failed = with(|kernel| kernel.failure.is_some());
            if !rest.is_empty() || failed {
                return;
            }
        }
    }
}
