//! Whether every loop turns, for whoever asks: the answer to `/livez`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quoit::{Remote, ReserveError};

/// How long a loop that was woken may stand still: as long as nothing that a handler should do.
pub(super) const STILL: Duration = Duration::from_secs(5);

/// What each loop did when somebody asked last.
#[derive(Debug, Default)]
pub(super) struct Liveness(Mutex<Vec<Seen>>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    turns: u64,
    /// When a loop that had turned so often was first asked to turn again.
    woken: Instant,
}

impl Liveness {
    /// The first loop that stands still, if one does; and asks all of them to turn, for the next who wants to know.
    pub(super) fn standing(&self, loops: &[Remote]) -> Option<usize> {
        let turns = loops.iter().map(turns);
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = look(&mut seen, Instant::now(), turns);
        for event_loop in loops {
            event_loop.wake();
        }
        standing
    }
}

/// How often a loop has turned by now; none if it is gone, as it has drained.
pub(super) fn turns(event_loop: &Remote) -> Option<u64> {
    let is_gone = matches!(event_loop.reserve(), Err(ReserveError::Closed));
    (!is_gone).then(|| event_loop.counters().turns)
}

fn look(seen: &mut Vec<Seen>, now: Instant, turns: impl Iterator<Item = Option<u64>>) -> Option<usize> {
    let mut standing = None;
    for (index, turns) in turns.enumerate() {
        // Of one that is gone it does not matter.
        let fresh = Seen {
            turns: turns.unwrap_or(u64::MAX),
            woken: now,
        };
        match seen.get_mut(index) {
            None => seen.push(fresh),
            Some(before) if before.turns != fresh.turns => *before = fresh,
            Some(before) if turns.is_some() && now - before.woken >= STILL => {
                standing.get_or_insert(index);
            }
            Some(_) => {}
        }
    }
    standing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_stands_still_that_was_woken_and_has_not_turned_for_long() {
        let begin = Instant::now();
        let mut seen = Vec::new();
        let mut at = |seconds: u64, turns: [Option<u64>; 2]| {
            look(&mut seen, begin + Duration::from_secs(seconds), turns.into_iter())
        };
        // Nobody had woken them before, however long they slept.
        assert_eq!(at(1000, [Some(3), Some(7)]), None);
        assert_eq!(at(1004, [Some(4), Some(7)]), None);
        assert_eq!(at(1005, [Some(4), Some(7)]), Some(1));
        // Only since 1004.
        assert_eq!(at(1008, [Some(4), Some(7)]), Some(1));
        assert_eq!(at(1009, [Some(4), Some(7)]), Some(0));
        // Both turn again, and the time begins anew.
        assert_eq!(at(1020, [Some(5), Some(8)]), None);
        assert_eq!(at(1024, [Some(5), Some(8)]), None);
        // One that has drained is not missed.
        assert_eq!(at(1024, [None, Some(9)]), None);
        assert_eq!(at(1040, [None, Some(10)]), None);
        assert_eq!(at(1050, [None, Some(10)]), Some(1));
    }
}
