//! Sending: from memory, from memory without a copy, and from files.

use std::os::fd::RawFd;

use linux_raw_sys::io_uring as abi;

use super::UringEngine;
use super::entry;
use super::state::{Payload, SendStage, send_data};
use super::sys::UringSys;
use super::user_data::UserData;
use crate::engine::{Completion, Completions, Message, SendMode, header_of, piece};
use crate::errno::Errno;
use crate::id::Slot;
use crate::pool::Pool;
use crate::sys::SocketSys;

impl<S: UringSys, K: SocketSys> UringEngine<S, K> {
    #[inline(always)]
    pub(super) fn start_send(
        &mut self,
        connection: Slot,
        descriptor: i32,
        message: Message,
        mode: SendMode,
        pool: &mut Pool,
    ) {
        let state = self.connections.get(connection);
        state.descriptor = descriptor;
        let send = &mut state.send;
        debug_assert_eq!(send.stage, SendStage::Idle, "one send a connection");
        send.cancelled = false;
        send.done = 0;
        self.counters.sends.add(1);
        let data = send_data(connection, send);
        let mut registered = false;
        let mut entry = match message {
            Message::Single { address, length } => {
                debug_assert!(length > 0);
                let address = address.expose_provenance() as u64;
                self.counters.send_pieces.add(1);
                send.length = u64::from(length);
                send.payload = Payload::Single(address, length);
                registered = self.registered_pool && in_pool(pool, address, length);
                entry::send(descriptor, address, length, data)
            }
            Message::Gathered(mut gather) => {
                self.counters.send_pieces.add(gather.pieces.len() as u64);
                send.length = gather.bytes();
                let entry = entry::send_message(descriptor, gather.seal(), data);
                send.payload = Payload::Gathered(gather);
                entry
            }
        };
        send.stage = match mode {
            SendMode::Quiet if self.attempts_sends => {
                entry::make_attempt(&mut entry);
                send.attempt = self.counters.submissions.get();
                self.attempts.push((send.attempt, connection));
                SendStage::Attempt
            }
            SendMode::ZeroCopy if self.zero_copy && !send.refuses_zero_copy => {
                entry::make_zero_copy(&mut entry, registered);
                SendStage::ZeroCopy
            }
            SendMode::InParts => {
                entry::make_partial(&mut entry);
                SendStage::Sending
            }
            SendMode::Ordinary | SendMode::Quiet | SendMode::ZeroCopy => SendStage::Sending,
        };
        self.push(entry, pool);
    }

    /// Ends the attempts that have succeeded: those that the kernel has taken and of which no completion tells. To
    /// be called when all completions have been taken, as only then is their silence known.
    #[inline]
    pub(super) fn resolve_attempts(&mut self, pool: &mut Pool, completions: &mut Completions) {
        if self.attempts.is_empty() {
            return;
        }
        if self.sys.has_completion() || self.sys.has_overflowed() {
            return self.mark_attempts(pool);
        }
        self.resolve_attempts_before(self.taken(), completions);
    }

    /// While completions come faster than they are taken, there is no moment at which all have been: a request that does
    /// nothing is put behind the attempts. The kernel tries them while it takes them (`IOSQE_CQE_SKIP_SUCCESS` with
    /// `MSG_DONTWAIT`), so that its completion comes behind those of all that failed.
    #[cold]
    fn mark_attempts(&mut self, pool: &mut Pool) {
        if self.marker.is_none() && !self.quiescing {
            self.marker = Some(self.counters.submissions.get());
            self.push(entry::nothing(UserData::marker()), pool);
        }
    }

    /// All that completed before the marker has been taken.
    #[cold]
    pub(super) fn marker_completed(&mut self, completions: &mut Completions) {
        if let Some(number) = self.marker.take() {
            self.resolve_attempts_before(number, completions);
        }
    }

    #[inline(always)]
    fn resolve_attempts_before(&mut self, end: u64, completions: &mut Completions) {
        let mut resolved = 0;
        while let Some(&(number, connection)) = self.attempts.get(resolved)
            && number < end
        {
            resolved += 1;
            let send = &mut self.connections.get(connection).send;
            if send.stage == SendStage::Attempt && send.attempt == number {
                send.stage = SendStage::Idle;
                self.counters.in_flight.subtract(1);
                self.counters.sent_bytes.add(send.length);
                match std::mem::take(&mut send.payload) {
                    Payload::Gathered(gather) => completions.push(Completion::Sent {
                        connection,
                        result: Ok(send.length as usize),
                        gather: Some(gather),
                        held: false,
                    }),
                    _ => completions.push_quiet(connection, send.length as u32),
                }
            }
        }
        self.attempts.drain(..resolved);
    }

    /// Submits once more, in the ordinary way, what is left of a send after a first try.
    #[cold]
    fn push_again(&mut self, connection: Slot, pool: &mut Pool) {
        let state = self.connections.get(connection);
        let data = send_data(connection, &state.send);
        let entry = match &mut state.send.payload {
            Payload::Single(address, length) => entry::send(state.descriptor, *address, *length, data),
            Payload::Gathered(gather) => entry::send_message(state.descriptor, gather.seal(), data),
            Payload::None | Payload::File(..) => unreachable!("memory is being sent"),
        };
        state.send.stage = SendStage::Sending;
        self.push(entry, pool);
    }

    /// Sends what is long by a call of its own. `None`: nothing was sent.
    pub(super) fn send_long(
        &mut self,
        descriptor: RawFd,
        message: &mut Message,
    ) -> Option<Result<usize, Errno>> {
        let bytes = message.bytes();
        self.counters.system_calls.add(1);
        let (result, pieces) = match message {
            Message::Single { address, length } => {
                let mut only = [piece(*address, *length as usize)];
                (self.system.send_now(descriptor, &header_of(&mut only)), 1)
            }
            Message::Gathered(gather) => {
                gather.seal();
                (
                    self.system.send_now(descriptor, &gather.header),
                    gather.pieces.len() as u64,
                )
            }
        };
        match result {
            Err(Errno::EAGAIN | Errno::EINTR) => None,
            result => {
                self.counters.sends.add(1);
                self.counters.send_pieces.add(pieces);
                let taken = result.unwrap_or(0) as u64;
                self.counters.sent_bytes.add(taken);
                self.counters
                    .short_sends
                    .add(u64::from(result.is_ok() && taken < bytes));
                Some(result)
            }
        }
    }

    pub(super) fn start_send_file(
        &mut self,
        connection: Slot,
        descriptor: i32,
        file: i32,
        offset: u64,
        length: u64,
        pool: &mut Pool,
    ) {
        debug_assert!(length > 0);
        let state = self.connections.get(connection);
        state.descriptor = descriptor;
        debug_assert_eq!(state.send.stage, SendStage::Idle, "one send a connection");
        state.send.cancelled = false;
        state.send.length = length;
        state.send.payload = Payload::File(file, offset, length);
        self.counters.sends.add(1);
        if let Some(completion) = self.try_send_file(connection, pool) {
            self.ready.push_back(completion);
        }
    }

    /// Sends from the file what the socket takes now. If that is nothing, waits for room and returns `None`.
    fn try_send_file(&mut self, connection: Slot, pool: &mut Pool) -> Option<Completion> {
        let state = self.connections.get(connection);
        let Payload::File(file, offset, length) = state.send.payload else {
            unreachable!("a file is being sent")
        };
        let result = loop {
            self.counters.system_calls.add(1);
            match self.system.send_file(state.descriptor, file, offset, length) {
                Err(Errno::EINTR) => (),
                result => break result,
            }
        };
        if result == Err(Errno::EAGAIN) {
            state.send.stage = SendStage::Polling;
            let entry = entry::poll(
                state.descriptor,
                libc::POLLOUT,
                send_data(connection, &state.send),
            );
            self.push(entry, pool);
            return None;
        }
        Some(self.finish_send(connection, result, false))
    }

    #[inline]
    pub(super) fn sent(
        &mut self,
        connection: Slot,
        sequence: u32,
        result: i32,
        flags: u32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        if flags & abi::IORING_CQE_F_NOTIF != 0 {
            return self.notified(connection, sequence, result, pool, completions);
        }
        let held = flags & abi::IORING_CQE_F_MORE != 0;
        let send = &mut self.connections.get(connection).send;
        match send.stage {
            SendStage::Sending => (),
            SendStage::Attempt => {
                let taken = u64::try_from(result).unwrap_or_default();
                let waits = result == -libc::EAGAIN || (result >= 0 && taken < send.length);
                if waits && !send.cancelled {
                    send.done = taken;
                    send.payload.advance(taken);
                    return self.push_again(connection, pool);
                }
            }
            SendStage::ZeroCopy => {
                // For this socket never; or not now: what is sent so is charged against RLIMIT_MEMLOCK until the peer
                // has it, and past that the kernel has no buffers (`mm_account_pinned_pages` in net/core/skbuff.c).
                let never = result == -libc::EOPNOTSUPP;
                let not_now = result == -libc::ENOBUFS || result == -libc::ENOMEM;
                if never || not_now {
                    // The buffers stay with the kernel until the notification even of a send that failed.
                    send.refuses_zero_copy = never;
                    send.stage = SendStage::Refused;
                    self.counters.zero_copy_sends.add(u64::from(not_now));
                    self.counters.zero_copy_copied.add(u64::from(not_now));
                    if !held {
                        self.send_in_the_ordinary_way(connection, pool, completions);
                    }
                    return;
                }
                self.counters.zero_copy_sends.add(1);
            }
            SendStage::Polling => {
                let completion = if result >= 0 && !send.cancelled {
                    self.try_send_file(connection, pool)
                } else {
                    let code = if result < 0 { -result } else { libc::ECANCELED };
                    Some(self.finish_send(connection, Err(Errno::new(code)), false))
                };
                completions.list.extend(completion);
                return;
            }
            SendStage::Idle | SendStage::Refused => unreachable!("a completion belongs to a send"),
        }
        let result = usize::try_from(result).map_err(|_| Errno::new(-result));
        let completion = self.finish_send(connection, result, held);
        completions.push(completion);
    }

    /// The kernel is done with the memory of a zero-copy send.
    fn notified(
        &mut self,
        connection: Slot,
        sequence: u32,
        result: i32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        let send = &self.connections.get(connection).send;
        if send.stage == SendStage::Refused && send.sequence == sequence {
            return self.send_in_the_ordinary_way(connection, pool, completions);
        }
        let copied = result as u32 & abi::IORING_NOTIF_USAGE_ZC_COPIED != 0;
        self.counters.zero_copy_copied.add(u64::from(copied));
        completions.push(Completion::Released {
            connection,
            sequence,
            copied,
        });
    }

    /// Sends what zero copy was refused for.
    fn send_in_the_ordinary_way(&mut self, connection: Slot, pool: &mut Pool, completions: &mut Completions) {
        if self.connections.get(connection).send.cancelled {
            let completion = self.finish_send(connection, Err(Errno::ECANCELED), false);
            completions.push(completion);
        } else {
            self.push_again(connection, pool);
        }
    }

    fn finish_send(&mut self, connection: Slot, result: Result<usize, Errno>, held: bool) -> Completion {
        let send = &mut self.connections.get(connection).send;
        send.stage = SendStage::Idle;
        let done = std::mem::take(&mut send.done) as usize;
        let result = match result {
            Ok(bytes) => Ok(done + bytes),
            // The socket says so again at the next send.
            Err(_) if done > 0 => Ok(done),
            error => error,
        };
        if held {
            send.sequence = send.sequence.wrapping_add(1);
        }
        if let Ok(bytes) = result {
            self.counters.sent_bytes.add(bytes as u64);
            self.counters
                .short_sends
                .add(u64::from((bytes as u64) < send.length));
        }
        // The kernel has read the header and the pieces when it took the submission
        // (IORING_FEAT_SUBMIT_STABLE), so the gather is free although the memory may be held.
        let gather = match std::mem::take(&mut send.payload) {
            Payload::Gathered(gather) => Some(gather),
            _ => None,
        };
        Completion::Sent {
            connection,
            result,
            gather,
            held,
        }
    }
}

fn in_pool(pool: &Pool, address: u64, length: u32) -> bool {
    let (start, size) = pool.memory();
    let start = start.addr() as u64;
    address >= start && address + u64::from(length) <= start + size as u64
}
