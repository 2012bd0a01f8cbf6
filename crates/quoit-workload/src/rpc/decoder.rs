//! Takes frames from a byte stream.

use super::frame::{Control, Kind};
use super::{FRAME_HEADER, MAX_FRAME, MIN_FRAME};

/// What was found in the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A whole frame other than a message.
    Control {
        /// The stream that it is about; 0: the connection.
        stream: u32,
        /// What it carries.
        control: Control<'a>,
    },
    /// Some bytes of a message, at least one. It is complete when `from` and their number make `size`.
    Message {
        /// The stream that it came over.
        stream: u32,
        /// Bytes of the whole message.
        size: u32,
        /// Where in the message these bytes begin.
        from: u32,
        /// As they came.
        bytes: &'a [u8],
    },
}

/// The frame that is being received.
#[derive(Debug, Clone, Copy)]
enum Position {
    /// Its header, or all of a control frame, is in `partial` as far as it has come.
    Frame,
    /// The payload of a message.
    Message { stream: u32, size: u32, from: u32 },
}

/// Takes frames from a byte stream that comes in pieces. It keeps at most one control frame, and never a message.
#[derive(Debug)]
pub struct Decoder {
    position: Position,
    /// What has come of a frame that was cut: its header, or all of a control frame.
    partial: Vec<u8>,
    /// Whether `partial` was a whole frame, and has been handed out.
    used: bool,
}

/// A frame's header that has been checked.
struct Head {
    stream: u32,
    kind: Kind,
    payload: usize,
}

impl Head {
    fn parse(header: &[u8; FRAME_HEADER]) -> Result<Self, &'static str> {
        let [l0, l1, l2, l3, s0, s1, s2, s3, kind] = *header;
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        if !(MIN_FRAME..=MAX_FRAME).contains(&length) {
            return Err("a frame's length is not from 5 bytes to 16 MiB");
        }
        let kind = Kind::from_byte(kind).ok_or("a frame is of an unknown kind")?;
        let payload = length - MIN_FRAME;
        let (least, most) = kind.payload();
        if !(least..=most).contains(&payload) {
            return Err("a frame's length does not fit its kind");
        }
        Ok(Self {
            stream: u32::from_be_bytes([s0, s1, s2, s3]),
            kind,
            payload: payload as usize,
        })
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> Self {
        Self {
            position: Position::Frame,
            partial: Vec::new(),
            used: false,
        }
    }

    /// Takes the next part off `input`. `None`: all of it was consumed, and what it began goes on in the next piece.
    ///
    /// # Errors
    /// What is malformed. Nothing after it can be understood.
    pub fn next<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Result<Option<Part<'a>>, &'static str> {
        if let Position::Message { stream, size, from } = self.position {
            return Ok(self.message(stream, size, from, input));
        }
        if std::mem::take(&mut self.used) {
            self.partial.clear();
        }
        if self.partial.is_empty()
            && let Some(header) = input.first_chunk()
        {
            // The usual case: a frame that was not cut, or only in its message.
            let head = Head::parse(header)?;
            let rest = &input[FRAME_HEADER..];
            if head.kind == Kind::Message {
                *input = rest;
                return Ok(self.message(head.stream, head.payload as u32, 0, input));
            }
            if let Some((payload, rest)) = rest.split_at_checked(head.payload) {
                *input = rest;
                return Ok(Some(Part::Control {
                    stream: head.stream,
                    control: Control::parse(head.kind, payload)?,
                }));
            }
        }
        self.fill(FRAME_HEADER, input);
        let Some(header) = self.partial.first_chunk() else {
            return Ok(None);
        };
        let head = Head::parse(header)?;
        if head.kind == Kind::Message {
            self.partial.clear();
            return Ok(self.message(head.stream, head.payload as u32, 0, input));
        }
        self.fill(FRAME_HEADER + head.payload, input);
        let Some(payload) = self.partial.get(FRAME_HEADER..FRAME_HEADER + head.payload) else {
            return Ok(None);
        };
        self.used = true;
        Ok(Some(Part::Control {
            stream: head.stream,
            control: Control::parse(head.kind, payload)?,
        }))
    }

    /// Takes bytes of a message's payload off `input`.
    fn message<'a>(&mut self, stream: u32, size: u32, from: u32, input: &mut &'a [u8]) -> Option<Part<'a>> {
        let (bytes, rest) = input.split_at(input.len().min((size - from) as usize));
        *input = rest;
        let to = from + bytes.len() as u32;
        self.position = if to == size {
            Position::Frame
        } else {
            Position::Message {
                stream,
                size,
                from: to,
            }
        };
        (!bytes.is_empty()).then_some(Part::Message {
            stream,
            size,
            from,
            bytes,
        })
    }

    /// Moves bytes from `input` to the partial frame, until that has so many.
    fn fill(&mut self, bytes: usize, input: &mut &[u8]) {
        let wanted = bytes.saturating_sub(self.partial.len());
        let (taken, rest) = input.split_at(input.len().min(wanted));
        self.partial.extend_from_slice(taken);
        *input = rest;
    }
}
