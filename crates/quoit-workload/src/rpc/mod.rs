//! The wire format of the RPC workload, which `quoit serve rpc` and `quoit load rpc` speak: multiplexed streams of
//! messages over one connection, with credit. `docs/rpc.md` is its description for other implementations.
//!
//! Pure logic: [`frame`] says what a frame carries and writes it, [`decoder`] takes frames from a byte stream that
//! may be cut anywhere, [`content`] makes and checks what messages carry.

pub mod content;
pub mod decoder;
pub mod frame;

/// Bytes of a frame before its payload: length, stream id, kind.
pub const FRAME_HEADER: usize = 9;

/// What the length field may say at most: 16 MiB. It counts what follows it: stream id, kind and payload.
pub const MAX_FRAME: u32 = 16 * 1024 * 1024;

/// What the length field says of a frame without payload.
pub const MIN_FRAME: u32 = 5;

/// Bytes of the smallest message: the header of its content.
pub const MIN_MESSAGE: u32 = 24;

/// Bytes of the largest message: what a frame has room for.
pub const MAX_MESSAGE: u32 = MAX_FRAME - MIN_FRAME;

/// Shortest time between two batches of a paced stream, in nanoseconds: 1 ms, what servers' timers can keep.
pub const MIN_PERIOD: u64 = 1_000_000;

/// Bytes of an error's text at most.
pub const MAX_ERROR_TEXT: usize = 256;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

#[cfg(test)]
mod properties;
