//! One connection of the load: its streams, and the check of what arrives on them.

use quoit_host::monotonic_nanoseconds;
use quoit_workload::rpc::content::{Checker, Content};
use quoit_workload::rpc::decoder::{Decoder, Part};
use quoit_workload::rpc::frame::{Control, End, OpenResponse};

use super::RpcStreams;
use super::stream::{Course, Place};
use crate::protocol::{Outcomes, Then, WrongKind};

/// One connection.
#[derive(Debug)]
pub(crate) struct RpcState {
    /// Its id in the run, which goes into every content.
    tag: u32,
    /// Streams that it may have at once.
    concurrent: u32,
    decoder: Decoder,
    checker: Checker,
    /// Made as they are needed.
    places: Vec<Place>,
    /// Places that were used and have no stream now.
    free: Vec<u32>,
    /// Places whose streams are to be granted credit.
    to_grant: Vec<u32>,
    /// When something arrived last, or a stream was begun while there was none.
    heard: u64,
}

/// Something that must not come. Nothing after it is to be trusted.
type Wrong = (WrongKind, String);

impl RpcState {
    pub(super) fn new(tag: u32, concurrent: u32, now: u64) -> Self {
        Self {
            tag,
            concurrent,
            decoder: Decoder::new(),
            checker: Checker::default(),
            places: Vec::new(),
            free: Vec::new(),
            to_grant: Vec::new(),
            heard: now,
        }
    }

    /// Streams that have not come to their end.
    pub(super) fn open_streams(&self) -> u32 {
        (self.places.len() - self.free.len()) as u32
    }

    /// When something arrived last, or a stream was begun while there was none.
    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    /// Begins one stream.
    pub(super) fn open(&mut self, streams: &RpcStreams, start: u64, output: &mut Vec<u8>) {
        if self.open_streams() == 0 {
            self.heard = self.heard.max(start);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::new());
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[index as usize];
        place.open(index, self.concurrent, start);
        place.credit = u64::from(streams.credit).min(streams.most());
        let open = OpenResponse {
            tag: self.tag,
            messages: streams.messages,
            size: streams.size,
            // No more than the u32 that it is the lesser of.
            credit: place.credit as u32,
            pace: streams.pace,
            timed: streams.timed,
        };
        Control::OpenResponse(open).append(place.id, output);
    }

    /// Grants the credit that is due.
    pub(super) fn grant(&mut self, streams: &RpcStreams, output: &mut Vec<u8>) {
        for index in self.to_grant.drain(..) {
            let place = &mut self.places[index as usize];
            let credit = place
                .messages
                .saturating_add(u64::from(streams.credit))
                .min(streams.most());
            if place.course == Course::Open && credit > place.credit {
                // No more than the window, which is a u32.
                let more = (credit - place.credit) as u32;
                place.credit = credit;
                Control::Credit(more).append(place.id, output);
            }
        }
    }

    /// Wants nothing more of any stream.
    pub(super) fn cancel_all(&mut self, output: &mut Vec<u8>) {
        for place in &mut self.places {
            if place.course == Course::Open {
                place.course = Course::Cancelled;
                Control::Cancel.append(place.id, output);
            }
        }
        self.to_grant.clear();
    }

    /// Takes what arrived, and reports the messages that it completes.
    pub(super) fn take(
        &mut self,
        streams: &RpcStreams,
        mut input: &[u8],
        now: u64,
        outcomes: &mut impl Outcomes,
    ) -> Then {
        self.heard = now;
        // The send times are of another clock than `now`, which began when the run did.
        let clock = if streams.timed { monotonic_nanoseconds() } else { 0 };
        // The decoder's answers may lie in its memory.
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new());
        let wrong = loop {
            match decoder.next(&mut input) {
                Ok(None) => break None,
                Ok(Some(Part::Message {
                    stream,
                    size,
                    from,
                    bytes,
                })) => {
                    let taken = self.take_message(streams, stream, size, from, bytes);
                    match taken {
                        Ok(false) => {}
                        Ok(true) => {
                            let age = self.checker.time().map(|time| clock.saturating_sub(time));
                            outcomes.right(age.map(|age| now.saturating_sub(age)), 1);
                        }
                        Err(wrong) => break Some(wrong),
                    }
                }
                Ok(Some(Part::Control { stream, control })) => {
                    if let Err(wrong) = self.take_control(streams, stream, &control, outcomes) {
                        break Some(wrong);
                    }
                }
                Err(what) => break Some((WrongKind::Content, format!("malformed: {what}"))),
            }
        };
        self.decoder = decoder;
        match wrong {
            None => Then::GoOn,
            Some((kind, what)) => {
                outcomes.wrong(kind, what);
                Then::GiveUp
            }
        }
    }

    /// Forgets all streams, giving the start of each.
    pub(super) fn withdraw(&mut self, each: &mut impl FnMut(u64, u32)) {
        let mut starts: Vec<u64> = self
            .places
            .iter()
            .filter(|place| place.course != Course::Free)
            .map(|place| place.start)
            .collect();
        starts.sort_unstable();
        starts.into_iter().for_each(|start| each(start, 1));
        *self = Self::new(self.tag, self.concurrent, self.heard);
    }

    /// The place of a stream that is not over.
    fn find(&mut self, stream: u32) -> Result<&mut Place, Wrong> {
        let index = Place::index(stream, self.concurrent);
        match self.places.get_mut(index) {
            Some(place) if place.id == stream && place.course != Course::Free => Ok(place),
            _ => Err(content(format!(
                "something came on stream {stream} of connection {}, which is not open",
                self.tag
            ))),
        }
    }

    /// Checks bytes of a message: whether it is complete now.
    fn take_message(
        &mut self,
        streams: &RpcStreams,
        stream: u32,
        size: u32,
        from: u32,
        bytes: &[u8],
    ) -> Result<bool, Wrong> {
        let tag = self.tag;
        let place = self.find(stream)?;
        let number = place.messages;
        let wrong = |what: &str| {
            content(format!(
                "message {number} on stream {stream} of connection {tag}: {what}"
            ))
        };
        if size != streams.size {
            return Err(wrong(&format!("it has {size} bytes, not {}", streams.size)));
        }
        if number >= place.credit {
            return Err(wrong("there was no credit for it"));
        }
        let expected = Content {
            sequence: number,
            stream,
            tag,
            time: 0,
        };
        let complete = from + bytes.len() as u32 == size;
        if complete {
            place.messages += 1;
            // Met once between two grants, as what is left falls by one at a time.
            let half = place.credit - place.messages == u64::from(streams.credit / 2);
            if half && place.course == Course::Open && place.credit < streams.most() {
                self.to_grant.push(Place::index(stream, self.concurrent) as u32);
            }
        }
        match self.checker.check(&expected, from as usize, bytes) {
            Err(position) => Err(wrong(&format!("byte {position} is wrong"))),
            Ok(()) if complete && streams.timed != self.checker.time().is_some() => {
                Err(wrong(if streams.timed {
                    "it carries no send time"
                } else {
                    "it carries a send time that nobody asked for"
                }))
            }
            Ok(()) => Ok(complete),
        }
    }

    fn take_control(
        &mut self,
        streams: &RpcStreams,
        stream: u32,
        control: &Control,
        outcomes: &mut impl Outcomes,
    ) -> Result<(), Wrong> {
        match control {
            Control::End(end) => {
                let index = Place::index(stream, self.concurrent) as u32;
                let tag = self.tag;
                let place = self.find(stream)?;
                let cancelled = place.course == Course::Cancelled;
                let expected = End {
                    messages: place.messages,
                    checksum: 0,
                };
                let whole = place.messages == streams.most();
                if *end != expected || !(whole || cancelled) {
                    return Err(content(format!(
                        "stream {stream} of connection {tag} ended after {} messages (checksum {:#x}); {} messages \
                         (checksum {:#x}) went over it, of {}",
                        end.messages,
                        end.checksum,
                        expected.messages,
                        expected.checksum,
                        if streams.messages == 0 {
                            "an endless stream".to_owned()
                        } else {
                            streams.messages.to_string()
                        }
                    )));
                }
                let start = place.start;
                place.course = Course::Free;
                self.free.push(index);
                if whole {
                    outcomes.stream(start);
                }
                Ok(())
            }
            Control::Error(code, text) => Err((
                WrongKind::Status,
                match stream {
                    0 => format!(
                        "the server ended connection {} with error {code}: {text}",
                        self.tag
                    ),
                    _ => format!(
                        "the server refused stream {stream} of connection {} with error {code}: {text}",
                        self.tag
                    ),
                },
            )),
            Control::OpenResponse(_) | Control::OpenRequest(_) | Control::Credit(_) | Control::Cancel => {
                Err(content(format!(
                    "the server sent a frame on stream {stream} of connection {} that only clients send",
                    self.tag
                )))
            }
        }
    }
}

fn content(what: String) -> Wrong {
    (WrongKind::Content, what)
}
