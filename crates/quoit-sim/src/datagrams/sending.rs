//! A send that was taken, and which of its datagrams have left.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use quoit::{Address, Token};
use quoit_sim_kernel::kernel::{Departed, LARGEST_V4};
use quoit_sim_kernel::pattern;

/// From this length on no two payloads look the same.
const DISTINCT: usize = 8;
/// Of the number that a datagram begins with, those that say which it is of its send: enough for the longest one, in
/// datagrams of [`DISTINCT`] bytes.
const INDEX_BITS: u32 = (pattern::LONGEST / DISTINCT).ilog2();

/// One send that was taken.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) to: Address,
    /// Its bytes are those of this stream of the pattern.
    pub(crate) content: Content,
    pub(crate) step: Option<u16>,
    pub(crate) ecn: u8,
    pub(crate) source: Option<IpAddr>,
    pub(crate) token: Token,
    /// Whether lent memory was let go of.
    pub(crate) free: Option<Arc<AtomicBool>>,
    /// It was given by a command, and may not have reached the loop.
    pub(crate) on_the_way: bool,
    /// Which of its datagrams have left; true too for those that are too short to be told from others.
    pub(super) left: Vec<bool>,
    /// How many have not.
    pub(super) missing: usize,
    /// All of its datagrams can be told from others.
    pub(super) distinct: bool,
    /// Another one had a datagram just like one of it.
    pub(super) has_twin: bool,
    /// The datagram that will leave next if they leave in order: looked for first.
    pub(super) next: usize,
}

/// The bytes of a send.
#[derive(Debug)]
pub(crate) enum Content {
    /// So many bytes of a stream of the pattern, from its start.
    Pattern(u64, usize),
    /// These.
    Bytes(Bytes),
}

impl Content {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Pattern(stream, length) => pattern::bytes(*stream, 0, *length),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// So many bytes of a stream of the pattern, from its start, but that each datagram which can be told from others begins
    /// with a number that no other of any stream has.
    ///
    /// The pattern is short: a piece of one stream may look like a piece of another. What leaves would then be taken for a part
    /// of a send that has failed and never leaves.
    pub(crate) fn numbered(stream: u64, length: usize, step: Option<u16>) -> Bytes {
        let mut bytes = pattern::bytes(stream, 0, length).to_vec();
        let size = step.map_or(length, usize::from).max(1);
        for (index, datagram) in (0..1_u64 << INDEX_BITS).zip(bytes.chunks_mut(size)) {
            if let Some(start) = datagram.first_chunk_mut::<DISTINCT>() {
                *start = (stream << INDEX_BITS | index).to_be_bytes();
            }
        }
        bytes.into()
    }
}

impl Sending {
    pub(crate) fn new(to: Address, content: Content, step: Option<u16>, token: Token) -> Self {
        let length = content.bytes().len();
        let size = step.map_or(length, usize::from).max(1);
        let count = length.div_ceil(size).max(1);
        let mut left = vec![size < DISTINCT; count];
        let rest = length - (count - 1) * size;
        left[count - 1] |= rest < DISTINCT;
        let distinct = !left.contains(&true);
        let missing = left.iter().filter(|&&left| !left).count();
        Self {
            to,
            content,
            step,
            ecn: 0,
            source: None,
            token,
            free: None,
            on_the_way: false,
            left,
            missing,
            distinct,
            has_twin: false,
            next: 0,
        }
    }

    /// Whether a datagram of this cannot be told from one of another.
    pub(super) fn is_twin_of(&self, other: &Self) -> bool {
        (&self.to, self.ecn, self.source) == (&other.to, other.ecn, other.source)
            && self
                .datagrams()
                .any(|one| one.len() >= DISTINCT && other.datagrams().any(|other| one == other))
    }

    fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.content.bytes();
        bytes.chunks(self.step.map_or(bytes.len(), usize::from).max(1))
    }

    pub(super) fn note_twin(&mut self) {
        self.left.fill(true);
        self.missing = 0;
        self.distinct = false;
        self.has_twin = true;
    }

    pub(crate) fn has_left(&self) -> bool {
        self.missing == 0
    }

    /// Whether all of its datagrams can be told from others.
    pub(crate) fn is_distinct(&self) -> bool {
        self.distinct
    }

    /// Whether a message is a part of this that has not left; takes note of it if so.
    pub(crate) fn matches(&mut self, message: &Departed) -> bool {
        let wishes = message.wishes;
        if message.to != self.to || wishes.ecn != self.ecn || wishes.source != self.source {
            return false;
        }
        let bytes = self.content.bytes();
        let length = message.bytes.len();
        let step = self.step.map_or(bytes.len(), usize::from).max(1);
        let segment = usize::from(message.wishes.segment_size);
        if segment != 0 && (segment != step || length <= segment) || (segment == 0 && length > step) {
            return false;
        }
        let cuts_itself =
            segment == 0 && self.step.is_some() && !message.to.is_unix() && !message.may_be_uncut;
        for first in (self.next..self.left.len()).chain(0..self.next) {
            let offset = first * step;
            let count = length.div_ceil(step).max(1);
            let covered = first..(first + count).min(self.left.len());
            // All but the last are whole.
            let whole = length > 0 && length.is_multiple_of(step);
            let fits = offset + length <= bytes.len() && (whole || offset + length == bytes.len());
            if !fits || bytes[offset..offset + length] != *message.bytes {
                continue;
            }
            assert!(
                !cuts_itself || !self.distinct || bytes.len() - offset <= step || 2 * step > LARGEST_V4,
                "{} bytes to {:?} leave without the others of their send, though nothing says that its segments are refused",
                message.bytes.len(),
                message.to
            );
            self.next = covered.end;
            if length < DISTINCT || step < DISTINCT || self.has_twin {
                return true;
            }
            // The last may be too short to be told from others.
            let distinct =
                if covered.end == self.left.len() && bytes.len() - (covered.end - 1) * step < DISTINCT {
                    covered.start..covered.end - 1
                } else {
                    covered
                };
            if !self.left[distinct.clone()].contains(&true) {
                self.missing -= distinct.len();
                self.left[distinct].fill(true);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A send of datagrams of 174 bytes, and one of a single such datagram, whose stream begins in the pattern where the 12th
    /// of the other does.
    fn sends(content: impl Fn(u64, usize, Option<u16>) -> Content) -> [Sending; 2] {
        [(185, 7222, Some(174)), (100_086, 174, None)].map(|(stream, length, step)| {
            let content = content(stream, length, step);
            Sending::new(Address::UnixUnnamed, content, step, Token::NONE)
        })
    }

    #[test]
    fn datagrams_with_numbers_are_alike_in_nothing() {
        let [one, other] = sends(|stream, length, _| Content::Pattern(stream, length));
        assert!(one.is_twin_of(&other), "the pattern repeats itself elsewhere");
        let [one, other] =
            sends(|stream, length, step| Content::Bytes(Content::numbered(stream, length, step)));
        assert!(!one.is_twin_of(&other) && !other.is_twin_of(&one));
    }

    #[test]
    fn each_datagram_has_a_number_of_its_own() {
        let longest = DISTINCT * (1 << INDEX_BITS);
        assert_eq!(longest, pattern::LONGEST);
        let mut all = std::collections::HashSet::new();
        for stream in 1..4 {
            let bytes = Content::numbered(stream, longest, Some(DISTINCT as u16));
            all.extend(bytes.chunks(DISTINCT).map(<[u8]>::to_vec));
        }
        assert_eq!(all.len(), 3 << INDEX_BITS);
    }

    #[test]
    fn what_is_too_short_for_a_number_has_none() {
        let bytes = Content::numbered(3, 25, Some(9));
        assert_eq!(bytes[18..], pattern::bytes(3, 18, 7)[..]);
        assert_eq!(bytes[8..9], pattern::bytes(3, 8, 1)[..]);
        assert_eq!(Content::numbered(3, 20, Some(7)), pattern::bytes(3, 0, 20));
        assert!(Content::numbered(3, 0, None).is_empty());
    }
}
