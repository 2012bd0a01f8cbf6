//! What threads meet in: the atomics, the queue and the eventfd of the parts that other threads reach
//! ([`crate::remote`], [`crate::wake`], [`crate::pool`]).
//!
//! Compiled with `--cfg quoit_loom`, these are doubles under which loom tries every order in which threads can meet, and
//! every value that the memory model lets a load see (`make loom`). In every other build they are the real ones.

#[cfg(not(all(test, quoit_loom)))]
mod eventfd;

#[cfg(not(all(test, quoit_loom)))]
mod real {
    pub(crate) use super::eventfd::Eventfd;
    pub(crate) use crossbeam_queue::ArrayQueue;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
    pub(crate) use std::thread::yield_now;
}
#[cfg(not(all(test, quoit_loom)))]
pub(crate) use real::*;

#[cfg(all(test, quoit_loom))]
mod double;
#[cfg(all(test, quoit_loom))]
pub(crate) use double::*;

#[cfg(quoit_loom)]
#[cfg(test)]
mod tests;

pub(crate) use std::sync::atomic::Ordering;
