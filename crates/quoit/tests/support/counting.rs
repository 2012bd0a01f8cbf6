//! An allocator that counts what each thread allocates.
#![allow(dead_code, reason = "no test uses all of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one thread has allocated so far.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Allocated {
    /// Allocations, and changes of size.
    pub(crate) count: u64,
    /// Bytes allocated less bytes freed.
    pub(crate) live: i64,
}

thread_local! {
    // Made without an allocation, and never torn down.
    static ALLOCATED: Cell<Allocated> = const { Cell::new(Allocated { count: 0, live: 0 }) };
}

static EVERYWHERE: AtomicU64 = AtomicU64::new(0);

/// Allocations of all threads, and changes of size.
pub(crate) fn everywhere() -> u64 {
    EVERYWHERE.load(Ordering::Relaxed)
}

/// That of the calling thread.
pub(crate) fn allocated() -> Allocated {
    ALLOCATED.get()
}

fn note(count: u64, bytes: i64) {
    EVERYWHERE.fetch_add(count, Ordering::Relaxed);
    let before = ALLOCATED.get();
    ALLOCATED.set(Allocated {
        count: before.count + count,
        live: before.live + bytes,
    });
}

/// The system's allocator, counted.
pub(crate) struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
