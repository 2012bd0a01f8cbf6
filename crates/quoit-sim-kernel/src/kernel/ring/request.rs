//! Requests that are under way, and how they go on when something happens.

use std::collections::VecDeque;

use linux_raw_sys::io_uring as abi;
use quoit::internals::engine::uring::sys::SubmissionEntry;

use super::super::Kernel;
use super::super::agenda::Action;
use super::super::object::{Kind, ObjectId, events};
use super::super::stream::fails_for_good;
use super::{Completion, Effect, RingId};
use crate::faults::Fault;
use crate::memory;

/// Times that a multishot operation goes on at once before others get their turn, as in Linux.
const MULTISHOT_RETRIES: u32 = 32;

/// Bytes before the parts of a buffer that a multishot `recvmsg` has filled (`struct io_uring_recvmsg_out`).
const HEAD: usize = 16;

/// One request.
pub(super) struct Request {
    pub(super) user_data: u64,
    pub(super) object: ObjectId,
    pub(super) operation: Operation,
    /// No completion for success.
    pub(super) skips_success: bool,
    /// It ends instead of waiting.
    pub(super) at_once: bool,
    /// Something happened, and it will be gone on with.
    pub(super) queued: bool,
    /// It is among those that wait for its object.
    pub(super) waits: bool,
    /// What is linked to it.
    pub(super) chain: VecDeque<SubmissionEntry>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} on object {}", self.operation, self.object)
    }
}

impl Request {
    /// Whether it takes buffers of this group.
    pub(super) fn uses_group(&self, group: u16) -> bool {
        match &self.operation {
            Operation::Receive(receive) => receive.selects && receive.group == group,
            Operation::ReceiveMessage(receive) => receive.group == Some(group),
            _ => false,
        }
    }
}

#[derive(Debug)]
pub(super) enum Operation {
    Accept {
        multishot: bool,
    },
    Connect {
        address: (usize, usize),
        begun: bool,
    },
    Receive(Receive),
    Send(Send),
    ReceiveMessage(ReceiveMessage),
    /// See [`Kernel::send_message`].
    SendMessage {
        header: usize,
        spent: bool,
    },
    Poll {
        events: u32,
        multishot: bool,
    },
    ReadCounter {
        address: usize,
    },
}

/// A receive of datagrams.
#[derive(Debug)]
pub(super) struct ReceiveMessage {
    /// Where the message's header is. With provided buffers it is read when the entry is taken, and not again.
    pub(super) header: usize,
    /// The group that it takes buffers of.
    pub(super) group: Option<u16>,
    pub(super) multishot: bool,
    /// Bytes of each buffer for the peer's address, and for control messages.
    pub(super) name_room: usize,
    pub(super) control_room: usize,
}

#[derive(Debug)]
pub(super) struct Receive {
    pub(super) group: u16,
    pub(super) multishot: bool,
    /// Bytes after which it ends; 0 is never.
    pub(super) budget: u64,
    pub(super) received: u64,
    /// It takes provided buffers.
    pub(super) selects: bool,
    pub(super) address: usize,
    /// Bytes at most; 0 is as many as the buffer has.
    pub(super) length: usize,
}

#[derive(Debug)]
pub(super) struct Send {
    pub(super) pieces: Vec<(usize, usize)>,
    pub(super) total: usize,
    pub(super) done: usize,
    pub(super) zero_copy: bool,
}

impl Send {
    /// What is left to be sent.
    fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.done;
        self.pieces.iter().filter_map(move |&(address, length)| {
            let skipped = skip.min(length);
            skip -= skipped;
            (skipped < length).then(|| memory::read(address + skipped, length - skipped))
        })
    }
}

/// What became of a step of a request.
enum Outcome {
    Waits,
    /// It has had its share.
    Yields,
    Ends(i32, u32),
}

impl Operation {
    fn interest(&self) -> u32 {
        let always = events::ERR | events::HUP;
        always
            | match self {
                Self::Accept { .. } | Self::ReadCounter { .. } => events::IN,
                Self::Connect { .. } | Self::Send(_) | Self::SendMessage { .. } => events::OUT,
                Self::Receive(_) | Self::ReceiveMessage(_) => events::IN | events::RDHUP,
                Self::Poll { events, .. } => *events,
            }
    }
}

impl Kernel {
    /// Something happened that a request waits for.
    pub(in crate::kernel) fn wake_request(&mut self, ring: RingId, number: u64, happened: u32) {
        let Some(request) = self.ring(ring).requests.get_mut(number) else {
            return;
        };
        if request.queued || happened & request.operation.interest() == 0 {
            return;
        }
        request.queued = true;
        if self.strikes(Fault::Delay) {
            let after = self.random.magnitude(2_000_000);
            self.plan(after, Action::Nudge(ring, number));
        } else {
            self.ring(ring).woken.push_back(number);
        }
    }

    /// A request that was delayed goes on.
    pub(in crate::kernel) fn nudge(&mut self, ring: RingId, number: u64) {
        if let Some(ring) = &mut self.rings[ring]
            && ring.requests.get_mut(number).is_some()
        {
            ring.woken.push_back(number);
        }
    }

    /// Takes a request as far as it goes now.
    pub(super) fn go_on(&mut self, id: RingId, number: u64) {
        let Some(mut request) = self.ring(id).requests.take(number) else {
            return;
        };
        let object = request.object;
        let outcome = match &mut request.operation {
            Operation::Accept { multishot } => {
                self.go_on_accepting(id, request.user_data, object, *multishot)
            }
            Operation::Connect { address, begun } => self.go_on_connecting(object, *address, begun),
            Operation::Receive(receive) => self.go_on_receiving(id, request.user_data, object, receive),
            Operation::Send(send) => self.go_on_sending(object, send),
            Operation::ReceiveMessage(receive) => {
                self.go_on_receiving_datagrams(id, request.user_data, object, receive)
            }
            Operation::SendMessage { header, spent } => match self.send_message(object, *header, spent) {
                Ok(count) => Outcome::Ends(count as i32, 0),
                Err(libc::EAGAIN) => Outcome::Waits,
                Err(error) => Outcome::Ends(-error, 0),
            },
            Operation::Poll { events, multishot } => {
                self.go_on_polling(id, request.user_data, object, *events, *multishot)
            }
            Operation::ReadCounter { address } => match &mut self.object(object).kind {
                Kind::Counter(count) if *count > 0 => {
                    memory::write(*address, &std::mem::take(count).to_ne_bytes());
                    Outcome::Ends(8, 0)
                }
                _ => Outcome::Waits,
            },
        };
        match outcome {
            Outcome::Waits if request.at_once => {
                // One that has failed has moved on as well.
                self.datagrams_moved += u64::from(matches!(request.operation, Operation::SendMessage { .. }));
                let result = match &request.operation {
                    Operation::Send(send) if send.done > 0 => send.done as i32,
                    _ => -libc::EAGAIN,
                };
                self.end_request(id, number, request, result, 0, true);
            }
            Outcome::Waits => {
                if !std::mem::replace(&mut request.waits, true) {
                    self.object(object).waiters.push((id, number));
                }
                self.ring(id).requests.put_back(number, request);
            }
            Outcome::Yields => {
                request.queued = true;
                if !std::mem::replace(&mut request.waits, true) {
                    self.object(object).waiters.push((id, number));
                }
                let ring = self.ring(id);
                ring.requests.put_back(number, request);
                ring.woken.push_back(number);
            }
            Outcome::Ends(result, flags) => {
                let failed = result < 0
                    || matches!(&request.operation, Operation::Send(send) if send.done < send.total);
                self.end_request(id, number, request, result, flags, failed);
            }
        }
    }

    fn end_request(
        &mut self,
        id: RingId,
        number: u64,
        request: Request,
        result: i32,
        mut flags: u32,
        failed: bool,
    ) {
        let mut request = request;
        let chain = std::mem::take(&mut request.chain);
        self.forget_request(id, number, &request);
        if let Operation::Send(send) = &request.operation
            && send.zero_copy
        {
            flags |= self.plan_notification(id, &request, send, result);
        }
        if failed || !request.skips_success {
            let effect = match &request.operation {
                Operation::Send(_) if fails_for_good(-result) => Effect::Failure(request.object),
                _ => Effect::Nothing,
            };
            self.ring(id).post(Completion {
                user_data: request.user_data,
                result,
                flags,
                effect,
            });
        }
        if !chain.is_empty() {
            self.go_on_with_chain(id, chain, failed);
        }
    }

    fn forget_request(&mut self, id: RingId, number: u64, request: &Request) {
        self.ring(id).requests.free(number);
        if request.waits {
            self.object(request.object)
                .waiters
                .retain(|&waiter| waiter != (id, number));
        }
        if let Some(stream) = self.stream(request.object) {
            match request.operation {
                Operation::Send(_) => stream.sends -= 1,
                Operation::Receive(_) => stream.receives -= 1,
                _ => {}
            }
        }
        if let Some(socket) = self.datagram(request.object) {
            socket.requests -= 1;
            socket.receives -= u32::from(matches!(request.operation, Operation::ReceiveMessage(_)));
        }
        self.release(request.object);
    }

    fn go_on_accepting(&mut self, id: RingId, user_data: u64, object: ObjectId, multishot: bool) -> Outcome {
        for _ in 0..MULTISHOT_RETRIES {
            match self.accept(object, false) {
                Ok(descriptor) => {
                    if !multishot
                        || !self.ring(id).has_room_for_accepts()
                        || self.strikes(Fault::MultishotEnd)
                    {
                        return Outcome::Ends(descriptor, 0);
                    }
                    self.post_more(id, user_data, descriptor, 0);
                }
                Err(libc::EAGAIN) => return Outcome::Waits,
                Err(error) => return Outcome::Ends(-error, 0),
            }
        }
        Outcome::Yields
    }

    fn post_more(&mut self, id: RingId, user_data: u64, result: i32, flags: u32) {
        self.ring(id).post(Completion {
            user_data,
            result,
            flags: flags | abi::IORING_CQE_F_MORE,
            effect: Effect::Nothing,
        });
    }

    fn go_on_connecting(&mut self, object: ObjectId, address: (usize, usize), begun: &mut bool) -> Outcome {
        if !std::mem::replace(begun, true) {
            let raw = memory::socket_address(address.0, address.1);
            let Ok(address) = quoit::Address::try_from(&raw) else {
                return Outcome::Ends(-libc::EINVAL, 0);
            };
            return match self.connect(object, &address) {
                Ok(()) => Outcome::Ends(0, 0),
                Err(libc::EINPROGRESS) => Outcome::Waits,
                Err(error) => Outcome::Ends(-error, 0),
            };
        }
        match self.stream(object) {
            Some(stream) if stream.connecting => Outcome::Waits,
            Some(stream) => Outcome::Ends(stream.error.take().map_or(0, |error| -error), 0),
            None => Outcome::Ends(-libc::EINVAL, 0),
        }
    }

    fn go_on_receiving(
        &mut self,
        id: RingId,
        user_data: u64,
        object: ObjectId,
        receive: &mut Receive,
    ) -> Outcome {
        if !receive.selects {
            let mut at = receive.address;
            let result = self.receive(object, receive.length, |bytes| {
                memory::write(at, bytes);
                at += bytes.len();
            });
            return match result {
                Ok(count) => Outcome::Ends(count as i32, 0),
                Err(libc::EAGAIN) => Outcome::Waits,
                Err(error) => Outcome::Ends(-error, 0),
            };
        }
        for _ in 0..MULTISHOT_RETRIES {
            // The buffer comes first: want of one is told even if nothing is there.
            let Some(buffer) = self.ring(id).first_buffer(receive.group) else {
                self.counts.incidents.no_buffers += 1;
                return Outcome::Ends(-libc::ENOBUFS, 0);
            };
            let room = match receive.length {
                0 => buffer.length as usize,
                length => length.min(buffer.length as usize),
            };
            let mut at = buffer.address.expose_provenance();
            let result = self.receive(object, room, |bytes| {
                memory::write(at, bytes);
                at += bytes.len();
            });
            let result = match result {
                Err(libc::EAGAIN) => return Outcome::Waits,
                Err(error) => -error,
                Ok(count) => count as i32,
            };
            if result <= 0 {
                let flags = if self.strikes(Fault::BufferWithoutBytes) {
                    self.use_buffer(id, receive.group)
                } else {
                    0
                };
                return Outcome::Ends(result, flags);
            }
            let flags = self.use_buffer(id, receive.group);
            receive.received += result as u64;
            let used_up = receive.budget > 0 && receive.received >= receive.budget;
            if !receive.multishot || used_up || !self.ring(id).has_room() || self.strikes(Fault::MultishotEnd)
            {
                return Outcome::Ends(result, flags);
            }
            self.post_more(id, user_data, result, flags);
            let is_empty = self.stream(object).is_some_and(|stream| stream.is_drained());
            if is_empty && self.ring(id).stops_when_empty {
                return Outcome::Waits;
            }
        }
        Outcome::Yields
    }

    /// Datagrams into provided buffers, each laid out as `struct io_uring_recvmsg_out` says; or one to where its header
    /// says.
    fn go_on_receiving_datagrams(
        &mut self,
        id: RingId,
        user_data: u64,
        object: ObjectId,
        receive: &ReceiveMessage,
    ) -> Outcome {
        if self.fails_to_receive(object) {
            return Outcome::Ends(-libc::ENOMEM, 0);
        }
        let Some(group) = receive.group else {
            return match self.receive_message(object, receive.header) {
                Ok(count) => Outcome::Ends(count as i32, 0),
                Err(libc::EAGAIN) => Outcome::Waits,
                Err(error) => Outcome::Ends(-error, 0),
            };
        };
        let head = HEAD + receive.name_room + receive.control_room;
        for _ in 0..MULTISHOT_RETRIES {
            let Some(buffer) = self.ring(id).first_buffer(group) else {
                self.counts.incidents.no_buffers += 1;
                return Outcome::Ends(-libc::ENOBUFS, 0);
            };
            let Some(room) = (buffer.length as usize).checked_sub(head) else {
                return Outcome::Ends(-libc::EFAULT, 0);
            };
            let received = match self.receive_datagram(object, room, receive.control_room) {
                Ok(received) => received,
                Err(libc::EAGAIN) => return Outcome::Waits,
                Err(error) => {
                    let flags = if self.strikes(Fault::BufferWithoutBytes) {
                        self.use_buffer(id, group)
                    } else {
                        0
                    };
                    return Outcome::Ends(-error, flags);
                }
            };
            let at = buffer.address.expose_provenance();
            let words = [
                received.name.len() as u32,
                received.control.len() as u32,
                received.length as u32,
                received.flags as u32,
            ];
            for (place, word) in words.into_iter().enumerate() {
                memory::write(at + 4 * place, &word.to_ne_bytes());
            }
            memory::write(
                at + HEAD,
                &received.name[..received.name.len().min(receive.name_room)],
            );
            memory::write(at + HEAD + receive.name_room, &received.control);
            memory::write(at + head, &received.bytes[..received.length]);
            let result = (head + received.length) as i32;
            let flags = self.use_buffer(id, group);
            // One without bytes looks like the end of a stream (`io_recvmsg_multishot`).
            let finished = received.length == 0;
            if !receive.multishot
                || finished
                || !self.ring(id).has_room()
                || self.strikes(Fault::MultishotEnd)
            {
                return Outcome::Ends(result, flags);
            }
            self.post_more(id, user_data, result, flags);
        }
        Outcome::Yields
    }

    /// Takes the first provided buffer; returns the flags that name it.
    fn use_buffer(&mut self, id: RingId, group: u16) -> u32 {
        let group = self.ring(id).group(group).expect("looked at just now");
        let buffer = group.buffers.pop_front().expect("looked at just now");
        group.provided[usize::from(buffer.id)] = false;
        abi::IORING_CQE_F_BUFFER | u32::from(buffer.id) << abi::IORING_CQE_BUFFER_SHIFT
    }

    fn go_on_sending(&mut self, object: ObjectId, send: &mut Send) -> Outcome {
        if send.zero_copy && send.done == 0 {
            let unix = self.stream(object).is_some_and(|stream| stream.unix);
            if unix {
                return Outcome::Ends(-libc::EOPNOTSUPP, 0);
            }
            if self.strikes(Fault::NoZeroCopy) {
                // Never, or not with as much locked as the user may lock.
                let error = *self.random.choose(&[libc::EOPNOTSUPP, libc::ENOBUFS]);
                return Outcome::Ends(-error, 0);
            }
        }
        loop {
            match self.send(object, send.rest(), send.total - send.done) {
                Ok(count) => {
                    send.done += count;
                    if send.done == send.total {
                        return Outcome::Ends(send.total as i32, 0);
                    }
                }
                Err(libc::EAGAIN) => return Outcome::Waits,
                Err(_) if send.done > 0 => return Outcome::Ends(send.done as i32, 0),
                Err(error) => return Outcome::Ends(-error, 0),
            }
        }
    }

    fn go_on_polling(
        &mut self,
        id: RingId,
        user_data: u64,
        object: ObjectId,
        wanted: u32,
        multishot: bool,
    ) -> Outcome {
        let mask = self.mask(object) & (wanted | events::ERR | events::HUP);
        if mask == 0 {
            return Outcome::Waits;
        }
        if !multishot || !self.ring(id).has_room() || self.strikes(Fault::MultishotEnd) {
            return Outcome::Ends(mask as i32, 0);
        }
        self.post_more(id, user_data, mask as i32, 0);
        Outcome::Waits
    }

    /// Cancels the request with the user data `target`; returns the result of the cancellation's completion.
    pub(super) fn cancel(&mut self, id: RingId, target: u64) -> i32 {
        let find = |kernel: &mut Self| {
            let ring = kernel.ring(id);
            ring.requests
                .iter()
                .find(|(_, request)| request.user_data == target)
                .map(|(number, _)| number)
        };
        if let Some(number) = find(self)
            && self.strikes(Fault::LateCancel)
        {
            // What happened in the meantime comes first.
            let ring = self.ring(id);
            ring.woken.retain(|&woken| woken != number);
            if let Some(request) = ring.requests.get_mut(number) {
                request.queued = false;
            }
            self.go_on(id, number);
        }
        let Some(number) = find(self) else {
            return -libc::ENOENT;
        };
        let mut request = self.ring(id).requests.take(number).expect("found just now");
        let chain = std::mem::take(&mut request.chain);
        self.ring(id).woken.retain(|&woken| woken != number);
        self.forget_request(id, number, &request);
        let (result, flags) = match &request.operation {
            Operation::Send(send) => {
                let result = if send.done > 0 {
                    send.done as i32
                } else {
                    -libc::ECANCELED
                };
                let flags = if send.zero_copy {
                    self.plan_notification(id, &request, send, result)
                } else {
                    0
                };
                (result, flags)
            }
            _ => (-libc::ECANCELED, 0),
        };
        let completion = Completion {
            user_data: request.user_data,
            result,
            flags,
            effect: Effect::Nothing,
        };
        if self.strikes(Fault::CancelOrder) {
            self.ring(id).post(completion);
        } else {
            self.ring(id).late.push_back(completion);
        }
        self.go_on_with_chain(id, chain, true);
        0
    }
}
