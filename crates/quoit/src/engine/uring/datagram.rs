//! Datagrams: a multishot `recvmsg` that takes its buffers from a ring of the socket's own, or where the kernel has no
//! such thing one `recvmsg` after the other. A batch is sent with `sendmmsg(2)`, and what finds no room by a `sendmsg` for
//! each datagram, which waits for it.

use std::os::fd::RawFd;

use linux_raw_sys::io_uring as abi;

use super::UringEngine;
use super::entry;
use super::sys::{ProvidedBuffer, STREAM_GROUP, UringSys};
use super::user_data::{Tag, UserData};
use crate::datagram::{CONTROL_OFFSET, Head, NAME_OFFSET, NAME_ROOM};
use crate::engine::{Completion, Completions, DatagramBatch, DatagramReceived, FilledBuffer, SendManner};
use crate::errno::Errno;
use crate::features::Feature;
use crate::id::Slot;
use crate::pool::Pool;
use crate::sys::SocketSys;

/// Where a socket's receiving stands.
#[derive(Clone, Copy, Default, Debug)]
enum Stage {
    /// Nothing is outstanding.
    #[default]
    Idle,
    /// A multishot.
    Multishot,
    /// One receive, into this buffer.
    Filling(ProvidedBuffer),
}

/// The header of a receive. The kernel reads it when it takes the submission, and writes to that of a single receive
/// when it completes.
struct Header {
    message: libc::msghdr,
    payload: libc::iovec,
}

// SAFETY: it only names memory that the engine was provided with.
unsafe impl Send for Header {}

impl Header {
    fn new() -> Box<Self> {
        // SAFETY: structures of integers and pointers, for which all zeroes is a valid value.
        unsafe { Box::new(std::mem::zeroed()) }
    }
}

/// What the engine keeps of a datagram socket.
#[derive(Default)]
pub(super) struct DatagramSocket {
    descriptor: RawFd,
    /// Bytes for control messages in each buffer.
    control: u32,
    stage: Stage,
    cancelled: bool,
    header: Option<Box<Header>>,
    /// The number of its ring of provided buffers; without one the buffers are kept below.
    group: Option<u16>,
    buffers: Vec<ProvidedBuffer>,
    /// What is being sent, and how many of what was submitted have not completed.
    batch: Option<Box<DatagramBatch>>,
    unsent: usize,
    /// Those from here on have not been submitted.
    submitted: usize,
    /// Those that must not overtake one another are linked.
    ///
    /// Room is waited for by a poll then. Left to wait by itself, `sendmsg` on a Unix socket whose peer is full has nothing
    /// of its message left when the kernel tries it again, and sends an empty datagram (seen on Linux 6.18:
    /// `unix_dgram_sendmsg` takes the bytes in before it finds that the peer is full).
    manner: SendManner,
    /// Room is being waited for.
    polling: bool,
    send_cancelled: bool,
}

impl DatagramSocket {
    /// The receive, if one is outstanding, and the mark that it was cancelled.
    pub(super) fn outstanding_receive(&mut self, slot: Slot) -> Option<(UserData, &mut bool)> {
        (!matches!(self.stage, Stage::Idle)).then_some((receive_data(slot), &mut self.cancelled))
    }

    /// Whether this datagram of the batch was submitted and has not completed.
    fn is_pending(&self, number: usize) -> bool {
        number < self.submitted && self.has_no_result(number)
    }

    fn has_no_result(&self, number: usize) -> bool {
        self.batch
            .as_ref()
            .and_then(|batch| batch.results.get(number))
            .is_some_and(Option::is_none)
    }
}

fn receive_data(socket: Slot) -> UserData {
    UserData::new(Tag::DatagramReceive, socket, 0)
}

/// In the place of a datagram's number, the wait for room.
const ROOM: usize = (1 << 24) - 1;

fn send_data(socket: Slot, number: usize) -> UserData {
    UserData::new(Tag::DatagramSend, socket, number as u32)
}

impl<S: UringSys, K: SocketSys> UringEngine<S, K> {
    /// Whether a multishot lets others come after 32 datagrams, as since Linux 6.8 and in what 6.6 is maintained as
    /// (`MULTISHOT_MAX_RETRY`, "io_uring/net: limit inline multishot retries"). Before, one that is flooded goes on as long
    /// as it finds buffers. Such a kernel is told by what it does not have.
    pub(super) fn multishots_yield(&self) -> bool {
        self.features.contains(Feature::NoSubmissionArray)
    }

    pub(super) fn prepare_datagrams(
        &mut self,
        socket: Slot,
        descriptor: RawFd,
        control: u32,
        buffers: u16,
    ) -> Result<(), Errno> {
        // The kernel's polling thread finds the buffers that are given back meanwhile: there a multishot that does not yield
        // would not end as long as it is flooded.
        let rings = self.features.contains(Feature::BufferRing)
            && self.features.contains(Feature::MultishotReceive)
            && (self.multishots_yield() || !self.kernel_polls);
        let mut kept = Vec::new();
        let group = if rings {
            let group = u16::try_from(socket.index())
                .ok()
                .and_then(|index| index.checked_add(STREAM_GROUP + 1))
                .ok_or(Errno::ENOBUFS)?;
            self.sys
                .register_buffer_ring(group, buffers.next_power_of_two())?;
            self.counters.system_calls.add(1);
            Some(group)
        } else {
            kept.reserve(buffers.into());
            None
        };
        *self.datagrams.get(socket) = DatagramSocket {
            descriptor,
            control,
            header: Some(Header::new()),
            group,
            buffers: kept,
            ..DatagramSocket::default()
        };
        Ok(())
    }

    #[inline]
    pub(super) fn take_datagram_buffers(&mut self, socket: Slot, pool: &mut Pool, count: usize, length: u32) {
        let state = self.datagrams.get(socket);
        for _ in 0..count {
            let Some(buffer) = ProvidedBuffer::take(pool, length) else {
                break;
            };
            match state.group {
                Some(group) => self.sys.provide_buffer(group, buffer),
                None => state.buffers.push(buffer),
            }
        }
        if let Some(group) = state.group {
            self.sys.publish_buffers(group);
        }
    }

    pub(super) fn start_datagrams(&mut self, socket: Slot, pool: &mut Pool) {
        let state = self.datagrams.get(socket);
        debug_assert!(matches!(state.stage, Stage::Idle), "one receive a socket");
        state.cancelled = false;
        let Some(group) = state.group else {
            if let Err(completion) = self.receive_one(socket, pool) {
                self.ready.push_back(completion);
            }
            return;
        };
        state.stage = Stage::Multishot;
        let header = &mut state
            .header
            .as_mut()
            .expect("made when the socket was opened")
            .message;
        header.msg_namelen = NAME_ROOM;
        header.msg_controllen = state.control as _;
        let entry = entry::receive_datagrams(state.descriptor, header, group, receive_data(socket));
        self.push(entry, pool);
    }

    /// Receives one datagram into one of the kept buffers, if there is any.
    fn receive_one(&mut self, socket: Slot, pool: &mut Pool) -> Result<(), Completion> {
        let state = self.datagrams.get(socket);
        let Some(buffer) = state.buffers.pop() else {
            state.stage = Stage::Idle;
            return Err(ended(socket, DatagramReceived::Stopped));
        };
        state.stage = Stage::Filling(buffer);
        let header = state.header.as_mut().expect("made when the socket was opened");
        let head = CONTROL_OFFSET + state.control;
        header.payload = libc::iovec {
            iov_base: buffer.address.wrapping_add(head as usize).cast(),
            iov_len: (buffer.length - head) as usize,
        };
        let payload = &raw mut header.payload;
        let message = &mut header.message;
        message.msg_name = buffer.address.wrapping_add(NAME_OFFSET as usize).cast();
        message.msg_namelen = NAME_ROOM;
        message.msg_iov = payload;
        message.msg_iovlen = 1;
        message.msg_control = buffer.address.wrapping_add(CONTROL_OFFSET as usize).cast();
        message.msg_controllen = state.control as _;
        message.msg_flags = 0;
        let entry = entry::receive_datagram(state.descriptor, message, receive_data(socket));
        self.push(entry, pool);
        Ok(())
    }

    #[inline]
    pub(super) fn datagram_received(
        &mut self,
        socket: Slot,
        result: i32,
        flags: u32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        const ANOTHER: u32 = abi::IORING_CQE_F_MORE | abi::IORING_CQE_F_BUFFER;
        if flags & ANOTHER == ANOTHER
            && let Ok(length) = u32::try_from(result)
        {
            let id = (flags >> abi::IORING_CQE_BUFFER_SHIFT) as u16;
            completions.push_filled(socket, FilledBuffer { id, length }, true);
        } else {
            self.datagram_receive_ended(socket, result, flags, pool, completions);
        }
    }

    /// As [`UringEngine::datagram_received`], of all but a multishot that goes on.
    #[cold]
    fn datagram_receive_ended(
        &mut self,
        socket: Slot,
        result: i32,
        flags: u32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        let more = flags & abi::IORING_CQE_F_MORE != 0;
        let state = self.datagrams.get(socket);
        if let Stage::Filling(buffer) = state.stage {
            state.stage = Stage::Idle;
            let Ok(payload) = u32::try_from(result) else {
                state.buffers.push(buffer);
                completions.push(ended(socket, outcome(result)));
                return;
            };
            let head = state.write_head(buffer, payload);
            let length = CONTROL_OFFSET + head + payload;
            let filled = FilledBuffer {
                id: buffer.id,
                length,
            };
            completions.push_filled(socket, filled, !state.cancelled);
            if state.cancelled {
                return;
            }
            if let Err(completion) = self.receive_one(socket, pool) {
                completions.push(completion);
            }
            return;
        }
        if !more {
            state.stage = Stage::Idle;
        }
        let buffer =
            (flags & abi::IORING_CQE_F_BUFFER != 0).then_some((flags >> abi::IORING_CQE_BUFFER_SHIFT) as u16);
        match (buffer, u32::try_from(result)) {
            (Some(id), Ok(length)) => completions.push_filled(socket, FilledBuffer { id, length }, more),
            (buffer, _) => {
                if let Some(id) = buffer {
                    completions.push_filled(socket, FilledBuffer { id, length: 0 }, true);
                }
                completions.push(ended(socket, outcome(result)));
            }
        }
    }

    /// Sends by a call of its own what the socket takes now: a call for many datagrams costs less than an entry and a
    /// completion for each. The ring gets those that wait for room, and all where the kernel's thread is to do the work.
    #[inline]
    pub(super) fn submit_datagrams(
        &mut self,
        socket: Slot,
        mut batch: Box<DatagramBatch>,
        manner: SendManner,
        pool: &mut Pool,
    ) -> Option<Box<DatagramBatch>> {
        let state = self.datagrams.get(socket);
        debug_assert!(state.batch.is_none(), "one send a socket");
        if self.kernel_polls {
            batch.begin();
        } else {
            let calls = &self.counters.system_calls;
            let next = batch.send(&self.system, state.descriptor, manner, calls);
            if batch.is_done(next) {
                return Some(batch);
            }
        }
        self.keep_datagrams(socket, batch, manner, pool);
        None
    }

    /// What is left of a batch is for the ring.
    #[cold]
    fn keep_datagrams(
        &mut self,
        socket: Slot,
        batch: Box<DatagramBatch>,
        manner: SendManner,
        pool: &mut Pool,
    ) {
        let state = self.datagrams.get(socket);
        state.batch = Some(batch);
        state.manner = manner;
        state.send_cancelled = false;
        self.push_datagrams(socket, pool);
    }

    /// Submits what has no result of a batch; of what is linked no more at once than the submission queue holds, as no
    /// link reaches past its end.
    fn push_datagrams(&mut self, socket: Slot, pool: &mut Pool) {
        let state = self.datagrams.get(socket);
        let Some(batch) = &state.batch else { return };
        let linked = state.manner == SendManner::InOrder;
        let wanted = batch.results.iter().filter(|result| result.is_none()).count();
        if linked && self.sys.unsubmitted() as usize + wanted > self.submission_entries {
            self.flush(pool);
        }
        // Behind entries that wait for room, nobody knows where a submission will end.
        let taken = if self.spilled.is_empty() {
            self.sys.unsubmitted() as usize
        } else {
            self.submission_entries
        };
        let room = self.submission_entries - taken.min(self.submission_entries);
        let state = self.datagrams.get(socket);
        let Some(batch) = &state.batch else { return };
        let mut left = if linked { wanted.min(room.max(1)) } else { wanted };
        let count = batch.results.len();
        // The headers' addresses, computed without reading: the messages do not move while the box is kept.
        let messages = batch.messages.as_ptr();
        let (descriptor, waits) = (state.descriptor, state.manner == SendManner::Waiting);
        state.unsent = left;
        let mut number = 0;
        while number < count && left > 0 {
            if self.datagrams.get(socket).has_no_result(number) {
                left -= 1;
                let header = messages.wrapping_add(number).cast::<libc::msghdr>();
                let mut entry = entry::send_datagram(descriptor, header, waits, send_data(socket, number));
                if linked && left > 0 {
                    entry::link_to_next(&mut entry);
                }
                self.push(entry, pool);
            }
            number += 1;
        }
        self.datagrams.get(socket).submitted = number;
    }

    pub(super) fn datagram_sent(
        &mut self,
        socket: Slot,
        number: u32,
        result: i32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        let state = self.datagrams.get(socket);
        let batch = state.batch.as_mut().expect("a completion belongs to a batch");
        if number as usize == ROOM {
            state.polling = false;
        } else {
            batch.results[number as usize] = Some(u32::try_from(result).map_err(|_| Errno::new(-result)));
            state.unsent -= 1;
        }
        if state.unsent > 0 {
            return;
        }
        if state.manner == SendManner::InOrder {
            let mut full = false;
            for result in &mut batch.results {
                match result {
                    Some(Err(Errno::EAGAIN)) => full = true,
                    // Behind a failure the linked ones were cancelled: they are tried by themselves.
                    Some(Err(Errno::ECANCELED)) => {}
                    _ => continue,
                }
                *result = None;
            }
            if !state.send_cancelled && batch.results.iter().any(Option::is_none) {
                if !full {
                    return self.push_datagrams(socket, pool);
                }
                state.polling = true;
                state.submitted = 0;
                let entry = entry::poll(state.descriptor, libc::POLLOUT, send_data(socket, ROOM));
                return self.push(entry, pool);
            }
        }
        if let Some(batch) = state.batch.take() {
            completions.push(Completion::DatagramsSent { socket, batch });
        }
    }

    /// Cancels what has not been sent of a batch.
    pub(super) fn cancel_datagrams(&mut self, socket: Slot, pool: &mut Pool) {
        let Some(state) = self.datagrams.find(socket) else {
            return;
        };
        if std::mem::replace(&mut state.send_cancelled, true) {
            return;
        }
        if state.polling {
            return self.push_cancel(send_data(socket, ROOM), pool);
        }
        let count = state.batch.as_ref().map_or(0, |batch| batch.results.len());
        for number in 0..count {
            if self.datagrams.get(socket).is_pending(number) {
                self.push_cancel(send_data(socket, number), pool);
            }
        }
    }

    /// As [`UringEngine::cancelled`], for one datagram of a batch.
    pub(super) fn datagram_cancelled(&mut self, data: UserData, result: i32, pool: &mut Pool) {
        let number = data.target_detail() as usize;
        if result == -libc::ENOENT
            && let Some(state) = self.datagrams.find(data.slot())
            && state.send_cancelled
            && (state.is_pending(number) || (number == ROOM && state.polling))
        {
            self.push_cancel(send_data(data.slot(), number), pool);
        }
    }

    /// The socket is being closed, and nothing is outstanding.
    pub(super) fn forget_datagrams(&mut self, socket: Slot) {
        let Some(state) = self.datagrams.find(socket) else {
            return;
        };
        debug_assert!(
            matches!(state.stage, Stage::Idle) && state.batch.is_none(),
            "a socket is closed when nothing is outstanding"
        );
        let state = std::mem::take(state);
        if let Some(group) = state.group {
            self.counters.system_calls.add(1);
            let result = self.sys.unregister_buffer_ring(group);
            debug_assert_eq!(
                result,
                Ok(()),
                "a registered ring that nothing uses can be unregistered"
            );
        }
    }
}

impl DatagramSocket {
    /// Lays a buffer out as a multishot does, after a single receive. Returns the room for control messages.
    fn write_head(&mut self, buffer: ProvidedBuffer, payload: u32) -> u32 {
        let message = &self
            .header
            .as_ref()
            .expect("made when the socket was opened")
            .message;
        let head = Head {
            name: message.msg_namelen,
            control: message.msg_controllen as u32,
            payload,
            flags: message.msg_flags as u32,
        };
        let bytes = head.to_bytes();
        // SAFETY: the buffer is the engine's until the completion is handed over, and longer than any head.
        unsafe {
            buffer
                .address
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        self.control
    }
}

fn ended(socket: Slot, received: DatagramReceived) -> Completion {
    Completion::DatagramReceived {
        socket,
        received,
        more: false,
    }
}

fn outcome(result: i32) -> DatagramReceived {
    match -result {
        libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => DatagramReceived::Stopped,
        code if code > 0 => DatagramReceived::Error(Errno::new(code)),
        // A success without a buffer: there is nothing to deliver.
        _ => DatagramReceived::Stopped,
    }
}
