//! The servers behind `quoit serve`.

pub(crate) mod http;
