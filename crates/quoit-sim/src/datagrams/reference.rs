//! What a user of datagram sockets may rely on, as a small model beside the loop: the table of `quoit::event`, that what
//! is delivered is what the kernel handed over and in its order, and that what leaves is what was sent.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use quoit::{Address, DatagramCounters, DatagramSocketId, Datagrams, Errno, Gro, Token, Unreachable};

use super::Opening;
use super::groups::Groups;
use super::plan::SocketPlan;
use crate::kernel::{Departed, Handed, Passed};
use crate::pattern;

/// Times that the loop makes a send again at most which was told of another.
const TRIES: u64 = 8;

/// From this length on no two payloads look the same.
const DISTINCT: usize = 8;

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
    fn is_twin_of(&self, other: &Self) -> bool {
        (&self.to, self.ecn, self.source) == (&other.to, other.ecn, other.source)
            && self
                .datagrams()
                .any(|one| one.len() >= DISTINCT && other.datagrams().any(|other| one == other))
    }

    fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.content.bytes();
        bytes.chunks(self.step.map_or(bytes.len(), usize::from).max(1))
    }

    fn note_twin(&mut self) {
        self.left.fill(true);
        self.missing = 0;
        self.distinct = false;
        self.has_twin = true;
    }

    fn has_left(&self) -> bool {
        self.missing == 0
    }

    /// Whether a message is a part of this that has not left; takes note of it if so.
    fn matches(&mut self, message: &Departed) -> bool {
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
            self.next = covered.end;
            if length < DISTINCT || step < DISTINCT || self.has_twin {
                return true;
            }
            // The last may be too short to be told from others.
            let told = if covered.end == self.left.len() && bytes.len() - (covered.end - 1) * step < DISTINCT
            {
                covered.start..covered.end - 1
            } else {
                covered
            };
            if !self.left[told.clone()].contains(&true) {
                self.missing -= told.len();
                self.left[told].fill(true);
                return true;
            }
        }
        false
    }
}

/// What is known of one socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Its place in the plan.
    pub(crate) number: usize,
    pub(crate) id: DatagramSocketId,
    pub(crate) token: Token,
    pub(crate) descriptor: RawFd,
    /// The number under which the kernel keeps what passes through it.
    pub(crate) watch: usize,
    pub(crate) groups: Groups,
    pub(crate) plan: SocketPlan,
    /// `DatagramOpened` came.
    pub(crate) opened: bool,
    pub(crate) paused: bool,
    pub(crate) closing: bool,
    /// A close was posted, and may have been carried out.
    pub(crate) may_be_closing: bool,
    /// Handed over by the kernel, and not delivered yet.
    pub(crate) handed: VecDeque<Handed>,
    pub(crate) sends: Vec<Sending>,
    /// The send of which a part was the last to leave.
    leaving: usize,
    /// Of sends that have ended, or that nothing is told of.
    frees: Vec<Arc<AtomicBool>>,
    /// Times that the queue was full, less the times that `DatagramWritable` came.
    pub(crate) times_full: u32,
    pub(crate) writable_owed: bool,
    /// Messages that left, their datagrams and bytes.
    messages: u64,
    datagrams: u64,
    bytes: u64,
    /// Buffers that the kernel handed over, the datagrams and bytes in them; those that came cut; those that were
    /// dropped for it.
    buffers: u64,
    received: u64,
    received_bytes: u64,
    truncated: u64,
    control_cut: u64,
    /// Failures of sends that were told without a token.
    errors: u64,
    /// Failures in all.
    pub(crate) failures: u64,
    /// Answers of the network that the loop has read, and not told.
    answered: VecDeque<(SocketAddr, i32)>,
    /// How many it has told, and how many the kernel had no room for.
    told_answers: u64,
    unanswered: u64,
}

impl Socket {
    pub(crate) fn new(id: DatagramSocketId, opening: &Opening, plan: SocketPlan) -> Self {
        let &Opening {
            token,
            number,
            descriptor,
            watch,
        } = opening;
        Self {
            number,
            id,
            token,
            descriptor,
            watch,
            opened: false,
            paused: plan.options.paused,
            groups: Groups::new(&plan.options.groups),
            plan,
            closing: false,
            may_be_closing: false,
            handed: VecDeque::new(),
            sends: Vec::new(),
            leaving: 0,
            frees: Vec::new(),
            times_full: 0,
            writable_owed: false,
            messages: 0,
            datagrams: 0,
            bytes: 0,
            buffers: 0,
            received: 0,
            received_bytes: 0,
            truncated: 0,
            control_cut: 0,
            errors: 0,
            failures: 0,
            answered: VecDeque::new(),
            told_answers: 0,
            unanswered: 0,
        }
    }

    /// Whether it is told who cannot be reached.
    fn is_told(&self) -> bool {
        self.plan.options.receive_errors && !self.plan.address.is_unix()
    }

    /// A send was taken, or is on its way.
    pub(crate) fn add_send(&mut self, mut sending: Sending) {
        // A datagram that came twice may be answered twice, and a part of a send that comes back may be answered while
        // that is still being sent. Which leaves and which fails is not to be seen.
        for other in &mut self.sends {
            if other.is_twin_of(&sending) {
                other.note_twin();
                sending.note_twin();
            }
        }
        self.sends.push(sending);
    }

    /// Takes in what passed through the socket in the kernel.
    pub(crate) fn note_passed(&mut self, passed: Passed) {
        self.answered.extend(passed.answered);
        self.unanswered += passed.unanswered;
        for handed in passed.handed {
            if handed.control_cut {
                self.control_cut += 1;
            } else {
                let step = usize::from(handed.facts.segment_size);
                self.buffers += 1;
                self.received += if step > 0 {
                    handed.length.div_ceil(step) as u64
                } else {
                    1
                };
                self.received_bytes += handed.length as u64;
                self.truncated += u64::from(handed.length < handed.bytes.len());
            }
            if !self.closing {
                self.handed.push_back(handed);
            }
        }
        for message in passed.departed {
            // Probably a part of the same as the last one.
            let count = self.sends.len();
            let begin = self.leaving.min(count);
            let mut order = (begin..count).chain(0..begin);
            let Some(found) = order.find(|&index| self.sends[index].matches(&message)) else {
                panic!(
                    "{:?} sent {} bytes to {:?} ({:?}), and nobody wanted that, or not again",
                    self.id,
                    message.bytes.len(),
                    message.to,
                    message.wishes
                );
            };
            let step = usize::from(message.wishes.segment_size);
            let count = if step > 0 {
                message.bytes.len().div_ceil(step)
            } else {
                1
            };
            self.leaving = found;
            self.messages += 1;
            self.datagrams += count as u64;
            self.bytes += message.bytes.len() as u64;
            let sending = &self.sends[found];
            if sending.has_left() && sending.distinct && sending.token == Token::NONE {
                let sending = self.sends.remove(found);
                self.frees.extend(sending.free);
            }
        }
    }

    /// That this is what comes next.
    pub(crate) fn check_delivered(&mut self, datagrams: &Datagrams) -> Handed {
        let id = self.id;
        assert!(self.opened, "datagrams of {id:?} before it is open");
        assert!(!self.closing, "datagrams of {id:?} after it was closed");
        assert!(!self.paused, "datagrams of {id:?} while paused");
        let place = self.handed.iter().position(|handed| !handed.control_cut);
        let handed = place.and_then(|place| self.handed.remove(place));
        let handed =
            handed.unwrap_or_else(|| panic!("{id:?} delivers {datagrams:?}, and nothing was received"));
        self.compare(datagrams, &handed);
        handed
    }

    /// That what is delivered is what was handed over.
    fn compare(&self, datagrams: &Datagrams, handed: &Handed) {
        let id = self.id;
        let options = &self.plan.options;
        let whole = datagrams.whole();
        let bytes = &handed.bytes[..handed.length];
        assert!(
            whole.bytes() == bytes,
            "{id:?} delivers {datagrams:?}, and {} other bytes were received from {:?}",
            handed.length,
            handed.from
        );
        assert_eq!(whole.peer(), handed.from, "the peer of {datagrams:?} of {id:?}");
        assert_eq!(
            whole.is_truncated(),
            handed.length < handed.bytes.len(),
            "whether {datagrams:?} of {id:?} came cut"
        );
        let unix = handed.from.is_unix();
        let ecn = (options.receive_ecn && !unix).then_some(handed.facts.ecn);
        assert_eq!(
            whole.ecn().map(|ecn| ecn as u8),
            ecn,
            "congestion notification of {id:?}"
        );
        let local = (options.receive_local_address && !unix).then_some(handed.facts.to);
        assert_eq!(whole.local_address(), local, "the local address of {id:?}");
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(handed.facts.time);
        let time = options.receive_timestamps.then_some(time);
        if !self.plan.meddled_with {
            assert_eq!(whole.timestamp(), time, "the time of {datagrams:?} of {id:?}");
        }
        let step = handed.facts.segment_size;
        assert_eq!(
            whole.segment_size().unwrap_or(0),
            step,
            "the size of joined datagrams of {id:?}"
        );
        let cut = options.gro != Gro::Raw && step > 0;
        let expected: Vec<&[u8]> = if cut {
            bytes.chunks(usize::from(step)).collect()
        } else {
            vec![bytes]
        };
        assert_eq!(datagrams.len(), expected.len(), "joined datagrams of {id:?}");
        assert!(
            datagrams
                .iter()
                .map(|one| one.bytes())
                .eq(expected.iter().copied()),
            "joined datagrams of {id:?} are taken apart wrongly"
        );
        assert_eq!(Some(&datagrams.first().bytes()), expected.first());
    }

    /// A datagram was dropped, as its control messages were cut.
    pub(crate) fn check_control_truncated(&mut self) {
        let place = self.handed.iter().position(|handed| handed.control_cut);
        let cut = place.and_then(|place| self.handed.remove(place));
        assert!(
            cut.is_some() || self.closing || self.may_be_closing,
            "{:?} dropped a datagram whose control messages were whole",
            self.id
        );
    }

    /// The outcome of a send with a token.
    pub(crate) fn check_sent(&mut self, token: Token, result: Result<u32, Errno>) {
        let id = self.id;
        let place = self
            .sends
            .iter()
            .position(|sending| sending.token == token && token != Token::NONE);
        let place = place.unwrap_or_else(|| panic!("{token:?} of {id:?} is not, or no longer, being sent"));
        let sending = self.sends.remove(place);
        let length = sending.content.bytes().len();
        match result {
            Ok(size) => {
                assert_eq!(size as usize, length, "the size of {token:?} of {id:?}");
                assert!(
                    sending.has_left(),
                    "{token:?} of {id:?} is said to be sent, and was not"
                );
            }
            Err(errno) => {
                self.check_blame(errno, length);
                self.failures += 1;
                assert!(
                    !sending.has_left() || !sending.distinct,
                    "{token:?} of {id:?} is said to have failed by {errno}, and was sent"
                );
            }
        }
        if let Some(free) = sending.free {
            assert!(
                free.load(Ordering::Relaxed),
                "{token:?} of {id:?} has ended, and its memory is still held"
            );
        }
    }

    /// A send without a token has failed.
    pub(crate) fn note_send_error(&mut self, errno: Errno, size: u32) {
        self.check_blame(errno, size as usize);
        self.errors += 1;
        self.failures += 1;
    }

    /// The network has answered something, and does not say to which datagram.
    pub(crate) fn note_network_error(&mut self, errno: Errno) {
        assert!(
            !self.is_told() || self.may_be_blamed(),
            "{:?} is told of {errno} without a receiver",
            self.id
        );
        self.errors += 1;
        self.failures += 1;
    }

    /// Somebody could not be reached: what the kernel has told next.
    pub(crate) fn check_unreachable(&mut self, told: Unreachable) {
        let id = self.id;
        assert!(
            self.is_told(),
            "{id:?} is told of {told:?}, and did not ask for it"
        );
        let expected = self.answered.pop_front();
        assert_eq!(
            expected,
            Some((told.receiver(), told.errno().code())),
            "who could not be reached from {id:?}"
        );
        self.told_answers += 1;
        self.failures += 1;
    }

    /// Whether a send may have the network's answer to another one: where an answer was lost, or the loop has made the
    /// send again as often as it does.
    fn may_be_blamed(&self) -> bool {
        self.unanswered > 0 || self.told_answers >= TRIES
    }

    /// That a send of so many bytes has failed by itself, and not by what another has met.
    fn check_blame(&self, errno: Errno, size: usize) {
        let of_another = match errno.code() {
            libc::ECONNREFUSED | libc::EHOSTUNREACH => true,
            // The most that IPv4 carries.
            libc::EMSGSIZE => size <= 65_507,
            _ => false,
        };
        assert!(
            !self.is_told() || !of_another || self.may_be_blamed(),
            "a send of {size} bytes of {:?} fails by {errno}, which another has met",
            self.id
        );
    }

    /// A send that was refused, or not posted.
    pub(crate) fn forget_send(&mut self, token: Token) {
        self.sends.retain(|sending| sending.token != token);
    }

    /// Sends with a token that have not ended.
    pub(crate) fn awaited(&self) -> usize {
        self.sends
            .iter()
            .filter(|sending| sending.token != Token::NONE)
            .count()
    }

    /// It has closed: nothing of it may be held.
    pub(crate) fn check_closed(&self) {
        let taken = self.sends.iter().filter(|sending| !sending.on_the_way);
        let lent = taken.filter_map(|sending| sending.free.as_ref());
        for free in lent.chain(&self.frees) {
            assert!(
                free.load(Ordering::Relaxed),
                "{:?} has closed, and lent memory is still held",
                self.id
            );
        }
    }

    /// Counts that must agree at any time. `drops` are those that the kernel has counted since it was opened.
    pub(crate) fn check_counters(&self, counters: &DatagramCounters, drops: RangeInclusive<u32>) {
        let id = self.id;
        let counted = counters.kernel_drops;
        assert!(
            (u64::from(*drops.start())..=u64::from(*drops.end())).contains(&counted),
            "{id:?} counts {counted} drops, and there were {drops:?}"
        );
        assert!(
            counters.received_buffers <= self.buffers,
            "buffers received by {id:?}"
        );
        assert!(counters.sent <= self.datagrams, "datagrams sent by {id:?}");
        assert!(
            counters.send_errors + counters.receive_errors >= self.failures,
            "failures of {id:?}"
        );
        assert!(counters.slots_leased <= counters.slots);
    }

    /// What must agree once nothing goes on any more, and does not.
    pub(crate) fn find_difference(&self, counters: &DatagramCounters) -> Option<String> {
        let id = self.id;
        let seen = [
            self.buffers,
            self.received,
            self.received_bytes,
            self.truncated,
            self.control_cut,
            self.messages,
            self.datagrams,
            self.bytes,
            self.failures,
        ];
        let counted = [
            counters.received_buffers,
            counters.received,
            counters.received_bytes,
            counters.truncated,
            counters.control_truncated,
            counters.sends,
            counters.sent,
            counters.sent_bytes,
            counters.send_errors + counters.receive_errors,
        ];
        if seen != counted {
            return Some(format!(
                "{seen:?} passed through {id:?}, and it counts {counted:?}: buffers, datagrams, bytes, cut, control \
                 cut, messages, datagrams sent, bytes sent, failures"
            ));
        }
        if !self.answered.is_empty() {
            return Some(format!(
                "{:?} were not reached from {id:?}, and it was not told",
                self.answered
            ));
        }
        if counters.queued_bytes > 0 {
            return Some(format!("{} bytes are queued on {id:?}", counters.queued_bytes));
        }
        let silent = self
            .sends
            .iter()
            .filter(|sending| sending.token == Token::NONE && !sending.has_left())
            .count() as u64;
        (silent > self.errors).then(|| {
            format!(
                "{silent} sends of {id:?} have neither left nor been told to have failed, with {} errors",
                self.errors
            )
        })
    }
}
