//! Sends of other threads while the loop sleeps: they arrive, in their order, and end with their connection.
//!
//! A parked loop is a sleeping one, so that most of this needs no second thread and no time.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::{BufReader, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use quoit::{
    CloseReason, Command, Config, ConnectionId, DirectSender, EngineKind, Event, Events, Loop, Payload,
    Refusal, Token,
};
use support::{client, config, engines, guard, listening};

/// A loop, and a client that it has accepted.
struct Served {
    event_loop: Loop,
    address: SocketAddr,
    events: Events,
    client: TcpStream,
    connection: ConnectionId,
}

impl Served {
    fn on(engine: EngineKind) -> Self {
        Self::with(Config {
            pollable: true,
            ..config(engine)
        })
    }

    fn with(config: Config) -> Self {
        let (mut event_loop, address) = listening(config);
        let mut events = Events::with_capacity(64);
        let client = client(address);
        let connection = accepted(&mut event_loop, &mut events);
        Self {
            event_loop,
            address,
            events,
            client,
            connection,
        }
    }

    /// Makes turns until the loop sleeps; returns what they brought.
    fn park(&mut self) -> Vec<Event> {
        let mut brought = Vec::new();
        loop {
            self.event_loop
                .turn([], &mut self.events, Some(Duration::ZERO))
                .unwrap();
            brought.extend(self.events.drain());
            if self.event_loop.park().unwrap() != Some(Duration::ZERO) {
                return brought;
            }
        }
    }

    fn sender(&mut self) -> DirectSender {
        self.event_loop.direct_sender(self.connection).unwrap()
    }

    /// Parks the loop once it finds that to send directly pays: after a burst of such sends it does not, until it has sent some.
    fn lend(&mut self, number: u8) -> DirectSender {
        let sender = self.sender();
        self.park();
        while !sender.is_ready() {
            self.event_loop
                .send(self.connection, &[number][..], Token::NONE)
                .unwrap();
            self.park();
        }
        sender
    }

    /// The client resets its connection; another takes its place.
    fn reset(&mut self) {
        let socket = socket2::SockRef::from(&self.client);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        let another = client(self.address);
        drop(std::mem::replace(&mut self.client, another));
    }

    /// Makes turns that wait until the connection has ended.
    fn closed(&mut self) -> CloseReason {
        loop {
            self.event_loop.turn([], &mut self.events, None).unwrap();
            for event in self.events.drain() {
                if let Event::Closed { reason, .. } = event {
                    return reason;
                }
            }
        }
    }
}

fn accepted(event_loop: &mut Loop, events: &mut Events) -> ConnectionId {
    loop {
        event_loop.turn([], events, None).unwrap();
        for event in events.drain() {
            if let Event::Accepted { connection, .. } = event {
                return connection;
            }
        }
    }
}

fn send(sender: &DirectSender, bytes: &[u8]) -> usize {
    sender.try_send(&[IoSlice::new(bytes)])
}

#[test]
fn what_is_sent_while_the_loop_sleeps_arrives_and_is_counted() {
    guard(60);
    for engine in engines() {
        let mut served = Served::on(engine);
        let sender = served.sender();
        assert_eq!(
            (sender.is_ready(), send(&sender, b"awake")),
            (false, 0),
            "{engine}: the loop sends"
        );
        served.park();
        let before = served.event_loop.counters();
        let pieces = [IoSlice::new(b"hel"), IoSlice::new(b""), IoSlice::new(b"lo")];
        assert!(sender.is_ready());
        assert_eq!(sender.try_send(&pieces), 5, "{engine}");
        let many = vec![IoSlice::new(b"x"); 2000];
        assert_eq!(
            sender.try_send(&many),
            1024,
            "{engine}: as many as one call takes"
        );
        assert_eq!(send(&sender, b""), 0);
        let mut received = [0; 5 + 1024];
        served.client.read_exact(&mut received).unwrap();
        assert_eq!(&received[..6], b"hellox");
        let after = served.event_loop.counters();
        let grown = [
            after.direct_sends - before.direct_sends,
            after.sends - before.sends,
            after.sent_bytes - before.sent_bytes,
            after.send_pieces - before.send_pieces,
            after.wake_writes - before.wake_writes,
        ];
        assert_eq!(grown, [2, 2, 5 + 1024, 3 + 1024, 0], "{engine}");
    }
}

#[test]
fn nothing_overtakes_what_the_loop_was_given() {
    guard(60);
    for engine in engines() {
        let mut served = Served::on(engine);
        let sender = served.sender();
        let (connection, most) = (served.connection, 64 << 20);
        let mut given = 0;
        // Until the socket is full, and something waits in the loop.
        while served.event_loop.queued(connection) == 0 || given == 0 {
            served
                .event_loop
                .send(connection, Bytes::from(vec![1; 1 << 20]), Token::NONE)
                .unwrap();
            given += 1 << 20;
            served.park();
            assert!(given < most, "{engine}: the socket takes everything");
        }
        assert_eq!(
            send(&sender, &[2]),
            0,
            "{engine}: {} wait",
            served.event_loop.queued(connection)
        );
        let reader = std::thread::spawn({
            let mut client = served.client.try_clone().unwrap();
            move || {
                let mut received = vec![0; given + 1];
                client.read_exact(&mut received).unwrap();
                received
            }
        });
        while served.event_loop.queued(connection) > 0 {
            served.event_loop.turn([], &mut served.events, None).unwrap();
            served.events.drain().for_each(drop);
        }
        // The last of it is with the kernel when the loop sleeps and has nothing more of it.
        served.park();
        // Full as it may be yet.
        while send(&sender, &[2]) == 0 {
            std::thread::yield_now();
        }
        let received = reader.join().unwrap();
        assert_eq!(
            received.iter().position(|byte| *byte == 2),
            Some(given),
            "{engine}"
        );
    }
}

#[test]
fn it_ends_with_the_direction() {
    guard(60);
    type End = fn(&mut Loop, ConnectionId) -> Result<(), Refusal>;
    let ends: [End; 3] = [
        |event_loop, connection| event_loop.shutdown(connection),
        |event_loop, connection| event_loop.close(connection, None),
        |event_loop, connection| event_loop.abort(connection),
    ];
    for engine in engines() {
        for end in ends {
            let mut served = Served::on(engine);
            let sender = served.sender();
            served.park();
            assert_eq!(send(&sender, b"before"), 6);
            end(&mut served.event_loop, served.connection).unwrap();
            assert_eq!(send(&sender, b"behind"), 0, "{engine}");
            served.park();
            assert_eq!(send(&sender, b"behind"), 0, "{engine}");
            let mut received = Vec::new();
            // Of a reset nothing else is to be seen.
            let _ = served.client.read_to_end(&mut received);
            assert!(b"before".starts_with(&received[..]), "{engine}: {received:?}");
            assert!(served.event_loop.direct_sender(served.connection).is_err());
        }
    }
}

/// What a handler sees of a connection whose peer resets it is the same whether other threads have sent on it or not.
#[test]
fn a_failure_is_the_loops_to_tell() {
    guard(60);
    let reset = |engine, directly: bool| {
        let mut served = Served::on(engine);
        let sender = served.sender();
        // What comes is left in the socket, so that the reset is not received before it is sent into.
        served.event_loop.pause(served.connection).unwrap();
        served.park();
        served.reset();
        if directly {
            assert_eq!(send(&sender, b"into the reset"), 0, "{engine}");
        }
        // Refused if the reset was received after all.
        let _ = served
            .event_loop
            .send(served.connection, &b"into the reset"[..], Token::NONE);
        let reason = served.closed();
        assert_eq!(send(&sender, b"behind"), 0);
        reason
    };
    for engine in engines() {
        let reason = reset(engine, false);
        assert_eq!(reason, CloseReason::Reset, "{engine}");
        assert_eq!(reset(engine, true), reason, "{engine}");
    }
}

/// The kernel tells a reset once. Told to a thread that sends, it must not look like an end in order to the loop, which receives.
#[test]
fn a_reset_that_a_thread_is_told_is_no_end_of_the_stream() {
    guard(60);
    let told = |engine, directly: bool| {
        let mut served = Served::on(engine);
        let sender = served.sender();
        served.park();
        served.reset();
        if directly {
            assert_eq!(send(&sender, b"into the reset"), 0, "{engine}");
        }
        loop {
            served.event_loop.turn([], &mut served.events, None).unwrap();
            for event in served.events.drain() {
                match event {
                    Event::Accepted { .. } => {}
                    Event::Closed { reason, .. } => return format!("{reason:?}"),
                    other => return format!("{other:?}"),
                }
            }
        }
    };
    for engine in engines() {
        assert_eq!(told(engine, false), "Reset", "{engine}");
        assert_eq!(told(engine, true), "Reset", "{engine}: told to a thread first");
    }
}

/// Of what the loop submits before it sleeps it may not know the end until it wakes. Where it is woken for nothing but such
/// sends, the one behind it leaves directly nevertheless, if a thread would have sent before.
#[test]
fn what_the_loop_has_sent_keeps_nobody_from_sending() {
    guard(60);
    for engine in engines() {
        let mut served = Served::with(config(engine));
        let sender = served.sender();
        let remote = served.event_loop.remote();
        let (connection, mut client) = (served.connection, served.client.try_clone().unwrap());
        let (commands, given) = mpsc::channel();
        let sending = std::thread::spawn(move || {
            // How long it takes until the loop sleeps nobody tells.
            let wait = || {
                while !sender.is_ready() {
                    std::thread::yield_now();
                }
            };
            let mut received = [0];
            wait();
            for round in ["is submitted", "is sent by a call, as a thread would have sent"] {
                assert_eq!(send(&sender, b""), 0);
                let command = Command::Send {
                    connection,
                    payload: Payload::Copy(b"l"),
                    token: Token::NONE,
                };
                commands.send(command).unwrap();
                remote.wake();
                client.read_exact(&mut received).unwrap();
                assert_eq!(&received, b"l", "{round}");
            }
            wait();
            assert_eq!(send(&sender, b"d"), 1);
            client.read_exact(&mut received).unwrap();
            assert_eq!(&received, b"d");
            drop(commands);
            remote.wake();
        });
        loop {
            // Submitted by the call that then sleeps.
            let next = match given.try_recv() {
                Ok(command) => Some(command),
                Err(mpsc::TryRecvError::Empty) => None,
                Err(mpsc::TryRecvError::Disconnected) => break,
            };
            served.event_loop.turn(next, &mut served.events, None).unwrap();
            served.events.drain().for_each(drop);
        }
        sending
            .join()
            .unwrap_or_else(|_| panic!("{engine}: what is above"));
    }
}

/// A thread that sends without an end, each connection's number on it and nothing else.
struct Sending {
    next: mpsc::Sender<(u8, DirectSender)>,
    sent: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Sending {
    fn begin() -> Self {
        let (next, given) = mpsc::channel::<(u8, DirectSender)>();
        let (sent, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (sent, ended) = (Arc::clone(&sent), Arc::clone(&ended));
            move || {
                let Ok(mut current) = given.recv() else { return };
                while !ended.load(Ordering::Relaxed) {
                    // The last one is kept, as a stale one does no harm.
                    if let Ok(newer) = given.try_recv() {
                        current = newer;
                    }
                    let (number, sender) = &current;
                    sent.fetch_add(send(sender, &[*number; 100]) as u64, Ordering::Relaxed);
                }
            }
        });
        Self {
            next,
            sent,
            ended,
            thread,
        }
    }

    /// Goes on with this connection; returns when something has left on it.
    fn go_on(&self, number: u8, sender: DirectSender) {
        let before = self.sent.load(Ordering::Relaxed);
        self.next.send((number, sender)).unwrap();
        while self.sent.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
    }

    fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Descriptors are used again at once. A send that began before its connection was closed would arrive at another's peer.
#[test]
fn no_socket_is_closed_under_a_send() {
    guard(120);
    for engine in engines() {
        let mut served = Served::on(engine);
        let sending = Sending::begin();
        for number in 1..=200 {
            let sender = served.lend(number);
            sending.go_on(number, sender);
            served.event_loop.abort(served.connection).unwrap();
            served.client.set_nonblocking(false).unwrap();
            let reading = served.client.try_clone().unwrap();
            assert_eq!(served.closed(), CloseReason::Local);
            let all = BufReader::new(reading)
                .bytes()
                .map_while(Result::ok)
                .all(|byte| byte == number);
            assert!(all, "{engine}: connection {number} has got another's bytes");
            served.client = client(served.address);
            served.connection = accepted(&mut served.event_loop, &mut served.events);
        }
        let sender = served.lend(201);
        sending.go_on(201, sender);
        let Served {
            event_loop,
            mut client,
            ..
        } = served;
        // The loop waits for the send that is under way.
        drop(event_loop);
        client.write_all(b"still there?").ok();
        assert!(
            BufReader::new(client)
                .bytes()
                .map_while(Result::ok)
                .all(|byte| byte == 201)
        );
        sending.end();
    }
}
