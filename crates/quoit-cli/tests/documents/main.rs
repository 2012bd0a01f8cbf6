//! The documents of the repository: every link in them leads somewhere, and every target that they name is there.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

mod links;
mod targets;
mod tree;
