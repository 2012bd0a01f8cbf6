//! Taking in what the ring has completed.

use linux_raw_sys::io_uring as abi;

use super::UringEngine;
use super::sys::{CompletionEntry, UringSys};
use super::user_data::{Tag, UserData};
use crate::engine::Completions;
use crate::pool::Pool;
use crate::sys::SocketSys;

impl<S: UringSys, K: SocketSys> UringEngine<S, K> {
    #[inline]
    pub(super) fn complete(
        &mut self,
        entry: &CompletionEntry,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        let data = UserData::from_bits(entry.user_data);
        let (result, flags) = (entry.res, entry.flags);
        self.counters.completions.add(1);
        if flags & abi::IORING_CQE_F_MORE == 0 {
            return self.complete_last(data, result, flags, pool, completions);
        }
        // What comes at each request.
        if data.is(Tag::Receive) {
            self.received(data.slot(), result, flags, pool, completions);
        } else if data.is(Tag::DatagramReceive) {
            self.datagram_received(data.slot(), result, flags, pool, completions);
        } else {
            self.complete_other(data, result, flags, pool, completions);
        }
    }

    /// Takes in the last completion of an entry.
    #[inline(never)]
    fn complete_last(
        &mut self,
        data: UserData,
        result: i32,
        flags: u32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        if self.is_counted(data.tag()) {
            self.counters.in_flight.subtract(1);
        }
        self.complete_other(data, result, flags, pool, completions);
    }

    #[inline(never)]
    fn complete_other(
        &mut self,
        data: UserData,
        result: i32,
        flags: u32,
        pool: &mut Pool,
        completions: &mut Completions,
    ) {
        let more = flags & abi::IORING_CQE_F_MORE != 0;
        match data.tag() {
            Tag::Receive => self.received(data.slot(), result, flags, pool, completions),
            Tag::Send => self.sent(data.slot(), data.detail(), result, flags, pool, completions),
            Tag::Accept => self.accepted(data.slot(), result, flags, pool, completions),
            Tag::Connect => self.connected(data.slot(), result, completions),
            Tag::Wake => self.woken(result, more, pool, completions),
            Tag::Cancel if data.target() == Tag::DatagramSend => self.datagram_cancelled(data, result, pool),
            Tag::Cancel => self.cancelled(data, result, pool),
            Tag::Marker => self.marker_completed(completions),
            Tag::Close => debug_assert!(result <= 0, "a close returns no number"),
            Tag::DatagramReceive => self.datagram_received(data.slot(), result, flags, pool, completions),
            Tag::DatagramSend => self.datagram_sent(data.slot(), data.detail(), result, pool, completions),
        }
    }
}
