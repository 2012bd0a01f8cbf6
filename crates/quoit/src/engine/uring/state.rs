//! What the engine keeps of each connection and listener.

use std::os::fd::RawFd;

use super::user_data::{Tag, UserData};
use crate::address::SocketAddress;
use crate::engine::Gather;
use crate::id::Slot;
use crate::pool::PoolSlot;

/// Where a connection's receiving stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum ReceiveStage {
    /// Nothing is outstanding.
    #[default]
    Idle,
    /// A receive that takes its buffers from the buffer ring.
    Selecting,
    /// A poll, to be followed by a receive into a slot that is taken only then.
    Polling,
    /// That receive, into this slot.
    Filling(PoolSlot),
    /// A receive of what nobody wants.
    Discarding,
}

/// A connection's receiving.
#[derive(Default)]
pub(super) struct Receive {
    pub(super) stage: ReceiveStage,
    /// Whether it was cancelled, by the loop or because its budget is used up.
    pub(super) cancelled: bool,
    /// Which of the connection's it is: a late cancellation of an earlier one is not meant for it.
    pub(super) number: u16,
    /// Bytes still wanted, where the engine and not the kernel keeps count.
    pub(super) budget: u32,
}

/// Where a connection's sending stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum SendStage {
    /// Nothing is outstanding, but perhaps notifications of zero-copy sends.
    #[default]
    Idle,
    /// A send that ends while it is submitted, without a completion if the socket takes all.
    Attempt,
    /// A send that waits until the socket has taken all.
    Sending,
    /// A zero-copy send.
    ZeroCopy,
    /// A zero-copy send that the socket does not support; to be sent in the ordinary way after its notification.
    Refused,
    /// A poll, to be followed by another attempt to send from a file.
    Polling,
}

/// What is being sent.
#[derive(Default)]
pub(super) enum Payload {
    #[default]
    None,
    /// Memory: its address and length in bytes.
    Single(u64, u32),
    /// Several pieces of memory.
    Gathered(Box<Gather>),
    /// A file's range: the file, the offset and the length in bytes.
    File(RawFd, u64, u64),
}

impl Payload {
    /// Leaves out the first `bytes` of memory, which are sent.
    #[cold]
    pub(super) fn advance(&mut self, bytes: u64) {
        match self {
            Self::Single(address, length) => {
                *address += bytes;
                *length -= bytes as u32;
            }
            Self::Gathered(gather) => {
                let mut left = bytes as usize;
                let sent = gather.pieces.iter().take_while(|piece| {
                    let whole = piece.iov_len <= left;
                    left -= if whole { piece.iov_len } else { 0 };
                    whole
                });
                let sent = sent.count();
                gather.pieces.drain(..sent);
                if let Some(first) = gather.pieces.first_mut() {
                    first.iov_base = first.iov_base.wrapping_byte_add(left);
                    first.iov_len -= left;
                }
            }
            Self::None | Self::File(..) => debug_assert_eq!(bytes, 0),
        }
    }
}

/// A connection's sending.
#[derive(Default)]
pub(super) struct Send {
    pub(super) payload: Payload,
    /// Bytes in all.
    pub(super) length: u64,
    /// Zero-copy sends so far that left memory in use.
    pub(super) sequence: u32,
    pub(super) stage: SendStage,
    /// The number of the submission that is the attempt.
    pub(super) attempt: u64,
    /// Bytes that an attempt has sent, of which the rest is now being waited for.
    pub(super) done: u64,
    pub(super) cancelled: bool,
    /// Whether this socket has refused zero copy.
    pub(super) refuses_zero_copy: bool,
}

/// A connection's connecting.
#[derive(Default)]
pub(super) struct Connect {
    /// Where to, while it is outstanding.
    pub(super) address: Option<Box<SocketAddress>>,
    pub(super) cancelled: bool,
}

/// What the engine keeps of a connection.
#[derive(Default)]
pub(super) struct Connection {
    pub(super) descriptor: RawFd,
    pub(super) receive: Receive,
    pub(super) connect: Connect,
    pub(super) send: Send,
}

impl Connection {
    pub(super) fn is_idle(&self) -> bool {
        self.receive.stage == ReceiveStage::Idle
            && self.send.stage == SendStage::Idle
            && self.connect.address.is_none()
    }
}

/// What the engine keeps of a listener.
#[derive(Default)]
pub(super) struct Listener {
    pub(super) descriptor: RawFd,
    pub(super) accepting: bool,
    /// The kernel accepts again and again; otherwise once.
    pub(super) multishot: bool,
    pub(super) cancelled: bool,
    /// Connections that this accept may still deliver.
    pub(super) left: u32,
}

/// The user data of a connection's receive, in all its stages.
#[inline]
pub(super) fn receive_data(connection: Slot, receive: &Receive) -> UserData {
    UserData::new(Tag::Receive, connection, receive.number.into())
}

/// The user data of a connection's send: a zero-copy one can be told by its sequence when it is released.
#[inline]
pub(super) fn send_data(connection: Slot, send: &Send) -> UserData {
    UserData::new(Tag::Send, connection, send.sequence)
}
