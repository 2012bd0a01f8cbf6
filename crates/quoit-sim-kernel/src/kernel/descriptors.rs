//! The descriptors of the simulated process.
//!
//! The core holds descriptors as `OwnedFd`, and closes them by dropping. So that the simulated kernel learns of that
//! at the very moment, and no system call is made for it, this file defines the C library's functions by which the
//! standard library and the core close and inspect descriptors, and make and write eventfds. Symbols of the program
//! come before those of libraries. Numbers from [`FIRST`] on are simulated; all others go to the real kernel.
//!
//! A simulated descriptor is free for others at once, and the lowest free number is used first, as in Linux.

use libc::{c_int, c_long, c_uint, c_void, size_t, ssize_t};

use super::object::{Kind, ObjectId, events};
use super::{Kernel, with_any};

/// The first simulated descriptor: above whatever the real kernel gives (`fs.nr_open` is 2^20 by default, and at most
/// 2^31 less a few).
pub(crate) const FIRST: c_int = 0x4000_0000;

/// The descriptor table.
pub(crate) struct Table {
    entries: Vec<Option<ObjectId>>,
    used: usize,
    limit: usize,
    /// Times that a descriptor was given that had been another's.
    pub(super) reused: u64,
    /// Times that one was closed.
    pub(super) closed: u64,
}

impl Table {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            entries: Vec::new(),
            used: 0,
            limit,
            reused: 0,
            closed: 0,
        }
    }

    fn index(descriptor: c_int) -> Option<usize> {
        usize::try_from(descriptor.checked_sub(FIRST)?).ok()
    }

    pub(crate) fn get(&self, descriptor: c_int) -> Option<ObjectId> {
        *self.entries.get(Self::index(descriptor)?)?
    }

    /// Whether another descriptor would be refused.
    pub(super) fn is_full(&self) -> bool {
        self.used() >= self.limit
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn insert(&mut self, object: ObjectId) -> c_int {
        let free = self.entries.iter().position(Option::is_none);
        self.reused += u64::from(free.is_some());
        let index = free.unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[index] = Some(object);
        self.used += 1;
        FIRST + index as c_int
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (c_int, ObjectId)> {
        let named = |(index, object): (usize, &Option<ObjectId>)| Some((FIRST + index as c_int, (*object)?));
        self.entries.iter().enumerate().filter_map(named)
    }
}

impl Kernel {
    /// From now on the program may have so many descriptors more than it has.
    pub fn set_descriptor_room(&mut self, room: usize) {
        self.table.limit = self.table.used() + room;
    }

    /// A descriptor for an object, whose reference it takes over; or `EMFILE`, which releases the object.
    pub(crate) fn open(&mut self, object: ObjectId) -> Result<c_int, c_int> {
        if self.table.is_full() {
            self.release(object);
            return Err(libc::EMFILE);
        }
        Ok(self.table.insert(object))
    }

    /// `close(2)`. Of one that is not open it is a fault: closed twice, it may be somebody else's the next time.
    pub(crate) fn close(&mut self, descriptor: c_int) {
        let entry = Table::index(descriptor).and_then(|index| self.table.entries.get_mut(index));
        let object = entry.and_then(Option::take);
        let Some(object) = object else {
            return self.fail(|| format!("descriptor {} is closed, and is not open", descriptor - FIRST));
        };
        self.table.used -= 1;
        self.table.closed += 1;
        self.note(|| format!("close {}", descriptor - FIRST));
        self.release(object);
    }

    /// `eventfd(2)`.
    pub(crate) fn counter(&mut self) -> c_int {
        let counter = self.add_object(Kind::Counter(0));
        // Made with the loop, before there is anything to run out of.
        self.table.insert(counter)
    }

    fn write_counter(&mut self, descriptor: c_int) {
        let Some(object) = self.table.get(descriptor) else {
            return self.fail(|| format!("descriptor {} is written to, and is not open", descriptor - FIRST));
        };
        if let Kind::Counter(count) = &mut self.object(object).kind {
            *count += 1;
        }
        self.note(|| "the wake's eventfd is written".to_owned());
        self.wake(object, events::IN);
    }
}

/// Whether the closing thread unwinds: then the run has failed, and what its destructors do is of no interest.
fn is_failing() -> bool {
    std::thread::panicking()
}

/// `close(2)`.
#[unsafe(no_mangle)]
extern "C" fn close(descriptor: c_int) -> c_int {
    if descriptor < FIRST {
        // SAFETY: the real call, with the caller's argument.
        return unsafe { libc::syscall(libc::SYS_close, descriptor) } as c_int;
    }
    if !is_failing() {
        // Without a kernel the run is over.
        let _ = with_any(|kernel| kernel.close(descriptor));
    }
    0
}

/// `fcntl(2)`. The standard library asks it whether a descriptor that it closes is open.
#[unsafe(no_mangle)]
extern "C" fn fcntl(descriptor: c_int, command: c_int, argument: c_long) -> c_int {
    if descriptor < FIRST {
        // SAFETY: the real call, with the caller's arguments. All its commands take one argument of a register's
        // size, or none.
        return unsafe { libc::syscall(libc::SYS_fcntl, descriptor, command, argument) } as c_int;
    }
    0
}

/// `eventfd(2)`.
#[unsafe(no_mangle)]
extern "C" fn eventfd(initial: c_uint, flags: c_int) -> c_int {
    with_any(Kernel::counter).unwrap_or_else(|| {
        // SAFETY: the real call, which takes no pointers.
        unsafe { libc::syscall(libc::SYS_eventfd2, initial, flags) as c_int }
    })
}

/// `write(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(descriptor: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    if descriptor < FIRST {
        // SAFETY: the real call, with the caller's arguments.
        return unsafe { libc::syscall(libc::SYS_write, descriptor, bytes, length) } as ssize_t;
    }
    // Without a kernel the run is over.
    let _ = with_any(|kernel| kernel.write_counter(descriptor));
    length as ssize_t
}
