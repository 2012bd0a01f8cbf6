//! What a datagram socket and its loop share: as `link` for streams, of whole datagrams.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use quoit::{
    Address, DatagramError, DatagramSend, DatagramSocketId, Datagrams, Errno, Loop, Payload, Refusal,
};

use crate::home::{Gone, Home, lock};
use crate::waiters::{WaiterKey, Waiters};

/// Datagrams that a socket which is used on another thread than its loop's leaves for the loop at most, and their bytes.
const MOST_LEFT: usize = 256;
const BYTES_LEFT: usize = 256 * 1024;

/// What a datagram socket and its loop share.
#[derive(Debug)]
pub(crate) struct Port {
    home: Arc<Home>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    id: Option<DatagramSocketId>,
    received: VecDeque<Datagrams>,
    /// How many of the front ones' joined datagrams were read already.
    read: usize,
    error: Option<Errno>,
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

    fn has_room(&self) -> bool {
        !self.full && self.left.len() < MOST_LEFT && self.left_bytes < BYTES_LEFT
    }
}

impl Port {
    pub(crate) fn new(home: Arc<Home>) -> Arc<Self> {
        Arc::new(Self {
            home,
            state: Mutex::default(),
        })
    }

    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    pub(crate) fn id(&self) -> io::Result<DatagramSocketId> {
        lock(&self.state).id.ok_or_else(|| Errno::ENOTCONN.into())
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
        let errno = match error {
            DatagramError::Network(errno) | DatagramError::Receive(errno) => errno,
            DatagramError::Send { errno, .. } => errno,
            DatagramError::TooLarge { .. } => Errno::EMSGSIZE,
            // Of a receiver that `send_to` named: a kernel's socket without a peer is told nothing.
            _ => return,
        };
        let mut state = lock(&self.state);
        state.error.get_or_insert(errno);
        state.receivers.take_all(wakers);
        state.senders.take_all(wakers);
    }

    pub(crate) fn on_writable(&self, event_loop: &mut Loop, wakers: &mut Vec<Waker>) {
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
    pub(crate) fn carry_out(&self, event_loop: &mut Loop, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.listed = false;
        let Some(id) = state.id else { return };
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
                state.error.get_or_insert(errno_of(refusal));
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

    /// Sends a datagram. `Pending`: there is no room now.
    pub(crate) fn try_send(
        self: &Arc<Self>,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        state.check()?;
        if !state.has_room() {
            return Poll::Pending;
        }
        if state.left.is_empty()
            && let Some(id) = state.id
            && let Some(result) = self.home.here(|driver| {
                driver
                    .event_loop
                    .send_datagram(id, datagram(to, Payload::Copy(bytes)))
            })
        {
            return match result {
                Ok(()) => Poll::Ready(Ok(bytes.len())),
                Err(Refusal::Full) => {
                    state.full = true;
                    Poll::Pending
                }
                Err(refusal) => Poll::Ready(Err(errno_of(refusal).into())),
            };
        }
        state.left_bytes += bytes.len();
        state
            .left
            .push_back(datagram(to, Payload::Bytes(Bytes::copy_from_slice(bytes))));
        self.list(state);
        Poll::Ready(Ok(bytes.len()))
    }

    pub(crate) fn try_send_datagram(
        self: &Arc<Self>,
        datagram: DatagramSend<'static>,
    ) -> Result<io::Result<()>, DatagramSend<'static>> {
        let mut state = lock(&self.state);
        if let Err(error) = state.check() {
            return Ok(Err(error));
        }
        if !state.has_room() {
            return Err(datagram);
        }
        state.left_bytes += datagram.payload.len();
        state.left.push_back(datagram);
        drop(state);
        self.tell();
        Ok(Ok(()))
    }

    /// Nobody has the socket any more.
    pub(crate) fn drop_socket(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.dropped = true;
        let received = std::mem::take(&mut state.received);
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

    pub(crate) fn poll_writable(
        &self,
        cx: &mut Context<'_>,
        key: Option<&mut Option<WaiterKey>>,
    ) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.has_room() || state.error.is_some() || state.gone || state.closed.is_some() {
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

fn datagram(to: Option<SocketAddr>, payload: Payload<'_>) -> DatagramSend<'_> {
    match to {
        Some(to) => DatagramSend::new(to.into(), payload),
        None => DatagramSend::to_connected(payload),
    }
}

fn errno_of(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Error(errno) => errno,
        Refusal::TooLarge => Errno::EMSGSIZE,
        Refusal::Limit | Refusal::Full => Errno::ENOBUFS,
        Refusal::Stale | Refusal::Closing => Errno::ENOTCONN,
    }
}

/// Takes one datagram: copies as much as fits, and drops the rest as the kernel does.
pub(crate) fn take_into<'a>(
    buffer: &'a mut [u8],
) -> impl FnMut(&mut State) -> Option<(usize, SocketAddr)> + 'a {
    move |state| {
        let (found, last) = {
            let front = state.received.front()?;
            let datagram = front.iter().nth(state.read)?;
            let length = datagram.len().min(buffer.len());
            buffer[..length].copy_from_slice(&datagram[..length]);
            ((length, peer_of(&datagram.peer())), state.read + 1 >= front.len())
        };
        advance(state, last);
        Some(found)
    }
}

fn advance(state: &mut State, last: bool) {
    if last {
        state.received.pop_front();
        state.read = 0;
    } else {
        state.read += 1;
    }
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
            let mut state = lock(&self.port.state);
            let waker = if self.sends {
                state.senders.forget(key)
            } else {
                state.receivers.forget(key)
            };
            drop(state);
            drop(waker);
        }
    }
}

impl State {
    /// Whether a receive would not wait.
    pub(crate) fn is_readable(&self) -> bool {
        !self.received.is_empty() || self.error.is_some() || self.gone || self.closed.is_some()
    }

    /// Takes what has come in the memory that it came in. Of joined ones of which some were read, the others are not left out:
    /// they are copied out one by one.
    pub(crate) fn take_datagrams(&mut self) -> Option<Datagrams> {
        if self.read > 0 {
            None
        } else {
            self.received.pop_front()
        }
    }
}
