//! Histograms as text, as they stand in logs of HdrHistogram and in reports: V2, compressed, in base64. And many of them
//! as one, which is the only way to join percentiles.

use std::io::Read;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// How a histogram begins that is compressed, as all are that [`encode`] makes: this, the length of what follows, and a
/// histogram that is not. <https://github.com/HdrHistogram/HdrHistogram>, `EncodableHistogram`.
const COMPRESSED: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
/// Bytes in front of the counts of one that is not compressed; the second four of them are the length of the counts.
const HEADER: usize = 40;
/// Bytes that one can have, more than any of five significant digits has: what claims more is damaged or made to harm.
const MOST_BYTES: u64 = 64 << 20;

/// `histogram` as text; nothing of an empty one.
///
/// # Errors
/// Why it cannot be encoded.
pub fn encode(histogram: &Histogram<u64>) -> Result<Option<String>, String> {
    if histogram.is_empty() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| format!("cannot encode a histogram: {error}"))?;
    Ok(Some(BASE64_STANDARD.encode(bytes)))
}

/// The histogram that a text encodes, compressed or not.
///
/// # Errors
/// What is wrong with it.
pub fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let mut bytes = BASE64_STANDARD.decode(text).map_err(|error| error.to_string())?;
    if bytes.starts_with(&COMPRESSED) {
        let compressed = bytes.get(8..).ok_or("it is cut short")?;
        let mut inflated = Vec::new();
        ZlibDecoder::new(compressed)
            .take(MOST_BYTES)
            .read_to_end(&mut inflated)
            .map_err(|error| error.to_string())?;
        bytes = inflated;
    }
    // The library makes room for as many bytes as the length says, up to 4 GiB, before it reads them.
    let (header, counts) = bytes.split_at_checked(HEADER).ok_or("it is cut short")?;
    let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    if length as usize > counts.len() {
        return Err(format!(
            "it says that it has {length} bytes of counts, and has {}",
            counts.len()
        ));
    }
    Deserializer::new()
        .deserialize(&mut &bytes[..])
        .map_err(|error| error.to_string())
}

/// One histogram of all values that are in `encoded` ones, which is the first with those of the others added; an empty one
/// if there are none. It grows for the longest.
///
/// # Errors
/// What is wrong with one of them.
pub fn merge<'a>(encoded: impl Iterator<Item = &'a str>) -> Result<Histogram<u64>, String> {
    let mut histograms = encoded.map(decode);
    let mut merged = histograms
        .next()
        .unwrap_or_else(|| Histogram::new(3).map_err(|error| error.to_string()))?;
    merged.auto(true);
    for histogram in histograms {
        merged.add(histogram?).map_err(|error| error.to_string())?;
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use hdrhistogram::serialization::V2Serializer;

    use super::*;

    fn some() -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        for value in [1, 70, 5_000, 1 << 40] {
            histogram.record(value).unwrap();
        }
        histogram
    }

    fn compressed(bytes: &[u8]) -> String {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        let body = encoder.finish().unwrap();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        BASE64_STANDARD.encode([&COMPRESSED[..], &length, &body].concat())
    }

    #[test]
    fn a_histogram_is_what_it_was_compressed_or_not() {
        let histogram = some();
        assert_eq!(decode(&encode(&histogram).unwrap().unwrap()).unwrap(), histogram);
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&histogram, &mut bytes).unwrap();
        assert_eq!(decode(&BASE64_STANDARD.encode(&bytes)).unwrap(), histogram);
        assert_eq!(decode(&compressed(&bytes)).unwrap(), histogram);
    }

    #[test]
    fn a_length_of_more_than_there_is_makes_no_room_for_it() {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&some(), &mut bytes).unwrap();
        bytes[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        for text in [BASE64_STANDARD.encode(&bytes), compressed(&bytes)] {
            let error = decode(&text).unwrap_err();
            assert!(error.contains("says that it has 4294967295 bytes"), "{error}");
        }
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let whole = BASE64_STANDARD.decode(encode(&some()).unwrap().unwrap()).unwrap();
        for length in 0..whole.len() {
            assert!(
                decode(&BASE64_STANDARD.encode(&whole[..length])).is_err(),
                "{length} bytes"
            );
        }
    }
}
