//! One connection: its streams, and whose turn it is.

use std::collections::{BTreeMap, VecDeque};

use quoit_workload::rpc::content::Content;
use quoit_workload::rpc::decoder::{Decoder, Part};
use quoit_workload::rpc::frame::{Control, ErrorCode, OpenRequest, OpenResponse};
use slab::Slab;

use super::environment::Environment;
use super::output::Message;
use super::pacing::Pacing;
use super::stream::{Course, Request, Response, Stream};

/// Refusals that wait to be sent. With so many, nothing more is taken in.
const MAX_REFUSALS: usize = 64;

/// Bytes that a stream may produce before the next one's turn, if it has that many; at least one message.
const QUANTUM: usize = 8 * 1024;

/// What a connection can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until bytes arrive or a batch is due.
    Wait,
    /// Produce more, when there is room.
    Produce,
    /// Close, once all that was produced is sent.
    Close,
}

/// A stream that was not opened.
#[derive(Debug)]
struct Refused {
    id: u32,
    code: ErrorCode,
    why: &'static str,
}

/// The server's side of one connection. Times are nanoseconds of the monotonic clock.
#[derive(Debug)]
pub struct RpcConnection {
    decoder: Decoder,
    streams: Slab<Stream>,
    /// The slot of each stream, by its id. Ordered, so that no choice of ids makes it slow.
    slots: BTreeMap<u32, u32>,
    /// Slots of streams that have something to produce, in turn.
    ready: VecDeque<u32>,
    pacing: Pacing,
    refusals: VecDeque<Refused>,
    /// The message for which the room did not suffice.
    cut: Option<Message>,
    /// What the client did wrong.
    failed: Option<(ErrorCode, &'static str)>,
    /// The client has ended its side, so that neither credit nor messages can come.
    ended: bool,
}

impl Default for RpcConnection {
    fn default() -> Self {
        Self::new()
    }
}

impl RpcConnection {
    /// A connection that has just been accepted.
    pub fn new() -> Self {
        Self {
            decoder: Decoder::new(),
            streams: Slab::new(),
            slots: BTreeMap::new(),
            ready: VecDeque::new(),
            pacing: Pacing::default(),
            refusals: VecDeque::new(),
            cut: None,
            failed: None,
            ended: false,
        }
    }

    /// Takes bytes in. Returns how many; the rest waits until more was produced.
    pub fn receive(&mut self, bytes: &[u8], now: u64, environment: &mut Environment) -> usize {
        let mut input = bytes;
        // The decoder's answers may lie in its memory.
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new());
        while self.failed.is_none() && self.refusals.len() < MAX_REFUSALS {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(part)) => {
                    if let Err(why) = self.take(&part, now, environment) {
                        self.fail(ErrorCode::Protocol, why, environment);
                    }
                }
                Err(why) => self.fail(ErrorCode::Malformed, why, environment),
            }
        }
        self.decoder = decoder;
        if self.failed.is_some() {
            return bytes.len();
        }
        bytes.len() - input.len()
    }

    /// The client has ended its side: what its credit allows is still sent.
    pub fn end_of_stream(&mut self) {
        self.ended = true;
        self.end_streams(|stream| match &stream.course {
            Course::Response(response) => response.pace.is_some() || response.sendable() == 0,
            Course::Request(_) | Course::Over(_) => true,
        });
    }

    /// The server is to end: what would not end by itself is ended.
    pub fn drain(&mut self) {
        self.end_streams(
            |stream| matches!(&stream.course, Course::Response(response) if response.messages == u64::MAX),
        );
    }

    /// When batches are due next.
    pub fn next_tick(&self) -> Option<u64> {
        self.pacing.next()
    }

    /// Lets the batches that are due by `now` be sent.
    pub fn tick(&mut self, now: u64) {
        let Self {
            streams,
            ready,
            pacing,
            ..
        } = self;
        pacing.tick(now, |slot, batches, last| {
            let stream = &mut streams[slot as usize];
            let Course::Response(response) = &mut stream.course else {
                return false;
            };
            response.tick(batches, last);
            if response.sendable() > 0 && !std::mem::replace(&mut stream.ready, true) {
                ready.push_back(slot);
            }
            matches!(&stream.course, Course::Response(response) if response.due < response.messages)
        });
    }

    /// Appends what there is to send, up to `room` bytes; past that, at most one frame that is no message. `now` is
    /// the send time of what is not paced.
    pub fn produce(
        &mut self,
        output: &mut Vec<u8>,
        room: usize,
        now: u64,
        environment: &mut Environment,
    ) -> Next {
        let limit = output.len() + room;
        if let Some(message) = &mut self.cut {
            if !message.append(output, room) {
                return Next::Produce;
            }
            self.cut = None;
            environment.totals.messages_sent += 1;
        }
        if let Some((code, why)) = self.failed {
            Control::Error(code as u32, why).append(0, output);
            return Next::Close;
        }
        while output.len() < limit {
            if let Some(refused) = self.refusals.pop_front() {
                Control::Error(refused.code as u32, refused.why).append(refused.id, output);
            } else if let Some(slot) = self.ready.pop_front() {
                self.visit(slot, output, limit, now, environment);
            } else {
                let finishing = self.ended || environment.draining;
                return if finishing && self.streams.is_empty() {
                    Next::Close
                } else {
                    Next::Wait
                };
            }
        }
        Next::Produce
    }

    /// Forgets all streams, because the connection is gone.
    pub fn forget(&mut self, environment: &mut Environment) {
        environment.totals.streams -= self.streams.len() as u64;
        self.streams = Slab::new();
        self.slots = BTreeMap::new();
        self.ready = VecDeque::new();
        self.pacing = Pacing::default();
        self.refusals = VecDeque::new();
    }

    /// Lets a stream produce its share.
    fn visit(
        &mut self,
        slot: u32,
        output: &mut Vec<u8>,
        limit: usize,
        now: u64,
        environment: &mut Environment,
    ) {
        let stream = &mut self.streams[slot as usize];
        stream.ready = false;
        let over = match &mut stream.course {
            Course::Response(response) => {
                let quantum = output.len() + QUANTUM;
                while response.sendable() > 0 && self.cut.is_none() && output.len() < limit.min(quantum) {
                    let content = Content {
                        sequence: response.sent,
                        stream: stream.id,
                        tag: response.tag,
                        time: if response.timed { response.time(now) } else { 0 },
                    };
                    response.sent += 1;
                    response.credit -= 1;
                    let room = limit - output.len();
                    if room >= Message::frame(response.size) {
                        Message::append_whole(&content, response.size, output);
                        environment.totals.messages_sent += 1;
                    } else {
                        let mut message = Message::new(content, response.size);
                        message.append(output, room);
                        self.cut = Some(message);
                    }
                }
                let starved = response.sendable() == 0;
                if response.is_complete() || (starved && self.ended) {
                    response.end()
                } else {
                    if !starved {
                        stream.ready = true;
                        self.ready.push_back(slot);
                    }
                    return;
                }
            }
            Course::Over(end) => *end,
            Course::Request(_) => return,
        };
        if self.cut.is_some() {
            // The end comes after the rest of the last message.
            stream.course = Course::Over(over);
            stream.ready = true;
            self.ready.push_front(slot);
            return;
        }
        Control::End(over).append(stream.id, output);
        self.slots.remove(&stream.id);
        self.streams.remove(slot as usize);
        self.pacing.remove(slot);
        environment.totals.streams -= 1;
    }

    /// Ends the streams for which that holds.
    fn end_streams(&mut self, ends: impl Fn(&Stream) -> bool) {
        for (slot, stream) in &mut self.streams {
            if ends(stream) {
                end(stream, slot as u32, &mut self.ready);
            }
        }
    }

    /// # Errors
    /// What the client may not do.
    fn take(&mut self, part: &Part, now: u64, environment: &mut Environment) -> Result<(), &'static str> {
        let id = match part {
            Part::Control { stream, .. } | Part::Message { stream, .. } => *stream,
        };
        if id == 0 {
            return Err("stream 0 stands for the connection");
        }
        match part {
            Part::Message {
                size, from, bytes, ..
            } => self.take_message(id, *size, *from, bytes, environment),
            Part::Control { control, .. } => match control {
                Control::OpenResponse(open) => self.open_response(id, open, now, environment),
                Control::OpenRequest(open) => self.open_request(id, open, environment),
                Control::Credit(messages) => self.grant(id, *messages),
                Control::Cancel => {
                    // One that is over already has crossed this with its end.
                    if let Some(&slot) = self.slots.get(&id) {
                        end(&mut self.streams[slot as usize], slot, &mut self.ready);
                    }
                    Ok(())
                }
                Control::End(_) | Control::Error(..) => Err("only the server ends streams"),
            },
        }
    }

    fn take_message(
        &mut self,
        id: u32,
        size: u32,
        from: u32,
        bytes: &[u8],
        environment: &mut Environment,
    ) -> Result<(), &'static str> {
        let Some(&slot) = self.slots.get(&id) else {
            // It was refused, and the client did not know yet.
            return Ok(());
        };
        let stream = &mut self.streams[slot as usize];
        match &mut stream.course {
            Course::Response(_) => return Err("a message came on a stream on which the server sends"),
            // Cancelled, so that nobody asks for the sum.
            Course::Over(_) => {}
            Course::Request(request) => {
                if size != request.size {
                    return Err("a message has another size than its stream was opened with");
                }
                request.checksum.update(bytes);
                if from + bytes.len() as u32 == size {
                    environment.totals.messages_received += 1;
                    request.received += 1;
                    if request.received == request.messages {
                        end(stream, slot, &mut self.ready);
                    }
                }
            }
        }
        Ok(())
    }

    fn grant(&mut self, id: u32, messages: u32) -> Result<(), &'static str> {
        // A stream that is over already has crossed this with its end.
        let Some(&slot) = self.slots.get(&id) else {
            return Ok(());
        };
        let stream = &mut self.streams[slot as usize];
        match &mut stream.course {
            Course::Response(response) => {
                response.credit = response.credit.saturating_add(messages);
                if response.sendable() > 0 && !std::mem::replace(&mut stream.ready, true) {
                    self.ready.push_back(slot);
                }
                Ok(())
            }
            Course::Over(_) => Ok(()),
            Course::Request(_) => Err("credit came for a stream on which the client sends"),
        }
    }

    fn open_response(
        &mut self,
        id: u32,
        open: &OpenResponse,
        now: u64,
        environment: &mut Environment,
    ) -> Result<(), &'static str> {
        if !self.may_open(id, open.check(), environment)? {
            return Ok(());
        }
        let slot = self.streams.vacant_key() as u32;
        if let Some(pace) = open.pace
            && !self.pacing.add(slot, pace.period, now)
        {
            self.refuse(id, ErrorCode::Limit, "too many different periods", environment);
            return Ok(());
        }
        let response = Response::new(open);
        let ready = response.sendable() > 0;
        self.open(id, Course::Response(response), ready, environment);
        Ok(())
    }

    fn open_request(
        &mut self,
        id: u32,
        open: &OpenRequest,
        environment: &mut Environment,
    ) -> Result<(), &'static str> {
        if self.may_open(id, open.check(), environment)? {
            self.open(id, Course::Request(Request::new(open)), false, environment);
        }
        Ok(())
    }

    /// Whether a stream can be opened; if not, it is refused.
    ///
    /// # Errors
    /// It is open already.
    fn may_open(
        &mut self,
        id: u32,
        valid: Result<(), &'static str>,
        environment: &mut Environment,
    ) -> Result<bool, &'static str> {
        if self.slots.contains_key(&id) {
            return Err("a stream was opened that is open");
        }
        let refusal = if environment.draining {
            Some((ErrorCode::Draining, "the server is ending"))
        } else if self.streams.len() >= environment.max_streams {
            Some((ErrorCode::Limit, "too many streams on this connection"))
        } else {
            valid.err().map(|why| (ErrorCode::Invalid, why))
        };
        if let Some((code, why)) = refusal {
            self.refuse(id, code, why, environment);
        }
        Ok(refusal.is_none())
    }

    fn open(&mut self, id: u32, course: Course, ready: bool, environment: &mut Environment) {
        let slot = self.streams.insert(Stream { id, ready, course }) as u32;
        self.slots.insert(id, slot);
        if ready {
            self.ready.push_back(slot);
        }
        environment.totals.streams += 1;
        environment.totals.streams_opened += 1;
    }

    fn refuse(&mut self, id: u32, code: ErrorCode, why: &'static str, environment: &mut Environment) {
        self.refusals.push_back(Refused { id, code, why });
        environment.totals.streams_refused += 1;
    }

    fn fail(&mut self, code: ErrorCode, why: &'static str, environment: &mut Environment) {
        self.forget(environment);
        self.failed = Some((code, why));
        environment.totals.connections_failed += 1;
    }
}

/// Lets a stream be over, of which the client is told in its turn.
fn end(stream: &mut Stream, slot: u32, ready: &mut VecDeque<u32>) {
    stream.course = Course::Over(match &stream.course {
        Course::Response(response) => response.end(),
        Course::Request(request) => request.end(),
        Course::Over(end) => *end,
    });
    if !std::mem::replace(&mut stream.ready, true) {
        ready.push_back(slot);
    }
}
