//! Identities: every one names its loop, its slot and the generation of that slot.
//!
//! A slot is used again after its connection, listener or datagram socket has closed, with the next generation, so
//! an id kept too long names nothing and is refused; it never names somebody else. A slot whose generations are
//! used up (2^32 of them) is retired.

use std::fmt;

/// The slots that one loop can have: 2^20.
pub const MAX_SLOTS: u32 = 1 << SLOT_BITS;
/// The loops whose ids can be told apart in one process: 2^12.
pub const MAX_LOOPS: u16 = 1 << LOOP_BITS;

const SLOT_BITS: u32 = 20;
const LOOP_BITS: u32 = 12;

/// The number of a loop among those of its process, chosen by the one who makes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct LoopIndex(u16);

impl LoopIndex {
    /// The loop numbered `index`, or `None` from [`MAX_LOOPS`] on.
    #[must_use]
    pub const fn new(index: u16) -> Option<Self> {
        if index < MAX_LOOPS {
            Some(Self(index))
        } else {
            None
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The place of a connection, listener or datagram socket in its loop's table; below [`MAX_SLOTS`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot(u32);

impl Slot {
    /// The slot numbered `index`.
    ///
    /// # Panics
    /// From [`MAX_SLOTS`] on: tables are made no larger.
    #[must_use]
    pub const fn new(index: u32) -> Self {
        assert!(index < MAX_SLOTS);
        Self(index)
    }

    /// The number, for indexing.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The number, for packing.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u64);

        impl $name {
            /// The id of what is in `slot` of `in_loop` for the `generation`-th time (1 is the first).
            pub(crate) const fn new(in_loop: LoopIndex, slot: Slot, generation: u32) -> Self {
                Self(
                    ((in_loop.0 as u64) << (32 + SLOT_BITS))
                        | ((slot.0 as u64) << 32)
                        | generation as u64,
                )
            }

            /// An id from its 64 bits, as [`to_bits`](Self::to_bits) gave them. Any value may be passed: one
            /// that names nothing is refused where it is used.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Self {
                Self(bits)
            }

            /// The 64 bits of this id. Never 0.
            #[must_use]
            pub const fn to_bits(self) -> u64 {
                self.0
            }

            /// The loop that this id belongs to.
            #[must_use]
            pub const fn loop_index(self) -> LoopIndex {
                LoopIndex((self.0 >> (32 + SLOT_BITS)) as u16)
            }

            /// The place in the loop's table: dense from 0, so a plain vector can hold what a handler keeps.
            #[must_use]
            pub const fn slot(self) -> Slot {
                Slot((self.0 >> 32) as u32 & (MAX_SLOTS - 1))
            }

            /// How many times the slot had been used, this use included.
            #[must_use]
            pub const fn generation(self) -> u32 {
                self.0 as u32
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    concat!(stringify!($name), "({}/{}.{})"),
                    self.loop_index().0,
                    self.slot().0,
                    self.generation()
                )
            }
        }
    };
}

identity!(
    /// A connection: unique in its process for as long as slots have generations left.
    ConnectionId
);
identity!(
    /// A listening socket.
    ListenerId
);
identity!(
    /// A datagram socket.
    DatagramSocketId
);

/// A value of the caller's that comes back with the outcome of a command.
///
/// [`Token::NONE`] asks for no outcome on success where a command can be silent; failures are told anyway.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Token(pub u64);

impl Token {
    /// No outcome wanted.
    pub const NONE: Self = Self(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_gives_back_its_parts(loop_index in 0..MAX_LOOPS, slot in 0..MAX_SLOTS, generation in 1u32..) {
            let in_loop = LoopIndex::new(loop_index).unwrap();
            let id = ConnectionId::new(in_loop, Slot::new(slot), generation);
            prop_assert_eq!(id.loop_index(), in_loop);
            prop_assert_eq!(id.slot(), Slot::new(slot));
            prop_assert_eq!(id.generation(), generation);
            prop_assert_eq!(ConnectionId::from_bits(id.to_bits()), id);
            prop_assert_ne!(id.to_bits(), 0);
        }
    }

    #[test]
    fn loops_beyond_the_limit_are_refused() {
        assert!(LoopIndex::new(MAX_LOOPS).is_none());
        assert!(LoopIndex::new(MAX_LOOPS - 1).is_some());
    }
}
