use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::testing::replies_to;

const FIRST_DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const OTHER_DATE: &str = "Mon, 07 Nov 1994 08:49:38 GMT";

fn plain(date: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nServer: test\r\nDate: {date}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn chunked(date: &str, chunks: &[&str], trailer: &str) -> String {
    let mut text =
        format!("HTTP/1.1 200 OK\r\nServer: test\r\nDate: {date}\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in chunks {
        text += &format!("{:x};note=1\r\n{chunk}\r\n", chunk.len());
    }
    text + "0\r\n" + trailer + "\r\n"
}

fn checker(first: &str) -> Http {
    let mut recorder = Recorder::default();
    assert!(
        recorder.take(first.as_bytes()).unwrap(),
        "the first reply is not complete"
    );
    Http::new(request("/", "test", None), recorder.finish().unwrap())
}

fn judged(first: &str, stream: &str, cuts: &[Index]) -> Vec<Reply> {
    let mut http = checker(first);
    let mut state = http.connection(0);
    replies_to(&mut http, &mut state, stream.as_bytes(), cuts)
}

fn right() -> Reply {
    Reply::Right { last: false }
}

fn wrong_kind(reply: &Reply) -> Option<WrongKind> {
    match reply {
        Reply::Wrong(wrong) => Some(wrong.kind),
        Reply::Right { .. } => None,
    }
}

/// A stream of replies of several kinds, with the judgement that each must get.
fn variants() -> Vec<(String, Reply)> {
    let body = "Hello, World!";
    let status = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy".to_owned();
    let reordered = format!(
        "HTTP/1.1 200 Fine\r\nDate: {OTHER_DATE}\r\ncontent-length: 13\r\nKeep-Alive: max=5\r\nserver: \
         test\r\n\r\n{body}"
    );
    vec![
        (plain(FIRST_DATE, body), right()),
        (plain(OTHER_DATE, body), right()),
        (reordered, right()),
        (
            format!(
                "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{}",
                plain(OTHER_DATE, body)
            ),
            right(),
        ),
        (
            status,
            Reply::wrong(
                WrongKind::Status,
                true,
                "the reply has status 503, not 200".into(),
            ),
        ),
        (
            plain(OTHER_DATE, "Hello, world!"),
            Reply::wrong(
                WrongKind::Content,
                true,
                "the body differs from that of the first reply at byte 7".into(),
            ),
        ),
        (plain(FIRST_DATE, body), right()),
    ]
}

proptest! {
    #[test]
    fn any_split_of_the_stream_gives_the_same_replies(
        picks in prop::collection::vec(any::<Index>(), 1..12),
        cuts in prop::collection::vec(any::<Index>(), 0..30),
    ) {
        let variants = variants();
        let picked: Vec<_> = picks.iter().map(|pick| pick.get(&variants)).collect();
        let stream: String = picked.iter().map(|(text, _)| text.as_str()).collect();
        let replies = judged(&plain(FIRST_DATE, "Hello, World!"), &stream, &cuts);
        prop_assert_eq!(replies.len(), picked.len());
        for (reply, (_, expected)) in replies.iter().zip(picked) {
            prop_assert_eq!(reply, expected);
        }
    }

    #[test]
    fn chunked_bodies_are_compared_whatever_the_chunks(
        body in "[a-z]{1,80}",
        places in prop::collection::vec(any::<Index>(), 0..6),
        trailer in prop::sample::select(vec!["", "Checksum: 1\r\n"]),
        cuts in prop::collection::vec(any::<Index>(), 0..30),
    ) {
        let mut bounds: Vec<usize> = places.iter().map(|place| place.index(body.len())).collect();
        bounds.extend([0, body.len()]);
        bounds.sort_unstable();
        bounds.dedup();
        let chunks: Vec<&str> = bounds.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
        let one = chunked(OTHER_DATE, &chunks, trailer);
        let replies = judged(&chunked(FIRST_DATE, &[&body], ""), &one.repeat(3), &cuts);
        prop_assert_eq!(replies, vec![right(), right(), right()]);
    }

    #[test]
    fn any_changed_byte_of_the_body_is_found(
        body in "[a-z]{1,80}",
        place in any::<Index>(),
        cuts in prop::collection::vec(any::<Index>(), 0..10),
    ) {
        let mut changed = body.clone().into_bytes();
        let place = place.index(changed.len());
        changed[place] ^= 0x20;
        let changed = String::from_utf8(changed).unwrap();
        let stream = plain(FIRST_DATE, &body) + &plain(FIRST_DATE, &changed) + &plain(OTHER_DATE, &body);
        let replies = judged(&plain(FIRST_DATE, &body), &stream, &cuts);
        let kinds: Vec<_> = replies.iter().map(wrong_kind).collect();
        prop_assert_eq!(kinds, vec![None, Some(WrongKind::Content), None]);
    }

    #[test]
    fn arbitrary_bytes_never_stall_or_pass(
        bytes in prop::collection::vec(any::<u8>(), 1..400),
        cuts in prop::collection::vec(any::<Index>(), 0..10),
    ) {
        let mut http = checker(&plain(FIRST_DATE, "Hello"));
        let mut state = http.connection(0);
        let replies = replies_to(&mut http, &mut state, &bytes, &cuts);
        prop_assert!(replies.iter().all(|reply| wrong_kind(reply).is_some()));
    }
}

#[test]
fn differences_in_the_head_are_found() {
    let first = plain(FIRST_DATE, "Hello");
    for (changed, found) in [
        (first.replace("Server: test", "Server: best"), "the field Server"),
        (
            first.replace("Server: test\r\n", ""),
            "a header field of the first reply is missing",
        ),
        (
            first.replace("Server: test\r\n", "Server: test\r\nServer: test\r\n"),
            "the field Server",
        ),
        (
            first.replace(FIRST_DATE, "Sun, 06 Nox 1994 08:49:37 GMT"),
            "the field Date is not a date",
        ),
        (
            first.replace("Server", "X-Cache: miss\r\nServer"),
            "the field X-Cache",
        ),
    ] {
        let replies = judged(&first, &changed, &[]);
        let [Reply::Wrong(wrong)] = replies.as_slice() else {
            panic!("{changed}: {replies:?}")
        };
        assert!(wrong.what.starts_with(found), "{}", wrong.what);
        assert_eq!((wrong.kind, wrong.usable), (WrongKind::Content, true));
    }
}

#[test]
fn shorter_and_longer_bodies_are_found() {
    let first = plain(FIRST_DATE, "Hello");
    let short = first.replace("Content-Length: 5\r\n\r\nHello", "Content-Length: 4\r\n\r\nHell");
    let replies = judged(&first, &short, &[]);
    assert_eq!(wrong_kind(&replies[0]), Some(WrongKind::Content));

    let first = chunked(FIRST_DATE, &["Hello"], "");
    for chunks in [&["Hell"][..], &["Hello", "!"], &[]] {
        let replies = judged(&first, &chunked(FIRST_DATE, chunks, ""), &[]);
        assert_eq!(wrong_kind(&replies[0]), Some(WrongKind::Content), "{chunks:?}");
    }
}

#[test]
fn framing_that_cannot_be_trusted_ends_the_connection() {
    let first = plain(FIRST_DATE, "Hello");
    for broken in [
        "HTTP/1.1 200 OK\r\n\r\nHello".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nHello".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nHello".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nHello".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nHello".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nHello\r\n".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(70_000)),
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: {}\r\n\r\n",
            "y".repeat(70_000)
        ),
    ] {
        let replies = judged(&first, &broken, &[]);
        let Some(Reply::Wrong(wrong)) = replies.first() else {
            panic!("{broken}: {replies:?}")
        };
        assert!(!wrong.usable, "{broken}");
    }
}

#[test]
fn an_announced_close_is_seen_on_both_paths() {
    let first = plain(FIRST_DATE, "Hello");
    let closing = first.replace("Server", "Connection: close\r\nServer");
    assert_eq!(judged(&first, &closing, &[]), [Reply::Right { last: true }]);
    assert_eq!(judged(&closing, &closing, &[]), [Reply::Right { last: true }]);
    let old = first.replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(judged(&first, &old, &[]), [Reply::Right { last: true }]);
    let old_kept = old.replace("Server", "Connection: Keep-Alive\r\nServer");
    assert_eq!(judged(&first, &old_kept, &[]), [Reply::Right { last: false }]);
}

#[test]
fn the_first_reply_must_be_sound() {
    for (first, found) in [
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "the reply has status 404, not 200",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1",
            "more follows",
        ),
        ("SSH-2.0-OpenSSH\r\n", "not an HTTP/1 reply"),
    ] {
        let error = Recorder::default().take(first.as_bytes()).unwrap_err();
        assert!(error.contains(found), "{error}");
    }
}
