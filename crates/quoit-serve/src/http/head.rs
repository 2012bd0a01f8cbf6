//! Request heads: finding where one ends, and what it says once it is whole.
//!
//! `httparse` reads the grammar. It is lenient where RFC 9112 allows it to be (a line may end in a bare LF,
//! empty lines may come first), so the scan for the end of the head refuses bare LFs on its way, and the
//! caller deals with empty lines. With that, bare CR, NUL and other controls, folded lines and space before
//! the colon are what httparse refuses itself; the tests hold it to that.

use std::mem::MaybeUninit;

use super::method::Method;
use super::respond::{Refusal, Status};
use super::routes::Route;
use super::target::JudgedHost;
use super::{MAX_FIELDS, MAX_HEAD_BYTES};

/// What a scan for the end of a head found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The head is so many bytes long, the empty line included.
    Complete(usize),
    /// The head does not end in these bytes.
    Partial,
    /// A line ends in LF without CR.
    BareLineFeed,
}

/// Looks for the empty line that ends the head which begins `bytes`, and refuses bare LFs up to there.
/// Bytes before `from` were scanned before, and are not again.
pub(super) fn scan(bytes: &[u8], from: usize) -> Scan {
    let (words, tail) = bytes.get(from..).unwrap_or_default().as_chunks::<8>();
    let mut base = from;
    for word in words {
        let mut line_feeds = line_feeds(u64::from_le_bytes(*word));
        while line_feeds != 0 {
            let at = base + (line_feeds.trailing_zeros() / 8) as usize;
            match judge_line_feed(bytes, at) {
                Scan::Partial => {}
                found => return found,
            }
            line_feeds &= line_feeds - 1;
        }
        base += 8;
    }
    for (offset, byte) in tail.iter().enumerate() {
        if *byte == b'\n' {
            match judge_line_feed(bytes, base + offset) {
                Scan::Partial => {}
                found => return found,
            }
        }
    }
    Scan::Partial
}

/// What the LF at `at` means, by the two bytes before it.
fn judge_line_feed(bytes: &[u8], at: usize) -> Scan {
    match &bytes[..at] {
        [.., b'\n', b'\r'] => Scan::Complete(at + 1),
        [.., b'\r'] => Scan::Partial,
        _ => Scan::BareLineFeed,
    }
}

/// The highest bit of every byte of `word` that is LF, and no other bit.
///
/// The addition carries into a byte's highest bit unless its lower seven bits are all zero, and never out
/// of the byte; so unlike the shorter, well-known test there are no false positives above the first hit.
fn line_feeds(word: u64) -> u64 {
    const LOW_BITS: u64 = u64::from_ne_bytes([0x7f; 8]);
    let zero_where_line_feed = word ^ u64::from_ne_bytes([b'\n'; 8]);
    !(((zero_where_line_feed & LOW_BITS) + LOW_BITS) | zero_where_line_feed | LOW_BITS)
}

/// The refusal of a head that has not ended within [`MAX_HEAD_BYTES`].
pub(super) fn too_large(bytes: &[u8]) -> Refusal {
    if bytes.contains(&b'\n') {
        Refusal::new(
            Status::FieldsTooLarge,
            "the request head is longer than 16384 bytes",
        )
    } else {
        Refusal::new(Status::UriTooLong, "the request line is longer than 16384 bytes")
    }
}

/// How a request's body is delimited (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestFraming {
    /// So many bytes follow; zero without a Content-Length.
    Length(u64),
    Chunked,
}

/// What a valid head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHead {
    pub(super) method: Method,
    pub(super) route: Route,
    /// Whether the client speaks HTTP/1.1 rather than 1.0.
    pub(super) is_http_1_1: bool,
    /// Whether the client means to use the connection again.
    pub(super) keep_alive: bool,
    pub(super) framing: RequestFraming,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
}

impl RequestHead {
    /// Whether it asks for `/plaintext` and the connection is to go on as HTTP/1.1 does: then the answer depends on
    /// the time alone.
    #[inline(always)]
    pub(super) fn is_plaintext(&self) -> bool {
        self.route == Route::Plaintext
            && self.method != Method::Head
            && self.framing == RequestFraming::Length(0)
            && self.is_http_1_1
            && self.keep_alive
    }
}

/// Reads the head that begins `bytes` in one pass, if it is there whole and nothing is wrong with it, and says how
/// long it is. `None` means no more than that the long way, [`scan`] and [`parse`], has to find out what there is.
#[inline(always)]
pub(super) fn parse_at_once(bytes: &[u8], host: &mut JudgedHost) -> Option<(RequestHead, usize)> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    let Ok(httparse::Status::Complete(length)) = request.parse_with_uninit_headers(bytes, &mut fields) else {
        return None;
    };
    if !lines_end_in_crlf(&request, &bytes[..length]) {
        return None;
    }
    interpret(&request, host).ok().map(|head| (head, length))
}

/// Whether no line of a head that httparse has read ends in a bare LF. It has seen the line ends where they are
/// looked for here, so that a byte at each says which kind it was.
#[inline(always)]
fn lines_end_in_crlf(request: &httparse::Request<'_, '_>, head: &[u8]) -> bool {
    let start = head.as_ptr().addr();
    // What stands so many bytes behind a part of the head.
    let behind = |part: &[u8], distance: usize| {
        let end = part.as_ptr().addr() + part.len() - start;
        head.get(end + distance).copied()
    };
    let Some(path) = request.path else {
        return false;
    };
    // An empty line before the request is not at its place in a head: `scan` would have found it to be all of it.
    request.method.is_some_and(|method| method.as_ptr() == head.as_ptr())
        && behind(path.as_bytes(), " HTTP/1.1".len()) == Some(b'\r')
        // Of a value that is empty httparse does not say where it stands, and space behind one is rare.
        && (request.headers.iter()).all(|field| !field.value.is_empty() && behind(field.value, 0) == Some(b'\r'))
        && head.ends_with(b"\r\n")
}

/// Reads a head that [`scan`] found complete: all of `bytes` is the head.
pub(super) fn parse(bytes: &[u8], host: &mut JudgedHost) -> Result<RequestHead, Refusal> {
    debug_assert!(bytes.len() <= MAX_HEAD_BYTES);
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => interpret(&request, host),
        Ok(_) => Err(bad("the request head is malformed")),
        Err(error) => Err(refusal_of(error, bytes)),
    }
}

/// What a request says whose grammar httparse has found good.
///
/// Always inlined: in [`parse_at_once`] the refusals then need not be made, which is a third of the cost.
#[inline(always)]
fn interpret(request: &httparse::Request<'_, '_>, host: &mut JudgedHost) -> Result<RequestHead, Refusal> {
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(bad("the request line is malformed"));
    };
    let is_http_1_1 = version == 1;

    let fields = Fields::read(request.headers, host)?;
    let framing = fields.framing(is_http_1_1)?;
    if !fields.has_host && is_http_1_1 {
        return Err(bad("an HTTP/1.1 request needs a Host field"));
    }
    let method = Method::parse(method).ok_or(Refusal::new(
        Status::NotImplemented,
        "this server does not know the method",
    ))?;
    // RFC 9110, section 10.1.1: the expectation of an HTTP/1.0 client must be ignored.
    let expects_continue = match fields.expectation {
        Expectation::Continue => is_http_1_1,
        Expectation::Other if is_http_1_1 => {
            return Err(Refusal::new(
                Status::ExpectationFailed,
                "100-continue is the only expectation met",
            ));
        }
        Expectation::None | Expectation::Other => false,
    };
    Ok(RequestHead {
        method,
        route: Route::resolve(target, method)?,
        is_http_1_1,
        keep_alive: !fields.says_close && (is_http_1_1 || fields.says_keep_alive),
        framing,
        expects_continue,
    })
}

/// Returns what httparse refused.
fn refusal_of(error: httparse::Error, bytes: &[u8]) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => Refusal::new(
            Status::FieldsTooLarge,
            "the request head has more than 64 header fields",
        ),
        httparse::Error::Version if names_another_version(bytes) => Refusal::new(
            Status::VersionNotSupported,
            "this server speaks HTTP/1.1 and HTTP/1.0",
        ),
        httparse::Error::Version => bad("the HTTP version is malformed"),
        httparse::Error::HeaderName => bad("a header field's name is malformed"),
        httparse::Error::HeaderValue => bad("a header field's value is malformed"),
        httparse::Error::NewLine => bad("a line ends in CR without LF"),
        httparse::Error::Status | httparse::Error::Token => bad("the request line is malformed"),
    }
}

/// Whether the request line ends in a well-formed version that is not one of ours.
fn names_another_version(bytes: &[u8]) -> bool {
    let line_end = bytes
        .iter()
        .position(|byte| *byte == b'\r')
        .unwrap_or(bytes.len());
    match bytes[..line_end].rsplit(|byte| *byte == b' ').next() {
        Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]) => {
            major.is_ascii_digit()
                && minor.is_ascii_digit()
                && !(*major == b'1' && matches!(minor, b'0' | b'1'))
        }
        _ => false,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expectation {
    None,
    Continue,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransferEncoding {
    Chunked,
    Other,
}

/// What the fields that matter to this server say; all others are ignored.
struct Fields {
    has_host: bool,
    says_close: bool,
    says_keep_alive: bool,
    content_length: Option<u64>,
    transfer_encoding: Option<TransferEncoding>,
    expectation: Expectation,
}

impl Fields {
    #[inline(always)]
    fn read(fields: &[httparse::Header<'_>], host: &mut JudgedHost) -> Result<Self, Refusal> {
        let mut this = Self {
            has_host: false,
            says_close: false,
            says_keep_alive: false,
            content_length: None,
            transfer_encoding: None,
            expectation: Expectation::None,
        };
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            // The length first: of most fields it says all that there is to know.
            match field.name.len() {
                // As almost all clients write it: four bytes compare at once.
                4 if field.name == "Host" || is("host") => {
                    if this.has_host {
                        return Err(bad("the request has two Host fields"));
                    }
                    if !host.accepts(field.value) {
                        return Err(bad("the Host field is not a valid host and port"));
                    }
                    this.has_host = true;
                }
                6 if is("expect") => {
                    let met = field.value.eq_ignore_ascii_case(b"100-continue");
                    this.expectation = match this.expectation {
                        Expectation::Other => Expectation::Other,
                        _ if met => Expectation::Continue,
                        _ => Expectation::Other,
                    };
                }
                10 if is("connection") => {
                    for option in field.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                        this.says_close |= option.eq_ignore_ascii_case(b"close");
                        this.says_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if is("content-length") => {
                    if this.content_length.is_some() {
                        return Err(bad("the request has two Content-Length fields"));
                    }
                    let length = decimal(field.value).ok_or(bad("the Content-Length is not a number"))?;
                    this.content_length = Some(length);
                }
                17 if is("transfer-encoding") => {
                    if this.transfer_encoding.is_some() {
                        return Err(bad("the request has two Transfer-Encoding fields"));
                    }
                    this.transfer_encoding = Some(if field.value.eq_ignore_ascii_case(b"chunked") {
                        TransferEncoding::Chunked
                    } else {
                        TransferEncoding::Other
                    });
                }
                _ => {}
            }
        }
        Ok(this)
    }

    /// How the body is delimited, when there is exactly one way to see it.
    fn framing(&self, is_http_1_1: bool) -> Result<RequestFraming, Refusal> {
        match (self.transfer_encoding, self.content_length) {
            (None, length) => Ok(RequestFraming::Length(length.unwrap_or(0))),
            (Some(_), Some(_)) => Err(bad("the request has both Content-Length and Transfer-Encoding")),
            (Some(_), None) if !is_http_1_1 => Err(bad("HTTP/1.0 has no Transfer-Encoding")),
            (Some(TransferEncoding::Chunked), None) => Ok(RequestFraming::Chunked),
            (Some(TransferEncoding::Other), None) => Err(Refusal::new(
                Status::NotImplemented,
                "chunked is the only transfer coding known",
            )),
        }
    }
}

/// A number of decimal digits alone: no sign, no space, no list, no overflow, and not empty.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

fn bad(reason: &'static str) -> Refusal {
    Refusal::new(Status::BadRequest, reason)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What [`scan`] says, byte by byte.
    fn scan_slowly(bytes: &[u8]) -> Scan {
        for at in 0..bytes.len() {
            if bytes[at] == b'\n' {
                if at == 0 || bytes[at - 1] != b'\r' {
                    return Scan::BareLineFeed;
                }
                if at >= 3 && &bytes[at - 3..at] == b"\r\n\r" {
                    return Scan::Complete(at + 1);
                }
            }
        }
        Scan::Partial
    }

    proptest! {
        #[test]
        fn scanning_by_words_finds_what_scanning_by_bytes_finds(
            bytes in prop::collection::vec(prop::sample::select(b"\r\n\x0b\x8a\x0aab".to_vec()), 0..64),
        ) {
            prop_assert_eq!(scan(&bytes, 0), scan_slowly(&bytes));
        }

        #[test]
        fn a_scan_continues_where_the_last_one_ended(
            lines in prop::collection::vec(0_usize..20, 1..6),
            cut in 0_usize..200,
        ) {
            let mut bytes = Vec::new();
            for length in lines {
                bytes.resize(bytes.len() + length + 1, b'a');
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"\r\n");
            let cut = cut.min(bytes.len() - 1);
            prop_assert_eq!(scan(&bytes[..cut], 0), Scan::Partial);
            prop_assert_eq!(scan(&bytes, cut), Scan::Complete(bytes.len()));
        }
    }

    #[test]
    fn decimal_numbers() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for invalid in [
            "",
            "18446744073709551616",
            "+1",
            "-1",
            "1 2",
            "1,1",
            "0x1",
            "1a",
            "\u{661}",
        ] {
            assert_eq!(decimal(invalid.as_bytes()), None, "{invalid}");
        }
    }
}
