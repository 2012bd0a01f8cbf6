//! What the program and the lab's rivals measure by, so that all are measured alike.
//!
//! `quoit load udp` sends datagrams that carry a run, a sender and a number ([`Header`]). Who takes them keeps an
//! [`Account`], from which loss, duplication and reordering are known exactly: the datagrams that end a run say how
//! many were sent. A [`Sink`] is the whole course of such a run at its receiver, and ends in a [`SinkReport`], the same
//! for `quoit serve udp-sink` and for every rival of the lab. [`Work`] burns a calibrated amount of processor time, as
//! a handler would that has something to do. [`dns`] answers queries, alike for all servers that carry them.

mod account;
pub mod dns;
mod header;
mod intervals;
mod kernel;
mod sink;
mod window;
mod work;

pub use account::{Account, Entry, Totals};
pub use header::{Header, Kind, MOST_SENDERS, Malformed};
pub use intervals::Intervals;
pub use kernel::{ProcessMemory, ProcessTimes, SocketMemory};
pub use sink::{Sink, SinkReport, SocketReport, Taken};
pub use work::Work;
