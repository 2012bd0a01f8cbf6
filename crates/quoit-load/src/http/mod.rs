//! HTTP/1.1 GET of one path, or POST to it, every reply compared with the first.
//!
//! The first reply of a run is recorded over a connection of its own. A later one is right if its status is
//! 200, its body is the recorded one and its header fields are the same in any order, but for `Date` (which
//! must be a date) and `Connection` and `Keep-Alive` (which describe the connection, not the content).
//! Most replies are equal to the recorded one byte for byte except in the date's value; they are recognised
//! by comparison alone, without parsing. Whatever differs is parsed and judged field by field.

mod framing;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;

use std::ops::Range;
use std::sync::Arc;

use httparse::Response;

use self::framing::{ReplyParts, ReplyReader, shown};
use super::protocol::WrongKind;
use super::request_reply::{Reply, RequestReply};

/// The longest reply that is recorded: it is kept in memory twice, and a server need not end the one that it sends.
const LONGEST_RECORDED: u64 = 256 * 1024 * 1024;

/// Sends one request over and over and expects the recorded reply.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    request: Arc<[u8]>,
    expected: Arc<Recorded>,
    /// The value of the last `Date` that was found to be one: servers repeat it for a second.
    date: Vec<u8>,
}

/// How far one connection's current reply has been judged.
#[derive(Debug, Default)]
pub(crate) struct HttpState {
    reader: ReplyReader,
    judgement: Judgement,
}

/// The reply that all others must equal.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// All of it as received.
    raw: Vec<u8>,
    /// Where in `raw` the value of `Date` lies; empty if there is none.
    date: Range<usize>,
    status: u16,
    last: bool,
    /// The header fields that are compared.
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

#[derive(Debug, Default)]
struct Judgement {
    /// Body bytes that were compared so far.
    body: usize,
    last: bool,
    wrong: Option<(WrongKind, String)>,
}

/// The request for `path` with the header field `Host: host`: a GET, or a POST with a body of `body` bytes.
pub(crate) fn request(path: &str, host: &str, body: Option<u32>) -> Vec<u8> {
    let Some(length) = body else {
        return format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    };
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    // The period is a prime, so that pieces of a usual length differ: one that is lost, doubled or moved shows.
    request.extend((0..length).map(|at| (at % 251) as u8));
    request
}

impl Http {
    /// Sends `request` and expects replies like `expected`.
    pub(crate) fn new(request: Vec<u8>, expected: Recorded) -> Self {
        Http {
            request: request.into(),
            expected: Arc::new(expected),
            date: Vec::new(),
        }
    }

    /// The length of the reply at the start of `input`, if it is the recorded one but for the date.
    fn equals_recorded(&mut self, input: &[u8]) -> Option<usize> {
        let expected = &*self.expected;
        let Range { start, end } = expected.date;
        let input = input.get(..expected.raw.len())?;
        let same = input[..start] == expected.raw[..start] && input[end..] == expected.raw[end..];
        (same && is_date(&input[start..end], &mut self.date)).then_some(input.len())
    }
}

/// Whether `value` is the date `known`, or another date, which is then the known one; or empty, as the
/// masked stretch of a reply without a date is.
fn is_date(value: &[u8], known: &mut Vec<u8>) -> bool {
    if value == known.as_slice() || value.is_empty() {
        return true;
    }
    let valid = std::str::from_utf8(value).is_ok_and(|text| httpdate::parse_http_date(text).is_ok());
    if valid {
        known.clear();
        known.extend_from_slice(value);
    }
    valid
}

/// The fields that belong to a reply's content.
fn compared<'a>(response: &'a Response<'_, '_>) -> impl Iterator<Item = (&'a str, &'a [u8])> + Clone {
    response
        .headers
        .iter()
        .map(|field| (field.name, field.value))
        .filter(|(name, _)| {
            !["date", "connection", "keep-alive"]
                .iter()
                .any(|other| name.eq_ignore_ascii_case(other))
        })
}

struct Comparison<'a> {
    expected: &'a Recorded,
    judgement: &'a mut Judgement,
    date: &'a mut Vec<u8>,
}

impl Comparison<'_> {
    fn find_wrong_field(&self, response: &Response<'_, '_>) -> Option<String> {
        let matches = |recorded: &(String, Vec<u8>), name: &str, value: &[u8]| {
            recorded.0.eq_ignore_ascii_case(name) && recorded.1 == value
        };
        for (name, value) in compared(response) {
            let here = compared(response)
                .filter(|&(other, other_value)| other.eq_ignore_ascii_case(name) && other_value == value)
                .count();
            let there = self
                .expected
                .fields
                .iter()
                .filter(|recorded| matches(recorded, name, value))
                .count();
            if here != there {
                return Some(format!(
                    "the field {name}: {} is not as in the first reply",
                    shown(value)
                ));
            }
        }
        (compared(response).count() != self.expected.fields.len())
            .then(|| "a header field of the first reply is missing".to_owned())
    }
}

impl ReplyParts for Comparison<'_> {
    fn head(&mut self, response: &Response<'_, '_>, last: bool) {
        self.judgement.last = last;
        let status = response.code.unwrap_or(0);
        if status != self.expected.status {
            let what = format!("the reply has status {status}, not {}", self.expected.status);
            self.judgement.wrong = Some((WrongKind::Status, what));
            return;
        }
        let bad_date = response
            .headers
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case("date") && !is_date(field.value, self.date))
            .map(|field| format!("the field Date is not a date: {}", shown(field.value)));
        let what = bad_date.or_else(|| self.find_wrong_field(response));
        self.judgement.wrong = what.map(|what| (WrongKind::Content, what));
    }

    fn body(&mut self, bytes: &[u8]) {
        let start = self.judgement.body;
        self.judgement.body += bytes.len();
        let expected = self.expected.body.get(start..self.judgement.body);
        if self.judgement.wrong.is_none() && expected != Some(bytes) {
            let what = match expected {
                None => "the body is longer than that of the first reply".to_owned(),
                Some(expected) => {
                    let same = expected
                        .iter()
                        .zip(bytes)
                        .take_while(|(left, right)| left == right)
                        .count();
                    format!(
                        "the body differs from that of the first reply at byte {}",
                        start + same
                    )
                }
            };
            self.judgement.wrong = Some((WrongKind::Content, what));
        }
    }
}

impl RequestReply for Http {
    type State = HttpState;

    fn connection(&self, _id: u32) -> HttpState {
        HttpState::default()
    }

    fn append_request(&self, _state: &mut HttpState, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.request);
    }

    fn take_reply(&mut self, state: &mut HttpState, input: &[u8]) -> (usize, Option<Reply>) {
        if state.reader.at_start()
            && let Some(length) = self.equals_recorded(input)
        {
            return (
                length,
                Some(Reply::Right {
                    last: self.expected.last,
                }),
            );
        }
        let HttpState { reader, judgement } = state;
        let mut comparison = Comparison {
            expected: &self.expected,
            judgement,
            date: &mut self.date,
        };
        match reader.read(input, &mut comparison) {
            Ok((consumed, false)) => (consumed, None),
            Ok((consumed, true)) => {
                let Judgement { body, last, wrong } = std::mem::take(&mut state.judgement);
                let reply = match wrong {
                    Some((kind, what)) => Reply::wrong(kind, !last, what),
                    None if body < self.expected.body.len() => Reply::wrong(
                        WrongKind::Content,
                        !last,
                        format!(
                            "the body has {body} bytes; that of the first reply has {}",
                            self.expected.body.len()
                        ),
                    ),
                    None => Reply::Right { last },
                };
                (consumed, Some(reply))
            }
            Err(what) => {
                *state = HttpState::default();
                (input.len(), Some(Reply::wrong(WrongKind::Content, false, what)))
            }
        }
    }
}

/// Records the first reply of a run from the pieces in which it arrives.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    reader: ReplyReader,
    recorded: Recorded,
}

impl Recorder {
    /// Takes the next piece: whether the reply is complete.
    ///
    /// # Errors
    /// What is wrong with the reply: it must be understood, have the status 200, be all that was sent, and not be too
    /// long to be kept.
    pub(crate) fn take(&mut self, input: &[u8]) -> Result<bool, String> {
        let (consumed, complete) = self.reader.read(input, &mut self.recorded)?;
        let length = (self.recorded.raw.len() + consumed) as u64;
        if length.saturating_add(self.reader.announced()) > LONGEST_RECORDED {
            return Err(format!(
                "the reply has more than {LONGEST_RECORDED} bytes, which is the most that is kept to compare others with"
            ));
        }
        self.recorded.raw.extend_from_slice(&input[..consumed]);
        if !complete {
            return Ok(false);
        }
        if consumed < input.len() {
            return Err(format!(
                "more follows the reply to one request: {}",
                shown(&input[consumed..])
            ));
        }
        if self.recorded.status != 200 {
            return Err(format!("the reply has status {}, not 200", self.recorded.status));
        }
        Ok(true)
    }

    /// What was recorded, once [`Recorder::take`] returned `true`.
    ///
    /// # Errors
    /// The reply has a `Date` that is no date.
    pub(crate) fn finish(mut self) -> Result<Recorded, String> {
        self.recorded.date = date_range(&self.recorded.raw);
        let date = &self.recorded.raw[self.recorded.date.clone()];
        if is_date(date, &mut Vec::new()) {
            Ok(self.recorded)
        } else {
            Err(format!("the field Date is not a date: {}", shown(date)))
        }
    }
}

impl Recorded {
    /// Makes sure that the body is this one.
    ///
    /// # Errors
    /// Where it differs.
    pub(crate) fn has_body(&self, expected: &[u8]) -> Result<(), String> {
        if self.body == expected {
            return Ok(());
        }
        let same = self
            .body
            .iter()
            .zip(expected)
            .take_while(|(left, right)| left == right);
        Err(format!(
            "the body has {} bytes and is not the {} of --expect: they differ at byte {}",
            self.body.len(),
            expected.len(),
            same.count()
        ))
    }
}

impl ReplyParts for Recorded {
    fn head(&mut self, response: &Response<'_, '_>, last: bool) {
        self.status = response.code.unwrap_or(0);
        self.last = last;
        self.fields = compared(response)
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec()))
            .collect();
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }
}

/// Where the value of the field `Date` lies in a complete reply; an empty range if there is none. A reply
/// that is preceded by interim ones is left without, which costs it only the comparison without parsing.
fn date_range(raw: &[u8]) -> Range<usize> {
    let mut fields = [httparse::EMPTY_HEADER; 96];
    let mut response = Response::new(&mut fields);
    if !response.parse(raw).is_ok_and(|status| status.is_complete()) {
        return 0..0;
    }
    response
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("date"))
        .map_or(0..0, |field| {
            // The value is a part of `raw`, so the distance of the two starts is its place.
            let start = field.value.as_ptr() as usize - raw.as_ptr() as usize;
            start..start + field.value.len()
        })
}

#[cfg(test)]
mod tests;
