//! What runs under the tracer: a server and its clients on one thread, turn by turn, so that nothing depends on time.

mod bare_epoll;
mod bare_uring;
mod c_abi;
mod quoit_loop;

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::mark::{Mark, Marks};

/// Rounds before those that count: tables have grown, and what is looked up once is known.
const WARM_UP: usize = 40;
/// Rounds that count: requests come, and turns are made until all are taken.
pub(crate) const ROUNDS: usize = 21;
/// A request, and what echo returns.
pub(crate) const REQUEST: usize = 64;
/// A response that is copied: as long as that of `/plaintext`.
pub(crate) const RESPONSE: usize = 130;

/// Who serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Server {
    /// Quoit on io_uring.
    Uring,
    /// Quoit on epoll.
    Epoll,
    /// A loop on io_uring that does nothing but this work.
    BareUring,
    /// The same on epoll.
    BareEpoll,
    /// Quoit on io_uring behind the C ABI, as the front doors of other languages have it.
    UringFromC,
    /// The same on epoll.
    EpollFromC,
}

impl Server {
    pub(crate) const ALL: &[Self] = &[
        Self::Uring,
        Self::Epoll,
        Self::BareUring,
        Self::BareEpoll,
        Self::UringFromC,
        Self::EpollFromC,
    ];

    /// What `ends` compares: there the C ABI adds an event of each connection and nothing else.
    pub(crate) const IN_RUST: &[Self] = &[Self::Uring, Self::Epoll, Self::BareUring, Self::BareEpoll];

    /// Whether it does this work.
    pub(crate) fn does(self, work: Work) -> bool {
        work != Work::Datagram || !matches!(self, Self::UringFromC | Self::EpollFromC)
    }

    pub(crate) fn is_bare(self) -> bool {
        matches!(self, Self::BareUring | Self::BareEpoll)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "quoit, io_uring",
            Self::Epoll => "quoit, epoll",
            Self::BareUring => "bare io_uring",
            Self::BareEpoll => "bare epoll",
            Self::UringFromC => "from C, io_uring",
            Self::EpollFromC => "from C, epoll",
        })
    }
}

/// What is done for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// 64 bytes over TCP are sent back, each request on a connection of its own.
    Echo,
    /// 64 bytes over TCP are answered by 130 others, as `/plaintext` is.
    Response,
    /// 64 bytes in a datagram are sent back, all on one socket.
    Datagram,
}

impl Work {
    pub(crate) const ALL: &[Self] = &[Self::Echo, Self::Response, Self::Datagram];
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Echo => "echo",
            Self::Response => "response",
            Self::Datagram => "datagram",
        })
    }
}

/// A server that is driven turn by turn.
trait Turns {
    /// Where clients reach it.
    fn address(&self) -> SocketAddr;
    /// Takes in a client that has connected, where that is no part of a turn.
    fn accept(&mut self) -> Result<(), String>;
    /// One turn: what was to be sent goes, then it waits and takes in what has come. Returns the requests that it took.
    fn turn(&mut self) -> Result<usize, String>;
}

/// Runs the server with as many requests at once.
pub(crate) fn run(server: Server, work: Work, requests: usize) -> Result<(), String> {
    let mut served: Box<dyn Turns> = match server {
        Server::Uring => Box::new(quoit_loop::Served::new(quoit::EngineKind::Uring, work)?),
        Server::Epoll => Box::new(quoit_loop::Served::new(quoit::EngineKind::Epoll, work)?),
        Server::BareUring => Box::new(bare_uring::Served::new(work)?),
        Server::BareEpoll => Box::new(bare_epoll::Served::new(work)?),
        Server::UringFromC => Box::new(c_abi::Served::new(quoit::EngineKind::Uring, work)?),
        Server::EpollFromC => Box::new(c_abi::Served::new(quoit::EngineKind::Epoll, work)?),
    };
    let mut clients = Clients::new(&mut *served, work, requests)?;
    let marks = Marks::new()?;
    println!("anchor {:#x}", crate::trace::anchor as *const () as usize);
    let mut turns = 0;
    let mut serve = |counts: bool| -> Result<(), String> {
        clients.ask().map_err(|error| format!("asking: {error}"))?;
        if counts {
            marks.set(Mark::Begin);
        }
        let mut taken = 0;
        while taken < requests {
            taken += served.turn()?;
            turns += u64::from(counts);
        }
        if counts {
            marks.set(Mark::End);
        }
        clients.take().map_err(|error| format!("taking: {error}"))
    };
    for _ in 0..WARM_UP {
        serve(false)?;
    }
    for _ in 0..ROUNDS {
        serve(true)?;
    }
    println!("turns {turns}");
    Ok(())
}

/// The next connection of a bare loop's listener; `None`: it has none, as it serves datagrams.
fn accept(listener: Option<&TcpListener>) -> Result<Option<TcpStream>, String> {
    let accepted = listener.map(|listener| {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(stream)
    });
    accepted
        .transpose()
        .map_err(|error: std::io::Error| error.to_string())
}

/// The clients. They ask before a turn; the response to that comes with the next one.
enum Clients {
    Streams(Vec<TcpStream>),
    Datagrams(UdpSocket, usize),
}

impl Clients {
    fn new(served: &mut dyn Turns, work: Work, requests: usize) -> Result<Self, String> {
        let address = served.address();
        let failed = |error: std::io::Error| format!("connecting: {error}");
        if work == Work::Datagram {
            let socket = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
            socket.connect(address).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            return Ok(Self::Datagrams(socket, requests));
        }
        let mut streams = Vec::new();
        for _ in 0..requests {
            let mut stream = TcpStream::connect(address).map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            served.accept()?;
            stream.write_all(&[7; REQUEST]).map_err(failed)?;
            while served.turn()? == 0 {}
            stream.set_nonblocking(true).map_err(failed)?;
            streams.push(stream);
        }
        Ok(Self::Streams(streams))
    }

    fn ask(&mut self) -> std::io::Result<()> {
        match self {
            Self::Streams(streams) => streams
                .iter_mut()
                .try_for_each(|stream| stream.write_all(&[7; REQUEST])),
            Self::Datagrams(socket, count) => {
                (0..*count).try_for_each(|_| socket.send(&[7; REQUEST]).map(drop))
            }
        }
    }

    /// Takes what has come, so that no buffer fills.
    fn take(&mut self) -> std::io::Result<()> {
        let mut buffer = [0; 4096];
        let is_empty = |result: std::io::Result<usize>| match result {
            Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        };
        match self {
            Self::Streams(streams) => {
                for stream in streams {
                    while !is_empty(stream.read(&mut buffer))? {}
                }
            }
            Self::Datagrams(socket, _) => while !is_empty(socket.recv(&mut buffer))? {},
        }
        Ok(())
    }
}
