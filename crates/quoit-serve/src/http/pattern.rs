//! The content of `/bytes/N`: the byte at position p is p mod 251.
//!
//! 251 is prime, so the content never repeats in step with a page, a buffer slot or a segment: bytes that
//! are lost, doubled or swapped show at the first position that is wrong.

const PERIOD: usize = 251;

/// Whole periods written in one copy.
const PERIODS: usize = 64;

/// One period more than a copy takes, so that a copy may begin anywhere within the first.
static CONTENT: [u8; PERIOD * (PERIODS + 1)] = content();

const fn content() -> [u8; PERIOD * (PERIODS + 1)] {
    let mut bytes = [0; PERIOD * (PERIODS + 1)];
    let mut position = 0;
    while position < bytes.len() {
        bytes[position] = (position % PERIOD) as u8;
        position += 1;
    }
    bytes
}

/// Appends `count` bytes of the content that begin at `position`.
pub(super) fn append(output: &mut Vec<u8>, position: u64, count: usize) {
    // `count` is a multiple of the period in all copies but the last, so the phase stays the same.
    let phase = (position % PERIOD as u64) as usize;
    let mut left = count;
    while left > 0 {
        let now = left.min(PERIOD * PERIODS);
        output.extend_from_slice(&CONTENT[phase..phase + now]);
        left -= now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_depends_on_the_position_alone() {
        for (position, count) in [(0, 1), (250, 3), (7, 251 * 64 * 2 + 19), (u64::MAX / 2 - 5, 300)] {
            let mut output = Vec::new();
            append(&mut output, position, count);
            assert_eq!(output.len(), count);
            for (offset, byte) in output.iter().enumerate() {
                assert_eq!(u64::from(*byte), (position + offset as u64) % 251);
            }
        }
    }
}
