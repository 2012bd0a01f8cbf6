//! The epoll engine.

pub mod sys;
