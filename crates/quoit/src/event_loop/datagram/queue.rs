//! The outbound queue of one datagram socket: bounded, with memory of its own for what is copied.

use std::collections::VecDeque;

use crate::command::{Lent, Payload};
use crate::datagram::{MAX_CUT_PAYLOAD, MAX_SEGMENTS};
use crate::engine::DatagramBatch;
use crate::errno::Errno;
use crate::id::Token;
use crate::sys::Time;

use super::copies::{Copies, Copy};
use super::headings::{Heading, Headings};
use super::segmentation::{Route, Segmentation};

/// Messages that leave with one operation at most: enough that the call's own cost is shared by many, and few enough
/// that another socket's turn comes soon.
const BATCH: usize = 64;

#[derive(Debug)]
enum Bytes {
    Copied(Copy),
    Lent(Lent),
}

/// One send. Where it goes is its [`Heading`].
#[derive(Debug)]
struct Entry {
    bytes: Bytes,
    length: usize,
    /// Bytes of each datagram, where there may be several.
    step: Option<u16>,
    /// The interface to leave by; 0 for any.
    interface: u32,
    token: Token,
    /// Bytes that have left or failed, or are to be made again by themselves ([`Hole`]).
    done: usize,
    /// Of those, pieces that are to be made again.
    holes: u16,
    finished: bool,
    error: Option<Errno>,
    /// Times that it was to be made again.
    forgiven: u8,
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

/// What to send, and how.
pub(super) struct Send<'a> {
    pub(super) payload: Payload<'a>,
    pub(super) step: Option<u16>,
    /// The interface that it names; 0 for none.
    pub(super) interface: u32,
    pub(super) token: Token,
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
    entries: VecDeque<Entry>,
    /// Of the entries, in their order.
    headings: Headings,
    most_entries: usize,
    copies: Copies,
    high_water: usize,
    low_water: usize,
    queued: usize,
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
            entries: VecDeque::with_capacity(most_entries as usize),
            headings: Headings::new(most_entries as usize),
            most_entries: most_entries as usize,
            copies: Copies::new(high_water as usize)?,
            high_water: high_water as usize,
            low_water: low_water as usize,
            queued: 0,
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

    /// Where the next send's heading is to be written, all of it, before [`Queue::push`].
    pub(super) fn next_heading(&mut self) -> &mut Heading {
        self.headings.next(self.entries.len())
    }

    /// Takes a send, whose heading was written, or returns false: there is no room.
    // Inlined into its only caller, so that an entry is made where it stays.
    #[inline]
    pub(super) fn push(&mut self, send: Send<'_>) -> bool {
        let length = send.payload.len();
        if self.is_full() {
            return false;
        }
        let bytes = match send.payload {
            Payload::Copy(bytes) => {
                if self.queued + length > self.high_water {
                    return false;
                }
                match self.copies.put(bytes) {
                    Some(copy) => Bytes::Copied(copy),
                    None => return false,
                }
            }
            // Lent memory may pass the mark once: it is not the loop's.
            lent => match lent.into_lent() {
                Some(lent) => Bytes::Lent(lent),
                None => unreachable!("copied bytes were taken above"),
            },
        };
        self.queued += length;
        self.entries.push_back(Entry {
            bytes,
            length,
            step: send.step.filter(|&step| usize::from(step) < length),
            interface: send.interface,
            token: send.token,
            done: 0,
            holes: 0,
            finished: false,
            error: None,
            forgiven: 0,
        });
        true
    }

    /// Fills a batch with what is to leave next, and returns whether that names its receivers. None may be in flight.
    ///
    /// On Unix sockets all of a batch do, or none does.
    pub(super) fn fill(&mut self, now: Time, batch: &mut DatagramBatch) -> bool {
        debug_assert!(self.parts.is_empty(), "one batch at a time");
        batch.messages.clear();
        batch.payloads.clear();
        let mut addressed = None;
        let again = self.holes.len().min(BATCH);
        for hole in self.holes.drain(..again) {
            let entry = &self.entries[hole.entry];
            let step = usize::from(entry.step.expect("a piece is one of several"));
            let part = Part {
                entry: hole.entry,
                offset: hole.offset,
                length: step.min(entry.length - hole.offset),
                segmented: false,
                again: true,
            };
            let heading = self.headings.at(hole.entry);
            addressed = Some(!heading.to.is_empty());
            self.parts.push(part);
            write(batch, part, heading, entry.start(&self.copies));
        }
        for (index, entry) in self.entries.iter().enumerate() {
            if self.parts.len() == BATCH {
                break;
            }
            if entry.finished || entry.holes > 0 && entry.done == entry.length {
                continue;
            }
            let heading = self.headings.at(index);
            let is_addressed = !heading.to.is_empty();
            if self.separates && addressed.is_some_and(|before| before != is_addressed) {
                break;
            }
            addressed = Some(is_addressed);
            let start = entry.start(&self.copies);
            let mut offset = entry.done;
            let refused_from = match entry.step {
                Some(_) => self.segmentation.refused_from(now, || entry.route(heading)),
                None => 0,
            };
            loop {
                let left = entry.length - offset;
                let (length, segmented) = entry.next(left, refused_from);
                let part = Part {
                    entry: index,
                    offset,
                    length,
                    segmented,
                    again: false,
                };
                self.parts.push(part);
                write(batch, part, heading, start);
                offset += length;
                // Of those that the kernel cuts one at a time: whether it does is known only then, and what is sent
                // again must not be behind what was sent.
                if segmented || offset == entry.length || self.parts.len() == BATCH {
                    break;
                }
            }
        }
        // The list does not grow any more, so its places are those that the kernel will read.
        for (message, payload) in batch.messages.iter_mut().zip(&mut batch.payloads) {
            message.msg_hdr.msg_iov = payload;
            message.msg_hdr.msg_iovlen = 1;
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

    /// Takes the results of the batch in flight, and tells the sends that have ended, in order.
    pub(super) fn complete(
        &mut self,
        now: Time,
        batch: &DatagramBatch,
        mut ended: impl FnMut(Outcome),
    ) -> Tally {
        let mut tally = Tally::default();
        let forgives = std::mem::take(&mut self.forgives);
        debug_assert_eq!(self.parts.len(), batch.results.len());
        for (part, result) in self.parts.drain(..).zip(&batch.results) {
            let entry = &mut self.entries[part.entry];
            match result.unwrap_or(Err(Errno::ECANCELED)) {
                Ok(_) => {
                    let step = entry.step.map_or(part.length, usize::from).max(1);
                    tally.datagrams += part.length.div_ceil(step).max(1) as u64;
                    tally.bytes += part.length as u64;
                    tally.messages += 1;
                }
                Err(errno) if forgives.covers(errno) && entry.forgiven < FORGIVEN => {
                    entry.forgiven += 1;
                    // Of one that leaves in several pieces, those behind this one may have left.
                    if part.segmented || entry.step.is_none() {
                        continue;
                    }
                    self.holes.push(Hole {
                        entry: part.entry,
                        offset: part.offset,
                    });
                    entry.holes += 1;
                }
                Err(errno) if part.segmented && is_refusal_to_cut(errno) => {
                    let size = u32::from(entry.step.unwrap_or_default());
                    // EIO says that the device cannot at all, the others that it cannot so.
                    let from = if errno.code() == libc::EIO { 0 } else { size };
                    let route = entry.route(self.headings.at(part.entry));
                    self.segmentation.refuse(now, route, from);
                    tally.uncut += 1;
                    continue;
                }
                Err(errno) => {
                    entry.error.get_or_insert(errno);
                }
            }
            if part.again {
                entry.holes -= 1;
            } else {
                entry.done += part.length;
            }
            entry.finished = entry.done == entry.length && entry.holes == 0;
        }
        let Self {
            entries,
            copies,
            queued,
            holes,
            ..
        } = self;
        let mut finished = 0;
        for entry in entries.iter().take_while(|entry| entry.finished) {
            free(entry, copies, queued);
            ended(Outcome {
                token: entry.token,
                length: u32::try_from(entry.length).unwrap_or(u32::MAX),
                error: entry.error,
            });
            finished += 1;
        }
        entries.drain(..finished);
        for hole in holes {
            hole.entry -= finished;
        }
        self.headings.release(finished);
        tally
    }

    /// Drops everything. None may be in flight.
    pub(super) fn clear(&mut self) {
        debug_assert!(self.parts.is_empty(), "the kernel reads what is in flight");
        self.holes.clear();
        for entry in self.entries.drain(..) {
            free(&entry, &mut self.copies, &mut self.queued);
        }
    }
}

/// Appends a message to a batch, whose payload is pointed to when all are there.
#[inline]
fn write(batch: &mut DatagramBatch, part: Part, heading: &mut Heading, start: *const u8) {
    batch.payloads.push(libc::iovec {
        iov_base: start.wrapping_add(part.offset).cast_mut().cast(),
        iov_len: part.length,
    });
    // SAFETY: a structure of integers and pointers, for which all zeroes is a valid value.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    let header = &mut message.msg_hdr;
    if !heading.to.is_empty() {
        let (address, length) = heading.to.as_raw();
        header.msg_name = address.cast_mut().cast();
        header.msg_namelen = length;
    }
    let (control, length) = heading.control.as_raw(part.segmented);
    header.msg_control = control;
    header.msg_controllen = length as _;
    batch.messages.push(message);
}

/// Takes an entry, the oldest, out of the account.
fn free(entry: &Entry, copies: &mut Copies, queued: &mut usize) {
    *queued -= entry.length;
    if let Bytes::Copied(copy) = &entry.bytes {
        copies.give_back(copy);
    }
}

impl Entry {
    /// Where its bytes begin.
    fn start(&self, copies: &Copies) -> *const u8 {
        match &self.bytes {
            Bytes::Copied(copy) => copies.address(copy),
            Bytes::Lent(lent) => lent.as_slice().as_ptr(),
        }
    }

    fn route(&self, heading: &Heading) -> Route {
        let (to, scope) = heading.to.host().unzip();
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
