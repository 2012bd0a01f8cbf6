//! The peers of a siege.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{connect, reset};
use crate::target::{Service, Target};

/// What the peers of one siege do, all of them the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Send as much as is taken, and never read what comes back.
    NeverRead,
    /// Send small requests one behind the other, and never read the responses.
    PipelineUnread,
    /// Send the beginning of a request, and nothing more.
    Beginnings,
    /// Send a request byte by byte.
    SlowHeads,
    /// Read without end, as fast as it comes.
    FastReaders,
    /// Read a little now and then of what was asked for.
    SlowReaders,
    /// Connect and reset, over and over, in the midst of a message.
    Resets,
    /// End their direction at once, and read nothing.
    HalfClosed,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverRead => "peers that send and never read",
            Self::PipelineUnread => "peers that pipeline and never read",
            Self::Beginnings => "peers that send beginnings of requests",
            Self::SlowHeads => "peers that send byte by byte",
            Self::FastReaders => "peers that read without end",
            Self::SlowReaders => "peers that read a little now and then",
            Self::Resets => "peers that connect and reset",
            Self::HalfClosed => "peers that end their direction and do not read",
        })
    }
}

/// One peer, or one thread that plays many.
pub(crate) struct Peer {
    kind: Kind,
    service: Service,
    address: String,
    streams: Vec<TcpStream>,
}

/// A step in which nothing could be done waits this long at most, so that the machine is left to the others.
const REST: Duration = Duration::from_millis(1);

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::NeverRead,
        Self::PipelineUnread,
        Self::Beginnings,
        Self::SlowHeads,
        Self::FastReaders,
        Self::SlowReaders,
        Self::Resets,
        Self::HalfClosed,
    ];

    pub(crate) fn concerns(self, service: Service) -> bool {
        match self {
            // An echo sends no more than it gets, and knows no requests.
            Self::FastReaders | Self::SlowReaders | Self::PipelineUnread => service == Service::Http,
            _ => true,
        }
    }

    /// How many there are.
    fn count(self) -> usize {
        match self {
            Self::FastReaders => 8,
            Self::NeverRead | Self::Resets => 60,
            Self::SlowReaders => 100,
            Self::PipelineUnread | Self::Beginnings | Self::SlowHeads | Self::HalfClosed => 400,
        }
    }

    /// Connects them all; two threads play them.
    pub(crate) fn gather(self, target: &Target) -> Vec<Peer> {
        let threads = 2;
        (0..threads)
            .map(|_| {
                let streams = (0..self.count() / threads)
                    .map(|_| {
                        let stream = connect(target.address());
                        stream.set_nonblocking(true).unwrap();
                        stream
                    })
                    .collect();
                let mut peer = Peer {
                    kind: self,
                    service: target.service,
                    address: target.address().to_owned(),
                    streams,
                };
                peer.begin();
                peer
            })
            .collect()
    }
}

impl Peer {
    /// What they do once, before the client that behaves comes.
    fn begin(&mut self) {
        let first: &[u8] = match (self.kind, self.service) {
            (Kind::FastReaders | Kind::SlowReaders, _) => {
                b"GET /bytes/1000000000000 HTTP/1.1\r\nHost: x\r\n\r\n"
            }
            (Kind::Beginnings, Service::Http) => &[b'G'; 94],
            (Kind::Beginnings, _) => b"",
            (Kind::HalfClosed, Service::Http) => b"GET /bytes/100000000 HTTP/1.1\r\nHost: x\r\n\r\n",
            (Kind::HalfClosed, _) => &[b'h'; 100_000],
            _ => b"",
        };
        for stream in &mut self.streams {
            write(stream, first);
            if self.kind == Kind::HalfClosed {
                stream.shutdown(Shutdown::Write).unwrap();
            }
        }
        // Those that never read are so far that nothing more is taken of them.
        if matches!(self.kind, Kind::NeverRead | Kind::PipelineUnread) {
            for _ in 0..50 {
                self.step();
            }
        }
    }

    /// Goes on until it is over; then all of them are gone, with a reset.
    pub(crate) fn go_on(mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            if !self.step() {
                std::thread::park_timeout(REST);
            }
        }
        for stream in self.streams {
            reset(stream);
        }
    }

    /// What each of them does now and then. Answers whether anything was done.
    fn step(&mut self) -> bool {
        let mut any = false;
        let requests = b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n".repeat(50);
        for stream in &mut self.streams {
            any |= match self.kind {
                Kind::NeverRead if self.service == Service::Echo => write(stream, &[b'n'; 65_536]),
                Kind::NeverRead => write(stream, b"GET /bytes/1000000000000 HTTP/1.1\r\nHost: x\r\n\r\n"),
                Kind::PipelineUnread => write(stream, &requests),
                Kind::SlowHeads => {
                    write(stream, b"G");
                    false
                }
                Kind::FastReaders => read(stream, 1 << 20),
                Kind::SlowReaders => {
                    read(stream, 1000);
                    false
                }
                Kind::Resets => {
                    write(stream, b"GET /bytes/1000000 HTTP/1.1\r\nHost");
                    let next = connect(&self.address);
                    next.set_nonblocking(true).unwrap();
                    reset(std::mem::replace(stream, next));
                    true
                }
                Kind::Beginnings | Kind::HalfClosed => false,
            };
        }
        any
    }
}

/// Whether any was taken; the server may have closed it.
fn write(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    matches!(stream.write(bytes), Ok(1..))
}

fn read(stream: &mut TcpStream, most: usize) -> bool {
    match stream.read(&mut vec![0; most]) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == ErrorKind::Interrupted,
    }
}
