//! What a kernel may do to a program, and how often it does in one run.

use std::fmt;

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
    /// A socket refuses zero copy.
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
        // Some runs have hardly any fault, some nearly all.
        let share = *random.choose(&[0, 100, 300, 300, 500, 800]);
        let mut chances = [0; Fault::ALL.len()];
        for &fault in Fault::ALL {
            let present = random.chance(share);
            let chance = random.magnitude(u64::from(fault.most())) as u32;
            if present && !without.contains(fault) {
                chances[fault as usize] = chance;
            }
        }
        Self { chances }
    }

    /// A profile without any fault.
    #[must_use]
    pub fn kind() -> Self {
        Self {
            chances: [0; Fault::ALL.len()],
        }
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

/// How often each fault has struck.
#[derive(Clone, Debug)]
pub struct FaultCounts([u64; Fault::ALL.len()]);

impl Default for FaultCounts {
    fn default() -> Self {
        Self([0; Fault::ALL.len()])
    }
}

impl FaultCounts {
    /// Counts one.
    pub fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(sum, more)| *sum += more);
    }

    /// Each with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> {
        Fault::ALL.iter().copied().zip(self.0)
    }
}
