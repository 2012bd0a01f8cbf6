//! Writing of responses.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// The statuses that this server answers with (RFC 9110, section 15; 431: RFC 6585).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    ContentTooLarge,
    UriTooLong,
    ExpectationFailed,
    FieldsTooLarge,
    NotImplemented,
    Unavailable,
    VersionNotSupported,
}

impl Status {
    /// The code and the reason phrase.
    fn text(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::RequestTimeout => "408 Request Timeout",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::UriTooLong => "414 URI Too Long",
            Self::ExpectationFailed => "417 Expectation Failed",
            Self::FieldsTooLarge => "431 Request Header Fields Too Large",
            Self::NotImplemented => "501 Not Implemented",
            Self::Unavailable => "503 Service Unavailable",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// Why a request is not served. It is answered with the status and the reason, and the connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: Status,
    /// What is wrong, for the person who wrote the client.
    pub(super) reason: &'static str,
    /// The methods that the resource takes: with 405, and only with it.
    pub(super) allow: Option<&'static str>,
}

impl Refusal {
    pub(super) const fn new(status: Status, reason: &'static str) -> Self {
        Self {
            status,
            reason,
            allow: None,
        }
    }
}

/// What a response says of the connection's future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    /// It stays open, as HTTP/1.1 has it without a word.
    Persistent,
    /// It stays open, said aloud to an HTTP/1.0 client that asked for it.
    KeepAlive,
    /// It closes after this response.
    Close,
}

/// How a response's body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    Length(u64),
    Chunked,
}

/// The interim response of RFC 9110, section 10.1.1.
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

pub(super) const PLAIN: &str = "text/plain";
/// OpenMetrics 1.0, section 4.1.2: what the counters' text is, which ends in `# EOF`.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const OCTETS: &str = "application/octet-stream";

/// The body of `/plaintext`.
pub(super) const HELLO: &[u8] = b"Hello, World!";

/// Length of an IMF-fixdate, `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7).
const DATE_LENGTH: usize = 29;

/// Last second that an IMF-fixdate with its four digits of year can say: 9999-12-31T23:59:59Z.
const LAST_SECOND: u64 = 253_402_300_799;

/// The fields that all responses have, dated with second 0.
const SERVER_AND_DATE: [u8; 15 + 6 + DATE_LENGTH + 2] =
    *b"Server: quoit\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n";

/// Writes responses, with the fields that all of them have, and the most frequent one whole, prepared once
/// a second.
pub(super) struct Responder {
    second: u64,
    server_and_date: [u8; SERVER_AND_DATE.len()],
    plaintext: Vec<u8>,
    /// Where the date begins in `plaintext`.
    plaintext_date: usize,
}

impl Responder {
    pub(super) fn new(now: SystemTime) -> Self {
        let mut responder = Self {
            second: 0,
            server_and_date: *SERVER_AND_DATE
                .first_chunk()
                .expect("the array has the constant's length"),
            plaintext: Vec::new(),
            plaintext_date: 0,
        };
        let mut plaintext = Vec::new();
        responder.write(
            &mut plaintext,
            Status::Ok,
            PLAIN,
            HELLO,
            Persistence::Persistent,
            false,
        );
        responder.plaintext_date =
            "HTTP/1.1 ".len() + Status::Ok.text().len() + "\r\n".len() + SERVER_AND_DATE.len()
                - 2
                - DATE_LENGTH;
        responder.plaintext = plaintext;
        responder.set_time(now);
        responder
    }

    /// Sets the date. A clock set before 1970 or after 9999 counts as the nearest second between.
    pub(super) fn set_time(&mut self, now: SystemTime) {
        let second = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
            .min(LAST_SECOND);
        if second == self.second {
            return;
        }
        let mut date = [0; DATE_LENGTH];
        let time = UNIX_EPOCH + std::time::Duration::from_secs(second);
        write!(&mut date[..], "{}", HttpDate::from(time)).expect("a date up to the year 9999 has 29 bytes");
        let end = SERVER_AND_DATE.len() - 2;
        self.server_and_date[end - DATE_LENGTH..end].copy_from_slice(&date);
        self.plaintext[self.plaintext_date..self.plaintext_date + DATE_LENGTH].copy_from_slice(&date);
        self.second = second;
    }

    /// The response to `/plaintext` with its body, on a connection that stays open.
    pub(super) fn plaintext(&self) -> &[u8] {
        &self.plaintext
    }

    /// Appends a response with its body, or as HEAD has it: the same head, with the length that the body
    /// would have, and no body.
    pub(super) fn write(
        &self,
        output: &mut Vec<u8>,
        status: Status,
        content_type: &str,
        body: &[u8],
        persistence: Persistence,
        head_only: bool,
    ) {
        let framing = ResponseFraming::Length(body.len() as u64);
        self.write_head(output, status, content_type, framing, persistence, None);
        if !head_only {
            output.extend_from_slice(body);
        }
    }

    /// Appends the answer to a request that is refused.
    pub(super) fn refuse(&self, output: &mut Vec<u8>, refusal: Refusal, head_only: bool) {
        let Refusal {
            status,
            reason,
            allow,
        } = refusal;
        let parts = [status.text(), ": ", reason, "\n"];
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let framing = ResponseFraming::Length(length);
        self.write_head(output, status, PLAIN, framing, Persistence::Close, allow);
        if !head_only {
            for part in parts {
                output.extend_from_slice(part.as_bytes());
            }
        }
    }

    /// Appends a head, the empty line included.
    pub(super) fn write_head(
        &self,
        output: &mut Vec<u8>,
        status: Status,
        content_type: &str,
        framing: ResponseFraming,
        persistence: Persistence,
        allow: Option<&'static str>,
    ) {
        output.extend_from_slice(b"HTTP/1.1 ");
        output.extend_from_slice(status.text().as_bytes());
        output.extend_from_slice(b"\r\n");
        output.extend_from_slice(&self.server_and_date);
        output.extend_from_slice(b"Content-Type: ");
        output.extend_from_slice(content_type.as_bytes());
        match framing {
            ResponseFraming::Length(length) => {
                output.extend_from_slice(b"\r\nContent-Length: ");
                append_number::<10>(output, length);
            }
            ResponseFraming::Chunked => output.extend_from_slice(b"\r\nTransfer-Encoding: chunked"),
        }
        if let Some(allow) = allow {
            output.extend_from_slice(b"\r\nAllow: ");
            output.extend_from_slice(allow.as_bytes());
        }
        output.extend_from_slice(match persistence {
            Persistence::Persistent => b"\r\n\r\n".as_slice(),
            Persistence::KeepAlive => b"\r\nConnection: keep-alive\r\n\r\n",
            Persistence::Close => b"\r\nConnection: close\r\n\r\n",
        });
    }
}

/// Appends `value` in base 10 or 16, without the formatting machinery, which costs more than the rest of a
/// short response.
pub(super) fn append_number<const RADIX: u64>(output: &mut Vec<u8>, value: u64) {
    const { assert!(RADIX == 10 || RADIX == 16) };
    // 2^64 - 1 has 20 decimal digits.
    let mut digits = [0; 20];
    let mut begin = digits.len();
    let mut left = value;
    loop {
        begin -= 1;
        digits[begin] = b"0123456789abcdef"[(left % RADIX) as usize];
        left /= RADIX;
        if left == 0 {
            break;
        }
    }
    output.extend_from_slice(&digits[begin..]);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers() {
        for value in [0, 9, 10, 15, 16, 255, 1_000_000, u64::MAX] {
            let mut output = Vec::new();
            append_number::<10>(&mut output, value);
            output.push(b' ');
            append_number::<16>(&mut output, value);
            assert_eq!(output, format!("{value} {value:x}").into_bytes());
        }
    }

    #[test]
    fn the_date_follows_the_clock_in_every_response() {
        let mut responder = Responder::new(UNIX_EPOCH + Duration::from_secs(784_111_777));
        let dates = |responder: &Responder| {
            let mut output = responder.plaintext().to_vec();
            responder.write(&mut output, Status::Ok, PLAIN, HELLO, Persistence::Close, false);
            let text = String::from_utf8(output).unwrap();
            text.lines()
                .filter_map(|line| line.strip_prefix("Date: "))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(dates(&responder), ["Sun, 06 Nov 1994 08:49:37 GMT"; 2]);
        responder.set_time(UNIX_EPOCH + Duration::from_secs(784_111_778));
        assert_eq!(dates(&responder), ["Sun, 06 Nov 1994 08:49:38 GMT"; 2]);
        responder.set_time(UNIX_EPOCH - Duration::from_secs(5));
        assert_eq!(dates(&responder), ["Thu, 01 Jan 1970 00:00:00 GMT"; 2]);
        responder.set_time(UNIX_EPOCH + Duration::from_secs(LAST_SECOND + 10));
        assert_eq!(dates(&responder), ["Fri, 31 Dec 9999 23:59:59 GMT"; 2]);
    }

    #[test]
    fn the_prepared_response_is_the_written_one() {
        let responder = Responder::new(UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        let mut written = Vec::new();
        responder.write(
            &mut written,
            Status::Ok,
            PLAIN,
            HELLO,
            Persistence::Persistent,
            false,
        );
        assert_eq!(responder.plaintext(), written);
    }
}
