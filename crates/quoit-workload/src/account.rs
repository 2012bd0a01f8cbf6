//! The account of a run's datagrams at whoever takes them.

use serde::{Deserialize, Serialize};

use super::header::{Header, Kind};
use super::intervals::Intervals;
use super::window::{Arrival, Window};

/// Counts of datagrams. `taken = distinct + duplicates + forgotten`, and, once all senders have said what they sent,
/// `sent = distinct + missing` (as long as nothing was forgotten).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Data of this run that came, duplicates included.
    pub taken: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Data of this run that came, each counted once.
    pub distinct: u64,
    /// Data that came again.
    pub duplicates: u64,
    /// Data that came after one of the same sender with a higher number; among `distinct`.
    pub reordered: u64,
    /// Data that came so late (a million numbers behind) that it is not known whether they had come before.
    pub forgotten: u64,
    /// Of `taken`, those whose end was cut off for want of room.
    pub truncated: u64,
    /// What came and was none of this run's: of another run, or of no load at all.
    pub foreign: u64,
    /// Shutdown datagrams that came.
    pub shutdowns: u64,
}

/// What is known of one sender.
#[derive(Debug, Clone, Default)]
struct Sender {
    window: Window,
    /// How many data it has sent, once it has said so.
    sent: Option<u64>,
    /// Whether its datagrams come to another socket on the port, and are known by [`Account::merge`] alone.
    elsewhere: bool,
}

/// A datagram of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What it begins with.
    pub header: Header,
    /// Whether it is a data datagram that had not come before.
    pub new: bool,
}

/// Keeps the account of one run: the first whose datagram comes, unless it is named. A sender has 128 KiB of memory in
/// it.
#[derive(Debug, Clone, Default)]
pub struct Account {
    run: Option<u64>,
    senders: Vec<Option<Sender>>,
    totals: Totals,
    /// Of `distinct`, when they were due.
    due: Intervals,
    /// One more than the highest number of a shutdown that came to this socket.
    shutdowns_begun: u64,
    /// Shutdowns that came to this socket.
    shutdowns_came: u64,
    /// Shutdowns that are missing at other sockets.
    shutdowns_missing_elsewhere: u64,
}

impl Account {
    /// That of a run which is known already, with so many senders.
    #[must_use]
    pub fn of(run: u64, senders: u16) -> Self {
        let mut account = Self::default();
        account.begin(run, senders);
        account
    }

    fn begin(&mut self, run: u64, senders: u16) {
        self.run = Some(run);
        self.senders.resize_with(usize::from(senders), || None);
    }

    /// Counts a datagram. `whole` says whether its end was there. `None` if it does not belong to the run.
    pub fn take(&mut self, datagram: &[u8], whole: bool) -> Option<Entry> {
        let header = match Header::decode(datagram) {
            Ok(header) if self.belongs(&header) => header,
            _ => {
                self.totals.foreign += 1;
                return None;
            }
        };
        let sender = self.senders[usize::from(header.sender)].get_or_insert_default();
        let totals = &mut self.totals;
        if header.kind == Kind::Shutdown {
            totals.shutdowns += 1;
            self.shutdowns_came += 1;
            self.shutdowns_begun = self.shutdowns_begun.max(u64::from(header.shutdown) + 1);
            sender.sent = Some(header.sequence);
            return Some(Entry { header, new: false });
        }
        totals.taken += 1;
        totals.bytes += datagram.len() as u64;
        totals.truncated += u64::from(!whole);
        let arrival = sender.window.note(header.sequence);
        match arrival {
            Arrival::Next => totals.distinct += 1,
            Arrival::Late => {
                totals.distinct += 1;
                totals.reordered += 1;
            }
            Arrival::Again => totals.duplicates += 1,
            Arrival::Forgotten => totals.forgotten += 1,
        }
        let new = matches!(arrival, Arrival::Next | Arrival::Late);
        if new {
            self.due.note(header.due, 1);
        }
        Some(Entry { header, new })
    }

    fn belongs(&mut self, header: &Header) -> bool {
        match self.run {
            Some(run) => run == header.run && self.senders.len() == usize::from(header.senders),
            None => {
                self.begin(header.run, header.senders);
                true
            }
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Of the data that came, each counted once, when they were due.
    #[must_use]
    pub fn due(&self) -> &Intervals {
        &self.due
    }

    /// The run that it is kept of.
    #[must_use]
    pub fn run(&self) -> Option<u64> {
        self.run
    }

    /// Whether every sender of the run has said that it is done.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.run.is_some()
            && self
                .senders
                .iter()
                .all(|sender| matches!(sender, Some(Sender { sent: Some(_), .. })))
    }

    /// How many data all senders together have sent, once each has said so.
    #[must_use]
    pub fn sent(&self) -> Option<u64> {
        self.run?;
        self.senders.iter().map(|sender| sender.as_ref()?.sent).sum()
    }

    /// Data that were sent and did not come: known once all senders have said what they sent.
    #[must_use]
    pub fn missing(&self) -> Option<u64> {
        // Zero if what was forgotten, and so not counted as distinct, is more than what is missing.
        self.sent().map(|sent| sent.saturating_sub(self.totals.distinct))
    }

    /// Data below the highest number that came, of all senders, which did not come: loss that is known before the end.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        let highest: u64 = self
            .senders
            .iter()
            .flatten()
            .map(|sender| sender.window.next())
            .sum();
        highest.saturating_sub(self.totals.distinct)
    }

    /// Shutdown datagrams that were sent to a socket before the last one that came to it, and did not come. Senders
    /// that were not heard of there are taken for another socket's.
    #[must_use]
    pub fn shutdowns_missing(&self) -> u64 {
        let senders = self.senders.len() as u64;
        let sent: u64 = (0..)
            .zip(&self.senders)
            .filter(|(_, sender)| sender.as_ref().is_some_and(|sender| !sender.elsewhere))
            // Senders take turns, so that number n is of sender n modulo their count.
            .map(|(sender, _)| (self.shutdowns_begun + senders - 1 - sender) / senders)
            .sum();
        sent.saturating_sub(self.shutdowns_came) + self.shutdowns_missing_elsewhere
    }

    /// Adds what another socket took of the same run: where several share a port, each sender's datagrams come to one
    /// of them.
    pub fn merge(&mut self, other: &Account) {
        if other.run.is_some() && self.run.is_some() && self.run != other.run {
            let totals = other.totals;
            self.totals.foreign += totals.taken + totals.foreign + totals.shutdowns;
            return;
        }
        self.run = self.run.or(other.run);
        self.shutdowns_missing_elsewhere += other.shutdowns_missing();
        self.senders
            .resize_with(self.senders.len().max(other.senders.len()), || None);
        for (mine, theirs) in self.senders.iter_mut().zip(&other.senders) {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => {
                    mine.sent = mine.sent.or(theirs.sent);
                    mine.window.raise(theirs.window.next());
                }
                (None, Some(theirs)) => {
                    *mine = Some(Sender {
                        elsewhere: true,
                        ..theirs.clone()
                    });
                }
                (_, None) => {}
            }
        }
        self.due.merge(&other.due);
        let (sum, more) = (&mut self.totals, &other.totals);
        sum.taken += more.taken;
        sum.bytes += more.bytes;
        sum.distinct += more.distinct;
        sum.duplicates += more.duplicates;
        sum.reordered += more.reordered;
        sum.forgotten += more.forgotten;
        sum.truncated += more.truncated;
        sum.foreign += more.foreign;
        sum.shutdowns += more.shutdowns;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn datagram(sender: u16, kind: Kind, sequence: u64, shutdown: u32) -> Vec<u8> {
        let header = Header {
            kind,
            sender,
            senders: 3,
            shutdown,
            run: 11,
            sequence,
            due: 0,
        };
        header.encode().to_vec()
    }

    fn end(account: &mut Account, sent: [u64; 3]) {
        for (sender, sent) in sent.into_iter().enumerate() {
            assert!(!account.is_complete());
            account.take(
                &datagram(sender as u16, Kind::Shutdown, sent, sender as u32),
                true,
            );
        }
        assert!(account.is_complete());
    }

    proptest! {
        /// Whatever the network does to the datagrams, the sums close.
        #[test]
        fn every_datagram_is_accounted_for(
            fates in prop::collection::vec((0_u16..3, 0_usize..3, any::<prop::sample::Index>()), 0..300),
        ) {
            let mut sent = [0_u64; 3];
            let mut arriving = Vec::new();
            let (mut lost, mut again) = (0, 0);
            for (sender, copies, place) in fates {
                let sequence = sent[usize::from(sender)];
                sent[usize::from(sender)] += 1;
                for _ in 0..copies {
                    // Anywhere among those that were sent before it: late.
                    let place = place.index(arriving.len() + 1);
                    arriving.insert(place, (sender, sequence));
                }
                lost += u64::from(copies == 0);
                again += copies.saturating_sub(1) as u64;
            }
            // Half goes to another socket on the same port.
            let mut accounts = [Account::default(), Account::default()];
            for &(sender, sequence) in &arriving {
                accounts[usize::from(sender == 2)].take(&datagram(sender, Kind::Data, sequence, 0), true);
            }
            let [mut account, other] = accounts;
            account.merge(&other);
            end(&mut account, sent);
            let totals = account.totals();
            prop_assert_eq!(totals.taken, arriving.len() as u64);
            prop_assert_eq!(totals.duplicates, again);
            prop_assert_eq!(totals.forgotten, 0);
            prop_assert_eq!(account.sent(), Some(sent.iter().sum()));
            prop_assert_eq!(account.missing(), Some(lost));
            prop_assert!(account.gaps() <= lost);
            prop_assert_eq!(account.due().sum(), totals.distinct);
        }
    }

    #[test]
    fn what_is_not_of_the_run_is_counted_apart() {
        let mut account = Account::default();
        assert!(account.take(b"hello", true).is_none());
        assert!(account.take(&datagram(0, Kind::Data, 0, 0), true).is_some());
        let other = Header {
            run: 12,
            ..Header::decode(&datagram(0, Kind::Data, 1, 0)).unwrap()
        };
        assert!(account.take(&other.encode(), true).is_none());
        assert_eq!((account.totals().taken, account.totals().foreign), (1, 2));
    }

    #[test]
    fn truncated_datagrams_and_lost_shutdowns_are_known() {
        let mut account = Account::default();
        account.take(&datagram(0, Kind::Data, 0, 0), false);
        assert_eq!((account.totals().truncated, account.totals().distinct), (1, 1));
        assert_eq!((account.missing(), account.shutdowns_missing()), (None, 0));
        // The first round was lost but for its last. Of sender 1 nothing is known yet.
        account.take(&datagram(2, Kind::Shutdown, 0, 2), true);
        assert_eq!(account.shutdowns_missing(), 1);
        account.take(&datagram(0, Kind::Shutdown, 5, 3), true);
        account.take(&datagram(1, Kind::Shutdown, 0, 4), true);
        assert_eq!((account.missing(), account.shutdowns_missing()), (Some(4), 2));
    }

    /// One socket may be behind another on the same port: what waits there is not missing.
    #[test]
    fn shutdowns_are_missed_at_the_socket_to_which_they_were_sent() {
        let [mut one, mut other] = [Account::default(), Account::default()];
        // Sender 0 is the first socket's, which lost number 0; the others are the second's, where 4 and 5 still wait.
        one.take(&datagram(0, Kind::Shutdown, 0, 3), true);
        one.take(&datagram(0, Kind::Shutdown, 0, 6), true);
        other.take(&datagram(1, Kind::Shutdown, 0, 1), true);
        other.take(&datagram(2, Kind::Shutdown, 0, 2), true);
        assert_eq!((one.shutdowns_missing(), other.shutdowns_missing()), (1, 0));
        let mut sum = Account::default();
        sum.merge(&one);
        sum.merge(&other);
        assert!(sum.is_complete());
        assert_eq!(sum.shutdowns_missing(), 1);
        one.merge(&other);
        assert_eq!(one.shutdowns_missing(), 1);
    }

    #[test]
    fn late_and_repeated_datagrams_are_told_apart() {
        let mut account = Account::default();
        for sequence in [0, 2, 1, 1, 4] {
            account.take(&datagram(1, Kind::Data, sequence, 0), true);
        }
        let totals = account.totals();
        assert_eq!((totals.distinct, totals.reordered, totals.duplicates), (4, 1, 1));
        assert_eq!(account.gaps(), 1);
    }
}
