//! HTTP/1.1 reply framing (RFC 9112): where a reply's head, body and end lie in a stream of pieces.

use httparse::{Response, Status};

/// The longest head, and the longest chunk-size or trailer line, in bytes.
const HEAD_LIMIT: usize = 64 * 1024;

/// The most header fields in a reply.
const FIELD_LIMIT: usize = 96;

/// Receives the parts of a reply as they arrive.
pub(super) trait ReplyParts {
    /// The head of the final (not 1xx) reply. `last`: the server closes the connection after this reply.
    fn head(&mut self, response: &Response<'_, '_>, last: bool);
    /// The next bytes of the body, without the framing of chunks.
    fn body(&mut self, bytes: &[u8]);
}

/// Follows one connection's replies. After an error the stream cannot be understood any more.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    stage: Stage,
    /// The start of a head or line that the last piece cut.
    carried: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Head,
    Body {
        left: u64,
    },
    ChunkSize,
    ChunkData {
        left: u64,
    },
    /// The line end after a chunk's data.
    ChunkEnd,
    Trailer,
}

impl ReplyReader {
    /// Whether the next byte starts a reply.
    pub(super) fn at_start(&self) -> bool {
        self.stage == Stage::Head && self.carried.is_empty()
    }

    /// Bytes of the body, or of its chunk, that are to come by what the server has said.
    pub(super) fn announced(&self) -> u64 {
        match self.stage {
            Stage::Body { left } | Stage::ChunkData { left } => left,
            _ => 0,
        }
    }

    /// Reads `input` up to the end of the current reply: how many bytes it took, and whether the reply
    /// ended.
    ///
    /// # Errors
    /// What cannot be understood, for the report.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        parts: &mut impl ReplyParts,
    ) -> Result<(usize, bool), String> {
        let mut at = 0;
        while at < input.len() {
            let rest = &input[at..];
            match self.stage {
                Stage::Head => {
                    let (taken, next) = self.read_head(rest, parts)?;
                    at += taken;
                    match next {
                        None => {}
                        Some(Stage::Body { left: 0 }) => {
                            self.stage = Stage::Head;
                            return Ok((at, true));
                        }
                        Some(stage) => self.stage = stage,
                    }
                }
                Stage::Body { left } | Stage::ChunkData { left } => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    parts.body(&rest[..taken]);
                    at += taken;
                    let left = left - taken as u64;
                    self.stage = match (self.stage, left) {
                        (Stage::Body { .. }, 0) => {
                            self.stage = Stage::Head;
                            return Ok((at, true));
                        }
                        (Stage::Body { .. }, _) => Stage::Body { left },
                        (_, 0) => Stage::ChunkEnd,
                        (_, _) => Stage::ChunkData { left },
                    };
                }
                Stage::ChunkSize | Stage::ChunkEnd | Stage::Trailer => {
                    let (taken, complete) = self.carry_line(rest)?;
                    at += taken;
                    if complete && self.end_line()? {
                        return Ok((at, true));
                    }
                }
            }
        }
        Ok((at, false))
    }

    /// Reads a head: how many bytes it took, and what follows if the head is complete.
    fn read_head(
        &mut self,
        input: &[u8],
        parts: &mut impl ReplyParts,
    ) -> Result<(usize, Option<Stage>), String> {
        if self.carried.is_empty() {
            let window = &input[..input.len().min(HEAD_LIMIT)];
            if let Some((taken, stage)) = parse_head(window, parts)? {
                return Ok((taken, Some(stage)));
            }
            if input.len() >= HEAD_LIMIT {
                return Err(format!("the reply's head is longer than {HEAD_LIMIT} bytes"));
            }
            self.carried.extend_from_slice(input);
            return Ok((input.len(), None));
        }
        let before = self.carried.len();
        let added = input.len().min(HEAD_LIMIT - before);
        self.carried.extend_from_slice(&input[..added]);
        match parse_head(&self.carried, parts)? {
            Some((length, stage)) => {
                self.carried.clear();
                Ok((length - before, Some(stage)))
            }
            None if self.carried.len() >= HEAD_LIMIT => {
                Err(format!("the reply's head is longer than {HEAD_LIMIT} bytes"))
            }
            None => Ok((added, None)),
        }
    }

    /// Gathers a line of the chunked coding: how many bytes it took, and whether the line is complete.
    fn carry_line(&mut self, input: &[u8]) -> Result<(usize, bool), String> {
        let end = input.iter().position(|&byte| byte == b'\n');
        let taken = end.map_or(input.len(), |end| end + 1);
        if self.carried.len() + taken > HEAD_LIMIT {
            return Err(format!(
                "a line of the chunked body is longer than {HEAD_LIMIT} bytes"
            ));
        }
        self.carried.extend_from_slice(&input[..taken]);
        Ok((taken, end.is_some()))
    }

    /// Acts on the complete line that was carried: whether it ended the reply.
    fn end_line(&mut self) -> Result<bool, String> {
        let line = &self.carried;
        if !line.ends_with(b"\r\n") {
            return Err(format!(
                "a line of the chunked body lacks its carriage return: {}",
                shown(line)
            ));
        }
        let empty = line.len() == 2;
        let mut ended = false;
        self.stage = match self.stage {
            Stage::ChunkSize => match httparse::parse_chunk_size(line) {
                Ok(Status::Complete((_, 0))) => Stage::Trailer,
                Ok(Status::Complete((_, left))) => Stage::ChunkData { left },
                _ => return Err(format!("not a chunk size: {}", shown(line))),
            },
            Stage::ChunkEnd if empty => Stage::ChunkSize,
            Stage::Trailer if empty => {
                ended = true;
                Stage::Head
            }
            Stage::Trailer => Stage::Trailer,
            _ => {
                return Err(format!(
                    "a chunk is followed by {}, not by a line end",
                    shown(line)
                ));
            }
        };
        self.carried.clear();
        Ok(ended)
    }
}

/// Parses a head if all of it is there: its length and what follows. An interim (1xx) reply is skipped.
fn parse_head(bytes: &[u8], parts: &mut impl ReplyParts) -> Result<Option<(usize, Stage)>, String> {
    // The parser skips line ends before a head; after a body they are bytes that do not belong there.
    if bytes.first() != Some(&b'H') {
        return Err(format!("not an HTTP/1 reply: {}", shown(bytes)));
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELD_LIMIT];
    let mut response = Response::new(&mut fields);
    let length = match response.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(error) => {
            return Err(format!("not an HTTP/1 reply ({error}): {}", shown(bytes)));
        }
    };
    let status = response.code.unwrap_or(0);
    if status == 101 {
        return Err("the server switched protocols (101) although nobody asked for it".to_owned());
    }
    if (100..200).contains(&status) {
        return Ok(Some((length, Stage::Head)));
    }
    let stage = body_stage(&response, status)?;
    parts.head(&response, closes_after(&response));
    Ok(Some((length, stage)))
}

/// How the body's end is found (RFC 9112, section 6.3).
fn body_stage(response: &Response<'_, '_>, status: u16) -> Result<Stage, String> {
    if matches!(status, 204 | 304) {
        return Ok(Stage::Body { left: 0 });
    }
    let mut length: Option<u64> = None;
    let mut chunked = false;
    for field in response.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            let value = std::str::from_utf8(field.value)
                .ok()
                .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| format!("Content-Length is not a number: {}", shown(field.value)))?;
            if length.is_some_and(|other| other != value) {
                return Err("the reply has two Content-Lengths that differ".to_owned());
            }
            length = Some(value);
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                return Err(format!(
                    "Transfer-Encoding is {}; only `chunked` is understood",
                    shown(field.value)
                ));
            }
            chunked = true;
        }
    }
    match (chunked, length) {
        (true, Some(_)) => Err("the reply has both a Content-Length and a Transfer-Encoding".to_owned()),
        (true, None) => Ok(Stage::ChunkSize),
        (false, Some(left)) => Ok(Stage::Body { left }),
        (false, None) => Err(format!(
            "the reply (status {status}) has neither a Content-Length nor a chunked body, so its end \
             cannot be known on a connection that stays open"
        )),
    }
}

/// Whether the server closes the connection after this reply (RFC 9112, section 9.3).
fn closes_after(response: &Response<'_, '_>) -> bool {
    let mut close = false;
    let mut keep = false;
    for field in response
        .headers
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("connection"))
    {
        for option in field.value.split(|&byte| byte == b',') {
            close |= option.trim_ascii().eq_ignore_ascii_case(b"close");
            keep |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
        }
    }
    close || (response.version == Some(0) && !keep)
}

/// The start of some received bytes, fit for a message on one line.
pub(super) fn shown(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let start = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { "..." } else { "" };
    format!("`{}`{more}", start.escape_ascii())
}
