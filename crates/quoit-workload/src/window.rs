//! Which numbers of a sequence have come, in memory that does not grow.

/// Numbers that are remembered behind the highest one.
pub(crate) const REMEMBERED: u64 = 1 << 20;

const WORDS: usize = (REMEMBERED / 64) as usize;

/// What a number was, when it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Higher than all before.
    Next,
    /// Lower than one that came before, and new.
    Late,
    /// It had come already.
    Again,
    /// So far behind that it is not known whether it had come.
    Forgotten,
}

/// The numbers that have come: a bit each of the last [`REMEMBERED`].
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// One more than the highest number that came.
    next: u64,
    /// Bit `n % REMEMBERED` says whether `n` came, for each `n` below `next` and not forgotten.
    seen: Box<[u64]>,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            next: 0,
            seen: vec![0; WORDS].into(),
        }
    }
}

impl Window {
    /// One more than the highest number that came.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Notes that `number`, which is below `u64::MAX`, has come.
    pub(crate) fn note(&mut self, number: u64) -> Arrival {
        if number >= self.next {
            self.forget_up_to(number);
            self.next = number + 1;
            *self.word(number) |= 1 << (number % 64);
            return Arrival::Next;
        }
        if self.next - number > REMEMBERED {
            return Arrival::Forgotten;
        }
        let bit = 1 << (number % 64);
        let word = self.word(number);
        if *word & bit != 0 {
            return Arrival::Again;
        }
        *word |= bit;
        Arrival::Late
    }

    /// Lets all numbers below `next` be behind, as if the one before it had come; whether they came is unchanged.
    pub(crate) fn raise(&mut self, next: u64) {
        if next > self.next {
            self.forget_up_to(next - 1);
            self.next = next;
        }
    }

    fn word(&mut self, number: u64) -> &mut u64 {
        &mut self.seen[(number % REMEMBERED / 64) as usize]
    }

    /// Makes the bits of `next..=number` those of numbers that have not come.
    fn forget_up_to(&mut self, number: u64) {
        if number - self.next >= REMEMBERED {
            self.seen.fill(0);
            return;
        }
        let mut at = self.next;
        while at <= number {
            if at.is_multiple_of(64) && number - at >= 63 {
                *self.word(at) = 0;
                at += 64;
            } else {
                *self.word(at) &= !(1 << (at % 64));
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set that forgets nothing.
        #[test]
        fn it_tells_what_a_set_would(steps in prop::collection::vec((-200_i64..400, 0_u8..40), 1..200)) {
            let mut window = Window::default();
            let mut came = BTreeSet::new();
            let mut at = 0_i64;
            for (step, far) in steps {
                // Now and then a leap around the whole ring.
                at = (at + if far == 0 { REMEMBERED as i64 } else { step }).max(0);
                let number = at as u64;
                let highest = came.last().copied();
                let expected = match highest {
                    Some(highest) if number <= highest && highest - number >= REMEMBERED => Arrival::Forgotten,
                    _ if came.contains(&number) => Arrival::Again,
                    Some(highest) if number < highest => Arrival::Late,
                    _ => Arrival::Next,
                };
                prop_assert_eq!(window.note(number), expected, "{}", number);
                came.insert(number);
            }
            prop_assert_eq!(window.next(), came.last().map_or(0, |highest| highest + 1));
        }
    }

    #[test]
    fn the_highest_number_is_no_exception() {
        let mut window = Window::default();
        assert_eq!(window.note(u64::MAX - 1), Arrival::Next);
        assert_eq!(window.note(u64::MAX - 1), Arrival::Again);
        assert_eq!(window.note(0), Arrival::Forgotten);
    }
}
