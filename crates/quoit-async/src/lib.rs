//! Async sockets on Quoit's loops: io_uring where it can be had, epoll where not, under the programs that use tokio.
//!
//! The types are those of `tokio::net`, by name and by what they do: [`TcpListener`], [`TcpStream`], [`UnixListener`],
//! [`UnixStream`], [`UdpSocket`]. They are `Send`, can be used from any task, and need nothing of a runtime but wakers.
//!
//! There are two ways to run them:
//!
//! - **In the program's own runtime** ([`Loops`]): `#[tokio::main]` stays as it is. Loops run on threads of their own and start
//!   by themselves; streams are used from any worker.
//! - **A loop and a runtime per thread** ([`serve()`], [`Server`]): faster, as what is read and written crosses no thread.
//!
//! ```
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let listener = quoit_async::TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?;
//! tokio::spawn(async move {
//!     let (mut stream, _) = listener.accept().await?;
//!     stream.write_all(b"hello").await
//! });
//! let mut stream = quoit_async::TcpStream::connect(address).await?;
//! let mut text = String::new();
//! stream.read_to_string(&mut text).await?;
//! assert_eq!(text, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! What differs from `tokio::net` stands in `docs/async.md`.

#![cfg_attr(
    not(all(feature = "tokio", feature = "hyper", feature = "futures-io")),
    allow(
        dead_code,
        reason = "what the traits of the features that are left out would call"
    )
)]

mod accept;
mod alarm;
mod any_loop;
mod ask;
mod budget;
mod closing;
mod connect;
#[cfg(feature = "hyper-util")]
mod connector;
mod credentials;
mod driver;
mod errors;
mod family;
mod home;
mod io_traits;
mod lanes;
mod link;
mod listener;
mod lock;
mod lookup;
mod lookups;
mod loops;
mod mailbox;
mod memory;
#[cfg(feature = "quinn")]
mod path_mtu;
mod port;
#[cfg(feature = "tokio")]
mod serve;
mod signal;
#[cfg(quoit_simulated)]
#[doc(hidden)]
pub mod simulation;
mod stream;
mod stream_type;
mod table;
mod tcp;
mod tcp_socket;
#[cfg(feature = "tokio")]
mod turner;
mod udp;
mod unix;
mod waiters;
#[cfg(feature = "tokio")]
mod watch;

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "quinn")]
mod quinn;
#[cfg(feature = "tonic")]
mod tonic;

#[cfg(feature = "axum")]
pub use crate::axum::PeerAddr;
#[cfg(feature = "quinn")]
pub use crate::quinn::{QuinnRuntime, QuinnSocket};
#[cfg(feature = "tonic")]
pub use crate::tonic::UnixConnectInfo;
#[cfg(feature = "hyper-util")]
pub use connector::Connector;
pub use credentials::PeerCredentials;
pub use lookup::ToSocketAddrs;
pub use loops::{Loops, LoopsConfig, default_counters, drain_default};
pub use memory::Memory;
pub use quoit::{
    Address, Config, Counters, DatagramOptions, DatagramSend, Datagrams, Drainer, Ecn, EngineChoice,
    EngineKind, Gro, Lease, Listen, ListenerOptions, Payload, Spread,
};
#[cfg(feature = "tokio")]
pub use serve::{Context, Server, ServerConfig, serve};
pub use tcp::{
    Incoming, OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, TcpListener, TcpStream, WriteHalf,
};
pub use tcp_socket::TcpSocket;
pub use udp::UdpSocket;
pub use unix::{
    OwnedUnixReadHalf, OwnedUnixWriteHalf, UnixIncoming, UnixListener, UnixReadHalf, UnixReuniteError,
    UnixStream, UnixWriteHalf,
};

/// The code of the documents, so that it goes on compiling.
#[cfg(doctest)]
mod documents {
    // Its code has tonic and quinn in it.
    #[cfg(feature = "examples")]
    #[doc = include_str!("../../../docs/async.md")]
    mod asynchronous {}
    #[doc = include_str!("../README.md")]
    mod crate_readme {}
    #[doc = include_str!("../../../README.md")]
    mod readme {}
}
