//! Binding, listening, connecting and accepting.

use std::collections::VecDeque;

use quoit::Address;

use super::Kernel;
use super::agenda::Action;
use super::object::{Kind, Listener, ObjectId, events};
use super::peer::Answer;
use super::stream::Stream;
use crate::faults::Fault;

/// More failures to accept than these within this time, in nanoseconds, are one too many: a loop waits 10 ms and
/// more after each. Something that it closes may be what it waits for, and it tries again at once: each such try is
/// paid for by a close.
const INSISTENCE: u64 = 24;
const INSISTENCE_TIME: u64 = 500_000;

/// How often accepting has failed at one listener for want of descriptors or memory, or as it is forbidden.
#[derive(Debug, Default)]
pub(super) struct Insistence {
    since: u64,
    failures: u64,
    /// Descriptors that had been closed by then.
    closed: u64,
}

impl Insistence {
    /// Counts one more, now that so many descriptors have been closed; returns whether it is one too many.
    fn fails(&mut self, now: u64, closed: u64) -> bool {
        if now - self.since > INSISTENCE_TIME {
            *self = Self {
                since: now,
                failures: 0,
                closed,
            };
        }
        self.failures += 1;
        self.failures > INSISTENCE + (closed - self.closed)
    }
}

impl Kernel {
    /// Why no descriptor can be made now, if that is so.
    pub(crate) fn descriptor_fault(&mut self) -> Option<i32> {
        if self.table.is_full() || self.now < self.exhausted_until {
            return Some(libc::EMFILE);
        }
        if self.strikes(Fault::NoDescriptors) {
            // Not over at once: whoever tries again without a pause, tries often.
            self.exhausted_until = self.now + self.random.magnitude(50_000_000);
            return Some(libc::EMFILE);
        }
        if self.strikes(Fault::NoMemory) {
            return Some(*self.random.choose(&[libc::ENFILE, libc::ENOMEM, libc::ENOBUFS]));
        }
        None
    }

    /// `socket(2)`.
    pub(crate) fn socket(&mut self, unix: bool) -> Result<i32, i32> {
        if let Some(error) = self.descriptor_fault() {
            return Err(error);
        }
        let object = self.add_object(Kind::Fresh { unix, bound: None });
        self.open(object)
    }

    /// `socketpair(2)` of Unix stream sockets.
    pub(crate) fn socket_pair(&mut self) -> Result<[i32; 2], i32> {
        let pair = self.connect_pair(true, Address::UnixUnnamed, Address::UnixUnnamed, None);
        Ok([self.open(pair[0])?, self.open(pair[1])?])
    }

    /// A listening Unix socket that nobody knows.
    pub(crate) fn lonely_listener(&mut self) -> Result<i32, i32> {
        let listener = self.add_object(Kind::Listener(Listener {
            address: Address::UnixUnnamed,
            backlog: 1,
            queue: VecDeque::new(),
            insistence: Insistence::default(),
        }));
        self.open(listener)
    }

    /// `dup(2)`.
    pub(crate) fn duplicate(&mut self, id: ObjectId) -> Result<i32, i32> {
        if let Some(error) = self.descriptor_fault() {
            return Err(error);
        }
        self.refer(id);
        self.open(id)
    }

    /// `bind(2)`.
    pub(crate) fn bind(&mut self, id: ObjectId, address: &Address) -> Result<(), i32> {
        let address = match address {
            Address::Tcp(address) if address.port() == 0 => {
                self.next_port += 1;
                let mut address = *address;
                address.set_port(self.next_port);
                Address::Tcp(address)
            }
            other => other.clone(),
        };
        if self.bound_to(&address).is_some() && !self.may_share(id, &address) {
            return Err(libc::EADDRINUSE);
        }
        if matches!(self.objects[id].kind, Kind::Datagram(_)) {
            return self.bind_datagram(id, address);
        }
        match &mut self.objects[id].kind {
            Kind::Fresh {
                bound: bound @ None, ..
            } => *bound = Some(address.clone()),
            _ => return Err(libc::EINVAL),
        }
        self.bound.push((address, id));
        Ok(())
    }

    /// `listen(2)`.
    pub(crate) fn listen(&mut self, id: ObjectId, backlog: u32) -> Result<(), i32> {
        match &mut self.objects[id].kind {
            Kind::Fresh { bound, .. } => {
                let address = bound.take().ok_or(libc::EINVAL)?;
                self.objects[id].kind = Kind::Listener(Listener {
                    address,
                    backlog: backlog as usize,
                    queue: VecDeque::new(),
                    insistence: Insistence::default(),
                });
                Ok(())
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// A peer connects to one of the program's listeners. Answers its end; `EAGAIN` where the queue is full.
    pub(super) fn knock(&mut self, to: &Address, peer: usize) -> Result<ObjectId, i32> {
        let id = self.bound_to(to).ok_or(libc::ECONNREFUSED)?;
        let Kind::Listener(listener) = &self.objects[id].kind else {
            return Err(libc::ECONNREFUSED);
        };
        if listener.queue.len() > listener.backlog {
            return Err(libc::EAGAIN);
        }
        let server = listener.address.clone();
        let unix = server.is_unix();
        let client = if unix {
            self.peers[peer].name.clone().unwrap_or(Address::UnixUnnamed)
        } else {
            self.some_port()
        };
        let [near, far] = self.connect_pair(unix, client, server, Some(peer));
        if let Some(stream) = self.stream(near) {
            stream.is_peers = true;
        }
        if let Kind::Listener(listener) = &mut self.objects[id].kind {
            listener.queue.push_back(far);
        }
        self.wake(id, events::IN);
        Ok(near)
    }

    fn some_port(&mut self) -> Address {
        self.next_port = self.next_port.wrapping_add(1).max(40_000);
        Address::Tcp(([127, 0, 0, 1], self.next_port).into())
    }

    /// `accept4(2)` on what should be a non-blocking socket: somebody else who holds it may have been faster.
    pub(crate) fn accept_now(&mut self, id: ObjectId, nonblocking: bool) -> Result<i32, i32> {
        if !self.objects[id].nonblocking {
            self.fail(|| {
                "accept4 on a blocking socket, where another process may take the only connection".into()
            });
        }
        self.accept(id, nonblocking)
    }

    /// Accepts without waiting.
    pub(crate) fn accept(&mut self, id: ObjectId, nonblocking: bool) -> Result<i32, i32> {
        // The descriptor comes first: want of it is told even if nothing is queued.
        if let Some(error) = self.descriptor_fault() {
            self.watch_for_insistence(id);
            return Err(error);
        }
        // So does what a security module says, and it takes nothing from the queue (`do_accept`).
        if self.forbids_accepting() {
            self.watch_for_insistence(id);
            return Err(libc::EPERM);
        }
        let aborted = self.strikes(Fault::AcceptAborted);
        let Kind::Listener(listener) = &mut self.objects[id].kind else {
            return Err(libc::EINVAL);
        };
        let unix = listener.address.is_unix();
        let Some(object) = listener.queue.pop_front() else {
            return Err(libc::EAGAIN);
        };
        if aborted && !unix {
            if let Some(stream) = self.stream(object) {
                stream.reset_on_close = true;
            }
            self.release(object);
            return Err(*self.random.choose(&[
                libc::ECONNABORTED,
                libc::EPROTO,
                libc::ENETDOWN,
                libc::EHOSTUNREACH,
            ]));
        }
        self.objects[object].nonblocking = nonblocking;
        self.accepted += 1;
        self.open(object)
    }

    /// How many connections wait at an address for somebody to accept them; none where that is forbidden.
    pub fn queued_at(&self, address: &Address) -> usize {
        let at = self
            .bound
            .iter()
            .find(|(bound, _)| bound == address && !self.accepting_is_forbidden);
        match at.map(|(_, id)| &self.objects[*id].kind) {
            Some(Kind::Listener(listener)) => listener.queue.len(),
            _ => 0,
        }
    }

    /// Whether accepting is forbidden, which lasts once it is: fairness does not end it. It has random numbers of its
    /// own, so that what else a seed does is as it was before there was this.
    fn forbids_accepting(&mut self) -> bool {
        if !self.accepting_is_forbidden && !self.fair {
            let chance = self.profile.chance(Fault::AcceptForbidden);
            self.accepting_is_forbidden = self.late_random.chance(chance);
            if self.accepting_is_forbidden {
                self.counts.count(Fault::AcceptForbidden);
                self.note(|| "from now on accepting is forbidden".to_owned());
            }
        }
        self.accepting_is_forbidden
    }

    /// Accepting again and again at once, without descriptors or memory or where it is forbidden, is spinning.
    fn watch_for_insistence(&mut self, id: ObjectId) {
        let (now, closed) = (self.now, self.table.closed);
        let Kind::Listener(listener) = &mut self.objects[id].kind else {
            return;
        };
        if listener.insistence.fails(now, closed) {
            self.fail(|| {
                format!(
                    "the loop spins: accepting failed {INSISTENCE} times more than something was closed within {} us, for \
                     want of descriptors or memory, or as it is forbidden, and goes on",
                    INSISTENCE_TIME / 1000
                )
            });
        }
    }

    /// `connect(2)` without waiting.
    pub(crate) fn connect(&mut self, id: ObjectId, to: &Address) -> Result<(), i32> {
        if matches!(self.objects[id].kind, Kind::Datagram(_)) {
            return self.connect_datagram(id, to);
        }
        match &mut self.objects[id].kind {
            Kind::Fresh { unix, .. } if *unix == to.is_unix() => {}
            Kind::Fresh { .. } => return Err(libc::EAFNOSUPPORT),
            Kind::Stream(stream) if stream.connecting => return Err(libc::EALREADY),
            // The first call after an attempt that succeeded meanwhile tells of that.
            Kind::Stream(stream) if stream.unconfirmed => {
                stream.unconfirmed = false;
                return Ok(());
            }
            _ => return Err(libc::EISCONN),
        }
        let answerer = self.peers.iter().position(|peer| peer.plan.address == *to);
        let answer = answerer.map_or(Answer::Refuse, |peer| self.peers[peer].plan.answer);
        if answerer.is_some() && !matches!(answer, Answer::Accept { .. }) {
            self.counts.count(Fault::ConnectFails);
        }
        let local = self.some_port();
        let bound = match &mut self.objects[id].kind {
            Kind::Fresh { bound, .. } => bound.take(),
            _ => None,
        };
        if let Some(bound) = &bound {
            self.bound.retain(|(address, _)| address != bound);
        }
        let listens = self
            .bound_to(to)
            .is_some_and(|bound| matches!(self.objects[bound].kind, Kind::Listener(_)));
        if to.is_unix() && listens {
            return self.join_queue(id, to, Address::UnixUnnamed);
        }
        if to.is_unix() {
            return match (answer, answerer) {
                (Answer::Accept { .. }, Some(peer)) => {
                    self.establish(id, to, Address::UnixUnnamed, peer);
                    Ok(())
                }
                (Answer::Never | Answer::Lose { .. }, _) => Err(libc::EAGAIN),
                _ => Err(libc::ECONNREFUSED),
            };
        }
        let mut stream = Stream::new(false, 256, bound.unwrap_or(local), to.clone());
        stream.connecting = true;
        self.objects[id].kind = Kind::Stream(Box::new(stream));
        let after = match answer {
            _ if listens => Some(1000),
            Answer::Accept { after } | Answer::Lose { after, .. } => Some(after),
            Answer::Refuse => Some(self.random.magnitude(1_000_000)),
            Answer::Never => None,
        };
        if let Some(after) = after {
            self.plan(after, Action::Connected(id));
        }
        Err(libc::EINPROGRESS)
    }

    /// Makes `id` one end of a new connection, and returns the other.
    fn make_end(&mut self, id: ObjectId, to: &Address, local: Address, peer: Option<usize>) -> ObjectId {
        let [near, far] = self.connect_pair(to.is_unix(), local, to.clone(), peer);
        // The new socket's state moves into the object that the program knows.
        let kind = std::mem::replace(&mut self.objects[near].kind, Kind::Released);
        self.objects[near].references = 0;
        self.objects[id].kind = kind;
        if let Some(stream) = self.stream(far) {
            stream.other = Some(id);
        }
        if let Some(stream) = self.stream(id) {
            stream.unconfirmed = !stream.unix;
        }
        far
    }

    /// Makes `id` one end, and lets `peer` play the other.
    fn establish(&mut self, id: ObjectId, to: &Address, local: Address, peer: usize) {
        let far = self.make_end(id, to, local, Some(peer));
        if let Some(stream) = self.stream(far) {
            stream.is_peers = true;
        }
        self.meet(peer, far);
    }

    /// Makes `id` one end, and queues the other at a listener of the program's own.
    fn join_queue(&mut self, id: ObjectId, to: &Address, local: Address) -> Result<(), i32> {
        let listener = self.bound_to(to).ok_or(libc::ECONNREFUSED)?;
        match &self.objects[listener].kind {
            Kind::Listener(found) if found.queue.len() > found.backlog => return Err(libc::EAGAIN),
            Kind::Listener(_) => {}
            _ => return Err(libc::ECONNREFUSED),
        }
        let far = self.make_end(id, to, local, None);
        if let Kind::Listener(listener) = &mut self.objects[listener].kind {
            listener.queue.push_back(far);
        }
        self.wake(listener, events::IN);
        Ok(())
    }

    /// The attempt of `id` ends.
    pub(super) fn finish_connecting(&mut self, id: ObjectId) {
        let Some(stream) = self.stream(id) else { return };
        if !stream.connecting {
            return;
        }
        let (to, local) = (stream.remote.clone(), stream.local.clone());
        let answerer = self.peers.iter().position(|peer| peer.plan.address == to);
        match answerer.map(|peer| (self.peers[peer].plan.answer, peer)) {
            Some((Answer::Accept { .. }, peer)) => {
                self.establish(id, &to, local, peer);
                self.wake(id, events::OUT);
            }
            Some((Answer::Lose { error, .. }, _)) => self.refuse(id, error),
            _ => match self.join_queue(id, &to, local) {
                Ok(()) => self.wake(id, events::OUT),
                // TCP's attempt is made again, later.
                Err(libc::EAGAIN) => self.plan(1_000_000_000, Action::Connected(id)),
                Err(error) => self.refuse(id, error),
            },
        }
    }

    fn refuse(&mut self, id: ObjectId, error: i32) {
        if let Some(stream) = self.stream(id) {
            stream.connecting = false;
        }
        self.die(id, Some(error));
    }

    /// `SO_ERROR`, which this clears.
    pub(crate) fn pending_error(&mut self, id: ObjectId) -> Option<i32> {
        if self.datagram(id).is_some() {
            return self.take_datagram_error(id);
        }
        self.stream(id)?.error.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Profile;
    use crate::kernel::descriptors::FIRST;

    /// A kernel without a descriptor left, and a listener with more queued than anybody takes.
    fn exhausted() -> (Kernel, ObjectId) {
        let mut kernel = Kernel::new(0, Profile::kind(), 0, false);
        let address = Address::UnixUnnamed;
        let listener = kernel.add_object(Kind::Listener(Listener {
            address: address.clone(),
            backlog: 0,
            queue: VecDeque::new(),
            insistence: Insistence::default(),
        }));
        for _ in 0..200 {
            let [_, far] = kernel.connect_pair(true, address.clone(), address.clone(), None);
            if let Kind::Listener(found) = &mut kernel.objects[listener].kind {
                found.queue.push_back(far);
            }
        }
        (kernel, listener)
    }

    #[test]
    fn who_tries_again_without_descriptors_spins() {
        let (mut kernel, listener) = exhausted();
        for failures in 1..=INSISTENCE + 1 {
            assert_eq!(kernel.failure, None, "after {failures} failures");
            assert_eq!(kernel.accept(listener, true), Err(libc::EMFILE));
        }
        assert!(kernel.failure.is_some());
    }

    /// Each connection that is closed lets in one more, behind which there is no descriptor again.
    #[test]
    fn who_tries_again_as_something_was_closed_does_not_spin() {
        let (mut kernel, listener) = exhausted();
        kernel.set_descriptor_room(1);
        for _ in 0..INSISTENCE * 4 {
            assert_eq!(kernel.accept(listener, true), Ok(FIRST));
            assert_eq!(kernel.accept(listener, true), Err(libc::EMFILE));
            kernel.close(FIRST);
        }
        assert_eq!(kernel.failure, None);
    }
}
