//! Request bodies: read as they come, echoed or discarded.

use std::mem;

use super::{HttpConnection, State};
use crate::http::MAX_DISCARDED_BODY_BYTES;
use crate::http::body::{ChunkDecoder, ChunkEvent};
use crate::http::environment::Environment;
use crate::http::head::{RequestFraming, RequestHead};
use crate::http::respond::{self, Refusal, ResponseFraming, Status};
use crate::http::routes::Route;

/// A request's body while it is read.
pub(super) struct Body {
    delimiter: Delimiter,
    purpose: Purpose,
}

#[derive(Clone, Copy)]
enum Delimiter {
    Length {
        remaining: u64,
    },
    Chunked {
        decoder: ChunkDecoder,
        /// Bytes that the chunks begun so far may yet add up to, by the limit on the body.
        allowance: u64,
    },
}

/// What is done with a body.
#[derive(Clone, Copy)]
enum Purpose {
    /// It is echoed. The response's head is written when the body's first byte is known to be good, so that
    /// a body that is refused at once gets its status.
    Echo { response: ResponseFraming, begun: bool },
    /// It is discarded, then the route answers.
    Discard { route: Route },
}

impl Body {
    /// Whether its answer has begun, so that it can only be cut short.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.purpose, Purpose::Echo { begun: true, .. })
    }
}

impl HttpConnection {
    /// Begins to read a request's body, or answers at once where nobody wants it.
    pub(super) fn begin_body(
        &mut self,
        request: &RequestHead,
        body_has_arrived: bool,
        output: &mut Vec<u8>,
        environment: &mut Environment,
    ) -> Result<(), Refusal> {
        let route = request.route;
        let limit = match route {
            Route::Echo => environment.config.max_echo_body_bytes,
            _ => MAX_DISCARDED_BODY_BYTES,
        };
        let (delimiter, response) = match request.framing {
            RequestFraming::Length(length) if length > limit => return Err(too_large()),
            RequestFraming::Length(length) => (
                Delimiter::Length { remaining: length },
                ResponseFraming::Length(length),
            ),
            RequestFraming::Chunked => (
                Delimiter::Chunked {
                    decoder: ChunkDecoder::new(),
                    allowance: limit,
                },
                ResponseFraming::Chunked,
            ),
        };
        let purpose = match route {
            Route::Echo => {
                if request.expects_continue && !body_has_arrived {
                    output.extend_from_slice(respond::CONTINUE);
                }
                Purpose::Echo {
                    response,
                    begun: false,
                }
            }
            _ if request.expects_continue => {
                // Nobody wants the body. A client that waits will not send it after this answer, one that
                // does not will: only a close keeps the two sides of one mind.
                self.keep_alive = false;
                self.respond(route, output, environment);
                return Ok(());
            }
            _ => Purpose::Discard { route },
        };
        self.state = State::Body(Box::new(Body { delimiter, purpose }));
        Ok(())
    }

    /// Reads as much of the body as there is and as `room` has place for, which is not zero.
    pub(super) fn read_body(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        room: usize,
        environment: &mut Environment,
    ) -> usize {
        let mut body = match mem::replace(&mut self.state, State::Idle) {
            State::Body(body) => body,
            _ => unreachable!("the caller has seen that a body is being read"),
        };
        let data_limit = match body.purpose {
            Purpose::Echo { .. } => room,
            Purpose::Discard { .. } => usize::MAX,
        };
        let (consumed, event) = match &mut body.delimiter {
            Delimiter::Length { remaining } => {
                let left = usize::try_from(*remaining).unwrap_or(usize::MAX);
                let count = left.min(input.len()).min(data_limit);
                *remaining -= count as u64;
                (count, ChunkEvent::Data(count))
            }
            Delimiter::Chunked { decoder, allowance } => {
                let decoded = decoder.next(input, data_limit).and_then(|(consumed, event)| {
                    if let ChunkEvent::Begin(size) = event {
                        *allowance = allowance.checked_sub(size).ok_or(too_large())?;
                    }
                    Ok((consumed, event))
                });
                match decoded {
                    Ok(decoded) => decoded,
                    Err(refusal) => {
                        // It is asked whether its answer has begun.
                        self.state = State::Body(body);
                        self.refuse(refusal, output, environment);
                        return input.len();
                    }
                }
            }
        };
        let complete = match body.delimiter {
            Delimiter::Length { remaining } => remaining == 0,
            Delimiter::Chunked { .. } => event == ChunkEvent::Complete,
        };
        if let Purpose::Echo { response, begun } = &mut body.purpose {
            if !*begun && event != ChunkEvent::NeedInput {
                *begun = true;
                let persistence = self.persistence(environment);
                environment.responder.write_head(
                    output,
                    Status::Ok,
                    respond::OCTETS,
                    *response,
                    persistence,
                    None,
                );
            }
            echo(event, *response, &input[..consumed], output);
        }
        match body.purpose {
            _ if !complete => self.state = State::Body(body),
            Purpose::Echo { .. } => self.finish(environment),
            Purpose::Discard { route } => self.respond(route, output, environment),
        }
        consumed
    }
}

/// Appends the echo of a piece of a body. Chunks are echoed as they came, so that nothing has to be kept
/// to fill one and the bytes do not depend on how the input was cut.
fn echo(event: ChunkEvent, framing: ResponseFraming, consumed: &[u8], output: &mut Vec<u8>) {
    match event {
        ChunkEvent::NeedInput => {}
        ChunkEvent::Begin(size) => {
            respond::append_number::<16>(output, size);
            output.extend_from_slice(b"\r\n");
        }
        ChunkEvent::Data(count) => output.extend_from_slice(&consumed[consumed.len() - count..]),
        ChunkEvent::End => output.extend_from_slice(b"\r\n"),
        ChunkEvent::Complete if framing == ResponseFraming::Chunked => {
            output.extend_from_slice(b"0\r\n\r\n");
        }
        ChunkEvent::Complete => {}
    }
}

fn too_large() -> Refusal {
    Refusal::new(
        Status::ContentTooLarge,
        "the request body is larger than this path takes",
    )
}
