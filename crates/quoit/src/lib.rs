//! Completion-based network transport for Linux.

pub mod address;
pub mod engine;
mod errno;
pub mod host;
pub mod id;
pub mod listen;
pub mod pool;
pub mod sys;
mod timers;
mod wake;

pub use errno::Errno;
