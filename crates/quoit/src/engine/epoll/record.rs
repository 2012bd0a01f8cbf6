//! What the engine knows of each socket.

use std::os::fd::RawFd;

use crate::engine::{DatagramBatch, Gather, Message, ProvidedBuffer, SendManner};
use crate::id::Slot;

/// Names one use of one slot: in the value registered with epoll, and in the engine's own lists.
///
/// A slot's sequence goes up when its handle is closed. What still names the use before, be it an entry in a
/// list or an event of a socket that lives on through a duplicate of its descriptor, is told from the slot's
/// present use and dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key(u64);

const LISTENER: u64 = 1 << 31;
const DATAGRAM: u64 = 1 << 30;

impl Key {
    /// The loop's eventfd. No slot has this key: slots have 20 bits, so some of the low half are always 0.
    pub(super) const WAKE: Self = Self(u64::MAX);

    pub(super) const fn connection(slot: Slot, sequence: u32) -> Self {
        Self((sequence as u64) << 32 | slot.get() as u64)
    }

    pub(super) const fn listener(slot: Slot, sequence: u32) -> Self {
        Self((sequence as u64) << 32 | LISTENER | slot.get() as u64)
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn to_bits(self) -> u64 {
        self.0
    }

    pub(super) const fn datagram(slot: Slot, sequence: u32) -> Self {
        Self((sequence as u64) << 32 | DATAGRAM | slot.get() as u64)
    }

    pub(super) const fn is_connection(self) -> bool {
        self.0 & (LISTENER | DATAGRAM) == 0
    }

    pub(super) const fn is_listener(self) -> bool {
        self.0 & LISTENER != 0
    }

    /// Whether the instance reports it once for each thing that happens. Of listeners it reports that they are readable.
    pub(super) fn is_edge_triggered(self) -> bool {
        self == Self::WAKE || !self.is_listener()
    }

    pub(super) const fn slot(self) -> Slot {
        Slot::new((self.0 & (DATAGRAM - 1)) as u32)
    }

    pub(super) const fn sequence(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// What a connection has still to send.
#[derive(Debug, Default)]
pub(super) enum Outgoing {
    #[default]
    Nothing,
    Single {
        address: *const u8,
        length: u32,
    },
    Gathered(Box<Gather>),
    File {
        file: RawFd,
        offset: u64,
        length: u64,
    },
}

// SAFETY: it only names memory; that it stays valid until the send has ended, on whatever thread the loop runs, is
// the contract of `Operation`.
unsafe impl Send for Outgoing {}

impl Outgoing {
    pub(super) const fn is_something(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// The pieces of memory that leave with one call; a file's range counts as one.
    pub(super) fn pieces(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Single { .. } | Self::File { .. } => 1,
            Self::Gathered(gather) => gather.pieces.len() as u64,
        }
    }

    /// The bytes that the socket is asked to take.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Single { length, .. } => u64::from(*length),
            Self::Gathered(gather) => gather.bytes(),
            Self::File { length, .. } => *length,
        }
    }

    pub(super) fn into_gather(self) -> Option<Box<Gather>> {
        match self {
            Self::Gathered(gather) => Some(gather),
            _ => None,
        }
    }
}

impl From<Message> for Outgoing {
    fn from(message: Message) -> Self {
        match message {
            Message::Single { address, length } => Self::Single { address, length },
            Message::Gathered(gather) => Self::Gathered(gather),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) descriptor: RawFd,
    pub(super) sequence: u32,
    /// Registered with epoll.
    pub(super) watched: bool,
    /// And for room to send.
    pub(super) watched_for_room: bool,
    /// In the list of what can go on.
    pub(super) listed: bool,
    /// A receive may find something: the last edge has not been used up.
    pub(super) readable: bool,
    /// A send may find room: the socket was not found full since the last edge.
    pub(super) writable: bool,
    /// The end of the stream, an error or urgent data is in the socket: a short read does not mean that
    /// nothing is left, and no further edge needs to come.
    pub(super) read_on: bool,
    /// A short read means that nothing is left, and room is told of only when none was found. Known once it is registered.
    pub(super) is_tcp: bool,
    /// Its receive has waited for a slot: it comes before those of others.
    pub(super) waited: bool,
    /// A connection attempt is under way.
    pub(super) connecting: bool,
    /// The budget left of the outstanding receive; 0 without one.
    pub(super) budget: u32,
    /// What the outstanding receive brings is dropped, whatever its budget.
    pub(super) discarding: bool,
    /// The outstanding send.
    pub(super) outgoing: Outgoing,
}

impl Connection {
    /// The slot's next use, with nothing known of the socket: it has room, as sockets at their beginning do,
    /// and what it holds is told when it is registered.
    fn fresh(sequence: u32) -> Self {
        Self {
            descriptor: -1,
            sequence,
            watched: false,
            watched_for_room: false,
            listed: false,
            readable: false,
            writable: true,
            read_on: false,
            is_tcp: false,
            waited: false,
            connecting: false,
            budget: 0,
            discarding: false,
            outgoing: Outgoing::Nothing,
        }
    }

    /// Ends this use of the slot.
    pub(super) fn forget(&mut self) {
        *self = Self::fresh(self.sequence.wrapping_add(1));
    }

    /// Whether an operation is outstanding that can go on without an edge.
    pub(super) fn can_go_on(&self) -> bool {
        (self.budget > 0 && self.readable) || (self.waits_for_room() && self.writable)
    }

    /// Whether an operation is outstanding that goes on when there is room to send.
    pub(super) fn waits_for_room(&self) -> bool {
        self.connecting || self.outgoing.is_something()
    }

    /// Whether any operation is outstanding.
    pub(super) fn is_busy(&self) -> bool {
        self.budget > 0 || self.waits_for_room()
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::fresh(0)
    }
}

/// A listener.
#[derive(Debug, Default)]
pub(super) struct Listener {
    pub(super) descriptor: RawFd,
    pub(super) sequence: u32,
    /// Registered with epoll.
    pub(super) watched: bool,
    /// In the list of what can go on.
    pub(super) listed: bool,
    /// Accepting may find something.
    pub(super) readable: bool,
    /// What is left of the outstanding accept's limit; 0 without one.
    pub(super) remaining: u32,
    /// Connections accepted since the listener was registered.
    pub(super) since_registered: u32,
}

impl Listener {
    /// Ends this use of the slot.
    pub(super) fn forget(&mut self) {
        *self = Self {
            sequence: self.sequence.wrapping_add(1),
            ..Self::default()
        };
    }
}

/// A datagram socket.
#[derive(Debug, Default)]
pub(super) struct DatagramSocket {
    pub(super) descriptor: RawFd,
    pub(super) sequence: u32,
    /// In the list of what can go on.
    pub(super) listed: bool,
    /// A receive may find something.
    pub(super) readable: bool,
    /// A send may find room: the socket was not found full since the last edge.
    pub(super) writable: bool,
    /// Registered for room to send.
    pub(super) watched_for_room: bool,
    /// An error is in the socket: fewer datagrams than were asked for do not mean that nothing is left.
    pub(super) read_on: bool,
    /// An edge has told of an error that the loop was not told of.
    pub(super) marked: bool,
    /// A receive is outstanding.
    pub(super) receiving: bool,
    /// Headers that the next receive has; 0 before the first.
    pub(super) window: usize,
    /// Bytes for control messages in each buffer.
    pub(super) control: u32,
    /// To be received into, last in, first out.
    pub(super) buffers: Vec<ProvidedBuffer>,
    /// The outstanding send, and how far it has come.
    pub(super) batch: Option<Box<DatagramBatch>>,
    pub(super) sent: usize,
    /// What becomes of the datagrams that find no room.
    pub(super) manner: SendManner,
}

impl DatagramSocket {
    /// Ends this use of the slot.
    pub(super) fn forget(&mut self) {
        *self = Self {
            sequence: self.sequence.wrapping_add(1),
            ..Self::default()
        };
    }

    /// Whether an operation is outstanding that can go on without an edge.
    pub(super) fn can_go_on(&self) -> bool {
        (self.receiving && self.readable) || (self.batch.is_some() && self.writable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MAX_SLOTS;

    #[test]
    fn keys_give_back_their_parts_and_differ() {
        let last = Slot::new(MAX_SLOTS - 1);
        let keys = [
            Key::connection(last, u32::MAX),
            Key::listener(last, u32::MAX),
            Key::datagram(last, u32::MAX),
            Key::connection(Slot::new(0), u32::MAX),
            Key::connection(last, 0),
            Key::WAKE,
        ];
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(Key::from_bits(key.to_bits()), *key);
            assert!(!keys[..index].contains(key));
        }
        for key in &keys[..3] {
            assert_eq!((key.slot(), key.sequence()), (last, u32::MAX));
        }
        let kinds = keys[..3]
            .iter()
            .map(|key| (key.is_connection(), key.is_listener()));
        assert!(kinds.eq([(true, false), (false, true), (false, false)]));
    }

    #[test]
    fn a_slot_used_again_has_another_sequence() {
        let mut connection = Connection {
            budget: 1,
            ..Connection::default()
        };
        assert!(connection.is_busy());
        connection.forget();
        assert!(!connection.is_busy());
        assert_eq!(connection.sequence, 1);
    }
}
