//! HTTP/2 as it is on the wire, for a peer that does what no library would.

use std::fmt;

use crate::net::Peer;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW: u8 = 8;

/// Of [`SETTINGS`] and [`PING`].
pub(crate) const ACK: u8 = 1;
/// Of [`DATA`] and [`HEADERS`].
pub(crate) const LAST: u8 = 1;
/// Of [`HEADERS`], that no more of them follow.
pub(crate) const WHOLE: u8 = 4;

/// `:method GET`, `:scheme http`, `:path /` and `:authority a`, by the numbers that the static table has for them.
pub(crate) const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'a'];
/// `:method POST`, and the same.
pub(crate) const POST: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'a'];
/// `:status 200`.
pub(crate) const OK: &[u8] = &[0x88];

#[derive(PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            flags,
            stream,
            payload,
        } = self;
        let kind = match *kind {
            DATA => "DATA",
            HEADERS => "HEADERS",
            RESET => "RST_STREAM",
            SETTINGS => "SETTINGS",
            PING => "PING",
            GOAWAY => "GOAWAY",
            WINDOW => "WINDOW_UPDATE",
            _ => "another",
        };
        let shown = payload[..payload.len().min(32)].escape_ascii();
        write!(f, "{kind} {flags} of {stream}: {} {shown}", payload.len())
    }
}

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// One setting.
pub(crate) fn setting(number: u16, value: u32) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend(value.to_be_bytes());
    bytes
}

impl Peer {
    /// The next frame.
    pub(crate) async fn frame(&mut self) -> Frame {
        let head = self.exactly(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes(head[5..9].try_into().unwrap()),
            payload: self.exactly(length as usize).await,
        }
    }

    /// The next frame of a kind. Those before it are passed over.
    pub(crate) async fn frame_of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().await;
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Begins as a client, with these settings.
    pub(crate) async fn greet_server(&mut self, settings: &[u8]) {
        self.send(PREFACE).await;
        self.send(frame(SETTINGS, 0, 0, settings)).await;
        self.agree().await;
    }

    /// Begins as a server, with these settings.
    pub(crate) async fn greet_client(&mut self, settings: &[u8]) {
        assert_eq!(self.exactly(PREFACE.len()).await, PREFACE);
        self.send(frame(SETTINGS, 0, 0, settings)).await;
        self.agree().await;
    }

    /// Takes the other side's settings, and waits until it has taken these.
    async fn agree(&mut self) {
        let theirs = self.frame_of(SETTINGS).await;
        assert_eq!(theirs.flags, 0);
        self.send(frame(SETTINGS, ACK, 0, &[])).await;
        let taken = self.frame_of(SETTINGS).await;
        assert_eq!(taken.flags, ACK);
    }
}
