//! The engine interface: how the loop's logic reaches the kernel.
//!
//! An engine is a back-end for proactor operations. The loop above it holds every state that a user can
//! observe (connections, ordering, backpressure, teardown); the engine translates operations into what its
//! kernel interface wants, and reports completions. Whatever differs between io_uring and epoll ends
//! here.
//!
//! # What an operation may expect
//!
//! - An operation belongs to a [`Handle`]. For each handle at most one operation of each [`Kind`] is
//!   outstanding; the loop never submits a second one before the terminal completion of the first.
//! - `Accept`, `Connect`, `Receive`, `Send` / `SendFile` and `ReceiveDatagrams` each get any number of completions that
//!   say `more`, then exactly one terminal one. What is sent by a call that ends by itself has its outcome returned
//!   by that call: [`Engine::send_at_once`], [`Engine::send_datagrams`].
//! - `Cancel` and `Close` are silent. A cancelled operation still ends with its own terminal completion: with
//!   what it had achieved, or with [`Received::Stopped`] / `ECANCELED`.
//! - Memory that an operation names stays valid and in place until its terminal completion, and for a
//!   zero-copy send until its [`Completion::Released`].
//! - `Close` is submitted only when nothing else is outstanding for the handle, notifications included.
//! - Completions of one handle come in the order in which things happened on that socket. Between handles there
//!   is no order.
//!
//! # One turn of the loop
//!
//! `submit`* , `wait` once (which hands everything to the kernel, and sleeps only if asked to), `reap`*.

use std::fmt;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::address::SocketAddress;
use crate::counters::{Count, LiveCounters};
use crate::errno::Errno;
use crate::id::Slot;
use crate::pool::{Pool, PoolSlot};
use crate::sys::{SocketSys, Time};

mod completions;
mod datagrams;
mod enters;
pub mod epoll;
mod slot_table;
pub mod uring;

pub use completions::{Completions, FilledBuffer};
pub use datagrams::{DatagramBatch, DatagramReceived, SendManner};

/// Which back-end moves the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EngineKind {
    /// Completions from an `io_uring(7)`.
    Uring,
    /// Readiness from `epoll(7)`, edge-triggered.
    Epoll,
}

impl EngineKind {
    /// The name used in messages, flags and metrics: `uring` or `epoll`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an operation belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Handle {
    /// A connection, by its slot in the loop's table.
    Connection(Slot),
    /// A listener, by its slot in the loop's table.
    Listener(Slot),
    /// A datagram socket, by its slot in the loop's table.
    Datagram(Slot),
}

/// The kinds of operation that can be cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Accepting on a listener.
    Accept,
    /// Connecting.
    Connect,
    /// Receiving, a stream or datagrams.
    Receive,
    /// Sending, from memory or from a file, or datagrams.
    Send,
}

/// One request to an engine.
#[derive(Debug)]
pub enum Operation {
    /// Accept connections on a listening socket.
    Accept {
        /// The listener.
        listener: Slot,
        /// Its socket.
        descriptor: RawFd,
        /// How many connections may be accepted at most before the terminal completion; at least 1. An engine
        /// that cannot stop exactly there (multishot) does where there are fewer than [`Engine::accept_margin`]: below,
        /// it accepts a few dozen at most, then as many again when the loop has taken those.
        limit: u32,
    },
    /// Connect a stream socket.
    Connect {
        /// The connection.
        connection: Slot,
        /// Its socket.
        descriptor: RawFd,
        /// Where to; boxed so that it stays in place while the kernel reads it.
        address: Box<SocketAddress>,
    },
    /// Receive into pool slots.
    Receive {
        /// The connection.
        connection: Slot,
        /// Its socket.
        descriptor: RawFd,
        /// Bytes after which the operation ends by itself; at least 1. An engine or kernel without exact
        /// budgets may go past it; the loop keeps what comes and counts it.
        budget: u32,
        /// Whether it has waited for a slot: it takes a free one before those that have not, whatever they receive.
        waited: bool,
    },
    /// Receive and drop everything until the peer's end, a failure or a cancel ([`Kind::Receive`]). It has one
    /// completion, [`Completion::Received`] without data, needs no pool slot and never ends for want of one. It
    /// takes the place of a `Receive`.
    Discard {
        /// The connection.
        connection: Slot,
        /// Its socket.
        descriptor: RawFd,
    },
    /// Send from memory, with `MSG_NOSIGNAL`; as much as the socket takes, all of it if the engine can.
    Send {
        /// The connection.
        connection: Slot,
        /// Its socket.
        descriptor: RawFd,
        /// What to send.
        message: Message,
        /// How.
        mode: SendMode,
    },
    /// Send a file's range, as much of it as the socket takes, without passing user memory (`sendfile(2)`).
    SendFile {
        /// The connection.
        connection: Slot,
        /// Its socket.
        descriptor: RawFd,
        /// The file.
        file: RawFd,
        /// Where the range begins, in bytes.
        offset: u64,
        /// Bytes wanted at most; at least 1.
        length: u64,
    },
    /// Receive datagrams into the buffers [provided](Engine::provide_datagram_buffers) to the socket, until it is
    /// cancelled, there is none left, or the kernel ends it.
    ReceiveDatagrams {
        /// The socket, [opened](Engine::open_datagrams).
        socket: Slot,
    },
    /// Ask that an outstanding operation end. Without one outstanding this does nothing.
    Cancel {
        /// Whose operation.
        handle: Handle,
        /// Which.
        kind: Kind,
    },
    /// Close the descriptor and forget the handle.
    Close {
        /// The handle that ends.
        handle: Handle,
        /// Its socket.
        descriptor: OwnedFd,
    },
}

/// How a send is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// Its completion ends a wait.
    Ordinary,
    /// Nobody waits for its completion. If the socket takes all at once, the completion may come with whatever
    /// else comes next, and need not end a wait; if not, it is as an ordinary one.
    Quiet,
    /// As an ordinary one, but complete once the socket has taken a part of it, of which its sender wants to hear.
    InParts,
    /// Without a copy, if this engine and kernel can (`IORING_OP_SEND_ZC`); otherwise as an ordinary one.
    ZeroCopy,
}

/// The memory of one send.
#[derive(Debug)]
pub enum Message {
    /// One piece.
    Single {
        /// Where it begins.
        address: *const u8,
        /// Its length in bytes; at least 1.
        length: u32,
    },
    /// Several pieces, at most `IOV_MAX` (1,024) of them.
    Gathered(Box<Gather>),
}

impl Message {
    /// The bytes of all its pieces.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Single { length, .. } => u64::from(*length),
            Self::Gathered(gather) => gather.bytes(),
        }
    }

    /// The list of its pieces, to be used again.
    pub(crate) fn into_gather(self) -> Option<Box<Gather>> {
        match self {
            Self::Single { .. } => None,
            Self::Gathered(gather) => Some(gather),
        }
    }
}

// SAFETY: a message only names memory; that it stays valid until the send has ended, on whatever thread the loop
// runs, is the contract of `Operation`.
unsafe impl Send for Message {}

/// A piece of a message, for `sendmsg(2)`.
pub(crate) fn piece(address: *const u8, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: address.cast_mut().cast(),
        iov_len: length,
    }
}

/// `sendmsg(2)`'s header for these pieces, which must stay in place while it is used.
pub(crate) fn header_of(pieces: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: msghdr is plain data of integers and pointers, for which all zeroes is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = pieces.as_mut_ptr();
    // Each C library has a type of its own for these lengths; the kernel has one, and finds zeroes beside a shorter one.
    header.msg_iovlen = pieces.len() as _;
    header
}

/// The pieces of one gathered send, with room for the kernel's header beside them. Boxed, so that both stay in
/// place while the kernel reads them; handed back with the terminal completion to be used again.
pub struct Gather {
    /// The pieces.
    pub pieces: Vec<libc::iovec>,
    /// `sendmsg(2)`'s header; the engine fills it.
    pub header: libc::msghdr,
}

// SAFETY: as for `Message`; the header points into the same value.
unsafe impl Send for Gather {}

impl Gather {
    /// An empty one.
    #[must_use]
    pub fn new() -> Box<Self> {
        Box::new(Self {
            pieces: Vec::new(),
            header: header_of(&mut []),
        })
    }

    /// The bytes of all pieces.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.iov_len as u64).sum()
    }

    /// Points the header at the pieces and returns its address, valid until the pieces change or move.
    pub fn seal(&mut self) -> *mut libc::msghdr {
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len() as _;
        &raw mut self.header
    }
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gather({} pieces)", self.pieces.len())
    }
}

/// A buffer for the engine, or the kernel, to receive into.
#[derive(Clone, Copy, Debug)]
pub struct ProvidedBuffer {
    /// Where it begins.
    pub address: *mut u8,
    /// Its length in bytes.
    pub length: u32,
    /// The id that completions name it by.
    pub id: u16,
}

// SAFETY: it only names memory; that it stays valid as long as the engine may write there is the contract of whoever
// provides it.
unsafe impl Send for ProvidedBuffer {}

impl ProvidedBuffer {
    /// The first `length` bytes of a slot that is free in the pool, if there is one.
    #[inline(always)]
    fn take(pool: &mut Pool, length: u32) -> Option<Self> {
        let slot = pool.take()?;
        Some(Self {
            address: pool.address(slot),
            length,
            id: slot.get(),
        })
    }
}

/// What a poller outside reports of the descriptor that it waits on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// That it is readable, as long as it is.
    Level,
    /// Each write that makes or keeps it readable, once.
    Edge,
}

/// What a poller outside waits on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollDescriptor {
    /// The loop's notifier, an eventfd that the kernel writes with completions and [`Engine::park`] reads. By it the loop
    /// must be woken while it is parked.
    Notifier(RawFd),
    /// A descriptor of the engine's own, by which the loop's eventfd is seen as well.
    Own(RawFd),
}

/// What became of an operation.
#[derive(Debug)]
pub enum Completion {
    /// A connection was accepted, or accepting failed.
    Accepted {
        /// The listener.
        listener: Slot,
        /// The connection's socket, CLOEXEC; or why none.
        result: Result<OwnedFd, Errno>,
        /// Whether the operation goes on.
        more: bool,
    },
    /// A connection attempt ended. Always terminal.
    Connected {
        /// The connection.
        connection: Slot,
        /// Whether it is connected.
        result: Result<(), Errno>,
    },
    /// Something was received, or receiving ended.
    Received {
        /// The connection.
        connection: Slot,
        /// What.
        received: Received,
        /// Whether the operation goes on; only with [`Received::Data`].
        more: bool,
    },
    /// A send ended. Always terminal.
    Sent {
        /// The connection.
        connection: Slot,
        /// Bytes taken by the socket. 0 only for a file that is shorter than the range asked for.
        result: Result<usize, Errno>,
        /// The gather of the operation, to be used again.
        gather: Option<Box<Gather>>,
        /// Whether the memory stays in use until a [`Completion::Released`] for the same connection. Those
        /// come in any order among themselves, as many as were announced.
        held: bool,
    },
    /// The kernel is done with the memory of a zero-copy send.
    Released {
        /// The connection.
        connection: Slot,
        /// The number of this zero-copy send among those of its connection that said `held`, from 0, wrapping.
        sequence: u32,
        /// Whether the kernel copied after all (`IORING_NOTIF_USAGE_ZC_COPIED`).
        copied: bool,
    },
    /// Datagrams were received, one behind the other.
    DatagramsFilled {
        /// The socket.
        socket: Slot,
        /// How many: so many of the next in [`Completions::filled`].
        count: u32,
        /// Whether the operation goes on.
        more: bool,
    },
    /// Receiving datagrams has news other than a datagram.
    DatagramReceived {
        /// The socket.
        socket: Slot,
        /// What.
        received: DatagramReceived,
        /// Whether the operation goes on; only with [`DatagramReceived::Marked`].
        more: bool,
    },
    /// Datagrams of which some had to wait were sent, or not. Always terminal.
    DatagramsSent {
        /// The socket.
        socket: Slot,
        /// What was to be sent, with the results.
        batch: Box<DatagramBatch>,
    },
    /// The loop's eventfd was written.
    Woken,
}

/// The outcome of receiving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Bytes in a slot of the pool, which now belongs to the loop.
    Data {
        /// The slot.
        slot: PoolSlot,
        /// Bytes in it; at least 1.
        length: u32,
    },
    /// The peer's end of stream.
    End,
    /// No slot was free. The bytes stay in the socket.
    NoBuffers,
    /// Ended without news: cancelled, the budget was used up exactly, or the kernel gave up the multishot.
    Stopped,
    /// It failed.
    Error(Errno),
}

/// A back-end. See the module's page for the contract.
///
/// An engine is made on any thread, and belongs to the thread that calls [`Engine::bind`] from then on.
pub trait Engine {
    /// Which one.
    fn kind(&self) -> EngineKind;

    /// Makes the calling thread the owner and starts watching `wake`, the loop's eventfd.
    ///
    /// # Errors
    /// The kernel's, if the ring cannot be enabled or the eventfd not be watched.
    fn bind(&mut self, wake: RawFd, pool: &mut Pool) -> Result<(), Errno>;

    /// Takes one operation. Never refuses: a full submission queue is flushed first.
    fn submit(&mut self, operation: Operation, pool: &mut Pool);

    /// As [`Engine::submit`] of [`Operation::Send`], which most operations are.
    fn send(
        &mut self,
        connection: Slot,
        descriptor: RawFd,
        message: Message,
        mode: SendMode,
        pool: &mut Pool,
    ) {
        let operation = Operation::Send {
            connection,
            descriptor,
            message,
            mode,
        };
        self.submit(operation, pool);
    }

    /// Whether so many bytes are worth a call that sends them at once. What is `offered` is not queued yet: its sender is spared
    /// keeping each piece until a later turn, so that a call pays sooner.
    fn sends_at_once(&self, bytes: usize, offered: bool) -> bool {
        let _ = (bytes, offered);
        false
    }

    /// Sends at once what [is worth it](Self::sends_at_once), by a call which ends by itself: [`Operation::Send`] on a connection
    /// that has no send outstanding, and returns its outcome in place of a completion. `None`: nothing was sent, and the
    /// operation is to be submitted.
    fn send_at_once(
        &mut self,
        connection: Slot,
        descriptor: RawFd,
        message: &mut Message,
    ) -> Option<Result<usize, Errno>> {
        let _ = (connection, descriptor, message);
        None
    }

    /// Prepares for datagrams on a socket: for `buffers` receive buffers at most, in each of which `control` bytes are
    /// for control messages. Lasts until [`Operation::Close`].
    ///
    /// # Errors
    /// The kernel's, for want of memory; `EOPNOTSUPP` of engines that have no datagrams.
    fn open_datagrams(
        &mut self,
        socket: Slot,
        descriptor: RawFd,
        control: u32,
        buffers: u16,
    ) -> Result<(), Errno> {
        let _ = (socket, descriptor, control, buffers);
        Err(Errno::EOPNOTSUPP)
    }

    /// Takes `count` free slots of an open socket's pool to receive into, of each the first `length` bytes; no more at once
    /// than it was opened with. They are the engine's, and perhaps the kernel's, until a completion names them or the socket
    /// is closed.
    fn provide_datagram_buffers(&mut self, socket: Slot, pool: &mut Pool, count: usize, length: u32) {
        let _ = (socket, pool, count, length);
    }

    /// Sends datagrams on an open socket, at least one, in order as far as it takes them at once. Returns them if all have
    /// a result; `None`: some wait for room, and [`Completion::DatagramsSent`] follows, until which no others are sent and
    /// which [`Operation::Cancel`] brings sooner. All that they name stays valid and in place until then.
    fn send_datagrams(
        &mut self,
        socket: Slot,
        batch: Box<DatagramBatch>,
        manner: SendManner,
        pool: &mut Pool,
    ) -> Option<Box<DatagramBatch>> {
        let _ = (batch, manner, pool);
        unreachable!("datagram socket {socket:?} was never opened: this engine has none")
    }

    /// Whether [`Engine::wait`] may sleep: false while completions are at hand without asking the kernel.
    fn may_sleep(&self) -> bool;

    /// Hands what was submitted to the kernel, then waits until something completes or `timeout` has passed, with the
    /// thread's timer slack (50 µs; `PR_SET_TIMERSLACK`, `prctl(2)`). Zero does not wait; `None` waits for ever. Signals end a wait
    /// early without an error.
    ///
    /// # Errors
    /// Only those that no retry can mend; the loop is then of no further use.
    fn wait(&mut self, timeout: Option<Duration>, pool: &mut Pool) -> Result<(), Errno>;

    /// Whether waits from here on go on for more than the first completion, for the time that the engine was made with.
    /// They do from the start. Without such a time this does nothing.
    fn coalesce(&mut self, on: bool);

    /// What is readable when a wait might find something, for a poller outside; open as long as the engine. It tells of
    /// nothing that [`Engine::park`] would have named. `None` if the engine was not made for such a poller.
    fn poll_descriptor(&self) -> Option<PollDescriptor>;

    /// Gets ready for a wait on [`Engine::poll_descriptor`]. Returns whether all is with the kernel: nothing waits to
    /// be submitted or taken in, and whatever comes from now on makes the descriptor readable. If not, a wait of no
    /// time must come first.
    fn park(&mut self, trigger: Trigger, pool: &mut Pool) -> bool;

    /// Buffers that the engine holds for one datagram socket at a time, at most.
    fn datagram_buffers_at_once(&self) -> u32 {
        u32::MAX
    }

    /// Moves completions, at most about `limit` of them, to the end of `completions`. Returns whether more are
    /// at hand.
    fn reap(&mut self, pool: &mut Pool, limit: usize, completions: &mut Completions) -> bool;

    /// Slots that a receive armed now could fill: free ones, and those that the kernel holds for the taking.
    fn receivable(&self, pool: &Pool) -> usize;

    /// Receives that find a slot for certain if they are armed now. Fewer than [`Engine::receivable`] where the
    /// kernel may have used slots of which the engine has not taken the completions yet, or where it holds no more
    /// than so many at a time.
    fn surely_receivable(&self, pool: &Pool) -> usize {
        self.receivable(pool)
    }

    /// The connections that may arrive after accepting was told to stop, at most. `Accept` with a limit below
    /// this is exact.
    fn accept_margin(&self) -> u32;

    /// Whether sockets must be in non-blocking mode for this engine. io_uring wants them blocking: with
    /// `O_NONBLOCK` it returns `EAGAIN` instead of waiting, but for accepting: listening sockets are non-blocking with
    /// either.
    fn wants_nonblocking(&self) -> bool;

    /// Ends everything outstanding and waits until the kernel is done with the memory of all operations, at
    /// most for `patience`. Returns whether it is: if not, that memory must never be freed.
    fn quiesce(&mut self, pool: &mut Pool, patience: Duration, now: &dyn Fn() -> Time) -> bool;

    /// The counts so far.
    fn counters(&self) -> &Arc<LiveCounters>;
}

/// The first part of a wait that coalesces events, where the kernel cannot wait for several: sleeps, and adds the call to
/// `calls`. Returns what is left of the wait.
pub(crate) fn sleep_to_coalesce(
    system: &impl SocketSys,
    time: Duration,
    wait: Option<Duration>,
    calls: &Count,
) -> Option<Duration> {
    let time = wait.map_or(time, |wait| wait.min(time));
    if time.is_zero() {
        return wait;
    }
    calls.add(1);
    system.sleep(time);
    wait.map(|wait| wait - time)
}

/// Whether an error of accepting concerns one connection in the queue, which it has left, or the moment, and says
/// nothing of the listener. Linux passes pending network errors of the new socket (`accept(2)`, "Error handling").
pub(crate) fn is_of_one_accept(error: Errno) -> bool {
    matches!(
        error.code(),
        libc::EINTR
            | libc::ECONNABORTED
            | libc::EPROTO
            | libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
    )
}
