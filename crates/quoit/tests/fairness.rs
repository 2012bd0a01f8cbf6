//! No connection keeps another from being served, whatever it does: in its handler's hands, queued for sending or held back,
//! the loop's memory is shared.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use quoit::{Accept, Address, CloseReason, Config, ConnectOptions, ConnectionId, Errno, Events, Handler};
use quoit::{Lease, ListenerId, ListenerOptions, Loop, LoopIndex, Refusal, Token};
use support::{attached, client, config, engines, guard, listening, tcp};

/// Turns in which a well-behaved client is answered, whatever the others do.
const TURNS: usize = 200;

/// A client that takes or sends nothing while the loop's thread waits for it.
fn rude(address: SocketAddr) -> TcpStream {
    let client = client(address);
    client.set_nonblocking(true).unwrap();
    // So that little is on the way, and what matters is what the loop holds.
    socket2::SockRef::from(&client)
        .set_recv_buffer_size(4096)
        .unwrap();
    client
}

/// Sends until the kernel takes no more, or has taken a lot.
fn flood(client: &mut TcpStream, piece: &[u8]) {
    for _ in 0..100 {
        match client.write(piece) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
    }
}

struct Served<H> {
    event_loop: Loop,
    events: Events,
    handler: H,
}

impl<H: Handler> Served<H> {
    fn new(event_loop: Loop, handler: H) -> Self {
        Self {
            event_loop,
            events: Events::with_capacity(256),
            handler,
        }
    }

    fn turn(&mut self, wait: Duration) {
        self.event_loop
            .run_turn(&mut self.handler, &mut self.events, Some(wait))
            .unwrap();
    }

    /// Turns until nothing happens any more.
    fn until_quiet(&mut self) {
        loop {
            let before = self.event_loop.counters().completions;
            self.turn(Duration::from_millis(20));
            if self.event_loop.counters().completions == before {
                return;
            }
        }
    }

    /// Turns until nothing is held any more.
    fn until_all_is_back(&mut self) {
        loop {
            let counters = self.event_loop.counters();
            if (
                counters.pool_leased,
                counters.leases_copied_now,
                counters.queued_bytes,
            ) == (0, 0, 0)
            {
                return;
            }
            self.turn(Duration::from_millis(20));
        }
    }

    /// Lets a client send a message and waits until it has come back.
    fn echoes(&mut self, client: &mut TcpStream, message: &[u8]) {
        client.write_all(message).unwrap();
        let mut back = Vec::new();
        for _ in 0..TURNS {
            self.turn(Duration::from_millis(100));
            let mut bytes = [0; 16 * 1024];
            while let Ok(count @ 1..) = client.read(&mut bytes) {
                back.extend_from_slice(&bytes[..count]);
            }
            if back.len() >= message.len() {
                assert!(back == message, "other bytes came back");
                return;
            }
        }
        panic!(
            "{} of {} bytes came back in {TURNS} turns: {:?}",
            back.len(),
            message.len(),
            self.event_loop.counters()
        );
    }
}

/// Sends back what it receives, as the examples do.
struct Echo;

impl Handler for Echo {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        match event_loop.send(connection, data, Token::NONE) {
            // Reset by its peer behind these bytes.
            Ok(())
            | Err(Refusal::Error(Errno::ECONNRESET | Errno::EPIPE) | Refusal::Closing | Refusal::Stale) => {}
            Err(refusal) => panic!("bytes are lost: {refusal}"),
        }
        if event_loop.is_full(connection) {
            let _ = event_loop.pause(connection);
        }
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        let _ = event_loop.resume(connection);
    }
}

fn serving<H: Handler>(config: Config, handler: H) -> (Served<H>, SocketAddr) {
    let (event_loop, address) = listening(config);
    (Served::new(event_loop, handler), address)
}

/// Clients that send and do not read what comes back hold the memory for as long as they like.
#[test]
fn clients_that_do_not_read_hold_up_nobody() {
    guard(120);
    for engine in engines() {
        for (count, piece) in [(40, &[b'a'; 65_536][..]), (200, &[b'b'; 94])] {
            let (mut served, address) = serving(config(engine), Echo);
            let mut rude: Vec<_> = (0..count).map(|_| rude(address)).collect();
            for _ in 0..6 {
                for client in &mut rude {
                    flood(client, piece);
                }
                served.until_quiet();
            }
            let mut good = client(address);
            good.set_nonblocking(true).unwrap();
            for _ in 0..10 {
                served.echoes(&mut good, b"is anybody there?");
            }
            served.echoes(&mut good, &[7; 10_000]);
            let counters = served.event_loop.counters();
            assert!(
                counters.pool_leased < counters.pool_slots,
                "{engine}: {counters:?}"
            );
            // What they held comes back.
            drop(rude);
            served.until_all_is_back();
        }
    }
}

/// Keeps what it receives, but sends back what begins with a question.
#[derive(Default)]
struct Keeper {
    kept: Vec<Lease>,
}

impl Handler for Keeper {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        if data[0] == b'?' {
            event_loop.send(connection, data, Token::NONE).unwrap();
        } else {
            self.kept.push(data);
        }
    }
}

/// More beginnings of requests than there are slots: what is held of them costs what it is, and not a slot.
#[test]
fn more_holders_than_slots_hold_up_nobody() {
    guard(120);
    for engine in engines() {
        let config = Config {
            receive_slots: 64,
            buffer_ring: 16,
            ..config(engine)
        };
        let (mut served, address) = serving(config, Keeper::default());
        let mut rude: Vec<_> = (0..200).map(|_| rude(address)).collect();
        for round in 0..5 {
            for client in &mut rude {
                assert_eq!(client.write(&[b'a' + round; 94]).unwrap(), 94);
            }
            served.until_quiet();
        }
        let kept: usize = served.handler.kept.iter().map(|lease| lease.len()).sum();
        assert_eq!(kept, 200 * 5 * 94, "{engine}: all was delivered");
        let mut good = client(address);
        good.set_nonblocking(true).unwrap();
        served.echoes(&mut good, &[b'?'; 20_000]);
        // They outlive their connections and their loop.
        drop(rude);
        served.until_quiet();
        let kept = std::mem::take(&mut served.handler.kept);
        drop(served);
        assert!(
            kept.iter()
                .all(|lease| lease.iter().all(|&byte| byte == lease[0]))
        );
    }
}

/// The proxy of the examples.
struct Proxy {
    target: Address,
    other: HashMap<ConnectionId, ConnectionId>,
}

impl Handler for Proxy {
    fn on_accepted(&mut self, event_loop: &mut Loop, client: ConnectionId, _: ListenerId) {
        let server = event_loop
            .connect(&self.target, &ConnectOptions::default(), Token::NONE)
            .unwrap();
        self.other.extend([(client, server), (server, client)]);
    }

    fn on_opened(&mut self, event_loop: &mut Loop, server: ConnectionId, _: Token) {
        self.on_writable(event_loop, server);
    }

    fn on_data(&mut self, event_loop: &mut Loop, from: ConnectionId, data: Lease) {
        let to = self.other[&from];
        event_loop.send(to, data, Token::NONE).unwrap();
        if event_loop.is_full(to) {
            event_loop.pause(from).unwrap();
        }
    }

    fn on_writable(&mut self, event_loop: &mut Loop, to: ConnectionId) {
        let _ = event_loop.resume(self.other[&to]);
    }
}

/// Downloads that nobody reads, through a proxy: their bytes lie in the core's queues, where no handler can copy them.
#[test]
fn slow_downloads_through_a_proxy_hold_up_nobody() {
    const SLOW: usize = 60;
    guard(120);
    for engine in engines() {
        let origin = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Address::Tcp(origin.local_addr().unwrap());
        let mut event_loop = Loop::new(LoopIndex::default(), config(engine)).unwrap();
        let options = ListenerOptions {
            accept: Accept::Paused,
            ..ListenerOptions::default()
        };
        let listener = event_loop
            .listen(&"127.0.0.1:0".parse().unwrap(), &options)
            .unwrap();
        let address = tcp(&event_loop.listener_address(listener).unwrap());
        let other = HashMap::new();
        let mut served = Served::new(event_loop, Proxy { target, other });
        let connect = |served: &mut Served<Proxy>| {
            let near = rude(address);
            served.until_quiet();
            let (far, _) = origin.accept().unwrap();
            far.set_nonblocking(true).unwrap();
            (near, far)
        };
        let mut slow: Vec<_> = (0..SLOW).map(|_| connect(&mut served)).collect();
        for _ in 0..20 {
            for (_, far) in &mut slow {
                flood(far, &[b'd'; 65_536]);
            }
            served.until_quiet();
        }
        let (mut near, mut far) = connect(&mut served);
        for _ in 0..10 {
            let message = [b'm'; 30_000];
            far.write_all(&message).unwrap();
            let mut received = Vec::new();
            for _ in 0..TURNS {
                served.turn(Duration::from_millis(100));
                let mut bytes = [0; 32 * 1024];
                while let Ok(count @ 1..) = near.read(&mut bytes) {
                    received.extend_from_slice(&bytes[..count]);
                }
                if received.len() == message.len() {
                    break;
                }
            }
            assert!(
                received == message,
                "{engine}: {:?}",
                served.event_loop.counters()
            );
        }
    }
}

/// Remembers why connections ended.
#[derive(Default)]
struct Watching {
    pauses: bool,
    connections: Vec<ConnectionId>,
    closed: Vec<CloseReason>,
}

impl Handler for Watching {
    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, _: ListenerId) {
        self.connections.push(connection);
        if self.pauses {
            event_loop.pause(connection).unwrap();
        }
    }

    fn on_closed(&mut self, _: &mut Loop, _: ConnectionId, _: Token, reason: CloseReason) {
        self.closed.push(reason);
    }
}

/// A paused connection receives nothing, but its peer's reset is noticed.
#[test]
fn a_reset_of_a_paused_connection_is_noticed() {
    guard(60);
    for engine in engines() {
        let handler = Watching {
            pauses: true,
            ..Watching::default()
        };
        let (mut served, address) = serving(config(engine), handler);
        let reset = client(address);
        let _goes_on = client(address);
        while served.handler.connections.len() < 2 {
            served.turn(Duration::from_secs(1));
        }
        socket2::SockRef::from(&reset)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(reset);
        while served.handler.closed.is_empty() {
            served.turn(Duration::from_secs(5));
        }
        assert_eq!(served.handler.closed, [CloseReason::Reset], "{engine}");
        assert_eq!(served.event_loop.connections(), 1);
    }
}

/// While memory is short, a connection whose peer takes nothing is closed, and one that reads is not.
#[test]
fn who_takes_nothing_is_closed_while_memory_is_short() {
    guard(60);
    for engine in engines() {
        let config = Config {
            send_chunks: 64,
            stall_limit: Duration::ZERO,
            ..config(engine)
        };
        // Memory of the loop's, until sends are refused, or the handler's own, of which none is.
        for lent in [false, true] {
            let event_loop = Loop::new(LoopIndex::default(), config.clone()).unwrap();
            let mut served = Served::new(event_loop, Watching::default());
            let mut connect = || {
                let (id, far) = attached(&mut served.event_loop);
                let near = served.event_loop.descriptor(id).unwrap();
                socket2::SockRef::from(&near).set_send_buffer_size(4096).unwrap();
                far.set_nonblocking(true).unwrap();
                (id, far)
            };
            let silent: Vec<_> = (0..20).map(|_| connect()).collect();
            let (good, mut reads) = connect();
            if lent {
                for (connection, _) in &silent {
                    served
                        .event_loop
                        .send(*connection, vec![1; 65_536], Token::NONE)
                        .unwrap();
                }
            }
            // Until the sockets are full, and the loop's memory too.
            while served.handler.closed.is_empty() {
                if !lent {
                    for (connection, _) in &silent {
                        while served
                            .event_loop
                            .send(*connection, &[1; 4096], Token::NONE)
                            .is_ok()
                        {}
                    }
                    // It is sent to as much as it likes, and reads as it comes.
                    while served.event_loop.send(good, &[2; 4096], Token::NONE).is_ok() {}
                }
                let mut bytes = [0; 64 * 1024];
                while let Ok(1..) = reads.read(&mut bytes) {}
                served.turn(Duration::from_millis(10));
            }
            assert!(
                served
                    .handler
                    .closed
                    .iter()
                    .all(|&reason| reason == CloseReason::Limit)
            );
            assert!(served.event_loop.descriptor(good).is_some(), "{engine}: it reads");
            assert_eq!(
                served.event_loop.counters().stalled_closed,
                served.handler.closed.len() as u64
            );
        }
    }
}

/// Sends until it is refused, and takes nothing more until it is told of room, as a relay does.
#[derive(Default)]
struct Blocked {
    refused: usize,
    closed: usize,
}

impl Handler for Blocked {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        drop(data);
        while event_loop.send(connection, &[7; 4096], Token::NONE).is_ok() {}
        self.refused += 1;
        let _ = event_loop.pause(connection);
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        loop {
            match event_loop.send(connection, &[7; 4096], Token::NONE) {
                Ok(()) => {}
                Err(Refusal::Full) => return,
                Err(_) => return event_loop.abort(connection).unwrap(),
            }
        }
    }

    fn on_closed(&mut self, _: &mut Loop, _: ConnectionId, _: Token, _: CloseReason) {
        self.closed += 1;
    }
}

/// Who waits for room learns that there will be none, though it takes nothing of what is held back for it.
#[test]
fn a_reset_is_noticed_by_who_waits_for_room() {
    const PEERS: usize = 20;
    guard(60);
    for engine in engines() {
        let config = Config {
            close_deadline: Duration::from_secs(3600),
            ..config(engine)
        };
        let (mut served, address) = serving(config, Blocked::default());
        let mut rude: Vec<_> = (0..PEERS).map(|_| rude(address)).collect();
        for client in &mut rude {
            // More than one receive takes, so that some is held back behind the pause.
            flood(client, &[b'a'; 65_536]);
        }
        while served.handler.refused < PEERS {
            served.turn(Duration::from_secs(1));
        }
        served.until_quiet();
        for client in &rude {
            socket2::SockRef::from(client)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
        }
        drop(rude);
        while served.handler.closed < PEERS {
            served.turn(Duration::from_secs(1));
        }
        assert_eq!(served.event_loop.connections(), 0, "{engine}");
    }
}
