//! Protocols whose requests have one reply each, in their order: all that is theirs is the bytes.

use std::collections::VecDeque;
use std::fmt;

use super::protocol::{Outcomes, Protocol, Then, WrongKind};

/// How requests are made and replies recognised and checked. [`InOrder`] makes a [`Protocol`] of it.
pub(crate) trait RequestReply: Clone + Send {
    /// What is remembered of one connection, such as how much of a reply has been seen.
    type State: Send;

    /// The state of a new connection. `id` is unique within the run.
    fn connection(&self, id: u32) -> Self::State;

    /// Appends the connection's next request to `output`.
    fn append_request(&self, state: &mut Self::State, output: &mut Vec<u8>);

    /// Consumes bytes of `input` (never empty) up to the end of the reply that is being read.
    ///
    /// Returns how many were consumed, and the judgement if that reply is complete. Without one, all of
    /// `input` was consumed and the reply goes on in the next piece.
    fn take_reply(&mut self, state: &mut Self::State, input: &[u8]) -> (usize, Option<Reply>);
}

/// The judgement of one complete reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// All of it is what was expected. `last`: the server said that it closes the connection after it.
    Right { last: bool },
    /// It is not what was expected.
    Wrong(Box<WrongReply>),
}

impl Reply {
    pub(crate) fn wrong(kind: WrongKind, usable: bool, what: String) -> Self {
        Reply::Wrong(Box::new(WrongReply { kind, usable, what }))
    }
}

/// Why a reply was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrongReply {
    pub(crate) kind: WrongKind,
    /// Whether the next reply's start is still known, so that the connection can go on.
    pub(crate) usable: bool,
    /// What differs, for the report.
    pub(crate) what: String,
}

impl fmt::Display for WrongReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

/// A request/reply protocol in which the oldest request outstanding is the one that is answered next.
#[derive(Debug, Clone)]
pub(crate) struct InOrder<P>(pub(crate) P);

/// A connection of [`InOrder`].
#[derive(Debug)]
pub(crate) struct InOrderState<S> {
    bytes: S,
    starts: Starts,
}

impl<P: RequestReply> Protocol for InOrder<P> {
    type State = InOrderState<P::State>;

    fn connection(&self, id: u32, now: u64) -> Self::State {
        InOrderState {
            bytes: self.0.connection(id),
            starts: Starts::new(now),
        }
    }

    fn begin(&mut self, state: &mut Self::State, start: u64, output: &mut Vec<u8>) {
        self.0.append_request(&mut state.bytes, output);
        state.starts.push(start);
    }

    fn take(
        &mut self,
        state: &mut Self::State,
        mut input: &[u8],
        now: u64,
        outcomes: &mut impl Outcomes,
    ) -> Then {
        // Right replies are completed together: those of one write have one start, hence one latency.
        let mut right = 0;
        let then = loop {
            if input.is_empty() {
                break Then::GoOn;
            }
            if state.starts.outstanding() == right {
                outcomes.unexpected(format!(
                    "{} bytes arrived that no request called for",
                    input.len()
                ));
                break Then::GiveUp;
            }
            let (consumed, reply) = self.0.take_reply(&mut state.bytes, input);
            input = &input[consumed..];
            match reply {
                None => break Then::GoOn,
                Some(Reply::Right { last }) => {
                    right += 1;
                    if last {
                        break Then::Announced;
                    }
                }
                Some(Reply::Wrong(wrong)) => {
                    state.complete_right(std::mem::take(&mut right), now, outcomes);
                    state.starts.complete(1, now, |_, _| {});
                    outcomes.wrong(wrong.kind, wrong.what);
                    if !wrong.usable {
                        break Then::GiveUp;
                    }
                }
            }
        };
        state.complete_right(right, now, outcomes);
        then
    }

    fn outstanding(&self, state: &Self::State) -> u32 {
        state.starts.outstanding()
    }

    fn waiting_since(&self, state: &Self::State) -> Option<u64> {
        state.starts.waiting_since()
    }

    fn withdraw(&mut self, state: &mut Self::State, each: &mut impl FnMut(u64, u32)) {
        state.starts.withdraw(each);
    }
}

impl<S> InOrderState<S> {
    fn complete_right(&mut self, count: u32, now: u64, outcomes: &mut impl Outcomes) {
        if count > 0 {
            self.starts
                .complete(count, now, |start, count| outcomes.right(Some(start), count));
        }
    }
}

/// When the requests outstanding on a connection (or a stream) were started: first in, first out, and one entry
/// for all that started together. It allocates only while it grows beyond what it has held before.
#[derive(Debug)]
pub(crate) struct Starts {
    batches: VecDeque<Batch>,
    outstanding: u32,
    /// When something was last completed, or the connection was opened.
    last_completed: u64,
}

/// Requests that started together.
#[derive(Debug)]
struct Batch {
    start: u64,
    count: u32,
}

impl Starts {
    /// None are outstanding at `now`.
    pub(crate) fn new(now: u64) -> Self {
        Starts {
            batches: VecDeque::new(),
            outstanding: 0,
            last_completed: now,
        }
    }

    /// Adds one that starts at `start`.
    pub(crate) fn push(&mut self, start: u64) {
        self.outstanding += 1;
        match self.batches.back_mut() {
            Some(batch) if batch.start == start => batch.count += 1,
            _ => self.batches.push_back(Batch { start, count: 1 }),
        }
    }

    /// Completes the oldest `count` at `now`, giving each group's start and size.
    ///
    /// # Panics
    /// Fewer are outstanding (with debug assertions).
    pub(crate) fn complete(&mut self, mut count: u32, now: u64, mut each: impl FnMut(u64, u32)) {
        debug_assert!(count <= self.outstanding);
        self.outstanding -= count;
        self.last_completed = now;
        while count > 0
            && let Some(batch) = self.batches.front_mut()
        {
            let taken = count.min(batch.count);
            each(batch.start, taken);
            count -= taken;
            batch.count -= taken;
            if batch.count == 0 {
                self.batches.pop_front();
            }
        }
    }

    /// Started and not completed.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Since when the oldest has waited for its turn to be answered.
    pub(crate) fn waiting_since(&self) -> Option<u64> {
        self.batches
            .front()
            .map(|batch| batch.start.max(self.last_completed))
    }

    /// Forgets all, giving each group's start and size.
    pub(crate) fn withdraw(&mut self, each: &mut impl FnMut(u64, u32)) {
        self.outstanding = 0;
        for batch in self.batches.drain(..) {
            each(batch.start, batch.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_completed_first_with_their_start() {
        let mut starts = Starts::new(0);
        for start in [100, 100, 100, 150] {
            starts.push(start);
        }
        let mut seen = Vec::new();
        starts.complete(2, 200, |start, count| seen.push((start, count)));
        starts.complete(2, 300, |start, count| seen.push((start, count)));
        assert_eq!(seen, [(100, 2), (100, 1), (150, 1)]);
        assert_eq!((starts.outstanding(), starts.waiting_since()), (0, None));
    }

    #[test]
    fn a_request_behind_others_waits_from_the_last_reply_on() {
        let mut starts = Starts::new(50);
        starts.push(10);
        starts.push(100);
        assert_eq!(starts.waiting_since(), Some(50), "not before it was opened");
        starts.complete(1, 500, |_, _| {});
        assert_eq!(starts.waiting_since(), Some(500));
        let mut lost = Vec::new();
        starts.withdraw(&mut |start, count| lost.push((start, count)));
        assert_eq!(lost, [(100, 1)]);
        assert_eq!((starts.outstanding(), starts.waiting_since()), (0, None));
    }
}
