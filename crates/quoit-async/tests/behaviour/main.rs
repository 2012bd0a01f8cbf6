//! What has to hold whatever a program does with the sockets: futures dropped anywhere, sockets that outlive their loop,
//! streams that nobody reads, tasks that never rest.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod accepting;
mod cancelling;
mod connecting;
mod fairness;
mod lifetimes;
mod panics;
mod pressure;
mod streams;
#[path = "../support/mod.rs"]
mod support;
