//! What holds for every input: the answers do not depend on how it is cut, and nothing makes it panic.

use proptest::prelude::*;

use super::refused::REFUSED;
use super::tests::{METRICS, environment};
use super::*;

/// One request and what must come back.
#[derive(Clone, Debug)]
struct Exchange {
    request: Vec<u8>,
    is_head: bool,
    body: Vec<u8>,
}

fn exchange(request: String, body: impl Into<Vec<u8>>) -> Exchange {
    Exchange {
        is_head: request.starts_with("HEAD"),
        request: request.into_bytes(),
        body: body.into(),
    }
}

fn content(count: usize) -> Vec<u8> {
    (0..count).map(|position| (position % 251) as u8).collect()
}

/// Fields without a meaning here, to give the heads many lengths.
fn filler() -> impl Strategy<Value = String> {
    prop::collection::vec("[A-Za-z-]{1,12}", 0..4).prop_map(|names| {
        names
            .iter()
            .map(|name| format!("X-{name}: {name}\t\u{e9} {name}\r\n"))
            .collect::<String>()
    })
}

/// A body as the fields that frame it and its bytes on the wire.
fn framed(body: Vec<u8>, chunk: Option<usize>) -> (String, Vec<u8>) {
    let Some(chunk) = chunk else {
        return (format!("Content-Length: {}\r\n", body.len()), body);
    };
    let mut wire = Vec::new();
    for (number, data) in body.chunks(chunk).enumerate() {
        let extension = if number % 3 == 1 { ";a=\"b\"" } else { "" };
        wire.extend_from_slice(format!("{:02X}{extension}\r\n", data.len()).as_bytes());
        wire.extend_from_slice(data);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(if chunk % 2 == 0 {
        b"0\r\n\r\n"
    } else {
        b"00;z\r\nT: u\r\n\r\n"
    });
    ("Transfer-Encoding: chunked\r\n".to_owned(), wire)
}

fn exchanges() -> impl Strategy<Value = Exchange> {
    let without_body = (0_usize..8, 0_usize..3000, filler()).prop_map(|(kind, count, filler)| {
        let rest = format!("HTTP/1.1\r\nhost: [::1]:80\r\n{filler}\r\n");
        match kind {
            0 => exchange(format!("GET /plaintext {rest}"), "Hello, World!"),
            1 => exchange(format!("GET http://a.b/plaintext?x=/y {rest}"), "Hello, World!"),
            2 => exchange(format!("HEAD /json?{count} {rest}"), ""),
            3 => exchange(format!("\r\nGET /json {rest}"), "{\"message\":\"Hello, World!\"}"),
            4 => exchange(format!("GET /bytes/{count} {rest}"), content(count)),
            5 => exchange(format!("HEAD /bytes/{count} {rest}"), ""),
            6 => exchange(format!("GET /metrics {rest}"), METRICS),
            _ => exchange(
                "GET /healthz HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n".to_owned(),
                "ok",
            ),
        }
    });
    let body = prop::collection::vec(any::<u8>(), 0..600);
    let with_body = (any::<bool>(), body, prop::option::of(1_usize..200), filler()).prop_map(
        |(echoed, body, chunk, filler)| {
            let (fields, wire) = framed(body.clone(), chunk);
            let line = if echoed { "POST /echo" } else { "GET /plaintext" };
            let head = format!("{line} HTTP/1.1\r\n{fields}Host: a\r\n{filler}\r\n");
            let mut exchange = exchange(head, if echoed { body } else { b"Hello, World!".to_vec() });
            exchange.request.extend_from_slice(&wire);
            exchange
        },
    );
    prop_oneof![without_body, with_body]
}

/// Plays a driver: passes `input` in pieces of the given lengths, over and over, takes at most `limit` bytes
/// of output at a time, and ends the stream after the last byte.
fn serve(input: &[u8], pieces: &[usize], limit: usize) -> Vec<u8> {
    let mut environment = environment();
    let mut connection = HttpConnection::new();
    let (mut sent, mut output, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    let mut arriving = input;
    for piece in pieces.iter().cycle() {
        let (piece, rest) = arriving.split_at((*piece).clamp(1, arriving.len().max(1)).min(arriving.len()));
        arriving = rest;
        kept.extend_from_slice(piece);
        let mut ended = arriving.is_empty();
        loop {
            let step = if ended {
                connection.end_of_stream(&kept, &mut output, limit, &mut environment)
            } else {
                connection.receive(&kept, &mut output, limit, &mut environment)
            };
            ended = false;
            assert!(step.consumed <= kept.len());
            kept.drain(..step.consumed);
            // The transport takes a part and leaves the rest in the buffer.
            let taken = output.len() - output.len() / 3;
            sent.extend(output.drain(..taken));
            match step.next {
                Next::Close => {
                    sent.append(&mut output);
                    assert!(kept.is_empty() && connection.phase() == Phase::Closed);
                    return sent;
                }
                Next::NeedInput => {
                    assert!(kept.is_empty());
                    break;
                }
                Next::NeedOutput => {}
            }
        }
    }
    unreachable!("the end of the stream closes")
}

/// Splits responses into status and body, by a parser that is not the server's own.
fn parse(mut output: &[u8], exchanges: &[Exchange]) -> Vec<(u16, Vec<u8>)> {
    let mut responses = Vec::new();
    for exchange in exchanges {
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut fields);
        let head = response.parse(output).unwrap().unwrap();
        output = &output[head..];
        let field = |name| {
            response
                .headers
                .iter()
                .find(|field| field.name == name)
                .map(|field| field.value)
        };
        let mut body = Vec::new();
        if exchange.is_head {
            // The length is that of a body which does not come.
        } else if let Some(length) = field("Content-Length") {
            let length = std::str::from_utf8(length).unwrap().parse().unwrap();
            body.extend_from_slice(&output[..length]);
            output = &output[length..];
        } else {
            assert_eq!(field("Transfer-Encoding"), Some(b"chunked".as_slice()));
            loop {
                let (begin, size) = httparse::parse_chunk_size(output).unwrap().unwrap();
                let end = begin + size as usize;
                body.extend_from_slice(&output[begin..end]);
                assert_eq!(&output[end..end + 2], b"\r\n");
                output = &output[end + 2..];
                if size == 0 {
                    break;
                }
            }
        }
        responses.push((response.code.unwrap(), body));
    }
    assert!(output.is_empty(), "{}", output.escape_ascii());
    responses
}

fn joined(exchanges: &[Exchange]) -> Vec<u8> {
    exchanges
        .iter()
        .flat_map(|exchange| exchange.request.iter().copied())
        .collect()
}

/// Lengths of pieces, small ones often.
fn pieces() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1_usize..4, 1_usize..40, 1_usize..2000], 1..12)
}

/// Limits of output, so small ones too that every response is cut.
fn limits() -> impl Strategy<Value = usize> {
    prop_oneof![1_usize..20, 1_usize..400, 1_usize..8000]
}

proptest! {
    #[test]
    fn valid_requests_are_answered_alike_however_they_are_cut(
        exchanges in prop::collection::vec(exchanges(), 1..8),
        pieces in pieces(),
        limit in limits(),
    ) {
        let input = joined(&exchanges);
        let whole = serve(&input, &[input.len()], usize::MAX);
        let expected: Vec<_> = exchanges.iter().map(|exchange| (200, exchange.body.clone())).collect();
        prop_assert_eq!(parse(&whole, &exchanges), expected);
        prop_assert!(whole == serve(&input, &pieces, limit));
    }

    #[test]
    fn refused_requests_are_answered_alike_however_they_are_cut(
        exchanges in prop::collection::vec(exchanges(), 0..3),
        refused in 0..REFUSED.len(),
        pieces in pieces(),
        limit in limits(),
    ) {
        let mut input = joined(&exchanges);
        input.extend_from_slice(REFUSED[refused].1);
        input.extend_from_slice(b"GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n");
        prop_assert!(serve(&input, &[input.len()], usize::MAX) == serve(&input, &pieces, limit));
    }

    #[test]
    fn heads_about_as_long_as_the_limits_are_answered_alike_however_they_are_cut(
        target in prop_oneof![1..20_usize, MAX_TARGET_BYTES - 4..MAX_TARGET_BYTES + 4, MAX_HEAD_BYTES - 40..MAX_HEAD_BYTES],
        head in MAX_HEAD_BYTES - 4..MAX_HEAD_BYTES + 4,
        pieces in pieces(),
        limit in limits(),
    ) {
        let mut input = format!("GET /{} HTTP/1.1\r\nHost: a\r\nX: ", "t".repeat(target)).into_bytes();
        input.resize(input.len().max(head - 4), b'x');
        input.extend_from_slice(b"\r\n\r\nGET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n");
        prop_assert!(serve(&input, &[input.len()], usize::MAX) == serve(&input, &pieces, limit));
    }

    #[test]
    fn damaged_requests_are_answered_alike_however_they_are_cut(
        exchanges in prop::collection::vec(exchanges(), 1..4),
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), any::<u8>()]),
            0..4,
        ),
        cut in any::<prop::sample::Index>(),
        pieces in pieces(),
        limit in limits(),
    ) {
        let mut input = joined(&exchanges);
        for (index, byte) in damage {
            let at = index.index(input.len());
            input[at] = byte;
        }
        input.remove(cut.index(input.len()));
        prop_assert!(serve(&input, &[input.len()], 1 << 20) == serve(&input, &pieces, limit));
    }

    #[test]
    fn random_bytes_do_no_harm(
        input in prop_oneof![
            prop::collection::vec(any::<u8>(), 1..400),
            prop::collection::vec(prop::sample::select(b"GET / HTP1.:\r\n0a;\0*".to_vec()), 1..400),
        ],
        prefix in prop::sample::select(vec![
            "", "GET /", "GET /json HTTP/1.1\r\n", "GET /json HTTP/1.1\r\nHost: ",
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        ]),
        pieces in pieces(),
        limit in limits(),
    ) {
        let input = [prefix.as_bytes(), &input].concat();
        prop_assert!(serve(&input, &[input.len()], 1 << 20) == serve(&input, &pieces, limit));
    }
}
