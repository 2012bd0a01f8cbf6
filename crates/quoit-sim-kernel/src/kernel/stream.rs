//! Connected sockets: what calls on Linux's TCP and Unix stream sockets return in each of their states.
//!
//! The rules are those of `tcp_recvmsg`, `tcp_sendmsg`, `tcp_reset`, `tcp_disconnect`, `tcp_poll` and their like for
//! Unix sockets. Where the two families differ, `unix` says which one it is.

use std::collections::VecDeque;

use quoit::Address;

use super::Kernel;
use super::agenda::Action;
use super::object::{Kind, ObjectId, events};
use crate::faults::Fault;

/// Nanoseconds within which a program does what it has decided by a look at a socket.
const AT_ONCE: u64 = 20_000;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) unix: bool,
    /// The other end, until it is gone.
    pub(super) other: Option<ObjectId>,
    /// A peer plays this end, and not the program.
    pub(super) is_peers: bool,
    /// The peer that plays this end or the other one.
    pub(super) peer_number: Option<usize>,
    /// The attempt to connect is under way.
    pub(super) connecting: bool,
    /// It has succeeded, and no `connect(2)` has said so.
    pub(super) unconfirmed: bool,
    /// Received, or on the way.
    pub(super) incoming: VecDeque<u8>,
    /// Bytes that were read of what arrived.
    pub(super) read: u64,
    /// Bytes at the end of those that have not arrived yet.
    pub(super) on_the_way: usize,
    /// Bytes that it takes in until it is full.
    pub(super) capacity: usize,
    /// Whoever plays it reads all that comes at once: it is never full, and nothing is kept.
    pub(super) takes_all: bool,
    /// What the program has had of it since it waited last.
    pub(super) work: Work,
    /// The other end's FIN is behind the bytes.
    pub(super) ended: bool,
    /// Nothing more is received: reset, or shut down here.
    pub(super) receive_shut: bool,
    /// Nothing more is sent.
    pub(super) send_shut: bool,
    /// Reset, lost or disconnected (`TCP_CLOSE`).
    pub(crate) dead: bool,
    /// The pending error (`SO_ERROR`).
    pub(super) error: Option<i32>,
    /// A send found no room, so room will be told (`SOCK_NOSPACE`).
    pub(super) no_space: bool,
    /// It was queued and never accepted.
    pub(super) reset_on_close: bool,
    pub(crate) local: Address,
    pub(crate) remote: Address,
    /// Bytes of sends that wait for room, in this many requests. More than one would mix them.
    pub(super) sends: u32,
    /// Receives that wait.
    pub(super) receives: u32,
    /// Zero-copy sends of which the program does not know yet that their memory is free.
    pub(super) held: u32,
}

/// What the program has received and sent on one connection in one of its turns.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Work {
    turn: u64,
    calls: u64,
    bytes: u64,
}

/// A socket that takes no more, of which the program knows.
#[derive(Debug)]
pub(super) struct FailedSend {
    socket: ObjectId,
    /// Turns since then that left something queued for it, although none of its memory was the kernel's.
    turns: u32,
}

impl FailedSend {
    pub(super) fn new(socket: ObjectId) -> Self {
        Self { socket, turns: 0 }
    }
}

/// Whether the error of a send says that the socket takes no more.
pub(super) fn fails_for_good(error: i32) -> bool {
    matches!(
        error,
        libc::EPIPE | libc::ECONNRESET | libc::ETIMEDOUT | libc::EHOSTUNREACH
    )
}

impl Stream {
    pub(super) fn new(unix: bool, capacity: usize, local: Address, remote: Address) -> Self {
        Self {
            unix,
            other: None,
            is_peers: false,
            peer_number: None,
            connecting: false,
            unconfirmed: false,
            incoming: VecDeque::new(),
            read: 0,
            on_the_way: 0,
            capacity,
            takes_all: false,
            work: Work::default(),
            ended: false,
            receive_shut: false,
            send_shut: false,
            dead: false,
            error: None,
            no_space: false,
            reset_on_close: false,
            local,
            remote,
            sends: 0,
            receives: 0,
            held: 0,
        }
    }

    /// Whether what has come may as well not have arrived yet: TCP, and nothing of an end or a reset has either.
    fn may_be_on_the_way(&self) -> bool {
        !self.unix && !self.dead && !self.has_end() && self.error.is_none()
    }

    pub(crate) fn available(&self) -> usize {
        self.incoming.len() - self.on_the_way
    }

    /// Nothing is there to be received, not even an end.
    pub(super) fn is_drained(&self) -> bool {
        self.available() == 0 && !self.has_end() && !self.receive_shut && self.error.is_none()
    }

    fn has_end(&self) -> bool {
        self.ended && self.on_the_way == 0
    }

    fn room(&self) -> usize {
        if self.takes_all {
            return self.capacity;
        }
        self.capacity.saturating_sub(self.incoming.len())
    }
}

impl Kernel {
    /// Bytes that the other end has read of what this one sent.
    pub(crate) fn taken_by_other(&mut self, id: ObjectId) -> u64 {
        let now = self.now;
        let Kind::Stream(stream) = &self.object(id).kind else {
            return 0;
        };
        let (other, peer) = (stream.other, stream.peer_number);
        if let Some(peer) = peer {
            let peer = &mut self.peers[peer];
            peer.looked_at = Some((now, now - peer.received_at));
        }
        let Some(other) = other else { return 0 };
        match &self.object(other).kind {
            Kind::Stream(other) => other.read,
            _ => 0,
        }
    }

    /// Whether a descriptor's connection has been reset, with nothing left to be read beside the `received` bytes that were.
    pub fn has_failed_behind(&mut self, descriptor: std::os::fd::RawFd, received: u64) -> bool {
        let object = self.table.get(descriptor);
        let stream = object.and_then(|object| self.stream(object));
        stream.is_some_and(|stream| stream.dead && stream.incoming.is_empty() && stream.read == received)
    }

    /// The stream of an object that is one.
    pub(crate) fn stream(&mut self, id: ObjectId) -> Option<&mut Stream> {
        match &mut self.objects[id].kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    fn is_programs(&self, id: ObjectId) -> bool {
        matches!(&self.objects[id].kind, Kind::Stream(stream) if !stream.is_peers)
    }

    /// Two ends, connected: the first for whoever connected, the second for whoever listened.
    pub(super) fn connect_pair(
        &mut self,
        unix: bool,
        client: Address,
        server: Address,
        peer: Option<usize>,
    ) -> [ObjectId; 2] {
        let capacity = self.random.magnitude(16_384).max(256) as usize;
        let mut near = Stream::new(unix, capacity, client.clone(), server.clone());
        let capacity = self.random.magnitude(16_384).max(256) as usize;
        let mut far = Stream::new(unix, capacity, server, client);
        let first = self.objects.len();
        near.peer_number = peer;
        far.peer_number = peer;
        near.other = Some(first + 1);
        far.other = Some(first);
        [near, far].map(|stream| self.add_object(Kind::Stream(Box::new(stream))))
    }

    pub(super) fn stream_mask(&self, stream: &Stream) -> u32 {
        if stream.connecting {
            return 0;
        }
        let mut mask = 0;
        let ended = stream.has_end() || stream.receive_shut;
        if stream.available() > 0 {
            mask |= events::IN;
        }
        if ended {
            mask |= events::IN | events::RDHUP;
        }
        if (ended && stream.send_shut) || stream.dead {
            mask |= events::HUP;
        }
        if stream.error.is_some() {
            mask |= events::ERR;
        }
        if stream.send_shut || stream.dead || self.has_space(stream) {
            mask |= events::OUT;
        }
        mask
    }

    /// Whether there is so much room that it is told (`sk_stream_is_writeable`).
    fn has_space(&self, stream: &Stream) -> bool {
        match stream.other.map(|other| &self.objects[other].kind) {
            Some(Kind::Stream(other)) => other.room() * 3 >= other.capacity,
            _ => true,
        }
    }

    /// `recv(2)` without waiting: calls `take` with what was received, in one or two pieces.
    pub(crate) fn receive(
        &mut self,
        id: ObjectId,
        length: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Result<usize, i32> {
        let by_program = self.is_programs(id);
        if by_program && self.strikes(Fault::TransferFails) {
            self.excuse_unix(id);
            return Err(libc::ENOMEM);
        }
        let empty = by_program && self.strikes(Fault::EmptyReceive);
        let short = by_program && self.strikes(Fault::ShortReceive);
        let Kind::Stream(stream) = &mut self.objects[id].kind else {
            return Err(libc::ENOTCONN);
        };
        let mut length = length.min(stream.available());
        if length == 0 {
            return Self::receive_nothing(stream);
        }
        if empty && stream.may_be_on_the_way() {
            // It is all still on the way, and told again when it arrives.
            stream.on_the_way = stream.incoming.len();
            self.plan_arrival(id);
            return Err(libc::EAGAIN);
        }
        if short && length > 1 {
            length = self.random.between(1, length as u64 - 1) as usize;
            let Kind::Stream(stream) = &mut self.objects[id].kind else {
                unreachable!("looked at just now")
            };
            if stream.may_be_on_the_way() {
                // TCP gives all that has arrived, so the rest is still on the way. A Unix socket may stop at the end
                // of a message, and nothing tells of the rest.
                stream.on_the_way = stream.incoming.len() - length;
                self.plan_arrival(id);
            }
        }
        let Kind::Stream(stream) = &mut self.objects[id].kind else {
            unreachable!("looked at just now")
        };
        let (first, second) = stream.incoming.as_slices();
        let cut = length.min(first.len());
        take(&first[..cut]);
        if length > cut {
            take(&second[..length - cut]);
        }
        stream.incoming.drain(..length);
        stream.read += length as u64;
        let other = stream.other;
        if by_program {
            self.count_work(id, length);
        }
        self.given += if by_program { length as u64 } else { 0 };
        if let Some(other) = other {
            self.tell_space(other);
        }
        Ok(length)
    }

    /// Counts a call that moved bytes of one connection of the program's.
    fn count_work(&mut self, id: ObjectId, bytes: usize) {
        let (turn, most) = (self.program_turn, self.most_work);
        let Some(stream) = self.stream(id) else { return };
        if stream.work.turn != turn {
            stream.work = Work {
                turn,
                ..Work::default()
            };
        }
        stream.work.calls += 1;
        stream.work.bytes += bytes as u64;
        let (calls, bytes) = (stream.work.calls, stream.work.bytes);
        if let Some((most_calls, most_bytes)) = most
            && (calls > most_calls || bytes > most_bytes)
        {
            let peer = stream.peer_number;
            self.fail(|| {
                format!(
                    "the loop has had {calls} calls and {bytes} bytes of peer {peer:?} alone since it looked for others"
                )
            });
        }
    }

    fn receive_nothing(stream: &mut Stream) -> Result<usize, i32> {
        // TCP: the end that was received hides a later error (SOCK_DONE). Unix: the other way round.
        if stream.has_end() && !stream.unix {
            return Ok(0);
        }
        if let Some(error) = stream.error.take() {
            return Err(error);
        }
        if stream.has_end() || stream.receive_shut {
            return Ok(0);
        }
        Err(if stream.dead { libc::ENOTCONN } else { libc::EAGAIN })
    }

    fn plan_arrival(&mut self, id: ObjectId) {
        let after = self.random.magnitude(200_000);
        self.plan(after, Action::Arrive(id));
    }

    pub(super) fn arrive(&mut self, id: ObjectId) {
        if let Some(stream) = self.stream(id)
            && std::mem::take(&mut stream.on_the_way) > 0
        {
            self.wake(id, events::IN);
        }
    }

    /// Tells a socket whose other end was read from, or is gone, that it has room, if it wanted to know.
    pub(super) fn tell_space(&mut self, id: ObjectId) {
        let Kind::Stream(stream) = &self.objects[id].kind else {
            return;
        };
        if stream.no_space && self.has_space(stream) {
            if let Some(stream) = self.stream(id) {
                stream.no_space = false;
            }
            self.wake(id, events::OUT);
        }
    }

    /// `send(2)` without waiting, by a call that tells the program at once.
    pub(crate) fn send_at_once<'a>(
        &mut self,
        id: ObjectId,
        pieces: impl Iterator<Item = &'a [u8]>,
        wanted: usize,
    ) -> Result<usize, i32> {
        let result = self.send(id, pieces, wanted);
        if result.is_err_and(fails_for_good) {
            self.failed_sends.push(FailedSend::new(id));
        }
        result
    }

    /// Whether the program knows of a socket that takes no more.
    #[must_use]
    pub fn has_failed_sends(&self) -> bool {
        !self.failed_sends.is_empty()
    }

    /// Counts a turn that left something queued for the socket of a descriptor, if the program knows that this socket takes no
    /// more and has its memory back. Returns how many such turns there were.
    pub fn count_turn_after_failure(&mut self, descriptor: std::os::fd::RawFd) -> Option<u32> {
        let socket = self.table.get(descriptor)?;
        let failed = self.failed_sends().find(|failed| failed.socket == socket)?;
        failed.turns += 1;
        Some(failed.turns)
    }

    /// The sockets that take no more, of which the program knows, and whose memory it has back.
    fn failed_sends(&mut self) -> impl Iterator<Item = &mut FailedSend> {
        let objects = &self.objects;
        let stream = |socket: ObjectId| match &objects[socket].kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        };
        self.failed_sends.retain(|failed| stream(failed.socket).is_some());
        self.failed_sends
            .iter_mut()
            .filter(move |failed| stream(failed.socket).is_some_and(|stream| stream.held == 0))
    }

    /// `send(2)` without waiting.
    pub(crate) fn send<'a>(
        &mut self,
        id: ObjectId,
        pieces: impl Iterator<Item = &'a [u8]>,
        wanted: usize,
    ) -> Result<usize, i32> {
        // Want of memory: told like want of room, and over some time later.
        let by_program = self.is_programs(id);
        if by_program && self.strikes(Fault::TransferFails) {
            self.excuse_unix(id);
            return Err(libc::ENOBUFS);
        }
        let full = by_program && self.strikes(Fault::FullSend);
        let short = by_program && self.strikes(Fault::ShortSend);
        let Kind::Stream(stream) = &mut self.objects[id].kind else {
            return Err(libc::ENOTCONN);
        };
        if stream.send_shut || stream.dead || (!stream.unix && stream.error.is_some()) {
            let pending = if stream.unix { None } else { stream.error.take() };
            return Err(pending.unwrap_or(libc::EPIPE));
        }
        let (unix, other) = (stream.unix, stream.other);
        let Some(other) = other else {
            if unix {
                return Err(libc::EPIPE);
            }
            // Nobody is there any more: the data is answered with a reset (EPIPE after a FIN, `tcp_reset`).
            let error = if stream.ended {
                libc::EPIPE
            } else {
                libc::ECONNRESET
            };
            self.die(id, Some(error));
            self.taken += if by_program { wanted as u64 } else { 0 };
            return Ok(wanted);
        };
        let room = match &self.objects[other].kind {
            Kind::Stream(other) if unix && other.receive_shut => return Err(libc::EPIPE),
            Kind::Stream(other) => other.room(),
            _ => 0,
        };
        let takes_all = self.stream(other).is_some_and(|other| other.takes_all);
        let mut taken = if takes_all { wanted } else { wanted.min(room) };
        if full && taken > 0 {
            taken = 0;
            self.plan_space(id);
        } else if short && taken > 1 {
            taken = self.random.between(1, taken as u64 - 1) as usize;
            self.plan_space(id);
        }
        if taken < wanted
            && let Some(stream) = self.stream(id)
        {
            stream.no_space = true;
        }
        self.counts.incidents.full_sockets += u64::from(by_program && taken < wanted);
        if taken == 0 {
            return Err(libc::EAGAIN);
        }
        if by_program {
            self.count_work(id, taken);
        }
        let mut left = taken;
        if takes_all {
            self.taken += taken as u64;
            if let Some(other) = self.stream(other) {
                other.read += taken as u64;
            }
            return Ok(taken);
        }
        if let Some(other) = self.stream(other) {
            for piece in pieces {
                let now = left.min(piece.len());
                other.incoming.extend(&piece[..now]);
                left -= now;
                if left == 0 {
                    break;
                }
            }
        }
        self.taken += if by_program { taken as u64 } else { 0 };
        // Bytes behind others that are on the way arrive with them.
        if self.stream(other).is_some_and(|other| other.on_the_way > 0) {
            if let Some(other) = self.stream(other) {
                other.on_the_way += taken;
            }
        } else {
            self.wake(other, events::IN);
        }
        Ok(taken)
    }

    fn plan_space(&mut self, id: ObjectId) {
        let after = self.random.magnitude(200_000);
        self.plan(after, Action::Space(id));
    }

    /// `shutdown(2)` with `SHUT_WR`.
    pub(crate) fn shutdown_send(&mut self, id: ObjectId) -> Result<(), i32> {
        let Kind::Stream(stream) = &mut self.objects[id].kind else {
            return Err(libc::ENOTCONN);
        };
        if stream.dead {
            return Err(libc::ENOTCONN);
        }
        stream.send_shut = true;
        let other = stream.other;
        self.wake(id, events::OUT | events::HUP);
        if let Some(other) = other {
            self.send_end(other);
        }
        Ok(())
    }

    /// A FIN reaches `id`.
    fn send_end(&mut self, id: ObjectId) {
        if let Some(stream) = self.stream(id)
            && !stream.ended
        {
            stream.ended = true;
            self.wake(id, events::IN | events::RDHUP);
        }
    }

    /// A reset, or the loss of the other end, reaches `id`.
    pub(super) fn die(&mut self, id: ObjectId, error: Option<i32>) {
        if let Some(stream) = self.stream(id)
            && !stream.dead
        {
            stream.dead = true;
            stream.error = error;
            stream.on_the_way = 0;
            stream.receive_shut = true;
            stream.send_shut = true;
            stream.other = None;
            self.wake(
                id,
                events::IN | events::OUT | events::HUP | events::ERR | events::RDHUP,
            );
        }
    }

    /// A reset reaches the other end of a stream, which has just been told apart from it.
    fn send_reset(&mut self, other: ObjectId) {
        let error = match self.stream(other) {
            // In CLOSE_WAIT (`tcp_reset`).
            Some(stream) if stream.ended && !stream.unix => libc::EPIPE,
            _ => libc::ECONNRESET,
        };
        self.die(other, Some(error));
    }

    /// Resets, as `SocketSys::reset` says: TCP is disconnected, Unix is shut down in both directions.
    pub(crate) fn reset(&mut self, id: ObjectId) {
        let Kind::Stream(stream) = &mut self.objects[id].kind else {
            return;
        };
        let (peer, unix) = (stream.peer_number, stream.unix);
        self.note(|| format!("reset of the connection with peer {peer:?}"));
        if let Some(peer) = peer {
            let peer = &mut self.peers[peer];
            // What it takes after a look that the reset follows at once cannot be known.
            let looked = peer
                .looked_at
                .filter(|(looked, _)| self.now - looked < AT_ONCE)
                .map_or(0, |(_, idle)| idle);
            peer.idle_when_reset = Some(looked.max(self.now - peer.received_at));
        }
        if unix && let Some(peer) = peer {
            self.peers[peer].excused = true;
        }
        let Kind::Stream(stream) = &mut self.objects[id].kind else {
            return;
        };
        if stream.unix {
            stream.receive_shut = true;
            stream.send_shut = true;
            let other = stream.other;
            self.wake(id, events::IN | events::OUT | events::HUP | events::RDHUP);
            if let Some(other) = other {
                self.send_end(other);
                if let Some(stream) = self.stream(other) {
                    // The other end's sends find that nobody receives.
                    stream.send_shut = true;
                }
                self.wake(other, events::OUT);
            }
            return;
        }
        let alive = !stream.dead && !stream.connecting;
        stream.connecting = false;
        stream.dead = true;
        stream.ended = false;
        stream.receive_shut = false;
        stream.send_shut = false;
        stream.incoming.clear();
        stream.on_the_way = 0;
        if alive {
            stream.error = Some(libc::ECONNRESET);
        }
        let other = stream.other.take();
        self.wake(id, events::OUT | events::HUP | events::ERR);
        if let Some(other) = other {
            self.send_reset(other);
        }
    }

    /// The last reference is gone (`close(2)`).
    pub(super) fn end_stream(&mut self, stream: Stream) {
        let Some(other) = stream.other else {
            return;
        };
        let unread = !stream.incoming.is_empty();
        if let Some(other_stream) = self.stream(other) {
            other_stream.other = None;
            let resets = unread || stream.reset_on_close;
            if stream.unix && resets && other_stream.error.is_none() {
                other_stream.error = Some(libc::ECONNRESET);
            }
        }
        self.counts.incidents.resets_by_unread_data += u64::from(unread);
        if !stream.unix && (unread || stream.reset_on_close) {
            self.send_reset(other);
            return;
        }
        if stream.unix
            && let Some(other_stream) = self.stream(other)
        {
            other_stream.send_shut = true;
            other_stream.receive_shut = true;
        }
        self.send_end(other);
        self.wake(
            other,
            events::IN | events::OUT | events::HUP | events::RDHUP | events::ERR,
        );
    }
}
