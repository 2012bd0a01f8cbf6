//! What a datagram of a load begins with.

use std::fmt;

/// The first bytes of every datagram of a load: a name and the version of the layout.
const MAGIC: [u8; 4] = *b"QDG1";

/// Senders that a run may have.
pub const MOST_SENDERS: u16 = 1024;

/// What a datagram is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It counts.
    Data,
    /// It says that its sender has sent everything, and how much that was.
    Shutdown,
}

/// The first [`Header::BYTES`] bytes of a datagram, all numbers little-endian:
///
/// | bytes | what |
/// |---|---|
/// | 0-3 | `QDG1` |
/// | 4 | 0: data, 1: shutdown |
/// | 5 | 0 |
/// | 6-7 | the sender's index |
/// | 8-9 | how many senders the run has |
/// | 10-11 | 0 |
/// | 12-15 | of a shutdown: its number among all shutdowns of the run, from 0 |
/// | 16-23 | the run |
/// | 24-31 | of data: its number among this sender's, from 0; of a shutdown: how many data this sender has sent |
/// | 32-39 | when it was due to be sent, in nanoseconds of the sender's own clock |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Data or shutdown.
    pub kind: Kind,
    /// The sender's index, below `senders`.
    pub sender: u16,
    /// How many senders the run has: 1 to [`MOST_SENDERS`].
    pub senders: u16,
    /// Of a shutdown: its number among all shutdowns of the run, which are sent one after the other.
    pub shutdown: u32,
    /// Tells one run from another.
    pub run: u64,
    /// Of data: its number among this sender's, from 0. Of a shutdown: how many data this sender has sent.
    pub sequence: u64,
    /// When it was due to be sent, in nanoseconds of a clock that only its sender knows.
    pub due: u64,
}

/// Why bytes are no datagram of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("not a datagram of `quoit load udp`")
    }
}

impl std::error::Error for Malformed {}

impl Header {
    /// Its length, and so the least that a datagram can have.
    pub const BYTES: usize = 40;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = u8::from(self.kind == Kind::Shutdown);
        bytes[6..8].copy_from_slice(&self.sender.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.senders.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.shutdown.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.run.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..].copy_from_slice(&self.due.to_le_bytes());
        bytes
    }

    /// What a datagram begins with.
    ///
    /// # Errors
    /// It is shorter, of another program, or out of range.
    pub fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; Self::BYTES] = datagram.first_chunk().ok_or(Malformed)?;
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| {
            let part = bytes[at..].first_chunk().expect("the places lie in the header");
            u64::from_le_bytes(*part)
        };
        let shutdown = bytes[12..].first_chunk().expect("the places lie in the header");
        let kind = match bytes[4] {
            0 => Kind::Data,
            1 => Kind::Shutdown,
            _ => return Err(Malformed),
        };
        let header = Self {
            kind,
            sender: short(6),
            senders: short(8),
            shutdown: u32::from_le_bytes(*shutdown),
            run: long(16),
            sequence: long(24),
            due: long(32),
        };
        let in_range = header.sender < header.senders
            && header.senders <= MOST_SENDERS
            && header.sequence < u64::MAX
            && header.shutdown < u32::MAX;
        if bytes[..4] != MAGIC || short(10) != 0 || bytes[5] != 0 || !in_range {
            return Err(Malformed);
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> impl Strategy<Value = Header> {
        let fields = (
            any::<bool>(),
            1..=MOST_SENDERS,
            any::<prop::sample::Index>(),
            0..u32::MAX,
        );
        (fields, any::<u64>(), 0..u64::MAX, any::<u64>()).prop_map(
            |((data, senders, sender, shutdown), run, sequence, due)| Header {
                kind: if data { Kind::Data } else { Kind::Shutdown },
                sender: sender.index(usize::from(senders)) as u16,
                senders,
                shutdown,
                run,
                sequence,
                due,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(header in header(), rest in prop::collection::vec(any::<u8>(), 0..9)) {
            let datagram = [&header.encode()[..], &rest].concat();
            prop_assert_eq!(Header::decode(&datagram), Ok(header));
        }

        #[test]
        fn nothing_else_is_taken_for_a_header(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..Header::BYTES]);
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let right = Header {
            kind: Kind::Data,
            sender: 1,
            senders: 2,
            shutdown: 0,
            run: 7,
            sequence: 9,
            due: 0,
        };
        assert_eq!(Header::decode(&right.encode()), Ok(right));
        assert_eq!(
            Header::decode(&right.encode()[..Header::BYTES - 1]),
            Err(Malformed)
        );
        for wrong in [
            Header { sender: 2, ..right },
            Header {
                senders: 0,
                sender: 0,
                ..right
            },
            Header {
                senders: MOST_SENDERS + 1,
                ..right
            },
            Header {
                sequence: u64::MAX,
                ..right
            },
        ] {
            assert_eq!(Header::decode(&wrong.encode()), Err(Malformed), "{wrong:?}");
        }
    }
}
