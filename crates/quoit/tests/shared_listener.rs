//! One listening socket that two processes hold, each on an engine of its own: a service manager's socket that a new
//! process takes over while the old one still serves. Alone in its file: while a process starts another, the child has all
//! descriptors for a moment, which tests that close sockets would notice.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use quoit::listen::{ListenSocket, inherited};
use quoit::{
    ConnectionId, EngineKind, Errno, Handler, Listen, ListenerId, ListenerOptions, Loop, Runtime,
    RuntimeConfig, Token,
};
use support::{PATIENCE, config, engines, guard, inheriting};

const CHILD: &str = "QUOIT_TEST_SHARES";
/// Enough that each process loses the race for a connection many times.
const CLIENTS: usize = 400;

/// Says who it is, and ends the connection.
struct Tells(&'static str);

impl Handler for Tells {
    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, _listener: ListenerId) {
        event_loop
            .send(connection, self.0.as_bytes(), Token::NONE)
            .unwrap();
        event_loop.close(connection, None).unwrap();
    }
}

fn serve(socket: ListenSocket, engine: EngineKind, name: &'static str) -> Runtime {
    let runtime = RuntimeConfig {
        listeners: vec![(Listen::Socket(socket), ListenerOptions::default())],
        config: config(engine),
        ..RuntimeConfig::default()
    };
    Runtime::start(runtime, move |_| Tells(name)).unwrap()
}

fn waits(socket: &impl AsFd) -> bool {
    // SAFETY: F_GETFL takes no pointer.
    let flags = Errno::check(unsafe { libc::fcntl(socket.as_fd().as_raw_fd(), libc::F_GETFL) }).unwrap();
    flags & libc::O_NONBLOCK == 0
}

/// Serves on the inherited socket until the other process ends its standard input.
fn be_the_child(engine: &str) {
    let engine = engines().into_iter().find(|one| one.name() == engine).unwrap();
    let runtime = serve(inherited().unwrap().remove(0), engine, "child");
    println!("\nready");
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    runtime.drain(PATIENCE);
    runtime.join().unwrap();
}

fn start_child(listener: &TcpListener, engine: EngineKind) -> Child {
    let mut command = inheriting("two_processes_of_different_engines_share_a_listener", listener);
    command
        .env(CHILD, engine.name())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// With a mode that follows the engine, the process on epoll would wait in accept4(2) for ever as soon as the other one was
/// faster, and nobody would be served by it.
#[test]
fn two_processes_of_different_engines_share_a_listener() {
    guard(120);
    if let Ok(engine) = std::env::var(CHILD) {
        be_the_child(&engine);
        return;
    }
    let engines = engines();
    for &own in &engines {
        for &other in &engines {
            share(own, other);
        }
    }
}

fn share(own: EngineKind, other: EngineKind) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let socket = ListenSocket::adopt(listener.try_clone().unwrap().into()).unwrap();
    let runtime = serve(socket, own, "parent");
    let mut child = start_child(&listener, other);
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "ready"), "the child serves");
    assert!(
        !waits(&listener),
        "{other} in the child has left the mode that {own} relies on"
    );

    let clients: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                let mut served: BTreeMap<String, usize> = BTreeMap::new();
                for _ in 0..CLIENTS / 4 {
                    let mut client = TcpStream::connect(address).unwrap();
                    client.set_read_timeout(Some(PATIENCE)).unwrap();
                    let mut name = String::new();
                    client.read_to_string(&mut name).unwrap();
                    *served.entry(name).or_default() += 1;
                }
                served
            })
        })
        .collect();
    let served: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let known = |name: &String| name == "parent" || name == "child";
    assert!(served.iter().all(|names| names.keys().all(known)), "{served:?}");

    // Both end, so neither waits in a call; and what the one leaves, the other serves.
    runtime.drain(Duration::from_secs(1));
    runtime.join().unwrap();
    let mut name = String::new();
    TcpStream::connect(address)
        .unwrap()
        .read_to_string(&mut name)
        .unwrap();
    assert_eq!(name, "child");
    drop(child.stdin.take());
    said.for_each(drop);
    assert!(child.wait().unwrap().success());
}
