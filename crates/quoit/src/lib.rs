//! Network transport for Linux servers: io_uring where it can be had, epoll where not, with the same behaviour.
//!
//! A [`Loop`] serves connections, listeners, datagram sockets and timers from one thread. It is *pull*: a turn takes commands,
//! enters the kernel once, and reports events. A [`Handler`] is the easy way to drive it, a [`Runtime`] runs
//! several loops behind the same listeners:
//!
//! ```
//! use std::io::{Read, Write};
//! use quoit::{Address, ConnectionId, Handler, Lease, Listen, ListenerOptions, Loop, Runtime, RuntimeConfig, Token};
//!
//! struct Shout;
//!
//! impl Handler for Shout {
//!     fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
//!         // All that a handler sends in one turn leaves together.
//!         if event_loop.send_or_abort(connection, data.to_ascii_uppercase(), Token::NONE) && event_loop.is_full(connection) {
//!             // Nothing more is received from a client that does not read its answers, until it does.
//!             let _ = event_loop.pause(connection);
//!         }
//!     }
//!
//!     fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
//!         let _ = event_loop.resume(connection);
//!     }
//! }
//!
//! let address: Address = "127.0.0.1:0".parse()?;
//! let listeners = vec![(Listen::Address(address), ListenerOptions::default())];
//! let runtime = Runtime::start(RuntimeConfig { listeners, ..RuntimeConfig::default() }, |_| Shout)?;
//! println!("{} on {}: {}", runtime.addresses()[0], runtime.engine(), runtime.engine_reason());
//!
//! # let Address::Tcp(address) = &runtime.addresses()[0] else { unreachable!() };
//! let mut client = std::net::TcpStream::connect(address)?;
//! client.write_all(b"hello")?;
//! let mut answer = [0; 5];
//! client.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"HELLO");
//! # drop(client);
//!
//! runtime.drain(std::time::Duration::from_secs(5));
//! runtime.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What to know before relying on it:
//!
//! - **Receiving.** Bytes arrive in memory leased from the loop's pool; dropping the [`Lease`] returns it, from any
//!   thread. When a connection holds all the leases it may, or the pool is empty, receiving pauses and
//!   [`Event::Pressure`] says so. Idle connections hold no memory.
//! - **Sending.** [`Loop::send`] copies a slice, or borrows a `Bytes` or a `Lease` until it is sent. At the
//!   high-water mark sends are refused and [`Event::Writable`] follows: memory is bounded both ways.
//!   [`Loop::send_or_abort`] is for what the peer cannot do without; [`Loop::is_full`] tells when to receive no more.
//! - **Datagrams.** [`Loop::bind_datagram`] opens a socket with [memory of its own](DatagramOptions::slots);
//!   [`Handler::on_datagram`] gets what comes, [`Loop::send_datagram`] sends. Batches, joined datagrams (GRO) and
//!   segments (GSO) need no more than an option. [`DatagramCounters`] tell what was lost where.
//! - **Identity.** A [`ConnectionId`] outlives its connection harmlessly: a stale one is refused.
//! - **Draining.** [`Runtime::drain`] or a [`Drainer`] ends loops in order; the examples do it at a signal.
//! - **Ending.** Each connection has exactly one [`Event::Closed`], its last event, with the
//!   [reason](CloseReason). [`event`] has the whole table of what follows what.
//! - **Waiting.** [`Config::wait`] says whether a loop sleeps, looks for a while first, or never sleeps.
//! - **Threads.** A loop belongs to the thread of its first turn. Others use its [`Remote`]: post commands, wake,
//!   read counters.
//! - **Limits.** [`Config`] has one for everything, each with its default and its reason.
//! - **Observing.** [`Loop::counters`] tells what the loop did; [`Loop::engine_reason`] why it runs on its engine.

pub mod address;
mod affinity;
mod chunks;
pub mod command;
mod config;
pub mod counters;
pub mod datagram;
mod direct;
mod engine;
mod errno;
pub mod event;
mod event_loop;
pub mod features;
mod footprint;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handler;
pub mod host;
pub mod id;
pub mod listen;
mod outbound;
mod pool;
pub mod proxy_protocol;
mod remote;
mod reserved;
mod runtime;
mod selected;
mod stream_options;
mod sync;
mod sys;
mod thread;
mod timers;
mod wake;

pub use address::Address;
pub use affinity::{available_cpus, pin_current_thread};
pub use command::{
    AttachOptions, Command, ConnectOptions, FileRange, Keepalive, OnShort, Payload, RawBytes, RawPieces,
    StreamOptions,
};
pub use config::{Config, ConfigError, EngineChoice, WaitMode};
pub use counters::Counters;
pub use datagram::{
    Datagram, DatagramCounters, DatagramOptions, DatagramSend, DatagramSocket, DatagramSocketError,
    Datagrams, Ecn, Gro, MulticastGroup, Steering, Unreachable,
};
pub use direct::{DirectDatagramSender, DirectSender};
pub use engine::EngineKind;
pub use engine::uring::{Capabilities, Missing, Telling};
pub use errno::Errno;
pub use event::{CloseReason, DatagramError, Event, Events, Refusal};
pub use event_loop::{Accept, ListenerOptions, Loop, NotPollable, TurnError};
pub use features::{Feature, FeatureSet};
pub use footprint::Footprint;
pub use handler::{Delivery, Handler};
pub use id::{ConnectionId, DatagramSocketId, ListenerId, LoopIndex, Token};
pub use listen::{ListenError, ListenOptions, ListenSocket};
pub use pool::{Lease, MAX_LEASES};
pub use remote::{Permit, PostError, Remote, ReserveError};
pub use runtime::{Drainer, Listen, Runtime, RuntimeConfig, Spread};
pub use selected::{StartError, try_uring};
pub use sys::{DatagramOption, SocketOption, Time};

/// What lies beneath the API, for the simulator and the tests of this repository: the engines, the traits that stand for
/// the kernel's calls, and what a loop is made of on others than Linux's. No version promises anything of it, and no
/// documentation shows it. It is public because `quoit-sim-kernel`, which implements these traits, is a crate of its own.
///
/// [`Loop`] is generic over an engine and the socket calls for its sake. Users leave both at their defaults.
#[doc(hidden)]
pub mod internals {
    pub use crate::event_loop::LoopMemory;
    pub use crate::selected::AnyEngine;

    /// The engines, and the calls that each makes.
    pub mod engine {
        pub use crate::engine::*;
    }
    /// The memory for what is received.
    pub mod pool {
        pub use crate::pool::*;
    }
    /// The calls that set up sockets.
    pub mod sys {
        pub use crate::sys::*;
    }
}

/// The code of the documents that is whole, so that it goes on compiling. That of the README is compiled with `quoit-async`.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/rust.md")]
    mod rust {}
}
