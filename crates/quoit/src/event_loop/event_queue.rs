//! What a loop has to report and has not reported yet.

use std::collections::VecDeque;

use crate::event::{Event, Events};

/// Events in the order in which they are reported.
///
/// A pause or a close concerns what is queued already, too. Nothing is looked for then: it is noted how much is queued, and so
/// much is looked at when it is taken out. Each event is looked at once for it, however many connections are paused or closed.
#[derive(Debug)]
pub(super) struct EventQueue {
    list: VecDeque<Event>,
    /// Whether some of these may tell that a stream or a connection has ended.
    may_end: bool,
    /// Of these, counted from the front, some may not be wanted any more.
    unchecked: usize,
    /// Events that were ever taken out, less those that were put back.
    taken: u64,
    /// How many were ever looked at.
    looked_at: u64,
    /// Where the events end that were left over before, counted as those that were taken out.
    surplus_end: u64,
}

impl EventQueue {
    /// One with room for so many events, which grows when it is full.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            list: VecDeque::with_capacity(capacity),
            may_end: false,
            unchecked: 0,
            taken: 0,
            looked_at: 0,
            surplus_end: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.list.iter()
    }

    #[inline]
    pub(super) fn push_back(&mut self, event: Event) {
        self.may_end |= tells_of_an_end(&event);
        self.list.push_back(event);
    }

    pub(super) fn reserve(&mut self, additional: usize) {
        self.list.reserve(additional);
    }

    /// Puts an event back that was taken out: it comes before all others.
    pub(super) fn put_back(&mut self, event: Event) {
        self.may_end |= tells_of_an_end(&event);
        self.list.push_front(event);
        self.unchecked += 1;
        self.taken -= 1;
    }

    /// Puts events back that were taken out and looked at: they come before all others, in their order.
    pub(super) fn put_checked_back(&mut self, events: Vec<Event>) {
        debug_assert_eq!(self.unchecked, 0);
        self.taken -= events.len() as u64;
        for event in events.into_iter().rev() {
            self.may_end |= tells_of_an_end(&event);
            self.list.push_front(event);
        }
    }

    /// Whether there may be one that tells that a stream or a connection has ended.
    pub(super) fn may_end(&self) -> bool {
        self.may_end
    }

    /// What is queued now is looked at when it is taken out.
    pub(super) fn check_queued(&mut self) {
        self.unchecked = self.list.len();
    }

    /// Takes out the first event, if it is one to look at.
    pub(super) fn take_unchecked(&mut self) -> Option<Event> {
        self.unchecked = self.unchecked.checked_sub(1)?;
        self.taken += 1;
        self.looked_at += 1;
        self.list.pop_front()
    }

    /// Whether there are events to look at.
    pub(super) fn has_unchecked(&self) -> bool {
        self.unchecked > 0
    }

    /// Takes out all others too, as far as there is room for them in `events`. None of them is to be looked at.
    #[inline]
    pub(super) fn report(&mut self, events: &mut Events) {
        debug_assert!(self.unchecked == 0 || events.room() == 0);
        let before = self.list.len();
        if !events.take_over(&mut self.list) {
            events.take_some(&mut self.list);
        }
        self.taken += (before - self.list.len()) as u64;
        self.may_end &= !self.list.is_empty();
    }

    /// How many events are left over for the first time, now that a turn has reported what it has room for.
    pub(super) fn note_surplus(&mut self) -> u64 {
        let end = self.end();
        let before = std::mem::replace(&mut self.surplus_end, end);
        end - before.clamp(self.taken, end)
    }

    /// Events that will have been taken out once the last one of now has been.
    pub(super) fn end(&self) -> u64 {
        self.taken + self.list.len() as u64
    }

    /// Events that were looked at, each as often as it was.
    pub(super) fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Events that were taken out.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }
}

impl Extend<Event> for EventQueue {
    fn extend<T: IntoIterator<Item = Event>>(&mut self, events: T) {
        for event in events {
            self.push_back(event);
        }
    }
}

#[inline]
fn tells_of_an_end(event: &Event) -> bool {
    matches!(event, Event::EndOfStream { .. } | Event::Closed { .. })
}
