//! axum's listener.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};

use crate::{TcpListener, TcpStream, UnixListener, UnixStream};

/// How long is waited after accepting has failed, as axum does for tokio's listener.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The address of a peer, for `ConnectInfo`:
/// `axum::serve(listener, app.into_make_service_with_connect_info::<quoit_async::PeerAddr>())`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAddr(pub SocketAddr);

impl Connected<IncomingStream<'_, TcpListener>> for PeerAddr {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// Whether only one connection is concerned, so that the next one can be accepted at once.
fn is_of_one_connection(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::ConnectionRefused
            | std::io::ErrorKind::ConnectionAborted
            | std::io::ErrorKind::ConnectionReset
    )
}

impl Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match Self::accept(self).await {
                Ok(accepted) => return accepted,
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

impl Listener for UnixListener {
    type Io = UnixStream;
    type Addr = quoit::Address;

    async fn accept(&mut self) -> (UnixStream, quoit::Address) {
        loop {
            match Self::accept(self).await {
                Ok(accepted) => return accepted,
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<quoit::Address> {
        Self::local_addr(self)
    }
}
