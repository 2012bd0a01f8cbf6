//! The state of one connection.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

use crate::chunks::Chunks;
use crate::errno::Errno;
use crate::event::{CloseReason, Refusal};
use crate::id::Token;
use crate::outbound::Outbound;
use crate::pool::Lease;
use crate::timers::TimerId;

/// Where a connection is in its life. It only moves down this list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The attempt is in flight; sends may be queued.
    Connecting,
    /// Established.
    Open,
    /// A graceful close: what is queued is flushed, then the peer's end is awaited; what arrives is dropped.
    Draining,
    /// Nothing more is sent or delivered. When the last operation has ended, the descriptor is closed and
    /// `Closed` reported.
    Ending,
}

/// The sending direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendSide {
    /// Takes sends.
    Open,
    /// Takes none; the end of the stream follows what is queued.
    Finishing,
    /// `shutdown(2)` is done.
    Ended,
    /// The socket takes no more: for `EPIPE`, or for what the connection's reason says.
    Failed { with_pipe: bool },
}

impl SendSide {
    /// Whether nothing more is given to the socket.
    pub(super) fn has_ended(self) -> bool {
        !matches!(self, Self::Open | Self::Finishing)
    }
}

/// The receiving direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReceiveSide {
    /// More may come.
    Open,
    /// The socket has ended in this way, but data before it is held back, so this is not reported yet.
    EndHeld(Option<Errno>),
    /// The end is queued.
    Ending,
    /// The end was reported by the last turn: the handler may still pause, and have it and the data before it held back.
    Reported,
    /// The end is reported, and what the handler made of that is known.
    Ended,
}

/// What a connection has of the loop's memory for what is received: in the handler's hands, queued for sending or held
/// back.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Holdings {
    /// Leases.
    pub(super) leases: u32,
    /// Slots of the pool.
    pub(super) slots: u32,
    /// Bytes of copies, as they count.
    pub(super) copied: u64,
}

/// A call counts as so many bytes at least: what a call costs is about what it costs to copy them.
const LEAST_SENT_AT_ONCE: usize = 4096;

/// Bytes that were given to the kernel at once, in the turn that they were last given in.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SentAtOnce {
    turn: u32,
    bytes: u32,
}

impl SentAtOnce {
    /// How many in this turn.
    pub(super) fn in_turn(&mut self, turn: u32) -> u32 {
        if self.turn != turn {
            *self = Self { turn, bytes: 0 };
        }
        self.bytes
    }

    /// More by one call, in the turn that was asked for last.
    pub(super) fn add(&mut self, bytes: usize) {
        let cost = u32::try_from(bytes.max(LEAST_SENT_AT_ONCE));
        self.bytes = self.bytes.saturating_add(cost.unwrap_or(u32::MAX));
    }
}

/// Whether its handler waits to send, how the next send is made, and whether a close waits for the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    /// A send was refused as full, and `Writable` is owed.
    pub(super) wants_writable: bool,
    /// Send chunks that it waits for, and is owed `Writable` for. Once it is not listed any more, it has been told, and they
    /// are set aside for it.
    pub(super) wants_chunks: Option<NonZeroU32>,
    /// The last send was of a part, or ends with one: the socket is full, and the rest waits for room.
    pub(super) short: bool,
    pub(super) at_once: SentAtOnce,
    /// Zero copy is worth trying: no notification has said COPIED.
    pub(super) zero_copy: bool,
    /// A graceful close goes on past its limit as long as the peer takes something; otherwise it has its handler's deadline.
    // Here, where there is room for it.
    pub(super) patient: bool,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            wants_writable: false,
            wants_chunks: None,
            short: false,
            at_once: SentAtOnce::default(),
            zero_copy: true,
            patient: true,
        }
    }
}

/// What has been seen of the peer's progress. What the kernel says that it has taken is kept by its low half: that is only to be
/// seen to change.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Progress {
    /// Inspections in a row that found no progress; -1 if something was sent or returned since the last one.
    stalled: i32,
    /// What the peer had taken at the last inspection.
    inspected: u32,
    /// What it had taken when a close looked at it last.
    at_close: u32,
}

impl Progress {
    /// Something was sent or returned.
    pub(super) fn note(&mut self) {
        self.stalled = -1;
    }

    /// Nothing waits for the peer at this inspection.
    pub(super) fn inspect_idle(&mut self) {
        self.stalled = 0;
    }

    /// Takes note of what the peer has taken at this inspection. Returns how many in a row have found no progress.
    pub(super) fn inspect(&mut self, taken: u64) -> u32 {
        let taken = taken as u32;
        if std::mem::replace(&mut self.inspected, taken) != taken {
            self.note();
        }
        self.stalled += 1;
        self.stalled.unsigned_abs()
    }

    /// Whether the peer has taken something since a close looked last.
    pub(super) fn has_taken_since(&mut self, taken: u64) -> bool {
        let taken = taken as u32;
        std::mem::replace(&mut self.at_close, taken) != taken
    }
}

/// What the kernel has of a connection: operations in flight.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Operations {
    pub(super) connect: bool,
    pub(super) receive: bool,
    /// A cancel of the receive.
    pub(super) receive_cancel: bool,
    pub(super) send: bool,
    /// Zero-copy notifications that are awaited.
    pub(super) notifications: u32,
}

impl Operations {
    /// Whether the kernel still reads what was queued.
    pub(super) fn is_sending(&self) -> bool {
        self.send || self.notifications > 0
    }
}

/// The loop's lists that a connection is in, each at most once.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Listed {
    /// Of those to flush.
    pub(super) dirty: bool,
    /// Of those that wait for pool slots.
    pub(super) starved: bool,
    /// Of those that have their share of the memory.
    pub(super) short: bool,
    /// Of those that wait for send chunks.
    pub(super) chunks: bool,
}

// What an idle connection costs is mostly this.
const _: () = assert!(size_of::<Connection>() <= 248);

/// One connection: 248 bytes, 256 with its place in the table, and nothing on the heap while it is idle.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) descriptor: Option<OwnedFd>,
    pub(super) token: Token,
    pub(super) phase: Phase,
    pub(super) send_side: SendSide,
    pub(super) receive_side: ReceiveSide,
    /// Why it ends, once that is known.
    pub(super) reason: Option<CloseReason>,
    /// This end was the first to end its direction, or closed.
    pub(super) local: bool,

    pub(super) operations: Operations,
    pub(super) listed: Listed,

    /// The handler asked for nothing to be delivered.
    pub(super) paused: bool,
    pub(super) holdings: Holdings,
    /// Of its leases, those that are held back and were never delivered: the last ones in `inbound`.
    pub(super) fresh: u32,
    /// The cap was reported, and not left since.
    pub(super) capped: bool,
    /// What a driver had in its hand was held back: all that follows in its hand is, too.
    pub(super) held_in_hand: bool,
    /// Received bytes that are held back: delivered once, but paused before the handler had them, and then those that arrived past
    /// a pause or the cap. Delivered before anything else.
    pub(super) inbound: VecDeque<Lease>,

    pub(super) outbound: Outbound,
    pub(super) sending: Sending,
    pub(super) progress: Progress,

    /// The handler's deadline.
    pub(super) deadline: Option<TimerId>,
    /// It has come, and none was set or cleared since.
    pub(super) is_due: bool,
    /// Ours: of the attempt, or of the graceful close.
    pub(super) limit: Option<TimerId>,
    /// Other threads may send on it: [`DirectSends`](super::direct::DirectSends) has what they share.
    pub(super) is_lent: bool,
}

impl Connection {
    pub(super) fn new(descriptor: OwnedFd, phase: Phase, token: Token, paused: bool) -> Self {
        Self {
            descriptor: Some(descriptor),
            token,
            phase,
            send_side: SendSide::Open,
            receive_side: ReceiveSide::Open,
            reason: None,
            local: false,
            operations: Operations::default(),
            listed: Listed::default(),
            paused,
            holdings: Holdings::default(),
            fresh: 0,
            capped: false,
            held_in_hand: false,
            inbound: VecDeque::new(),
            outbound: Outbound::default(),
            sending: Sending::default(),
            progress: Progress::default(),
            deadline: None,
            is_due: false,
            limit: None,
            is_lent: false,
        }
    }

    /// Whether all that was to be sent is the kernel's, with the end behind it.
    pub(super) fn is_left_to_the_kernel(&self) -> bool {
        self.send_side.has_ended()
            && self.reason.is_none()
            && self.outbound.is_empty()
            && !self.operations.is_sending()
    }

    /// The error for which the socket takes no more. It is not kept beside the reason, which has all but one: a connection is to be
    /// small.
    pub(super) fn send_error(&self) -> Option<Errno> {
        let SendSide::Failed { with_pipe } = self.send_side else {
            return None;
        };
        Some(match self.reason {
            _ if with_pipe => Errno::EPIPE,
            Some(CloseReason::Error(errno)) => errno,
            Some(CloseReason::Timeout) => Errno::ETIMEDOUT,
            _ => Errno::ECONNRESET,
        })
    }

    /// Whether it takes sends.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub(super) fn takes_sends(&self) -> Result<(), Refusal> {
        match self.phase {
            Phase::Connecting | Phase::Open if self.send_side == SendSide::Open => Ok(()),
            Phase::Open | Phase::Ending => Err(self.send_error().map_or(Refusal::Closing, Refusal::Error)),
            _ => Err(Refusal::Closing),
        }
    }

    /// Whether nothing is received although there may be something: it is paused, or waits for leases or slots.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.receive_side, ReceiveSide::Open | ReceiveSide::EndHeld(_)) && !self.operations.receive
    }

    /// Leases that were delivered and did not come back.
    pub(super) fn delivered(&self) -> u32 {
        self.holdings.leases - self.fresh
    }

    /// Whether a send of so many bytes leaves without a copy, which is tried from the threshold on.
    pub(super) fn leaves_uncopied(&self, bytes: usize, threshold: Option<u32>) -> bool {
        self.sending.zero_copy && threshold.is_some_and(|least| bytes >= least as usize)
    }

    /// Whether what is being sent is a file of which is to be told that there is no more, and the connection goes on then.
    pub(super) fn may_tell_short_file(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Draining) && self.outbound.may_be_short()
    }

    /// Whether the queue is full, at this mark. The mark moves with what others have queued, so it must have been full when
    /// something was last queued too: only then `Writable` is owed.
    pub(super) fn is_full(&self, mark: usize) -> bool {
        self.sending.wants_writable && self.outbound.queued() >= mark
    }

    /// Send chunks that are set aside for it.
    pub(super) fn promised_chunks(&self) -> u32 {
        match self.sending.wants_chunks {
            Some(promised) if !self.listed.chunks => promised.get(),
            _ => 0,
        }
    }

    /// Waits for send chunks no longer, and needs none that are set aside. Returns whether `Writable` is still owed.
    #[inline]
    pub(super) fn forget_chunks(&mut self, chunks: &mut Chunks) -> bool {
        if self.sending.wants_chunks.is_none() {
            return false;
        }
        let promised = self.promised_chunks();
        if promised > 0 {
            chunks.end_promise(promised);
        }
        self.sending.wants_chunks.take().is_some() && promised == 0
    }

    /// Whether both directions have ended.
    pub(super) fn both_ended(&self) -> bool {
        self.send_side.has_ended() && self.receive_side == ReceiveSide::Ended
    }

    /// Whether all has left that was queued, and more may come.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Open
            && self.send_side == SendSide::Open
            && !self.operations.send
            && !self.listed.dirty
            && self.outbound.is_empty()
    }

    /// Whether the kernel is done with everything of this connection.
    pub(super) fn is_quiet(&self) -> bool {
        !self.operations.connect && !self.operations.receive && !self.operations.is_sending()
    }
}
