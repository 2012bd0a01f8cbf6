//! The peers of a siege, as threads that each play many.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::kinds::Kind;
use crate::support::{connect, reset};
use crate::wire::Service;

/// Threads that play the peers of one siege.
const THREADS: usize = 2;
/// A round of steps in which nothing could be done is followed by such a rest, so that the machine is left to others.
const REST: Duration = Duration::from_millis(1);

/// The peers of one thread.
pub(crate) struct Peers {
    kind: Kind,
    service: Service,
    address: String,
    peers: Vec<Peer>,
}

struct Peer {
    stream: TcpStream,
    /// What is being sent, and how much of it was taken.
    bytes: Vec<u8>,
    taken: usize,
    /// Requests so far.
    number: u32,
    /// When it has last read.
    read: Instant,
}

/// Connects the peers of this kind, and lets them do what comes before the client that behaves.
pub(crate) fn gather(kind: Kind, service: Service, address: &str) -> Vec<Peers> {
    let count = kind.count().expect("a kind that says how many");
    (0..THREADS)
        .map(|_| {
            let mut peers = Peers {
                kind,
                service,
                address: address.to_owned(),
                peers: (0..count / THREADS)
                    .map(|_| Peer::connect(address, service))
                    .collect(),
            };
            peers.begin();
            peers
        })
        .collect()
}

impl Peers {
    fn begin(&mut self) {
        for peer in &mut self.peers {
            match self.kind {
                Kind::Terabyte
                | Kind::FastReaders
                | Kind::SlowReaders
                | Kind::ByteASecond
                | Kind::Vanished => {
                    peer.send(self.service.terabyte());
                }
                Kind::Beginnings => peer.send(self.service.beginning()),
                Kind::SlowHeads => peer.bytes.extend(self.service.long()),
                Kind::HalfClosed => {
                    peer.send(self.service.terabyte());
                    // The server may have reset it.
                    let _ = peer.stream.shutdown(Shutdown::Write);
                }
                Kind::NeverRead | Kind::Pipeline | Kind::Resets | Kind::Descriptors => {}
            }
        }
        // Those that never read are so far that nothing more is taken of them.
        if matches!(self.kind, Kind::NeverRead | Kind::Pipeline) {
            for _ in 0..50 {
                self.step();
            }
        }
    }

    /// Goes on until it is over; then all of them leave.
    pub(crate) fn go_on(mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            if !self.step() {
                std::thread::park_timeout(REST);
            }
        }
        self.leave();
    }

    /// A reset is lost where the kernel has just dropped what came before it for want of memory, and who has nothing to send
    /// is never told then: to a sink, an end is sent until it has arrived.
    fn leave(self) {
        for peer in self.peers {
            match self.service {
                Service::Sink => drop(peer.stream),
                _ => reset(peer.stream),
            }
        }
    }

    /// What each of them does now and then. Returns whether there may be more to do at once.
    fn step(&mut self) -> bool {
        let mut more = false;
        for peer in &mut self.peers {
            more |= match self.kind {
                Kind::NeverRead => peer.pipeline(|number| self.service.large(number)),
                Kind::Pipeline => peer.pipeline(|number| self.service.small(number)),
                Kind::SlowHeads => {
                    peer.write(1);
                    false
                }
                Kind::FastReaders => peer.read(1 << 20),
                Kind::SlowReaders => {
                    peer.read(1000);
                    false
                }
                Kind::ByteASecond => {
                    if peer.read.elapsed() >= Duration::from_secs(1) {
                        peer.read(1);
                        peer.read = Instant::now();
                    }
                    false
                }
                Kind::Resets => {
                    peer.send(self.service.small(0));
                    peer.send(self.service.beginning());
                    let next = Peer::connect(&self.address, self.service);
                    reset(std::mem::replace(peer, next).stream);
                    true
                }
                Kind::Terabyte | Kind::Beginnings | Kind::HalfClosed | Kind::Vanished | Kind::Descriptors => {
                    false
                }
            };
        }
        more
    }
}

impl Peer {
    fn connect(address: &str, service: Service) -> Self {
        let stream = connect(address);
        stream.set_nonblocking(true).unwrap();
        let mut peer = Self {
            stream,
            bytes: Vec::new(),
            taken: 0,
            number: 0,
            read: Instant::now(),
        };
        peer.send(service.greeting());
        peer
    }

    /// Sends this, as much of it as is taken.
    fn send(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
        self.taken = 0;
        while self.taken < self.bytes.len() && self.write(usize::MAX) {}
    }

    /// Sends the rest of the request that was begun, or some more. Returns whether any was taken.
    fn pipeline(&mut self, request: impl Fn(u32) -> Vec<u8>) -> bool {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
            while self.bytes.len() < 4000 {
                self.bytes.extend(request(self.number));
                self.number += 1;
            }
        }
        self.write(usize::MAX)
    }

    /// Sends so many bytes more. Returns whether any was taken: the server may have closed the connection.
    fn write(&mut self, most: usize) -> bool {
        let rest = &self.bytes[self.taken..];
        match self.stream.write(&rest[..most.min(rest.len())]) {
            Ok(count) => {
                self.taken += count;
                count > 0
            }
            Err(_) => false,
        }
    }

    fn read(&mut self, most: usize) -> bool {
        match self.stream.read(&mut vec![0; most]) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == ErrorKind::Interrupted,
        }
    }
}
