//! The outbound queue of one datagram socket: bounded, with memory of its own for what is copied.
//!
//! A send that leaves whole is one message, and nearly all are. So as long as only such are queued and none has failed, a
//! batch is the oldest of them, and is over in one go. What is cut into several messages, or is made again, is kept account
//! of by [`Part`].

use std::fmt;

use crate::command::{Lent, Payload};
use crate::datagram::{DatagramSend, Heading, MAX_CUT_PAYLOAD, MAX_SEGMENTS};
use crate::engine::{DatagramBatch, piece};
use crate::errno::Errno;
use crate::id::Token;
use crate::sys::Time;

use super::copies::Copies;
use super::entries::Entries;
use super::segmentation::{Route, Segmentation};

/// Messages that leave with one operation at most: enough that the call's own cost is shared by many, and few enough
/// that another socket's turn comes soon.
const BATCH: usize = 64;

/// One send.
pub(super) struct Entry {
    heading: Heading,
    /// Its bytes: copied, or lent.
    payload: libc::iovec,
    /// What the copied bytes take of [`Copies`].
    copied: usize,
    lent: Option<Lent>,
    token: Token,
    /// Bytes of each datagram, where there may be several.
    step: Option<u16>,
    /// The interface to leave by; 0 for any.
    interface: u32,
    progress: Progress,
}

// SAFETY: the payload only names memory: of the queue's, or that is lent and vouched for as long as it is.
unsafe impl Send for Entry {}

impl Default for Entry {
    fn default() -> Self {
        Self {
            heading: Heading::empty(),
            payload: piece(std::ptr::null(), 0),
            copied: 0,
            lent: None,
            token: Token::NONE,
            step: None,
            interface: 0,
            progress: Progress::default(),
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({} bytes, {:?})", self.payload.iov_len, self.progress)
    }
}

/// How far a send has come.
#[derive(Default, Debug)]
struct Progress {
    /// Bytes that have left or failed, or are to be made again by themselves ([`Hole`]).
    done: usize,
    /// Of those, pieces that are to be made again.
    holes: u16,
    finished: bool,
    /// Times that it was to be made again.
    forgiven: u8,
    error: Option<Errno>,
}

/// Times that a send is made again which was told of an earlier one. Where every second of a batch is, as with receivers
/// on this host that are gone, each time leaves half of them: more than enough for a batch.
const FORGIVEN: u8 = 8;

/// One message of a batch in flight.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The entry, from the front: none is taken away while a batch is in flight.
    entry: usize,
    /// Where in the entry's bytes it begins.
    offset: usize,
    length: usize,
    /// Cut into datagrams by the kernel.
    segmented: bool,
    /// It was a [`Hole`].
    again: bool,
}

/// A piece of a send whose pieces leave one by one, that was told of something earlier in place of leaving. Those behind it
/// have left, or not: it is made again by itself.
#[derive(Clone, Copy, Debug)]
struct Hole {
    /// The entry, from the front.
    entry: usize,
    /// Where in the entry's bytes it begins.
    offset: usize,
}

/// What the network has returned since the last batch ended: a send of the next one may be told so in place of its own
/// sending.
#[derive(Clone, Copy, Default, Debug)]
struct Forgiven {
    /// Anything ([`is_of_network`]).
    network: bool,
    /// `EMSGSIZE`, which may be the send's own too.
    too_large: bool,
}

impl Forgiven {
    fn covers(self, errno: Errno) -> bool {
        self.network && is_of_network(errno) || self.too_large && errno == Errno::EMSGSIZE
    }
}

/// What became of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    pub(super) token: Token,
    pub(super) length: u32,
    pub(super) error: Option<Errno>,
}

/// What a batch that has ended says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    /// Datagrams that left, and their bytes.
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    /// Messages that they left in.
    pub(super) messages: u64,
    /// Messages that were to be cut and were not, and are sent again one by one.
    pub(super) uncut: u64,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Queue {
    entries: Entries,
    most_entries: usize,
    copies: Copies,
    high_water: usize,
    low_water: usize,
    queued: usize,
    /// All that is queued leaves whole, and none of it was tried yet.
    whole: bool,
    /// The messages in flight, if they are the oldest entries, whole.
    whole_in_flight: usize,
    /// The messages in flight otherwise.
    parts: Vec<Part>,
    /// Of entries in the order in which they failed. None while nobody is unreachable.
    holes: Vec<Hole>,
    segmentation: Segmentation,
    /// What sends may be told that is of earlier ones.
    forgives: Forgiven,
    /// A batch has either only sends that name their receivers, or none.
    separates: bool,
}

impl Queue {
    pub(super) fn new(high_water: u32, low_water: u32, most_entries: u32) -> Result<Self, Errno> {
        Ok(Self {
            entries: Entries::new(most_entries as usize),
            most_entries: most_entries as usize,
            copies: Copies::new(high_water as usize)?,
            high_water: high_water as usize,
            low_water: low_water as usize,
            queued: 0,
            whole: true,
            whole_in_flight: 0,
            parts: Vec::with_capacity(BATCH),
            holes: Vec::new(),
            segmentation: Segmentation::default(),
            forgives: Forgiven::default(),
            separates: false,
        })
    }

    /// For a Unix socket: those cannot cut, and whoever is connected to a full one is told when it has room, but nobody
    /// else.
    pub(super) fn be_unix(&mut self) {
        self.segmentation = Segmentation::never();
        self.separates = true;
    }

    /// Bytes queued.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the next send is refused.
    pub(super) fn is_full(&self) -> bool {
        self.queued >= self.high_water || self.entries.len() == self.most_entries
    }

    /// Whether there is room again, after it was full.
    pub(super) fn has_drained(&self) -> bool {
        self.queued <= self.low_water && self.entries.len() <= self.most_entries / 2
    }

    /// Whether copied bytes of this length can ever be taken.
    pub(super) fn can_copy(&self, length: usize) -> bool {
        length <= self.high_water
    }

    /// Takes a send, whose heading `head` writes, whatever was there before. Returns false if there is no room.
    // Inlined into its only caller, so that an entry is made where it stays.
    #[inline]
    pub(super) fn push<E>(
        &mut self,
        send: DatagramSend<'_>,
        head: impl FnOnce(&mut Heading, &DatagramSend<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let length = send.payload.len();
        let is_full = self.is_full();
        let entry = self.entries.next();
        head(&mut entry.heading, &send)?;
        if is_full {
            return Ok(false);
        }
        let start = match send.payload {
            Payload::Copy(bytes) => {
                if self.queued + length > self.high_water {
                    return Ok(false);
                }
                let Some(copy) = self.copies.put(bytes) else {
                    return Ok(false);
                };
                entry.copied = copy.taken;
                copy.start.cast_const()
            }
            // Lent memory may pass the mark once: it is not the loop's.
            lent => {
                entry.copied = 0;
                entry.lent = lent.into_lent();
                entry
                    .lent
                    .as_ref()
                    .map_or(std::ptr::null(), |lent| lent.as_slice().as_ptr())
            }
        };
        entry.payload = piece(start, length);
        entry.step = send.segment_size.filter(|&step| usize::from(step) < length);
        entry.interface = send.interface.unwrap_or_default();
        entry.token = send.token;
        entry.progress = Progress::default();
        // On Unix sockets all of a batch name their receivers, or none does, which is looked at one by one.
        self.whole = entry.step.is_none() && !self.separates && (self.whole || self.entries.is_empty());
        self.queued += length;
        self.entries.add();
        Ok(true)
    }

    /// Fills a batch with what is to leave next, and returns whether that names its receivers, which matters to Unix
    /// sockets alone. None may be in flight.
    #[inline]
    pub(super) fn fill(&mut self, now: Time, batch: &mut DatagramBatch) -> bool {
        debug_assert!(
            self.parts.is_empty() && self.whole_in_flight == 0,
            "one batch at a time"
        );
        batch.messages.clear();
        if !self.whole {
            return self.fill_in_parts(now, batch);
        }
        self.whole_in_flight = self.entries.len().min(BATCH);
        let whole = |index| {
            let entry = self.entries.at(index);
            message(&mut entry.heading, false, &raw mut entry.payload)
        };
        batch.messages.extend((0..self.whole_in_flight).map(whole));
        false
    }

    /// As [`Queue::fill`], where there is more to it.
    ///
    /// On Unix sockets all of a batch name their receivers, or none does.
    #[inline(never)]
    fn fill_in_parts(&mut self, now: Time, batch: &mut DatagramBatch) -> bool {
        // Filled to the end before any is pointed to.
        batch.payloads.clear();
        batch.payloads.reserve(BATCH);
        let mut addressed = None;
        let again = self.holes.len().min(BATCH);
        for hole in self.holes.drain(..again) {
            let entry = self.entries.at(hole.entry);
            let step = usize::from(entry.step.expect("a piece is one of several"));
            let part = Part {
                entry: hole.entry,
                offset: hole.offset,
                length: step.min(entry.payload.iov_len - hole.offset),
                segmented: false,
                again: true,
            };
            addressed = Some(!entry.heading.to.is_empty());
            self.parts.push(part);
            write(batch, part, entry);
        }
        for index in 0..self.entries.len() {
            if self.parts.len() == BATCH {
                break;
            }
            let entry = self.entries.at(index);
            let (
                Progress {
                    done,
                    holes,
                    finished,
                    ..
                },
                length,
            ) = (&entry.progress, entry.payload.iov_len);
            if *finished || *holes > 0 && *done == length {
                continue;
            }
            let is_addressed = !entry.heading.to.is_empty();
            if self.separates && addressed.is_some_and(|before| before != is_addressed) {
                break;
            }
            addressed = Some(is_addressed);
            let mut offset = *done;
            let refused_from = match entry.step {
                Some(_) => self.segmentation.refused_from(now, || entry.route()),
                None => 0,
            };
            loop {
                let (piece, segmented) = entry.next(length - offset, refused_from);
                let part = Part {
                    entry: index,
                    offset,
                    length: piece,
                    segmented,
                    again: false,
                };
                self.parts.push(part);
                write(batch, part, entry);
                offset += piece;
                // Of those that the kernel cuts one at a time: whether it does is known only then, and what is sent
                // again must not be behind what was sent.
                if segmented || offset == length || self.parts.len() == BATCH {
                    break;
                }
            }
        }
        addressed == Some(true)
    }

    /// The network has returned this error for something that was sent. A send of the batch in flight, or of the next one,
    /// that has failed so is to be made again: the kernel reports such an error by the next call, and whether that was this
    /// batch's, or the error was read before, is not to be seen.
    pub(super) fn forgive(&mut self, error: Errno) {
        self.forgives.network = true;
        self.forgives.too_large |= error == Errno::EMSGSIZE;
    }

    /// Takes the results of the batch in flight, and tells the sends that have ended, in order: those that have failed, or
    /// have a token.
    #[inline(always)]
    pub(super) fn complete(
        &mut self,
        now: Time,
        batch: &DatagramBatch,
        mut ended: impl FnMut(Outcome),
    ) -> Tally {
        if self.whole_in_flight == 0 || !batch.results.is_empty() {
            return self.complete_parts(now, batch, &mut ended);
        }
        self.forgives = Forgiven::default();
        let count = std::mem::take(&mut self.whole_in_flight);
        let mut bytes = 0;
        for index in 0..count {
            let entry = self.entries.at(index);
            bytes += entry.payload.iov_len;
            entry.free(&mut self.copies, &mut ended);
        }
        self.queued -= bytes;
        self.entries.release(count);
        Tally {
            datagrams: count as u64,
            bytes: bytes as u64,
            messages: count as u64,
            uncut: 0,
        }
    }

    /// As [`Queue::complete`], where there is more to it.
    #[inline(never)]
    fn complete_parts(&mut self, now: Time, batch: &DatagramBatch, ended: &mut dyn FnMut(Outcome)) -> Tally {
        for index in 0..std::mem::take(&mut self.whole_in_flight) {
            self.parts.push(Part {
                entry: index,
                offset: 0,
                length: self.entries.at(index).payload.iov_len,
                segmented: false,
                again: false,
            });
        }
        // What stays behind may have been tried.
        self.whole = false;
        let mut tally = Tally::default();
        let forgives = std::mem::take(&mut self.forgives);
        debug_assert!(batch.results.is_empty() || self.parts.len() == batch.results.len());
        for (index, part) in self.parts.drain(..).enumerate() {
            let entry = self.entries.at(part.entry);
            let progress = &mut entry.progress;
            // All have left if none has a result.
            let result = batch.results.get(index).copied().unwrap_or(Some(Ok(0)));
            match result.unwrap_or(Err(Errno::ECANCELED)) {
                Ok(_) => {
                    let step = entry.step.map_or(part.length, usize::from).max(1);
                    tally.datagrams += part.length.div_ceil(step).max(1) as u64;
                    tally.bytes += part.length as u64;
                    tally.messages += 1;
                }
                Err(errno) if forgives.covers(errno) && progress.forgiven < FORGIVEN => {
                    progress.forgiven += 1;
                    // Of one that leaves in several pieces, those behind this one may have left.
                    if part.segmented || entry.step.is_none() {
                        continue;
                    }
                    self.holes.push(Hole {
                        entry: part.entry,
                        offset: part.offset,
                    });
                    progress.holes += 1;
                }
                Err(errno) if part.segmented && is_refusal_to_cut(errno) => {
                    let size = u32::from(entry.step.unwrap_or_default());
                    // EIO says that the device cannot at all, the others that it cannot so.
                    let from = if errno.code() == libc::EIO { 0 } else { size };
                    self.segmentation.refuse(now, entry.route(), from);
                    tally.uncut += 1;
                    continue;
                }
                Err(errno) => {
                    progress.error.get_or_insert(errno);
                }
            }
            if part.again {
                progress.holes -= 1;
            } else {
                progress.done += part.length;
            }
            progress.finished = progress.done == entry.payload.iov_len && progress.holes == 0;
        }
        let mut finished = 0;
        while finished < self.entries.len() && self.entries.at(finished).progress.finished {
            let entry = self.entries.at(finished);
            self.queued -= entry.payload.iov_len;
            entry.free(&mut self.copies, &mut *ended);
            finished += 1;
        }
        for hole in &mut self.holes {
            hole.entry -= finished;
        }
        self.entries.release(finished);
        tally
    }

    /// Drops everything. None may be in flight.
    pub(super) fn clear(&mut self) {
        debug_assert!(
            self.parts.is_empty() && self.whole_in_flight == 0,
            "the kernel reads what is in flight"
        );
        self.holes.clear();
        let count = self.entries.len();
        for index in 0..count {
            self.entries.at(index).free(&mut self.copies, |_| ());
        }
        self.queued = 0;
        self.entries.release(count);
    }
}

/// The message of a payload, both of which stay where they are until it is sent.
#[inline]
fn message(heading: &mut Heading, segmented: bool, payload: *mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: a structure of integers and pointers, for which all zeroes is a valid value.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    let header = &mut message.msg_hdr;
    heading.fill(header, segmented);
    header.msg_iov = payload;
    header.msg_iovlen = 1;
    message
}

/// Appends the message of a part to a batch, which has room for its payload.
fn write(batch: &mut DatagramBatch, part: Part, entry: &mut Entry) {
    debug_assert!(batch.payloads.len() < batch.payloads.capacity());
    let place = batch.payloads.as_mut_ptr().wrapping_add(batch.payloads.len());
    let start: *const u8 = entry.payload.iov_base.cast();
    batch
        .payloads
        .push(piece(start.wrapping_add(part.offset), part.length));
    let message = message(&mut entry.heading, part.segmented, place);
    batch.messages.push(message);
}

impl Entry {
    /// Frees its bytes, and tells what became of it, if that is to be told.
    #[inline(always)]
    fn free(&mut self, copies: &mut Copies, ended: impl FnOnce(Outcome)) {
        copies.give_back(self.copied);
        self.lent = None;
        if self.token != Token::NONE || self.progress.error.is_some() {
            ended(Outcome {
                token: self.token,
                length: u32::try_from(self.payload.iov_len).unwrap_or(u32::MAX),
                error: self.progress.error,
            });
        }
    }

    fn route(&self) -> Route {
        let (to, scope) = self.heading.to.host().unzip();
        Route {
            to,
            // What is named by the send comes before the address's scope.
            interface: match self.interface {
                0 => scope.unwrap_or_default(),
                named => named,
            },
        }
    }

    /// How many of the `left` bytes leave with the next message, and whether the kernel cuts it.
    fn next(&self, left: usize, refused_from: u32) -> (usize, bool) {
        let Some(step) = self.step else {
            return (left, false);
        };
        if u32::from(step) >= refused_from {
            return (left.min(step.into()), false);
        }
        let step = usize::from(step);
        let steps = (MAX_CUT_PAYLOAD as usize / step).clamp(1, MAX_SEGMENTS as usize);
        let length = left.min(steps * step);
        (length, length > step)
    }
}

/// Whether the kernel, or the device, will not cut a message so (`udp_send_skb` of the kernel): the device's checksums
/// are off or not its own (`EIO`, `EINVAL`), or a segment with its headers is larger than the path's MTU (`EINVAL`,
/// `EMSGSIZE` since 6.9).
fn is_refusal_to_cut(errno: Errno) -> bool {
    matches!(errno.code(), libc::EIO | libc::EINVAL | libc::EMSGSIZE)
}

/// Whether the network may have said so of an earlier datagram (`icmp_err_convert` and `icmpv6_err_convert` of the
/// kernel). `EMSGSIZE`, which it says too, is mostly the send's own.
pub(super) fn is_of_network(errno: Errno) -> bool {
    matches!(
        errno.code(),
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EPROTO
            | libc::EACCES
    )
}

#[cfg(test)]
mod tests;
