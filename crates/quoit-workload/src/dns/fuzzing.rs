//! A query for the domain name system.

use crate::dns::{MOST_GROWTH, Outcome, Responder, Zone};

const RECORDS: [&str; 3] = [
    "www.example.test=192.0.2.1",
    "*.example.test=2001:db8::1",
    "*.example.test=192.0.2.2",
];

/// Whatever comes, what is sent back is a response to it, at most as much longer as an address takes, and with the
/// question as it was asked.
pub fn dns_query(bytes: &[u8]) {
    let records = RECORDS.map(|text| text.parse().expect("a record"));
    let mut responder = Responder::new(Zone::new(records), 60);
    let (outcome, response) = responder.answer(bytes);
    let bound = match outcome {
        Outcome::Ignored => return assert!(response.is_empty()),
        Outcome::Answered => bytes.len() + MOST_GROWTH,
        _ => bytes.len(),
    };
    assert!(response.len() <= bound, "{outcome:?}: {} bytes", response.len());
    assert_eq!(response[..2], bytes[..2]);
    assert!(response[2] & 0x80 != 0);
    if response[5] > 0 {
        let labels = response[12..].iter().position(|&byte| byte == 0);
        let end = 12 + labels.expect("the name ends with the root") + 5;
        assert_eq!(response[12..end], bytes[12..end]);
    }
}
