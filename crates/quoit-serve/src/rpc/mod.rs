//! The server of `quoit serve rpc`, as logic without input or output of its own.
//!
//! A driver owns the sockets, the buffers and the clock. For every connection it keeps one [`RpcConnection`], hands it
//! the bytes that arrived and the time, and sends the bytes that it appends, of which it asks for no more than there
//! is room for. What the connections of one loop share is in one [`Environment`]. The frames are those of
//! [`quoit_workload::rpc`], described in `docs/rpc.md`.
//!
//! Memory is bounded: messages are produced when there is room for them, never queued; messages received are summed
//! up and dropped; a stream costs its entries in two tables, about 160 bytes.

mod connection;
mod environment;
mod output;
mod pacing;
mod stream;

#[cfg(test)]
mod floor_tests;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;

pub use connection::{Next, RpcConnection};
pub use environment::{Environment, Totals};
