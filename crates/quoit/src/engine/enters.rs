//! How much entering the kernel carries.

/// Powers of two that are told apart in what enters submit and bring: 0, 1, 2 to 3, and so on; from 256 on all.
pub const ENTER_SIZES: usize = 10;

/// How much each enter carried. Two additions an enter; no allocation.
#[derive(Clone, Copy, Default, Debug)]
pub struct EnterSizes {
    /// How many enters submitted so much.
    pub submitting: [u64; ENTER_SIZES],
    /// How many enters brought so much, the last one not yet among them.
    pub bringing: [u64; ENTER_SIZES],
    /// Completions that had been taken when the last enter was made; `None` before the first.
    taken_before: Option<u64>,
}

impl EnterSizes {
    /// Counts an enter that submitted so many operations, after so many completions had been taken in all: those since
    /// the enter before were brought by that.
    #[inline]
    pub fn count(&mut self, submitted: u64, completions: u64) {
        self.submitting[size(submitted)] += 1;
        if let Some(before) = self.taken_before.replace(completions) {
            self.bringing[size(completions - before)] += 1;
        }
    }
}

/// The place of a number among the powers of two.
#[inline]
fn size(number: u64) -> usize {
    ((u64::BITS - number.leading_zeros()) as usize).min(ENTER_SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enters_are_told_apart_by_powers_of_two() {
        let mut sizes = EnterSizes::default();
        // What an enter brought is known at the next: 0, 255 and 256 of these.
        for (submitted, completions) in [(0, 7), (1, 7), (3, 262), (4, 518)] {
            sizes.count(submitted, completions);
        }
        sizes.count(u64::MAX, 518);
        assert_eq!(sizes.submitting, [1, 1, 1, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(sizes.bringing, [2, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    }
}
