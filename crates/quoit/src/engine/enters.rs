//! How much entering the kernel carries.

use crate::counters::{Count, LiveCounters};

/// Counts how much each enter carried, by powers of two: 0, 1, 2 to 3, and so on; from 256 on all. Two additions an enter; no
/// allocation.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct EnterSizes {
    /// Completions that had been taken when the last enter was made; `None` before the first.
    taken_before: Option<u64>,
}

impl EnterSizes {
    /// Counts an enter that submitted so many operations, after so many completions had been taken in all: those since
    /// the enter before were brought by that.
    #[inline]
    pub(crate) fn count(&mut self, counters: &LiveCounters, submitted: u64) {
        figures(counters, place(submitted)).0.add(1);
        let taken = counters.completions.get();
        if let Some(before) = self.taken_before.replace(taken) {
            figures(counters, place(taken - before)).1.add(1);
        }
    }
}

/// The figures of the enters that submitted, and of those that brought, a number of this place.
#[inline]
fn figures(counters: &LiveCounters, place: usize) -> (&Count, &Count) {
    match place {
        0 => (&counters.enters_submitting_0, &counters.enters_bringing_0),
        1 => (&counters.enters_submitting_1, &counters.enters_bringing_1),
        2 => (&counters.enters_submitting_2, &counters.enters_bringing_2),
        3 => (&counters.enters_submitting_4, &counters.enters_bringing_4),
        4 => (&counters.enters_submitting_8, &counters.enters_bringing_8),
        5 => (&counters.enters_submitting_16, &counters.enters_bringing_16),
        6 => (&counters.enters_submitting_32, &counters.enters_bringing_32),
        7 => (&counters.enters_submitting_64, &counters.enters_bringing_64),
        8 => (&counters.enters_submitting_128, &counters.enters_bringing_128),
        _ => (&counters.enters_submitting_256, &counters.enters_bringing_256),
    }
}

/// The place of a number among the powers of two.
#[inline]
fn place(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enters_are_told_apart_by_powers_of_two() {
        let mut sizes = EnterSizes::default();
        let counters = LiveCounters::default();
        // What an enter brought is known at the next: 0, 255 and 256 of these.
        for (submitted, completions) in [(0, 7), (1, 7), (3, 262), (4, 518)] {
            counters.completions.set(completions);
            sizes.count(&counters, submitted);
        }
        sizes.count(&counters, u64::MAX);
        let read: [_; 10] = std::array::from_fn(|place| {
            let (submitting, bringing) = figures(&counters, place);
            (submitting.get(), bringing.get())
        });
        assert_eq!(read.map(|of| of.0), [1, 1, 1, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(read.map(|of| of.1), [2, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    }
}
