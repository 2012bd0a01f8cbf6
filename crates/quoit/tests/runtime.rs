//! Several loops: where their threads run, and how they end together.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use quoit::{
    Address, Command, Config, ConnectionId, Drainer, EngineChoice, EngineKind, Handler, Lease, Listen,
    ListenerOptions, Loop, LoopIndex, Runtime, RuntimeConfig, Spread, Token,
};

mod support;

/// Panics when anything is received.
struct Fragile;

impl Handler for Fragile {
    fn on_data(&mut self, _quoit: &mut Loop, _connection: ConnectionId, _data: Lease) {
        panic!("on purpose");
    }
}

fn start() -> (Runtime, TcpStream) {
    let config = RuntimeConfig {
        loops: 3,
        config: Config {
            engine: EngineChoice::Require(EngineKind::Epoll),
            ..Config::default()
        },
        listeners: vec![(
            Listen::Address("127.0.0.1:0".parse().unwrap()),
            ListenerOptions::default(),
        )],
        ..RuntimeConfig::default()
    };
    let runtime = Runtime::start(config, |_| Fragile).unwrap();
    let Address::Tcp(address) = runtime.addresses()[0] else {
        panic!("a TCP address was asked for");
    };
    (runtime, TcpStream::connect(address).unwrap())
}

/// What each loop's thread finds out about itself.
fn threads(pin: bool, batch: bool) -> Vec<(Vec<usize>, i32)> {
    let (found, threads) = std::sync::mpsc::channel();
    let config = RuntimeConfig {
        loops: 3,
        pin,
        batch,
        config: Config {
            engine: EngineChoice::Require(EngineKind::Epoll),
            ..Config::default()
        },
        ..RuntimeConfig::default()
    };
    let runtime = Runtime::start(config, move |event_loop| {
        // SAFETY: 0 is the calling thread; no memory is passed.
        let policy = unsafe { libc::sched_getscheduler(0) };
        let about = (quoit::available_cpus(), policy);
        found.send((event_loop.index().get(), about)).unwrap();
        Fragile
    })
    .unwrap();
    let mut threads: Vec<_> = threads.iter().take(3).collect();
    drop(runtime);
    threads.sort_unstable();
    threads.into_iter().map(|(_, about)| about).collect()
}

#[test]
fn threads_run_where_and_how_they_were_told_to() {
    let cpus = quoit::available_cpus();
    for (index, (pinned, policy)) in threads(true, true).into_iter().enumerate() {
        assert_eq!(pinned, [cpus[index % cpus.len()]]);
        assert_eq!(policy, libc::SCHED_BATCH);
    }
    // SAFETY: 0 is the calling thread; no memory is passed.
    let policy = unsafe { libc::sched_getscheduler(0) };
    assert_eq!(threads(false, false), vec![(cpus, policy); 3]);
}

#[test]
fn a_panic_of_one_loop_ends_all() {
    let (runtime, mut client) = start();
    client.write_all(b"x").unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| runtime.join())).is_err());
}

#[test]
fn a_drainer_ends_the_loops_from_another_thread() {
    let (runtime, mut client) = start();
    let drainer = runtime.drainer();
    let joining = std::thread::spawn(|| runtime.join());
    drainer.drain(Duration::ZERO);
    joining.join().unwrap().unwrap();
    // Told to loops that are gone, it does nothing.
    drainer.drain(Duration::ZERO);
    // The end, or a reset.
    assert!(!matches!(client.read(&mut [0]), Ok(1..)));
}

/// Drains its own loop, whose inbox it has filled.
struct Full;

impl Handler for Full {
    fn on_woken(&mut self, event_loop: &mut Loop) {
        let remote = event_loop.remote();
        while remote.post(Command::CancelTimer { token: Token(1) }).is_ok() {}
        Drainer::from(remote).drain(Duration::ZERO);
    }
}

/// Nobody empties the inbox of a loop whose handler waits for room in it.
#[test]
fn a_handler_drains_its_own_loop_also_with_a_full_inbox() {
    support::guard(120);
    for engine in support::engines() {
        let config = Config {
            inbox: 4,
            ..support::config(engine)
        };
        let mut event_loop = Loop::new(LoopIndex::default(), config).unwrap();
        event_loop.remote().wake();
        event_loop.run(&mut Full).unwrap();
        assert_eq!(event_loop.counters().posted_commands, 4);
    }
}

/// Sends back what it receives.
struct Echo;

impl Handler for Echo {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        event_loop.send(connection, data, Token::NONE).unwrap();
    }
}

#[test]
fn a_unix_socket_is_shared_where_each_loop_should_have_a_port() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let config = RuntimeConfig {
        loops: 2,
        listeners: vec![(
            Listen::Address(Address::UnixPath(path.clone())),
            ListenerOptions::default(),
        )],
        spread: Spread::ReusePort,
        ..RuntimeConfig::default()
    };
    let runtime = Runtime::start(config, |_| Echo).unwrap();
    for _ in 0..8 {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"x").unwrap();
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"x");
    }
    drop(runtime);
    assert!(!path.exists(), "the socket's file goes with the server");
}
