//! The one HTTP request that the lab makes itself: a GET whose answer states its length.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest pause in an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of one read. Large, so that the reader's system calls cost little beside the server's work.
const READ_BYTES: usize = 256 << 10;
/// The largest response head that is expected.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Gets a path and hands over the body piece by piece, until it ends or is not wanted any more: `body` returns whether
/// to go on. Returns the length that the body has as a whole.
///
/// # Errors
/// Those of the socket; `TimedOut` or `WouldBlock` after 10 seconds of silence; an answer that is not 200,
/// has no Content-Length, or is longer or shorter than that.
pub(crate) fn get(address: SocketAddr, path: &str, mut body: impl FnMut(&[u8]) -> bool) -> io::Result<u64> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;

    let mut buffer = vec![0; READ_BYTES];
    let mut filled = 0;
    let (body_start, length) = loop {
        filled += read(&mut stream, &mut buffer[filled..])?;
        if let Some(head) = parse_head(&buffer[..filled])? {
            break head;
        }
        if filled > MAX_HEAD_BYTES {
            return Err(io::Error::other("the head of the answer has no end"));
        }
    };
    let mut left = length;
    let mut piece = body_start..filled;
    loop {
        let received = &buffer[piece];
        left = left
            .checked_sub(received.len() as u64)
            .ok_or_else(|| io::Error::other("the answer is longer than its Content-Length"))?;
        if !body(received) || left == 0 {
            return Ok(length);
        }
        piece = 0..read(&mut stream, &mut buffer)?;
    }
}

fn read(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        return match stream.read(buffer) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed before the answer's end",
            )),
            // With a time limit the kernel does not take the call up again after a signal (signal(7)), such as that
            // of a server that has ended.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => outcome,
        };
    }
}

/// Where the body starts and how long it is; `None` while the head is not complete.
fn parse_head(received: &[u8]) -> io::Result<Option<(usize, u64)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(body_start) = response.parse(received).map_err(io::Error::other)? else {
        return Ok(None);
    };
    if response.code != Some(200) {
        return Err(io::Error::other(format!(
            "the answer is {}",
            response.code.unwrap_or_default()
        )));
    }
    let length = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"));
    length
        .and_then(|header| str::from_utf8(header.value).ok()?.parse().ok())
        .map(|length| Some((body_start, length)))
        .ok_or_else(|| io::Error::other("the answer has no Content-Length"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// What is got from a server that answers with these pieces.
    fn got(pieces: &'static [&'static str]) -> io::Result<(u64, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let mut request = [0; 1024];
            let length = stream.read(&mut request).expect("a request arrives");
            assert!(request[..length].starts_with(b"GET /x HTTP/1.1\r\n"));
            for piece in pieces {
                // The client may have left after an error.
                let _ = stream.write_all(piece.as_bytes());
            }
        });
        let mut body = Vec::new();
        let outcome = get(address, "/x", |piece| {
            body.extend_from_slice(piece);
            true
        });
        server.join().expect("the server ends");
        outcome.map(|length| (length, String::from_utf8(body).expect("text")))
    }

    #[test]
    fn a_whole_answer_is_handed_over() {
        let answer = got(&["HTTP/1.1 200 OK\r\nContent-Le", "ngth: 10\r\n\r\n01234", "56789"]);
        assert_eq!(answer.expect("it is whole"), (10, "0123456789".to_owned()));
        let empty = got(&["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]);
        assert_eq!(empty.expect("it is whole"), (0, String::new()));
    }

    #[test]
    fn a_signal_does_not_end_the_reading() {
        struct Interrupted(bool);
        impl Read for Interrupted {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::take(&mut self.0) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                buffer[0] = b'x';
                Ok(1)
            }
        }
        let mut buffer = [0];
        assert_eq!(read(&mut Interrupted(true), &mut buffer).expect("it goes on"), 1);
    }

    #[test]
    fn short_long_and_wrong_answers_are_errors() {
        for (pieces, message) in [
            (
                &["HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234"],
                "closed before",
            ),
            (
                &["HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789X"],
                "longer than",
            ),
            (&["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"], "404"),
            (&["HTTP/1.1 200 OK\r\n\r\n0123456789"], "no Content-Length"),
        ] {
            let error = got(pieces).expect_err(message);
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
