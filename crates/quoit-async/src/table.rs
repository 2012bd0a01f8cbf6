//! Who is told what happens to the sockets of a loop.

use std::sync::Arc;

use quoit::{ConnectionId, DatagramSocketId};

/// The id of a socket, and the place in a table that it names.
pub(crate) trait Slotted: Copy + Eq {
    fn index(self) -> usize;
}

impl Slotted for ConnectionId {
    fn index(self) -> usize {
        self.slot().index()
    }
}

impl Slotted for DatagramSocketId {
    fn index(self) -> usize {
        self.slot().index()
    }
}

/// What belongs to the ids of a loop.
///
/// A loop may give the place of a socket that has ended to another one before it has told of that end, so a place knows whose it
/// is, and who had it before is kept until then.
#[derive(Debug)]
pub(crate) struct Table<Id, T> {
    places: Vec<Option<(Id, Arc<T>)>>,
    /// Those whose places others have, and whose end is still to be told.
    displaced: Vec<(Id, Arc<T>)>,
}

impl<Id, T> Default for Table<Id, T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            displaced: Vec::new(),
        }
    }
}

impl<Id: Slotted, T> Table<Id, T> {
    pub(crate) fn add(&mut self, id: Id, of: Arc<T>) {
        let index = id.index();
        if self.places.len() <= index {
            self.places.resize_with(index + 1, || None);
        }
        let before = self.places[index].replace((id, of));
        self.displaced.extend(before);
    }

    pub(crate) fn get(&self, id: Id) -> Option<&Arc<T>> {
        let is_its = |(of, _): &&(Id, Arc<T>)| *of == id;
        let at_its_place = self.places.get(id.index()).and_then(Option::as_ref);
        let found = at_its_place
            .filter(is_its)
            .or_else(|| self.displaced.iter().find(is_its));
        found.map(|(_, found)| found)
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<Arc<T>> {
        let place = self.places.get_mut(id.index());
        if let Some((_, removed)) = place.and_then(|place| place.take_if(|(of, _)| *of == id)) {
            return Some(removed);
        }
        let at = self.displaced.iter().position(|(of, _)| *of == id)?;
        Some(self.displaced.swap_remove(at).1)
    }

    /// Those that have a place.
    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.places.iter().flatten().map(|(id, _)| *id)
    }

    /// Takes all out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Arc<T>> {
        let in_places = self.places.drain(..).flatten();
        in_places.chain(self.displaced.drain(..)).map(|(_, of)| of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place, and which of those who had it.
    impl Slotted for (usize, u8) {
        fn index(self) -> usize {
            self.0
        }
    }

    #[test]
    fn who_had_a_place_before_is_found_until_it_is_removed() {
        let mut table = Table::default();
        for (id, name) in [((3, 0), "old"), ((3, 1), "new"), ((0, 0), "other")] {
            table.add(id, Arc::new(name));
        }
        let found = |table: &Table<_, _>, id| table.get(id).map(|found| **found);
        assert_eq!(found(&table, (3, 0)), Some("old"));
        assert_eq!(found(&table, (3, 1)), Some("new"));
        assert_eq!(table.remove((3, 0)).as_deref(), Some(&"old"));
        assert_eq!(table.remove((3, 0)), None);
        assert_eq!((found(&table, (3, 0)), found(&table, (9, 0))), (None, None));
        assert_eq!(found(&table, (3, 1)), Some("new"));
        table.add((3, 2), Arc::new("newest"));
        let mut all: Vec<_> = table.drain().map(|of| *of).collect();
        all.sort_unstable();
        assert_eq!(all, ["new", "newest", "other"]);
    }
}
