//! What a kernel may do to a program, and how often it does in one run.

use std::cell::RefCell;
use std::fmt;

use quoit::Errno;

use crate::random::Random;

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $most:literal;)*) => {
        /// A way in which the simulated kernel is unkind, all of them within what a real one may do.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name on the command line and in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The highest chance with which a profile has it, out of 1,024 occasions.
            const fn most(self) -> u32 {
                match self { $(Self::$name => $most,)* }
            }
        }
    };
}

faults! {
    /// A receive brings less than is on the way.
    ShortReceive = "short-receive", 400;
    /// A socket takes only a part although it has room.
    ShortSend = "short-send", 400;
    /// A receive finds nothing although readiness was told.
    EmptyReceive = "empty-receive", 200;
    /// A send finds no room although there is some.
    FullSend = "full-send", 200;
    /// A call is interrupted by a signal (`EINTR`).
    Interrupted = "interrupted", 200;
    /// What is ready is told in a later turn.
    Delay = "delay", 500;
    /// What is ready is told in another order.
    Reorder = "reorder", 700;
    /// A multishot operation ends by itself.
    MultishotEnd = "multishot-end", 300;
    /// What a cancellation was meant for succeeds just before it.
    LateCancel = "late-cancel", 600;
    /// The end of a cancelled operation is told after that of the cancellation, or before.
    CancelOrder = "cancel-order", 600;
    /// A completion without bytes consumes a provided buffer.
    BufferWithoutBytes = "buffer-without-bytes", 300;
    /// The notification of a zero-copy send comes late.
    LateNotification = "late-notification", 700;
    /// The kernel copies what was to be sent without a copy, and says so.
    Copied = "copied", 300;
    /// A socket refuses zero copy, or the limit of locked memory does.
    NoZeroCopy = "no-zero-copy", 200;
    /// An enter finds no memory for requests (`EAGAIN`).
    EnterAgain = "enter-again", 100;
    /// An enter takes only a part of the submissions.
    PartialSubmit = "partial-submit", 200;
    /// An enter refuses to go on before completions that overflowed are taken (`EBUSY`).
    EnterBusy = "enter-busy", 500;
    /// No descriptor is free in the process (`EMFILE`), for a while.
    NoDescriptors = "no-descriptors", 150;
    /// No descriptor is free in the system, or no memory (`ENFILE`, `ENOMEM`, `ENOBUFS`).
    NoMemory = "no-memory", 100;
    /// No memory for a transfer, or for watching a socket (`ENOMEM`, `ENOBUFS`, `ENOSPC`): the connection ends.
    TransferFails = "transfer-fails", 20;
    /// A queued connection is gone when it is accepted, or has a network error.
    AcceptAborted = "accept-aborted", 150;
    /// A wait ends, or an edge is told, for no reason.
    SpuriousWake = "spurious-wake", 200;
    /// The clock leaps forward.
    ClockJump = "clock-jump", 20;
    /// A peer resets.
    PeerReset = "peer-reset", 300;
    /// A peer closes without reading what is on the way to it.
    PeerClose = "peer-close", 300;
    /// A peer ends its direction and goes on reading.
    PeerHalfClose = "peer-half-close", 500;
    /// A peer is silent for long.
    PeerSilent = "peer-silent", 200;
    /// A peer reads slowly.
    PeerSlow = "peer-slow", 400;
    /// The network loses a peer (`ETIMEDOUT`, `EHOSTUNREACH`).
    PeerLost = "peer-lost", 150;
    /// An attempt to connect is refused, or is never answered.
    ConnectFails = "connect-fails", 300;
    /// The network loses a datagram.
    DatagramLost = "datagram-lost", 300;
    /// The network delivers a datagram twice.
    DatagramDoubled = "datagram-doubled", 300;
    /// A datagram is under way for a while, and others overtake it.
    DatagramLate = "datagram-late", 600;
    /// A datagram is damaged, which is found when it is received: it was told, and is not there.
    DatagramDamaged = "datagram-damaged", 150;
    /// A router or the peer's host answers a datagram with an error (ICMP).
    DatagramRefused = "datagram-refused", 150;
    /// The device does not cut a datagram into segments.
    SegmentsRefused = "segments-refused", 300;
    /// From now on, for good, nobody may accept (`EPERM`, as a security module answers).
    AcceptForbidden = "accept-forbidden", 200;
}

impl Fault {
    /// Those from here on are of datagrams, and drawn by themselves: what a seed has of the others does not depend on
    /// them.
    const DATAGRAMS: usize = Self::DatagramLost as usize;
    /// Those from here on last, and are drawn by themselves too.
    const LASTING: usize = Self::AcceptForbidden as usize;
}

/// A set of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultSet(u64);

impl FaultSet {
    /// Adds one.
    pub fn insert(&mut self, fault: Fault) {
        self.0 |= 1 << fault as u8;
    }

    /// Whether it is in.
    #[must_use]
    pub fn contains(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u8 != 0
    }

    /// Those in it.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL
            .iter()
            .copied()
            .filter(move |&fault| self.contains(fault))
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { "," }, fault.name())?;
        }
        Ok(())
    }
}

impl std::str::FromStr for FaultSet {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let mut set = Self::default();
        for name in list.split(',').filter(|name| !name.is_empty()) {
            let fault = Fault::ALL.iter().find(|fault| fault.name() == name);
            set.insert(*fault.ok_or_else(|| {
                let known: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
                format!("{name:?} is no fault; known are {}", known.join(", "))
            })?);
        }
        Ok(set)
    }
}

/// How likely each fault is in one run. Swarm testing: each run leaves most faults out and has the others at rates
/// of its own, as a run with all of them rarely gets far enough for any to matter.
#[derive(Clone, Debug)]
pub struct Profile {
    chances: [u32; Fault::ALL.len()],
}

impl Profile {
    /// The profile of a run, without the faults in `without`. Leaving one out does not change the others.
    #[must_use]
    pub fn draw(random: &mut Random, without: FaultSet) -> Self {
        let mut profile = Self::kind();
        profile.draw_some(random, without, &Fault::ALL[..Fault::DATAGRAMS]);
        profile
    }

    /// Adds the faults of datagrams.
    pub fn draw_datagrams(&mut self, random: &mut Random, without: FaultSet) {
        self.draw_some(random, without, &Fault::ALL[Fault::DATAGRAMS..Fault::LASTING]);
    }

    /// Adds the faults that last. Few runs have them, as little else happens to those.
    pub fn draw_lasting(&mut self, random: &mut Random, without: FaultSet) {
        for &fault in &Fault::ALL[Fault::LASTING..] {
            let present = random.chance(25);
            let chance = random.magnitude(u64::from(fault.most())) as u32;
            if present && !without.contains(fault) {
                self.chances[fault as usize] = chance;
            }
        }
    }

    fn draw_some(&mut self, random: &mut Random, without: FaultSet, faults: &[Fault]) {
        // Some runs have hardly any fault, some nearly all.
        let share = *random.choose(&[0, 100, 300, 300, 500, 800]);
        for &fault in faults {
            let present = random.chance(share);
            let chance = random.magnitude(u64::from(fault.most())) as u32;
            if present && !without.contains(fault) {
                self.chances[fault as usize] = chance;
            }
        }
    }

    /// A profile without any fault.
    #[must_use]
    pub fn kind() -> Self {
        Self {
            chances: [0; Fault::ALL.len()],
        }
    }

    /// Some of them do not strike after all.
    pub fn leave_out(&mut self, faults: &[Fault]) {
        faults.iter().for_each(|&fault| self.chances[fault as usize] = 0);
    }

    /// The chance of one, out of 1,024 occasions.
    #[must_use]
    pub fn chance(&self, fault: Fault) -> u32 {
        self.chances[fault as usize]
    }

    /// Those that can strike.
    #[must_use]
    pub fn present(&self) -> FaultSet {
        let mut set = FaultSet::default();
        Fault::ALL
            .iter()
            .filter(|&&fault| self.chance(fault) > 0)
            .for_each(|&fault| set.insert(fault));
        set
    }
}

thread_local! {
    static RETURNED: RefCell<[u64; ERRORS]> = const { RefCell::new([0; ERRORS]) };
}

/// Error numbers that are counted: all that Linux has.
const ERRORS: usize = 134;

/// Counts an error that a call returns to the program.
pub(crate) fn count_error(code: i32) {
    RETURNED.with_borrow_mut(|counts| {
        if let Some(count) = usize::try_from(code).ok().and_then(|code| counts.get_mut(code)) {
            *count += 1;
        }
    });
}

/// What comes about without a fault of its own, from sizes, limits and what peers do.
#[derive(Clone, Copy, Default, Debug)]
pub struct Incidents {
    /// Completions that found no room in the completion queue.
    pub completion_overflows: u64,
    /// Submissions that found no room in the submission queue.
    pub submission_queue_full: u64,
    /// Receives that found no provided buffer.
    pub no_buffers: u64,
    /// Descriptors that had been another's before.
    pub descriptors_reused: u64,
    /// Sends of which a socket had room for a part, or none.
    pub full_sockets: u64,
    /// Connections that were reset with something unread.
    pub resets_by_unread_data: u64,
    /// Things that other threads did: wakes, posted commands, returned leases.
    pub other_threads: u64,
    /// Sends of other threads while the loop slept, whatever became of them.
    pub direct_sends: u64,
    /// Datagrams that the program's sockets received.
    pub datagrams_received: u64,
    /// Those of them that came cut.
    pub datagrams_truncated: u64,
    /// Messages that the program's datagram sockets sent.
    pub datagrams_sent: u64,
    /// Buffers that were dropped because a socket was full.
    pub datagrams_dropped: u64,
}

/// How often each fault has struck, and what else happened.
#[derive(Clone, Debug)]
pub struct FaultCounts {
    faults: [u64; Fault::ALL.len()],
    errors: [u64; ERRORS],
    /// What came about by itself.
    pub incidents: Incidents,
}

impl Default for FaultCounts {
    fn default() -> Self {
        Self {
            faults: [0; Fault::ALL.len()],
            errors: [0; ERRORS],
            incidents: Incidents::default(),
        }
    }
}

impl FaultCounts {
    /// Counts one.
    pub(crate) fn count(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Takes in the errors of the run that has just ended on this thread.
    pub(crate) fn take_errors(&mut self) {
        self.errors = RETURNED.replace([0; ERRORS]);
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        let add = |sums: &mut [u64], more: &[u64]| {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        };
        add(&mut self.faults, &other.faults);
        add(&mut self.errors, &other.errors);
        let (sum, more) = (&mut self.incidents, &other.incidents);
        sum.completion_overflows += more.completion_overflows;
        sum.submission_queue_full += more.submission_queue_full;
        sum.no_buffers += more.no_buffers;
        sum.descriptors_reused += more.descriptors_reused;
        sum.full_sockets += more.full_sockets;
        sum.resets_by_unread_data += more.resets_by_unread_data;
        sum.other_threads += more.other_threads;
        sum.direct_sends += more.direct_sends;
        sum.datagrams_received += more.datagrams_received;
        sum.datagrams_truncated += more.datagrams_truncated;
        sum.datagrams_sent += more.datagrams_sent;
        sum.datagrams_dropped += more.datagrams_dropped;
    }

    /// Each fault with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> {
        Fault::ALL.iter().copied().zip(self.faults)
    }

    /// The errors that calls returned to the program, with their counts.
    pub fn errors(&self) -> impl Iterator<Item = (Errno, u64)> {
        let errors = self.errors.iter().enumerate();
        errors
            .filter(|&(_, &count)| count > 0)
            .map(|(code, &count)| (Errno::new(code as i32), count))
    }
}
