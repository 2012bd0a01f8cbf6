//! The examples, as programs of their own, talked to over sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use support::{PATIENCE, client, echo, end_of, guard};

/// A running example; ended with this value.
struct Example {
    child: Child,
    address: SocketAddr,
}

impl Example {
    /// Starts the example, which listens on a free port, and waits for its ready line.
    fn start(name: &str, arguments: &[&str]) -> Self {
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
        let mut child = Command::new(&program)
            .arg("127.0.0.1:0")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let ["listening", "on", address, engine] = words[..] else {
            panic!("{name} is not ready: {line:?}");
        };
        assert!(["engine=uring", "engine=epoll"].contains(&engine), "{line}");
        let address = address.parse().unwrap();
        Self { child, address }
    }

    /// The most memory that it has had so far, in KiB.
    fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        peak.trim_end_matches("kB").trim().parse().unwrap()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let ended_itself = self.child.try_wait().unwrap();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !thread::panicking() {
            assert_eq!(ended_itself, None, "the example ended by itself");
        }
    }
}

#[test]
fn udp_echo_echoes() {
    guard(120);
    let example = Example::start("udp_echo", &[]);
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.connect(example.address).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client
        })
        .collect();
    for round in 0..20usize {
        for client in &clients {
            client.send(&vec![round as u8; round * 700]).unwrap();
        }
        for client in &clients {
            let mut answer = vec![0; 65_536];
            let length = client.recv(&mut answer).unwrap();
            assert_eq!(answer[..length], vec![round as u8; round * 700]);
        }
    }
}

#[test]
fn statsd_adds_up_and_tells() {
    guard(120);
    let example = Example::start("statsd", &[]);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(example.address).unwrap();
    for _ in 0..100 {
        sender.send(b"hits:1|c\nsampled:2|c|@0.5\n").unwrap();
    }
    for datagram in [
        &b"load:5|g"[..],
        b"load:-2|g\nload:+0.5|g",
        b"time:10|ms\ntime:30|ms",
        b"",
        b"nonsense\nhits:1|g\nhits:x|c\n:1|c\nhits:1|c|@0\nhits:1|c|@1|more\nhits:1|\xff",
    ] {
        sender.send(datagram).unwrap();
    }
    let expected = "hits 100\nload 3.5\nsampled 400\ntime count=2 min=10 mean=20 max=30\n\
                    datagrams=105 refused=7 truncated=0 dropped=0\n";
    let report = || {
        let mut report = String::new();
        client(example.address).read_to_string(&mut report).unwrap();
        report
    };
    // Datagrams and connections come by different ways: it is asked until all have been received, and once more, when
    // the turn that received the last has handed them out.
    while !report().contains("datagrams=105 ") {}
    assert_eq!(report(), expected);
}

#[test]
fn echo_echoes() {
    guard(120);
    let example = Example::start("echo", &[]);
    let mut clients: Vec<_> = (0..10).map(|_| client(example.address)).collect();
    for round in 1..20 {
        for client in &mut clients {
            echo(client, &vec![round as u8; round * 777]);
        }
    }
    for client in &mut clients {
        client.shutdown(Shutdown::Write).unwrap();
        end_of(client).unwrap();
    }
}

fn answer(client: &mut TcpStream, expected: &str) {
    let mut answer = vec![0; expected.len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

#[test]
fn key_value_answers_lines_however_they_are_cut() {
    guard(120);
    let example = Example::start("key_value", &[]);
    let mut one = client(example.address);
    let mut two = client(example.address);
    one.write_all(b"GET a\nSET a b c\nGET a\nSE").unwrap();
    answer(&mut one, "-none\n+ok\n+b c\n");
    // The other connection's lines are its own, and the values are not.
    two.write_all(b"GET a\nT x y\n\nGET a b\n").unwrap();
    answer(&mut two, "+b c\n-error\n-error\n-error\n");
    for byte in b"T a d\nGET a\n" {
        one.write_all(&[*byte]).unwrap();
    }
    answer(&mut one, "+ok\n+d\n");
    // Many at once, more than any buffer holds.
    let requests = "GET a\n".repeat(500_000);
    thread::scope(|scope| {
        let mut writer = one.try_clone().unwrap();
        scope.spawn(move || writer.write_all(requests.as_bytes()).unwrap());
        answer(&mut one, &"+d\n".repeat(500_000));
    });
    one.shutdown(Shutdown::Write).unwrap();
    end_of(&mut one).unwrap();
}

#[test]
fn key_value_bounds_a_line() {
    guard(120);
    let example = Example::start("key_value", &[]);
    let mut fits = client(example.address);
    let value = "v".repeat(4096 - "SET k ".len());
    fits.write_all(format!("SET k {value}\nGET k\n").as_bytes())
        .unwrap();
    answer(&mut fits, &format!("+ok\n+{value}\n"));
    let mut endless = client(example.address);
    // Whether the reset is met while writing or while reading is a matter of timing.
    let _ = endless.write_all(&[b'x'; 4097]);
    assert!(end_of(&mut endless).is_err(), "a line without an end is reset");
    echo_is_alive(&mut fits, &value);
}

fn echo_is_alive(client: &mut TcpStream, value: &str) {
    client.write_all(b"GET k\n").unwrap();
    answer(client, &format!("+{value}\n"));
}

/// A proxy in front of a target of ours.
fn proxied() -> (Example, TcpListener) {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap().to_string();
    (Example::start("proxy", &[&address]), target)
}

#[test]
fn proxy_passes_everything_on_and_half_closes_both_ways() {
    guard(120);
    let (example, target) = proxied();
    for client_ends_first in [true, false] {
        let mut client = client(example.address);
        let (mut server, _) = target.accept().unwrap();
        let (first, last) = if client_ends_first {
            (&mut client, &mut server)
        } else {
            (&mut server, &mut client)
        };
        let request: Vec<u8> = (0..1_000_000u32).map(|index| (index * 7 % 251) as u8).collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                first.write_all(&request).unwrap();
                first.shutdown(Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            last.read_to_end(&mut received).unwrap();
            let differs = received
                .iter()
                .zip(&request)
                .position(|(one, other)| one != other);
            assert_eq!(
                (differs, received.len()),
                (None, request.len()),
                "the request came through changed"
            );
        });
        // One direction has ended; the other goes on.
        last.write_all(&request).unwrap();
        last.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        first.read_to_end(&mut received).unwrap();
        let differs = received
            .iter()
            .zip(&request)
            .position(|(one, other)| one != other);
        assert_eq!(
            (differs, received.len()),
            (None, request.len()),
            "the answer came through changed"
        );
    }
    // A reset passes too: closing with unread data makes one.
    let mut client = client(example.address);
    let (mut server, _) = target.accept().unwrap();
    client.write_all(b"unread").unwrap();
    server.read_exact(&mut [0; 1]).unwrap();
    drop(server);
    assert!(end_of(&mut client).is_err(), "the reset came through");
}

#[test]
fn proxy_to_nobody_resets() {
    guard(120);
    let (example, target) = proxied();
    drop(target);
    assert!(end_of(&mut client(example.address)).is_err());
}

/// A client reads nothing while its server sends all that it can, which the proxy must not store; others go on.
#[test]
fn proxy_stores_little_for_a_slow_reader() {
    const TOTAL: u64 = 256 << 20;
    const PIECE: usize = 1 << 16;
    guard(240);
    let (example, target) = proxied();
    let mut slow = client(example.address);
    let (mut flood, _) = target.accept().unwrap();
    let mut brisk = client(example.address);
    let (mut echoing, _) = target.accept().unwrap();
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let piece: Vec<u8> = (0..PIECE).map(|index| (index % 253) as u8).collect();
            while sent.load(Ordering::SeqCst) < TOTAL {
                flood.write_all(&piece).unwrap();
                sent.fetch_add(PIECE as u64, Ordering::SeqCst);
            }
            flood.shutdown(Shutdown::Write).unwrap();
        });
        scope.spawn(move || {
            let mut bytes = [0; 100];
            while echoing.read_exact(&mut bytes).is_ok() {
                echoing.write_all(&bytes).unwrap();
            }
        });
        // Until the flood has not moved for many turns of the proxy's.
        let (mut seen, mut unmoved) = (0, 0);
        while unmoved < 500 {
            echo(&mut brisk, &[3; 100]);
            let now = sent.load(Ordering::SeqCst);
            unmoved = if now == seen && now > 0 { unmoved + 1 } else { 0 };
            seen = now;
        }
        assert!(seen < TOTAL, "nothing was held up");
        drop(brisk);
        let mut received = 0;
        let mut bytes = vec![0; PIECE];
        while received < TOTAL {
            slow.read_exact(&mut bytes).unwrap();
            assert!(
                bytes
                    .iter()
                    .enumerate()
                    .all(|(index, &byte)| byte == (index % 253) as u8),
                "changed at {received}"
            );
            received += PIECE as u64;
        }
        end_of(&mut slow).unwrap();
    });
    // Its pool and a connection's leases, far below what was sent.
    let peak = example.peak_memory();
    assert!(peak < 64 * 1024, "the proxy had {peak} KiB");
}
