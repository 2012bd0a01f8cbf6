//! Finding what one operation is to send.

use super::{MAX_BYTES, MAX_PIECES};
use crate::engine::{Gather, Message, piece};

/// The pieces of an operation while they are found: a list only once there is a second one.
pub(super) struct Gathering<'a> {
    #[expect(
        clippy::vec_box,
        reason = "operations take them boxed: the kernel reads them in place"
    )]
    spare: &'a mut Vec<Box<Gather>>,
    first: Option<(*const u8, usize)>,
    list: Option<Box<Gather>>,
    pub(super) pieces: usize,
    pub(super) bytes: usize,
}

impl<'a> Gathering<'a> {
    #[expect(
        clippy::vec_box,
        reason = "operations take them boxed: the kernel reads them in place"
    )]
    pub(super) fn new(spare: &'a mut Vec<Box<Gather>>) -> Self {
        Self {
            spare,
            first: None,
            list: None,
            pieces: 0,
            bytes: 0,
        }
    }

    /// Adds a piece, or nothing if it is empty; false once there is no room for more.
    pub(super) fn push(&mut self, address: *const u8, length: usize) -> bool {
        if length == 0 {
            return true;
        }
        let length = length.min(MAX_BYTES - self.bytes);
        self.bytes += length;
        self.pieces += 1;
        match (&mut self.list, self.first) {
            (None, None) => self.first = Some((address, length)),
            (None, Some(one)) => {
                let mut list = self.spare.pop().unwrap_or_else(Gather::new);
                list.pieces.clear();
                list.pieces.push(piece(one.0, one.1));
                list.pieces.push(piece(address, length));
                self.list = Some(list);
            }
            (Some(list), _) => list.pieces.push(piece(address, length)),
        }
        self.pieces < MAX_PIECES && self.bytes < MAX_BYTES
    }

    pub(super) fn into_message(self) -> Option<Message> {
        match (self.list, self.first) {
            (Some(list), _) => Some(Message::Gathered(list)),
            (None, Some((address, length))) => Some(Message::Single {
                address,
                length: length as u32,
            }),
            (None, None) => None,
        }
    }
}
