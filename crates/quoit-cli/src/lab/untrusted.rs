//! What the lab reads of files. See [`crate::untrusted`].

pub use super::compare::untrusted::results;
pub use super::experiment::untrusted::experiment;
