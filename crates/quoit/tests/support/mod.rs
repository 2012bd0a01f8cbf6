//! What the fault tests share: engines, servers on a thread, plain clients, and children of their own process.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use quoit::{
    Address, AttachOptions, Config, ConnectionId, EngineChoice, EngineKind, Errno, Handler, Lease,
    ListenerOptions, Loop, LoopIndex, Token,
};
use quoit_skipped::{skip_engine, this_test};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule};

/// Nothing here takes this long on any machine; what does has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the process if its tests hang for `seconds`, so that a lost wake is a failure and not a stuck run.
pub(crate) fn guard(seconds: u32) {
    // SAFETY: alarm(2) takes no pointer; the default action of SIGALRM ends the process.
    unsafe { libc::alarm(seconds) };
}

/// The engines that run here. Where io_uring is denied, says so and leaves it out.
pub(crate) fn engines() -> Vec<EngineKind> {
    let mut engines = vec![EngineKind::Epoll];
    match Loop::new(LoopIndex::default(), config(EngineKind::Uring)) {
        Ok(_) => engines.push(EngineKind::Uring),
        Err(error) => skip_engine("uring", this_test(), error),
    }
    engines
}

/// The defaults on one engine.
pub(crate) fn config(engine: EngineKind) -> Config {
    Config {
        engine: EngineChoice::Require(engine),
        ..Config::default()
    }
}

/// A loop with a listener on a free port of the loopback address.
pub(crate) fn listening(config: Config) -> (Loop, SocketAddr) {
    let mut event_loop = Loop::new(LoopIndex::default(), config).unwrap();
    let address = listen_on(&mut event_loop);
    (event_loop, address)
}

/// Lets the loop listen on a free port of the loopback address.
pub(crate) fn listen_on(event_loop: &mut Loop) -> SocketAddr {
    let options = ListenerOptions {
        tell_failures: true,
        ..ListenerOptions::default()
    };
    let listener = event_loop
        .listen(&"127.0.0.1:0".parse().unwrap(), &options)
        .unwrap();
    tcp(&event_loop.listener_address(listener).unwrap())
}

/// A connection of the loop whose far end nobody has.
pub(crate) fn attached(event_loop: &mut Loop) -> (ConnectionId, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let options = AttachOptions::default();
    let connection = event_loop.attach(near.into(), &options, Token::NONE).unwrap();
    (connection, far)
}

/// The socket address of a TCP listener.
pub(crate) fn tcp(address: &Address) -> SocketAddr {
    match address {
        Address::Tcp(address) => *address,
        other => panic!("{other} is no TCP address"),
    }
}

/// Sends back what it receives, by lease or by copy.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) copies: bool,
}

impl Handler for Echo {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        if self.copies {
            event_loop.send(connection, &data[..], Token::NONE).unwrap();
        } else {
            event_loop.send(connection, data, Token::NONE).unwrap();
        }
        if event_loop.is_full(connection) {
            event_loop.pause(connection).unwrap();
        }
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        event_loop.resume(connection).unwrap();
    }
}

/// A client that fails instead of waiting for ever.
pub(crate) fn client(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    client
}

/// How a connection ended, by this client's next read; it must bring nothing. Interruptions do not count: a
/// thread that made a ring is interrupted when the kernel takes that ring down (`tctx_exit_cb` of io_uring), and
/// with `SO_RCVTIMEO` a read says so (`signal(7)`).
pub(crate) fn end_of(client: &mut TcpStream) -> std::io::Result<()> {
    loop {
        match client.read(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => panic!("a byte where the connection should have ended"),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the connection goes on"),
            Err(error) => return Err(error),
        }
    }
}

/// Sends `message` and checks that it comes back.
pub(crate) fn echo(client: &mut TcpStream, message: &[u8]) {
    client.write_all(message).unwrap();
    let mut back = vec![0; message.len()];
    client.read_exact(&mut back).unwrap();
    assert_eq!(back, message);
}

const CASE: &str = "QUOIT_TEST_CASE";

/// The case that this process was started for by [`run_child`], if it was.
pub(crate) fn case() -> Option<String> {
    std::env::var(CASE).ok()
}

/// A command that runs the test named `test` of this binary with a listening socket as a service manager passes it: as
/// descriptor 3, told by the environment.
pub(crate) fn inheriting(test: &str, listener: &TcpListener) -> Command {
    let passed = listener.as_raw_fd();
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "LISTEN_PID=$$ exec \"$0\" --exact --nocapture \"$1\""])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env("LISTEN_FDS", "1");
    // SAFETY: between fork and exec only system calls that are safe there are made.
    unsafe {
        command.pre_exec(move || {
            let result = if passed == 3 {
                libc::fcntl(3, libc::F_SETFD, 0)
            } else {
                libc::dup2(passed, 3)
            };
            Errno::check(result).map(drop).map_err(std::io::Error::from)
        });
    }
    command
}

/// Runs the test named `test` of this binary in a process of its own, in which [`case`] answers `case`. Limits
/// and filters that it puts on itself there concern nobody else.
pub(crate) fn run_child(test: &str, case: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CASE, case)
        // So that a limit on address space is one for the allocator too: the arenas of other threads reserve theirs.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && out.contains("1 passed"),
        "case {case}: {}\n{out}\n{error}",
        output.status
    );
    quoit_skipped::pass_on(&output);
}

/// From here on, these calls of this thread and of those that it starts fail with `errno`, for good: only in a child.
pub(crate) fn deny(calls: impl IntoIterator<Item = i64>, errno: i32) {
    deny_if(calls.into_iter().map(|call| (call, Vec::new())), errno);
}

/// As [`deny`], but only where one of the call's rules holds, or where it has none.
pub(crate) fn deny_if(calls: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>, errno: i32) {
    let filter = SeccompFilter::new(
        calls.into_iter().collect::<BTreeMap<_, _>>(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    )
    .unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
