//! What completions are recognised by.

use crate::id::Slot;

/// The kinds of submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Tag {
    Wake,
    Accept,
    Connect,
    Receive,
    Send,
    Cancel,
    Close,
    DatagramReceive,
    DatagramSend,
    Marker,
}

const TAGS: [Tag; 10] = [
    Tag::Wake,
    Tag::Accept,
    Tag::Connect,
    Tag::Receive,
    Tag::Send,
    Tag::Cancel,
    Tag::Close,
    Tag::DatagramReceive,
    Tag::DatagramSend,
    Tag::Marker,
];

const TAG_SHIFT: u32 = 24;
const DETAIL_SHIFT: u32 = 32;

/// A submission's user data: its kind, the slot of the connection, listener or datagram socket that it belongs to, and a detail.
///
/// From bit 0 on: 20 bits of slot, at bit 24 the kind, at bit 32 the detail. The detail of a send is its
/// zero-copy sequence, that of a datagram its number in the batch, and that of a cancellation the kind of its target
/// in the low eight bits, with the low 24 of its detail above them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UserData(u64);

impl UserData {
    #[inline]
    pub(super) const fn new(tag: Tag, slot: Slot, detail: u32) -> Self {
        Self((detail as u64) << DETAIL_SHIFT | (tag as u64) << TAG_SHIFT | slot.get() as u64)
    }

    /// The loop's own, which belong to no slot.
    pub(super) const fn wake() -> Self {
        Self::new(Tag::Wake, Slot::new(0), 0)
    }

    /// Of what marks a place among the submissions.
    pub(super) const fn marker() -> Self {
        Self::new(Tag::Marker, Slot::new(0), 0)
    }

    /// The user data for cancelling what has this one.
    pub(super) const fn cancellation(self) -> Self {
        Self::new(Tag::Cancel, self.slot(), self.detail() << 8 | self.tag() as u32)
    }

    #[inline]
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    pub(super) const fn to_bits(self) -> u64 {
        self.0
    }

    /// The kind.
    ///
    /// # Panics
    /// If this is no user data of ours: the kernel gives back what it was given.
    #[inline]
    pub(super) const fn tag(self) -> Tag {
        TAGS[(self.0 >> TAG_SHIFT) as u8 as usize]
    }

    /// Whether it is of this kind.
    #[inline]
    pub(super) const fn is(self, tag: Tag) -> bool {
        (self.0 >> TAG_SHIFT) as u8 == tag as u8
    }

    #[inline]
    pub(super) const fn slot(self) -> Slot {
        Slot::new(self.0 as u32 & ((1 << TAG_SHIFT) - 1))
    }

    #[inline]
    pub(super) const fn detail(self) -> u32 {
        (self.0 >> DETAIL_SHIFT) as u32
    }

    /// The kind of a cancellation's target.
    pub(super) const fn target(self) -> Tag {
        TAGS[self.detail() as u8 as usize]
    }

    /// The low 24 bits of the detail of a cancellation's target.
    pub(super) const fn target_detail(self) -> u32 {
        self.detail() >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MAX_SLOTS;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn user_data_gives_back_its_parts(tag in 0..TAGS.len(), slot in 0..MAX_SLOTS, detail: u32) {
            let data = UserData::new(TAGS[tag], Slot::new(slot), detail);
            let data = UserData::from_bits(data.to_bits());
            prop_assert_eq!((data.tag() as usize, data.slot().get(), data.detail()), (tag, slot, detail));
            let cancellation = data.cancellation();
            prop_assert_eq!(cancellation.tag(), Tag::Cancel);
            prop_assert_eq!((cancellation.target(), cancellation.slot()), (data.tag(), data.slot()));
            prop_assert_eq!(cancellation.target_detail(), detail & ((1 << 24) - 1));
        }
    }
}
