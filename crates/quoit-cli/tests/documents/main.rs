//! The documents of the repository: every link in them leads somewhere, every target that they name is there, and what is said of
//! io_uring is what the engine does.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

mod links;
mod targets;
mod tree;
mod uring;
