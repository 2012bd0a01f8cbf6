//! Leases by number: an event hands out a number, and whoever has it may return the lease once, from any thread. A
//! number that is used twice, or was never given, is an error and nothing worse.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use quoit::{Datagrams, Errno, Lease};

use crate::types;

mod slab;
mod view;

use slab::{MARK, Slab};

/// What an entry holds, in the lower two bits of its state; the rest is the generation.
const FREE: u64 = 0;
const HELD: u64 = 1;
/// Somebody moves the lease out.
const TAKING: u64 = 2;
const PHASE_MASK: u64 = 3;

const PHASE_BITS: u32 = 2;
/// The lease's own number in the lower bits of the one that C has; the rest is the generation.
const NUMBER_BITS: u32 = 16;
const _: () = assert!(quoit::MAX_LEASES == 1 << NUMBER_BITS);
/// Entries of a block.
const BLOCK: usize = 1024;

struct Entry {
    state: AtomicU64,
    /// Initialised while the phase is `HELD`, and during `TAKING` for the one who set that.
    lease: UnsafeCell<MaybeUninit<Lease>>,
}

impl Entry {
    const fn free() -> Self {
        Self {
            state: AtomicU64::new(FREE),
            lease: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

/// The leases of one loop that are in C's hands. Those of connections: one entry for each number that a lease can have, as
/// no two have the same, in blocks that are made when they are first needed. Those of datagram sockets: in a slab.
pub(crate) struct Leases {
    blocks: [OnceLock<Box<[Entry]>>; quoit::MAX_LEASES as usize / BLOCK],
    datagrams: Slab,
}

// SAFETY: the lease in an entry is reached only by the thread that moved the entry's phase from FREE (there is one at
// a time, see `put`) or from HELD to TAKING (the exchange lets one through); acquire and release order the accesses.
unsafe impl Sync for Leases {}
// SAFETY: leases may be dropped on any thread.
unsafe impl Send for Leases {}

impl Leases {
    /// Room for a pool of `slots` slots; for more leases, that have their bytes to themselves, it is made when they come.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(slots: u32) -> Result<Self, Errno> {
        let leases = Self {
            blocks: [const { OnceLock::new() }; quoit::MAX_LEASES as usize / BLOCK],
            datagrams: Slab::new(),
        };
        for number in (0..slots as usize).step_by(BLOCK) {
            let mut entries = Vec::new();
            entries.try_reserve_exact(BLOCK).map_err(|_| Errno::ENOMEM)?;
            entries.resize_with(BLOCK, Entry::free);
            leases.blocks[number / BLOCK].get_or_init(|| entries.into());
        }
        Ok(leases)
    }

    fn entry(&self, number: usize) -> &Entry {
        let block = self.blocks[number / BLOCK]
            .get_or_init(|| std::iter::repeat_with(Entry::free).take(BLOCK).collect());
        &block[number % BLOCK]
    }

    /// Keeps datagrams, and gives their number, never 0, and what C is shown of them as long as the number names them.
    /// One call at a time: the loop's.
    pub(crate) fn put_datagrams(&self, datagrams: Datagrams) -> (u64, *const types::Datagrams) {
        self.datagrams.put(datagrams)
    }

    /// Keeps a lease, and gives its number; never 0. One call at a time: the loop's.
    pub(crate) fn put(&self, lease: Lease) -> u64 {
        let number = lease.number();
        let entry = self.entry(number);
        let state = entry.state.load(Ordering::Acquire);
        // The number was given again, so its last lease was dropped, which is after it was moved out of here.
        assert_eq!(state & PHASE_MASK, FREE, "a number is one lease's at a time");
        let generation = (state >> PHASE_BITS) + 1;
        // SAFETY: nobody else reaches the lease of a free entry.
        unsafe { (*entry.lease.get()).write(lease) };
        entry
            .state
            .store(generation << PHASE_BITS | HELD, Ordering::Release);
        generation << NUMBER_BITS | number as u64
    }

    /// Moves a lease out; `None` if the number names none (any more).
    pub(crate) fn take(&self, number: u64) -> Option<Lease> {
        if number & MARK != 0 {
            return self.datagrams.take(number);
        }
        let index = (number & ((1 << NUMBER_BITS) - 1)) as usize;
        let entry = &self.blocks[index / BLOCK].get()?[index % BLOCK];
        let generation = number >> NUMBER_BITS;
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
        Some(lease)
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        for entry in self.blocks.iter_mut().filter_map(OnceLock::get_mut).flatten() {
            if *entry.state.get_mut() & PHASE_MASK == HELD {
                // SAFETY: HELD, and nobody else is left.
                unsafe { entry.lease.get_mut().assume_init_drop() };
            }
        }
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.blocks.iter().filter(|block| block.get().is_some());
        write!(f, "Leases(room for {})", blocks.count() * BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use quoit::{Config, EngineChoice, EngineKind, Event, Events, ListenerOptions, Loop, LoopIndex};

    use super::*;

    /// Leases of a loop that has gone: as many as there were pieces sent.
    fn received(count: usize) -> Vec<Lease> {
        let config = Config {
            engine: EngineChoice::Require(EngineKind::Epoll),
            receive_slot_size: 64,
            ..Config::default()
        };
        let mut quoit = Loop::new(LoopIndex::default(), config).unwrap();
        let listener = quoit
            .listen(&"127.0.0.1:0".parse().unwrap(), &ListenerOptions::default())
            .unwrap();
        let Some(quoit::Address::Tcp(address)) = quoit.listener_address(listener) else {
            panic!("it listens on TCP");
        };
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(&vec![5; count * 64]).unwrap();
        let mut events = Events::with_capacity(16);
        let mut leases = Vec::new();
        while leases.len() < count {
            quoit
                .turn([], &mut events, Some(Duration::from_secs(10)))
                .unwrap();
            for event in events.drain() {
                if let Event::Data { data, .. } = event {
                    leases.push(data);
                }
            }
        }
        leases
    }

    #[test]
    fn a_number_is_good_once() {
        let leases = Leases::new(1024).unwrap();
        let number = leases.put(received(1).pop().unwrap());
        assert_ne!(number, 0);
        for wrong in [0, 1, number + 1, number + (1 << NUMBER_BITS), u64::MAX] {
            assert!(leases.take(wrong).is_none());
        }
        let lease = leases.take(number).unwrap();
        assert!(!lease.is_empty() && lease.iter().all(|&byte| byte == 5));
        assert!(leases.take(number).is_none());
    }

    #[test]
    fn of_many_threads_one_gets_the_lease() {
        let leases = Arc::new(Leases::new(1024).unwrap());
        let numbers: Vec<_> = received(40).into_iter().map(|lease| leases.put(lease)).collect();
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for &number in &numbers {
                        taken.fetch_add(usize::from(leases.take(number).is_some()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 40);
    }
}
