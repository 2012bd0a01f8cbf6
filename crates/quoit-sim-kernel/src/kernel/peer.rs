//! The other ends of connections: what clients and servers on the network do.
//!
//! A peer connects, or answers an attempt; then, at moments of its own, it receives some, sends some, and ends in
//! its way. It checks what it receives against what the program was allowed to send.

use quoit::Address;

use super::Kernel;
use super::agenda::Action;
use super::object::{Kind, ObjectId, events};
use crate::faults::Fault;
use crate::pattern;
use crate::random::Random;

/// How a peer answers an attempt to connect to it.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// It accepts after so many nanoseconds.
    Accept {
        /// Nanoseconds.
        after: u64,
    },
    /// Nobody listens.
    Refuse,
    /// The attempt fails otherwise.
    Lose {
        /// Nanoseconds.
        after: u64,
        /// The error.
        error: i32,
    },
    /// There is no answer.
    Never,
}

/// How a peer ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It sends all it has, ends its direction, reads to the end, closes.
    EndFirst,
    /// It sends all it has, reads to the end, closes.
    ReadFirst,
    /// After so many acts it resets.
    Reset(u32),
    /// After so many acts it closes, whatever is unread.
    Close(u32),
    /// After so many acts it is lost, with this error.
    Lost(u32, i32),
    /// After so many acts it does nothing more, until everything becomes fair.
    Silent(u32),
}

/// What a peer reads and sends, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Manner {
    /// Some of both, at each act.
    #[default]
    Ordinary,
    /// It sends a request of so many bytes, reads a response of as many, and only then sends the next.
    Requests {
        /// Bytes of one, and of its response.
        size: u64,
    },
    /// It sends all it can, and reads nothing.
    NeverReads,
    /// It takes all that comes, at once and for ever: its socket is never full.
    TakesAll,
}

/// What a peer is to do.
#[derive(Clone, Debug)]
pub struct PeerPlan {
    /// The listener that it connects to, or the address where it is found.
    pub address: Address,
    /// When it connects, in nanoseconds from the beginning; `None`: it waits to be connected to.
    pub start: Option<u64>,
    /// How it answers being connected to.
    pub answer: Answer,
    /// Bytes that it sends in all.
    pub total: u64,
    /// Bytes that it sends at most at a time.
    pub piece: u64,
    /// Bytes that it receives at most at a time.
    pub gulp: u64,
    /// Nanoseconds between two acts, at most.
    pub pause: u64,
    /// It is meant to be slow: gulps and pauses were drawn accordingly.
    pub slow: bool,
    /// How it ends.
    pub ending: Ending,
    /// What it reads and sends, and when.
    pub manner: Manner,
}

impl PeerPlan {
    /// A peer that sends and receives pieces of all sizes, and takes its time, more of it if it is slow.
    pub fn draw_ordinary(
        random: &mut Random,
        address: Address,
        start: Option<u64>,
        answer: Answer,
        (slow, ending): (bool, Ending),
    ) -> Self {
        Self {
            address,
            start,
            answer,
            total: random.magnitude(20_000) - 1,
            piece: random.magnitude(8000),
            gulp: random.magnitude(if slow { 50 } else { 16_384 }),
            pause: random.magnitude(if slow { 5_000_000 } else { 200_000 }),
            slow,
            ending,
            manner: Manner::Ordinary,
        }
    }
}

/// One peer.
#[derive(Debug)]
pub struct Peer {
    /// What it is to do.
    pub plan: PeerPlan,
    /// Its end of the connection.
    pub socket: Option<ObjectId>,
    /// The address that it has connected from.
    pub(super) from: Option<Address>,
    /// The name that its Unix socket is bound to before it connects; most have none.
    pub name: Option<Address>,
    /// Bytes that it has sent.
    pub sent: u64,
    /// Bytes that it has received.
    pub received: u64,
    /// When it received the last of them.
    pub received_at: u64,
    /// How long that was ago when the program reset its connection.
    pub idle_when_reset: Option<u64>,
    /// When the program asked last how much the peer has taken, and for how long that had taken nothing then.
    pub(super) looked_at: Option<(u64, u64)>,
    /// What the program was allowed to send, in order.
    pub expected: Vec<u8>,
    /// It has ended its direction.
    pub ended: bool,
    /// It has seen the end of the program's direction.
    pub saw_end: bool,
    /// It has seen an error, this one.
    pub saw_error: Option<i32>,
    /// It has reset, or closed with something unread: the rest may be lost.
    pub broke_off: bool,
    /// It may see an end before all that was accepted for it: the program has reset a Unix socket, which looks to its
    /// peer like an end, has given up an attempt to connect that had succeeded, or had no memory for a
    /// transfer on a Unix socket.
    pub excused: bool,
    /// It does nothing more.
    pub gone: bool,
    acts: u32,
    /// Acts in a row in which nothing could be done.
    idle_acts: u32,
    /// When its next act is due; what else the agenda has of it is out of date. `None`: it waits until something
    /// happens to its socket.
    due: Option<u64>,
    random: Random,
    number: usize,
}

impl Kernel {
    /// Adds a peer, which is as good as there from now on.
    pub fn add_peer(&mut self, plan: PeerPlan, random: Random) -> usize {
        let number = self.peers.len();
        if let Some(start) = plan.start {
            self.plan(start, Action::Peer(number));
        }
        let due = plan.start.map(|start| self.now + start);
        self.peers.push(Peer {
            plan,
            socket: None,
            from: None,
            name: None,
            sent: 0,
            received: 0,
            received_at: 0,
            idle_when_reset: None,
            looked_at: None,
            expected: Vec::new(),
            ended: false,
            saw_end: false,
            saw_error: None,
            broke_off: false,
            excused: false,
            gone: false,
            acts: 0,
            idle_acts: 0,
            due,
            random,
            number,
        });
        number
    }

    /// Somebody has connected to `peer`; `socket` is its end.
    pub(super) fn meet(&mut self, peer: usize, socket: ObjectId) {
        let previous = self.peers[peer].socket.replace(socket);
        self.note_pace(peer);
        assert!(previous.is_none(), "each peer is connected to once");
        self.plan_peer(peer);
    }

    fn note_pace(&mut self, number: usize) {
        if self.peers[number].plan.slow {
            self.counts.count(Fault::PeerSlow);
        }
    }

    fn plan_peer(&mut self, number: usize) {
        let fair = self.is_fair();
        let peer = &mut self.peers[number];
        let most = if fair { 50_000 } else { peer.plan.pause };
        // Whoever has nothing to do looks less often.
        let after = (2000 + peer.random.magnitude(most)) << peer.idle_acts.min(if fair { 4 } else { 12 });
        peer.due = Some(self.now + after);
        self.plan(after, Action::Peer(number));
    }

    /// Something happened to the socket of a peer, which may have waited for that.
    pub(super) fn rouse_peer(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        if peer.due.is_none() && !peer.gone && peer.socket.is_some() {
            peer.idle_acts = 0;
            self.plan_peer(number);
        }
    }

    /// Everything becomes fair: a silent peer speaks, a slow one hurries.
    pub(super) fn calm_peer(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        peer.idle_acts = 0;
        peer.plan.gulp = peer.plan.gulp.max(8192);
        if !matches!(peer.plan.ending, Ending::ReadFirst) {
            peer.plan.ending = Ending::EndFirst;
        }
        if peer.plan.start.is_some() || peer.socket.is_some() {
            self.plan_peer(number);
        }
    }

    /// One act of a peer, if it is due.
    pub(super) fn play(&mut self, number: usize, planned: u64) {
        let peer = &mut self.peers[number];
        if peer.gone || peer.due != Some(planned) {
            return;
        }
        peer.due = None;
        let Some(socket) = self.peers[number].socket else {
            return self.play_connecting(number);
        };
        let peer = &mut self.peers[number];
        peer.acts += 1;
        let acts = peer.acts;
        let before = (peer.sent, peer.received);
        match peer.plan.ending {
            Ending::Reset(after) if acts > after => {
                self.counts.count(Fault::PeerReset);
                self.note(|| format!("peer {number} resets"));
                self.reset(socket);
                return self.leave(number, socket, true);
            }
            Ending::Close(after) if acts > after => {
                self.counts.count(Fault::PeerClose);
                self.note(|| format!("peer {number} closes"));
                return self.leave(number, socket, true);
            }
            Ending::Lost(after, error) if acts > after => {
                self.counts.count(Fault::PeerLost);
                self.note(|| format!("peer {number} is lost"));
                self.lose(socket, error);
                return self.leave(number, socket, true);
            }
            Ending::Silent(after) if acts > after => {
                // Not even roused by what happens.
                peer.due = Some(u64::MAX);
                self.counts.count(Fault::PeerSilent);
                return;
            }
            _ => {}
        }
        if self.peers[number].plan.manner != Manner::NeverReads {
            self.play_receiving(number, socket);
        }
        if self.peers[number].saw_error.is_some() {
            return self.leave(number, socket, true);
        }
        self.play_sending(number, socket);
        let peer = &mut self.peers[number];
        let all_sent = peer.sent == peer.plan.total;
        if all_sent && !peer.ended && (peer.plan.ending == Ending::EndFirst || peer.saw_end) {
            peer.ended = true;
            let half_closes = peer.plan.ending == Ending::EndFirst && !peer.saw_end;
            if half_closes && !self.is_fair() {
                self.counts.count(Fault::PeerHalfClose);
            }
            self.note(|| format!("peer {number} ends its direction"));
            // One whose other end has gone has nobody to tell.
            let _ = self.shutdown_send(socket);
        }
        let peer = &mut self.peers[number];
        if peer.saw_end && peer.ended {
            return self.leave(number, socket, false);
        }
        let moved = (peer.sent, peer.received) != before;
        peer.idle_acts = if moved { 0 } else { peer.idle_acts + 1 };
        let acts_anyway = matches!(
            peer.plan.ending,
            Ending::Reset(_) | Ending::Close(_) | Ending::Lost(..) | Ending::Silent(_)
        );
        if moved || acts_anyway {
            self.plan_peer(number);
        }
    }

    fn play_connecting(&mut self, number: usize) {
        let peer = &self.peers[number];
        if peer.plan.start.is_none() {
            return;
        }
        let to = peer.plan.address.clone();
        let takes_all = peer.plan.manner == Manner::TakesAll;
        match self.knock(&to, number) {
            Ok(socket) => {
                self.note(|| format!("peer {number} connects to {to}"));
                let mut from = None;
                if let Some(stream) = self.stream(socket) {
                    stream.takes_all = takes_all;
                    from = Some(stream.local.clone());
                }
                self.peers[number].from = from;
                self.peers[number].socket = Some(socket);
                self.note_pace(number);
                self.peers[number].idle_acts = 0;
                self.plan_peer(number);
            }
            // The queue is full: again, later each time.
            Err(libc::EAGAIN) => {
                self.peers[number].idle_acts += 1;
                self.plan_peer(number);
            }
            Err(_) => self.peers[number].gone = true,
        }
    }

    fn play_receiving(&mut self, number: usize, socket: ObjectId) {
        let peer = &mut self.peers[number];
        let gulp = peer.random.magnitude(peer.plan.gulp) as usize;
        let (mut received, expected) = (peer.received as usize, std::mem::take(&mut peer.expected));
        let mut wrong = None;
        let result = self.receive(socket, gulp, |bytes| {
            let awaited = expected.get(received..).unwrap_or_default();
            if !awaited.starts_with(bytes) {
                let same = awaited
                    .iter()
                    .zip(bytes)
                    .take_while(|(one, other)| one == other)
                    .count();
                wrong.get_or_insert(received + same);
            }
            received += bytes.len();
        });
        let now = self.now;
        let peer = &mut self.peers[number];
        let allowed = expected.len();
        peer.expected = expected;
        if peer.received != received as u64 {
            peer.received = received as u64;
            peer.received_at = now;
        }
        match result {
            Ok(0) => {
                peer.saw_end = true;
                self.note(|| format!("peer {number} sees the end after {received} bytes"));
            }
            Ok(count) => self.note(|| format!("peer {number} receives {count} bytes")),
            Err(libc::EAGAIN) => {}
            Err(error) => {
                peer.saw_error = Some(error);
                self.note(|| format!("peer {number} sees error {error}"));
            }
        }
        if let Some(at) = wrong {
            self.fail(|| {
                format!(
                    "peer {number} received a wrong byte at offset {at}; {allowed} bytes were accepted for sending"
                )
            });
        }
    }

    fn play_sending(&mut self, number: usize, socket: ObjectId) {
        let fair = self.is_fair();
        let peer = &mut self.peers[number];
        let left = peer.plan.total - peer.sent;
        if left == 0 || peer.ended {
            return;
        }
        let length = match peer.plan.manner {
            Manner::Requests { size } => {
                let under_way = peer.sent % size;
                if under_way == 0 && peer.received < peer.sent {
                    return;
                }
                (size - under_way) as usize
            }
            _ => {
                let most = if fair { 16_384 } else { peer.plan.piece };
                peer.random.magnitude(most.min(left)) as usize
            }
        };
        let bytes = pattern::bytes(number as u64, peer.sent, length);
        match self.send(socket, std::iter::once(bytes), length) {
            Ok(count) => {
                self.peers[number].sent += count as u64;
                self.note(|| format!("peer {number} sends {count} bytes"));
            }
            Err(libc::EAGAIN) => {}
            Err(error) => {
                // It learns that nobody receives; what it has received already it still reads.
                let peer = &mut self.peers[number];
                peer.broke_off = true;
                peer.plan.total = peer.sent;
                self.note(|| format!("peer {number} fails to send: {error}"));
            }
        }
    }

    /// How far a peer of requests has come, in bytes that have reached either side, and whether it waits for the program to
    /// take its request or to respond to it.
    pub fn progress_of_requests(&self, number: usize) -> (u64, bool) {
        let peer = &self.peers[number];
        let Manner::Requests { size } = peer.plan.manner else {
            return (0, false);
        };
        let arrived = peer.socket.map_or(0, |socket| match &self.objects[socket].kind {
            Kind::Stream(stream) => stream.incoming.len() as u64,
            _ => 0,
        });
        let responded = peer.received + arrived;
        let waits = !peer.sent.is_multiple_of(size) || responded < peer.sent;
        (peer.sent + responded, waits && !peer.gone)
    }

    /// The peer that has connected from an address, or is found there. Those of TCP all have their own.
    #[must_use]
    pub fn peer_at(&self, address: &Address) -> Option<usize> {
        let is_at = |peer: &Peer| match peer.plan.start {
            Some(_) => peer.from.as_ref() == Some(address),
            None => peer.plan.address == *address,
        };
        self.peers.iter().position(is_at)
    }

    /// Whether a peer takes all that comes, of which nothing is kept to be compared.
    pub fn takes_all(&self, number: usize) -> bool {
        self.peers[number].plan.manner == Manner::TakesAll
    }

    /// A peer goes now, with a reset.
    pub fn dismiss_peer(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        if peer.gone {
            return;
        }
        peer.gone = true;
        if let Some(socket) = peer.socket {
            self.note(|| format!("peer {number} resets"));
            self.reset(socket);
            self.leave(number, socket, true);
        }
    }

    fn lose(&mut self, socket: ObjectId, error: i32) {
        let Some(other) = self.stream(socket).and_then(|stream| stream.other.take()) else {
            return;
        };
        self.die(other, Some(error));
        self.wake(other, events::IN | events::OUT);
    }

    fn leave(&mut self, number: usize, socket: ObjectId, broke_off: bool) {
        let peer = &mut self.peers[number];
        debug_assert_eq!(peer.number, number);
        peer.gone = true;
        peer.broke_off |= broke_off;
        self.release(socket);
    }
}
