//! What every part of the program needs of the process and the machine that it runs on: standard streams, the clock,
//! the limit on descriptors, local ports, programs that it starts, and one way to tell wrong usage.
//!
//! It is the lowest of the program's crates and knows none of the others. What only one of them needs is kept there.

mod clock;
pub mod console;
mod descriptors;
pub mod ports;
pub mod programs;
pub mod usage;

pub use clock::{monotonic_nanoseconds, monotonic_now};
pub use descriptors::DescriptorLimit;
