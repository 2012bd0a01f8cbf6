//! What a turn is asked to do. Each command is also a method of [`Loop`](crate::Loop), which returns a refusal at
//! once instead of by an event.

use std::fmt;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::Bytes;

use crate::address::Address;
use crate::datagram::{DatagramSend, DatagramSocket, MulticastGroup};
use crate::event::Refusal;
use crate::id::{ConnectionId, DatagramSocketId, ListenerId, Token};
use crate::pool::Lease;

pub use crate::stream_options::{Keepalive, StreamOptions};

/// A connection that another loop has accepted, and has counted with the loop that it hands it to.
#[derive(Debug)]
#[doc(hidden)]
pub struct HandedOver {
    /// The other loop's.
    pub(crate) listener: ListenerId,
    pub(crate) descriptor: OwnedFd,
}

/// One request to a loop. [`crate::event`] says which event follows each.
#[derive(Debug)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Connect.
    Connect {
        /// Where to.
        address: Address,
        /// How; boxed, as it is large and rare.
        options: Box<ConnectOptions>,
        /// Comes back with `Connecting`, `Opened` and `Closed`.
        token: Token,
    },
    /// Make a connected stream socket a connection of this loop.
    Attach {
        /// The socket.
        descriptor: OwnedFd,
        /// How.
        options: AttachOptions,
        /// Comes back with `Opened` and `Closed`.
        token: Token,
    },
    /// Take over a connection that another loop has accepted. Only [`Accept::Spread`](crate::Accept::Spread) makes it, which
    /// has counted it.
    #[doc(hidden)]
    TakeOver(HandedOver),
    /// Send bytes.
    Send {
        /// The connection.
        connection: ConnectionId,
        /// The bytes.
        payload: Payload<'a>,
        /// Comes back with `Sent`, if the memory is lent.
        token: Token,
    },
    /// Send pieces of lent memory as one send.
    SendGathered {
        /// The connection.
        connection: ConnectionId,
        /// The pieces.
        pieces: RawPieces<'a>,
        /// Comes back with `Sent`.
        token: Token,
    },
    /// Send a file's range, in order with other sends.
    SendFile {
        /// The connection.
        connection: ConnectionId,
        /// The range.
        range: FileRange,
        /// Comes back with `Sent`.
        token: Token,
    },
    /// End the sending direction after all that is queued: the peer sees the end of the stream.
    Shutdown {
        /// The connection.
        connection: ConnectionId,
    },
    /// Close gracefully: send what is queued, end the sending direction, wait for the peer's end (what it still
    /// sends is dropped), close.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// Time for all of that, after which the connection is reset. `None`: as long as the peer takes something, see
        /// [`Config::close_deadline`](crate::Config::close_deadline).
        deadline: Option<Duration>,
    },
    /// Close now: queued sends are dropped, the peer sees a reset.
    Abort {
        /// The connection.
        connection: ConnectionId,
    },
    /// Deliver nothing more until `Resume`. Refused for a connection that is ending: what came before is on the way.
    Pause {
        /// The connection.
        connection: ConnectionId,
    },
    /// Deliver again.
    Resume {
        /// The connection.
        connection: ConnectionId,
    },
    /// Set, move or clear the connection's one deadline, a timer that ends with the connection.
    SetDeadline {
        /// The connection.
        connection: ConnectionId,
        /// From now; `None` clears it.
        after: Option<Duration>,
    },
    /// Set the timer that this token names, or move it if it is set.
    SetTimer {
        /// From now.
        after: Duration,
        /// Names the timer.
        token: Token,
    },
    /// Clear the timer that this token names.
    CancelTimer {
        /// Names the timer.
        token: Token,
    },
    /// Accept nothing more until `ResumeListening`: what comes waits in the kernel's backlog.
    PauseListening {
        /// The listener.
        listener: ListenerId,
    },
    /// Accept again.
    ResumeListening {
        /// The listener.
        listener: ListenerId,
    },
    /// Stop accepting, deliver what is already queued in the kernel, and close the listener.
    StopListening {
        /// The listener.
        listener: ListenerId,
    },
    /// Open a datagram socket on this loop.
    OpenDatagram {
        /// The socket; boxed, as it is large and rare.
        socket: Box<DatagramSocket>,
        /// Comes back with `DatagramOpened` and `DatagramClosed`.
        token: Token,
    },
    /// Send datagrams, in order as far as the kernel keeps one.
    SendDatagrams {
        /// The socket.
        socket: DatagramSocketId,
        /// The datagrams, each with its token.
        datagrams: Vec<DatagramSend<'a>>,
    },
    /// Deliver no datagrams until `ResumeDatagrams`.
    PauseDatagrams {
        /// The socket.
        socket: DatagramSocketId,
    },
    /// Deliver datagrams again.
    ResumeDatagrams {
        /// The socket.
        socket: DatagramSocketId,
    },
    /// Join or leave a multicast group.
    SetMembership {
        /// The socket.
        socket: DatagramSocketId,
        /// The group.
        group: MulticastGroup,
        /// Join, or leave.
        member: bool,
    },
    /// Close a datagram socket: receive nothing more, send what is queued within
    /// [`Config::close_deadline`](crate::Config::close_deadline), close.
    CloseDatagram {
        /// The socket.
        socket: DatagramSocketId,
    },
    /// Stop all listeners, tell the handler to finish, and abort what is left after this time.
    Drain {
        /// From now.
        within: Duration,
    },
    /// Do nothing but report `Refused`, in order with the other commands: for front doors that could not make out
    /// what they were asked.
    Refuse {
        /// The connection that was named, if any.
        connection: Option<ConnectionId>,
        /// Comes back with `Refused`.
        token: Token,
        /// What is wrong.
        refusal: Refusal,
    },
    /// As `Refuse`, but report `DatagramRefused`.
    RefuseDatagram {
        /// The socket that was named, if any.
        socket: Option<DatagramSocketId>,
        /// Comes back with `DatagramRefused`.
        token: Token,
        /// What is wrong.
        refusal: Refusal,
    },
}

/// The bytes of a send.
pub enum Payload<'a> {
    /// Copied before the call returns. For small sends.
    Copy(&'a [u8]),
    /// Lent until `Sent` (or `Closed`), shared by reference count. Static memory costs nothing.
    Bytes(Bytes),
    /// Received bytes, sent on without a copy; the lease is returned when they are sent.
    Lease(Lease),
    /// Lent until `Sent` (or `Closed`) by whoever vouches for the memory.
    Raw(RawBytes),
}

impl Payload<'_> {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is left once the bytes are not to be copied; `None` for those that are to be.
    pub(crate) fn into_lent(self) -> Option<Lent> {
        match self {
            Self::Copy(_) => None,
            Self::Bytes(bytes) => Some(Lent::Bytes(bytes)),
            Self::Lease(lease) => Some(Lent::Lease(lease)),
            Self::Raw(raw) => Some(Lent::Raw(raw)),
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Copy(bytes) => bytes,
            Self::Bytes(bytes) => bytes,
            Self::Lease(lease) => lease,
            Self::Raw(raw) => raw.as_slice(),
        }
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Copy(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Copy(bytes)
    }
}

impl From<Bytes> for Payload<'_> {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Payload<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<Lease> for Payload<'_> {
    fn from(lease: Lease) -> Self {
        Self::Lease(lease)
    }
}

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Copy(_) => "Copy",
            Self::Bytes(_) => "Bytes",
            Self::Lease(_) => "Lease",
            Self::Raw(_) => "Raw",
        };
        write!(f, "{kind}({} bytes)", self.len())
    }
}

/// Memory that its owner vouches for, as it comes over a C ABI.
pub struct RawBytes {
    address: *const u8,
    length: usize,
}

// SAFETY: whoever made this promised that the memory is readable from any thread until the send is over.
unsafe impl Send for RawBytes {}

impl RawBytes {
    /// Lends `length` bytes at `address`.
    ///
    /// # Safety
    /// The bytes must be initialised, readable from any thread, and unchanged until the `Sent` event that
    /// acknowledges the send, the `Closed` event of its connection, or its refusal. If the loop is dropped
    /// first: for ever.
    #[must_use]
    pub const unsafe fn new(address: *const u8, length: usize) -> Self {
        Self { address, length }
    }

    /// Takes `bytes` of them from the front.
    pub(crate) fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.length);
        self.address = self.address.wrapping_add(bytes);
        self.length -= bytes;
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: promised by the caller of `new`.
        unsafe { std::slice::from_raw_parts(self.address, self.length) }
    }
}

/// Pieces of memory that their owner vouches for, to be sent one behind the other as one send: one account and one
/// acknowledgement for all of them. The list itself is read during the call.
pub struct RawPieces<'a> {
    list: PieceList<'a>,
    progress: bool,
}

enum PieceList<'a> {
    Borrowed(&'a [IoSlice<'a>]),
    Owned(Vec<IoSlice<'static>>),
}

impl<'a> RawPieces<'a> {
    /// How many a send may have: what one operation can carry, `IOV_MAX` of Linux (`UIO_MAXIOV`); one more is `EMSGSIZE`.
    pub const MOST: usize = 1024;

    /// Lends the memory of `pieces`.
    ///
    /// # Safety
    /// That of each piece: as for [`RawBytes::new`].
    #[must_use]
    pub const unsafe fn new(pieces: &'a [IoSlice<'a>]) -> Self {
        Self {
            list: PieceList::Borrowed(pieces),
            progress: false,
        }
    }

    /// Has [`Event::Sent`](crate::Event::Sent) also tell of parts as the kernel takes them, with the send's token less the
    /// bytes that are still to go: for those whose tokens count bytes, as the token of a send that is told so must be no
    /// less than its bytes. What such an event tells of is free, as by its last one. Parts that leave by a zero-copy send
    /// ([`Config::zero_copy_threshold`](crate::Config::zero_copy_threshold)) are told of with all.
    #[must_use]
    pub fn with_progress(mut self) -> Self {
        self.progress = true;
        self
    }

    pub(crate) fn tells_progress(&self) -> bool {
        self.progress
    }

    /// The same with a list of its own, to be sent from another thread.
    ///
    /// # Safety
    /// As for [`RawPieces::new`].
    #[must_use]
    pub unsafe fn into_owned(self) -> RawPieces<'static> {
        let list = self.list().iter().map(|piece| {
            // SAFETY: the memory stays until the send is over, as the caller promises, whatever becomes of the list.
            IoSlice::new(unsafe { std::slice::from_raw_parts(piece.as_ptr(), piece.len()) })
        });
        RawPieces {
            list: PieceList::Owned(list.collect()),
            progress: self.progress,
        }
    }

    fn list(&self) -> &[IoSlice<'_>] {
        match &self.list {
            PieceList::Borrowed(list) => list,
            PieceList::Owned(list) => list,
        }
    }

    /// How many there are, empty ones among them.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list().len()
    }

    /// The bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.list().iter().map(|piece| piece.len()).sum()
    }

    /// Those that have bytes.
    pub(crate) fn lent(&self) -> impl Iterator<Item = RawBytes> {
        self.list()
            .iter()
            .filter(|piece| !piece.is_empty())
            .map(|piece| RawBytes {
                address: piece.as_ptr(),
                length: piece.len(),
            })
    }
}

impl fmt::Debug for RawPieces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawPieces({} pieces, {} bytes)", self.count(), self.bytes())
    }
}

/// Lent memory while a send is queued: what a [`Payload`] leaves after the copied kind is gone.
#[derive(Debug)]
pub(crate) enum Lent {
    Bytes(Bytes),
    Lease(Lease),
    Raw(RawBytes),
}

impl fmt::Debug for RawBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawBytes({} bytes)", self.length)
    }
}

impl Lent {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Lease(lease) => lease,
            Self::Raw(raw) => raw.as_slice(),
        }
    }
}

/// A range of a file.
#[derive(Debug)]
pub struct FileRange {
    /// The file; closed when the range is sent. Reading it may make the loop's thread wait for storage.
    pub file: File,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What becomes of the connection if the file turns out shorter, or cannot be read.
    pub on_short: OnShort,
}

/// What becomes of a connection if a file ends before the range that is sent of it, or cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnShort {
    /// It is aborted, with `CloseReason::Error(ENODATA)` or the file's error, so that the peer cannot take a part for the
    /// whole.
    #[default]
    Abort,
    /// It goes on with what is queued behind the file, and [`Event::FileShort`](crate::Event::FileShort) says what is
    /// missing: for those who have promised nobody the whole, or queue nothing behind it until they know.
    Tell,
}

/// How to connect.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Time for the attempt; `None` is [`Config::connect_timeout`](crate::Config::connect_timeout).
    pub timeout: Option<Duration>,
    /// An address to bind to first.
    pub local: Option<Address>,
    /// Options of the socket.
    pub socket: StreamOptions,
    /// Deliver nothing until `Resume`.
    pub paused: bool,
}

/// How to attach.
#[derive(Clone, Debug, Default)]
pub struct AttachOptions {
    /// Deliver nothing until `Resume`.
    pub paused: bool,
    /// Report it as `Accepted` by this listener, perhaps of another loop, instead of as `Opened`.
    pub accepted_by: Option<ListenerId>,
}
