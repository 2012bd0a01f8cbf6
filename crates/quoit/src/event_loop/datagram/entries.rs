//! The sends of a queue, in a ring.

use super::queue::Entry;

/// Entries, oldest first.
///
/// Each stays where it was written until its send has ended, as the kernel reads it there, and a later one is written over
/// it. So of where a send goes no more is written than it has, which is a tenth of the room for it, and nothing is moved.
#[derive(Debug)]
pub(super) struct Entries {
    /// As many as were ever in use at once, in memory that is reserved at the beginning.
    all: Vec<Entry>,
    /// Places in all, one more than there are sends: what is refused in the end was written too.
    places: usize,
    /// The place of the oldest.
    first: usize,
    /// How many are in use.
    count: usize,
}

impl Entries {
    /// For so many sends.
    pub(super) fn new(most: usize) -> Self {
        let places = most + 1;
        Self {
            all: Vec::with_capacity(places),
            places,
            first: 0,
            count: 0,
        }
    }

    /// How many are in use.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Where the next one is to be written, with what was there before.
    #[inline]
    pub(super) fn next(&mut self) -> &mut Entry {
        if self.count == 0 {
            // From the start again, where the memory is still in the processor's caches.
            self.first = 0;
        }
        let place = self.place(self.count);
        if place == self.all.len() {
            self.grow();
        }
        &mut self.all[place]
    }

    #[cold]
    fn grow(&mut self) {
        self.all.push(Entry::default());
    }

    /// The next one is written, and in use.
    #[inline]
    pub(super) fn add(&mut self) {
        debug_assert!(self.count < self.places);
        self.count += 1;
    }

    /// One of them, by its number from the oldest on.
    #[inline]
    pub(super) fn at(&mut self, index: usize) -> &mut Entry {
        let place = self.place(index);
        &mut self.all[place]
    }

    /// The oldest ones are no longer in use.
    #[inline]
    pub(super) fn release(&mut self, count: usize) {
        self.first = self.place(count);
        self.count -= count;
    }

    /// Places are taken one after the other, so that there is none behind one that was never in use.
    #[inline]
    fn place(&self, index: usize) -> usize {
        let place = self.first + index;
        if place < self.places {
            place
        } else {
            place - self.places
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_where_they_are_and_are_used_again() {
        let mut entries = Entries::new(3);
        let written = |entries: &mut Entries| {
            let entry = std::ptr::from_mut(entries.next());
            entries.add();
            entry
        };
        let [first, second, third] = [0; 3].map(|_| written(&mut entries));
        let refused = std::ptr::from_mut(entries.next());
        entries.release(1);
        assert_eq!(std::ptr::from_mut(entries.at(0)), second);
        assert_eq!(std::ptr::from_mut(entries.at(1)), third);
        assert_eq!(written(&mut entries), refused);
        assert_eq!(std::ptr::from_mut(entries.next()), first);
        entries.release(2);
        assert_eq!(std::ptr::from_mut(entries.at(0)), refused);
        assert_eq!(written(&mut entries), first);
        entries.release(2);
        // From the start.
        assert_eq!(written(&mut entries), first);
        assert_eq!(entries.all.len(), 4);
    }
}
