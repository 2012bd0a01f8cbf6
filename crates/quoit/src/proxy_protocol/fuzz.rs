//! What the fuzz target `proxy_header` calls.

use super::{MOST_BINARY, MOST_TEXT, decode};

/// Any bytes, of which the first two are the limit. Panics where a verdict depends on how they are cut, where more than the header
/// is looked at, or where a header that was read is not read again as it was written.
pub(crate) fn proxy_header(bytes: &[u8]) {
    let Some((limit, bytes)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let limit = usize::from(u16::from_be_bytes(*limit));
    let verdict = decode(bytes, limit);
    for end in 0..bytes.len() {
        match decode(&bytes[..end], limit) {
            Ok(None) => assert!(end < limit.max(MOST_TEXT)),
            early => {
                assert_eq!(early, verdict);
                break;
            }
        }
    }
    if let Ok(Some((header, length))) = verdict {
        assert!(length <= bytes.len() && length <= limit.max(MOST_TEXT));
        // Nothing behind it matters.
        assert_eq!(
            decode(&bytes[..length], limit),
            Ok(Some((header.clone(), length)))
        );
        // A checksum is of the bytes that came, which others may have written otherwise.
        if header.values().all(|(kind, _)| kind != super::binary::CHECKSUM) {
            let written = header.encode();
            assert_eq!(decode(&written, MOST_BINARY), Ok(Some((header, written.len()))));
        }
    }
}
