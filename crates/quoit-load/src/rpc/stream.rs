//! One stream of the load, and the place that it has on its connection.

/// A place for one stream after another.
#[derive(Debug)]
pub(super) struct Place {
    /// The present stream's, or the last one's; 0 before the first.
    pub(super) id: u32,
    pub(super) course: Course,
    /// When the present stream was begun.
    pub(super) start: u64,
    /// Messages that went over it, whole.
    pub(super) messages: u64,
    /// Messages for which the server was given credit, from the first on.
    pub(super) credit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// There is no stream.
    Free,
    Open,
    /// It was cancelled, and the server has yet to end it.
    Cancelled,
}

impl Place {
    pub(super) fn new() -> Self {
        Self {
            id: 0,
            course: Course::Free,
            start: 0,
            messages: 0,
            credit: 0,
        }
    }

    /// Begins the next stream of place `index`. The ids of a place are `concurrent` apart, so that an id tells its
    /// place, and none is used again soon.
    pub(super) fn open(&mut self, index: u32, concurrent: u32, start: u64) {
        let next = self.id.checked_add(concurrent).filter(|_| self.id > 0);
        *self = Self {
            id: next.unwrap_or(index + 1),
            course: Course::Open,
            start,
            ..Self::new()
        };
    }

    /// The place of a stream by its id; none has the one of id 0.
    pub(super) fn index(id: u32, concurrent: u32) -> usize {
        match id.checked_sub(1) {
            Some(before) => (before % concurrent) as usize,
            None => usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_their_place_and_differ_until_they_run_out() {
        let mut place = Place::new();
        for expected in [3, 8, 13] {
            place.open(2, 5, 0);
            assert_eq!((place.id, Place::index(place.id, 5)), (expected, 2));
        }
        place.id = u32::MAX - 3;
        place.open(2, 5, 0);
        assert_eq!(place.id, 3);
        assert_eq!(Place::index(0, 5), usize::MAX);
    }
}
