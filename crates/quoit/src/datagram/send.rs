//! What is given to a datagram socket to be sent.

use std::net::IpAddr;

use crate::address::Address;
use crate::command::Payload;
use crate::id::Token;

/// Explicit congestion notification: the two low bits of IPv4's type of service and IPv6's traffic class
/// (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Ecn {
    /// Not capable of it.
    #[default]
    NotCapable = 0,
    /// Capable, ECT(1).
    Capable1 = 1,
    /// Capable, ECT(0).
    Capable0 = 2,
    /// A router has met congestion.
    Congestion = 3,
}

impl Ecn {
    /// The codepoint in the low two bits of a type of service or traffic class.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Congestion,
        }
    }
}

/// One datagram to be sent, or several of one size to one peer.
#[derive(Debug)]
pub struct DatagramSend<'a> {
    /// The bytes.
    pub payload: Payload<'a>,
    /// Where to; `None` on a connected socket. On an IPv6 socket an IPv4 address stands for its mapped one.
    pub to: Option<Address>,
    /// Cut the payload into datagrams of this many bytes, the last of which may be shorter. They leave with one call
    /// where the kernel and the device can (`UDP_SEGMENT`), and one by one where not. Default: one datagram.
    pub segment_size: Option<u16>,
    /// The source address, for sockets bound to a wildcard: usually the one that the question was sent to. It must be
    /// of this host. Default: the kernel chooses.
    pub source: Option<IpAddr>,
    /// The interface to leave by, by number (`if_nametoindex(3)`). Default: the kernel chooses.
    pub interface: Option<u32>,
    /// The congestion notification to carry. Default: the socket's own.
    pub ecn: Option<Ecn>,
    /// Comes back with [`Event::DatagramSent`](crate::Event::DatagramSent), which tells the outcome and that lent memory
    /// is free. With [`Token::NONE`], the default, only failures are told, by
    /// [`Event::DatagramError`](crate::Event::DatagramError), and lent memory is given up in silence.
    pub token: Token,
}

impl<'a> DatagramSend<'a> {
    /// A datagram to `to`.
    #[must_use]
    pub fn new(to: Address, payload: impl Into<Payload<'a>>) -> Self {
        Self {
            to: Some(to),
            ..Self::to_connected(payload)
        }
    }

    /// A datagram to the peer that the socket is connected to.
    #[must_use]
    pub fn to_connected(payload: impl Into<Payload<'a>>) -> Self {
        Self {
            payload: payload.into(),
            to: None,
            segment_size: None,
            source: None,
            interface: None,
            ecn: None,
            token: Token::NONE,
        }
    }
}
