//! What a program sees of a socket, on `tokio::net` first, then on ours: both engines, one loop per thread and loops beside a
//! runtime. What differs and stays is in DIFFERS.md, and pinned in `differs`.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod addresses;
mod differs;
mod ends;
mod io;
mod readiness;
mod sockets;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod udp;
mod udp_options;
mod unix;
