//! The bytes that streams carry: known at every offset, different on every stream.

use std::sync::LazyLock;

use crate::random::Random;

/// A prime, so that no power of two is a multiple of it: data that is shifted or repeated by a buffer's length never
/// looks right.
const PERIOD: usize = 8191;
/// The longest piece that can be asked for.
pub const LONGEST: usize = 64 * 1024;

static TABLE: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut random = Random::new(0, 0);
    let once: Vec<u8> = (0..PERIOD).map(|_| random.bits() as u8).collect();
    once.iter().copied().cycle().take(PERIOD + LONGEST).collect()
});

/// The `length` bytes (at most [`LONGEST`]) of a stream from `offset` on.
#[must_use]
pub fn bytes(stream: u64, offset: u64, length: usize) -> &'static [u8] {
    let start = ((stream.wrapping_mul(2_654_435_761) + offset) % PERIOD as u64) as usize;
    &TABLE[start..start + length]
}

/// Checks that `bytes` are those of a stream from `offset` on; returns the first offset that differs.
#[must_use]
pub fn first_difference(stream: u64, offset: u64, bytes_seen: &[u8]) -> Option<u64> {
    let mut at = offset;
    for piece in bytes_seen.chunks(LONGEST) {
        let expected = bytes(stream, at, piece.len());
        if piece != expected {
            let index = piece
                .iter()
                .zip(expected)
                .position(|(seen, expected)| seen != expected);
            return Some(at + index.unwrap_or_default() as u64);
        }
        at += piece.len() as u64;
    }
    None
}
