//! What both ends of a measurement share, the program's and those of the lab's rivals, so that all are measured alike.
//!
//! - *Datagrams that are counted.* `quoit load udp` sends datagrams that carry a run, a sender and a number ([`Header`]).
//!   Who takes them keeps an [`Account`], from which loss, duplication and reordering are known exactly: the datagrams
//!   that end a run say how many were sent. A [`Sink`] is the whole course of such a run at its receiver, and ends in
//!   a [`SinkReport`], the same for `quoit serve udp-sink` and for every rival of the lab.
//! - *[`rpc`]*: the frames that `quoit serve rpc` and `quoit load rpc` exchange.
//! - *[`dns`]*: answers to queries, alike for all servers that carry them.
//! - *[`Work`]* burns a calibrated amount of processor time, as a handler would that has something to do.
//!
//! Nothing here sends or receives: who uses it brings the sockets.

mod account;
pub mod dns;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod header;
mod intervals;
mod kernel;
pub mod rpc;
mod sink;
mod window;
mod work;

pub use account::{Account, Entry, Totals};
pub use header::{Header, Kind, MOST_SENDERS, Malformed};
pub use intervals::Intervals;
pub use kernel::{ProcessMemory, ProcessTimes, SocketMemory};
pub use sink::{Sink, SinkReport, SocketReport, Taken};
pub use work::Work;
