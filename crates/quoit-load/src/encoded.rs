//! Histograms as text, as they stand in logs of HdrHistogram and in reports: V2, compressed, in base64. And many of them
//! as one, which is the only way to join percentiles.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

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
    let bytes = BASE64_STANDARD.decode(text).map_err(|error| error.to_string())?;
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
