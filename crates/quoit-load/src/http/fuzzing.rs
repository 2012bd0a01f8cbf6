//! The reply parser, given anything. See [`quoit_corpus`].

use httparse::Response;
use quoit_corpus::cuttings;

use super::framing::{ReplyParts, ReplyReader};
use super::{Http, Recorder, Reply, RequestReply, request};

/// What there is to a stream of replies.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Status and header fields of each head, and whether the connection ends there.
    heads: Vec<(Option<u16>, usize, bool)>,
    bodies: Vec<u8>,
    /// Bytes taken up to the end of each reply, and bodies' bytes up to there.
    ends: Vec<(usize, usize)>,
    failed: bool,
}

impl ReplyParts for Found {
    fn head(&mut self, response: &Response<'_, '_>, last: bool) {
        self.heads.push((response.code, response.headers.len(), last));
    }

    fn body(&mut self, bytes: &[u8]) {
        self.bodies.extend_from_slice(bytes);
    }
}

/// However a stream of replies is cut, it is understood alike and judged alike.
pub fn http_reply(bytes: &[u8]) {
    let [whole, others @ ..] = cuttings(bytes);
    let expected = (read(&whole), judge(&whole));
    for pieces in others {
        assert_eq!((read(&pieces), judge(&pieces)), expected);
    }
    for pieces in cuttings(bytes) {
        let mut recorder = Recorder::default();
        if pieces.iter().any(|piece| recorder.take(piece) != Ok(false)) {
            // Refused or complete; what is complete has all that later replies are compared with.
            let _ = recorder.finish();
        }
    }
}

fn read(pieces: &[&[u8]]) -> Found {
    let (mut reader, mut found, mut taken) = (ReplyReader::default(), Found::default(), 0);
    for mut piece in pieces.iter().copied() {
        while !piece.is_empty() {
            match reader.read(piece, &mut found) {
                Ok((consumed, ended)) => {
                    assert!(consumed > 0, "no progress");
                    assert!(ended || consumed == piece.len(), "bytes left over");
                    piece = &piece[consumed..];
                    taken += consumed;
                    if ended {
                        found.ends.push((taken, found.bodies.len()));
                    }
                }
                Err(what) => {
                    assert!(!what.is_empty() && !what.contains('\n'), "{what}");
                    found.failed = true;
                    return found;
                }
            }
        }
    }
    found
}

/// How each reply compares with one that has been recorded: `None` where nothing after it can be understood.
fn judge(pieces: &[&[u8]]) -> Vec<Option<Reply>> {
    const FIRST: &[u8] = b"HTTP/1.1 200 OK\r\nServer: test\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
        Content-Length: 5\r\n\r\nHello";
    let mut recorder = Recorder::default();
    assert_eq!(recorder.take(FIRST), Ok(true));
    let expected = recorder.finish().expect("it is a reply");
    let mut http = Http::new(request("/", "test", None), expected);
    let mut state = http.connection(0);
    let mut replies = Vec::new();
    for mut piece in pieces.iter().copied() {
        while !piece.is_empty() {
            let (consumed, reply) = http.take_reply(&mut state, piece);
            assert!(consumed > 0, "no progress");
            piece = &piece[consumed..];
            match reply {
                Some(Reply::Wrong(wrong)) if !wrong.usable => {
                    replies.push(None);
                    return replies;
                }
                Some(reply) => replies.push(Some(reply)),
                None => assert!(piece.is_empty(), "bytes left over without a judgement"),
            }
        }
    }
    replies
}
