//! One stream.

use quoit_workload::rpc::frame::{End, OpenRequest, OpenResponse, Pace};

/// A stream of either direction.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// Whether it is in the list of those with something to produce.
    pub(super) ready: bool,
    pub(super) course: Course,
}

/// Where a stream stands.
#[derive(Debug)]
pub(super) enum Course {
    /// The server sends.
    Response(Response),
    /// The client sends.
    Request(Request),
    /// It is over, and the client is to be told so.
    Over(End),
}

/// The server's side of a stream on which it sends.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) tag: u32,
    pub(super) size: u32,
    pub(super) credit: u32,
    pub(super) timed: bool,
    pub(super) pace: Option<Pace>,
    /// Messages after which it ends; `u64::MAX` for an endless one.
    pub(super) messages: u64,
    /// Messages that are due, from the first on.
    pub(super) due: u64,
    /// When the last of them became due, if it is paced, in nanoseconds of the monotonic clock.
    pub(super) due_since: u64,
    pub(super) sent: u64,
}

impl Response {
    pub(super) fn new(open: &OpenResponse) -> Self {
        let messages = match open.messages {
            0 => u64::MAX,
            messages => messages,
        };
        Self {
            tag: open.tag,
            size: open.size,
            credit: open.credit,
            timed: open.timed,
            pace: open.pace,
            messages,
            due: if open.pace.is_some() { 0 } else { messages },
            due_since: 0,
            sent: 0,
        }
    }

    /// Messages that may be sent now.
    pub(super) fn sendable(&self) -> u64 {
        (self.due - self.sent).min(u64::from(self.credit))
    }

    /// Lets so many batches become due, the last of them at `time`.
    pub(super) fn tick(&mut self, batches: u64, time: u64) {
        let batch = self.pace.map_or(0, |pace| pace.batch);
        let messages = batches.saturating_mul(u64::from(batch));
        self.due = self.due.saturating_add(messages).min(self.messages);
        self.due_since = time;
    }

    /// The send time of the next message: when it became due, if it is paced, else `now`.
    pub(super) fn time(&self, now: u64) -> u64 {
        match self.pace {
            None => now,
            Some(Pace { batch, period }) => {
                let batch = u64::from(batch);
                let later = (self.due - 1) / batch - self.sent / batch;
                self.due_since - later * period
            }
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.sent == self.messages
    }

    /// How it ends now.
    pub(super) fn end(&self) -> End {
        End {
            messages: self.sent,
            checksum: 0,
        }
    }
}

/// The server's side of a stream on which the client sends.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) size: u32,
    /// Messages that will come.
    pub(super) messages: u64,
    /// Messages that came whole.
    pub(super) received: u64,
    /// Over the contents that came.
    pub(super) checksum: crc32fast::Hasher,
}

impl Request {
    pub(super) fn new(open: &OpenRequest) -> Self {
        Self {
            size: open.size,
            messages: open.messages,
            received: 0,
            checksum: crc32fast::Hasher::new(),
        }
    }

    /// How it ends now.
    pub(super) fn end(&self) -> End {
        End {
            messages: self.received,
            checksum: self.checksum.clone().finalize(),
        }
    }
}
