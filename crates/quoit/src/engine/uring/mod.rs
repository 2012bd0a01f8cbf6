//! The io_uring engine.

pub mod sys;
