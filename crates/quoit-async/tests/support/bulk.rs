//! Much data, and many connections: as much as the environment asks for (`make doors-rust`), and little without.
#![allow(dead_code, reason = "no file of tests uses all of it")]

use std::sync::LazyLock;
use std::time::Duration;

/// A number of the environment.
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
    )
}

/// Whether a test may take long.
fn is_long() -> bool {
    asked("QUOIT_TEST_BYTES").is_some() || asked("QUOIT_TEST_CONNECTIONS").is_some()
}

/// What takes longer hangs, also in an emulated machine on a busy one; with more than the usual to do, much longer.
pub(crate) fn patience() -> Duration {
    Duration::from_secs(if is_long() { 1200 } else { 240 })
}

/// Bytes of one transfer.
pub(crate) fn bytes() -> u64 {
    asked("QUOIT_TEST_BYTES").unwrap_or(8_000_000)
}

/// Connections that come and go.
pub(crate) fn connections() -> u64 {
    asked("QUOIT_TEST_CONNECTIONS").unwrap_or(2000)
}

/// Bytes that tell where they are, made and checked piece by piece.
#[derive(Default)]
pub(crate) struct Pattern {
    at: u64,
}

/// Without a common divisor with the lengths of buffers.
const PERIOD: usize = 65_521;

/// Two periods, so that any part of one stands in a row.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let period = (0..PERIOD).map(|at| (at % 251) as u8);
    period.clone().chain(period).collect()
});

impl Pattern {
    /// The bytes from here on, at least a period of them.
    fn rest(&self) -> &'static [u8] {
        &BYTES[(self.at % PERIOD as u64) as usize..]
    }

    /// The next bytes: at most so many, and at most what is left up to `total`.
    pub(crate) fn next(&mut self, most: usize, total: u64) -> &'static [u8] {
        let count = (total - self.at).min(most.min(PERIOD) as u64);
        let next = &self.rest()[..count as usize];
        self.at += count;
        next
    }

    /// These are the next bytes.
    pub(crate) fn check(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PERIOD) {
            assert!(
                *piece == self.rest()[..piece.len()],
                "wrong behind byte {}",
                self.at
            );
            self.at += piece.len() as u64;
        }
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.at
    }
}
