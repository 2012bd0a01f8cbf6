//! What a datagram socket and its loop share: as `link` for streams, of whole datagrams.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use quoit::{
    Address, DatagramError, DatagramSend, DatagramSocketId, Datagrams, DirectDatagramSender, Errno, Payload,
    Refusal,
};

use crate::any_loop::AnyLoop;
use crate::closing::Socket;
use crate::errors::Gone;
use crate::home::Home;
use crate::lock::lock;
use crate::waiters::{WaiterKey, Waiters};

/// Datagrams that a socket which is used on another thread than its loop's leaves for the loop at most, and their bytes.
const MOST_LEFT: usize = 256;
const BYTES_LEFT: usize = 256 * 1024;

/// What a datagram socket and its loop share.
#[derive(Debug)]
pub(crate) struct Port {
    home: Arc<Home>,
    state: Mutex<State>,
    /// What threads send by that are not the loop's, once one has sent.
    direct: OnceLock<DirectDatagramSender>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    id: Option<DatagramSocketId>,
    received: VecDeque<Datagrams>,
    /// What the network has told, for whoever asks first, as on a kernel's socket.
    error: Option<Errno>,
    /// What a send has failed with behind its call, for the next who sends. Not for who receives: a server that ends when that
    /// fails would end by its answer to one whom it has no route to.
    send_error: Option<Errno>,
    /// What the network tells of datagrams is not asked for.
    ignores_errors: bool,
    closed: Option<io::ErrorKind>,
    gone: bool,
    left: VecDeque<DatagramSend<'static>>,
    left_bytes: usize,
    full: bool,
    dropped: bool,
    listed: bool,
    receivers: Waiters,
    senders: Waiters,
}

impl State {
    /// What a call finds before it looks for anything else: an error that the network has brought, as on a kernel's socket, or
    /// the end.
    fn check(&mut self) -> io::Result<()> {
        if let Some(errno) = self.error.take() {
            return Err(errno.into());
        }
        if self.gone {
            return Err(Gone.into());
        }
        match self.closed {
            Some(kind) => Err(kind.into()),
            None => Ok(()),
        }
    }

    /// The same for who sends.
    fn check_send(&mut self) -> io::Result<()> {
        match self.send_error.take() {
            Some(errno) => Err(errno.into()),
            None => self.check(),
        }
    }

    fn has_room(&self) -> bool {
        !self.full && self.left.len() < MOST_LEFT && self.left_bytes < BYTES_LEFT
    }

    /// Whether [`State::check`] would find something.
    fn has_news(&self) -> bool {
        self.error.is_some() || self.gone || self.closed.is_some()
    }

    /// Whether a receive would not wait.
    pub(crate) fn is_readable(&self) -> bool {
        !self.received.is_empty() || self.has_news()
    }

    /// Whether a send would not wait.
    fn is_writable(&self) -> bool {
        self.has_room() || self.has_news()
    }

    /// Takes what has come in the memory that it came in: of joined ones, those that were not read one by one before.
    pub(crate) fn take_datagrams(&mut self) -> Option<Datagrams> {
        self.received.pop_front()
    }
}

impl Port {
    pub(crate) fn new(home: Arc<Home>) -> Arc<Self> {
        Arc::new(Self {
            home,
            state: Mutex::default(),
            direct: OnceLock::new(),
        })
    }

    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// What the network has told and nobody was told of.
    pub(crate) fn take_error(&self) -> Option<Errno> {
        lock(&self.state).error.take()
    }

    pub(crate) fn id(&self) -> io::Result<DatagramSocketId> {
        lock(&self.state).id.ok_or_else(|| Errno::ENOTCONN.into())
    }

    /// Has nobody told what the network tells of datagrams: for protocols that find out for themselves what was lost.
    #[cfg(feature = "quinn")]
    pub(crate) fn ignore_errors(&self) {
        let mut state = lock(&self.state);
        state.ignores_errors = true;
        state.error = None;
    }

    /// Whether it can still send and receive.
    #[cfg(feature = "quinn")]
    pub(crate) fn is_open(&self) -> bool {
        let state = lock(&self.state);
        !state.gone && state.closed.is_none()
    }

    /// The loop has opened it.
    pub(crate) fn begin(&self, id: DatagramSocketId) {
        lock(&self.state).id = Some(id);
    }

    pub(crate) fn on_datagrams(&self, datagrams: Datagrams, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        if state.dropped {
            return;
        }
        state.received.push_back(datagrams);
        state.receivers.take_all(wakers);
    }

    pub(crate) fn on_error(&self, error: DatagramError, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        if state.ignores_errors {
            return;
        }
        match error {
            DatagramError::Network(errno) | DatagramError::Receive(errno) => {
                state.error.get_or_insert(errno);
                state.receivers.take_all(wakers);
                state.senders.take_all(wakers);
            }
            DatagramError::Send { errno, .. } => {
                state.send_error.get_or_insert(errno);
            }
            DatagramError::TooLarge { .. } => {
                state.send_error.get_or_insert(Errno::EMSGSIZE);
            }
            // Of a receiver that `send_to` named: a kernel's socket without a peer is told nothing.
            _ => {}
        }
    }

    pub(crate) fn on_writable(&self, event_loop: &mut AnyLoop, wakers: &mut Vec<Waker>) {
        lock(&self.state).full = false;
        self.carry_out(event_loop, wakers);
        let mut state = lock(&self.state);
        if state.has_room() {
            state.senders.take_all(wakers);
        }
    }

    pub(crate) fn on_closed(&self, error: Option<Errno>, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.id = None;
        state.closed = Some(error.map_or(io::ErrorKind::NotConnected, |errno| io::Error::from(errno).kind()));
        state.receivers.take_all(wakers);
        state.senders.take_all(wakers);
    }

    pub(crate) fn on_gone(&self, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.gone = true;
        state.id = None;
        state.receivers.take_all(wakers);
        state.senders.take_all(wakers);
        let left = std::mem::take(&mut state.left);
        drop(state);
        drop(left);
    }

    /// Gives the loop what was left for it.
    pub(crate) fn carry_out(&self, event_loop: &mut AnyLoop, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.listed = false;
        let Some(id) = state.id else { return };
        if !state.left.is_empty()
            && self.direct.get().is_none()
            && let Ok(direct) = event_loop.direct_datagram_sender(id)
        {
            let _ = self.direct.set(direct);
        }
        while !state.full
            && let Some(datagram) = state.left.pop_front()
        {
            let length = datagram.payload.len();
            if event_loop.is_datagram_full(id) {
                state.full = true;
                state.left.push_front(datagram);
                break;
            }
            state.left_bytes -= length;
            if let Err(refusal) = event_loop.send_datagram(id, datagram) {
                state.send_error.get_or_insert(errno_of(refusal));
            }
        }
        if state.has_room() {
            state.senders.take_all(wakers);
        }
        if state.dropped && state.left.is_empty() {
            // It may be closing already.
            let _ = event_loop.close_datagram(id);
        }
    }

    pub(crate) fn poll_recv<R>(
        &self,
        cx: &mut Context<'_>,
        future: Option<&mut Option<WaiterKey>>,
        take: &mut dyn FnMut(&mut State) -> Option<R>,
    ) -> Poll<io::Result<R>> {
        let mut state = lock(&self.state);
        if let Some(taken) = take(&mut state) {
            return Poll::Ready(Ok(taken));
        }
        state.check()?;
        let before = match future {
            Some(key) => state.receivers.wait(key, cx.waker()),
            None => state.receivers.poll(cx.waker()),
        };
        drop(state);
        drop(before);
        Poll::Pending
    }

    pub(crate) fn try_recv<R>(&self, take: &mut dyn FnMut(&mut State) -> Option<R>) -> io::Result<R> {
        let mut state = lock(&self.state);
        if let Some(taken) = take(&mut state) {
            return Ok(taken);
        }
        state.check()?;
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Sends a datagram, or gives it back: there is no room now.
    pub(crate) fn try_send<'a>(
        self: &Arc<Self>,
        datagram: DatagramSend<'a>,
    ) -> Result<io::Result<()>, DatagramSend<'a>> {
        let mut state = lock(&self.state);
        if let Err(error) = state.check_send() {
            return Ok(Err(error));
        }
        if !state.has_room() {
            return Err(datagram);
        }
        let mut datagram = Some(datagram);
        if state.left.is_empty()
            && let Some(id) = state.id
            && let Some(result) = self
                .home
                .here(|driver| send_at_once(&mut driver.event_loop, id, &mut datagram))
        {
            return match (result, datagram) {
                (Err(Refusal::Full), Some(back)) => {
                    state.full = true;
                    Err(back)
                }
                (result, _) => Ok(result.map_err(|refusal| errno_of(refusal).into())),
            };
        }
        let datagram = datagram.expect("nothing has taken it");
        if state.left.is_empty()
            && let Some(direct) = self.direct.get().filter(|direct| direct.is_ready())
        {
            // Not under the lock, which the loop takes as well.
            drop(state);
            if direct.try_send(&datagram) {
                return Ok(Ok(()));
            }
            state = lock(&self.state);
            if let Err(error) = state.check_send() {
                return Ok(Err(error));
            }
        }
        let datagram = kept(datagram);
        state.left_bytes += datagram.payload.len();
        state.left.push_back(datagram);
        self.list(state);
        Ok(Ok(()))
    }

    /// Nobody has the socket any more, which is bound to this port.
    pub(crate) fn drop_socket(self: &Arc<Self>, port: u16) {
        let mut state = lock(&self.state);
        state.dropped = true;
        let received = std::mem::take(&mut state.received);
        // Under the lock, which its end takes first.
        if let Some(id) = state.id
            && let Some(family) = self.home.living_family()
        {
            family.closing.begin(Socket::Datagrams(id), port);
        }
        drop(state);
        drop(received);
        self.tell();
    }

    /// Has the loop do what was just noted: at once on its thread, in its next turn from another.
    fn tell(self: &Arc<Self>) {
        let mut wakers = Vec::new();
        let here = self
            .home
            .here(|driver| self.carry_out(&mut driver.event_loop, &mut wakers));
        if here.is_none() {
            self.list(lock(&self.state));
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    fn list(self: &Arc<Self>, mut state: std::sync::MutexGuard<'_, State>) {
        if std::mem::replace(&mut state.listed, true) {
            return;
        }
        drop(state);
        if self.home.want_port(Arc::clone(self)).is_err() {
            let mut wakers = Vec::new();
            self.on_gone(&mut wakers);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn forget_sender(&self, key: WaiterKey) {
        let waker = lock(&self.state).senders.forget(key);
        drop(waker);
    }

    fn forget_receiver(&self, key: WaiterKey) {
        let waker = lock(&self.state).receivers.forget(key);
        drop(waker);
    }

    /// Whether it is ready for something of what `interest` asks for, and for what.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        interest: tokio::io::Interest,
        reads: &mut Option<WaiterKey>,
        writes: &mut Option<WaiterKey>,
    ) -> Poll<tokio::io::Ready> {
        use tokio::io::Ready;

        let mut state = lock(&self.state);
        let mut ready = Ready::EMPTY;
        if interest.is_readable() && state.is_readable() {
            ready |= Ready::READABLE;
        }
        if interest.is_writable() && state.is_writable() {
            ready |= Ready::WRITABLE;
        }
        if interest.is_error() && state.error.is_some() {
            ready |= Ready::ERROR;
        }
        if !ready.is_empty() {
            return Poll::Ready(ready);
        }
        // An error wakes those who wait for either.
        let before = [
            (interest.is_readable() || interest.is_error()).then(|| state.receivers.wait(reads, cx.waker())),
            interest
                .is_writable()
                .then(|| state.senders.wait(writes, cx.waker())),
        ];
        drop(state);
        drop(before);
        Poll::Pending
    }

    pub(crate) fn poll_writable(
        &self,
        cx: &mut Context<'_>,
        key: Option<&mut Option<WaiterKey>>,
    ) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.is_writable() {
            return Poll::Ready(());
        }
        let before = match key {
            Some(key) => state.senders.wait(key, cx.waker()),
            None => state.senders.poll(cx.waker()),
        };
        drop(state);
        drop(before);
        Poll::Pending
    }
}

/// Gives the loop a datagram, whose place is left empty. With `Full` it is still there.
fn send_at_once(
    event_loop: &mut AnyLoop,
    id: DatagramSocketId,
    place: &mut Option<DatagramSend<'_>>,
) -> Result<(), Refusal> {
    if event_loop.is_datagram_full(id) {
        return Err(Refusal::Full);
    }
    let Some(datagram) = place.take() else {
        return Ok(());
    };
    // A copy may be too long for the room that is left, and is refused: then it is tried again. What is lent is not.
    let again = match datagram.payload {
        Payload::Copy(bytes) => Some(DatagramSend {
            payload: Payload::Copy(bytes),
            to: datagram.to.clone(),
            ..datagram
        }),
        _ => None,
    };
    let result = event_loop.send_datagram(id, datagram);
    if result == Err(Refusal::Full) {
        *place = again;
    }
    result
}

/// The same, with bytes of its own in place of borrowed ones.
fn kept(datagram: DatagramSend<'_>) -> DatagramSend<'static> {
    let payload = match datagram.payload {
        Payload::Copy(bytes) => Payload::Bytes(Bytes::copy_from_slice(bytes)),
        Payload::Bytes(bytes) => Payload::Bytes(bytes),
        Payload::Lease(lease) => Payload::Lease(lease),
        Payload::Raw(raw) => Payload::Raw(raw),
    };
    DatagramSend { payload, ..datagram }
}

fn errno_of(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Error(errno) => errno,
        Refusal::TooLarge => Errno::EMSGSIZE,
        Refusal::Limit | Refusal::Full => Errno::ENOBUFS,
        Refusal::Stale | Refusal::Closing => Errno::ENOTCONN,
    }
}

/// Takes one datagram by `copy`, which returns how much of it there is room for. The rest is lost, as it is to the kernel.
pub(crate) fn take_by<'a>(
    mut copy: impl FnMut(&[u8]) -> usize + 'a,
) -> impl FnMut(&mut State) -> Option<(usize, SocketAddr)> + 'a {
    move |state| {
        let front = state.received.front_mut()?;
        let found = of_first(front, &mut copy);
        if !front.skip_first() {
            state.received.pop_front();
        }
        Some(found)
    }
}

/// As [`take_by`], and leaves the datagram where it is. An error that the network has brought is told instead where nothing has come.
pub(crate) fn look_by<'a>(
    mut copy: impl FnMut(&[u8]) -> usize + 'a,
) -> impl FnMut(&mut State) -> Option<(usize, SocketAddr)> + 'a {
    move |state| Some(of_first(state.received.front()?, &mut copy))
}

fn of_first(datagrams: &Datagrams, copy: &mut dyn FnMut(&[u8]) -> usize) -> (usize, SocketAddr) {
    let first = datagrams.first();
    (copy(&first), peer_of(&first.peer()))
}

pub(crate) fn peer_of(address: &Address) -> SocketAddr {
    match address {
        Address::Tcp(address) => *address,
        _ => SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}

/// A future that waits beside others, and is forgotten when it is dropped.
pub(crate) struct Waiting<'a> {
    pub(crate) port: &'a Port,
    pub(crate) sends: bool,
    pub(crate) key: Option<WaiterKey>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            if self.sends {
                self.port.forget_sender(key);
            } else {
                self.port.forget_receiver(key);
            }
        }
    }
}
