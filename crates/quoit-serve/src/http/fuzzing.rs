//! The server's parsers, given anything. See [`quoit_corpus`].

use std::time::UNIX_EPOCH;

use quoit_corpus::cuttings;

use super::body::{ChunkDecoder, ChunkEvent};
use super::head::{self, Scan};
use super::target::JudgedHost;
use super::{Environment, HttpConfig, HttpConnection, MAX_HEAD_BYTES, Next, Observed, Phase};

/// Bytes answered after which a client is known: `/bytes/N` can go on for ever.
const ENOUGH: usize = 4 * 1024;

/// What is read at once is what the long way reads, wherever a scan was interrupted and whatever host was judged
/// before.
pub fn http_head(bytes: &[u8]) {
    let window = &bytes[..bytes.len().min(MAX_HEAD_BYTES)];
    let scanned = head::scan(window, 0);
    for pieces in cuttings(window) {
        let (mut from, mut found) = (0, Scan::Partial);
        for piece in pieces {
            found = head::scan(&window[..from + piece.len()], from);
            if found != Scan::Partial {
                break;
            }
            from += piece.len();
        }
        assert_eq!(found, scanned);
    }

    let mut host = JudgedHost::default();
    let slowly = match scanned {
        Scan::Complete(length) => head::parse(&window[..length], &mut host)
            .ok()
            .map(|head| (head, length)),
        Scan::Partial | Scan::BareLineFeed => None,
    };
    for mut host in [JudgedHost::default(), host] {
        if let Some(at_once) = head::parse_at_once(window, &mut host) {
            assert_eq!(Some(at_once), slowly);
        }
        if let Scan::Complete(length) = scanned {
            let again = head::parse(&window[..length], &mut host).ok();
            assert_eq!(again, slowly.map(|(head, _)| head));
        }
    }
}

/// However a chunked body is cut, and however little is taken at a time, it has the same data, end or fault.
pub fn http_chunks(bytes: &[u8]) {
    let mut seen = None;
    for pieces in cuttings(bytes) {
        for limit in [usize::MAX, 3] {
            let (mut decoder, mut data, mut taken) = (ChunkDecoder::new(), Vec::new(), 0);
            let mut end = None;
            'pieces: for mut piece in pieces.iter().copied() {
                loop {
                    let (consumed, event) = match decoder.next(piece, limit) {
                        Ok(step) => step,
                        Err(refusal) => {
                            end = Some(Err(refusal));
                            break 'pieces;
                        }
                    };
                    if let ChunkEvent::Data(count) = event {
                        assert!(count > 0 && count <= limit);
                        data.extend_from_slice(&piece[consumed - count..consumed]);
                    }
                    piece = &piece[consumed..];
                    taken += consumed;
                    match event {
                        ChunkEvent::Complete => {
                            end = Some(Ok(taken));
                            break 'pieces;
                        }
                        ChunkEvent::NeedInput => break,
                        ChunkEvent::Begin(_) | ChunkEvent::Data(_) | ChunkEvent::End => {}
                    }
                }
                assert!(piece.is_empty(), "input was left over");
            }
            match &seen {
                None => seen = Some((data, end)),
                Some(seen) => assert_eq!(*seen, (data, end)),
            }
        }
    }
}

/// However requests are cut, and however little output is taken at a time, the answers are the same.
pub fn http_server(bytes: &[u8]) {
    let [whole, others @ ..] = cuttings(bytes);
    let expected = serve(&whole, ENOUGH);
    assert!(expected.is_empty() || expected.starts_with(b"HTTP/1.1 "));
    for pieces in others {
        for limit in [100, ENOUGH] {
            let answers = serve(&pieces, limit);
            let common = answers.len().min(expected.len()).min(ENOUGH);
            assert!(
                answers[..common] == expected[..common]
                    && (answers.len() == expected.len() || common == ENOUGH),
                "{}\nis not\n{}",
                answers.escape_ascii(),
                expected.escape_ascii()
            );
        }
    }
}

/// The body of `/metrics`.
pub(super) const METRICS: &str = "turns_total 7\n";

/// Counters, and nothing against this server.
pub(super) struct SaysLittle;

impl Observed for SaysLittle {
    fn metrics(&mut self, text: &mut String) {
        text.push_str(METRICS);
    }

    fn unready(&mut self, _reason: &mut String) {}

    fn stuck(&mut self, _reason: &mut String) {}
}

/// The answers to requests that arrive in pieces, about [`ENOUGH`] of them, without the `100 Continue` that only a
/// client gets that waits for it.
fn serve(pieces: &[&[u8]], limit: usize) -> Vec<u8> {
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut environment = Environment::new(HttpConfig::default(), UNIX_EPOCH, Box::new(SaysLittle));
    let mut connection = HttpConnection::new();
    let (mut sent, mut output, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces.iter().copied().map(Some).chain([None]) {
        kept.extend_from_slice(piece.unwrap_or_default());
        let mut ended = piece.is_none();
        loop {
            let step = if std::mem::take(&mut ended) {
                connection.end_of_stream(&kept, &mut output, limit, &mut environment)
            } else {
                connection.receive(&kept, &mut output, limit, &mut environment)
            };
            kept.drain(..step.consumed);
            sent.append(&mut output);
            if sent.len() > 2 * ENOUGH {
                return without(&sent, CONTINUE);
            }
            match step.next {
                Next::NeedOutput => {}
                Next::NeedInput => {
                    assert!(kept.is_empty());
                    break;
                }
                Next::Close => {
                    assert!(kept.is_empty() && connection.phase() == Phase::Closed);
                    return without(&sent, CONTINUE);
                }
            }
        }
    }
    unreachable!("the end of the stream closes")
}

/// `bytes` without any occurrence of `part`.
fn without(bytes: &[u8], part: &[u8]) -> Vec<u8> {
    let mut rest = bytes;
    let mut kept = Vec::with_capacity(bytes.len());
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(part) {
            rest = after;
        } else {
            kept.push(*first);
            rest = after;
        }
    }
    kept
}
