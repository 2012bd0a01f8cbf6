//! Datagram sockets: what they are made of, what they deliver, what they are given to send.
//!
//! A loop opens one with [`Loop::bind_datagram`](crate::Loop::bind_datagram) or
//! [`Loop::open_datagram`](crate::Loop::open_datagram); [`crate::event`] has the table of what follows what, and
//! `docs/datagrams.md` the contract as a whole.

mod control;
mod counters;
mod heading;
mod options;
mod send;
mod socket;
mod unreachable;
mod view;

pub use counters::DatagramCounters;
pub use options::{DatagramOptions, Gro, MulticastGroup, Steering};
pub use send::{DatagramSend, Ecn};
pub use socket::{DatagramSocket, DatagramSocketError, DatagramStep};
pub use unreachable::Unreachable;
pub use view::{Datagram, Datagrams, Segments};

pub(crate) use control::{Control, UDP_GRO, parse, parse_error, space};
pub(crate) use heading::{Heading, Way};
pub(crate) use socket::{is_v6, set_destination};
pub(crate) use view::{CONTROL_OFFSET, Head, Meta, NAME_OFFSET, NAME_ROOM, count};

/// The largest payload of a UDP datagram: 65,535 bytes less the header of UDP (RFC 768, RFC 8200). Over IPv4 it is 65,507, as
/// IPv4 counts its own header too (RFC 791).
pub const MAX_UDP_PAYLOAD: u32 = 65_527;

/// The most bytes that one send may have for the kernel to cut: what fits into a packet of either family, before the cutting.
pub(crate) const MAX_CUT_PAYLOAD: u32 = 65_507;

/// The segments that one send may be cut into (`UDP_MAX_SEGMENTS` of the kernels before 6.9; later ones take 128).
pub(crate) const MAX_SEGMENTS: u32 = 64;
