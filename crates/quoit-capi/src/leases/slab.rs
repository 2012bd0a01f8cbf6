//! Leases of datagram sockets by number. Each socket has a pool of its own, so a slot names no lease; the entries lie in
//! a slab of the loop's instead, which grows to the most that were ever held at once.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quoit::{Datagrams, Lease};

use super::view::view_of;
use super::{FREE, HELD, PHASE_BITS, PHASE_MASK, TAKING};
use crate::types;

/// Set in every number of this kind, and in none of the other.
pub(super) const MARK: u64 = 1 << 63;
/// The entry in the lower bits of a number; then the generation.
const INDEX_BITS: u32 = 26;
const GENERATIONS: u64 = 1 << (63 - INDEX_BITS);

/// Entries of the first bucket; each further one has twice as many.
const FIRST: u32 = 64;
/// So many that all their entries can be numbered.
const BUCKETS: usize = 20;

/// No entry.
const END: u32 = u32::MAX;

struct Entry {
    state: AtomicU64,
    /// While the entry is free: the next free one of its list.
    next: AtomicU32,
    /// What C is shown of the datagrams. Written with the lease, and read by C as long as that is held.
    view: UnsafeCell<types::Datagrams>,
    /// Initialised while the phase is `HELD`, and during `TAKING` until the one who set that has moved it out.
    lease: UnsafeCell<MaybeUninit<Lease>>,
}

/// Leases in C's hands. Entries that are given back, by any thread, gather on one list; the loop takes all of them at
/// once when its own list is used up, so that no entry can come and go under a pop.
pub(super) struct Slab {
    buckets: [OnceLock<Box<[Entry]>>; BUCKETS],
    /// The loop's own list of free entries.
    spare: AtomicU32,
    /// Those that were given back.
    returned: AtomicU32,
}

// SAFETY: what is in an entry is reached only by the loop's thread while the entry is free, and else by the thread that
// moved its phase from HELD to TAKING (the exchange lets one through); acquire and release order the accesses. C reads
// views while it holds their leases, when nobody writes them.
unsafe impl Sync for Slab {}
// SAFETY: leases may be dropped on any thread, and the pointers of the views are of their memory.
unsafe impl Send for Slab {}

/// The bucket of an entry and its place there.
const fn place(index: u32) -> (usize, usize) {
    let bucket = (index / FIRST + 1).ilog2();
    (bucket as usize, (index - first_of(bucket)) as usize)
}

/// The index of a bucket's first entry.
const fn first_of(bucket: u32) -> u32 {
    ((1 << bucket) - 1) * FIRST
}

impl Slab {
    pub(super) fn new() -> Self {
        Self {
            buckets: [const { OnceLock::new() }; BUCKETS],
            spare: AtomicU32::new(END),
            returned: AtomicU32::new(END),
        }
    }

    fn entry(&self, index: u32) -> Option<&Entry> {
        let (bucket, place) = place(index);
        self.buckets.get(bucket)?.get()?.get(place)
    }

    /// The entry of an index that came from here.
    fn known(&self, index: u32) -> &Entry {
        self.entry(index).expect("entries stay where they were made")
    }

    /// Keeps datagrams, and gives their number and what C is shown of them. One call at a time: the loop's.
    pub(super) fn put(&self, datagrams: Datagrams) -> (u64, *const types::Datagrams) {
        let index = self.free_entry();
        let entry = self.known(index);
        let state = entry.state.load(Ordering::Acquire);
        assert_eq!(state & PHASE_MASK, FREE, "the lists hold free entries only");
        let generation = ((state >> PHASE_BITS) + 1) % GENERATIONS;
        let view = entry.view.get();
        // SAFETY: the entry is free, so only this thread reaches it, and no C holds what would let it read the view.
        unsafe {
            *view = view_of(&datagrams);
            (*entry.lease.get()).write(datagrams.into_lease());
        }
        entry
            .state
            .store(generation << PHASE_BITS | HELD, Ordering::Release);
        (MARK | generation << INDEX_BITS | u64::from(index), view)
    }

    fn free_entry(&self) -> u32 {
        let mut index = self.spare.load(Ordering::Relaxed);
        if index == END {
            index = self.returned.swap(END, Ordering::Acquire);
        }
        if index == END {
            index = self.grow();
        }
        let next = self.known(index).next.load(Ordering::Relaxed);
        self.spare.store(next, Ordering::Relaxed);
        index
    }

    /// Makes the next bucket, and returns its first entry, from which the others are linked.
    #[cold]
    fn grow(&self) -> u32 {
        let bucket = self
            .buckets
            .iter()
            .position(|bucket| bucket.get().is_none())
            .expect("memory ends before the numbers do");
        let first = first_of(bucket as u32);
        let count = FIRST << bucket;
        let entry = |place: u32| Entry {
            state: AtomicU64::new(FREE),
            next: AtomicU32::new(if place + 1 < count { first + place + 1 } else { END }),
            view: UnsafeCell::new(crate::memory::zeroes()),
            lease: UnsafeCell::new(MaybeUninit::uninit()),
        };
        let made = self.buckets[bucket].set((0..count).map(entry).collect());
        assert!(made.is_ok(), "only the loop's thread makes buckets");
        first
    }

    /// Moves a lease out. `None` if the number names none (any more).
    pub(super) fn take(&self, number: u64) -> Option<Lease> {
        let index = number as u32 & ((1 << INDEX_BITS) - 1);
        let entry = self.entry(index)?;
        let generation = (number & !MARK) >> INDEX_BITS;
        let held = generation << PHASE_BITS | HELD;
        let taking = generation << PHASE_BITS | TAKING;
        entry
            .state
            .compare_exchange(held, taking, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // SAFETY: the entry was HELD, so the lease is there, and the exchange let nobody else through.
        let lease = unsafe { (*entry.lease.get()).assume_init_read() };
        entry
            .state
            .store(generation << PHASE_BITS | FREE, Ordering::Release);
        self.give_entry_back(index, entry);
        Some(lease)
    }

    fn give_entry_back(&self, index: u32, entry: &Entry) {
        let mut top = self.returned.load(Ordering::Relaxed);
        loop {
            entry.next.store(top, Ordering::Relaxed);
            match self
                .returned
                .compare_exchange_weak(top, index, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        for entry in self.buckets.iter_mut().filter_map(OnceLock::get_mut).flatten() {
            if *entry.state.get_mut() & PHASE_MASK == HELD {
                // SAFETY: HELD, and nobody else is left.
                unsafe { entry.lease.get_mut().assume_init_drop() };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::UdpSocket;
    use std::sync::Mutex;
    use std::time::Duration;

    use quoit::{Config, DatagramOptions, EngineChoice, EngineKind, Event, Events, Loop, LoopIndex, Token};

    use super::*;

    /// Datagrams of a socket that has gone.
    fn received(count: usize) -> Vec<Datagrams> {
        let config = Config {
            engine: EngineChoice::Require(EngineKind::Epoll),
            ..Config::default()
        };
        let mut quoit = Loop::new(LoopIndex::default(), config).unwrap();
        let options = DatagramOptions {
            max_datagram: 64,
            slots: count as u32,
            ..DatagramOptions::default()
        };
        let socket = quoit
            .bind_datagram(&"127.0.0.1:0".parse().unwrap(), &options, Token::NONE)
            .unwrap();
        let Some(&quoit::Address::Tcp(address)) = quoit.datagram_address(socket) else {
            panic!("it is bound to an IP address");
        };
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut events = Events::with_capacity(16);
        let mut all = Vec::new();
        for number in 0..count {
            client.send_to(&[number as u8; 5], address).unwrap();
            while all.len() <= number {
                quoit
                    .turn([], &mut events, Some(Duration::from_secs(10)))
                    .unwrap();
                all.extend(events.drain().filter_map(|event| match event {
                    Event::Datagrams { datagrams, .. } => Some(datagrams),
                    _ => None,
                }));
            }
        }
        all
    }

    #[test]
    fn every_index_has_its_place() {
        let mut last = (0, 0);
        for index in 1..100_000 {
            let here = place(index);
            assert!(here == (last.0, last.1 + 1) || here == (last.0 + 1, 0), "{index}");
            last = here;
        }
        assert_eq!(place(FIRST - 1), (0, FIRST as usize - 1));
        assert_eq!(place(first_of(BUCKETS as u32) - 1).0, BUCKETS - 1);
        assert!(first_of(BUCKETS as u32) <= 1 << INDEX_BITS);
    }

    #[test]
    fn a_number_is_good_once() {
        let slab = Slab::new();
        let mut two = received(2);
        let (number, view) = slab.put(two.remove(0));
        assert_ne!(number & MARK, 0);
        // SAFETY: the lease is held.
        let (length, count) = unsafe { ((*view).length, (*view).count) };
        assert_eq!((length, count), (5, 1));
        for wrong in [MARK, number + 1, number + (1 << INDEX_BITS), u64::MAX] {
            assert!(slab.take(wrong).is_none());
        }
        let lease = slab.take(number).unwrap();
        assert!(!lease.is_empty() && lease.iter().all(|&byte| byte == 0));
        assert!(slab.take(number).is_none());
        // The entry is used again, under another number.
        let numbers: HashSet<u64> = received(FIRST as usize)
            .into_iter()
            .map(|datagrams| slab.put(datagrams).0)
            .collect();
        assert_eq!(numbers.len(), FIRST as usize);
        assert!(!numbers.contains(&number));
        assert!(
            slab.buckets[1].get().is_none(),
            "the first bucket had room for all"
        );
    }

    #[test]
    fn leases_go_round_among_threads() {
        const ROUNDS: usize = 20;
        let slab = Slab::new();
        let numbers = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut returned = 0;
                    while returned < ROUNDS * 10 {
                        let number = numbers.lock().unwrap().pop();
                        match number {
                            Some(number) => {
                                drop(slab.take(number).unwrap());
                                returned += 1;
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
            for _ in 0..ROUNDS {
                for datagrams in received(30) {
                    let (number, _) = slab.put(datagrams);
                    numbers.lock().unwrap().push(number);
                }
            }
        });
        // Each round has at most 30 at once, but all rounds may wait for the threads.
        let made = slab
            .buckets
            .iter()
            .filter(|bucket| bucket.get().is_some())
            .count();
        assert!((1..=4).contains(&made), "{made} buckets");
    }
}
