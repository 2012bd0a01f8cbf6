//! The handle by which other threads reach a loop.

use std::fmt;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::command::{Command, HandedOver};
use crate::counters::{Counters, LiveCounters};
use crate::errno::Errno;
use crate::id::{ListenerId, LoopIndex};
use crate::sync::{ArrayQueue, AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::wake::Wake;

/// What threads have sent that are not the loop's.
#[derive(Default, Debug)]
struct DirectCounts {
    /// Calls, also those that nothing was sent by.
    calls: AtomicU64,
    sends: AtomicU64,
    pieces: AtomicU64,
    bytes: AtomicU64,
    short: AtomicU64,
}

/// No time within which to drain.
const NO_DRAIN: u64 = u64::MAX;

/// What a loop shares with its remotes.
#[derive(Debug)]
pub(crate) struct Inbox {
    index: LoopIndex,
    commands: ArrayQueue<Command<'static>>,
    /// Places in the queue that are neither taken nor reserved.
    free: AtomicU32,
    wake: Arc<Wake>,
    woken: AtomicBool,
    closed: AtomicBool,
    /// Connections that the loop may have.
    connection_limit: u32,
    /// Those that it has, and accepted ones that wait for a slot there.
    connections: AtomicU32,
    /// Those that were handed over to it and that it has not looked at.
    coming: AtomicU32,
    /// Loops that are about to hand a connection over to this one.
    handing_over: AtomicU32,
    /// The loop drains, and is handed no connection any more: it may end as soon as its own have.
    drains: AtomicBool,
    /// Nanoseconds within which it is to drain, of who found the queue full when he said so.
    drain_within: AtomicU64,
    direct: DirectCounts,
    /// Whether to send directly pays now, as the loop has found.
    direct_sends_pay: AtomicBool,
    /// The engine's and the loop's, from when the loop was made.
    counters: OnceLock<Arc<LiveCounters>>,
}

impl Inbox {
    pub(crate) fn new(index: LoopIndex, capacity: usize, connection_limit: u32) -> Result<Self, Errno> {
        Ok(Self {
            index,
            commands: ArrayQueue::new(capacity),
            free: AtomicU32::new(u32::try_from(capacity).expect("`Config::inbox` is a u32")),
            wake: Arc::new(Wake::new()?),
            woken: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            connection_limit,
            connections: AtomicU32::new(0),
            coming: AtomicU32::new(0),
            handing_over: AtomicU32::new(0),
            drains: AtomicBool::new(false),
            drain_within: AtomicU64::new(NO_DRAIN),
            direct: DirectCounts::default(),
            direct_sends_pay: AtomicBool::new(true),
            counters: OnceLock::new(),
        })
    }

    pub(crate) fn wake_handle(&self) -> Arc<Wake> {
        Arc::clone(&self.wake)
    }

    pub(crate) fn wake_descriptor(&self) -> RawFd {
        self.wake.descriptor()
    }

    pub(crate) fn wake(&self) {
        self.wake.wake();
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.wake.is_asleep()
    }

    /// Sends of other threads than the loop's so far.
    pub(crate) fn direct_sends(&self) -> u64 {
        self.direct.sends.load(Ordering::Relaxed)
    }

    /// Says whether it pays to send directly.
    pub(crate) fn set_direct_sends_pay(&self, pays: bool) {
        self.direct_sends_pay.store(pays, Ordering::Relaxed);
    }

    pub(crate) fn direct_sends_pay(&self) -> bool {
        self.direct_sends_pay.load(Ordering::Relaxed)
    }

    /// Another thread than the loop's has made a call to send so many bytes in so many pieces, and the socket has taken some.
    pub(crate) fn count_direct_send(&self, pieces: usize, bytes: usize, taken: usize) {
        let add = |count: &AtomicU64, more: usize| count.fetch_add(more as u64, Ordering::Relaxed);
        add(&self.direct.calls, 1);
        if taken > 0 {
            add(&self.direct.sends, 1);
            add(&self.direct.pieces, pieces);
            add(&self.direct.bytes, taken);
        }
        if (1..bytes).contains(&taken) {
            add(&self.direct.short, 1);
        }
    }

    /// Another thread than the loop's has made a call to send a datagram. What it has sent counts with its socket.
    pub(crate) fn count_direct_datagram(&self) {
        self.direct.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wake_writes(&self) -> u64 {
        self.wake.writes()
    }

    pub(crate) fn prepare_sleep(&self) -> bool {
        self.wake.prepare_sleep()
    }

    pub(crate) fn notifier(&self) -> Result<RawFd, Errno> {
        self.wake.notifier()
    }

    pub(crate) fn prepare_park(&self) -> bool {
        self.wake.prepare_park()
    }

    pub(crate) fn end_sleep(&self) -> bool {
        self.wake.end_sleep()
    }

    pub(crate) fn is_notified(&self) -> bool {
        self.wake.is_notified()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.commands.capacity()
    }

    pub(crate) fn pop(&self) -> Option<Command<'static>> {
        let command = self.commands.pop()?;
        // Whoever takes the place finds the queue with room.
        self.free.fetch_add(1, Ordering::Release);
        Some(command)
    }

    /// Takes a place in the queue, if one is free.
    fn take_place(&self) -> bool {
        let mut free = self.free.load(Ordering::Relaxed);
        while let Some(left) = free.checked_sub(1) {
            match self
                .free
                .compare_exchange_weak(free, left, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(other) => free = other,
            }
        }
        false
    }

    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn set_connections(&self, count: u32) {
        self.connections.store(count, Ordering::Relaxed);
    }

    /// One that was handed over counts among the loop's own from now on.
    pub(crate) fn has_come(&self) {
        let before = self.coming.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "each was counted when it was handed over");
    }

    /// Connections that the loop has, and those that are on their way to it.
    fn all_connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed) + self.coming.load(Ordering::Relaxed)
    }

    /// Keeps a place for a connection that is to be handed over; false if there is none. Of several that ask for the last at
    /// once perhaps nobody has it.
    fn keep_place(&self) -> bool {
        self.coming.fetch_add(1, Ordering::Relaxed);
        let kept = self.all_connections() <= self.connection_limit;
        if !kept {
            self.has_come();
        }
        kept
    }

    /// The loop begins to drain: from now on it is handed no connection, but for those of [`Self::may_be_handed_more`].
    pub(crate) fn begin_to_drain(&self) {
        self.drains.store(true, Ordering::SeqCst);
    }

    /// Tells the loop to drain within this time, or the shorter one of another who has told it so, and wakes it.
    fn drain_within(&self, within: Duration) {
        let within = u64::try_from(within.as_nanos()).unwrap_or(NO_DRAIN);
        let within = within.min(NO_DRAIN - 1);
        let mut told = self.drain_within.load(Ordering::Relaxed);
        while within < told {
            let exchanged =
                self.drain_within
                    .compare_exchange_weak(told, within, Ordering::Relaxed, Ordering::Relaxed);
            match exchanged {
                Ok(_) => break,
                Err(other) => told = other,
            }
        }
        self.wake();
    }

    /// What [`Self::drain_within`] has told, once.
    pub(crate) fn take_drain(&self) -> Option<Duration> {
        // Mostly there is none, and then this is a plain load.
        if self.drain_within.load(Ordering::Relaxed) == NO_DRAIN {
            return None;
        }
        let within = self.drain_within.swap(NO_DRAIN, Ordering::Relaxed);
        Some(Duration::from_nanos(within))
    }

    /// Whether a connection is on its way from another loop, or may be: to be asked when the loop drains, until it says no.
    /// Whoever hands one over says so, and only then looks whether this loop drains; so one of the two sees the other.
    pub(crate) fn may_be_handed_more(&self) -> bool {
        self.handing_over.load(Ordering::SeqCst) > 0 || !self.is_empty()
    }

    /// Lets other threads read these.
    pub(crate) fn show_counters(&self, counters: Arc<LiveCounters>) {
        let shown = self.counters.set(counters);
        assert!(shown.is_ok(), "one loop has the inbox");
    }

    pub(crate) fn counters(&self) -> Counters {
        let live = self.counters.get().expect("shown when the loop was made");
        let counters = live.snapshot();
        let direct = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let direct_sends = self.direct_sends();
        Counters {
            wake_writes: self.wake_writes(),
            direct_sends,
            system_calls: counters.system_calls + direct(&self.direct.calls),
            sends: counters.sends + direct_sends,
            send_pieces: counters.send_pieces + direct(&self.direct.pieces),
            sent_bytes: counters.sent_bytes + direct(&self.direct.bytes),
            short_sends: counters.short_sends + direct(&self.direct.short),
            ..counters
        }
    }

    /// The loop is gone: nothing more is taken, and what waits is dropped.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.discard();
    }

    fn discard(&self) {
        while self.pop().is_some() {}
    }
}

/// Reaches a loop from any thread. Cheap to clone, and usable for as long as one likes: a loop that is gone
/// refuses commands, and wakes do nothing.
#[derive(Clone)]
pub struct Remote {
    inbox: Arc<Inbox>,
}

/// A command was not posted. It comes back.
#[derive(Debug)]
pub enum PostError {
    /// The inbox is full ([`Config::inbox`](crate::Config::inbox)); the loop has been woken to empty it.
    Full(Command<'static>),
    /// The loop is gone.
    Closed(Command<'static>),
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            Self::Full(_) => ReserveError::Full,
            Self::Closed(_) => ReserveError::Closed,
        };
        why.fmt(f)
    }
}

impl std::error::Error for PostError {}

/// No place was reserved for a command ([`Remote::reserve`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReserveError {
    /// As [`PostError::Full`].
    Full,
    /// As [`PostError::Closed`].
    Closed,
}

impl ReserveError {
    fn with(self, command: Command<'static>) -> PostError {
        match self {
            Self::Full => PostError::Full(command),
            Self::Closed => PostError::Closed(command),
        }
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the loop's inbox is full; try again when it has caught up",
            Self::Closed => "the loop is gone",
        })
    }
}

impl std::error::Error for ReserveError {}

/// A place in a loop's inbox, for one command. Dropped without one, it is free again.
#[must_use = "dropped, it gives its place back"]
#[derive(Debug)]
pub struct Permit<'a> {
    inbox: &'a Inbox,
}

impl Permit<'_> {
    /// Posts a command, as [`Remote::post`] does; there is room for it. If the loop has gone since the place was reserved,
    /// the command is dropped.
    pub fn post(self, command: Command<'static>) {
        let inbox = self.inbox;
        // The command takes the place over, until it is popped.
        std::mem::forget(self);
        let pushed = inbox.commands.push(command);
        assert!(pushed.is_ok(), "a place was reserved");
        inbox.wake.wake();
        if inbox.closed.load(Ordering::SeqCst) {
            // The loop went away meanwhile and may have missed it.
            inbox.discard();
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.inbox.free.fetch_add(1, Ordering::Release);
    }
}

impl Remote {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self { inbox }
    }

    /// The loop's number.
    #[must_use]
    pub fn loop_index(&self) -> LoopIndex {
        self.inbox.index
    }

    /// Posts a command; the loop carries it out in its present or next turn, in the order in which this thread
    /// posted. A refusal becomes an event of the loop's. If the loop is dropped first, so is the command.
    ///
    /// # Errors
    /// [`PostError`], with the command.
    pub fn post(&self, command: Command<'static>) -> Result<(), PostError> {
        match self.reserve() {
            Ok(permit) => permit.post(command),
            Err(error) => return Err(error.with(command)),
        }
        Ok(())
    }

    /// Reserves a place for one command: for whoever must know that it will be taken before it is made.
    ///
    /// # Errors
    /// [`ReserveError`].
    pub fn reserve(&self) -> Result<Permit<'_>, ReserveError> {
        if self.inbox.closed.load(Ordering::SeqCst) {
            return Err(ReserveError::Closed);
        }
        if self.inbox.take_place() {
            return Ok(Permit { inbox: &self.inbox });
        }
        self.inbox.wake.wake();
        Err(ReserveError::Full)
    }

    /// Makes the loop report [`Event::Woken`](crate::Event::Woken). Wakes that come before it does are one. No
    /// system call is made unless the loop sleeps.
    pub fn wake(&self) {
        if !self.inbox.woken.swap(true, Ordering::AcqRel) {
            self.inbox.wake.wake();
        }
    }

    /// Posts [`Command::Drain`], for which there is always room: who drains may be the loop's own handler, which nobody else
    /// empties the inbox for. Does nothing once the loop is gone.
    pub(crate) fn drain(&self, within: Duration) {
        if let Err(PostError::Full(_)) = self.post(Command::Drain { within }) {
            self.inbox.drain_within(within);
        }
    }

    /// The loop's counters, at any moment; but `connections`, `pool_leased`, `pool_low_water`, `send_chunks_used` and
    /// `leases_copied_now` are as they were when the loop last looked for completions.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inbox.counters()
    }

    /// Hands over a connection that another loop has accepted. It is refused by a loop that has as many as it may, whose inbox
    /// is full, or that drains: that may end before it looks.
    ///
    /// # Errors
    /// The descriptor comes back.
    pub(crate) fn hand_over(&self, listener: ListenerId, descriptor: OwnedFd) -> Result<(), OwnedFd> {
        let inbox = &self.inbox;
        inbox.handing_over.fetch_add(1, Ordering::SeqCst);
        let result = if !inbox.drains.load(Ordering::SeqCst) && inbox.keep_place() {
            // Counted before the loop does, so that a burst of them is spread.
            let command = Command::TakeOver(HandedOver { listener, descriptor });
            self.post(command).map_err(|error| {
                inbox.has_come();
                let (PostError::Full(command) | PostError::Closed(command)) = error;
                let Command::TakeOver(HandedOver { descriptor, .. }) = command else {
                    unreachable!("what was not posted comes back");
                };
                descriptor
            })
        } else {
            Err(descriptor)
        };
        inbox.handing_over.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Whether the loop may be handed connections: it neither drains nor has it ended.
    pub(crate) fn takes_connections(&self) -> bool {
        !self.inbox.drains.load(Ordering::Relaxed) && !self.inbox.closed.load(Ordering::Relaxed)
    }

    /// Connections that the loop could still take, a moment ago.
    pub(crate) fn connection_room(&self) -> u32 {
        self.room_beside(self.connections())
    }

    /// The same, of one that has so many.
    pub(crate) fn room_beside(&self, connections: u32) -> u32 {
        let room = self.inbox.connection_limit.saturating_sub(connections);
        if self.takes_connections() { room } else { 0 }
    }

    /// Connections of the loop and those that other loops have handed over to it, a moment ago: for spreading new ones.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.inbox.all_connections()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote(loop {})", self.inbox.index.get())
    }
}

#[cfg(not(quoit_loom))]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::Token;

    fn numbered(number: u64) -> Command<'static> {
        Command::SetTimer {
            after: Duration::ZERO,
            token: Token(number),
        }
    }

    fn number(command: &Command<'_>) -> u64 {
        match command {
            Command::SetTimer { token, .. } => token.0,
            other => panic!("{other:?}"),
        }
    }

    fn pair(capacity: usize) -> (Arc<Inbox>, Remote) {
        let inbox = Arc::new(Inbox::new(LoopIndex::default(), capacity, 2).unwrap());
        (Arc::clone(&inbox), Remote::new(inbox))
    }

    #[test]
    fn commands_come_out_in_order_and_a_full_inbox_gives_the_command_back() {
        let (inbox, remote) = pair(3);
        (0..3).for_each(|number| remote.post(numbered(number)).unwrap());
        match remote.post(numbered(3)) {
            Err(PostError::Full(back)) => assert_eq!(number(&back), 3),
            other => panic!("{other:?}"),
        }
        assert!(!inbox.prepare_sleep(), "there is work");
        for expected in 0..3 {
            assert_eq!(number(&inbox.pop().unwrap()), expected);
        }
        assert!(inbox.is_empty());
        remote.post(numbered(4)).unwrap();
    }

    #[test]
    fn a_full_inbox_wakes_the_loop_that_is_to_empty_it() {
        let (inbox, remote) = pair(1);
        remote.post(numbered(0)).unwrap();
        assert!(inbox.end_sleep());
        assert!(inbox.prepare_sleep());
        assert!(matches!(remote.post(numbered(1)), Err(PostError::Full(_))));
        assert_eq!(inbox.wake_writes(), 1);
        assert!(inbox.end_sleep());
    }

    #[test]
    fn a_reserved_place_is_nobody_elses_until_it_is_dropped() {
        let (inbox, remote) = pair(2);
        let permit = remote.reserve().unwrap();
        remote.post(numbered(0)).unwrap();
        assert!(matches!(remote.post(numbered(1)), Err(PostError::Full(_))));
        assert_eq!(remote.reserve().unwrap_err(), ReserveError::Full);
        permit.post(numbered(2));
        assert_eq!(number(&inbox.pop().unwrap()), 0);
        let permit = remote.reserve().unwrap();
        assert_eq!(remote.reserve().unwrap_err(), ReserveError::Full);
        drop(permit);
        let permit = remote.reserve().unwrap();
        assert_eq!(number(&inbox.pop().unwrap()), 2);
        inbox.close();
        permit.post(numbered(3));
        assert!(
            inbox.is_empty(),
            "what is posted to a loop that has gone is dropped"
        );
        assert_eq!(remote.reserve().unwrap_err(), ReserveError::Closed);
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls")]
    fn closing_drops_what_waits_and_refuses_what_comes() {
        let (inbox, remote) = pair(2);
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        remote
            .post(Command::Attach {
                descriptor: near.into(),
                options: crate::AttachOptions::default(),
                token: Token::NONE,
            })
            .unwrap();
        inbox.close();
        assert_eq!(
            std::io::Read::read(&mut &far, &mut [0]).unwrap(),
            0,
            "it was dropped"
        );
        match remote.post(numbered(7)) {
            Err(PostError::Closed(back)) => assert_eq!(number(&back), 7),
            other => panic!("{other:?}"),
        }
        assert!(inbox.is_empty());
    }

    #[test]
    fn wakes_before_the_loop_looks_are_one() {
        let (inbox, remote) = pair(1);
        assert!(inbox.prepare_sleep());
        (0..5).for_each(|_| remote.wake());
        assert_eq!(inbox.wake_writes(), 1);
        assert!(inbox.end_sleep());
        assert!(inbox.take_woken());
        assert!(!inbox.take_woken());
        assert!(inbox.prepare_sleep());
        remote.wake();
        assert!(
            inbox.end_sleep() && inbox.take_woken(),
            "the next one counts again"
        );
    }
}
