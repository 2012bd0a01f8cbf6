//! What waits to be accepted from one listener, in a lane for each loop that shares it.
//!
//! A loop's connections are for who accepts on that loop, as all that happens to them is on its thread. Where nobody does, or
//! falls behind, they are for the others: a stream can be used on any thread, and who has connected is not to wait for ever.

use std::collections::VecDeque;

/// Who accepts what is in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// Nobody yet.
    Awaited,
    Present,
    /// Nobody any more.
    Gone,
}

#[derive(Debug)]
struct Lane<T> {
    holder: Holder,
    waiting: VecDeque<T>,
}

#[derive(Debug)]
pub(crate) struct Lanes<T> {
    lanes: Vec<Lane<T>>,
    /// What a lane holds when it is full.
    most: usize,
}

impl<T> Lanes<T> {
    pub(crate) fn new(count: usize, most: usize) -> Self {
        let lane = || Lane {
            holder: Holder::Awaited,
            waiting: VecDeque::new(),
        };
        Self {
            lanes: std::iter::repeat_with(lane).take(count).collect(),
            most,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn has_holder(&self, lane: usize) -> bool {
        self.lanes[lane].holder == Holder::Present
    }

    /// Those that something is put into: who accepts has them, or else may have them yet.
    fn open(&self) -> impl Iterator<Item = (usize, &Lane<T>)> {
        let is_held = self.lanes.iter().any(|lane| lane.holder == Holder::Present);
        let wanted = if is_held { Holder::Present } else { Holder::Awaited };
        let lanes = self.lanes.iter().enumerate();
        lanes.filter(move |(_, lane)| lane.holder == wanted)
    }

    /// Where what comes on the loop of lane `own` is to be put; `None` if nobody accepts any more.
    pub(crate) fn place(&self, own: usize) -> Option<usize> {
        let has_room = |&(lane, of): &(usize, &Lane<T>)| lane == own && of.waiting.len() < self.most;
        let emptiest = || self.open().min_by_key(|(_, lane)| lane.waiting.len());
        self.open().find(has_room).or_else(emptiest).map(|(lane, _)| lane)
    }

    pub(crate) fn push(&mut self, lane: usize, what: T) {
        self.lanes[lane].waiting.push_back(what);
    }

    pub(crate) fn pop(&mut self, lane: usize) -> Option<T> {
        self.lanes[lane].waiting.pop_front()
    }

    pub(crate) fn is_empty(&self, lane: usize) -> bool {
        self.lanes[lane].waiting.is_empty()
    }

    /// Somebody accepts from this lane from now on, and what others are awaited for as well.
    pub(crate) fn take(&mut self, lane: usize) {
        if self.lanes[lane].holder == Holder::Gone {
            return;
        }
        let mut awaited = VecDeque::new();
        for other in &mut self.lanes {
            if other.holder == Holder::Awaited {
                awaited.append(&mut other.waiting);
            }
        }
        let taken = &mut self.lanes[lane];
        taken.holder = Holder::Present;
        taken.waiting.append(&mut awaited);
    }

    /// Nothing more comes into this lane. What waits there stays for who has it.
    pub(crate) fn end(&mut self, lane: usize) {
        self.lanes[lane].holder = Holder::Gone;
    }

    /// Nobody accepts from this lane any more: what waits there is for the others, and returned if there are none.
    pub(crate) fn close(&mut self, lane: usize) -> VecDeque<T> {
        self.end(lane);
        let mut left = std::mem::take(&mut self.lanes[lane].waiting);
        while let Some(to) = self.place(lane)
            && let Some(what) = left.pop_front()
        {
            self.push(to, what);
        }
        left
    }

    /// Whether nothing more is to come for now.
    pub(crate) fn is_full(&self) -> bool {
        self.open().all(|(_, lane)| lane.waiting.len() >= self.most)
    }

    /// Whether more may come again; also if nobody accepts, so that who has connected is told.
    pub(crate) fn is_low(&self) -> bool {
        let mut open = self.open().peekable();
        open.peek().is_none() || open.any(|(_, lane)| lane.waiting.len() <= self.most / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 4;

    fn put(lanes: &mut Lanes<u32>, own: usize, what: u32) -> Option<usize> {
        let lane = lanes.place(own)?;
        lanes.push(lane, what);
        Some(lane)
    }

    fn waiting(lanes: &Lanes<u32>) -> Vec<usize> {
        lanes.lanes.iter().map(|lane| lane.waiting.len()).collect()
    }

    #[test]
    fn each_loop_has_what_comes_to_it() {
        let mut lanes = Lanes::new(2, MOST);
        lanes.take(0);
        lanes.take(1);
        assert_eq!(
            [0, 1, 1, 0].map(|own| put(&mut lanes, own, own as u32)),
            [0, 1, 1, 0].map(Some)
        );
        assert_eq!(
            (lanes.pop(1), lanes.pop(1), lanes.pop(1)),
            (Some(1), Some(1), None)
        );
    }

    #[test]
    fn what_comes_where_nobody_accepts_goes_to_the_others() {
        let mut lanes = Lanes::new(3, MOST);
        // Kept for whoever is first.
        assert_eq!(put(&mut lanes, 1, 10), Some(1));
        lanes.take(2);
        assert_eq!(waiting(&lanes), [0, 0, 1]);
        assert_eq!(put(&mut lanes, 0, 11), Some(2));
        lanes.take(0);
        assert_eq!(put(&mut lanes, 1, 12), Some(0));
        assert!(lanes.close(2).is_empty());
        assert_eq!(waiting(&lanes), [3, 0, 0]);
        // Whose turn is still to come has it, and behind the last nobody.
        assert!(lanes.close(0).is_empty());
        assert_eq!(waiting(&lanes), [0, 3, 0]);
        assert_eq!(put(&mut lanes, 0, 13), Some(1));
        assert_eq!(lanes.close(1), [12, 10, 11, 13]);
        assert_eq!(put(&mut lanes, 0, 14), None);
        assert!(lanes.is_low());
    }

    #[test]
    fn it_is_full_when_all_are_and_low_when_one_is() {
        let mut lanes = Lanes::new(2, MOST);
        lanes.take(0);
        lanes.take(1);
        for what in 0..6 {
            put(&mut lanes, 0, what);
            assert!(!lanes.is_full());
        }
        assert_eq!(waiting(&lanes), [4, 2]);
        put(&mut lanes, 0, 6);
        put(&mut lanes, 0, 7);
        assert!(lanes.is_full() && !lanes.is_low());
        // One that has stopped to accept keeps nobody from it.
        lanes.pop(1);
        assert!(!lanes.is_full() && !lanes.is_low());
        lanes.pop(1);
        assert!(lanes.is_low());
        assert!(lanes.close(0).is_empty());
        assert_eq!(waiting(&lanes), [0, 6]);
        assert!(lanes.is_full());
    }

    #[test]
    fn what_waits_when_a_loop_ends_is_still_accepted() {
        let mut lanes = Lanes::new(1, MOST);
        lanes.take(0);
        put(&mut lanes, 0, 1);
        lanes.end(0);
        lanes.take(0);
        assert_eq!(put(&mut lanes, 0, 2), None);
        assert_eq!(lanes.pop(0), Some(1));
    }
}
