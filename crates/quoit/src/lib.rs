//! Completion-based network transport for Linux.

pub mod address;
mod affinity;
pub mod engine;
mod errno;
pub mod host;
pub mod id;
pub mod listen;
pub mod pool;
pub mod sys;
mod timers;
mod wake;

pub use affinity::{available_cpus, pin_current_thread};
pub use errno::Errno;
