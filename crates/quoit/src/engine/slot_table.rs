//! What an engine keeps of each socket, by its slot.

use crate::id::Slot;

/// A vector indexed by slot, as long as the highest slot that was seen. What is never used is never touched.
#[derive(Default, Debug)]
pub(super) struct SlotTable<T>(Vec<T>);

impl<T: Default> SlotTable<T> {
    /// An empty one, with room set aside for so many slots.
    pub(super) fn with_capacity(slots: u32) -> Self {
        Self(Vec::with_capacity(slots as usize))
    }

    /// What is kept of `slot`, made if it is the first time that the slot is seen.
    #[inline]
    pub(super) fn get(&mut self, slot: Slot) -> &mut T {
        if slot.index() >= self.0.len() {
            self.grow(slot);
        }
        &mut self.0[slot.index()]
    }

    #[cold]
    fn grow(&mut self, slot: Slot) {
        self.0.resize_with(slot.index() + 1, T::default);
    }

    /// What is kept of `slot`, if it was ever seen.
    pub(super) fn find(&mut self, slot: Slot) -> Option<&mut T> {
        self.0.get_mut(slot.index())
    }

    /// The slots up to the highest that was seen.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + use<T> {
        (0..self.0.len() as u32).map(Slot::new)
    }
}
