//! Sockets that were dropped and that their loops have still to close. Who wants the address of one, or its place on its loop, waits
//! for that: a kernel's socket is closed when it is dropped.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use quoit::{DatagramSocketId, ListenerId, LoopIndex};

use crate::lock::lock;
use crate::signal::{Raised, Signal};

/// A socket that has an address to itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Socket {
    Listener(ListenerId),
    Datagrams(DatagramSocketId),
}

impl Socket {
    fn loop_index(self) -> LoopIndex {
        match self {
            Self::Listener(id) => id.loop_index(),
            Self::Datagrams(id) => id.loop_index(),
        }
    }
}

/// Those of the loops of one family, with their ports.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    sockets: Mutex<HashMap<Socket, (u16, Arc<Signal>)>>,
}

impl Closing {
    /// It was dropped. Called before its loop is told.
    pub(crate) fn begin(&self, socket: Socket, port: u16) {
        lock(&self.sockets).insert(socket, (port, Arc::default()));
    }

    /// It is closed, or was when it was dropped.
    pub(crate) fn end(&self, socket: Socket, wakers: &mut Vec<Waker>) {
        let ended = lock(&self.sockets).remove(&socket);
        if let Some((_, ended)) = ended {
            ended.raise((), wakers);
        }
    }

    /// A loop has ended, and has closed all of its sockets.
    pub(crate) fn end_all_of(&self, ended: LoopIndex, wakers: &mut Vec<Waker>) {
        let mut sockets = lock(&self.sockets);
        for (_, (_, ended)) in sockets.extract_if(|socket, _| socket.loop_index() == ended) {
            ended.raise((), wakers);
        }
    }

    fn wait(&self, is_alike: fn(&Socket) -> bool) -> Vec<(u16, Raised)> {
        let sockets = lock(&self.sockets);
        let alike = sockets.iter().filter(|(socket, _)| is_alike(socket));
        alike.map(|(_, (port, ended))| (*port, ended.wait())).collect()
    }
}

/// Opens a listener by `open`. In vain for want of the port or of a place, it is opened again when those are closed that have it and
/// were dropped before.
pub(crate) async fn listener<T>(port: u16, open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    opened(|socket| matches!(socket, Socket::Listener(_)), port, open).await
}

/// The same for datagrams.
pub(crate) async fn datagrams<T>(port: u16, open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    opened(|socket| matches!(socket, Socket::Datagrams(_)), port, open).await
}

async fn opened<T>(
    is_alike: fn(&Socket) -> bool,
    wanted: u16,
    mut open: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let family = crate::loops::family_here()?;
    loop {
        // Before: one that is closed meanwhile may be what is in the way.
        let mut closing = family.closing.wait(is_alike);
        let result = open();
        match result.as_ref().map_err(io::Error::kind) {
            Err(ErrorKind::AddrInUse) => closing.retain(|(port, _)| *port == wanted),
            Err(ErrorKind::QuotaExceeded) => {}
            _ => return result,
        }
        if closing.is_empty() {
            return result;
        }
        for (_, closed) in closing {
            closed.await;
        }
    }
}
