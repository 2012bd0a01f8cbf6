//! Judging what comes back from an echo.

use hdrhistogram::Histogram;
use quoit_workload::{Account, Header, Kind};

use super::outbox::content;
use crate::LoadError;
use crate::tally::{Merge, add_histogram, new_histogram};

/// The replies of one sender.
pub(super) struct Replies {
    sender: u16,
    account: Account,
    content: Vec<u8>,
    latencies: Histogram<u64>,
    wrong: u64,
    first_error: Option<String>,
}

impl Replies {
    /// Of the sender that sends `header`; datagrams have up to `largest` bytes, and latencies up to `longest`
    /// nanoseconds are kept.
    ///
    /// # Errors
    /// That is too long for a histogram.
    pub(super) fn new(header: Header, largest: usize, longest: u64) -> Result<Self, LoadError> {
        Ok(Self {
            sender: header.sender,
            account: Account::of(header.run, header.senders),
            content: content(largest),
            latencies: new_histogram(longest)?,
            wrong: 0,
            first_error: None,
        })
    }

    /// Judges a reply that came at `now`; `size` says how long each datagram was. Returns the number of the datagram
    /// that it answers for the first time.
    pub(super) fn take(&mut self, reply: &[u8], now: u64, size: impl Fn(u64) -> usize) -> Option<u64> {
        // Judged before it is counted, so that what is wrong answers nothing.
        match self.judge(reply, size) {
            Ok(()) => {}
            Err(None) => {
                self.account.take(reply, true);
                return None;
            }
            Err(Some(what)) => {
                self.wrong += 1;
                self.first_error.get_or_insert(what);
                return None;
            }
        }
        let entry = self.account.take(reply, true).filter(|entry| entry.new)?;
        self.latencies
            .saturating_record(now.saturating_sub(entry.header.due).max(1));
        Some(entry.header.sequence)
    }

    /// Whether it is as it was sent. `Err(None)`: it is of no datagram of this run.
    fn judge(&self, reply: &[u8], size: impl Fn(u64) -> usize) -> Result<(), Option<String>> {
        let header = Header::decode(reply).map_err(|_| None)?;
        if Some(header.run) != self.account.run() || header.kind != Kind::Data {
            return Err(None);
        }
        let number = header.sequence;
        if header.sender != self.sender {
            return Err(Some(format!(
                "a reply to datagram {number} of sender {} came to sender {}",
                header.sender, self.sender
            )));
        }
        let expected = size(number);
        if reply.len() != expected {
            return Err(Some(format!(
                "the reply to datagram {number} has {} bytes, expected {expected}",
                reply.len()
            )));
        }
        let right = &self.content[Header::BYTES..expected];
        let found = &reply[Header::BYTES..];
        match found.iter().zip(right).position(|(found, right)| found != right) {
            None => Ok(()),
            Some(place) => Err(Some(format!(
                "byte {} of the reply to datagram {number} is {:#04x}, expected {:#04x}",
                place + Header::BYTES,
                found[place],
                right[place]
            ))),
        }
    }

    /// Replies that came, each datagram's counted once.
    pub(super) fn received(&self) -> u64 {
        self.account.totals().distinct
    }

    /// What was found, in the end.
    pub(super) fn finish(self) -> ReplyTally {
        let totals = self.account.totals();
        ReplyTally {
            received: totals.distinct,
            duplicates: totals.duplicates + totals.forgotten,
            reordered: totals.reordered,
            foreign: totals.foreign,
            wrong: self.wrong,
            first_error: self.first_error,
            latencies: self.latencies,
        }
    }
}

/// What one sender, or all together, found of their replies.
#[derive(Debug)]
pub(super) struct ReplyTally {
    pub(super) received: u64,
    pub(super) duplicates: u64,
    pub(super) reordered: u64,
    pub(super) foreign: u64,
    pub(super) wrong: u64,
    pub(super) first_error: Option<String>,
    pub(super) latencies: Histogram<u64>,
}

impl Merge for ReplyTally {
    fn merge(&mut self, other: &Self) -> Result<(), LoadError> {
        self.received += other.received;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.foreign += other.foreign;
        self.wrong += other.wrong;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        add_histogram(&mut self.latencies, &other.latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        kind: Kind::Data,
        sender: 1,
        senders: 2,
        shutdown: 0,
        run: 5,
        sequence: 8,
        due: 100,
    };

    fn datagram(header: Header, size: usize) -> Vec<u8> {
        let mut datagram = content(size);
        datagram[..Header::BYTES].copy_from_slice(&header.encode());
        datagram
    }

    #[test]
    fn right_replies_are_timed_and_others_are_told_apart() {
        let mut replies = Replies::new(HEADER, 300, 1_000_000).unwrap();
        let mut take = |reply: &[u8]| replies.take(reply, 350, |_| 300);
        let right = datagram(HEADER, 300);
        assert_eq!(take(&right), Some(8));
        assert_eq!(take(&right), None);
        assert_eq!(take(b"stray"), None);
        assert_eq!(take(&datagram(Header { run: 6, ..HEADER }, 300)), None);
        let mut changed = datagram(
            Header {
                sequence: 9,
                ..HEADER
            },
            300,
        );
        changed[299] ^= 1;
        for wrong in [
            changed,
            datagram(
                Header {
                    sequence: 9,
                    ..HEADER
                },
                299,
            ),
            datagram(
                Header {
                    sender: 0,
                    sequence: 9,
                    ..HEADER
                },
                300,
            ),
        ] {
            assert_eq!(take(&wrong), None);
        }
        // What was wrong has answered nothing.
        assert_eq!(
            take(&datagram(
                Header {
                    sequence: 9,
                    ..HEADER
                },
                300
            )),
            Some(9)
        );
        let tally = replies.finish();
        assert_eq!((tally.received, tally.duplicates), (2, 1));
        assert_eq!((tally.foreign, tally.wrong), (2, 3));
        assert_eq!((tally.latencies.len(), tally.latencies.max()), (2, 250));
        assert_eq!(
            tally.first_error.as_deref(),
            Some("byte 299 of the reply to datagram 9 is 0x31, expected 0x30")
        );
    }
}
