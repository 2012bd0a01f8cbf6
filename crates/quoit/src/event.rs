//! What a turn reports.
//!
//! # What may follow what
//!
//! For one connection, from left to right; a star is any number, a question mark at most one:
//!
//! | made by | first | then, in any order | last |
//! |---|---|---|---|
//! | a listener | `Accepted` | `Data`* `EndOfStream`? `Sent`* `Writable`* `SendFailed`? `Pressure`* `Deadline`* | `Closed` |
//! | `Attach` | `Opened` | the same | `Closed` |
//! | `Connect` | `Connecting` (only for a command of a batch), `Opened` | the same | `Closed` |
//! | `Connect` that fails | `Connecting` (likewise) | | `Closed` |
//!
//! - Exactly one `Closed` a connection, always its last event. After it the id is stale, all memory that was
//!   lent for sending is free, and sends that no `Sent` had acknowledged may or may not have reached the peer.
//!   Where both directions have ended in their own time, after a graceful close or without, none of them is left:
//!   then all were acknowledged before.
//! - No `Data` follows `EndOfStream`, and neither comes after the turn that carries a `Pause` out, until
//!   `Resume`.
//! - No `Sent` and no `Writable` of what is sent later follows `SendFailed`.
//! - `Writable` comes once after the queue was full: a send was refused, or the high-water mark was reached.
//! - After a graceful close or an abort was asked for, only `Sent`, `FileShort` and `Closed` follow.
//!
//! For one datagram socket:
//!
//! | first | then, in any order | last |
//! |---|---|---|
//! | `DatagramOpened` | `Datagrams`* `DatagramSent`* `DatagramError`* `DatagramWritable`* `DatagramPressure`* | `DatagramClosed` |
//!
//! - Exactly one `DatagramClosed` a socket, always its last event. After it the id is stale, and all memory that was
//!   lent for sending is free.
//! - No `Datagrams` comes after the turn that carries a pause out, until the socket is resumed.
//! - `DatagramWritable` comes once after the queue was full, as `Writable` does.
//! - No error ends a socket but one of the descriptor itself, which `DatagramClosed` then names.
//! - After a close was asked for, only `DatagramSent`, `DatagramError` of what was still queued, and `DatagramClosed`
//!   follow.
//!
//! # What answers a command
//!
//! | command | on success | on failure |
//! |---|---|---|
//! | `Connect` | `Connecting`, then `Opened` | `Refused`, or `Closed` |
//! | `Attach` | `Opened`, or `Accepted` if it was made so | `Refused` |
//! | `Send` copied, or with [`Token::NONE`] | silent | `Refused`, or `Closed` |
//! | `Send` lent, `SendFile`, with a token | `Sent` with this or a later token | `Refused`, or `Closed` |
//! | `SendFile` with `OnShort::Tell` | the same, or `FileShort` in its place | `Refused`, or `Closed` |
//! | `Shutdown`, `Pause`, `Resume`, `SetDeadline` | silent | `Refused` |
//! | `Close`, `Abort` | `Closed` | `Refused` |
//! | `SetTimer` | `Timer` | `Refused` |
//! | `CancelTimer` | silent; no `Timer` follows | silent: it had fired or never been set |
//! | `PauseListening`, `ResumeListening` | silent | `Refused` |
//! | `StopListening` | `ListenerClosed` | `Refused` |
//! | `OpenDatagram` | `DatagramOpened` | `DatagramRefused` |
//! | `SendDatagrams`, each with [`Token::NONE`] | silent | `DatagramRefused`, `DatagramError`, or `DatagramClosed` |
//! | `SendDatagrams`, each with a token | `DatagramSent` | `DatagramRefused`, `DatagramSent` with the error, or `DatagramClosed` |
//! | `PauseDatagrams`, `ResumeDatagrams`, `SetMembership` | silent | `DatagramRefused` |
//! | `CloseDatagram` | `DatagramClosed` | `DatagramRefused` |
//! | `Drain` | `Draining`, in the end `Drained` | |
//! | `Refuse` | | `Refused`, always |
//! | returning a lease | silent | |

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::datagram::{Datagrams, Unreachable};
use crate::errno::Errno;
use crate::id::{ConnectionId, DatagramSocketId, ListenerId, Token};
use crate::pool::Lease;

/// One thing that happened. The module's page says what may follow what.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A listener has a new connection.
    Accepted {
        /// The listener; of another loop, if that one handed the connection over.
        listener: ListenerId,
        /// The connection.
        connection: ConnectionId,
    },
    /// A listener made with [`Accept::Descriptors`](crate::Accept::Descriptors) has a new connection, which
    /// belongs to no loop yet.
    AcceptedDescriptor {
        /// The listener.
        listener: ListenerId,
        /// The connected socket.
        descriptor: OwnedFd,
    },
    /// A `Connect` command was taken; the id can be used to close, and to queue sends.
    Connecting {
        /// The connection to be.
        connection: ConnectionId,
        /// The command's.
        token: Token,
    },
    /// A connection is established, or attached.
    Opened {
        /// The connection.
        connection: ConnectionId,
        /// The command's.
        token: Token,
    },
    /// Bytes were received.
    Data {
        /// The connection.
        connection: ConnectionId,
        /// The bytes, at least one.
        data: Lease,
    },
    /// The peer has ended its sending direction (FIN). This end may go on sending; the connection closes when
    /// both directions have ended, or by command.
    EndOfStream {
        /// The connection.
        connection: ConnectionId,
    },
    /// Lent memory is free again, and has been taken by the kernel in order: all of this connection's sends up
    /// to this token.
    Sent {
        /// The connection.
        connection: ConnectionId,
        /// That of the last send acknowledged.
        token: Token,
    },
    /// A file that was sent with [`OnShort::Tell`](crate::OnShort::Tell) has ended before its range did, or could not be read
    /// on. What there was of it has been taken by the kernel, and what is queued behind it follows. It comes in the place
    /// of [`Event::Sent`], also without a token, and says nothing of earlier sends.
    FileShort {
        /// The connection, which goes on.
        connection: ConnectionId,
        /// The send's.
        token: Token,
        /// Bytes of the range that were not sent, at least one.
        missing: u64,
        /// What reading failed with: `EINVAL` is of a file that `sendfile(2)` does not take. `None`: the file has ended.
        error: Option<Errno>,
    },
    /// The queue was full (a send was refused, or the high-water mark was reached); now it is at or below its
    /// low-water mark.
    Writable {
        /// The connection.
        connection: ConnectionId,
    },
    /// The socket takes no more. What was queued is dropped, and later sends are refused with this error
    /// ([`Refusal::Error`]). What the peer sent before is still delivered; then `Closed` follows: for a connection that is paused,
    /// not before its handler resumes or ends it. Where there is nothing to deliver, `Closed` comes at once, and this does not.
    SendFailed {
        /// The connection.
        connection: ConnectionId,
        /// `ECONNRESET`, `EPIPE` and what else ends a connection (`send(2)`).
        error: Errno,
    },
    /// Receiving waits for leases to be returned. A holder that needs more bytes before it can go on must copy
    /// what it holds and return the leases, or it waits for ever.
    Pressure {
        /// The connection that holds as many leases as it may; or `None`: the whole pool is leased
        /// out, or holds what arrived past a pause or a cap.
        connection: Option<ConnectionId>,
    },
    /// The time set by `SetDeadline` has come. It is not set any more.
    Deadline {
        /// The connection.
        connection: ConnectionId,
    },
    /// The connection is gone.
    Closed {
        /// The connection, whose id is stale from now on.
        connection: ConnectionId,
        /// That of the command that made it; [`Token::NONE`] if a listener did.
        token: Token,
        /// Why.
        reason: CloseReason,
    },
    /// A listener is gone: stopped, or its socket failed for good.
    ListenerClosed {
        /// The listener, whose id is stale from now on.
        listener: ListenerId,
        /// What failed; `None` if it was stopped. For want of descriptors or memory (`EMFILE`, `ENFILE`, `ENOMEM`,
        /// `ENOBUFS`): it was stopped, and what the kernel had queued for it could not be accepted.
        error: Option<Errno>,
    },
    /// A listener with [`ListenerOptions::tell_failures`](crate::ListenerOptions::tell_failures) could not accept: mostly for
    /// want of descriptors or memory (`EMFILE`, `ENFILE`, `ENOMEM`, `ENOBUFS`). Who connects waits, and it is tried again: after
    /// a while, longer each time and at most a second, or when the loop closes a connection.
    AcceptFailed {
        /// The listener, which goes on.
        listener: ListenerId,
        /// What failed.
        error: Errno,
    },
    /// A command of a batch, or a posted one, was refused and did nothing.
    Refused {
        /// The command's.
        token: Token,
        /// The connection that it named, if any.
        connection: Option<ConnectionId>,
        /// Why.
        refusal: Refusal,
    },
    /// A datagram socket is open.
    DatagramOpened {
        /// The socket.
        socket: DatagramSocketId,
        /// That of the command or call.
        token: Token,
    },
    /// A datagram was received, or several that the kernel had joined.
    Datagrams {
        /// The socket.
        socket: DatagramSocketId,
        /// The datagrams.
        datagrams: Datagrams,
    },
    /// What became of a datagram that was sent with a token. Memory that was lent for it is free.
    DatagramSent {
        /// The socket.
        socket: DatagramSocketId,
        /// The datagram's.
        token: Token,
        /// Its bytes, which the kernel has taken; or the first error. With segments, those before it may have left.
        result: Result<u32, Errno>,
    },
    /// Something went wrong on a datagram socket, which goes on.
    DatagramError {
        /// The socket.
        socket: DatagramSocketId,
        /// What.
        error: DatagramError,
    },
    /// The socket's queue was full, and a send was refused for it or it was lent past the mark; now there is room again.
    DatagramWritable {
        /// The socket.
        socket: DatagramSocketId,
    },
    /// The handler holds all of the socket's slots: receiving waits until some are returned, and the kernel drops what
    /// its own memory cannot hold.
    DatagramPressure {
        /// The socket.
        socket: DatagramSocketId,
    },
    /// A datagram socket is gone.
    DatagramClosed {
        /// The socket, whose id is stale from now on.
        socket: DatagramSocketId,
        /// That of its opening.
        token: Token,
        /// What ended it; `None` if it was closed.
        error: Option<Errno>,
    },
    /// A command of a batch, or a posted one, that concerns a datagram socket was refused and did nothing.
    DatagramRefused {
        /// The command's, or the datagram's.
        token: Token,
        /// The socket that it named, if any.
        socket: Option<DatagramSocketId>,
        /// Why.
        refusal: Refusal,
    },
    /// The time set by `SetTimer` has come.
    Timer {
        /// The command's.
        token: Token,
    },
    /// Somebody called [`Remote::wake`](crate::Remote::wake), once or more often.
    Woken,
    /// Draining began: listeners are stopped. Finish what is in flight and close connections.
    Draining,
    /// Draining ended: no connection and no listener is left. Only what was asked of the loop itself may follow:
    /// [`Event::Woken`], [`Event::Timer`] and [`Event::Refused`].
    Drained,
}

impl Event {
    /// The connection, of an event that no longer comes once a graceful close or an abort was asked for.
    pub(crate) fn delivers_to(&self) -> Option<ConnectionId> {
        match self {
            Self::Data { connection, .. }
            | Self::EndOfStream { connection }
            | Self::Writable { connection }
            | Self::SendFailed { connection, .. }
            | Self::Deadline { connection } => Some(*connection),
            Self::Pressure { connection } => *connection,
            _ => None,
        }
    }

    /// The datagram socket, of an event that no longer comes once its close was asked for.
    pub(crate) fn delivers_to_datagrams(&self) -> Option<DatagramSocketId> {
        match self {
            Self::Datagrams { socket, .. }
            | Self::DatagramWritable { socket }
            | Self::DatagramPressure { socket }
            | Self::DatagramError {
                socket,
                error: DatagramError::Receive(_) | DatagramError::ControlTruncated,
            } => Some(*socket),
            _ => None,
        }
    }
}

/// What went wrong on a datagram socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DatagramError {
    /// The network's answer to an earlier datagram, such as `ECONNREFUSED`: nobody is at the peer's port. Only
    /// connected sockets are told, without
    /// [`DatagramOptions::receive_errors`](crate::DatagramOptions::receive_errors).
    Network(Errno),
    /// The same with the datagram's receiver, on sockets with
    /// [`DatagramOptions::receive_errors`](crate::DatagramOptions::receive_errors), connected or not.
    Unreachable(Unreachable),
    /// A datagram was too large to be sent in one piece (`EMSGSIZE`): for its protocol, or for the path if it must not
    /// be cut.
    TooLarge {
        /// Its bytes.
        size: u32,
    },
    /// A datagram could not be sent.
    Send {
        /// Why.
        errno: Errno,
        /// Its bytes.
        size: u32,
    },
    /// A datagram came with more control messages than there was room for, and was dropped: where joined ones begin
    /// would not be known. Somebody has set an option on the socket that brings more.
    ControlTruncated,
    /// Receiving failed for something that may pass, as for want of memory; it is tried again.
    Receive(Errno),
}

impl std::fmt::Display for DatagramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network(errno) => write!(f, "an earlier datagram did not arrive: {errno}"),
            Self::Unreachable(told) => {
                write!(f, "a datagram to {} did not arrive: {}", told.receiver(), told.errno())
            }
            Self::TooLarge { size } => {
                write!(f, "a datagram of {size} bytes is too large to be sent in one piece; send less at once")
            }
            Self::Send { errno, size } => write!(f, "sending a datagram of {size} bytes failed: {errno}"),
            Self::ControlTruncated => f.write_str(
                "a datagram's control messages were cut, and it was dropped; set no options on the socket that add any",
            ),
            Self::Receive(errno) => write!(f, "receiving failed, and is tried again: {errno}"),
        }
    }
}

impl std::error::Error for DatagramError {}

/// Why a connection closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CloseReason {
    /// This end closed or aborted it, or ended its direction first.
    Local,
    /// The peer ended its direction first, and then this end did.
    PeerClosed,
    /// The peer reset it, or no longer takes data.
    Reset,
    /// A connection attempt took too long, a graceful close passed its deadline, or the kernel gave up on an
    /// unresponsive peer (`ETIMEDOUT`).
    Timeout,
    /// A limit of the configuration was reached
    /// ([`Config::close_at_lease_limit`](crate::Config::close_at_lease_limit)).
    Limit,
    /// The kernel's error. `ENODATA`: a file was shorter than the range to be sent.
    Error(Errno),
}

impl CloseReason {
    /// The reason that an error of the kernel's amounts to.
    #[must_use]
    pub fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::ECONNRESET | Errno::EPIPE | Errno::ECONNABORTED => Self::Reset,
            Errno::ETIMEDOUT => Self::Timeout,
            other => Self::Error(other),
        }
    }
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local => f.write_str("closed by this end"),
            Self::PeerClosed => f.write_str("closed by the peer"),
            Self::Reset => f.write_str("reset by the peer"),
            Self::Timeout => f.write_str("timed out"),
            Self::Limit => f.write_str("closed at a limit"),
            Self::Error(errno) => write!(f, "failed: {errno}"),
        }
    }
}

/// Why a command was refused. It did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The id names nothing (any more), or something of another loop.
    Stale,
    /// The outbound queue is past its high-water mark, or the loop's send memory is used up. A
    /// [`Event::Writable`] follows.
    Full,
    /// More bytes in one copied send than the high-water mark: split it, or lend the memory.
    TooLarge,
    /// The connection or socket is closing, or this end has ended its sending direction.
    Closing,
    /// A limit of the configuration: connections, listeners, datagram sockets or timers.
    Limit,
    /// The kernel's error: of this command, or for a send that with which an earlier one failed.
    Error(Errno),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stale => f.write_str("the id names nothing on this loop"),
            Self::Full => f.write_str("the outbound queue is full; wait for the writable event"),
            Self::TooLarge => f.write_str("larger than the high-water mark; split it or lend the memory"),
            Self::Closing => f.write_str("the connection is closing, or sends no more"),
            Self::Limit => f.write_str("a configured limit is reached"),
            Self::Error(errno) => errno.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Error(errno)
    }
}

/// Room for the events of a turn, used again and again.
#[derive(Debug)]
pub struct Events {
    list: VecDeque<Event>,
    capacity: usize,
}

impl Events {
    /// Room for `capacity` events; those beyond it wait in the loop for the next turn.
    ///
    /// # Panics
    /// If `capacity` is 0.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        assert!(capacity > 0, "a turn needs room for at least one event");
        Self {
            list: VecDeque::with_capacity(capacity),
            capacity,
        }
    }

    /// Makes room for `capacity` events from the next turn on.
    ///
    /// # Panics
    /// If `capacity` is 0, or less than the number of events that were not taken.
    pub fn set_capacity(&mut self, capacity: usize) {
        assert!(
            capacity > 0 && capacity >= self.list.len(),
            "events that were not taken keep their room"
        );
        self.list.reserve(capacity - self.list.len());
        self.capacity = capacity;
    }

    /// Takes the events out, in order.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Event> + '_ {
        Drain(&mut self.list)
    }

    /// The events of the last turn that were not taken, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Event> + ExactSizeIterator {
        self.list.iter()
    }

    /// How many those are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes over all that a loop has to report, if there is room for all of it and nothing of an earlier turn is left:
    /// the two lists change places, and no event is moved.
    pub(crate) fn take_over(&mut self, pending: &mut VecDeque<Event>) -> bool {
        let possible = self.list.is_empty() && pending.len() <= self.capacity;
        if possible {
            std::mem::swap(&mut self.list, pending);
        }
        possible
    }

    /// How many more there is room for.
    pub(crate) fn room(&self) -> usize {
        self.capacity - self.list.len()
    }

    /// Adds one that there is room for.
    pub(crate) fn push(&mut self, event: Event) {
        debug_assert!(self.room() > 0);
        self.list.push_back(event);
    }

    /// Takes over as many of them as there is room for.
    pub(crate) fn take_some(&mut self, pending: &mut VecDeque<Event>) {
        let count = pending.len().min(self.room());
        self.list.extend(pending.drain(..count));
    }
}

/// Takes events out, and leaves a list that begins where its memory does: each turn then writes to what the last one did.
/// The list's own `drain` does that too, but its end is so general that a turn touches some 15 more cache lines of code.
struct Drain<'a>(&'a mut VecDeque<Event>);

impl Iterator for Drain<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        self.0.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(events: &Events) -> Vec<&Event> {
        events.iter().collect()
    }

    #[test]
    fn all_that_is_pending_is_taken_over_at_once_or_nothing() {
        let mut events = Events::with_capacity(2);
        let mut pending = VecDeque::from([Event::Draining, Event::Drained, Event::Woken]);
        assert!(!events.take_over(&mut pending), "there is no room for three");
        // The list begins in the middle of its memory, and the order is kept.
        pending.pop_front();
        assert!(events.take_over(&mut pending));
        assert!(pending.is_empty());
        assert!(matches!(list(&events)[..], [Event::Drained, Event::Woken]));
        pending.push_back(Event::Draining);
        events.drain().next();
        assert!(events.take_over(&mut pending));
        assert!(matches!(list(&events)[..], [Event::Draining]));
        pending.push_back(Event::Drained);
        assert!(!events.take_over(&mut pending), "one was not taken");
        assert_eq!(pending.len(), 1);
    }
}
