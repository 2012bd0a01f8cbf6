//! The ways in which bytes may arrive.

/// A few ways to cut `bytes` into pieces: not at all, into single bytes, and by lengths drawn from their checksum,
/// so that the same bytes are always cut alike.
#[must_use]
pub fn cuttings(bytes: &[u8]) -> [Vec<&[u8]>; 4] {
    let drawn = |salt: u32, most: u32| {
        let mut state = crc32fast::hash(bytes) ^ salt;
        let (mut pieces, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            // Numerical Recipes' generator; its high bits are good enough to cut by.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = 1 + ((u64::from(state) * u64::from(most)) >> 32) as usize;
            let (piece, after) = rest.split_at(length.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces
    };
    [vec![bytes], bytes.chunks(1).collect(), drawn(1, 7), drawn(2, 60)]
}
