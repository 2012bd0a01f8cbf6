//! Random draws that depend on nothing but where they stand: the same seed gives every connection the same
//! schedule and the same sizes, however many threads share the connections.

/// Draw number `index` of stream `stream`: the output function of SplitMix64 (Steele, Lea, Flood, "Fast
/// splittable pseudorandom number generators", 2014) over the three, as a counter-based generator.
pub(super) fn draw(seed: u64, stream: u64, index: u64) -> u64 {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    let start = mix(mix(seed.wrapping_add(GAMMA)).wrapping_add(stream.wrapping_mul(GAMMA)));
    mix(start.wrapping_add(index.wrapping_add(1).wrapping_mul(GAMMA)))
}

/// [`draw`] below `bound`, which is not zero. Its bias is below `bound` in 2^64.
pub(super) fn draw_below(seed: u64, stream: u64, index: u64, bound: u64) -> u64 {
    ((u128::from(draw(seed, stream, index)) * u128::from(bound)) >> 64) as u64
}

/// [`draw`] from the exponential distribution with the mean 1.
pub(super) fn draw_exponential(seed: u64, stream: u64, index: u64) -> f64 {
    // 53 bits, as many as a double holds, above zero: the logarithm is finite.
    let uniform = ((draw(seed, stream, index) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    -uniform.ln()
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_seed_stream_and_index_and_nothing_else() {
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        let mut seen: Vec<u64> = Vec::new();
        for seed in 0..10 {
            for stream in 0..10 {
                seen.extend((0..10).map(|index| draw(seed, stream, index)));
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1_000);
    }

    #[test]
    fn the_distributions_have_their_mean() {
        let count = 100_000;
        let mean = |value: &dyn Fn(u64) -> f64| (0..count).map(value).sum::<f64>() / count as f64;
        // Four standard errors; the draws are the same in every run.
        assert!((mean(&|index| draw_exponential(7, 1, index)) - 1.0).abs() < 4.0 / 316.0);
        assert!((mean(&|index| draw_below(7, 1, index, 101) as f64) - 50.0).abs() < 4.0 * 29.2 / 316.0);
        assert!((0..count).all(|index| draw_below(7, 1, index, 3) < 3));
    }
}
