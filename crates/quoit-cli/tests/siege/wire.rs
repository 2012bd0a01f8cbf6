//! What the peers of a siege send, by protocol.

/// What a server speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    Echo,
    Http,
    /// That of docs/rpc.md.
    Rpc,
    /// RSocket 1.0 over TCP, without metadata.
    Rsocket,
    Sink,
}

/// Bytes of what a peer asks for that never takes it.
const TERABYTE: u64 = 1_000_000_000_000;
/// The most that the lab's server of RSocket takes in a frame's data.
const RSOCKET_MOST: usize = 64 << 10;
/// Credit without end.
const UNBOUNDED: u32 = u32::MAX;

impl Service {
    /// What a connection begins with.
    pub(crate) fn greeting(self) -> Vec<u8> {
        match self {
            Self::Rsocket => rsocket::setup(),
            _ => Vec::new(),
        }
    }

    /// Asks in 94 bytes at most for more than can be taken. An echo sends no more than it gets, and a sink nothing: they
    /// get more than the kernel holds for a peer that does not read.
    pub(crate) fn terabyte(self) -> Vec<u8> {
        match self {
            Self::Echo | Self::Sink => vec![b't'; 512 << 10],
            Self::Http => {
                let line = format!("GET /bytes/{TERABYTE} HTTP/1.1\r\nHost: ");
                format!("{line}{:x<width$}\r\n\r\n", "", width = 90 - line.len()).into_bytes()
            }
            Self::Rpc => rpc::open_response(1, 0, 16 << 10, UNBOUNDED),
            Self::Rsocket => rsocket::request_stream(1, UNBOUNDED, 0, 16 << 10),
        }
    }

    /// A small request with this number, from 0.
    pub(crate) fn small(self, number: u32) -> Vec<u8> {
        match self {
            Self::Echo | Self::Sink => vec![b's'; 100],
            Self::Http => b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            Self::Rpc => rpc::open_response(1 + number, 4, 128, 4),
            Self::Rsocket => rsocket::request_stream(1 + 2 * number, 4, 4, 128),
        }
    }

    /// A request with this number, from 0, that takes the server as much memory to answer as it may.
    pub(crate) fn large(self, number: u32) -> Vec<u8> {
        match self {
            Self::Echo | Self::Sink => vec![b'n'; 65_536],
            Self::Http => self.terabyte(),
            // A stream on which the client sends is answered by its end.
            Self::Rpc => {
                let mut request = rpc::open_request(1 + number, 1, 1000);
                request.extend(rpc::message(1 + number, 0, 1000));
                request
            }
            Self::Rsocket => rsocket::request_response(1 + 2 * number, 16 << 10),
        }
    }

    /// The beginning of a request.
    pub(crate) fn beginning(self) -> Vec<u8> {
        let whole = match self {
            Self::Echo | Self::Sink => Vec::new(),
            Self::Http => self.terabyte(),
            Self::Rpc => rpc::open_request(1, 1, 1 << 20),
            Self::Rsocket => rsocket::request_response(1, RSOCKET_MOST),
        };
        whole[..whole.len() / 2].to_vec()
    }

    /// A request that goes on for long: all of it is right so far.
    pub(crate) fn long(self) -> Vec<u8> {
        match self {
            Self::Echo | Self::Sink => vec![b'l'; 10_000],
            Self::Http => [b"GET /plaintext HTTP/1.1\r\nX: ".as_slice(), &[b'l'; 6000]].concat(),
            Self::Rpc => {
                let message = rpc::message(1, 0, 1 << 20);
                [rpc::open_request(1, 1, 1 << 20), message].concat()
            }
            Self::Rsocket => rsocket::request_response(1, RSOCKET_MOST),
        }
    }
}

/// Frames of docs/rpc.md.
pub(crate) mod rpc {
    pub(crate) const MESSAGE: u8 = 5;
    pub(crate) const END: u8 = 6;

    fn frame(stream: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = 5 + payload.len() as u32;
        let mut frame = [length.to_be_bytes(), stream.to_be_bytes()].concat();
        frame.push(kind);
        frame.extend(payload);
        frame
    }

    /// A stream on which the server sends; without end if it has no messages.
    pub(crate) fn open_response(stream: u32, messages: u64, size: u32, credit: u32) -> Vec<u8> {
        let mut payload = vec![0; 5];
        payload.extend(messages.to_be_bytes());
        payload.extend([size.to_be_bytes(), credit.to_be_bytes()].concat());
        payload.extend([0; 12]);
        frame(stream, 1, &payload)
    }

    /// A stream on which the client sends.
    pub(crate) fn open_request(stream: u32, messages: u64, size: u32) -> Vec<u8> {
        let mut payload = vec![0; 5];
        payload.extend(messages.to_be_bytes());
        payload.extend(size.to_be_bytes());
        frame(stream, 2, &payload)
    }

    pub(crate) fn message(stream: u32, number: u64, size: usize) -> Vec<u8> {
        frame(stream, MESSAGE, &content(stream, number, size))
    }

    /// Of a message without a time, of a stream with the tag 0.
    pub(crate) fn content(stream: u32, number: u64, size: usize) -> Vec<u8> {
        let mut content = number.to_be_bytes().to_vec();
        content.extend(stream.to_be_bytes());
        content.extend([0; 12]);
        let begin = number + u64::from(stream);
        content.extend((24..size as u64).map(|position| ((begin + position) % 251) as u8));
        content
    }
}

/// Frames of RSocket, with what the lab's server takes for a request.
pub(crate) mod rsocket {
    const SETUP: u16 = 1;
    const REQUEST_RESPONSE: u16 = 4;
    const REQUEST_STREAM: u16 = 6;
    pub(crate) const PAYLOAD: u16 = 10;
    pub(crate) const COMPLETE: u16 = 0x40;

    fn frame(stream: u32, kind: u16, payload: &[u8]) -> Vec<u8> {
        let length = 6 + payload.len() as u32;
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend(stream.to_be_bytes());
        frame.extend((kind << 10).to_be_bytes());
        frame.extend(payload);
        frame
    }

    pub(crate) fn setup() -> Vec<u8> {
        const HOUR_MILLIS: u32 = 3_600_000;
        let mut payload = vec![0, 1, 0, 0];
        payload.extend([HOUR_MILLIS.to_be_bytes(), HOUR_MILLIS.to_be_bytes()].concat());
        for _ in ["metadata", "data"] {
            payload.push(24);
            payload.extend(b"application/octet-stream");
        }
        frame(0, SETUP, &payload)
    }

    /// Of messages with so many bytes; without end if there are none.
    pub(crate) fn request_stream(stream: u32, credit: u32, messages: u32, size: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        for number in [credit, messages, size, 0, 0] {
            payload.extend(number.to_be_bytes());
        }
        payload.extend([0; 8]);
        frame(stream, REQUEST_STREAM, &payload)
    }

    /// It is answered by a message with as many bytes.
    pub(crate) fn request_response(stream: u32, size: usize) -> Vec<u8> {
        frame(stream, REQUEST_RESPONSE, &vec![0; size])
    }
}

#[test]
fn a_terabyte_is_asked_for_in_94_bytes() {
    assert_eq!(Service::Http.terabyte().len(), 94);
    assert!(Service::Rpc.terabyte().len() <= 94);
    assert!(Service::Rsocket.terabyte().len() <= 94);
}
