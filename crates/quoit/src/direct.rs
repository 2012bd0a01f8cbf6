//! Sending on a connection or a datagram socket from threads that are not its loop's.
//!
//! A loop that sleeps would have to be woken to send, and would fall asleep again behind it: that costs more than the send. So a
//! thread may send by itself while the loop sleeps. The loop keeps the socket: it is closed when no thread is in the midst of a
//! send, as it is when the kernel is done with all operations.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::command::RawPieces;
use crate::datagram::{DatagramSend, Heading, Way};
use crate::engine::{header_of, piece};
use crate::errno::Errno;
use crate::remote::Inbox;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, yield_now};

/// A thread is in the midst of a send.
const USED: u32 = 1;
/// No send begins any more.
const CLOSED: u32 = 2;
/// The loop closes the socket.
const TAKEN_BACK: u32 = 4;

/// `sendmsg(2)` as in [`SocketSys::send_now`](crate::sys::SocketSys::send_now), for any thread.
pub(crate) type SendCall = fn(RawFd, &libc::msghdr) -> Result<usize, Errno>;

/// What a connection or a datagram socket shares with the threads that send on it.
pub(crate) struct LentSocket {
    inbox: Arc<Inbox>,
    descriptor: RawFd,
    call: SendCall,
    /// From so many bytes on a send is the loop's.
    limit: usize,
    state: AtomicU32,
    /// All that the loop was given has left, and it will be given more.
    idle: AtomicBool,
    /// A thread has found the loop asleep, and something of the connection's on its way.
    missed: AtomicBool,
    /// What a send has failed with, for the loop; 0: nothing.
    error: AtomicU32,
}

impl LentSocket {
    pub(crate) fn new(inbox: Arc<Inbox>, descriptor: RawFd, call: SendCall, limit: Option<u32>) -> Self {
        Self {
            inbox,
            descriptor,
            call,
            limit: limit.map_or(usize::MAX, |limit| limit as usize),
            state: AtomicU32::new(0),
            idle: AtomicBool::new(false),
            missed: AtomicBool::new(false),
            error: AtomicU32::new(0),
        }
    }

    /// The loop says whether all has left that it was given.
    pub(crate) fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Ordering::Release);
    }

    /// Whether a thread would have sent, had it been known that all has left; once.
    pub(crate) fn take_missed(&self) -> bool {
        self.missed.load(Ordering::Relaxed) && self.missed.swap(false, Ordering::Relaxed)
    }

    /// What a send has failed with, for the first who asks.
    pub(crate) fn take_error(&self) -> Option<Errno> {
        // Mostly there is none, and then this is a plain load.
        if self.error.load(Ordering::Acquire) == 0 {
            return None;
        }
        Some(Errno::new(self.error.swap(0, Ordering::AcqRel) as i32))
    }

    /// What a send has failed with that the kernel tells once, so that whoever receives finds an end in order. Waits for a send
    /// that is under way: that is one call, which does not wait.
    pub(crate) fn take_failure(&self) -> Option<Errno> {
        while self.is_used() {
            yield_now();
        }
        // Which it tells whoever sends, and is nothing to whoever receives.
        let told_again = self.error.load(Ordering::Acquire) == Errno::EPIPE.code() as u32;
        if told_again { None } else { self.take_error() }
    }

    /// No send begins from here on. Returns whether one is under way, at whose end the loop is woken.
    pub(crate) fn close(&self) -> bool {
        self.state.fetch_or(CLOSED, Ordering::AcqRel) & USED != 0
    }

    /// Whether a send is under way.
    pub(crate) fn is_used(&self) -> bool {
        self.state.load(Ordering::Acquire) & USED != 0
    }

    /// Takes a closed one back for good, if no send is under way; returns whether it was.
    pub(crate) fn take_back(&self) -> bool {
        debug_assert!(
            self.state.load(Ordering::Relaxed) & CLOSED != 0,
            "none may begin meanwhile"
        );
        if self.is_used() {
            return false;
        }
        self.state.fetch_or(TAKEN_BACK, Ordering::AcqRel);
        true
    }

    /// Takes it back for good, once the send has ended that is under way: that is one call, which does not wait.
    pub(crate) fn end(&self) {
        self.close();
        while !self.take_back() {
            yield_now();
        }
    }

    /// Whether the loop sleeps, and what is sent now would be the next bytes on the wire.
    fn is_next(&self) -> bool {
        if !self.inbox.is_asleep() {
            return false;
        }
        let idle = self.idle.load(Ordering::Acquire);
        if !idle {
            self.missed.store(true, Ordering::Relaxed);
        }
        idle
    }

    /// Keeps the socket open until this is dropped; `None` if it is being closed, another thread sends, or one has failed to.
    fn begin(&self) -> Option<Use<'_>> {
        self.state
            .compare_exchange(0, USED, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        let used = Use(self);
        // Now that it stays so.
        (self.error.load(Ordering::Acquire) == 0).then_some(used)
    }

    /// Keeps for the loop what the kernel has told this thread instead.
    fn keep_error(&self, errno: Errno) {
        self.error.store(errno.code() as u32, Ordering::Release);
    }
}

impl fmt::Debug for LentSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentSocket({})", self.descriptor)
    }
}

/// The socket is open for as long as this lives.
struct Use<'a>(&'a LentSocket);

impl Use<'_> {
    fn send(&self, header: &libc::msghdr) -> Result<usize, Errno> {
        let result = (self.0.call)(self.0.descriptor, header);
        debug_assert_ne!(result, Err(Errno::EBADF), "the socket is open while it is used");
        result
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        let before = self.0.state.fetch_and(!USED, Ordering::AcqRel);
        debug_assert!(before & TAKEN_BACK == 0, "the socket was closed under a send");
        if before & CLOSED != 0 {
            self.0.inbox.wake();
        }
    }
}

/// Sends on a connection from any thread while its loop sleeps. Made by [`Loop::direct_sender`](crate::Loop::direct_sender).
///
/// It is for those who hand what they send over to the loop's thread, as a front door does whose users run on threads of their own:
/// to wake a loop for one send, which then sleeps again, costs more than the send. It sends only what would be the next bytes on the
/// wire, and leaves everything else to the loop:
///
/// - Who uses it keeps the order: while anything that it wants to send, or to end, has not been given to the loop yet, it does not
///   call [`DirectSender::try_send`]. What the loop was given is looked after here.
/// - Nothing of a failure is told here. What was to be sent is then given to the loop, whose send fails for the same reason, with
///   the same events as ever.
///
/// It may be kept for as long as one likes: once the connection ends it sends nothing.
#[derive(Clone)]
pub struct DirectSender(Arc<LentSocket>);

impl DirectSender {
    pub(crate) fn new(socket: Arc<LentSocket>) -> Self {
        Self(socket)
    }

    /// Whether a [`DirectSender::try_send`] would be tried now, and costs less than to wake the loop, where that can do it as well.
    ///
    /// On io_uring it does not pay while on average more than two sends would leave together: those are one system call with the
    /// loop's wait, and a wake is two. On epoll each send is a call of its own, whoever makes it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.inbox.direct_sends_pay() && self.0.is_next()
    }

    /// Sends what the socket takes at once, and returns how many bytes of `pieces` that is: the first ones. The rest is to be given
    /// to the loop. It never waits.
    ///
    /// Returns 0, and nothing was sent, while the loop is awake, as it sends with what else it has to do and no system call of
    /// its own on io_uring; while it has something queued for this connection, or does not know yet that it has left (on io_uring: what
    /// it is given next it then sends by a call, whose end it knows); while another thread sends on it; from
    /// [`Config::zero_copy_threshold`](crate::Config::zero_copy_threshold) on; if the socket is full or fails; and once this end
    /// has ended its direction, or the connection ends. Of more pieces than [`RawPieces::MOST`] it takes the first ones.
    #[must_use = "what was not sent is to be given to the loop"]
    pub fn try_send(&self, pieces: &[IoSlice<'_>]) -> usize {
        let socket = &*self.0;
        if !socket.is_next() {
            return 0;
        }
        let pieces = &pieces[..pieces.len().min(RawPieces::MOST)];
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length == 0 || length >= socket.limit {
            return 0;
        }
        let Some(used) = socket.begin() else { return 0 };
        let taken = match send(&used, pieces) {
            Ok(taken) => taken,
            // The loop finds that out by itself, or has better luck.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOMEM | Errno::ENOBUFS) => 0,
            // The kernel tells an error once.
            Err(errno) => {
                socket.keep_error(errno);
                0
            }
        };
        socket.inbox.count_direct_send(pieces.len(), length, taken);
        drop(used);
        taken
    }
}

/// Pieces for whose list no memory is taken.
const FEW: usize = 16;

fn send(used: &Use<'_>, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let mut few = [piece(std::ptr::null(), 0); FEW];
    let mut many = Vec::new();
    let list = if pieces.len() <= FEW {
        &mut few[..pieces.len()]
    } else {
        many.resize(pieces.len(), few[0]);
        &mut many[..]
    };
    for (place, bytes) in list.iter_mut().zip(pieces) {
        *place = piece(bytes.as_ptr(), bytes.len());
    }
    used.send(&header_of(list))
}

impl fmt::Debug for DirectSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectSender({})", self.0.descriptor)
    }
}

/// What a datagram socket shares with the threads that send on it.
#[derive(Debug)]
pub(crate) struct LentDatagramSocket {
    pub(crate) socket: LentSocket,
    way: Way,
    /// Whether an error that the network has answered an earlier datagram with is told in place of a send, and nowhere else.
    answers_once: bool,
    sent: AtomicU64,
    sent_bytes: AtomicU64,
}

impl LentDatagramSocket {
    pub(crate) fn new(socket: LentSocket, way: Way, answers_once: bool) -> Arc<Self> {
        Arc::new(Self {
            socket,
            way,
            answers_once,
            sent: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
        })
    }

    /// The datagrams that left so, and their bytes.
    pub(crate) fn sent(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.sent), read(&self.sent_bytes))
    }
}

/// Sends datagrams from any thread while the loop of their socket sleeps. Made by
/// [`Loop::direct_datagram_sender`](crate::Loop::direct_datagram_sender).
///
/// It is what [`DirectSender`] is for connections: whatever it does not send is to be given to the loop, which tells what becomes
/// of it as ever, and who wants the order of datagrams kept does not call it while anything is on its way to the loop.
#[derive(Clone)]
pub struct DirectDatagramSender(Arc<LentDatagramSocket>);

impl DirectDatagramSender {
    pub(crate) fn new(socket: Arc<LentDatagramSocket>) -> Self {
        Self(socket)
    }

    /// Whether a [`DirectDatagramSender::try_send`] would be tried now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.socket.is_next()
    }

    /// Sends a datagram, and returns whether it has left. It never waits. Nothing tells of it later, whatever its token is: memory
    /// that it lends is free again.
    ///
    /// Returns false, and nothing was sent, while the loop is awake; while it has something queued for this socket; while another
    /// thread sends on it; for several datagrams of one size; if the kernel takes it not at once, or refuses it; and once the
    /// socket is being closed.
    #[must_use = "what was not sent is to be given to the loop"]
    pub fn try_send(&self, datagram: &DatagramSend<'_>) -> bool {
        let Self(lent) = self;
        let socket = &lent.socket;
        if !socket.is_next() || datagram.segment_size.is_some() {
            return false;
        }
        let mut heading = Heading::empty();
        // The loop says why.
        if lent.way.write(&mut heading, datagram).is_err() {
            return false;
        }
        let Some(used) = socket.begin() else {
            return false;
        };
        let bytes = datagram.payload.as_slice();
        let mut pieces = [piece(bytes.as_ptr(), bytes.len())];
        let mut header = header_of(&mut pieces);
        heading.fill(&mut header, false);
        let result = used.send(&header);
        socket.inbox.count_direct_datagram();
        match result {
            Ok(_) => {
                lent.sent.fetch_add(1, Ordering::Relaxed);
                lent.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Err(errno) if lent.answers_once && errno == Errno::ECONNREFUSED => socket.keep_error(errno),
            // The loop finds that out by itself, or has better luck.
            Err(_) => {}
        }
        drop(used);
        result.is_ok()
    }
}

impl fmt::Debug for DirectDatagramSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectDatagramSender({})", self.0.socket.descriptor)
    }
}
