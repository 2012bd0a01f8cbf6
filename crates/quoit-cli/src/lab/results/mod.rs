//! The results of a run.

pub(crate) mod model;
