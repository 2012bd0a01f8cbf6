//! The sizes of messages.

use std::fmt;
use std::str::FromStr;

use super::random::draw_below;

/// The largest message.
pub(crate) const LARGEST: u32 = 16 * 1024 * 1024;

/// How the sizes of messages are spread, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// All of one size: `1024`.
    Fixed(u32),
    /// Every size from the first to the second with the same probability: `64..4096`.
    Uniform(u32, u32),
    /// Some sizes, each with a weight: `64:80,1024:15,65536:5`. The weights are the sums so far, rising to the
    /// last one.
    Weighted(Box<[(u32, u64)]>),
}

impl Sizes {
    /// The size of message `index` of stream `stream`.
    pub(super) fn of(&self, seed: u64, stream: u64, index: u64) -> usize {
        let size = match self {
            Sizes::Fixed(size) => *size,
            Sizes::Uniform(least, most) => {
                let count = u64::from(most - least) + 1;
                // Below `count`, which is a u32 and one.
                least + draw_below(seed, stream, index, count) as u32
            }
            Sizes::Weighted(sizes) => {
                let total = sizes.last().map_or(1, |(_, sum)| *sum);
                let drawn = draw_below(seed, stream, index, total);
                let place = sizes.partition_point(|(_, sum)| *sum <= drawn);
                sizes[place].0
            }
        };
        size as usize
    }

    /// The smallest size.
    pub(crate) fn least(&self) -> usize {
        let least = match self {
            Sizes::Fixed(size) | Sizes::Uniform(size, _) => *size,
            Sizes::Weighted(sizes) => sizes.iter().map(|(size, _)| *size).min().unwrap_or(0),
        };
        least as usize
    }

    /// The largest size.
    pub(crate) fn largest(&self) -> usize {
        let largest = match self {
            Sizes::Fixed(size) => *size,
            Sizes::Uniform(_, most) => *most,
            Sizes::Weighted(sizes) => sizes.iter().map(|(size, _)| *size).max().unwrap_or(0),
        };
        largest as usize
    }

    /// The mean size.
    pub(crate) fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(size) => f64::from(*size),
            Sizes::Uniform(least, most) => (f64::from(*least) + f64::from(*most)) / 2.0,
            Sizes::Weighted(sizes) => {
                let mut before = 0;
                let mut sum = 0.0;
                for &(size, upto) in sizes {
                    sum += f64::from(size) * (upto - before) as f64;
                    before = upto;
                }
                sum / before as f64
            }
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(size) => write!(formatter, "{size}"),
            Sizes::Uniform(least, most) => write!(formatter, "{least}..{most}"),
            Sizes::Weighted(sizes) => {
                let mut before = 0;
                for (place, &(size, upto)) in sizes.iter().enumerate() {
                    let comma = if place > 0 { "," } else { "" };
                    write!(formatter, "{comma}{size}:{}", upto - before)?;
                    before = upto;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((least, most)) = text.split_once("..") {
            let (least, most) = (size(least)?, size(most)?);
            return if least < most {
                Ok(Sizes::Uniform(least, most))
            } else {
                Err(format!("the range {text} must go up"))
            };
        }
        if !text.contains(':') {
            return size(text).map(Sizes::Fixed);
        }
        let mut sum = 0;
        let sizes: Result<_, String> = text
            .split(',')
            .map(|part| {
                let (bytes, weight) = part
                    .split_once(':')
                    .ok_or_else(|| format!("`{part}` has no weight; expected SIZE:WEIGHT"))?;
                let weight: u32 = weight
                    .parse()
                    .ok()
                    .filter(|&weight| weight > 0)
                    .ok_or_else(|| format!("the weight `{weight}` is not a whole number above 0"))?;
                sum += u64::from(weight);
                Ok((size(bytes)?, sum))
            })
            .collect();
        sizes.map(Sizes::Weighted)
    }
}

fn size(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|size| (1..=LARGEST).contains(size))
        .ok_or_else(|| format!("`{text}` is not a size from 1 to {LARGEST} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood_and_printed_back() {
        for (text, mean, largest) in [
            ("64", 64.0, 64),
            ("64..4096", 2080.0, 4096),
            ("10:3,20:1", 12.5, 20),
        ] {
            let sizes: Sizes = text.parse().unwrap();
            assert_eq!(sizes.to_string(), text);
            assert_eq!((sizes.mean(), sizes.largest()), (mean, largest));
        }
        for text in [
            "", "0", "64..", "64..64", "9..8", "64:1,2", "64:0", "64:x", "16777217", "-1",
        ] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn draws_have_the_weights() {
        let sizes: Sizes = "10:80,20:15,30:5".parse().unwrap();
        let mut seen = [0_i32; 4];
        for index in 0..10_000 {
            seen[sizes.of(5, 1, index) / 10] += 1;
        }
        // Within four standard deviations; the draws are the same in every run.
        assert_eq!(seen[0], 0);
        for (found, expected, deviation) in [(seen[1], 8_000, 40), (seen[2], 1_500, 36), (seen[3], 500, 22)] {
            assert!((found - expected).abs() < 4 * deviation, "{seen:?}");
        }
        let uniform: Sizes = "1..3".parse().unwrap();
        let drawn: Vec<usize> = (0..100).map(|index| uniform.of(5, 1, index)).collect();
        assert!((1..=3).all(|size| drawn.contains(&size)), "{drawn:?}");
        assert!(drawn.iter().all(|size| (1..=3).contains(size)), "{drawn:?}");
    }
}
