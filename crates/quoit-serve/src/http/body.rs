//! The chunked transfer coding (RFC 9112, section 7.1), decoded without keeping any of it.
//!
//! Stricter than the RFC in one place: white space around a chunk's size, which it calls bad and tells
//! recipients to bear, is refused. No client sends it, and programs have disagreed on it.

use super::respond::{Refusal, Status};
use super::{MAX_CHUNK_EXTENSION_BYTES, MAX_TRAILER_BYTES};

/// Most digits of a chunk's size, leading zeros included: more could overflow 64 bits.
const MAX_SIZE_DIGITS: u8 = 16;

/// What a step of the decoder found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkEvent {
    /// All input is used, and more is needed.
    NeedInput,
    /// A chunk of so many bytes begins; never zero.
    Begin(u64),
    /// The last so many of the bytes consumed are data.
    Data(usize),
    /// The chunk's data and the CRLF after it have ended.
    End,
    /// The body has ended, its trailer included.
    Complete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeLineFeed,
    Data,
    DataCarriageReturn,
    DataLineFeed,
    TrailerLine,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
    Complete,
}

/// Decodes one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkDecoder {
    state: State,
    /// Digits of the present size read so far.
    digits: u8,
    /// The present size as far as it is read, then the data left.
    remaining: u64,
    extension_bytes: u32,
    trailer_bytes: u32,
}

impl ChunkDecoder {
    pub(super) fn new() -> Self {
        Self {
            state: State::Size,
            digits: 0,
            remaining: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
        }
    }

    /// Reads up to the next event, taking at most `data_limit` bytes of data: how many bytes of `input`
    /// are consumed, and the event.
    pub(super) fn next(&mut self, input: &[u8], data_limit: usize) -> Result<(usize, ChunkEvent), Refusal> {
        for (at, &byte) in input.iter().enumerate() {
            match self.state {
                State::Size => self.size_byte(byte)?,
                State::Extension => {
                    self.extension_bytes += 1;
                    if self.extension_bytes > MAX_CHUNK_EXTENSION_BYTES {
                        return Err(bad("the chunk extensions are longer than 4096 bytes"));
                    }
                    match byte {
                        b'\r' => self.state = State::SizeLineFeed,
                        _ if is_field_value(byte) => {}
                        _ => return Err(bad("a chunk extension holds a control character")),
                    }
                }
                State::SizeLineFeed => {
                    expect_line_feed(byte)?;
                    self.digits = 0;
                    if self.remaining == 0 {
                        self.state = State::TrailerLine;
                    } else {
                        self.state = State::Data;
                        return Ok((at + 1, ChunkEvent::Begin(self.remaining)));
                    }
                }
                State::Data => return Ok(self.data(at, input.len() - at, data_limit)),
                State::DataCarriageReturn if byte == b'\r' => self.state = State::DataLineFeed,
                State::DataCarriageReturn => return Err(bad("a chunk's data is longer than its size")),
                State::DataLineFeed => {
                    expect_line_feed(byte)?;
                    self.state = State::Size;
                    return Ok((at + 1, ChunkEvent::End));
                }
                State::TrailerLine | State::TrailerName | State::TrailerValue | State::TrailerLineFeed => {
                    self.trailer_byte(byte)?;
                }
                State::LastLineFeed => {
                    expect_line_feed(byte)?;
                    self.state = State::Complete;
                    return Ok((at + 1, ChunkEvent::Complete));
                }
                State::Complete => return Ok((at, ChunkEvent::Complete)),
            }
        }
        Ok((input.len(), ChunkEvent::NeedInput))
    }

    fn size_byte(&mut self, byte: u8) -> Result<(), Refusal> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' if self.digits > 0 => {
                self.state = State::SizeLineFeed;
                return Ok(());
            }
            b';' if self.digits > 0 => {
                self.state = State::Extension;
                return Ok(());
            }
            _ => return Err(bad("a chunk's size is not a hexadecimal number")),
        };
        if self.digits == MAX_SIZE_DIGITS {
            return Err(bad("a chunk's size has more than 16 digits"));
        }
        self.digits += 1;
        // Sixteen digits of four bits each: nothing is shifted out.
        self.remaining = self.remaining << 4 | u64::from(digit);
        Ok(())
    }

    fn data(&mut self, at: usize, available: usize, limit: usize) -> (usize, ChunkEvent) {
        let count = usize::try_from(self.remaining)
            .unwrap_or(usize::MAX)
            .min(available)
            .min(limit);
        self.remaining -= count as u64;
        if self.remaining == 0 {
            self.state = State::DataCarriageReturn;
        }
        (at + count, ChunkEvent::Data(count))
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<(), Refusal> {
        self.state = match (self.state, byte) {
            (State::TrailerLine, b'\r') => {
                self.state = State::LastLineFeed;
                return Ok(());
            }
            (State::TrailerLine | State::TrailerName, _) if is_token(byte) => State::TrailerName,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLineFeed,
            (State::TrailerValue, _) if is_field_value(byte) => State::TrailerValue,
            (State::TrailerLineFeed, b'\n') => State::TrailerLine,
            _ => return Err(bad("the trailer after the body is malformed")),
        };
        self.trailer_bytes += 1;
        if self.trailer_bytes > MAX_TRAILER_BYTES {
            return Err(Refusal::new(
                Status::FieldsTooLarge,
                "the trailer after the body is longer than 8192 bytes",
            ));
        }
        Ok(())
    }
}

fn expect_line_feed(byte: u8) -> Result<(), Refusal> {
    if byte == b'\n' {
        Ok(())
    } else {
        Err(bad("a CR in the chunked body has no LF after it"))
    }
}

/// A byte of a field's name: RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A byte of a field's value: RFC 9110, section 5.5.
fn is_field_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn bad(reason: &'static str) -> Refusal {
    Refusal::new(Status::BadRequest, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a body and what is left after it.
    fn decode(mut input: &[u8], data_limit: usize) -> Result<(Vec<u8>, &[u8]), Status> {
        let (mut decoder, mut data) = (ChunkDecoder::new(), Vec::new());
        loop {
            let (consumed, event) = decoder
                .next(input, data_limit)
                .map_err(|refusal: Refusal| refusal.status)?;
            if let ChunkEvent::Data(count) = event {
                data.extend_from_slice(&input[consumed - count..consumed]);
            }
            input = &input[consumed..];
            match event {
                ChunkEvent::Complete => return Ok((data, input)),
                ChunkEvent::NeedInput => panic!("the body did not end"),
                _ => {}
            }
        }
    }

    #[test]
    fn valid_bodies() {
        let body = b"5;name=\"v;al\"\r\nhello\r\n00A\r\n, wor\r\n ld\r\n0\r\nX-A: b\r\nc:\r\n\r\nrest";
        for limit in [1, 3, usize::MAX] {
            assert_eq!(
                decode(body, limit),
                Ok((b"hello, wor\r\n ld".to_vec(), b"rest".as_slice()))
            );
        }
        assert_eq!(decode(b"0\r\n\r\n", 1), Ok((Vec::new(), b"".as_slice())));
    }

    #[test]
    fn limits() {
        let extended = |length: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(length)).into_bytes();
        // The CR that ends the extension counts.
        let most = MAX_CHUNK_EXTENSION_BYTES as usize - 1;
        assert!(decode(&extended(most), 1).is_ok());
        assert_eq!(decode(&extended(most + 1), 1), Err(Status::BadRequest));

        let trailer = |length: usize| format!("0\r\na:{}\r\n\r\n", "x".repeat(length)).into_bytes();
        let most = MAX_TRAILER_BYTES as usize - "a:\r\n".len();
        assert!(decode(&trailer(most), 1).is_ok());
        assert_eq!(decode(&trailer(most + 1), 1), Err(Status::FieldsTooLarge));

        // The largest size that there is does not overflow.
        let mut decoder = ChunkDecoder::new();
        let begin = decoder.next(b"ffffffffffffffff\r\nx", 1);
        assert_eq!(begin.ok(), Some((18, ChunkEvent::Begin(u64::MAX))));
    }
}
