//! Which kernels Quoit is tried on, what is tried, and what came of it.
//!
//! `quoit-kernels` (host) fetches kernels, builds what is run, and boots each kernel in a virtual machine, whose first
//! process is `quoit-kernels-guest`. The guest runs the checks and writes [`message`]s to its second serial port.

pub mod list;
pub mod message;
pub mod page;
pub mod results;
