//! One connection: from the bytes that arrive to the bytes that leave.

use std::mem;

use super::environment::Environment;
use super::head::{self, RequestFraming, RequestHead, Scan};
use super::method::Method;
use super::respond::{self, Persistence, Refusal, ResponseFraming, Status};
use super::routes::Route;
use super::{MAX_HEAD_BYTES, pattern};

mod request_body;

use request_body::Body;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// How many bytes of the input are used. The driver keeps the others and passes them again, first.
    pub(crate) consumed: usize,
    /// What the connection waits for.
    pub(crate) next: Next,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// All input is consumed. Call again when more has arrived.
    NeedInput,
    /// The output has reached its limit and there is more to do. Call again, with the input not consumed,
    /// once the output has been taken.
    NeedOutput,
    /// The exchange is over: send what was appended, then close gracefully (shut the sending side, read and
    /// discard until the peer's end or a deadline; a close with unread input would reset the connection and
    /// could destroy the last response). All input counts as consumed, in this call and later ones.
    Close,
}

/// Where a connection is, for the driver's time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Between two requests, or before the first.
    Idle,
    /// Part of a head has arrived.
    Head,
    /// A body is being read, and echoed on `/echo`.
    Body,
    /// The request has been read, and its response is being written.
    Responding,
    /// It said [`Next::Close`].
    Closed,
}

enum State {
    Idle,
    /// The head that has arrived in part, in a buffer of the [`Environment`]'s.
    Head(Vec<u8>),
    /// In a box, so that connections without a body are small.
    Body(Box<Body>),
    /// The content of `/bytes/N` from `position` to `end`.
    Streaming {
        position: u64,
        end: u64,
    },
    Closed,
}

/// One connection's state. Small, and without heap memory but while a head has arrived in part; that
/// buffer is shared through the [`Environment`].
///
/// A driver calls [`receive`](Self::receive) with what arrived, sends what was appended and does what
/// [`Step::next`] says. The bytes appended do not depend on how the input was cut or on the output limits,
/// but for `100 Continue`, which is not sent to a client that did not wait for it.
pub(crate) struct HttpConnection {
    state: State,
    /// Whether the empty line that RFC 9112, section 2.2, lets precede a request was seen.
    skipped_empty_line: bool,
    /// Whether the present request allows another after it.
    keep_alive: bool,
    is_http_1_1: bool,
    /// Whether the present request is HEAD.
    head_only: bool,
    input_ended: bool,
}

impl HttpConnection {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Idle,
            skipped_empty_line: false,
            keep_alive: true,
            is_http_1_1: true,
            head_only: false,
            input_ended: false,
        }
    }

    /// Takes bytes that arrived, and appends responses until `output` holds `output_limit` bytes or the
    /// input is used up. With an empty `input` it goes on with a response that is being streamed.
    ///
    /// `output` may hold bytes already, and they count. Streamed content keeps to the limit; a head and a
    /// short body are appended whole when `output` is below it, and so may pass it by their length, which
    /// for `/metrics` is the length of the metrics. `/bytes/N` fills what the limit leaves, so it is the
    /// limit that bounds the memory of the output.
    pub(crate) fn receive(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        output_limit: usize,
        environment: &mut Environment,
    ) -> Step {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let room = output_limit.saturating_sub(output.len());
            match self.state {
                State::Closed => {
                    return Step {
                        consumed: input.len(),
                        next: Next::Close,
                    };
                }
                State::Streaming { .. } if room == 0 => {
                    return Step {
                        consumed,
                        next: Next::NeedOutput,
                    };
                }
                State::Streaming { position, end } => self.stream(position, end, output, room),
                State::Idle if rest.is_empty() && environment.closes_idle() => self.close(environment),
                _ if rest.is_empty() && self.input_ended => self.close(environment),
                _ if rest.is_empty() => {
                    return Step {
                        consumed,
                        next: Next::NeedInput,
                    };
                }
                _ if room == 0 => {
                    return Step {
                        consumed,
                        next: Next::NeedOutput,
                    };
                }
                State::Idle => {
                    consumed += match self.begin_whole_heads(rest, output, output_limit, environment) {
                        0 => self.begin_head(rest, output, environment),
                        begun => begun,
                    };
                }
                State::Head(_) => consumed += self.continue_head(rest, output, environment),
                State::Body(_) => consumed += self.read_body(rest, output, room, environment),
            }
        }
    }

    /// As [`receive`](Self::receive), when the client has ended its side: `input` is all that was not
    /// consumed. Requests that are complete are answered, then the connection closes; one that is not is
    /// dropped without an answer. When it says [`Next::NeedOutput`], go on with `receive`.
    pub(crate) fn end_of_stream(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        output_limit: usize,
        environment: &mut Environment,
    ) -> Step {
        self.input_ended = true;
        self.receive(input, output, output_limit, environment)
    }

    /// Where the connection is.
    pub(crate) fn phase(&self) -> Phase {
        match self.state {
            State::Idle => Phase::Idle,
            State::Head(_) => Phase::Head,
            State::Body(_) => Phase::Body,
            State::Streaming { .. } => Phase::Responding,
            State::Closed => Phase::Closed,
        }
    }

    /// Ends the connection because the client took too long: with 408 when a request is under way and its
    /// response has not begun, else without a word. Flush and close after it, as after [`Next::Close`].
    pub(crate) fn time_out(&mut self, output: &mut Vec<u8>, environment: &mut Environment) {
        let refusal = match &self.state {
            State::Head(head) => {
                self.head_only = is_head_request(head);
                Some("the request head took too long")
            }
            State::Body(_) => Some("the request body took too long"),
            State::Idle | State::Streaming { .. } | State::Closed => None,
        };
        match refusal {
            Some(reason) => self.refuse(Refusal::new(Status::RequestTimeout, reason), output, environment),
            None => self.close(environment),
        }
    }

    /// Serves the requests that begin `input` as long as their heads have arrived whole and are good, and as long as
    /// there is room. Returns how many bytes it has used: none if that is not so of the first.
    ///
    /// Apart from all else, so that what a pipelined request costs is what stands here.
    #[inline(never)]
    fn begin_whole_heads(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        output_limit: usize,
        environment: &mut Environment,
    ) -> usize {
        let mut consumed = 0;
        while matches!(self.state, State::Idle) && output.len() < output_limit {
            let rest = &input[consumed..];
            let window = &rest[..rest.len().min(MAX_HEAD_BYTES)];
            let Some((request, length)) = head::parse_at_once(window, &mut environment.judged_host) else {
                break;
            };
            consumed += length;
            if request.is_plaintext() && environment.keeps_connections() {
                debug_assert!(self.keep_alive, "an idle connection is one that goes on");
                // The one answer that is ready as it is.
                output.extend_from_slice(environment.responder.plaintext());
            } else {
                self.begin_whole_head(&request, consumed < input.len(), output, environment);
            }
        }
        self.skipped_empty_line &= consumed == 0;
        consumed
    }

    /// Serves a request whose head was good, as far as it goes without the body.
    #[inline(never)]
    fn begin_whole_head(
        &mut self,
        request: &RequestHead,
        body_has_arrived: bool,
        output: &mut Vec<u8>,
        environment: &mut Environment,
    ) {
        if let Err(refusal) = self.begin_request(request, body_has_arrived, output, environment) {
            self.head_only = request.method == Method::Head;
            self.refuse(refusal, output, environment);
        }
    }

    /// Reads what begins `input`: part of a head, or one that needs a closer look.
    fn begin_head(&mut self, input: &[u8], output: &mut Vec<u8>, environment: &mut Environment) -> usize {
        if let [b'\r', b'\n', ..] = input {
            self.empty_line(output, environment);
            return 2;
        }
        let window = &input[..input.len().min(MAX_HEAD_BYTES)];
        match head::scan(window, 0) {
            Scan::Complete(length) => {
                self.whole_head(&window[..length], input.len() > length, output, environment);
                length
            }
            Scan::Partial if window.len() < MAX_HEAD_BYTES => {
                let mut buffer = environment.take_head_buffer();
                buffer.extend_from_slice(window);
                self.state = State::Head(buffer);
                window.len()
            }
            found => {
                self.refuse_head(found, window, output, environment);
                window.len()
            }
        }
    }

    /// Adds `input` to the part of a head that is in the buffer.
    fn continue_head(&mut self, input: &[u8], output: &mut Vec<u8>, environment: &mut Environment) -> usize {
        // Out of `self`, so that the request that it holds can be served; it goes back to the environment.
        let mut buffer = match mem::replace(&mut self.state, State::Idle) {
            State::Head(buffer) => buffer,
            _ => unreachable!("the caller has seen that a head has begun"),
        };
        if buffer == b"\r" && input.first() == Some(&b'\n') {
            environment.return_head_buffer(buffer);
            self.empty_line(output, environment);
            return 1;
        }
        let before = buffer.len();
        let taken = input.len().min(MAX_HEAD_BYTES - before);
        buffer.extend_from_slice(&input[..taken]);
        let consumed = match head::scan(&buffer, before) {
            Scan::Complete(length) => {
                let consumed = length - before;
                self.whole_head(&buffer[..length], input.len() > consumed, output, environment);
                consumed
            }
            Scan::Partial if buffer.len() < MAX_HEAD_BYTES => {
                self.state = State::Head(buffer);
                return taken;
            }
            found => {
                self.refuse_head(found, &buffer, output, environment);
                taken
            }
        };
        environment.return_head_buffer(buffer);
        consumed
    }

    /// An empty line before a request: one is ignored.
    fn empty_line(&mut self, output: &mut Vec<u8>, environment: &mut Environment) {
        if self.skipped_empty_line {
            self.head_only = false;
            let refusal = Refusal::new(Status::BadRequest, "two empty lines precede the request line");
            self.refuse(refusal, output, environment);
        } else {
            self.skipped_empty_line = true;
            self.state = State::Idle;
        }
    }

    /// Refuses a head that cannot become a good one.
    fn refuse_head(&mut self, found: Scan, head: &[u8], output: &mut Vec<u8>, environment: &mut Environment) {
        let refusal = match found {
            Scan::BareLineFeed => Refusal::new(Status::BadRequest, "a line ends in LF without CR"),
            Scan::Complete(_) | Scan::Partial => head::too_large(head),
        };
        self.head_only = is_head_request(head);
        self.refuse(refusal, output, environment);
    }

    /// Serves the request whose head this is, as far as it goes without the body.
    fn whole_head(
        &mut self,
        head: &[u8],
        body_has_arrived: bool,
        output: &mut Vec<u8>,
        environment: &mut Environment,
    ) {
        self.skipped_empty_line = false;
        let begun = head::parse(head, &mut environment.judged_host)
            .and_then(|request| self.begin_request(&request, body_has_arrived, output, environment));
        if let Err(refusal) = begun {
            self.head_only = is_head_request(head);
            self.refuse(refusal, output, environment);
        }
    }

    /// Answers a request without a body at once, and begins to read the body of any other.
    fn begin_request(
        &mut self,
        request: &RequestHead,
        body_has_arrived: bool,
        output: &mut Vec<u8>,
        environment: &mut Environment,
    ) -> Result<(), Refusal> {
        self.keep_alive = request.keep_alive;
        self.is_http_1_1 = request.is_http_1_1;
        self.head_only = request.method == Method::Head;
        if request.framing == RequestFraming::Length(0) {
            self.respond(request.route, output, environment);
            return Ok(());
        }
        self.begin_body(request, body_has_arrived, output, environment)
    }

    /// Answers a request that has been read, all of it.
    fn respond(&mut self, route: Route, output: &mut Vec<u8>, environment: &mut Environment) {
        let persistence = self.persistence(environment);
        let head_only = self.head_only;
        match route {
            Route::Plaintext => {
                let responder = &environment.responder;
                responder.write(
                    output,
                    Status::Ok,
                    respond::PLAIN,
                    respond::HELLO,
                    persistence,
                    head_only,
                );
            }
            Route::Json => {
                let (responder, body) = environment.json();
                responder.write(output, Status::Ok, respond::JSON, body, persistence, head_only);
            }
            Route::Bytes(count) => {
                let framing = ResponseFraming::Length(count);
                environment.responder.write_head(
                    output,
                    Status::Ok,
                    respond::OCTETS,
                    framing,
                    persistence,
                    None,
                );
                if count > 0 && !head_only {
                    self.state = State::Streaming {
                        position: 0,
                        end: count,
                    };
                    return;
                }
            }
            Route::Echo => {
                let responder = &environment.responder;
                responder.write(output, Status::Ok, respond::OCTETS, b"", persistence, head_only);
            }
            Route::Metrics => {
                let (responder, text) = environment.metrics();
                let (kind, body) = (respond::OPEN_METRICS, text.as_bytes());
                responder.write(output, Status::Ok, kind, body, persistence, head_only);
            }
            Route::Probe(probe) => {
                let (responder, said) = environment.probe(probe);
                let (status, body) = match said {
                    Ok(()) => (Status::Ok, "ok"),
                    Err(reason) => (Status::Unavailable, reason),
                };
                let (kind, body) = (respond::PLAIN, body.as_bytes());
                responder.write(output, status, kind, body, persistence, head_only);
            }
        }
        self.finish(environment);
    }

    /// Appends up to `room` bytes of `/bytes/N`.
    fn stream(&mut self, position: u64, end: u64, output: &mut Vec<u8>, room: usize) {
        let left = end - position;
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(room);
        pattern::append(output, position, count);
        let position = position + count as u64;
        self.state = if position < end {
            State::Streaming { position, end }
        } else if self.keep_alive {
            State::Idle
        } else {
            State::Closed
        };
    }

    /// What the response that is now being written says of the connection; it is bound to it after.
    fn persistence(&mut self, environment: &Environment) -> Persistence {
        self.keep_alive &= environment.keeps_connections();
        match (self.keep_alive, self.is_http_1_1) {
            (false, _) => Persistence::Close,
            (true, true) => Persistence::Persistent,
            (true, false) => Persistence::KeepAlive,
        }
    }

    fn finish(&mut self, environment: &mut Environment) {
        if self.keep_alive {
            self.state = State::Idle;
        } else {
            self.close(environment);
        }
    }

    /// Answers with a refusal and closes. A response that has begun is cut short instead: its framing tells
    /// the client that it is not whole.
    fn refuse(&mut self, refusal: Refusal, output: &mut Vec<u8>, environment: &mut Environment) {
        let begun = match &self.state {
            State::Body(body) => body.is_answered(),
            State::Streaming { .. } | State::Closed => true,
            State::Idle | State::Head(_) => false,
        };
        if !begun {
            environment.responder.refuse(output, refusal, self.head_only);
        }
        self.close(environment);
    }

    fn close(&mut self, environment: &mut Environment) {
        if let State::Head(buffer) = mem::replace(&mut self.state, State::Closed) {
            environment.return_head_buffer(buffer);
        }
    }

    /// Whether it holds memory beside itself.
    #[cfg(test)]
    pub(super) fn holds_memory(&self) -> bool {
        matches!(self.state, State::Head(_) | State::Body(_))
    }
}

fn is_head_request(head: &[u8]) -> bool {
    head.starts_with(b"HEAD ")
}
