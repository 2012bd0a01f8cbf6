//! What a service manager sees of `quoit serve`: the notify protocol and inherited sockets.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};

use crate::support::{PATIENCE, Server, connect, engines, error_line, output, quoit};

/// The socket by which a manager is told.
struct Manager {
    socket: UnixDatagram,
    name: String,
    _folder: tempfile::TempDir,
}

impl Manager {
    fn new(is_abstract: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let path = path.to_str().unwrap();
        let (socket, name) = if is_abstract {
            let address = SocketAddr::from_abstract_name(path).unwrap();
            (UnixDatagram::bind_addr(&address), format!("@{path}"))
        } else {
            (UnixDatagram::bind(path), path.to_owned())
        };
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            name,
            _folder: folder,
        }
    }

    fn start(&self, arguments: &str, variables: &[(&str, &str)]) -> Server {
        let mut command = quoit(&format!("serve {arguments} --listen 127.0.0.1:0"));
        command
            .env("NOTIFY_SOCKET", &self.name)
            .envs(variables.iter().copied());
        Server::start_command(command, 1)
    }

    /// The next message.
    #[track_caller]
    fn told(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self
            .socket
            .recv(&mut buffer)
            .expect("the manager is told something");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// The next message that is not that all is well.
    #[track_caller]
    fn news(&self) -> String {
        loop {
            let told = self.told();
            if told != "WATCHDOG=1" {
                return told;
            }
        }
    }
}

#[test]
fn a_manager_is_told_when_it_serves_and_when_it_stops() {
    for (engine, is_abstract) in engines().iter().zip([false, true].iter().cycle()) {
        let manager = Manager::new(*is_abstract);
        let mut server = manager.start(&format!("http --drain 7 --loops 2 --engine {engine}"), &[]);
        let address = server.address().to_owned();
        let ready = manager.told();
        let expected = format!("READY=1\nSTATUS=serving http on {address}; loops=2 engine={engine}: ");
        assert!(ready.starts_with(&expected), "{ready}");
        let mut client = server.connect();
        assert_eq!(client.get("/healthz").text(), "ok");
        server.terminate();
        assert_eq!(
            manager.told(),
            "STOPPING=1\nEXTEND_TIMEOUT_USEC=12000000\nSTATUS=draining for at most 7 s: connections=1"
        );
        drop(client);
        server.ends_with(0);
    }
}

/// Servers of datagrams have no connections, and are told of in the same way.
#[test]
fn a_manager_is_told_of_servers_of_datagrams() {
    let manager = Manager::new(false);
    let mut server = manager.start("udp-echo", &[]);
    assert!(manager.told().contains("STATUS=serving udp-echo on 127.0.0.1:"));
    server.terminate();
    assert!(manager.told().starts_with("STOPPING=1\n"));
    server.ends_with(0);
}

/// A handler that never returns: the first loop stands still, while the second one turns.
#[test]
fn the_watchdog_is_told_while_every_loop_turns() {
    for engine in engines() {
        let manager = Manager::new(false);
        // An hour of work for each piece; a look each 50 ms.
        let arguments = format!("echo --work 3600000000000 --loops 2 --engine {engine}");
        let server = manager.start(&arguments, &[("WATCHDOG_USEC", "200000")]);
        assert!(manager.told().starts_with("READY=1\n"));
        for _ in 0..3 {
            assert_eq!(manager.told(), "WATCHDOG=1");
        }
        let mut client = connect(server.address());
        std::io::Write::write_all(&mut client, b"x").unwrap();
        let told = manager.news();
        assert!(
            told.starts_with("STATUS=loop ")
                && told.ends_with(" stands still, so the watchdog is told nothing"),
            "{told}"
        );
        // That nothing follows is for a test of what decides it: here nobody could tell for how long to wait. Draining is still told.
        server.terminate();
        assert!(manager.told().starts_with("STOPPING=1\n"));
    }
}

/// Of two loops the one that nobody is connected to has ended long before the drain is over.
#[test]
fn a_loop_that_has_drained_is_not_missed() {
    let manager = Manager::new(false);
    let mut server = manager.start("http --loops 2 --drain 600", &[("WATCHDOG_USEC", "1000000")]);
    let mut client = server.connect();
    client.send("GET /bytes/100000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    client.head();
    server.terminate();
    while !manager.told().starts_with("STOPPING=1\n") {}
    for _ in 0..4 {
        assert_eq!(manager.told(), "WATCHDOG=1");
    }
    drop(client);
    server.ends_with(0);
}

#[test]
fn a_watchdog_of_another_process_is_told_nothing() {
    let manager = Manager::new(false);
    let variables = [("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")];
    let mut server = manager.start("echo --metrics 127.0.0.1:0", &variables);
    assert!(manager.told().starts_with("READY=1\n"));
    let mut probe = crate::support::Client::<TcpStream>::new(connect(&server.message("metrics on ")));
    assert_eq!(probe.get("/metrics").status, 200);
    server.terminate();
    assert!(manager.told().starts_with("STOPPING=1\n"));
    server.ends_with(0);
}

#[test]
fn a_manager_that_is_not_there_is_a_warning_and_no_failure() {
    for (variable, value, warning) in [
        (
            "NOTIFY_SOCKET",
            "/nowhere/notify",
            "the service manager is told nothing: NOTIFY_SOCKET is `/nowhere/notify`: ",
        ),
        (
            "NOTIFY_SOCKET",
            "vsock:2:1",
            "the service manager is told nothing: NOTIFY_SOCKET is `vsock:2:1`: ",
        ),
        (
            "WATCHDOG_USEC",
            "soon",
            "the watchdog is told nothing: WATCHDOG_USEC is `soon`",
        ),
    ] {
        let mut command = quoit("serve http --listen 127.0.0.1:0");
        command.env(variable, value);
        let mut server = Server::start_command(command, 1);
        server.message(&format!("quoit serve: warning: {warning}"));
        assert_eq!(server.connect().get("/healthz").text(), "ok");
        server.terminate();
        server.ends_with(0);
    }
}

#[test]
fn the_metrics_say_when_a_drain_is_over() {
    let mut server = Server::start("http --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --drain 600");
    let address = server.message("metrics on ");
    let deadline = || -> u64 {
        let text = crate::support::Client::<TcpStream>::new(connect(&address)).get("/metrics");
        let text = text.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("quoit_drain_deadline_timestamp_seconds "));
        line.unwrap().parse().unwrap()
    };
    assert_eq!(deadline(), 0);
    let mut client = server.connect();
    assert_eq!(client.get("/healthz").text(), "ok");
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    server.terminate();
    // So it drains.
    client.is_ended();
    let deadline = deadline();
    assert!(
        (now.as_secs() + 600..now.as_secs() + 600 + PATIENCE.as_secs()).contains(&deadline),
        "{deadline}"
    );
    drop(client);
    server.ends_with(0);
}

/// `quoit serve` with this as descriptor 3, as a manager passes it.
pub(crate) fn with_inherited(descriptor: impl Into<OwnedFd>, count: &str, arguments: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "exec 3<&0 </dev/null; LISTEN_PID=$$ exec \"$0\" serve $1"])
        .args([env!("CARGO_BIN_EXE_quoit"), arguments])
        .env("LISTEN_FDS", count)
        .stdin(descriptor.into());
    command
}

#[test]
fn sockets_that_were_asked_for_and_inherited_are_served() {
    for engine in engines() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let command = with_inherited(listener, "1", &format!("http --inherited --engine {engine}"));
        let server = Server::start_command(command, 1);
        assert_eq!(server.address(), address);
        assert_eq!(server.connect().get("/healthz").text(), "ok");
    }
}

#[test]
fn what_is_wrong_with_inherited_sockets_is_one_line() {
    let file = || std::fs::File::open("/dev/null").unwrap();
    // The stream's other end is gone, which changes nothing about what it is.
    let stream = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    };
    let meant_for = |process: Option<&str>| {
        let mut command = quoit("serve http --inherited");
        command.env("LISTEN_FDS", "2").env_remove("LISTEN_PID");
        command.envs(process.map(|process| ("LISTEN_PID", process)));
        command
    };
    for (mut command, expected) in [
        (
            meant_for(None),
            "the sockets of LISTEN_FDS=2 are for no process (LISTEN_PID), and not for this process, ",
        ),
        (
            meant_for(Some("1")),
            "the sockets of LISTEN_FDS=2 are for 1 (LISTEN_PID), and not for this process, ",
        ),
        (
            with_inherited(stream, "1", "http --inherited"),
            "cannot listen on descriptor 3: the socket does not listen; call listen(2) before handing it over",
        ),
        (
            with_inherited(UdpSocket::bind("127.0.0.1:0").unwrap(), "1", "http --inherited"),
            "cannot listen on descriptor 3: it is not a stream socket",
        ),
        (
            with_inherited(file(), "1", "http --inherited"),
            "cannot listen on descriptor 3: ",
        ),
        (
            with_inherited(file(), "0", "http --inherited"),
            "no listening socket was inherited (LISTEN_FDS), as --inherited asks for; start the .socket unit",
        ),
        (
            quoit("serve http --inherited"),
            "no listening socket was inherited (LISTEN_FDS), as --inherited asks for; start the .socket unit",
        ),
    ] {
        command.stdout(Stdio::null());
        let line = error_line(&output(command), 1);
        assert!(line.starts_with(&format!("quoit serve: {expected}")), "{line}");
    }
}
