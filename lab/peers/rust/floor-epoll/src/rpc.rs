//! The RPC side of the floors: response streams with credit, in the format of `docs/rpc.md`.
//!
//! It sends on streams that are not paced, grants nothing more, and trusts its client: what it does not serve or
//! cannot understand closes the connection.

use std::collections::{HashMap, VecDeque};

/// Bytes of a frame before its payload.
const FRAME_HEADER: usize = 9;
/// Bytes of a message before its pattern.
const CONTENT_HEADER: usize = 24;
/// The pattern repeats after so many bytes.
const PERIOD: usize = 251;
/// The largest message served: a whole one must fit into the output.
const MAX_MESSAGE: usize = 64 * 1024;
/// Bytes that one stream sends before the next one's turn.
const QUANTUM: usize = 8 * 1024;

const OPEN_RESPONSE: u8 = 1;
const CREDIT: u8 = 3;
const CANCEL: u8 = 4;
const MESSAGE: u8 = 5;
const END: u8 = 6;

/// One connection's streams.
#[derive(Default)]
pub(crate) struct Streams {
    open: HashMap<u32, Stream>,
    /// Streams that may send, in turn.
    ready: VecDeque<u32>,
}

struct Stream {
    tag: u32,
    size: usize,
    timed: bool,
    messages: u64,
    sent: u64,
    credit: u64,
    ready: bool,
}

/// The pattern of all messages.
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    pub(crate) fn new() -> Self {
        Self((0..MAX_MESSAGE + PERIOD).map(|at| (at % PERIOD) as u8).collect())
    }
}

impl Streams {
    /// Takes all complete frames of `received`, with what `partial` holds in front of it, and leaves the incomplete
    /// rest in `partial`. False when the connection is to be closed.
    pub(crate) fn receive(&mut self, received: &[u8], partial: &mut Vec<u8>, output: &mut Vec<u8>) -> bool {
        if partial.is_empty() {
            let Some(used) = self.receive_complete(received, output) else {
                return false;
            };
            partial.extend_from_slice(&received[used..]);
        } else {
            partial.extend_from_slice(received);
            let Some(used) = self.receive_complete(partial, output) else {
                return false;
            };
            partial.drain(..used);
        }
        true
    }

    /// Bytes of the complete frames at the start of `input`, which have been taken.
    fn receive_complete(&mut self, input: &[u8], output: &mut Vec<u8>) -> Option<usize> {
        let mut used = 0;
        while let Some(header) = input.get(used..used + FRAME_HEADER) {
            let payload_bytes = (u32_at(header, 0) as usize).checked_sub(5)?;
            let (id, kind) = (u32_at(header, 4), header[8]);
            // None of the frames that are taken is longer.
            if payload_bytes > 33 {
                return None;
            }
            let begin = used + FRAME_HEADER;
            let Some(payload) = input.get(begin..begin + payload_bytes) else {
                break;
            };
            used = begin + payload_bytes;
            match (kind, payload_bytes) {
                (OPEN_RESPONSE, 33) => self.open(id, payload)?,
                (CREDIT, 4) => {
                    if let Some(stream) = self.open.get_mut(&id) {
                        stream.credit += u64::from(u32_at(payload, 0));
                        if !std::mem::replace(&mut stream.ready, true) {
                            self.ready.push_back(id);
                        }
                    }
                }
                (CANCEL, 0) => {
                    if let Some(stream) = self.open.remove(&id) {
                        end(id, stream.sent, output);
                    }
                }
                _ => return None,
            }
        }
        Some(used)
    }

    fn open(&mut self, id: u32, payload: &[u8]) -> Option<()> {
        let messages = u64_at(payload, 5);
        let size = u32_at(payload, 13) as usize;
        let is_paced = u32_at(payload, 21) != 0 || u64_at(payload, 25) != 0;
        if !(CONTENT_HEADER..=MAX_MESSAGE).contains(&size) || is_paced {
            return None;
        }
        let credit = u64::from(u32_at(payload, 17));
        let stream = Stream {
            tag: u32_at(payload, 1),
            size,
            timed: payload[0] & 1 != 0,
            messages: if messages == 0 { u64::MAX } else { messages },
            sent: 0,
            credit,
            ready: credit > 0,
        };
        if stream.ready {
            self.ready.push_back(id);
        }
        // An id that is open already is the client's fault.
        self.open.insert(id, stream).is_none().then_some(())
    }

    /// Appends messages, in turn, until `output` has about `limit` bytes. True if there are more.
    pub(crate) fn produce(&mut self, pattern: &Pattern, limit: usize, output: &mut Vec<u8>) -> bool {
        let mut now = None;
        while output.len() < limit {
            let Some(id) = self.ready.pop_front() else {
                return false;
            };
            // Cancelled ones are still in the list.
            let Some(stream) = self.open.get_mut(&id) else {
                continue;
            };
            let time = if stream.timed {
                *now.get_or_insert_with(monotonic)
            } else {
                0
            };
            let stop = limit.min(output.len() + QUANTUM);
            let most = stream.credit.min(stream.messages - stream.sent);
            let mut left = most;
            while left > 0 && output.len() < stop {
                stream.append(id, time, pattern, output);
                left -= 1;
            }
            stream.credit -= most - left;
            if stream.sent == stream.messages {
                end(id, stream.sent, output);
                self.open.remove(&id);
            } else if left > 0 {
                self.ready.push_back(id);
            } else {
                stream.ready = false;
            }
        }
        !self.ready.is_empty()
    }
}

impl Stream {
    /// Appends the next message.
    fn append(&mut self, id: u32, time: u64, pattern: &Pattern, output: &mut Vec<u8>) {
        let mut header = [0; FRAME_HEADER + CONTENT_HEADER];
        header[..4].copy_from_slice(&(self.size as u32 + 5).to_be_bytes());
        header[4..8].copy_from_slice(&id.to_be_bytes());
        header[8] = MESSAGE;
        header[9..17].copy_from_slice(&self.sent.to_be_bytes());
        header[17..21].copy_from_slice(&id.to_be_bytes());
        header[21..25].copy_from_slice(&self.tag.to_be_bytes());
        header[25..33].copy_from_slice(&time.to_be_bytes());
        output.extend_from_slice(&header);
        let sum = self.sent % PERIOD as u64 + u64::from(id) + u64::from(self.tag) + CONTENT_HEADER as u64;
        let offset = (sum % PERIOD as u64) as usize;
        output.extend_from_slice(&pattern.0[offset..offset + self.size - CONTENT_HEADER]);
        self.sent += 1;
    }
}

fn end(id: u32, messages: u64, output: &mut Vec<u8>) {
    output.extend_from_slice(&17_u32.to_be_bytes());
    output.extend_from_slice(&id.to_be_bytes());
    output.push(END);
    output.extend_from_slice(&messages.to_be_bytes());
    output.extend_from_slice(&[0; 4]);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// Nanoseconds on the clock of send times.
fn monotonic() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for the write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
