//! The frames: what each carries, and how it is written. All integers are big endian.

use super::{FRAME_HEADER, MAX_ERROR_TEXT, MAX_MESSAGE, MIN_FRAME, MIN_MESSAGE, MIN_PERIOD};

/// The kind byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Client: opens a stream on which the server sends.
    OpenResponse = 1,
    /// Client: opens a stream on which the client sends.
    OpenRequest = 2,
    /// Client: lets the server send so many more messages on a stream.
    Credit = 3,
    /// Client: wants nothing more of a stream.
    Cancel = 4,
    /// A message.
    Message = 5,
    /// Server: the stream is over.
    End = 6,
    /// Server: the stream was refused, or (stream 0) the connection failed.
    Error = 7,
}

impl Kind {
    /// The kind that a byte says; `None` where it is none.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Kind::OpenResponse,
            2 => Kind::OpenRequest,
            3 => Kind::Credit,
            4 => Kind::Cancel,
            5 => Kind::Message,
            6 => Kind::End,
            7 => Kind::Error,
            _ => return None,
        })
    }

    /// Bytes of the payload: the least and the most.
    pub fn payload(self) -> (u32, u32) {
        let exactly = |bytes| (bytes, bytes);
        match self {
            Kind::OpenResponse => exactly(33),
            Kind::OpenRequest => exactly(17),
            Kind::Credit => exactly(4),
            Kind::Cancel => exactly(0),
            Kind::Message => (MIN_MESSAGE, MAX_MESSAGE),
            Kind::End => exactly(12),
            Kind::Error => (4, 4 + MAX_ERROR_TEXT as u32),
        }
    }
}

/// When the messages of a response stream are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Messages that become due together.
    pub batch: u32,
    /// Nanoseconds between two batches.
    pub period: u64,
}

/// A stream on which the server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenResponse {
    /// Goes into every message's content, so that messages of other connections are told apart.
    pub tag: u32,
    /// Messages until the stream ends; 0: it goes on until it is cancelled.
    pub messages: u64,
    /// Bytes of a message.
    pub size: u32,
    /// Messages that may be sent before more credit is granted.
    pub credit: u32,
    /// `None`: as soon as credit allows.
    pub pace: Option<Pace>,
    /// Whether messages carry their send time.
    pub timed: bool,
}

/// A stream on which the client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRequest {
    /// As in [`OpenResponse`].
    pub tag: u32,
    /// Messages that the client will send. At least one.
    pub messages: u64,
    /// Bytes of a message.
    pub size: u32,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Messages that went over the stream.
    pub messages: u64,
    /// CRC-32 (IEEE 802.3) of all their contents, in order, for streams on which the client sent; else 0.
    pub checksum: u32,
}

/// Why a stream was refused or a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// A frame that cannot be: its length, its kind, its payload's size.
    Malformed = 1,
    /// A frame that may not come here.
    Protocol = 2,
    /// A stream was opened with values out of range.
    Invalid = 3,
    /// A limit of the server's is reached.
    Limit = 4,
    /// The server is ending.
    Draining = 5,
}

/// A frame other than a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control<'a> {
    /// See [`Kind::OpenResponse`].
    OpenResponse(OpenResponse),
    /// See [`Kind::OpenRequest`].
    OpenRequest(OpenRequest),
    /// How many more messages the server may send.
    Credit(u32),
    /// See [`Kind::Cancel`].
    Cancel,
    /// See [`Kind::End`].
    End(End),
    /// The code, which may be one not known here, and a text for people.
    Error(u32, &'a str),
}

/// Bit of [`OpenResponse`]'s flags: messages carry their send time.
const TIMED: u8 = 1;

impl OpenResponse {
    /// What is out of range, if something is.
    pub fn check(&self) -> Result<(), &'static str> {
        check_size(self.size)?;
        match self.pace {
            Some(pace) if pace.batch == 0 || pace.period < MIN_PERIOD => {
                Err("a paced stream needs a batch of at least 1 and a period of at least 1 ms")
            }
            _ => Ok(()),
        }
    }
}

impl OpenRequest {
    /// What is out of range, if something is.
    pub fn check(&self) -> Result<(), &'static str> {
        check_size(self.size)?;
        if self.messages == 0 {
            return Err("a request stream needs at least one message");
        }
        Ok(())
    }
}

fn check_size(size: u32) -> Result<(), &'static str> {
    if (MIN_MESSAGE..=MAX_MESSAGE).contains(&size) {
        Ok(())
    } else {
        Err("a message has from 24 to 16777211 bytes")
    }
}

/// The header of a frame with so large a payload.
pub fn header(stream: u32, kind: Kind, payload: u32) -> [u8; FRAME_HEADER] {
    let mut header = [0; FRAME_HEADER];
    header[..4].copy_from_slice(&(MIN_FRAME + payload).to_be_bytes());
    header[4..8].copy_from_slice(&stream.to_be_bytes());
    header[8] = kind as u8;
    header
}

/// The longest text within `limit` bytes that begins `text` and does not cut a character.
fn shortened(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

impl<'a> Control<'a> {
    /// Appends the frame.
    pub fn append(&self, stream: u32, output: &mut Vec<u8>) {
        let mut put = |kind, parts: &[&[u8]]| {
            let payload = parts.iter().map(|part| part.len() as u32).sum();
            output.extend_from_slice(&header(stream, kind, payload));
            parts.iter().for_each(|part| output.extend_from_slice(part));
        };
        match *self {
            Control::OpenResponse(open) => {
                let pace = open.pace.unwrap_or(Pace { batch: 0, period: 0 });
                put(
                    Kind::OpenResponse,
                    &[
                        &[if open.timed { TIMED } else { 0 }],
                        &open.tag.to_be_bytes(),
                        &open.messages.to_be_bytes(),
                        &open.size.to_be_bytes(),
                        &open.credit.to_be_bytes(),
                        &pace.batch.to_be_bytes(),
                        &pace.period.to_be_bytes(),
                    ],
                );
            }
            Control::OpenRequest(open) => put(
                Kind::OpenRequest,
                &[
                    &[0],
                    &open.tag.to_be_bytes(),
                    &open.messages.to_be_bytes(),
                    &open.size.to_be_bytes(),
                ],
            ),
            Control::Credit(messages) => put(Kind::Credit, &[&messages.to_be_bytes()]),
            Control::Cancel => put(Kind::Cancel, &[]),
            Control::End(end) => put(
                Kind::End,
                &[&end.messages.to_be_bytes(), &end.checksum.to_be_bytes()],
            ),
            Control::Error(code, text) => put(
                Kind::Error,
                &[&code.to_be_bytes(), shortened(text, MAX_ERROR_TEXT).as_bytes()],
            ),
        }
    }

    /// Reads the payload of a frame whose size is one that its kind may have.
    ///
    /// # Errors
    /// What is malformed.
    pub(super) fn parse(kind: Kind, payload: &'a [u8]) -> Result<Self, &'static str> {
        let mut fields = Fields(payload);
        Ok(match kind {
            Kind::OpenResponse => {
                let flags = fields.byte();
                if flags & !TIMED != 0 {
                    return Err("an open frame has unknown flags");
                }
                Control::OpenResponse(OpenResponse {
                    timed: flags & TIMED != 0,
                    tag: fields.u32(),
                    messages: fields.u64(),
                    size: fields.u32(),
                    credit: fields.u32(),
                    pace: match (fields.u32(), fields.u64()) {
                        (0, 0) => None,
                        (batch, period) => Some(Pace { batch, period }),
                    },
                })
            }
            Kind::OpenRequest => {
                if fields.byte() != 0 {
                    return Err("an open frame has unknown flags");
                }
                Control::OpenRequest(OpenRequest {
                    tag: fields.u32(),
                    messages: fields.u64(),
                    size: fields.u32(),
                })
            }
            Kind::Credit => match fields.u32() {
                0 => return Err("a credit frame grants nothing"),
                messages => Control::Credit(messages),
            },
            Kind::Cancel => Control::Cancel,
            Kind::End => Control::End(End {
                messages: fields.u64(),
                checksum: fields.u32(),
            }),
            Kind::Error => {
                let code = fields.u32();
                let text = std::str::from_utf8(fields.0).map_err(|_| "an error's text is not UTF-8")?;
                Control::Error(code, text)
            }
            Kind::Message => return Err("a message is not a control frame"),
        })
    }
}

/// Takes integers off a payload that was found to be long enough.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self
            .0
            .split_first_chunk()
            .expect("the payload's size was checked against its kind");
        self.0 = rest;
        *field
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}
