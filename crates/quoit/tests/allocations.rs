//! After warm-up, neither a request nor a datagram costs a heap allocation on the loop's thread.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/counting.rs"]
mod counting;
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use quoit::{
    DatagramOptions, DatagramSend, DatagramSocketId, Datagrams, EngineKind, Event, Events, Gro, Handler,
    Loop, LoopIndex, Token,
};
use support::{Echo, PATIENCE, client, config, engines, guard, listening, tcp};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const CONNECTIONS: usize = 8;

/// How long a turn waits at most: the end of a copied send does not end a wait.
const MOMENT: Duration = Duration::from_millis(1);

/// Rounds of requests: on every connection so many, of so many bytes each.
#[derive(Clone, Copy)]
struct Rounds {
    count: usize,
    depth: usize,
    size: usize,
}

impl Rounds {
    const fn bytes(self) -> u64 {
        (self.count * self.depth * self.size * CONNECTIONS) as u64
    }

    /// All connections send their requests, then all take their answers.
    fn play(self, clients: &mut [TcpStream]) {
        let requests: Vec<u8> = (0..self.depth * self.size).map(|index| index as u8).collect();
        let mut answers = vec![0; requests.len()];
        for _ in 0..self.count {
            for client in &mut *clients {
                // One by one, so that the server may see them one by one.
                for request in requests.chunks(self.size) {
                    client.write_all(request).unwrap();
                }
            }
            for client in &mut *clients {
                client.read_exact(&mut answers).unwrap();
                assert_eq!(answers, requests);
            }
        }
    }
}

/// Allocations of the loop's thread while it answers `measured`, after `warm_up`.
fn allocations(engine: EngineKind, copies: bool, warm_up: Rounds, measured: Rounds) -> u64 {
    let (address, addresses) = std::sync::mpsc::channel::<SocketAddr>();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (mut event_loop, listening_at) = listening(config(engine));
            address.send(listening_at).unwrap();
            let mut handler = Echo { copies };
            let mut events = Events::with_capacity(1024);
            let mut serve_until = |bytes: u64| {
                while event_loop.counters().sent_bytes < bytes {
                    event_loop
                        .run_turn(&mut handler, &mut events, Some(MOMENT))
                        .unwrap();
                }
                counting::allocated().count
            };
            let before = serve_until(warm_up.bytes());
            serve_until(warm_up.bytes() + measured.bytes()) - before
        });
        let address = addresses.recv().unwrap();
        let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| client(address)).collect();
        warm_up.play(&mut clients);
        measured.play(&mut clients);
        server.join().unwrap()
    })
}

#[test]
fn a_request_allocates_nothing() {
    guard(120);
    let single = |count, depth| Rounds {
        count,
        depth,
        size: 512,
    };
    let small = |count, depth| Rounds {
        count,
        depth,
        size: 16,
    };
    for engine in engines() {
        for copies in [false, true] {
            let counted = allocations(engine, copies, single(200, 8), single(1000, 1));
            assert_eq!(counted, 0, "{engine}, copies {copies}: single requests");
            let counted = allocations(engine, copies, small(100, 32), small(100, 32));
            // How the 25,600 requests fall into turns is the scheduler's affair, so a list that is kept may
            // double a last time. Whatever grew with the requests, or only with the 800 bursts, is far above.
            let growth = 5 * CONNECTIONS as u64;
            assert!(
                counted <= growth,
                "{engine}, copies {copies}: {counted} for pipelined requests"
            );
        }
    }
}

/// Each turn waits for a timer, as those of a server with deadlines do.
#[test]
fn a_timer_allocates_nothing() {
    guard(120);
    for engine in engines() {
        let mut event_loop = Loop::new(LoopIndex::default(), config(engine)).unwrap();
        let mut events = Events::with_capacity(8);
        let mut fire = |times: u32| {
            for _ in 0..times {
                event_loop
                    .set_named_timer(Duration::from_micros(1), Token(1))
                    .unwrap();
                let mut fired = false;
                while !fired {
                    event_loop.turn([], &mut events, None).unwrap();
                    fired = events.drain().any(|event| matches!(event, Event::Timer { .. }));
                }
            }
            counting::allocated().count
        };
        let before = fire(100);
        assert_eq!(fire(1000) - before, 0, "{engine}");
    }
}

/// Sends datagrams back, by copy one by one, or from where they lie.
struct EchoDatagrams {
    copies: bool,
}

impl Handler for EchoDatagrams {
    fn on_datagrams(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagrams: Datagrams) {
        if self.copies {
            for datagram in &datagrams {
                let mut answer = DatagramSend::new(datagram.peer(), datagram.bytes());
                answer.source = datagram.local_address();
                event_loop.send_datagram(socket, answer).unwrap();
            }
            return;
        }
        let first = datagrams.first();
        let (peer, local, size) = (first.peer(), first.local_address(), first.segment_size());
        let mut answer = DatagramSend::new(peer, datagrams);
        answer.source = local;
        answer.segment_size = size;
        event_loop.send_datagram(socket, answer).unwrap();
    }
}

/// Allocations of the loop's thread while it answers 20,000 datagrams, after a warm-up.
fn datagram_allocations(engine: EngineKind, copies: bool) -> u64 {
    const BURST: u64 = 16;
    const WARM_UP: u64 = 300;
    const MEASURED: u64 = 1250;
    let (address, addresses) = std::sync::mpsc::channel::<SocketAddr>();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut event_loop = Loop::new(LoopIndex::default(), config(engine)).unwrap();
            let options = DatagramOptions {
                gro: Gro::Transparent,
                receive_local_address: true,
                receive_ecn: true,
                ..DatagramOptions::default()
            };
            let socket = event_loop
                .bind_datagram(&"127.0.0.1:0".parse().unwrap(), &options, Token::NONE)
                .unwrap();
            address
                .send(tcp(event_loop.datagram_address(socket).unwrap()))
                .unwrap();
            let mut handler = EchoDatagrams { copies };
            let mut events = Events::with_capacity(1024);
            let mut serve_until = |count: u64| {
                while event_loop.datagram_counters(socket).unwrap().sent < count {
                    event_loop
                        .run_turn(&mut handler, &mut events, Some(MOMENT))
                        .unwrap();
                }
                counting::allocated().count
            };
            let before = serve_until(WARM_UP * BURST);
            serve_until((WARM_UP + MEASURED) * BURST) - before
        });
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(addresses.recv().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        for round in 0..WARM_UP + MEASURED {
            for _ in 0..BURST {
                client.send(&[round as u8; 200]).unwrap();
            }
            let mut answer = [0; 300];
            for _ in 0..BURST {
                // A thread beside which a ring is taken down may be interrupted (`support::end_of`).
                let length = loop {
                    match client.recv(&mut answer) {
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        result => break result.unwrap(),
                    }
                };
                assert_eq!(answer[..length], [round as u8; 200]);
            }
        }
        server.join().unwrap()
    })
}

#[test]
fn a_datagram_allocates_nothing() {
    guard(120);
    for engine in engines() {
        for copies in [false, true] {
            let counted = datagram_allocations(engine, copies);
            assert_eq!(counted, 0, "{engine}, copies {copies}");
        }
    }
}
