//! A table of slots with generations: what ids point into.

use crate::errno::Errno;
use crate::id::Slot;
use crate::reserved::with_room;

// Aligned, so that a connection's begins where a cache line does.
#[repr(align(64))]
#[derive(Debug)]
struct Entry<T> {
    /// Counts the uses of this slot; 0 before the first.
    generation: u32,
    marked: bool,
    value: Option<T>,
}

/// A table with a fixed limit. Memory is reserved for all of it at once and touched as it is used; freed slots
/// are used again last in, first out.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: Vec<Entry<T>>,
    free: Vec<Slot>,
    limit: u32,
    used: u32,
    /// Empty slots that are kept from being used: until they are freed, or for ever once their generations are used up.
    kept: u32,
    /// Slots with a mark.
    marked: u32,
}

impl<T> Table<T> {
    /// A table for at most `limit`, with room for all of them.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn new(limit: u32) -> Result<Self, Errno> {
        Ok(Self {
            entries: with_room(limit as usize)?,
            free: with_room(limit as usize)?,
            limit,
            used: 0,
            kept: 0,
            marked: 0,
        })
    }

    /// One with no room, in the place of another.
    pub(super) const fn none() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            limit: 0,
            used: 0,
            kept: 0,
            marked: 0,
        }
    }

    /// Slots in use.
    pub(super) fn len(&self) -> u32 {
        self.used
    }

    /// The slots that were ever taken are those below.
    pub(super) fn slot_count(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Slots that can be taken.
    pub(super) fn room(&self) -> u32 {
        self.limit - self.used - self.kept
    }

    /// Takes a slot for `value`; returns it and its generation, or the value back if the table is full.
    pub(super) fn insert(&mut self, value: T) -> Result<(Slot, u32), T> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.entries.len() < self.limit as usize => {
                self.entries.push(Entry {
                    generation: 0,
                    marked: false,
                    value: None,
                });
                Slot::new(self.entries.len() as u32 - 1)
            }
            None => return Err(value),
        };
        let entry = &mut self.entries[slot.index()];
        debug_assert!(entry.value.is_none());
        entry.generation += 1;
        entry.value = Some(value);
        self.used += 1;
        Ok((slot, entry.generation))
    }

    /// What is in the slot, if that is its generation.
    pub(super) fn get_mut(&mut self, slot: Slot, generation: u32) -> Option<&mut T> {
        let entry = self.entries.get_mut(slot.index())?;
        if entry.generation == generation {
            entry.value.as_mut()
        } else {
            None
        }
    }

    /// As [`Table::get_mut`], for looking only.
    pub(super) fn get(&self, slot: Slot, generation: u32) -> Option<&T> {
        let entry = self.entries.get(slot.index())?;
        if entry.generation == generation {
            entry.value.as_ref()
        } else {
            None
        }
    }

    /// What is in a slot that is known to be in use, with its generation.
    pub(super) fn at(&mut self, slot: Slot) -> Option<(&mut T, u32)> {
        let entry = self.entries.get_mut(slot.index())?;
        let generation = entry.generation;
        entry.value.as_mut().map(|value| (value, generation))
    }

    /// Marks a slot in use, until it is [freed](Table::free).
    pub(super) fn mark(&mut self, slot: Slot) {
        if let Some(entry) = self.entries.get_mut(slot.index())
            && entry.value.is_some()
            && !std::mem::replace(&mut entry.marked, true)
        {
            self.marked += 1;
        }
    }

    /// Whether the slot has a mark and that is its generation.
    pub(super) fn is_marked(&self, slot: Slot, generation: u32) -> bool {
        // Mostly there is none, which is known without a look at the slot.
        self.marked > 0
            && self
                .entries
                .get(slot.index())
                .is_some_and(|entry| entry.marked && entry.generation == generation)
    }

    /// Empties a slot, and keeps it from being used until it is [freed](Table::free).
    pub(super) fn take(&mut self, slot: Slot) -> Option<T> {
        let value = self.entries.get_mut(slot.index())?.value.take()?;
        self.used -= 1;
        self.kept += 1;
        Some(value)
    }

    /// Lets a slot be used again that was emptied. One whose generations are used up is kept for ever.
    pub(super) fn free(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot.index()];
        debug_assert!(entry.value.is_none());
        if std::mem::take(&mut entry.marked) {
            self.marked -= 1;
        }
        if entry.generation < u32::MAX {
            self.free.push(slot);
            self.kept -= 1;
        }
    }

    /// Empties a slot and frees it.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.take(slot)?;
        self.free(slot);
        Some(value)
    }

    /// What is in the slots in use.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|entry| entry.value.as_mut())
    }

    /// The slots in use, with their generations.
    pub(super) fn slots(&self) -> impl Iterator<Item = (Slot, u32)> + '_ {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.value.is_some())
            .map(|(index, entry)| (Slot::new(index as u32), entry.generation))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slot_used_again_has_another_generation() {
        let mut table = Table::new(1).unwrap();
        let (slot, first) = table.insert('a').unwrap();
        assert_eq!(table.insert('b'), Err('b'));
        assert_eq!(table.remove(slot), Some('a'));
        let (same, second) = table.insert('c').unwrap();
        assert_eq!((same, second), (slot, first + 1));
        assert_eq!(table.get(slot, first), None);
        assert_eq!(table.get(slot, second), Some(&'c'));
        assert_eq!((table.len(), table.room()), (1, 0));
    }

    #[test]
    fn an_emptied_slot_keeps_its_mark_and_its_generation_until_it_is_freed() {
        let mut table = Table::new(1).unwrap();
        let (slot, first) = table.insert('a').unwrap();
        assert!(!table.is_marked(slot, first));
        table.mark(slot);
        table.mark(slot);
        assert_eq!(table.take(slot), Some('a'));
        assert_eq!((table.take(slot), table.len(), table.room()), (None, 0, 0));
        assert!(table.is_marked(slot, first));
        assert_eq!(table.get(slot, first), None);
        assert_eq!(table.insert('b'), Err('b'));
        table.free(slot);
        assert_eq!((table.marked, table.room()), (0, 1));
        let (_, second) = table.insert('b').unwrap();
        assert!(!table.is_marked(slot, first) && !table.is_marked(slot, second));
        table.mark(slot);
        assert!(!table.is_marked(slot, first) && table.is_marked(slot, second));
    }

    #[test]
    fn a_slot_without_generations_left_is_retired() {
        let mut table = Table::new(2).unwrap();
        let (slot, _) = table.insert(1).unwrap();
        table.entries[slot.index()].generation = u32::MAX;
        table.remove(slot);
        let (other, _) = table.insert(2).unwrap();
        assert_ne!(other, slot);
        assert_eq!(table.insert(3), Err(3));
    }

    proptest! {
        /// Against a list of what is in: every id finds its own value while it is in, and nothing afterwards.
        #[test]
        fn ids_find_their_own_value_or_nothing(
            limit in 1u32..20,
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            let mut table = Table::new(limit).unwrap();
            let mut inside: Vec<((Slot, u32), usize)> = Vec::new();
            let mut gone = Vec::new();
            for (number, (insert, which)) in steps.into_iter().enumerate() {
                if insert {
                    match table.insert(number) {
                        Ok(id) => inside.push((id, number)),
                        Err(back) => prop_assert_eq!((back, inside.len()), (number, limit as usize)),
                    }
                } else if !inside.is_empty() {
                    let (id, value) = inside.swap_remove(which.index(inside.len()));
                    prop_assert_eq!(table.remove(id.0), Some(value));
                    gone.push(id);
                }
                prop_assert_eq!(table.len() as usize, inside.len());
                prop_assert_eq!(table.room(), limit - table.len());
                for &((slot, generation), mut value) in &inside {
                    prop_assert_eq!(table.get(slot, generation), Some(&value));
                    prop_assert_eq!(table.get_mut(slot, generation), Some(&mut value));
                    prop_assert_eq!(table.at(slot), Some((&mut value, generation)));
                }
                for &(slot, generation) in &gone {
                    prop_assert_eq!(table.get(slot, generation), None);
                }
                let mut slots: Vec<_> = inside.iter().map(|&(id, _)| id).collect();
                slots.sort_unstable();
                prop_assert_eq!(table.slots().collect::<Vec<_>>(), slots);
            }
        }
    }
}
