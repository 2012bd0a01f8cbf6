//! What a user of datagram sockets may rely on, as a small model beside the loop: the table of `quoit::event`, that what
//! is delivered is what the kernel handed over and in its order, and that what leaves is what was sent.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use quoit::{DatagramCounters, DatagramSocketId, Datagrams, Errno, Gro, Token, Unreachable};
use quoit_sim_kernel::kernel::{Handed, Passed};

use super::Opening;
use super::groups::Groups;
use super::plan::SocketPlan;
use super::sending::Sending;

/// Times that the loop makes a send again at most which was told of another.
const TRIES: u64 = 8;

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
    /// Its place among the sockets of its port, and their count, if each is for some processors.
    steered: Option<(usize, usize)>,
    /// Deliveries so far.
    pub(crate) delivered: u64,
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
    /// Errors that the loop has read from the error queue and not reported yet.
    errors_read: VecDeque<(SocketAddr, i32)>,
    /// How many it has reported, and how many the kernel had no room for.
    errors_reported: u64,
    errors_lost: u64,
}

impl Socket {
    pub(crate) fn new(
        id: DatagramSocketId,
        opening: &Opening,
        plan: SocketPlan,
        steered: Option<(usize, usize)>,
    ) -> Self {
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
            steered,
            delivered: 0,
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
            errors_read: VecDeque::new(),
            errors_reported: 0,
            errors_lost: 0,
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
        self.errors_read.extend(passed.errors_read);
        self.errors_lost += passed.errors_lost;
        for handed in passed.handed {
            self.check_steering(&handed);
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

    /// That it came from the processor that the socket is for.
    fn check_steering(&self, handed: &Handed) {
        if let (Some(processor), Some((place, count))) = (handed.facts.steered, self.steered) {
            assert_eq!(
                usize::from(processor) % count,
                place,
                "{:?}, one of {count}, gets what processor {processor} has received",
                self.id
            );
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
        self.delivered += 1;
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

    /// The network has returned an error, and does not say for which datagram.
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
        let expected = self.errors_read.pop_front();
        assert_eq!(
            expected,
            Some((told.receiver(), told.errno().code())),
            "who could not be reached from {id:?}"
        );
        self.errors_reported += 1;
        self.failures += 1;
    }

    /// Whether a send may fail with the error of another one: where an error was lost, or the loop has tried the send
    /// again as often as it does.
    fn may_be_blamed(&self) -> bool {
        self.errors_lost > 0 || self.errors_reported >= TRIES
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
        if !self.errors_read.is_empty() {
            return Some(format!(
                "{:?} were not reached from {id:?}, and it was not told",
                self.errors_read
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
