//! Which pair is measured next.
//!
//! Controls and comparisons take turns, a pair of each in a round, so that a drift of the machine hits all alike, and
//! every second round runs backwards. Once the comparisons have their pairs, the controls whose band is still too wide
//! go on alone.

use crate::experiment::model::Effort;

/// Two servers that are compared; the first is the ratio's numerator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) server: String,
    /// `None`: with itself.
    pub(crate) against: Option<String>,
}

impl Series {
    /// As in [`quoit_report::results::model::Slice::series`].
    pub(crate) fn name(&self) -> String {
        match self.against {
            Some(_) => self.server.clone(),
            None => format!("control {}", self.server),
        }
    }

    /// The servers of the ratio's numerator and denominator.
    pub(crate) fn sides(&self) -> [&str; 2] {
        [&self.server, self.against.as_ref().unwrap_or(&self.server)]
    }
}

/// How far a series has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Standing {
    pub(crate) is_control: bool,
    pub(crate) pairs: u32,
    /// Of a control: whether its band is narrow enough.
    pub(crate) reached: bool,
}

impl Standing {
    fn is_done(self, effort: &Effort) -> bool {
        self.pairs >= effort.pairs && (!self.is_control || self.reached || self.pairs >= effort.most_pairs)
    }

    /// Pairs that it needs at least from now on.
    fn left(self, effort: &Effort) -> u32 {
        effort.pairs.saturating_sub(self.pairs)
    }
}

/// The series whose turn it is; `None` if all are done. The state is only the number of pairs, so that a resumed run
/// goes on as if it had not been interrupted.
pub(crate) fn next(standings: &[Standing], effort: &Effort) -> Option<usize> {
    let open = || {
        standings
            .iter()
            .enumerate()
            .filter(|(_, standing)| !standing.is_done(effort))
    };
    let round = open().map(|(_, standing)| standing.pairs).min()?;
    let mut turns = open()
        .filter(|(_, standing)| standing.pairs == round)
        .map(|(index, _)| index);
    if round % 2 == 0 {
        turns.next()
    } else {
        turns.next_back()
    }
}

/// Pairs that are left at least.
pub(crate) fn left(standings: &[Standing], effort: &Effort) -> u32 {
    standings.iter().map(|standing| standing.left(effort)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort = Effort {
        pairs: 3,
        most_pairs: 5,
        band: 0.05,
        seconds: 1.0,
        warm_up: 0.0,
    };

    fn series(controls: usize, comparisons: usize) -> Vec<Standing> {
        let standing = |is_control| Standing {
            is_control,
            pairs: 0,
            reached: false,
        };
        let controls = std::iter::repeat_n(standing(true), controls);
        controls
            .chain(std::iter::repeat_n(standing(false), comparisons))
            .collect()
    }

    fn order(standings: &mut [Standing]) -> Vec<usize> {
        std::iter::from_fn(|| {
            let turn = next(standings, &EFFORT)?;
            standings[turn].pairs += 1;
            Some(turn)
        })
        .collect()
    }

    #[test]
    fn rounds_alternate_and_controls_grow_alone() {
        let mut standings = series(1, 2);
        assert_eq!(left(&standings, &EFFORT), 9);
        assert_eq!(order(&mut standings), [0, 1, 2, 2, 1, 0, 0, 1, 2, 0, 0]);
        assert_eq!(left(&standings, &EFFORT), 0);
    }

    #[test]
    fn a_band_that_is_reached_ends_the_growing() {
        let mut standings = series(2, 1);
        standings[1].reached = true;
        let order = order(&mut standings);
        let pairs = |index| order.iter().filter(|turn| **turn == index).count();
        assert_eq!([pairs(0), pairs(1), pairs(2)], [5, 3, 3]);
    }

    #[test]
    fn what_was_interrupted_goes_on_where_it_was() {
        let mut whole = series(1, 2);
        let order_of_all = order(&mut whole);
        for done in 0..order_of_all.len() {
            let mut standings = series(1, 2);
            for turn in &order_of_all[..done] {
                standings[*turn].pairs += 1;
            }
            assert_eq!(order(&mut standings), order_of_all[done..]);
        }
    }
}
