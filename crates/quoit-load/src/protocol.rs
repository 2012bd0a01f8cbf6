//! What a protocol contributes to a run: what is written, and the judgement of what comes back.
//!
//! A protocol owns no socket, reads no clock and knows nothing of pacing. It is given the byte stream of each
//! connection in whatever pieces the kernel delivers, and must judge the same units however the stream is cut.
//! Times are nanoseconds of the run's clock.
//!
//! What pacing decides on and what is counted need not be the same. Pacing lets a protocol *begin* something: a
//! request, or a stream. What comes of it is *completed* in units that are counted, each with a latency of its own
//! or none: one reply per request, or any number of messages per stream. A protocol with one reply per request, in
//! order, implements [`super::request_reply::RequestReply`] and leaves the rest to
//! [`super::request_reply::InOrder`].

/// Requests are batched for one write up to about this many bytes.
pub(crate) const BATCH_BYTES: usize = 128 * 1024;

/// How connections are used and what they receive is judged. Each thread has a clone of its own.
///
/// The order of calls for a connection: [`Protocol::connection`] when it is open; then [`Protocol::take`] for what
/// arrives, followed by [`Protocol::respond`] and as many [`Protocol::begin`] as are due, whose bytes leave in one
/// write; at the end [`Protocol::wind_down`], and [`Protocol::withdraw`] when the connection is gone.
pub(crate) trait Protocol: Clone + Send {
    /// What is remembered of one connection.
    type State: Send;

    /// Whether everything begun is completed as exactly one unit. If so, a run of N requests begins no more than N;
    /// if not, it begins until N are completed, and what is completed beyond is not counted.
    const ONE_UNIT_EACH: bool = true;

    /// The state of a connection that was opened at `now`. `id` is unique within the run; a reopened connection
    /// gets a new one.
    fn connection(&self, id: u32, now: u64) -> Self::State;

    /// Begins one request or stream, by appending it to `output`. Its latency counts from `start`, which lies
    /// before the present if it was due earlier.
    fn begin(&mut self, state: &mut Self::State, start: u64, output: &mut Vec<u8>);

    /// Appends what the connection has to write without a decision of pacing: credit for the server. Called before
    /// [`Protocol::begin`] whenever something was received and the kernel has room: what a fresh stream has to say at
    /// once, `begin` appends itself.
    fn respond(&mut self, state: &mut Self::State, output: &mut Vec<u8>) {
        let _ = (state, output);
    }

    /// Appends what ends early whatever would not end by itself, such as an endless stream. Called once, after
    /// which nothing is begun and [`Protocol::respond`] must open nothing either.
    fn wind_down(&mut self, state: &mut Self::State, output: &mut Vec<u8>) {
        let _ = (state, output);
    }

    /// Takes all of `input` (never empty), which arrived at `now`, and reports what it completed.
    fn take(&mut self, state: &mut Self::State, input: &[u8], now: u64, outcomes: &mut impl Outcomes)
    -> Then;

    /// Requests or streams begun that have not come to their end. Pacing keeps this at `--pipeline` at most, and
    /// the end of a run waits for it to become zero.
    fn outstanding(&self, state: &Self::State) -> u32;

    /// Since when the connection has owed an answer without sending any: what timeouts are measured from. `None`
    /// if it owes nothing.
    fn waiting_since(&self, state: &Self::State) -> Option<u64>;

    /// Forgets all that was begun and not completed, giving the start and number of each group, oldest first. The
    /// connection has ended: they are lost, or are begun again on another one.
    fn withdraw(&mut self, state: &mut Self::State, each: &mut impl FnMut(u64, u32));
}

/// Where a protocol reports what was completed.
pub(crate) trait Outcomes {
    /// `count` units are all that was expected. Their latency counts from `start`; `None`: they have none, as
    /// messages that the server sends by itself.
    fn right(&mut self, start: Option<u64>, count: u32);

    /// A whole stream of units, begun at `start`, came to its right end.
    fn stream(&mut self, start: u64);

    /// One unit is not what was expected.
    fn wrong(&mut self, kind: WrongKind, what: String);

    /// Something came that nothing called for. It completes nothing, and is an error of its content.
    fn unexpected(&mut self, what: String);
}

/// How a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    GoOn,
    /// The server said that it closes the connection: what is outstanding may be begun again elsewhere.
    Announced,
    /// Something wrong was reported after which the stream cannot be understood.
    GiveUp,
}

/// The kinds of wrong units that a report counts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongKind {
    /// Bytes differ from what was expected, or cannot be understood.
    Content,
    /// A status other than the one expected: in HTTP, 200.
    Status,
}
