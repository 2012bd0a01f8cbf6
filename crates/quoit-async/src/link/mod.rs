//! What a stream and its loop share: bytes that have come, bytes that are to go, how either direction has ended, and who
//! waits.
//!
//! All of it is behind one lock, which is held for moments and never while anything of the program's runs. On the loop's
//! thread nobody else holds it.

mod events;
mod give;
mod operations;
#[cfg(feature = "tokio")]
mod ready;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use quoit::{Address, ConnectionId, DirectSender, Errno, FileRange, Lease, Token};

use crate::errors::{Gone, NoPlace};
use crate::home::Home;
use crate::lock::lock;
use crate::waiters::Waiters;

/// Bytes that a stream which is used on another thread than its loop's leaves for the loop at most. The loop's own queue
/// behind it has its own mark ([`quoit::Config::high_water`]).
const MOST_LEFT: usize = if cfg!(quoit_simulated) { 2000 } else { 64 * 1024 };
/// Pieces of memory likewise.
const PIECES_LEFT: usize = if cfg!(quoit_simulated) { 4 } else { 256 };
/// Memory for what is left to the loop that a stream keeps when all of it has gone.
const KEPT: usize = if cfg!(quoit_simulated) { 200 } else { 2048 };

/// Something that is to be sent, left for the loop.
#[derive(Debug)]
pub(crate) enum Piece {
    Copied(Vec<u8>),
    Bytes(Bytes),
    Lease(Lease),
    File(FileRange, Token),
    /// Nothing: whoever waits for it learns that all before it is with the kernel.
    Mark(Token),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Lease(lease) => lease.len(),
            Self::File(..) | Self::Mark(_) => 0,
        }
    }

    /// That of one whose end somebody waits for.
    fn token(&mut self) -> Option<&mut Token> {
        match self {
            Self::File(_, token) | Self::Mark(token) => Some(token),
            Self::Copied(_) | Self::Bytes(_) | Self::Lease(_) => None,
        }
    }
}

/// How a stream that was dropped ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// What was written is still sent.
    Close,
    /// The same, and then the peer sees a reset.
    Reset,
    /// The peer sees a reset, and what was written is dropped.
    Abort,
}

#[derive(Debug, Default)]
struct State {
    /// None until the loop has begun to connect, and once the connection is gone.
    id: Option<ConnectionId>,
    opened: bool,
    received: VecDeque<Lease>,
    /// The peer's direction has ended, behind what was received.
    end_of_stream: bool,
    /// The connection is gone.
    closed: bool,
    /// What ended it, or its sending, for the first who asks, as a kernel's socket tells its error once.
    failure: Option<Failure>,
    /// The socket takes no more: that was told, or is in `failure`.
    send_failed: bool,
    readers: Waiters,

    left: VecDeque<Piece>,
    left_bytes: usize,
    /// Memory for what is left next.
    spare: Vec<u8>,
    /// The loop takes nothing more until it says so.
    full: bool,
    /// A thread that is not the loop's sends: what is left meanwhile comes behind that.
    sending: bool,
    /// The turn of the loop in which its thread wrote last.
    written_in: u64,
    /// Ended behind all that was written: the last token, which is told when the kernel has all of that.
    shut_down: Option<Token>,
    /// The loop knows of it.
    shut_down_told: bool,
    dropped: Option<Ending>,
    /// Dropped, it ends by a reset whatever is unread.
    reset_on_drop: bool,
    /// Behind all that was written: once the kernel has it, the connection is reset.
    reset_behind: Option<Token>,
    /// It is in the loop's list of those that want something.
    listed: bool,
    writers: Waiters,

    /// The last token that was given out, in the order of what is sent, and the last one that the kernel has everything up to.
    given: u64,
    sent: u64,
    /// Files whose end somebody waits for: the token, and what was missing.
    files: Vec<(Token, Option<Shortfall>)>,
}

/// What was not sent of a file, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shortfall {
    pub(crate) missing: u64,
    /// What reading failed with; `None`: it has ended.
    pub(crate) error: Option<Errno>,
}

impl State {
    /// Whether a read would not wait.
    fn is_readable(&self) -> bool {
        !self.received.is_empty() || self.has_received_all()
    }

    /// Whether nothing comes behind what was received.
    fn has_received_all(&self) -> bool {
        self.end_of_stream || self.closed
    }

    /// Whether a write would not wait.
    fn is_writable(&self) -> bool {
        self.has_room() || self.sends_no_more()
    }

    /// Whether a write would fail.
    fn sends_no_more(&self) -> bool {
        self.closed || self.shut_down.is_some() || self.send_failed
    }

    /// Whether a write would find room.
    fn has_room(&self) -> bool {
        !self.full && self.left_bytes < MOST_LEFT && self.left.len() < PIECES_LEFT
    }

    /// What will not be sent any more, to be dropped without the lock.
    fn take_left(&mut self) -> VecDeque<Piece> {
        self.left_bytes = 0;
        std::mem::take(&mut self.left)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    Errno(Errno),
    Limit,
    NoPlace,
    Aborted,
    Gone,
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Errno(errno) => errno.into(),
            Failure::Limit => Self::new(
                io::ErrorKind::ConnectionAborted,
                "the loop's memory was short and this connection stood still; see `Config::stall_limit`",
            ),
            Failure::NoPlace => NoPlace.into(),
            Failure::Aborted => Self::new(
                io::ErrorKind::ConnectionAborted,
                "the loop ended the connection, as it was drained",
            ),
            Failure::Gone => Gone.into(),
        }
    }
}

/// The local and the peer's address.
pub(crate) type Names = (Option<Address>, Option<Address>);

/// What a stream and its loop share.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) home: Arc<Home>,
    local: OnceLock<Option<Address>>,
    peer: OnceLock<Option<Address>>,
    /// What other threads than the loop's send by, once one has written.
    direct: OnceLock<DirectSender>,
    state: Mutex<State>,
}

impl Link {
    fn with(home: Arc<Home>, state: State) -> Arc<Self> {
        Arc::new(Self {
            home,
            local: OnceLock::new(),
            peer: OnceLock::new(),
            direct: OnceLock::new(),
            state: Mutex::new(state),
        })
    }

    /// Of a connection that a listener has brought.
    pub(crate) fn accepted(home: Arc<Home>, id: ConnectionId, (local, peer): Names) -> Arc<Self> {
        let link = Self::with(
            home,
            State {
                id: Some(id),
                opened: true,
                ..State::default()
            },
        );
        let set = link.peer.set(peer);
        debug_assert!(set.is_ok());
        if local.is_some() {
            let set = link.local.set(local);
            debug_assert!(set.is_ok());
        }
        link
    }

    /// Of a connection that is to be.
    pub(crate) fn new(home: Arc<Home>) -> Arc<Self> {
        Self::with(home, State::default())
    }

    /// The loop has begun to connect, or has attached it. Returns false if nobody wants it any more.
    pub(crate) fn begin(&self, id: ConnectionId) -> bool {
        let mut state = lock(&self.state);
        state.id = Some(id);
        state.dropped.is_none()
    }

    /// The peer's address, if it is known.
    pub(crate) fn peer(&self) -> Option<&Address> {
        self.peer.get()?.as_ref()
    }

    /// The local address: asked for once, on the loop's thread.
    pub(crate) fn local(self: &Arc<Self>) -> io::Result<Address> {
        if self.local.get().is_none() {
            let id = self.id()?;
            let link = Arc::clone(self);
            crate::ask::ask(&self.home, move |driver| {
                let _ = link.local.set(driver.event_loop.local_address(id));
            })?;
        }
        let local = self.local.get().and_then(Option::as_ref);
        local.cloned().ok_or_else(|| Errno::ENOTCONN.into())
    }

    pub(crate) fn id(&self) -> io::Result<ConnectionId> {
        lock(&self.state).id.ok_or_else(|| Errno::ENOTCONN.into())
    }
}
