//! What a message carries: a header that names it, then a pattern that depends on the header, so that a message that
//! is changed, lost, repeated, or delivered on another stream or connection is found.

/// Bytes of the header.
const HEADER: usize = super::MIN_MESSAGE as usize;

/// Where the send time lies in the header.
const TIME: std::ops::Range<usize> = 16..24;

/// The pattern repeats after so many bytes. A prime, so that it is out of step with every buffer's size.
const PERIOD: usize = 251;

/// The pattern, long enough that most messages take one piece of it.
static RAMP: [u8; 16 * 1024] = ramp();

const fn ramp() -> [u8; 16 * 1024] {
    let mut ramp = [0; 16 * 1024];
    let mut at = 0;
    while at < ramp.len() {
        ramp[at] = (at % PERIOD) as u8;
        at += 1;
    }
    ramp
}

/// One message's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The message's number in its stream, from 0.
    pub sequence: u64,
    /// The stream that it goes over.
    pub stream: u32,
    /// What the stream was opened with.
    pub tag: u32,
    /// When it was sent, in nanoseconds of `CLOCK_MONOTONIC`; 0: not said.
    pub time: u64,
}

impl Content {
    fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[8..12].copy_from_slice(&self.stream.to_be_bytes());
        header[12..16].copy_from_slice(&self.tag.to_be_bytes());
        header[TIME].copy_from_slice(&self.time.to_be_bytes());
        header
    }

    /// The value of the byte at position 0, if the pattern began there.
    fn offset(&self) -> usize {
        let period = PERIOD as u64;
        // One division: the ids are too small for the sum of them and a remainder to overflow.
        let sum = self.sequence % period + u64::from(self.stream) + u64::from(self.tag);
        (sum % period) as usize
    }

    /// Calls `each` with the pattern's pieces for the positions from `from` to `to`, until it returns false.
    fn pattern(&self, mut from: usize, to: usize, mut each: impl FnMut(usize, &'static [u8]) -> bool) {
        while from < to {
            let begin = (self.offset() + from) % PERIOD;
            let piece = &RAMP[begin..RAMP.len().min(begin + (to - from))];
            if !each(from, piece) {
                return;
            }
            from += piece.len();
        }
    }

    /// Appends the content's bytes from position `from` to `to`.
    pub fn append(&self, from: usize, to: usize, output: &mut Vec<u8>) {
        if (from, to) == (0, HEADER.max(to)) {
            // The usual case, whose length the compiler knows.
            output.extend_from_slice(&self.header());
        } else if from < HEADER {
            output.extend_from_slice(&self.header()[from..to.min(HEADER)]);
        }
        self.pattern(from.max(HEADER), to, |_, piece| {
            output.extend_from_slice(piece);
            true
        });
    }

    /// Compares bytes of a message, from position `from` on, with what they should be. The send time is whatever it
    /// is. Returns the first position that differs.
    fn differs_at(&self, from: usize, bytes: &[u8]) -> Option<usize> {
        let to = from + bytes.len();
        if from < HEADER {
            let expected = self.header();
            let found =
                (from..to.min(HEADER)).find(|&at| !TIME.contains(&at) && bytes[at - from] != expected[at]);
            if found.is_some() {
                return found;
            }
        }
        let mut difference = None;
        self.pattern(from.max(HEADER), to, |at, piece| {
            let found = &bytes[at - from..][..piece.len()];
            if found != piece {
                let inside = found
                    .iter()
                    .zip(piece)
                    .position(|(found, expected)| found != expected);
                difference = inside.map(|inside| at + inside);
            }
            difference.is_none()
        });
        difference
    }
}

/// Checks one message after another, each in whatever pieces it arrives.
#[derive(Debug, Default)]
pub struct Checker {
    /// The send time's bytes seen so far of the message at hand.
    time: [u8; 8],
}

impl Checker {
    /// Checks bytes of the expected message, from position `from` on. Pieces come in order, from 0.
    ///
    /// # Errors
    /// The first position that differs.
    pub fn check(&mut self, expected: &Content, from: usize, bytes: &[u8]) -> Result<(), usize> {
        if from < TIME.end {
            let to = (from + bytes.len()).min(TIME.end);
            for at in from.max(TIME.start)..to {
                self.time[at - TIME.start] = bytes[at - from];
            }
        }
        match expected.differs_at(from, bytes) {
            None => Ok(()),
            Some(position) => Err(position),
        }
    }

    /// The send time of the message that was checked last, as a whole; `None` if it carries none.
    pub fn time(&self) -> Option<u64> {
        match u64::from_be_bytes(self.time) {
            0 => None,
            time => Some(time),
        }
    }
}
