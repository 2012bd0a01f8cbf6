//! TCP's and Unix's streams and listeners, by what tasks do with them.

use std::future::Future;
use std::io;
use std::task::{Context, Poll};

use quoit::Address;
use quoit_async_sim::{
    OwnedReadHalf, OwnedUnixReadHalf, OwnedUnixWriteHalf, OwnedWriteHalf, TcpListener, TcpStream,
    UnixListener, UnixStream,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::reading::ReadEnd;
use super::writing::WriteEnd;

/// A stream with its halves.
pub(super) trait Stream: ReadEnd + WriteEnd + 'static {
    type Read: ReadEnd + 'static;
    type Write: WriteEnd + 'static;

    fn peer(&self) -> Option<Address>;
    fn abort(self);
    /// Dropped so that nothing waits for the peer.
    fn drop_hard(self);
    fn split(&mut self) -> (impl AsyncRead + Unpin, impl AsyncWrite + Unpin);
    fn into_split(self) -> (Self::Read, Self::Write);
    fn reunite(read: Self::Read, write: Self::Write) -> Self;
    fn forget(write: Self::Write);
}

macro_rules! stream {
    ($stream:ident, $read:ident, $write:ident, |$own:ident| $drop:expr) => {
        impl Stream for $stream {
            type Read = $read;
            type Write = $write;

            fn peer(&self) -> Option<Address> {
                self.peer_addr().ok().map(Address::from)
            }

            fn abort(self) {
                $stream::abort(self);
            }

            fn drop_hard(self) {
                let $own = self;
                $drop;
            }

            fn split(&mut self) -> (impl AsyncRead + Unpin, impl AsyncWrite + Unpin) {
                $stream::split(self)
            }

            fn into_split(self) -> ($read, $write) {
                $stream::into_split(self)
            }

            fn reunite(read: $read, write: $write) -> Self {
                read.reunite(write).expect("they are of one stream")
            }

            fn forget(write: $write) {
                write.forget();
            }
        }
    };
}

stream!(TcpStream, OwnedReadHalf, OwnedWriteHalf, |stream| {
    stream.set_zero_linger().expect("it fails never");
    drop(stream);
});
// It has no lingering.
stream!(UnixStream, OwnedUnixReadHalf, OwnedUnixWriteHalf, |stream| stream
    .abort());

/// A listener.
pub(super) trait Accepts {
    type Stream: Stream;
    const UNIX: bool;

    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Address)>>;
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Stream, Address)>>;
}

macro_rules! accepts {
    ($listener:ident, $stream:ident, $unix:literal) => {
        impl Accepts for $listener {
            type Stream = $stream;
            const UNIX: bool = $unix;

            async fn accept(&self) -> io::Result<($stream, Address)> {
                let (stream, peer) = $listener::accept(self).await?;
                Ok((stream, peer.into()))
            }

            fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<($stream, Address)>> {
                $listener::poll_accept(self, cx).map_ok(|(stream, peer)| (stream, peer.into()))
            }
        }
    };
}

accepts!(TcpListener, TcpStream, false);
accepts!(UnixListener, UnixStream, true);
