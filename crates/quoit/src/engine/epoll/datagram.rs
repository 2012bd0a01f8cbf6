//! Datagrams: many with each `recvmmsg(2)` and `sendmmsg(2)`.

use std::os::fd::RawFd;

use super::record::{DatagramSocket, Key};
use super::sys::EpollSys;
use super::{EpollEngine, ROOM, bits};
use crate::datagram::{CONTROL_OFFSET, Head, NAME_OFFSET, NAME_ROOM};
use crate::engine::{Completion, Completions, DatagramBatch, DatagramReceived, FilledBuffer, SendManner};
use crate::errno::Errno;
use crate::id::Slot;
use crate::sys::SocketSys;

/// What datagram sockets are registered for, but for room to send.
pub(super) const WATCHED: u32 = bits(libc::EPOLLIN | libc::EPOLLET);
/// The events with which a receive may find something, be it an error.
const READABLE: u32 = bits(libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR);
/// The events with which fewer datagrams than were asked for do not mean that nothing is left: errors may come behind
/// them, with the same edge.
const READ_ON: u32 = bits(libc::EPOLLHUP | libc::EPOLLERR);
/// The events with which a send may find room, or an error.
const WRITABLE: u32 = bits(libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR);
/// Datagrams taken with one call at most: a turn's share, by default.
const BATCH: usize = 64;
/// Headers of the first call, and the fewest of any.
const LEAST: usize = 8;

/// The headers of a call. Those of which it makes no use stand for the next one, which mostly is to receive into the same
/// buffers.
#[derive(Default)]
pub(super) struct Scratch {
    messages: Vec<libc::mmsghdr>,
    payloads: Vec<libc::iovec>,
}

// SAFETY: what they point to is read and written during a call only, for which those are made anew that point elsewhere.
unsafe impl Send for Scratch {}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scratch({} messages)", self.messages.len())
    }
}

impl Scratch {
    /// Makes room, and forgets where headers point: a socket may have the memory of one that is gone.
    fn prepare(&mut self) {
        // SAFETY: structures of integers and pointers, for which all zeroes is a valid value.
        let (message, payload) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        self.messages.clear();
        self.messages.resize(BATCH, message);
        self.payloads.resize(BATCH, payload);
    }

    /// Headers for receiving into the last `count` of the socket's buffers, the last one first.
    fn aim(&mut self, socket: &DatagramSocket, count: usize) -> &mut [libc::mmsghdr] {
        let head = CONTROL_OFFSET + socket.control;
        let messages = &mut self.messages[..count];
        let payloads = &mut self.payloads[..count];
        let (_, buffers) = socket.buffers.split_at(socket.buffers.len() - count);
        // By number: three lists of which one is gone through from its end cost twice as much when they are zipped.
        for index in 0..count {
            let buffer = &buffers[count - 1 - index];
            let at = |offset: u32| buffer.address.wrapping_add(offset as usize).cast();
            let header = &mut messages[index].msg_hdr;
            if header.msg_name == at(NAME_OFFSET) {
                continue;
            }
            let payload = &mut payloads[index];
            payload.iov_base = at(head);
            payload.iov_len = (buffer.length - head) as usize;
            header.msg_name = at(NAME_OFFSET);
            header.msg_namelen = NAME_ROOM;
            header.msg_iov = payload;
            header.msg_iovlen = 1;
            header.msg_control = at(CONTROL_OFFSET);
            header.msg_controllen = socket.control as _;
            header.msg_flags = 0;
        }
        messages
    }
}

impl<P: EpollSys, K: SocketSys> EpollEngine<P, K> {
    pub(super) fn prepare_datagrams(
        &mut self,
        slot: Slot,
        descriptor: RawFd,
        control: u32,
        buffers: u16,
    ) -> Result<(), Errno> {
        self.scratch.prepare();
        let socket = self.datagrams.get(slot);
        socket.descriptor = descriptor;
        socket.control = control;
        socket.buffers.reserve(buffers.into());
        // What it is ready for now comes as an event of the next poll.
        socket.writable = true;
        self.counters.system_calls.add(1);
        let key = Key::datagram(slot, socket.sequence);
        let result = self.kernel.add(descriptor, WATCHED, key.to_bits());
        if result.is_err() {
            socket.forget();
        }
        result
    }

    pub(super) fn note_datagram(&mut self, key: Key, events: u32) {
        let socket = self.datagrams.get(key.slot());
        if socket.sequence != key.sequence() {
            return;
        }
        socket.readable |= events & READABLE != 0;
        socket.read_on |= events & READ_ON != 0;
        socket.marked |= events & bits(libc::EPOLLERR) != 0;
        socket.writable |= events & WRITABLE != 0;
        let is_unwanted = events & ROOM != 0 && socket.batch.is_none();
        self.list_datagram(key.slot());
        if is_unwanted {
            self.stop_watching_room(key);
        }
    }

    /// Puts the socket into the list of what can go on, if it can.
    #[inline]
    fn list_datagram(&mut self, slot: Slot) {
        let socket = self.datagrams.get(slot);
        if socket.can_go_on() && !std::mem::replace(&mut socket.listed, true) {
            self.runnable.push_back(Key::datagram(slot, socket.sequence));
        }
    }

    #[inline(never)]
    pub(super) fn run_datagram(&mut self, key: Key, completions: &mut Completions) {
        let slot = key.slot();
        let socket = self.datagrams.get(slot);
        if socket.sequence != key.sequence() {
            return;
        }
        socket.listed = false;
        self.receive_datagrams(slot, completions);
        if let Some(batch) = self.send_rest(slot) {
            completions.push(Completion::DatagramsSent { socket: slot, batch });
        }
        self.list_datagram(slot);
    }

    pub(super) fn start_datagrams(&mut self, slot: Slot) {
        let socket = self.datagrams.get(slot);
        debug_assert!(!socket.receiving, "one receive a socket at a time");
        socket.receiving = true;
        self.list_datagram(slot);
    }

    /// Receives until the socket is empty, this turn's share used up, or no buffer left.
    fn receive_datagrams(&mut self, slot: Slot, completions: &mut Completions) {
        let socket = self.datagrams.get(slot);
        let mut share = self.settings.datagrams_per_turn.max(1) as usize;
        if socket.receiving && std::mem::take(&mut socket.marked) {
            completions.push(Completion::DatagramReceived {
                socket: slot,
                received: DatagramReceived::Marked,
                more: true,
            });
        }
        while socket.receiving && socket.readable && share > 0 {
            let window = socket.window.max(LEAST);
            let wanted = window.min(share).min(socket.buffers.len());
            if wanted == 0 {
                socket.receiving = false;
                completions.push(ended(slot, DatagramReceived::Stopped));
                return;
            }
            self.counters.system_calls.add(1);
            let messages = self.scratch.aim(socket, wanted);
            let count = match self.kernel.receive_messages(socket.descriptor, messages) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    socket.readable = false;
                    socket.read_on = false;
                    return;
                }
                Err(error) => {
                    socket.receiving = false;
                    completions.push(ended(slot, DatagramReceived::Error(error)));
                    return;
                }
            };
            share -= count;
            // Each header costs, used or not, and each call more than some headers: so as many as come at once, as far as
            // the last call can tell.
            socket.window = if count == window {
                BATCH.min(2 * window)
            } else if 4 * count < window {
                LEAST.max(window / 2)
            } else {
                window
            };
            // Fewer than were asked for: the socket was found empty, or with an error behind them.
            socket.readable = count == wanted || socket.read_on;
            let head = CONTROL_OFFSET + socket.control;
            for message in &mut messages[..count] {
                let buffer = socket.buffers.pop().expect("each message had a buffer");
                let header = Head {
                    name: message.msg_hdr.msg_namelen,
                    control: message.msg_hdr.msg_controllen as u32,
                    payload: message.msg_len,
                    flags: message.msg_hdr.msg_flags as u32,
                };
                // The kernel has written to it.
                message.msg_hdr.msg_name = std::ptr::null_mut();
                let bytes = header.to_bytes();
                // SAFETY: the buffer is the engine's until the completion is handed over, and longer than any head.
                unsafe {
                    buffer
                        .address
                        .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
                };
                let filled = FilledBuffer {
                    id: buffer.id,
                    length: head + message.msg_len,
                };
                completions.push_filled(slot, filled, true);
            }
        }
    }

    /// Always in order: nothing is sent behind what waits.
    #[inline]
    pub(super) fn submit_datagrams(
        &mut self,
        slot: Slot,
        mut batch: Box<DatagramBatch>,
        manner: SendManner,
    ) -> Option<Box<DatagramBatch>> {
        let socket = self.datagrams.get(slot);
        debug_assert!(socket.batch.is_none(), "one send a socket at a time");
        let mut sent = 0;
        if socket.writable {
            let calls = &self.counters.system_calls;
            sent = batch.send(&self.system, socket.descriptor, manner, calls);
            if batch.is_done(sent) {
                return Some(batch);
            }
        } else {
            batch.begin();
        }
        socket.writable = false;
        let key = Key::datagram(slot, socket.sequence);
        if let Err(error) = self.watch_room(key, true) {
            batch.end(error);
            return Some(batch);
        }
        let socket = self.datagrams.get(slot);
        socket.batch = Some(batch);
        socket.sent = sent;
        socket.manner = manner;
        self.counters.in_flight.add(1);
        None
    }

    /// Sends what is left of the outstanding batch, if the socket is not known to be full. Answers the batch once all have
    /// a result; `None` if some have not, or there is none.
    fn send_rest(&mut self, slot: Slot) -> Option<Box<DatagramBatch>> {
        let socket = self.datagrams.get(slot);
        let batch = socket.batch.as_mut()?;
        if socket.writable {
            let calls = &self.counters.system_calls;
            socket.sent = batch.send_rest(&self.system, socket.descriptor, socket.sent, socket.manner, calls);
            socket.writable = batch.is_done(socket.sent);
        }
        if batch.is_done(socket.sent) {
            socket.batch.take()
        } else {
            None
        }
    }

    /// Ends the outstanding batch with what it has achieved.
    pub(super) fn cancel_datagrams(&mut self, slot: Slot) -> Option<Completion> {
        let mut batch = self.datagrams.get(slot).batch.take()?;
        batch.end(Errno::ECANCELED);
        Some(Completion::DatagramsSent { socket: slot, batch })
    }
}

fn ended(socket: Slot, received: DatagramReceived) -> Completion {
    Completion::DatagramReceived {
        socket,
        received,
        more: false,
    }
}
