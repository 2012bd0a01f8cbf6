//! Completion-based network transport for Linux.

pub mod address;
pub mod engine;
mod errno;
pub mod features;
pub mod id;
pub mod pool;
pub mod sys;
mod wake;

pub use errno::Errno;
