//! Answering pipelined requests from memory, for rivals whose framework brings no HTTP.
//!
//! Complete requests without a body are answered and every connection stays open: that is what the load
//! generators send. The responses are those of `quoit serve http`, byte for byte.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::time::{Duration, UNIX_EPOCH};

use httparse::{Request, Status};
use httpdate::HttpDate;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// The body of `/plaintext`.
pub const PLAINTEXT: &str = "Hello, World!";
/// The type of [`json`]'s text.
pub const JSON: &str = "application/json";

/// Fields that one request may have.
const FIELDS: usize = 64;

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

/// Appends the body of `/json`, serialised anew as the benchmarks ask for.
pub fn json(output: &mut Vec<u8>) {
    let message = Message { message: PLAINTEXT };
    serde_json::to_writer(output, &message).expect("a text serialises, and memory takes it");
}

thread_local! {
    static RESPONSES: RefCell<Responses> = RefCell::new(Responses::default());
}

/// Answers all complete requests of `received`, with what `partial` holds in front of it, and leaves the
/// incomplete rest in `partial`. False when a request cannot be parsed: the connection is to be closed once
/// the output is sent.
pub fn answer(received: &[u8], partial: &mut Vec<u8>, output: &mut Vec<u8>) -> bool {
    RESPONSES.with_borrow_mut(|responses| {
        responses.refresh();
        if partial.is_empty() {
            let Some(used) = answer_complete(received, output, responses) else {
                return false;
            };
            partial.extend_from_slice(&received[used..]);
        } else {
            partial.extend_from_slice(received);
            let Some(used) = answer_complete(partial, output, responses) else {
                return false;
            };
            partial.drain(..used);
        }
        true
    })
}

/// Bytes of the complete requests at the start of `input`, which have been answered.
fn answer_complete(input: &[u8], output: &mut Vec<u8>, responses: &mut Responses) -> Option<usize> {
    let mut used = 0;
    while used < input.len() {
        // Not initialised: clearing the fields would cost as much as reading them.
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
        let mut request = Request::new(&mut []);
        match request.parse_with_uninit_headers(&input[used..], &mut fields) {
            Ok(Status::Complete(length)) => used += length,
            Ok(Status::Partial) => break,
            Err(_) => {
                output.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
                return None;
            }
        }
        match (request.method, request.path) {
            (Some("GET"), Some("/plaintext")) => output.extend_from_slice(&responses.plaintext),
            (Some("GET"), Some("/json")) => responses.json(output),
            _ => output.extend_from_slice(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        }
    }
    Some(used)
}

/// The responses, with a date that is written once a second.
#[derive(Default)]
struct Responses {
    second: u64,
    plaintext: Vec<u8>,
    /// Up to the length's value.
    json_head: Vec<u8>,
    json_body: Vec<u8>,
}

impl Responses {
    /// Writes the responses again if the second has changed; reading the coarse clock is no system call.
    fn refresh(&mut self) {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let second = u64::try_from(now.tv_sec).unwrap_or(0);
        if second == self.second {
            return;
        }
        self.second = second;
        let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
        let head = |content_type: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nServer: quoit\r\nDate: {date}\r\nContent-Type: {content_type}\r\nContent-Length: "
            )
        };
        self.plaintext = format!("{}{}\r\n\r\n{PLAINTEXT}", head("text/plain"), PLAINTEXT.len()).into_bytes();
        self.json_head = head(JSON).into_bytes();
    }

    fn json(&mut self, output: &mut Vec<u8>) {
        self.json_body.clear();
        json(&mut self.json_body);
        output.extend_from_slice(&self.json_head);
        output.extend_from_slice(self.json_body.len().to_string().as_bytes());
        output.extend_from_slice(b"\r\n\r\n");
        output.extend_from_slice(&self.json_body);
    }
}
