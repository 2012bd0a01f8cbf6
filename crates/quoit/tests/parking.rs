//! Loops that wait on a poller of somebody else's: nothing that happens meanwhile may be missed. A loop that misses
//! something sleeps until the guard ends the process.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use quoit::Missing;
use quoit::{
    Address, Config, DatagramOptions, DatagramSend, EngineKind, Errno, Event, Events, Feature, Lease,
    ListenerOptions, Loop, LoopIndex, Token, TurnError,
};
use support::{config, engines, guard, listening};

/// The defaults on one engine, for a poller outside.
fn pollable(engine: EngineKind) -> Config {
    Config {
        pollable: true,
        ..config(engine)
    }
}

/// Every way to run a ring that decides how its notifier is written, and epoll.
fn levels() -> Vec<Config> {
    let mut levels = Vec::new();
    for engine in engines() {
        levels.push(pollable(engine));
        if engine == EngineKind::Uring {
            let mut plain = pollable(engine);
            plain.without.insert(Feature::CooperativeTaskrun);
            let mut oldest = pollable(engine);
            oldest.without = quoit::FeatureSet::ALL.without(quoit::FeatureSet::OLDEST);
            levels.extend([plain, oldest]);
        }
    }
    levels
}

/// Each of those beside a poller of either kind.
fn cases() -> Vec<(Config, Poller)> {
    let both = |config: Config| [false, true].map(|edges| (config.clone(), Poller::new(edges)));
    levels().into_iter().flat_map(both).collect()
}

/// A foreign poller.
struct Poller {
    epoll: OwnedFd,
    /// It is told each write of what it watches (`EPOLLET`), and not that it is readable.
    edges: bool,
    watches: bool,
}

impl Poller {
    fn new(edges: bool) -> Self {
        // SAFETY: epoll_create1(2) takes no pointers.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0);
        Self {
            // SAFETY: made just now, and owned by nobody else.
            epoll: unsafe { OwnedFd::from_raw_fd(epoll) },
            edges,
            watches: false,
        }
    }

    /// Waits on the loop's descriptor alone. Returns whether it was told something.
    fn wait(&mut self, event_loop: &Loop, limit: Option<Duration>) -> bool {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32 | if self.edges { libc::EPOLLET as u32 } else { 0 },
            u64: 0,
        };
        if !std::mem::replace(&mut self.watches, true) {
            let descriptor = event_loop.poll_descriptor().unwrap().as_raw_fd();
            // SAFETY: both descriptors are open and the event is valid.
            let added = unsafe {
                libc::epoll_ctl(
                    self.epoll.as_raw_fd(),
                    libc::EPOLL_CTL_ADD,
                    descriptor,
                    &raw mut event,
                )
            };
            assert_eq!(added, 0);
        }
        let limit = limit.map_or(-1, |limit| limit.as_millis() as i32 + 1);
        loop {
            // SAFETY: room for one event.
            match unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, limit) } {
                // The kernel interrupts the wait to run the ring's work, as it does for a signal.
                -1 => assert_eq!(Errno::last(), Errno::EINTR),
                told => return told == 1,
            }
        }
    }

    fn try_park(&self, event_loop: &mut Loop) -> Option<Duration> {
        if self.edges {
            event_loop.park_edge_triggered().unwrap()
        } else {
            event_loop.park().unwrap()
        }
    }

    /// Turns that do not wait until the loop may be parked. Returns how long.
    fn park(
        &self,
        event_loop: &mut Loop,
        events: &mut Events,
        mut handle: impl FnMut(&mut Loop, Event),
    ) -> Option<Duration> {
        loop {
            event_loop.turn([], events, Some(Duration::ZERO)).unwrap();
            let happened: Vec<_> = events.drain().collect();
            happened.into_iter().for_each(|event| handle(event_loop, event));
            let limit = self.try_park(event_loop);
            if limit != Some(Duration::ZERO) {
                return limit;
            }
        }
    }
}

/// Serves until `closes` connections have closed, with no wait but on the descriptor.
fn echo(event_loop: &mut Loop, poller: &mut Poller, mut closes: usize) {
    let mut events = Events::with_capacity(64);
    while closes > 0 {
        let limit = poller.park(event_loop, &mut events, |event_loop, event| match event {
            Event::Data { connection, data } => event_loop.send(connection, data, Token::NONE).unwrap(),
            Event::EndOfStream { connection } => event_loop.close(connection, None).unwrap(),
            Event::Closed { .. } => closes -= 1,
            _ => {}
        });
        if closes > 0 {
            poller.wait(event_loop, limit);
        }
    }
}

fn round_trips(address: SocketAddr, count: usize) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_nodelay(true).unwrap();
    let mut answer = [0; 64];
    for round in 0..count {
        let message = [round as u8; 64];
        client.write_all(&message).unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, message);
    }
}

#[test]
fn a_parked_loop_misses_nothing() {
    guard(120);
    for (config, mut poller) in cases() {
        let (mut event_loop, address) = listening(config);
        std::thread::scope(|scope| {
            // More at once than the kernel does of deferred work in one go.
            for _ in 0..8 {
                scope.spawn(move || round_trips(address, 200));
            }
            scope.spawn(move || {
                let mut clients: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
                for round in 0..20u8 {
                    clients
                        .iter_mut()
                        .for_each(|client| client.write_all(&[round; 10]).unwrap());
                    for client in &mut clients {
                        let mut answer = [0; 10];
                        client.read_exact(&mut answer).unwrap();
                        assert_eq!(answer, [round; 10]);
                    }
                }
            });
            echo(&mut event_loop, &mut poller, 108);
        });
    }
}

#[test]
fn other_threads_reach_a_parked_loop() {
    guard(120);
    for (config, mut poller) in cases() {
        let (mut event_loop, address) = listening(Config {
            leases_per_connection: 1,
            ..config
        });
        let remote = event_loop.remote();
        let mut events = Events::with_capacity(64);
        let (leases, returned) = mpsc::channel::<Lease>();
        let (woken, rounds) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..500 {
                    remote.wake();
                    rounds.recv().unwrap();
                }
                // A connection that holds its one lease receives no more until another thread returns it.
                let mut client = TcpStream::connect(address).unwrap();
                client.write_all(&[7; 100_000]).unwrap();
            });
            scope.spawn(move || returned.into_iter().for_each(drop));
            let mut received = 0;
            let mut done = false;
            while !done {
                let limit = poller.park(&mut event_loop, &mut events, |event_loop, event| match event {
                    Event::Woken => woken.send(()).unwrap(),
                    Event::Data { data, .. } => {
                        received += data.len();
                        leases.send(data).unwrap();
                    }
                    Event::EndOfStream { connection } => event_loop.close(connection, None).unwrap(),
                    Event::Closed { .. } => done = true,
                    _ => {}
                });
                if !done {
                    poller.wait(&event_loop, limit);
                }
            }
            drop(leases);
            assert_eq!(received, 100_000);
        });
    }
}

#[test]
fn parking_lasts_until_the_next_timer() {
    guard(60);
    for (config, mut poller) in cases() {
        let (mut event_loop, _) = listening(config);
        let mut events = Events::with_capacity(4);
        assert_eq!(
            poller.try_park(&mut event_loop),
            Some(Duration::ZERO),
            "no turn has been made yet"
        );
        assert_eq!(poller.park(&mut event_loop, &mut events, |_, _| ()), None);
        let begin = Instant::now();
        event_loop
            .set_named_timer(Duration::from_millis(30), Token(3))
            .unwrap();
        let mut fired = false;
        while !fired {
            let limit = poller.park(&mut event_loop, &mut events, |_, event| {
                fired |= matches!(event, Event::Timer { token: Token(3) });
            });
            if !fired {
                assert!(limit.unwrap() <= Duration::from_millis(31));
                poller.wait(&event_loop, limit);
            }
        }
        assert!(begin.elapsed() >= Duration::from_millis(30));
        let elsewhere = std::thread::scope(|scope| {
            let moved = &mut event_loop;
            scope.spawn(move || moved.park()).join().unwrap()
        });
        assert_eq!(elsewhere, Err(TurnError::WrongThread));
    }
}

/// A loop that was never asked for its descriptor is ready to be parked all the same: whatever comes between parking
/// and asking is told.
#[test]
fn parking_before_asking_for_the_descriptor() {
    guard(60);
    for (config, mut poller) in cases() {
        let (mut event_loop, address) = listening(config);
        let mut events = Events::with_capacity(4);
        assert_eq!(poller.park(&mut event_loop, &mut events, |_, _| ()), None);
        let _client = TcpStream::connect(address).unwrap();
        event_loop.remote().wake();
        assert!(poller.wait(&event_loop, None));
        let mut seen = (false, false);
        while seen != (true, true) {
            let limit = poller.park(&mut event_loop, &mut events, |_, event| match event {
                Event::Accepted { .. } => seen.0 = true,
                Event::Woken => seen.1 = true,
                _ => {}
            });
            if seen != (true, true) {
                poller.wait(&event_loop, limit);
            }
        }
    }
}

/// What is queued between a turn and parking must not wait for a wake that nobody sends.
#[test]
fn work_queued_after_the_last_turn_is_not_parked_on() {
    guard(60);
    for (config, mut poller) in cases() {
        let (mut event_loop, address) = listening(config);
        let mut events = Events::with_capacity(4);
        assert_eq!(poller.park(&mut event_loop, &mut events, |_, _| ()), None);
        event_loop
            .connect(&address.into(), &quoit::ConnectOptions::default(), Token(1))
            .unwrap();
        // Without a turn: if parking is allowed now, the attempt is with the kernel, and its end is told.
        let limit = poller.try_park(&mut event_loop);
        if limit != Some(Duration::ZERO) {
            poller.wait(&event_loop, limit);
        }
        let mut opened = false;
        while !opened {
            let limit = poller.park(&mut event_loop, &mut events, |_, event| {
                opened |= matches!(event, Event::Opened { token: Token(1), .. });
            });
            if !opened {
                poller.wait(&event_loop, limit);
            }
        }
    }
}

/// A loop that was not made for a poller outside says so, before its first turn and after it, and goes on.
#[test]
fn a_loop_that_was_not_made_for_it_cannot_be_parked() {
    guard(60);
    for engine in engines() {
        let (mut event_loop, address) = listening(config(engine));
        let mut events = Events::with_capacity(4);
        for _ in 0..2 {
            let error = event_loop.poll_descriptor().unwrap_err();
            assert!(error.to_string().contains("set `pollable`"), "{error}");
            assert_eq!(event_loop.park(), Err(TurnError::NotPollable(error)), "{engine}");
            event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
        }
        let _client = TcpStream::connect(address).unwrap();
        while !events
            .drain()
            .any(|event| matches!(event, Event::Accepted { .. }))
        {
            event_loop.turn([], &mut events, None).unwrap();
        }
    }
}

/// The ring of a loop that is waited for elsewhere must not put its work off, whatever else the kernel has; that of any
/// other may.
#[test]
fn the_ring_of_a_pollable_loop_puts_no_work_off() {
    for engine in engines()
        .into_iter()
        .filter(|&engine| engine == EngineKind::Uring)
    {
        let found = quoit::try_uring(&pollable(engine)).unwrap();
        let reason = found
            .missing
            .iter()
            .find(|(feature, _)| *feature == Feature::DeferTaskrun);
        assert_eq!(reason.map(|(_, reason)| *reason), Some(Missing::Pollable));
        assert!(!found.features.contains(Feature::DeferTaskrun));
        let others = quoit::try_uring(&config(engine)).unwrap();
        assert!(
            others
                .missing
                .iter()
                .all(|(_, reason)| *reason != Missing::Pollable)
        );
    }
}

/// Whether this ring has no multishot receives.
fn arms_each_receive(config: &Config) -> bool {
    let found = quoit::try_uring(config).unwrap();
    !found.features.contains(Feature::MultishotReceive)
}

/// A round that brings something is one read of the notifier on io_uring, and not that for a poller that is told of edges, as
/// the wait outside has run the ring's work and nothing is left to submit; without multishot receives there is one to submit in
/// each round. On epoll it is a wait and a receive.
#[test]
fn a_round_of_a_parked_loop_makes_few_calls() {
    const ROUNDS: u64 = 100;
    guard(60);
    for (engine, edges) in engines()
        .into_iter()
        .flat_map(|engine| [(engine, false), (engine, true)])
    {
        let config = pollable(engine);
        let mut poller = Poller::new(edges);
        let multishot = engine == EngineKind::Uring && !arms_each_receive(&config);
        let mut event_loop = Loop::new(LoopIndex::default(), config).unwrap();
        let options = DatagramOptions::default();
        let any = "127.0.0.1:0".parse().unwrap();
        let socket = event_loop.bind_datagram(&any, &options, Token::NONE).unwrap();
        let Some(Address::Tcp(address)) = event_loop.datagram_address(socket).cloned() else {
            panic!("it is bound to what was asked for");
        };
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut events = Events::with_capacity(4);
        assert_eq!(poller.park(&mut event_loop, &mut events, |_, _| ()), None);
        let before = event_loop.counters();
        for _ in 0..ROUNDS {
            client.send_to(b"one", address).unwrap();
            assert!(poller.wait(&event_loop, None));
            let mut received = 0;
            let limit = poller.park(&mut event_loop, &mut events, |_, event| {
                received += u32::from(matches!(event, Event::Datagrams { .. }));
            });
            assert_eq!((received, limit), (1, None));
        }
        let after = event_loop.counters();
        let reads = if edges { 0 } else { ROUNDS };
        let (turns, calls) = match engine {
            // After 32 datagrams the kernel puts a multishot receive off until the next enter.
            EngineKind::Uring if multishot => (ROUNDS + ROUNDS.div_ceil(32), reads + 2 * ROUNDS.div_ceil(32)),
            EngineKind::Uring => (2 * ROUNDS, ROUNDS + reads),
            EngineKind::Epoll => (ROUNDS, 2 * ROUNDS),
        };
        let made = (
            after.turns - before.turns,
            after.system_calls - before.system_calls,
        );
        assert!(
            made.0 <= turns && made.1 <= calls,
            "{engine}: {made:?} turns and calls in {ROUNDS} rounds, and not {turns} and {calls} at most"
        );
    }
}

/// A client of each kind of socket, and what the loop has for it.
fn clients(event_loop: &mut Loop, folder: &Path) -> [(&'static str, File); 4] {
    let address = support::listen_on(event_loop);
    let tcp = TcpStream::connect(address).unwrap();
    tcp.set_nodelay(true).unwrap();

    let path = folder.join("stream");
    let listens = format!("unix:{}", path.display()).parse().unwrap();
    event_loop.listen(&listens, &ListenerOptions::default()).unwrap();
    let unix = UnixStream::connect(&path).unwrap();

    let mut bind = |address: &str| {
        let options = DatagramOptions::default();
        let socket = event_loop.bind_datagram(&address.parse().unwrap(), &options, Token::NONE);
        event_loop.datagram_address(socket.unwrap()).cloned().unwrap()
    };
    let Address::Tcp(server) = bind("127.0.0.1:0") else {
        panic!("it is bound to what was asked for");
    };
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect(server).unwrap();

    let path = folder.join("datagrams");
    bind(&format!("unix:{}", path.display()));
    let unix_datagram = UnixDatagram::bind(folder.join("client")).unwrap();
    unix_datagram.connect(&path).unwrap();
    // Each write is a datagram, and each read takes one.
    [
        ("TCP", OwnedFd::from(tcp)),
        ("Unix stream", unix.into()),
        ("UDP", udp.into()),
        ("Unix datagram", unix_datagram.into()),
    ]
    .map(|(kind, socket)| (kind, socket.into()))
}

/// A loop that waits for requests is not told that there is room for responses: it never had too little. One that is would wake
/// for each response a second time.
#[test]
fn what_a_peer_takes_wakes_nobody() {
    const ROUNDS: u64 = 50;
    guard(60);
    for engine in engines() {
        let folder = tempfile::tempdir().unwrap();
        let config = pollable(engine);
        let arms_each = engine == EngineKind::Uring && arms_each_receive(&config);
        let mut event_loop = Loop::new(LoopIndex::default(), config).unwrap();
        let mut events = Events::with_capacity(64);
        let answered = Cell::new(0);
        let answer = |event_loop: &mut Loop, event: Event| match event {
            Event::Data { connection, data } => {
                event_loop.send(connection, data, Token::NONE).unwrap();
                answered.set(answered.get() + 1);
            }
            Event::Datagrams { socket, datagrams } => {
                let asked = datagrams.first();
                let answer = DatagramSend::new(asked.peer(), asked.bytes());
                event_loop.send_datagram(socket, answer).unwrap();
                answered.set(answered.get() + 1);
            }
            _ => {}
        };
        for (kind, mut client) in clients(&mut event_loop, folder.path()) {
            let mut poller = Poller::new(false);
            let mut turns = 0;
            for round in 0..=ROUNDS {
                client.write_all(b"once").unwrap();
                // The first also accepts, and registers.
                if round == 1 {
                    turns = event_loop.counters().turns;
                }
                answered.set(0);
                loop {
                    let limit = poller.park(&mut event_loop, &mut events, answer);
                    if answered.get() > 0 {
                        break;
                    }
                    poller.wait(&event_loop, limit);
                }
                assert_eq!(client.read(&mut [0; 5]).unwrap(), 4);
                assert!(
                    !poller.wait(&event_loop, Some(Duration::ZERO)),
                    "{engine}, {kind}: woken by what the peer has taken"
                );
            }
            let turns = event_loop.counters().turns - turns;
            // One that brings the request, and one that sends the response and finds nothing more; without multishot receives one
            // that arms the next.
            let most = if arms_each { 3 * ROUNDS } else { 2 * ROUNDS };
            assert!(
                turns <= most,
                "{engine}, {kind}: {turns} turns for {ROUNDS} requests"
            );
        }
    }
}
