//! `quoit serve udp-echo` and datagrams that say to come from another server.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Stdio;

use quoit_skipped::{needs_root, this_test};

use crate::support::{Client, PATIENCE, Server, connect, engines, quoit};

/// An echo server and its counters.
struct Echo {
    server: Server,
    metrics: String,
}

impl Echo {
    #[track_caller]
    fn start(engine: &str, listen: &[&str]) -> Self {
        let mut command = quoit(&format!("serve udp-echo --engine {engine} --metrics 127.0.0.1:0"));
        for address in listen {
            command.args(["--listen", address]);
        }
        command.stderr(Stdio::piped());
        let server = Server::start_command(command, listen.len());
        let metrics = server.message("metrics on ");
        Self { server, metrics }
    }

    fn address(&self, listener: usize) -> SocketAddr {
        self.server.ready[listener].address.parse().expect("an address")
    }

    /// What it has received and sent, when that is so much or more. It is published twice a second.
    fn counts_from(&self, least: u64) -> (u64, u64) {
        loop {
            let text = Client::new(connect(&self.metrics))
                .get("/metrics")
                .text()
                .to_owned();
            let count = |name: &str| {
                let name = format!("quoit_datagrams_{name}_total{{loop=\"0\"}} ");
                let line = text.lines().find_map(|line| line.strip_prefix(&name));
                line.map_or(0, |count| count.parse().expect("a count"))
            };
            let counts = (count("received"), count("sent"));
            if counts.0 >= least {
                return counts;
            }
            std::thread::yield_now();
        }
    }
}

fn socket(address: impl Into<SocketAddr>) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address.into())?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn client() -> UdpSocket {
    socket((Ipv4Addr::LOCALHOST, 0)).expect("a port is free")
}

#[track_caller]
fn is_answered(client: &UdpSocket, server: SocketAddr) {
    client.send_to(b"ping", server).expect("it is sent");
    let mut bytes = [0; 16];
    let (length, from) = client.recv_from(&mut bytes).expect("it is answered");
    assert_eq!((&bytes[..length], from), (&b"ping"[..], server));
}

/// A port that is free on both addresses, and that the kernel gives nobody who asks for any: another test may ask at any time.
fn port_of_nobody() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("the kernel says");
    let first: u16 = range
        .split_whitespace()
        .next()
        .and_then(|first| first.parse().ok())
        .expect("two ports");
    let start = 10_000 + std::process::id() as u16 % 10_000;
    let free = |port: &u16| {
        let own = socket((Ipv4Addr::LOCALHOST, *port));
        own.is_ok() && socket((Ipv4Addr::new(127, 0, 0, 2), *port)).is_ok()
    };
    (start..first).find(free).expect("one of thousands is free")
}

/// A client that is answered while two servers might talk to each other.
const PINGS: u64 = 100;

#[test]
fn two_echoes_do_not_answer_each_other() {
    for engine in engines() {
        let port = port_of_nobody();
        let one = Echo::start(engine, &[&format!("127.0.0.1:{port}")]);
        let Ok(forger) = socket((Ipv4Addr::new(127, 0, 0, 2), port)) else {
            panic!("{port} is free on another address");
        };
        // It comes from where the other server is by the time that it is read.
        one.server.stop();
        forger.send_to(b"forged", one.address(0)).expect("it is sent");
        drop(forger);
        let other = Echo::start(engine, &[&format!("127.0.0.2:{port}")]);
        one.server.go_on();
        let client = client();
        for echo in [&one, &other] {
            for _ in 0..PINGS {
                is_answered(&client, echo.address(0));
            }
        }
        // Nothing but the forged one was not answered, and the other server has not seen anything of it.
        assert_eq!(one.counts_from(PINGS + 1), (PINGS + 1, PINGS), "{engine}");
        assert_eq!(other.counts_from(PINGS), (PINGS, PINGS), "{engine}");
    }
}

#[test]
fn ports_of_servers_are_not_answered() {
    for engine in engines() {
        let echo = Echo::start(engine, &["127.0.0.1:0", "127.0.0.1:0"]);
        let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
        let mut others = vec![
            socket((elsewhere, echo.address(0).port())).expect("it is free"),
            socket((elsewhere, echo.address(1).port())).expect("it is free"),
        ];
        match socket((elsewhere, 19)) {
            Ok(chargen) => others.push(chargen),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                needs_root(
                    format_args!("{} from port 19", this_test()),
                    "CAP_NET_BIND_SERVICE",
                );
            }
            Err(error) => panic!("port 19: {error}"),
        }
        let client = client();
        for other in &others {
            other.send_to(b"for ever", echo.address(0)).expect("it is sent");
            // Whatever was answered came before this.
            is_answered(&client, echo.address(0));
            other.set_nonblocking(true).expect("it can be set");
            let nothing = other.recv_from(&mut [0; 16]);
            let from = other.local_addr().expect("it is bound");
            assert_eq!(
                nothing.expect_err("no answer").kind(),
                ErrorKind::WouldBlock,
                "{engine}: {from}"
            );
        }
    }
}
