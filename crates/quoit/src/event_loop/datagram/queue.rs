//! The outbound queue of one datagram socket: bounded, with memory of its own for what is copied.

use std::collections::VecDeque;

use crate::command::{Lent, Payload};
use crate::datagram::{MAX_SEGMENTS, MAX_UDP_PAYLOAD};
use crate::engine::DatagramBatch;
use crate::errno::Errno;
use crate::id::Token;

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
    /// Bytes that have left or failed.
    done: usize,
    finished: bool,
    error: Option<Errno>,
}

/// One message of a batch in flight.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The entry, from the front: none is taken away while a batch is in flight.
    entry: usize,
    length: usize,
    /// Cut into datagrams by the kernel.
    segmented: bool,
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
    segmentation: Segmentation,
    /// A batch has either only sends that name their receivers, or none.
    separates: bool,
}

impl Queue {
    pub(super) fn new(high_water: u32, low_water: u32, most_entries: u32) -> Self {
        Self {
            entries: VecDeque::with_capacity(most_entries as usize),
            headings: Headings::new(most_entries as usize),
            most_entries: most_entries as usize,
            copies: Copies::new(high_water as usize),
            high_water: high_water as usize,
            low_water: low_water as usize,
            queued: 0,
            parts: Vec::with_capacity(BATCH),
            segmentation: Segmentation::new(),
            separates: false,
        }
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

    /// Takes a send, whose heading was written, or answers false: there is no room.
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
            finished: false,
            error: None,
        });
        true
    }

    /// Fills a batch with what is to leave next, and answers whether that names its receivers. None may be in flight.
    ///
    /// On Unix sockets all of a batch do, or none does.
    pub(super) fn fill(&mut self, batch: &mut DatagramBatch) -> bool {
        debug_assert!(self.parts.is_empty(), "one batch at a time");
        batch.messages.clear();
        batch.payloads.clear();
        let mut addressed = None;
        for (index, entry) in self.entries.iter().enumerate() {
            if self.parts.len() == BATCH {
                break;
            }
            if entry.finished {
                continue;
            }
            let heading = self.headings.at(index);
            let is_addressed = !heading.to.is_empty();
            if self.separates && addressed.is_some_and(|before| before != is_addressed) {
                break;
            }
            addressed = Some(is_addressed);
            let start = match &entry.bytes {
                Bytes::Copied(copy) => self.copies.address(copy),
                Bytes::Lent(lent) => lent.as_slice().as_ptr(),
            };
            let mut offset = entry.done;
            let refused_from = match entry.step {
                Some(_) => self.segmentation.refused_from(|| entry.route(heading)),
                None => 0,
            };
            loop {
                let left = entry.length - offset;
                let (length, segmented) = entry.next(left, refused_from);
                self.parts.push(Part {
                    entry: index,
                    length,
                    segmented,
                });
                batch.payloads.push(libc::iovec {
                    iov_base: start.wrapping_add(offset).cast_mut().cast(),
                    iov_len: length,
                });
                // SAFETY: a structure of integers and pointers, for which all zeroes is a valid value.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                let header = &mut message.msg_hdr;
                if is_addressed {
                    let (address, length) = heading.to.as_raw();
                    header.msg_name = address.cast_mut().cast();
                    header.msg_namelen = length;
                }
                (header.msg_control, header.msg_controllen) = heading.control.as_raw(segmented);
                batch.messages.push(message);
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

    /// Takes the results of the batch in flight, and tells the sends that have ended, in order.
    pub(super) fn settle(&mut self, batch: &DatagramBatch, mut ended: impl FnMut(Outcome)) -> Tally {
        let mut tally = Tally::default();
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
                Err(errno) if part.segmented && is_refusal_to_cut(errno) => {
                    let size = u32::from(entry.step.unwrap_or_default());
                    // EIO says that the device cannot at all, the others that it cannot so.
                    let from = if errno.code() == libc::EIO { 0 } else { size };
                    let route = entry.route(self.headings.at(part.entry));
                    self.segmentation.refuse(route, from);
                    tally.uncut += 1;
                    continue;
                }
                Err(errno) => {
                    entry.error.get_or_insert(errno);
                }
            }
            entry.done += part.length;
            entry.finished = entry.done == entry.length;
        }
        let Self {
            entries,
            copies,
            queued,
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
        self.headings.release(finished);
        tally
    }

    /// Drops everything. None may be in flight.
    pub(super) fn clear(&mut self) {
        debug_assert!(self.parts.is_empty(), "the kernel reads what is in flight");
        for entry in self.entries.drain(..) {
            free(&entry, &mut self.copies, &mut self.queued);
        }
    }
}

/// Takes an entry, the oldest, out of the account.
fn free(entry: &Entry, copies: &mut Copies, queued: &mut usize) {
    *queued -= entry.length;
    if let Bytes::Copied(copy) = &entry.bytes {
        copies.give_back(copy);
    }
}

impl Entry {
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
        let steps = (MAX_UDP_PAYLOAD as usize / step).clamp(1, MAX_SEGMENTS as usize);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn send(bytes: &[u8], step: Option<u16>, token: u64) -> Send<'_> {
        Send {
            payload: Payload::Copy(bytes),
            step,
            interface: 0,
            token: Token(token),
        }
    }

    /// To the peer of the socket.
    fn push(queue: &mut Queue, send: Send<'_>) -> bool {
        let heading = queue.next_heading();
        assert!(heading.to.is_empty(), "no other was queued");
        queue.push(send)
    }

    /// The bytes of each message.
    fn messages(batch: &DatagramBatch) -> Vec<Vec<u8>> {
        let piece = |message: &libc::mmsghdr| {
            // SAFETY: the queue has pointed the header at one live payload, and that at live bytes.
            unsafe {
                assert_eq!(message.msg_hdr.msg_iovlen, 1);
                let payload = &*message.msg_hdr.msg_iov;
                std::slice::from_raw_parts(payload.iov_base.cast::<u8>(), payload.iov_len).to_vec()
            }
        };
        batch.messages.iter().map(piece).collect()
    }

    fn lengths(batch: &DatagramBatch) -> Vec<usize> {
        messages(batch).iter().map(Vec::len).collect()
    }

    fn results(batch: &mut DatagramBatch, result: impl Fn(usize) -> Result<u32, Errno>) {
        batch.results = (0..batch.messages.len())
            .map(|index| Some(result(index)))
            .collect();
    }

    #[test]
    fn a_refusal_to_cut_sends_one_by_one_and_is_remembered() {
        let mut queue = Queue::new(10_000, 100, 16);
        let mut batch = DatagramBatch::default();
        let bytes: Vec<u8> = (0..2500u32).map(|index| index as u8).collect();
        assert!(push(&mut queue, send(&bytes, Some(1000), 7)));
        queue.fill(&mut batch);
        assert_eq!(lengths(&batch), [2500]);
        results(&mut batch, |_| Err(Errno::EINVAL));
        let tally = queue.settle(&batch, |_| panic!("it is sent again"));
        assert_eq!((tally.uncut, tally.datagrams), (1, 0));

        queue.fill(&mut batch);
        assert_eq!(lengths(&batch), [1000, 1000, 500]);
        assert_eq!(messages(&batch).concat(), bytes);
        results(&mut batch, |_| Ok(1));
        let mut ended = Vec::new();
        let tally = queue.settle(&batch, |outcome| ended.push(outcome));
        assert_eq!((tally.datagrams, tally.bytes, tally.messages), (3, 2500, 3));
        let outcome = Outcome {
            token: Token(7),
            length: 2500,
            error: None,
        };
        assert_eq!((ended, queue.queued()), (vec![outcome], 0));

        // Smaller ones are still tried, until the device says that it cannot at all.
        for (size, errno, expected) in [(1000, None, 2), (999, Some(libc::EIO), 1), (10, None, 64)] {
            assert!(push(&mut queue, send(&bytes[..1900], Some(size), 0)));
            queue.fill(&mut batch);
            assert_eq!(batch.messages.len(), expected, "{size}");
            results(&mut batch, |_| errno.map_or(Ok(1), |code| Err(Errno::new(code))));
            queue.settle(&batch, |_| ());
            while !queue.is_empty() {
                queue.fill(&mut batch);
                results(&mut batch, |_| Ok(1));
                queue.settle(&batch, |_| ());
            }
        }
    }

    #[test]
    fn a_refusal_to_cut_holds_for_its_route_alone() {
        let mut queue = Queue::new(100_000, 100, 16);
        let mut batch = DatagramBatch::default();
        let to = |address: &str, interface| {
            let send = Send {
                interface,
                ..send(&[1; 3000], Some(1000), 0)
            };
            (address.parse().unwrap(), send)
        };
        let mut round = |(to, send): (_, Send<'_>), result: Result<u32, Errno>| {
            queue.next_heading().to.set_internet(to);
            assert!(queue.push(send));
            queue.fill(&mut batch);
            let pieces = batch.messages.len();
            results(&mut batch, |_| result);
            queue.settle(&batch, |_| ());
            while !queue.is_empty() {
                queue.fill(&mut batch);
                results(&mut batch, |_| Ok(1));
                queue.settle(&batch, |_| ());
            }
            pieces
        };
        assert_eq!(round(to("192.0.2.1:53", 0), Err(Errno::new(libc::EIO))), 1);
        // Whatever its port; and not another host, nor the same by another interface.
        assert_eq!(round(to("192.0.2.1:5353", 0), Ok(1)), 3);
        assert_eq!(round(to("192.0.2.2:53", 0), Ok(1)), 1);
        assert_eq!(round(to("192.0.2.1:53", 4), Ok(1)), 1);
        // The scope of an address is an interface.
        assert_eq!(round(to("[fe80::1%3]:53", 0), Err(Errno::new(libc::EIO))), 1);
        assert_eq!(round(to("[fe80::1%3]:53", 0), Ok(1)), 3);
        assert_eq!(round(to("[fe80::1%4]:53", 0), Ok(1)), 1);
        assert_eq!(round(to("[fe80::1%4]:53", 3), Ok(1)), 3);
    }

    #[test]
    fn a_failure_of_one_leaves_the_others() {
        let mut queue = Queue::new(1000, 100, 16);
        let mut batch = DatagramBatch::default();
        for token in 1..=3 {
            assert!(push(&mut queue, send(&[token as u8; 10], None, token)));
        }
        queue.fill(&mut batch);
        results(&mut batch, |index| {
            if index == 1 {
                Err(Errno::ECONNREFUSED)
            } else {
                Ok(10)
            }
        });
        let mut ended = Vec::new();
        let tally = queue.settle(&batch, |outcome| ended.push((outcome.token.0, outcome.error)));
        assert_eq!(tally.datagrams, 2);
        assert_eq!(ended, [(1, None), (2, Some(Errno::ECONNREFUSED)), (3, None)]);
    }

    #[test]
    fn an_empty_datagram_is_one() {
        let mut queue = Queue::new(1000, 100, 16);
        let mut batch = DatagramBatch::default();
        assert!(push(&mut queue, send(b"", Some(5), 1)));
        queue.fill(&mut batch);
        assert_eq!(lengths(&batch), [0]);
        results(&mut batch, |_| Ok(0));
        let tally = queue.settle(&batch, |_| ());
        assert_eq!((tally.datagrams, queue.is_empty()), (1, true));
    }

    proptest! {
        /// Whatever is queued and however it is cut, the bytes leave in order, once, and all that was queued ends; and
        /// what is refused is refused for want of room.
        #[test]
        fn all_that_is_taken_leaves_in_order(
            high_water in 1u32..3000,
            steps in prop::collection::vec(
                (0usize..2000, proptest::option::of(1u16..700), 0u8..4, any::<bool>()),
                1..60,
            ),
        ) {
            let mut queue = Queue::new(high_water, high_water / 4, 8);
            let mut batch = DatagramBatch::default();
            let (mut expected, mut sent) = (Vec::new(), Vec::new());
            let (mut taken, mut ended) = (0u64, 0u64);
            for (number, (length, step, flush, refuses)) in steps.into_iter().enumerate() {
                let bytes = vec![number as u8; length];
                let fits = queue.queued() + length <= high_water as usize && !queue.is_full();
                prop_assert_eq!(push(&mut queue, send(&bytes, step, taken)), fits);
                if fits {
                    expected.extend(bytes);
                    taken += 1;
                }
                if flush == 0 {
                    queue.fill(&mut batch);
                    let pieces = messages(&batch);
                    let cut: Vec<_> = queue.parts.iter().map(|part| part.segmented).collect();
                    results(&mut batch, |index| {
                        if refuses && cut[index] { Err(Errno::EINVAL) } else { Ok(pieces[index].len() as u32) }
                    });
                    // What is refused goes again later; the order between sends is kept only without refusals.
                    if !(refuses && cut.contains(&true)) {
                        sent.extend(pieces.concat());
                        queue.settle(&batch, |outcome| {
                            assert_eq!(outcome.token.0, ended);
                            ended += 1;
                        });
                    } else {
                        sent.extend(pieces.iter().zip(&cut).filter(|(_, cut)| !**cut).flat_map(|(piece, _)| piece));
                        queue.settle(&batch, |outcome| {
                            assert_eq!(outcome.token.0, ended);
                            ended += 1;
                        });
                    }
                }
            }
            while !queue.is_empty() {
                queue.fill(&mut batch);
                let pieces = messages(&batch);
                sent.extend(pieces.concat());
                results(&mut batch, |index| Ok(pieces[index].len() as u32));
                queue.settle(&batch, |_| ended += 1);
            }
            prop_assert_eq!((queue.queued(), queue.copies.used()), (0, 0));
            prop_assert_eq!(ended, taken);
            sent.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(sent, expected);
        }
    }
}
