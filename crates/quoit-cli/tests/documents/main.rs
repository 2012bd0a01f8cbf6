//! The documents of the repository: every link in them leads somewhere.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

mod links;
mod tree;
