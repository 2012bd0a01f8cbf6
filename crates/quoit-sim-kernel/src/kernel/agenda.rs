//! What will happen, and the passing of time.

use std::rc::Rc;

use super::object::ObjectId;
use super::ring::RingId;
use super::{Kernel, with};
use crate::faults::Fault;

/// Something that happens at its time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// A peer goes on.
    Peer(usize),
    /// What is on the way to a socket arrives.
    Arrive(ObjectId),
    /// A socket that was full has room.
    Space(ObjectId),
    /// A connection attempt ends.
    Connected(ObjectId),
    /// The notification of a zero-copy send is due.
    Notify(RingId, u64),
    /// A request that was delayed goes on.
    Nudge(RingId, u64),
    /// Another thread does something.
    Outside(u64),
    /// Another thread's loop has a turn.
    OtherLoop,
    /// A datagram reaches its end.
    DatagramArrives(u64),
    /// A datagram socket has room again.
    DatagramRoom(u64),
    /// A peer of datagrams sends.
    DatagramPeer(usize),
}

/// What another thread does, in its place in the order of things.
pub type Job = Box<dyn FnOnce()>;

/// A loop that lives on another thread.
pub(super) struct OtherLoop {
    turn: Rc<dyn Fn()>,
    is_due: bool,
}

/// How far a wait has come.
pub(crate) enum Step {
    /// Something happened; look again.
    Moved,
    /// Another thread's turn: to be called without holding the kernel.
    Job(Job),
    /// The time is over.
    TimedOut,
    /// Nothing will ever happen.
    Never,
}

/// What is planned, by its time; what has the same time, in the order in which it was planned.
///
/// A list in order, as it is mostly short. It has numbers alone, which are quickly compared and moved: the time, a
/// number that counts what was planned, and the place of the action.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// The first is the last.
    entries: Vec<u128>,
    planned: u64,
    actions: Vec<Action>,
    free: Vec<u32>,
}

/// Bits of an entry for the place of its action; those above count, and the upper half is the time.
const PLACE_BITS: u32 = u32::BITS;

impl Agenda {
    fn push(&mut self, time: u64, action: Action) {
        let place = match self.free.pop() {
            Some(place) => {
                self.actions[place as usize] = action;
                place
            }
            None => {
                self.actions.push(action);
                self.actions.len() as u32 - 1
            }
        };
        self.planned += 1;
        let number = self.planned << PLACE_BITS | u64::from(place);
        let entry = u128::from(time) << u64::BITS | u128::from(number);
        let position = self.entries.partition_point(|&other| other > entry);
        self.entries.insert(position, entry);
    }

    /// When the first is due.
    fn first(&self) -> Option<u64> {
        let entry = self.entries.last()?;
        Some((entry >> u64::BITS) as u64)
    }

    /// Takes the first out if it is due, with its time.
    fn pop(&mut self, now: u64) -> Option<(u64, Action)> {
        let time = self.first().filter(|&time| time <= now)?;
        let entry = self.entries.pop()?;
        let place = entry as u32;
        self.free.push(place);
        Some((time, self.actions[place as usize]))
    }
}

impl Kernel {
    pub(super) fn plan(&mut self, after: u64, action: Action) {
        self.agenda.push(self.now + after, action);
    }

    /// Plans what another thread is to do.
    pub fn plan_job(&mut self, after: u64, job: Job) {
        let number = self.next_job;
        self.next_job += 1;
        self.jobs.insert(number, job);
        self.plan(after, Action::Outside(number));
    }

    /// Another thread has a loop, whose turns are these calls.
    pub fn start_other_loop(&mut self, turn: Rc<dyn Fn()>) {
        self.other_loop = Some(OtherLoop { turn, is_due: true });
    }

    /// The other loop has its next turn after so many nanoseconds.
    pub fn plan_other_loop(&mut self, after: u64) {
        self.plan(after, Action::OtherLoop);
    }

    /// The other loop has no more turns.
    pub fn stop_other_loop(&mut self) {
        self.other_loop = None;
    }

    /// What another thread is to do now.
    fn take_due_job(&mut self) -> Option<Job> {
        if let Some(other) = &mut self.other_loop
            && std::mem::take(&mut other.is_due)
        {
            let turn = Rc::clone(&other.turn);
            return Some(Box::new(move || turn()));
        }
        self.due_jobs.pop_front()
    }

    /// Nothing more is done by other threads.
    pub fn take_jobs(&mut self) -> Vec<Job> {
        let planned = std::mem::take(&mut self.jobs);
        let due = std::mem::take(&mut self.due_jobs);
        planned.into_values().chain(due).collect()
    }

    /// Jobs that are planned and not done.
    #[must_use]
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty() || !self.due_jobs.is_empty()
    }

    /// A call takes its time, and what is due meanwhile happens.
    pub(crate) fn pass(&mut self) {
        self.now += self.random.between(50, 2000);
        self.do_due();
    }

    fn do_due(&mut self) {
        while let Some((time, action)) = self.agenda.pop(self.now) {
            self.act(action, time);
        }
    }

    fn act(&mut self, action: Action, planned: u64) {
        match action {
            Action::Peer(peer) => self.play(peer, planned),
            Action::Arrive(object) => self.arrive(object),
            Action::Space(object) => self.tell_space(object),
            Action::Connected(object) => self.finish_connecting(object),
            Action::Notify(ring, notification) => self.notify(ring, notification),
            Action::Nudge(ring, request) => self.nudge(ring, request),
            Action::DatagramArrives(number) => self.datagram_arrives(number),
            Action::DatagramRoom(number) => self.give_room(number),
            Action::DatagramPeer(peer) => self.play_datagram_peer(peer),
            Action::OtherLoop => {
                if let Some(other) = &mut self.other_loop {
                    other.is_due = true;
                }
            }
            Action::Outside(number) => {
                let job = self.jobs.remove(&number);
                self.counts.incidents.other_threads += 1;
                self.due_jobs.extend(job);
            }
        }
    }

    /// Goes on to the next thing that happens, but not past `end` (`None`: as far as it takes).
    pub(crate) fn step(&mut self, end: Option<u64>) -> Step {
        if let Some(job) = self.take_due_job() {
            return Step::Job(job);
        }
        if self.strikes(Fault::ClockJump) {
            // As after a suspended machine, or a process that was not scheduled.
            self.now += self.random.magnitude(60_000_000_000);
            self.do_due();
            return Step::Moved;
        }
        match self.agenda.first() {
            Some(time) if end.is_none_or(|end| time <= end) => {
                self.now = self.now.max(time);
                self.do_due();
                Step::Moved
            }
            _ => match end {
                Some(end) => {
                    self.now = self.now.max(end);
                    Step::TimedOut
                }
                None => Step::Never,
            },
        }
    }
}

/// Lets the other threads do what is due.
pub fn do_jobs() {
    while let Some(job) = with(Kernel::take_due_job) {
        job();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(agenda: &mut Agenda, now: u64) -> Vec<(u64, usize)> {
        std::iter::from_fn(|| agenda.pop(now))
            .map(|(time, action)| match action {
                Action::Peer(number) => (time, number),
                other => panic!("{other:?} was not planned"),
            })
            .collect()
    }

    #[test]
    fn what_is_planned_for_one_time_happens_in_the_order_of_planning() {
        let mut agenda = Agenda::default();
        for (number, time) in [5, 3, 5, 3, 9].into_iter().enumerate() {
            agenda.push(time, Action::Peer(number));
        }
        assert_eq!(agenda.first(), Some(3));
        assert_eq!(numbers(&mut agenda, 5), [(3, 1), (3, 3), (5, 0), (5, 2)]);
        // Places that are used again say nothing of the order.
        for number in 5..8 {
            agenda.push(9, Action::Peer(number));
        }
        assert_eq!(numbers(&mut agenda, 8), []);
        assert_eq!(numbers(&mut agenda, 9), [(9, 4), (9, 5), (9, 6), (9, 7)]);
        assert_eq!(agenda.first(), None);
    }
}
