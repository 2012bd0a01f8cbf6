//! One connection's outbound queue: what waits to be sent, in order, and what the kernel still holds.
//!
//! Copied sends gather in chunks; lent memory, singly or as lists of pieces, and file ranges are queued by reference. One
//! send operation takes as much from the front as one gathered call can carry. What it has sent leaves the queue, and is
//! freed at once, or for zero-copy sends when the kernel has said that it is done.
//!
//! Nearly always one copied chunk is all there is. It is kept apart, so that no list is touched for it.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use crate::chunks::{Chunk, Chunks};
use crate::command::{FileRange, Lent, OnShort, RawBytes, RawPieces};
use crate::engine::{Gather, Message};
use crate::id::Token;

mod gathering;
#[cfg(test)]
mod tests;

use gathering::Gathering;

/// Pieces of one operation.
pub(crate) const MAX_PIECES: usize = RawPieces::MOST;
/// Bytes of one send operation: below the kernel's own limit of 2 GiB less a page (`MAX_RW_COUNT`).
const MAX_BYTES: usize = 1 << 30;
/// Bytes asked of one `sendfile(2)`, so that a fast peer cannot keep the loop to itself.
const FILE_STEP: u64 = 1 << 20;
/// An emptied queue keeps room for this many segments; more is given back.
const KEPT_SEGMENTS: usize = 8;

/// A chunk and the bytes of it that are still to be sent: one at least.
#[derive(Debug)]
struct Copied {
    chunk: Chunk,
    start: u32,
    end: u32,
}

impl Copied {
    /// Copies as much of `bytes` as a new chunk holds. Returns what is left as well.
    #[inline(always)]
    fn of<'a>(bytes: &'a [u8], chunks: &mut Chunks) -> (Self, &'a [u8]) {
        let chunk = chunks.take().expect("counted before");
        let mut copied = Self {
            chunk,
            start: 0,
            end: 0,
        };
        let rest = copied.fill(bytes, chunks);
        (copied, rest)
    }

    fn length(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Fills what is left of the chunk. Returns the bytes that found no room.
    #[inline(always)]
    fn fill<'a>(&mut self, bytes: &'a [u8], chunks: &mut Chunks) -> &'a [u8] {
        let room = (chunks.size() - self.end) as usize;
        let (now, rest) = bytes.split_at(room.min(bytes.len()));
        chunks.write(&self.chunk, self.end, now);
        self.end += now.len() as u32;
        rest
    }
}

#[derive(Debug)]
enum Segment {
    Copied(Copied),
    Lent {
        memory: Lent,
        start: usize,
        token: Token,
    },
    /// As many pieces of the queue's list, in order with those of other segments.
    Gathered {
        pieces: u32,
        bytes: usize,
        token: Token,
        /// It is acknowledged as it leaves, too.
        progress: bool,
    },
    File {
        file: File,
        offset: u64,
        remaining: u64,
        token: Token,
        on_short: OnShort,
    },
}

/// Completed segments that a zero-copy send may still read, by the operation that completed them.
#[derive(Debug)]
struct Held {
    sequence: u32,
    released: bool,
    segments: Vec<Segment>,
}

#[derive(Debug, Default)]
struct HeldQueue {
    queue: VecDeque<Held>,
    next_sequence: u32,
}

/// The queue. It holds no memory while it is empty, but for a little room.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// All that is queued, if that is one chunk: the list is empty then.
    only: Option<Copied>,
    segments: VecDeque<Segment>,
    /// What gathered segments have still to send.
    pieces: VecDeque<RawBytes>,
    /// Bytes of memory queued or held: what the water marks are about.
    queued: usize,
    held: Option<Box<HeldQueue>>,
}

/// What the next operation is to send.
#[derive(Debug)]
pub(crate) enum Batch {
    Memory {
        message: Message,
        bytes: usize,
        /// It is all that is queued, and copied: nothing waits for its memory or its acknowledgement.
        quiet: bool,
        /// Some of it is to be told of as it leaves.
        in_parts: bool,
    },
    File {
        file: RawFd,
        offset: u64,
        length: u64,
    },
}

impl Outbound {
    pub(crate) fn is_empty(&self) -> bool {
        self.only.is_none() && self.segments.is_empty()
    }

    /// Bytes of memory queued, or held by the kernel.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Segments and gathered pieces queued.
    pub(crate) fn pieces(&self) -> usize {
        usize::from(self.only.is_some()) + self.segments.len() + self.pieces.len()
    }

    /// Whether the kernel holds memory of zero-copy sends.
    pub(crate) fn is_held(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.queue.is_empty())
    }

    /// Chunks that a copy of so many bytes would take.
    #[inline]
    pub(crate) fn chunks_for(&self, bytes: usize, chunks: &Chunks) -> usize {
        let size = chunks.size() as usize;
        let last = match (&self.only, self.segments.back()) {
            (Some(copied), _) | (None, Some(Segment::Copied(copied))) => Some(copied),
            _ => None,
        };
        let tail = last.map_or(0, |copied| size - copied.end as usize);
        let rest = bytes.saturating_sub(tail);
        if rest <= size {
            // Nearly always, and without a division.
            usize::from(rest > 0)
        } else {
            rest.div_ceil(size)
        }
    }

    /// Copies all of `bytes` into chunks, of which there must be [enough](Self::chunks_for).
    #[inline(always)]
    pub(crate) fn push_copy(&mut self, bytes: &[u8], chunks: &mut Chunks) {
        self.queued += bytes.len();
        let rest = match &mut self.only {
            Some(copied) => copied.fill(bytes, chunks),
            None if self.segments.is_empty() && !bytes.is_empty() => {
                let (copied, rest) = Copied::of(bytes, chunks);
                self.only = Some(copied);
                rest
            }
            None => bytes,
        };
        if !rest.is_empty() {
            self.push_copies(rest, chunks);
        }
    }

    #[cold]
    fn push_copies(&mut self, mut bytes: &[u8], chunks: &mut Chunks) {
        if let Some(Segment::Copied(copied)) = self.list().back_mut() {
            bytes = copied.fill(bytes, chunks);
        }
        while !bytes.is_empty() {
            let (copied, rest) = Copied::of(bytes, chunks);
            self.segments.push_back(Segment::Copied(copied));
            bytes = rest;
        }
    }

    /// The list, with all that is queued in it.
    fn list(&mut self) -> &mut VecDeque<Segment> {
        if let Some(copied) = self.only.take() {
            debug_assert!(self.segments.is_empty());
            self.segments.push_back(Segment::Copied(copied));
        }
        &mut self.segments
    }

    pub(crate) fn push_lent(&mut self, memory: Lent, token: Token) {
        self.queued += memory.as_slice().len();
        self.list().push_back(Segment::Lent {
            memory,
            start: 0,
            token,
        });
    }

    /// Returns how many bytes the pieces have, of which none is empty.
    pub(crate) fn push_gathered(
        &mut self,
        pieces: impl Iterator<Item = RawBytes>,
        token: Token,
        progress: bool,
    ) -> usize {
        let before = self.pieces.len();
        let mut bytes = 0;
        self.pieces
            .extend(pieces.inspect(|piece| bytes += piece.as_slice().len()));
        self.queued += bytes;
        let pieces = (self.pieces.len() - before) as u32;
        self.list().push_back(Segment::Gathered {
            pieces,
            bytes,
            token,
            progress,
        });
        bytes
    }

    pub(crate) fn push_file(&mut self, range: FileRange, token: Token) {
        self.list().push_back(Segment::File {
            file: range.file,
            offset: range.offset,
            remaining: range.length,
            token,
            on_short: range.on_short,
        });
    }

    /// Whether the next operation is one of a file that may be short.
    pub(crate) fn may_be_short(&self) -> bool {
        // The only chunk is no file.
        let next = self.segments.iter().find(|segment| segment.remaining() > 0);
        matches!(
            next,
            Some(Segment::File {
                on_short: OnShort::Tell,
                ..
            })
        )
    }

    /// Takes the file at the front, of which there is no more. Returns its token and the bytes that are missing.
    pub(crate) fn take_short_file(&mut self) -> Option<(Token, u64)> {
        let Some(Segment::File { remaining, token, .. }) = self.segments.front() else {
            return None;
        };
        let told = (*token, *remaining);
        self.segments.pop_front();
        self.shrink();
        Some(told)
    }

    /// What the next operation is to send; `None` if only empty segments are queued (acknowledge them with
    /// [`Outbound::sent`] of 0 bytes) or none. `spare` is taken if pieces must be gathered.
    #[expect(
        clippy::vec_box,
        reason = "operations take them boxed: the kernel reads them in place"
    )]
    pub(crate) fn next_batch(&self, chunks: &Chunks, spare: &mut Vec<Box<Gather>>) -> Option<Batch> {
        self.next_copied(chunks)
            .or_else(|| self.next_of_list(chunks, spare))
    }

    /// The same where one copied chunk is all that is queued, as nearly always.
    #[inline(always)]
    pub(crate) fn next_copied(&self, chunks: &Chunks) -> Option<Batch> {
        let copied = self.only.as_ref()?;
        Some(Batch::Memory {
            message: Message::Single {
                address: chunks.address(&copied.chunk, copied.start),
                length: copied.end - copied.start,
            },
            bytes: copied.length(),
            quiet: !self.is_held(),
            in_parts: false,
        })
    }

    #[expect(
        clippy::vec_box,
        reason = "operations take them boxed: the kernel reads them in place"
    )]
    fn next_of_list(&self, chunks: &Chunks, spare: &mut Vec<Box<Gather>>) -> Option<Batch> {
        let mut gathering = Gathering::new(spare);
        let mut quiet = !self.is_held();
        let mut in_parts = false;
        let mut pieces = self.pieces.iter();
        for segment in &self.segments {
            quiet &= matches!(segment, Segment::Copied(_));
            in_parts |= matches!(segment, Segment::Gathered { progress: true, .. });
            let room = match segment {
                Segment::Copied(copied) => {
                    gathering.push(chunks.address(&copied.chunk, copied.start), copied.length())
                }
                Segment::Lent { memory, start, .. } => {
                    let rest = &memory.as_slice()[*start..];
                    gathering.push(rest.as_ptr(), rest.len())
                }
                Segment::Gathered { pieces: count, .. } => {
                    pieces.by_ref().take(*count as usize).all(|piece| {
                        let rest = piece.as_slice();
                        gathering.push(rest.as_ptr(), rest.len())
                    })
                }
                Segment::File { remaining: 0, .. } => true,
                Segment::File {
                    file,
                    offset,
                    remaining,
                    ..
                } => {
                    if gathering.pieces == 0 {
                        let length = (*remaining).min(FILE_STEP);
                        return Some(Batch::File {
                            file: file.as_raw_fd(),
                            offset: *offset,
                            length,
                        });
                    }
                    false
                }
            };
            if !room {
                // What is left is for the next operation.
                quiet &= gathering.pieces == self.segments.len();
                break;
            }
        }
        let bytes = gathering.bytes;
        let message = gathering.into_message()?;
        Some(Batch::Memory {
            message,
            bytes,
            quiet,
            in_parts,
        })
    }

    /// Takes `bytes` that were sent from the front, with empty segments behind them. Returns the token of the
    /// last lent segment that is acknowledged by this; for one that is told of as it leaves, its token less the bytes that
    /// it has still to send. With `held`, segments are kept until [`Outbound::released`], and acknowledged then.
    #[inline(always)]
    pub(crate) fn sent(&mut self, bytes: u64, held: bool, chunks: &mut Chunks) -> Token {
        if held || self.held.is_some() {
            return self.sent_of_list(bytes, held, chunks);
        }
        let Some(copied) = &mut self.only else {
            return self.sent_of_list(bytes, held, chunks);
        };
        let length = copied.length() as u64;
        assert!(bytes <= length, "the kernel sends no more than it was given");
        self.queued -= bytes as usize;
        copied.start += bytes as u32;
        if bytes == length
            && let Some(Copied { chunk, .. }) = self.only.take()
        {
            chunks.give_back(chunk);
        }
        Token::NONE
    }

    fn sent_of_list(&mut self, mut bytes: u64, held: bool, chunks: &mut Chunks) -> Token {
        self.list();
        let mut acknowledged = Token::NONE;
        let keep = held || self.is_held();
        let mut kept = Vec::new();
        while let Some(segment) = self.segments.front_mut() {
            let length = segment.remaining();
            if length > bytes || (length > 0 && bytes == 0) {
                segment.advance(bytes, &mut self.pieces);
                if !keep && !matches!(segment, Segment::File { .. }) {
                    self.queued -= bytes as usize;
                }
                if !keep
                    && bytes > 0
                    && let Some(part) = segment.acknowledged_in_part()
                {
                    acknowledged = part;
                }
                bytes = 0;
                break;
            }
            bytes -= length;
            let Some(segment) = self.segments.pop_front() else {
                break;
            };
            if let Segment::Gathered { pieces, .. } = segment {
                self.pieces.drain(..pieces as usize);
            }
            if keep {
                kept.push(segment);
            } else {
                if !matches!(segment, Segment::File { .. }) {
                    self.queued -= length as usize;
                }
                segment.free(chunks, &mut acknowledged);
            }
        }
        assert_eq!(bytes, 0, "the kernel sends no more than it was given");
        if held {
            let list = self.held.get_or_insert_default();
            let sequence = list.next_sequence;
            list.next_sequence = sequence.wrapping_add(1);
            list.queue.push_back(Held {
                sequence,
                released: false,
                segments: kept,
            });
        } else if keep && let Some(last) = self.held.as_mut().and_then(|held| held.queue.back_mut()) {
            // Sent by an ordinary operation while earlier ones are held: acknowledged in order, behind them.
            last.segments.append(&mut kept);
        }
        if keep {
            self.recount();
        }
        self.shrink();
        acknowledged
    }

    /// The kernel is done with the memory of the zero-copy send of this number. Returns the token of the last
    /// lent segment that is acknowledged by this.
    pub(crate) fn released(&mut self, sequence: u32, chunks: &mut Chunks) -> Token {
        let mut acknowledged = Token::NONE;
        let Some(held) = &mut self.held else {
            return acknowledged;
        };
        if let Some(entry) = held.queue.iter_mut().find(|entry| entry.sequence == sequence) {
            entry.released = true;
        }
        while held.queue.front().is_some_and(|entry| entry.released) {
            for segment in held
                .queue
                .pop_front()
                .into_iter()
                .flat_map(|entry| entry.segments)
            {
                segment.free(chunks, &mut acknowledged);
            }
        }
        self.recount();
        acknowledged
    }

    /// Drops all that is queued and not with the kernel: call it when no send is in flight.
    pub(crate) fn clear(&mut self, chunks: &mut Chunks) {
        debug_assert!(!self.is_held());
        let mut ignored = Token::NONE;
        for segment in self.list().drain(..) {
            segment.free(chunks, &mut ignored);
        }
        self.pieces.clear();
        self.queued = 0;
        self.shrink();
    }

    /// Counts the bytes anew, held ones included. Only needed where zero-copy sends are.
    fn recount(&mut self) {
        let held = self
            .held
            .iter()
            .flat_map(|held| &held.queue)
            .flat_map(|entry| &entry.segments);
        let listed: usize = self.segments.iter().chain(held).map(Segment::memory).sum();
        self.queued = listed + self.only.as_ref().map_or(0, Copied::length);
    }

    #[inline]
    fn shrink(&mut self) {
        let is_large = |capacity: usize| capacity > KEPT_SEGMENTS * 8;
        if is_large(self.segments.capacity()) || is_large(self.pieces.capacity()) {
            self.shrink_large();
        }
    }

    #[cold]
    fn shrink_large(&mut self) {
        if self.segments.is_empty() {
            debug_assert!(self.pieces.is_empty());
            self.segments.shrink_to(KEPT_SEGMENTS);
            self.pieces.shrink_to(KEPT_SEGMENTS);
        }
    }
}

impl Segment {
    fn remaining(&self) -> u64 {
        match self {
            Self::File { remaining, .. } => *remaining,
            other => other.memory() as u64,
        }
    }

    /// Bytes of memory still to be sent.
    fn memory(&self) -> usize {
        match self {
            Self::Copied(copied) => copied.length(),
            Self::Lent { memory, start, .. } => memory.as_slice().len() - start,
            Self::Gathered { bytes, .. } => *bytes,
            Self::File { .. } => 0,
        }
    }

    /// A part of it was sent; `list` has the pieces of gathered ones, its own in front.
    fn advance(&mut self, bytes: u64, list: &mut VecDeque<RawBytes>) {
        match self {
            Self::Copied(copied) => copied.start += bytes as u32,
            Self::Lent { start, .. } => *start += bytes as usize,
            Self::Gathered {
                pieces, bytes: rest, ..
            } => {
                *rest -= bytes as usize;
                let mut sent = bytes as usize;
                while let Some(piece) = list.front_mut() {
                    let length = piece.as_slice().len();
                    if length > sent {
                        piece.advance(sent);
                        break;
                    }
                    sent -= length;
                    *pieces -= 1;
                    list.pop_front();
                }
            }
            Self::File {
                offset, remaining, ..
            } => {
                *offset += bytes;
                *remaining -= bytes;
            }
        }
    }

    /// What tells that all but what it has still to send has left, if that is wanted.
    fn acknowledged_in_part(&self) -> Option<Token> {
        match self {
            Self::Gathered {
                progress: true,
                bytes,
                token,
                ..
            } => Some(Token(token.0 - *bytes as u64)),
            _ => None,
        }
    }

    fn free(self, chunks: &mut Chunks, acknowledged: &mut Token) {
        match self {
            Self::Copied(copied) => chunks.give_back(copied.chunk),
            Self::Lent { token, .. } | Self::Gathered { token, .. } | Self::File { token, .. } => {
                if token != Token::NONE {
                    *acknowledged = token;
                }
            }
        }
    }
}
