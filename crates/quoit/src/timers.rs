//! The timers of one loop: a hierarchical timing wheel.
//!
//! G. Varghese, T. Lauck: "Hashed and Hierarchical Timing Wheels", SOSP 1987, scheme 7. Most timers of a server
//! are idle limits that are cancelled or moved long before they expire, so inserting and cancelling must cost
//! the same however many there are; a heap cannot promise that.
//!
//! Time is counted in ticks of a millisecond. Each of the levels has 64 slots, and a slot of one level spans all
//! 64 of the level below. A timer is kept on the level of the highest group of six bits in which its tick
//! differs from the wheel's, in the slot that those bits number. Hence all that is kept on a level comes before
//! all that is kept on the levels above, no slot is ever ambiguous, and the first occupied slot of the lowest
//! occupied level is the next thing to look at: one step, however far the clock has jumped. When its time has
//! come, a slot of the lowest level expires, and one of another level is dealt out to the levels below. Eight
//! levels cover every moment that the clock can show, so that none is too far away.

use std::fmt;
use std::num::NonZeroU64;

use crate::errno::Errno;
use crate::reserved::with_room;
use crate::sys::Time;

/// Nanoseconds of a tick.
const TICK: u64 = 1_000_000;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 8;
/// The lists of all slots; their ends come first among the links.
const LISTS: usize = LEVELS * SLOTS;

const _: () = assert!(
    (u64::MAX / TICK + 1).ilog2() < SLOT_BITS * LEVELS as u32,
    "the levels cover the clock"
);

/// A timer of one [`Wheel`]; never that of another timer, however long it is kept.
// Packed: a connection has two, and fits in four cache lines with its place in the table.
#[repr(Rust, packed(4))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimerId {
    entry: u32,
    /// Not 0, so that to have no timer takes no more room than to have one.
    serial: NonZeroU64,
}

/// The neighbours in a circular list, each the index of a link: that of an end of a list, or of an entry.
#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

struct Entry<K> {
    /// The number of the insertion that fills this entry; 0 while it is free.
    serial: u64,
    tick: u64,
    key: K,
}

/// Timers that carry keys of type `K`.
pub(crate) struct Wheel<K> {
    /// All ticks before this have been dealt with, and this one as far as a limit let it.
    current: u64,
    /// Which slots of each level are occupied.
    occupied: [u64; LEVELS],
    /// The list, never empty, whose time has come and which is being dealt out to the levels below. It comes
    /// first.
    dealing: Option<usize>,
    /// One for the end of each list, then one for each entry.
    links: Vec<Link>,
    entries: Vec<Entry<K>>,
    /// Free entries, the last used on top.
    free: Vec<u32>,
    /// That of the next timer.
    serial: NonZeroU64,
    limit: usize,
}

impl<K: Copy> Wheel<K> {
    /// A wheel for at most `limit` timers at a time. Their memory is reserved here, and none later.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(limit: u32) -> Result<Self, Errno> {
        let limit = limit as usize;
        let mut links = with_room(LISTS + limit)?;
        links.extend((0..LISTS as u32).map(|end| Link {
            previous: end,
            next: end,
        }));
        Ok(Self {
            current: 0,
            occupied: [0; LEVELS],
            dealing: None,
            links,
            entries: with_room(limit)?,
            free: with_room(limit)?,
            serial: NonZeroU64::MIN,
            limit,
        })
    }

    /// The timers that wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Adds a timer that expires at `deadline`, or at the next [`Wheel::expire`] if that is over; `None` if
    /// there are as many as the wheel may have. `now` is the present moment, to which an empty wheel is turned.
    pub(crate) fn insert(&mut self, now: Time, deadline: Time, key: K) -> Option<TimerId> {
        if self.len() == self.limit {
            return None;
        }
        if self.len() == 0 {
            self.current = self.current.max(now.as_nanos() / TICK);
        }
        let serial = self.serial;
        self.serial = serial
            .checked_add(1)
            .expect("no process lives to set so many timers");
        let entry = Entry {
            serial: serial.get(),
            // Rounded up: a timer is never early. What is over waits in the slot that is looked at first.
            tick: deadline.as_nanos().div_ceil(TICK).max(self.current),
            key,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                let index = self.entries.len() as u32;
                self.entries.push(entry);
                let alone = LISTS as u32 + index;
                self.links.push(Link {
                    previous: alone,
                    next: alone,
                });
                index
            }
        };
        self.place(index);
        Some(TimerId { entry: index, serial })
    }

    /// Removes a timer and returns its key, or `None` if it has expired or was cancelled before.
    pub(crate) fn cancel(&mut self, timer: TimerId) -> Option<K> {
        let entry = self.entries.get(timer.entry as usize)?;
        if entry.serial != timer.serial.get() {
            return None;
        }
        Some(self.remove(timer.entry))
    }

    /// Calls `expired` with the key of each timer whose deadline is not after `now`, in the order of their
    /// ticks. Does at most `limit` steps, each of which expires a timer or moves one to a lower level; at least
    /// one. Returns whether there is more to do right away.
    pub(crate) fn expire(&mut self, now: Time, limit: usize, mut expired: impl FnMut(K)) -> bool {
        let target = now.as_nanos() / TICK;
        let mut steps = limit.max(1);
        while let Some((list, tick)) = self.next_list() {
            if tick > target {
                break;
            }
            if steps == 0 {
                return true;
            }
            self.current = tick;
            self.dealing = (list >= SLOTS).then_some(list);
            while steps > 0 && self.is_occupied(list) {
                let index = self.links[list].next - LISTS as u32;
                if list < SLOTS {
                    expired(self.remove(index));
                } else {
                    self.unlink(index);
                    self.place(index);
                }
                steps -= 1;
            }
        }
        // What is left lies in slots after the target, so that the levels of all timers stay as they are.
        self.current = self.current.max(target);
        false
    }

    /// A moment at which [`Wheel::expire`] has something to do, and before which it has not; `None` without
    /// timers. That is the earliest deadline rounded up to the tick, or an earlier moment at which timers far
    /// away move to a lower level: at most one for each level that a timer passes.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let (_, tick) = self.next_list()?;
        Some(Time::from_nanos(tick.saturating_mul(TICK)))
    }

    /// The list to look at next, and the tick at which its time comes.
    fn next_list(&self) -> Option<(usize, u64)> {
        if self.len() == 0 {
            return None;
        }
        if let Some(list) = self.dealing {
            return Some((list, self.current));
        }
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        let slot = self.occupied[level].trailing_zeros();
        let shift = SLOT_BITS * level as u32;
        let start_of_level = self.current >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        Some((
            level * SLOTS + slot as usize,
            start_of_level | (u64::from(slot) << shift),
        ))
    }

    fn is_occupied(&self, list: usize) -> bool {
        self.occupied[list / SLOTS] & (1 << (list % SLOTS)) != 0
    }

    /// Puts an entry at the end of the list where its tick belongs, seen from the current one.
    fn place(&mut self, index: u32) {
        let tick = self.entries[index as usize].tick;
        debug_assert!(tick >= self.current, "what waits is not over");
        let highest_difference = (tick ^ self.current).checked_ilog2().unwrap_or(0);
        let level = highest_difference / SLOT_BITS;
        let slot = (tick >> (level * SLOT_BITS)) as usize % SLOTS;
        let level = level as usize;
        self.occupied[level] |= 1 << slot;

        let end = level * SLOTS + slot;
        let link = LISTS + index as usize;
        let last = self.links[end].previous;
        self.links[link] = Link {
            previous: last,
            next: end as u32,
        };
        self.links[last as usize].next = link as u32;
        self.links[end].previous = link as u32;
    }

    fn unlink(&mut self, index: u32) {
        let Link { previous, next } = self.links[LISTS + index as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
        if previous == next {
            // Both neighbours are the end of the list, which is empty now.
            let list = next as usize;
            debug_assert!(list < LISTS);
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
            if self.dealing == Some(list) {
                self.dealing = None;
            }
        }
    }

    fn remove(&mut self, index: u32) -> K {
        self.unlink(index);
        let entry = &mut self.entries[index as usize];
        entry.serial = 0;
        let key = entry.key;
        self.free.push(index);
        key
    }
}

impl<K> fmt::Debug for Wheel<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.entries.len() - self.free.len();
        write!(f, "Wheel({waiting} of at most {} timers)", self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const HOUR: u64 = 3_600_000_000_000;

    fn at(milliseconds: u64) -> Time {
        Time::from_nanos(milliseconds * TICK)
    }

    fn expire_all(wheel: &mut Wheel<u64>, now: Time) -> Vec<u64> {
        let mut keys = Vec::new();
        while wheel.expire(now, usize::MAX, |key| keys.push(key)) {}
        keys
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Nanoseconds from now; negative is over already.
        Insert(i64),
        /// Which of all ids so far, stale ones included.
        Cancel(prop::sample::Index),
        /// Nanoseconds, and the limit.
        Advance(u64, usize),
        /// To the wheel's next deadline.
        AdvanceToDeadline,
    }

    fn nanoseconds() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..3 * TICK,
            0..200 * TICK,
            0..10_000 * TICK,
            0..HOUR,
            0..24 * 400 * HOUR,
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => nanoseconds().prop_map(|delay| Step::Insert(delay as i64)),
            1 => nanoseconds().prop_map(|delay| Step::Insert(-(delay as i64))),
            3 => any::<prop::sample::Index>().prop_map(Step::Cancel),
            2 => (nanoseconds(), prop_oneof![1..5usize, Just(usize::MAX)])
                .prop_map(|(duration, limit)| Step::Advance(duration, limit)),
            2 => Just(Step::AdvanceToDeadline),
        ]
    }

    /// Expires until nothing is due, and checks order and count against the model.
    fn check_expiry(
        wheel: &mut Wheel<u64>,
        model: &mut BTreeMap<u64, u64>,
        now: u64,
        limit: usize,
    ) -> Result<(), TestCaseError> {
        let mut keys = Vec::new();
        let mut rounds = 0;
        loop {
            let before = keys.len();
            let more = wheel.expire(Time::from_nanos(now), limit, |key| keys.push(key));
            prop_assert!(keys.len() - before <= limit);
            if !more {
                break;
            }
            rounds += 1;
            prop_assert!(rounds <= (model.len() + 1) * LEVELS, "each round does something");
            prop_assert!(wheel.next_deadline().unwrap().as_nanos() <= now);
        }
        let mut ticks = Vec::new();
        for key in keys {
            let deadline = model.remove(&key);
            prop_assert!(
                deadline.is_some(),
                "{} expired twice or after its cancellation",
                key
            );
            let deadline = deadline.unwrap();
            prop_assert!(deadline <= now, "expired early");
            ticks.push(deadline.div_ceil(TICK));
        }
        for deadline in model.values() {
            prop_assert!(deadline.div_ceil(TICK) * TICK > now, "not expired in time");
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        #[cfg_attr(miri, ignore = "takes too long")]
        fn behaves_like_a_sorted_map(
            start in prop_oneof![Just(0), any::<u32>().prop_map(u64::from), 0..1u64 << 62],
            steps in prop::collection::vec(step(), 1..120),
        ) {
            let mut wheel = Wheel::new(64).unwrap();
            let mut model = BTreeMap::new();
            let mut ids = Vec::new();
            let mut now = start;
            for (key, step) in steps.into_iter().enumerate() {
                let key = key as u64;
                match step {
                    Step::Insert(delay) => {
                        let deadline = now.saturating_add_signed(delay);
                        let id = wheel.insert(Time::from_nanos(now), Time::from_nanos(deadline), key);
                        prop_assert_eq!(id.is_some(), model.len() < 64);
                        if let Some(id) = id {
                            ids.push((id, key));
                            model.insert(key, deadline);
                        }
                    }
                    Step::Cancel(index) => {
                        if !ids.is_empty() {
                            let (id, key) = ids[index.index(ids.len())];
                            let expected = model.remove(&key).map(|_| key);
                            prop_assert_eq!(wheel.cancel(id), expected);
                        }
                    }
                    Step::Advance(duration, limit) => {
                        now += duration;
                        check_expiry(&mut wheel, &mut model, now, limit)?;
                    }
                    Step::AdvanceToDeadline => {
                        if let Some(deadline) = wheel.next_deadline() {
                            now = now.max(deadline.as_nanos());
                            check_expiry(&mut wheel, &mut model, now, usize::MAX)?;
                            let next = wheel.next_deadline();
                            prop_assert!(next.is_none_or(|next| next.as_nanos() > now), "a wake-up for nothing");
                        }
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                match (wheel.next_deadline(), model.values().min()) {
                    (None, None) => {}
                    (Some(next), Some(earliest)) => {
                        // What was over when it was inserted is due at the wheel's own tick.
                        let due = earliest.div_ceil(TICK).max(now / TICK) * TICK;
                        prop_assert!(next.as_nanos() <= due, "a wake-up too late");
                        // The wheel has done all it had to do until now.
                        prop_assert!(next.as_nanos() > now || due <= now, "a wake-up for nothing");
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }

        #[test]
        fn a_timer_costs_few_wake_ups_however_far(start in 0..1u64 << 62, delay in 0..1u64 << 61) {
            let mut wheel = Wheel::new(1).unwrap();
            let deadline = Time::from_nanos(start + delay);
            wheel.insert(Time::from_nanos(start), deadline, 7).unwrap();
            let mut wake_ups = 0;
            while let Some(next) = wheel.next_deadline() {
                let fired = expire_all(&mut wheel, next);
                prop_assert!(fired.is_empty() || next >= deadline);
                wake_ups += 1;
            }
            prop_assert!(wake_ups <= LEVELS, "{} wake-ups", wake_ups);
        }
    }

    #[test]
    fn a_timer_is_never_early() {
        let mut wheel = Wheel::new(8).unwrap();
        let start = at(1000);
        let deadline = start + Duration::from_nanos(1);
        wheel.insert(start, deadline, 1).unwrap();
        assert_eq!(wheel.next_deadline(), Some(at(1001)));
        assert!(expire_all(&mut wheel, Time::from_nanos(1001 * TICK - 1)).is_empty());
        assert_eq!(expire_all(&mut wheel, at(1001)), [1]);
        assert_eq!(wheel.next_deadline(), None);
    }

    #[test]
    fn timers_expire_in_the_order_of_their_ticks() {
        let mut wheel = Wheel::new(1024).unwrap();
        // A stride that is coprime to the count visits every delay once, across three levels.
        for index in 0..1000u64 {
            let delay = index * 617 % 1000 * 7;
            wheel.insert(at(5), at(5 + delay), delay).unwrap();
        }
        let keys = expire_all(&mut wheel, at(10_000));
        assert_eq!(keys.len(), 1000);
        assert!(keys.is_sorted());
    }

    #[test]
    fn a_limit_bounds_the_work_of_a_call() {
        let mut wheel = Wheel::new(100).unwrap();
        for key in 0..100 {
            wheel.insert(at(0), at(70_000), key).unwrap();
        }
        let mut keys = Vec::new();
        let mut calls = 0;
        while wheel.expire(at(70_000), 10, |key| keys.push(key)) {
            calls += 1;
            assert!(keys.len() <= calls * 10);
            assert!(wheel.next_deadline().unwrap() <= at(70_000));
        }
        assert!(keys.iter().copied().eq(0..100));
        // 70,000 is on the third level seen from 0: each timer moves at most twice.
        assert!((10..=30).contains(&(calls + 1)), "{calls} calls");
    }

    #[test]
    fn timers_can_be_cancelled_and_added_while_a_slot_is_dealt_out() {
        let mut wheel = Wheel::new(8).unwrap();
        let early = wheel.insert(at(0), at(4096), 1).unwrap();
        let late = wheel.insert(at(0), at(5000), 2).unwrap();
        assert!(wheel.expire(at(4096), 1, |_| panic!("only one was moved")));
        wheel.insert(at(4096), at(4000), 3).unwrap();
        assert_eq!(wheel.cancel(late), Some(2));
        assert_eq!(wheel.cancel(early), Some(1));
        assert_eq!(expire_all(&mut wheel, at(4096)), [3]);
        assert_eq!((wheel.len(), wheel.next_deadline()), (0, None));
    }

    #[test]
    fn a_slot_used_again_is_not_taken_for_one_that_is_dealt_out() {
        for cancelled_by_half in [false, true] {
            let mut wheel = Wheel::new(2).unwrap();
            let timer = wheel.insert(at(0), at(4100), 1).unwrap();
            let other = wheel.insert(at(0), at(4100), 2).unwrap();
            let more = wheel.expire(at(4096), if cancelled_by_half { 1 } else { 2 }, |_| ());
            assert_eq!(more, cancelled_by_half);
            assert_eq!((wheel.cancel(timer), wheel.cancel(other)), (Some(1), Some(2)));
            assert!(expire_all(&mut wheel, at(1 << 18)).is_empty());
            wheel.insert(at(1 << 18), at((1 << 18) + 4100), 3).unwrap();
            assert_eq!(wheel.next_deadline(), Some(at((1 << 18) + 4096)));
        }
    }

    #[test]
    fn a_full_wheel_refuses_and_no_memory_is_added() {
        let mut wheel = Wheel::new(2).unwrap();
        let capacity = |wheel: &Wheel<u64>| {
            (
                wheel.entries.capacity(),
                wheel.links.capacity(),
                wheel.free.capacity(),
            )
        };
        let reserved = capacity(&wheel);
        for round in 0..100 {
            let first = wheel.insert(at(0), at(round), 1).unwrap();
            wheel.insert(at(0), at(round), 2).unwrap();
            assert_eq!(wheel.insert(at(0), at(round), 3), None);
            assert_eq!(wheel.cancel(first), Some(1));
            assert_eq!(wheel.cancel(first), None, "an id is used up");
            assert_eq!(expire_all(&mut wheel, at(round)), [2]);
        }
        assert_eq!(capacity(&wheel), reserved);
    }

    #[test]
    fn the_ends_of_the_clock() {
        let mut wheel = Wheel::new(2).unwrap();
        wheel.insert(at(0), Time::from_nanos(u64::MAX), 1).unwrap();
        assert!(wheel.next_deadline().is_some());
        assert!(expire_all(&mut wheel, Time::from_nanos(u64::MAX)).is_empty());
        assert_eq!(wheel.len(), 1);
        // A clock that goes back takes nothing back.
        wheel.insert(at(0), at(0), 2).unwrap();
        assert!(expire_all(&mut wheel, at(0)).is_empty());
        assert_eq!(expire_all(&mut wheel, Time::from_nanos(u64::MAX)), [2]);
    }
}
