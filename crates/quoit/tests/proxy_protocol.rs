//! Headers of the PROXY protocol before the bytes of real connections, on both engines.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use quoit::proxy_protocol::{
    Addresses, Header, HeaderError, Proxied, ProxyOptions, ProxyProtocol, Refused, Version,
};
use quoit::{
    Accept, Address, AttachOptions, CloseReason, Config, ConnectionId, Events, Handler, Lease, ListenerId,
    ListenerOptions, Loop, LoopIndex, Token,
};
use support::{client, config, end_of, engines, guard, tcp};

/// What a handler was told, in its order.
#[derive(PartialEq, Debug)]
enum Told {
    Accepted,
    Proxied(Option<Addresses>),
    Opened,
    Data(Vec<u8>),
    Ended,
    Refused(Refused),
    Closed(CloseReason),
}

/// What the handler does with a connection when it has its header.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Then {
    Nothing,
    Pause,
    Abort,
}

struct Seen {
    told: Vec<Told>,
    then: Then,
    connection: Option<ConnectionId>,
    was_paused: bool,
    timers: usize,
}

impl Seen {
    /// All data, and what else was told.
    fn joined(&self) -> (Vec<u8>, Vec<&Told>) {
        let mut data = Vec::new();
        let mut others = Vec::new();
        for told in &self.told {
            match told {
                Told::Data(bytes) => data.extend_from_slice(bytes),
                other => others.push(other),
            }
        }
        (data, others)
    }
}

impl Handler for Seen {
    fn on_accepted(&mut self, _: &mut Loop, _: ConnectionId, _: ListenerId) {
        self.told.push(Told::Accepted);
    }

    fn on_opened(&mut self, _: &mut Loop, _: ConnectionId, _: Token) {
        self.told.push(Told::Opened);
    }

    fn on_data(&mut self, _: &mut Loop, _: ConnectionId, data: Lease) {
        self.told.push(Told::Data(data.to_vec()));
    }

    fn on_end_of_stream(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        self.told.push(Told::Ended);
        let _ = event_loop.close(connection, None);
    }

    fn on_closed(&mut self, _: &mut Loop, _: ConnectionId, _: Token, reason: CloseReason) {
        self.told.push(Told::Closed(reason));
    }

    fn on_timer(&mut self, _: &mut Loop, _: Token) {
        self.timers += 1;
    }
}

impl Proxied for Seen {
    fn on_proxied(
        &mut self,
        event_loop: &mut Loop,
        connection: ConnectionId,
        _: ListenerId,
        header: &Header,
    ) {
        self.told.push(Told::Proxied(header.addresses.clone()));
        self.connection = Some(connection);
        self.was_paused = event_loop.is_paused(connection);
        match self.then {
            Then::Nothing => {}
            Then::Pause => event_loop.pause(connection).unwrap(),
            Then::Abort => event_loop.abort(connection).unwrap(),
        }
    }

    fn on_refused_header(&mut self, event_loop: &mut Loop, connection: ConnectionId, refused: Refused) {
        assert!(event_loop.peer_address(connection).is_some());
        self.told.push(Told::Refused(refused));
    }
}

/// A loop with a listener, whose turns the test makes.
struct Bench {
    event_loop: Loop,
    handler: ProxyProtocol<Seen>,
    events: Events,
    address: SocketAddr,
}

impl Bench {
    fn new(config: Config, accept: Accept, then: Then, within: Duration) -> Self {
        let mut event_loop = Loop::new(LoopIndex::default(), config).unwrap();
        let options = ListenerOptions {
            accept,
            ..ListenerOptions::default()
        };
        let listener = event_loop
            .listen(&"127.0.0.1:0".parse().unwrap(), &options)
            .unwrap();
        let address = tcp(&event_loop.listener_address(listener).unwrap());
        let seen = Seen {
            told: Vec::new(),
            then,
            connection: None,
            was_paused: false,
            timers: 0,
        };
        let options = ProxyOptions {
            within,
            ..ProxyOptions::default()
        };
        Self {
            event_loop,
            handler: ProxyProtocol::new(seen, options),
            events: Events::with_capacity(64),
            address,
        }
    }

    /// One that nothing is special of.
    fn plain(config: Config) -> Self {
        Self::new(
            config,
            Accept::Connections,
            Then::Nothing,
            Duration::from_secs(60),
        )
    }

    fn turn(&mut self, timeout: Duration) -> bool {
        self.event_loop
            .run_turn(&mut self.handler, &mut self.events, Some(timeout))
            .unwrap()
    }

    fn until(&mut self, mut is_there: impl FnMut(&mut Self) -> bool) {
        while !is_there(self) {
            self.turn(Duration::from_millis(10));
        }
    }

    fn until_received(&mut self, bytes: usize) {
        self.until(|bench| bench.event_loop.counters().received_bytes >= bytes as u64);
    }

    fn until_closed(&mut self) {
        self.until(|bench| bench.event_loop.counters().accepted == 1 && bench.event_loop.connections() == 0);
    }

    fn seen(&self) -> &Seen {
        self.handler.handler()
    }

    /// The counts that are not zero, without what all names begin with.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        let figures = self.handler.counters().figures().into_iter();
        figures
            .filter(|(.., count)| *count > 0)
            .map(|(name, _, _, count)| (name.strip_prefix("proxy_protocol_").unwrap(), count))
            .collect()
    }
}

fn addresses() -> Addresses {
    Addresses {
        source: "192.0.2.7:56324".parse().unwrap(),
        destination: "198.51.100.1:443".parse().unwrap(),
    }
}

fn header(version: Version, addresses: Option<Addresses>) -> Vec<u8> {
    let mut header = Header::new(addresses);
    header.version = version;
    header.encode()
}

fn unix_addresses() -> Addresses {
    Addresses {
        source: Address::UnixAbstract(b"client"[..].into()),
        destination: "unix:/run/app.sock".parse().unwrap(),
    }
}

#[test]
fn a_header_may_be_cut_anywhere() {
    guard(300);
    let behind = b"hello";
    for engine in engines() {
        for (header, named) in [
            (header(Version::One, Some(addresses())), Some(addresses())),
            (header(Version::Two, Some(addresses())), Some(addresses())),
            (
                header(Version::Two, Some(unix_addresses())),
                Some(unix_addresses()),
            ),
            (header(Version::One, None), None),
            (header(Version::Two, None), None),
        ] {
            let bytes = [&header[..], behind].concat();
            for cut in 0..bytes.len() {
                let mut bench = Bench::plain(config(engine));
                let mut client = client(bench.address);
                client.write_all(&bytes[..cut]).unwrap();
                bench.until_received(cut);
                let is_known = cut >= header.len();
                assert_eq!(!bench.seen().told.is_empty(), is_known, "{engine} {cut}");
                client.write_all(&bytes[cut..]).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                bench.until_closed();
                let (data, others) = bench.seen().joined();
                assert_eq!(data, behind, "{engine} {cut}");
                assert_eq!(
                    others,
                    [
                        &Told::Proxied(named.clone()),
                        &Told::Ended,
                        &Told::Closed(CloseReason::PeerClosed)
                    ],
                    "{engine} {cut}"
                );
                let count = if named.is_some() { "proxied" } else { "local" };
                assert_eq!(bench.counts(), [(count, 1)]);
            }
        }
    }
}

/// Whether a listener or a handler pauses it: nothing of what follows the header is delivered before it is resumed, and nothing
/// is lost or in another order, although the next pieces come in the same turn.
#[test]
fn what_is_behind_the_header_waits_for_a_paused_connection() {
    guard(120);
    for engine in engines() {
        for (accept, then) in [
            (Accept::Paused, Then::Nothing),
            (Accept::Paused, Then::Pause),
            (Accept::Connections, Then::Pause),
        ] {
            let config = Config {
                receive_slot_size: 64,
                ..config(engine)
            };
            let is_paused = matches!(accept, Accept::Paused);
            let mut bench = Bench::new(config, accept, then, Duration::from_secs(60));
            let mut header = Header::new(Some(addresses()));
            header.push_value(5, &[7; 100]).unwrap();
            let behind: Vec<u8> = (0..900_u32).flat_map(u32::to_be_bytes).collect();
            let mut client = client(bench.address);
            client
                .write_all(&[header.encode(), behind.clone()].concat())
                .unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            bench.until(|bench| !bench.seen().told.is_empty());
            assert_eq!(bench.seen().was_paused, is_paused, "{engine}");
            for _ in 0..20 {
                bench.turn(Duration::ZERO);
            }
            assert_eq!(bench.seen().told, [Told::Proxied(Some(addresses()))], "{engine}");
            let connection = bench.seen().connection.unwrap();
            bench.event_loop.resume(connection).unwrap();
            bench.until_closed();
            let (data, others) = bench.seen().joined();
            assert!(
                data == behind,
                "{engine}: {} bytes of {}",
                data.len(),
                behind.len()
            );
            assert_eq!(
                others[1..],
                [&Told::Ended, &Told::Closed(CloseReason::PeerClosed)]
            );
        }
    }
}

#[test]
fn a_handler_that_aborts_is_told_no_more() {
    guard(60);
    for engine in engines() {
        let mut bench = Bench::new(
            config(engine),
            Accept::Connections,
            Then::Abort,
            Duration::from_secs(60),
        );
        let mut client = client(bench.address);
        client.write_all(b"PROXY UNKNOWN\r\nhello").unwrap();
        bench.until_closed();
        assert_eq!(
            bench.seen().told,
            [Told::Proxied(None), Told::Closed(CloseReason::Local)],
            "{engine}"
        );
    }
}

#[track_caller]
fn is_reset(client: &mut TcpStream) {
    assert_eq!(end_of(client).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn what_is_no_header_ends_its_connection() {
    guard(120);
    let long = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x10\x00"[..], &[0; 100]].concat();
    for engine in engines() {
        for (bytes, error) in [
            (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], HeaderError::Missing),
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\nhello", HeaderError::Line),
            (&[b'\r'; 200], HeaderError::Missing),
            (&long, HeaderError::TooLong { limit: 4096 }),
        ] {
            let mut bench = Bench::plain(config(engine));
            let mut client = client(bench.address);
            client.write_all(bytes).unwrap();
            bench.until_closed();
            assert_eq!(
                bench.seen().told,
                [Told::Refused(Refused::Malformed(error))],
                "{engine}"
            );
            assert_eq!(bench.counts(), [("malformed", 1)]);
            is_reset(&mut client);
        }
    }
}

#[test]
fn a_header_has_a_time() {
    guard(120);
    for engine in engines() {
        for bytes in [&b""[..], b"PROXY TCP4 192.0.2.7"] {
            for accept in [Accept::Connections, Accept::Paused] {
                let mut bench = Bench::new(config(engine), accept, Then::Nothing, Duration::from_millis(50));
                let mut client = client(bench.address);
                client.write_all(bytes).unwrap();
                bench.until_closed();
                assert_eq!(bench.seen().told, [Told::Refused(Refused::Late)], "{engine}");
                assert_eq!(bench.counts(), [("late", 1)]);
                is_reset(&mut client);
            }
        }
    }
}

/// The time is the header's alone.
#[test]
fn behind_its_header_a_connection_has_no_deadline() {
    guard(120);
    for engine in engines() {
        let within = Duration::from_millis(200);
        let mut bench = Bench::new(config(engine), Accept::Connections, Then::Nothing, within);
        let mut client = client(bench.address);
        client.write_all(b"PROXY UNKNOWN\r\n").unwrap();
        bench.until(|bench| bench.event_loop.counters().accepted == 1);
        // What is not there in time on a machine that stands still is told as late, and is another test's.
        bench.until(|bench| !bench.seen().told.is_empty());
        if bench.seen().told == [Told::Refused(Refused::Late)] {
            continue;
        }
        bench.event_loop.set_named_timer(within * 2, Token(1)).unwrap();
        bench.until(|bench| bench.seen().timers == 1);
        assert_eq!(bench.seen().told, [Told::Proxied(None)], "{engine}");
        client.shutdown(Shutdown::Write).unwrap();
        bench.until_closed();
    }
}

#[test]
fn a_peer_may_end_before_its_header() {
    guard(120);
    for engine in engines() {
        let mut bench = Bench::plain(config(engine));
        let mut check = client(bench.address);
        check.shutdown(Shutdown::Write).unwrap();
        bench.until_closed();
        assert_eq!(bench.seen().told, [Told::Refused(Refused::Ended)], "{engine}");
        end_of(&mut check).unwrap();

        let mut bench = Bench::plain(config(engine));
        let mut half = client(bench.address);
        half.write_all(b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r").unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        bench.until_closed();
        assert_eq!(bench.seen().told, [Told::Refused(Refused::Ended)], "{engine}");
        assert_eq!(bench.counts(), [("ended", 1)]);
        is_reset(&mut half);
    }
}

#[test]
fn a_drain_closes_connections_without_a_header() {
    guard(60);
    for engine in engines() {
        let mut bench = Bench::plain(config(engine));
        let mut silent = client(bench.address);
        silent.write_all(b"PROXY ").unwrap();
        bench.until_received(6);
        bench.event_loop.drain(Duration::from_secs(60));
        while bench.turn(Duration::from_millis(10)) {
            // The close waits for the peer's end.
            if bench.event_loop.connections() == 1 {
                let _ = silent.shutdown(Shutdown::Write);
            }
        }
        end_of(&mut silent).unwrap();
        assert_eq!(bench.seen().told, [], "{engine}");
    }
}

#[test]
fn other_connections_pass_as_they_are() {
    guard(60);
    for engine in engines() {
        let mut bench = Bench::plain(config(engine));
        let (near, mut far) = UnixStream::pair().unwrap();
        bench
            .event_loop
            .attach(near.into(), &AttachOptions::default(), Token::NONE)
            .unwrap();
        far.write_all(b"no header").unwrap();
        drop(far);
        bench.until(|bench| matches!(bench.seen().told.last(), Some(Told::Closed(_))));
        let (data, others) = bench.seen().joined();
        assert_eq!(data, b"no header", "{engine}");
        assert_eq!(others[..2], [&Told::Opened, &Told::Ended], "{engine}");
    }
}
