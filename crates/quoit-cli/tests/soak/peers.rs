//! What peers do: all that is right, and much that is not.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::{Client, PATIENCE, Pattern, connect, quoit, reset};
use crate::target::{Service, Target};

/// What the peers have done, over all servers.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    connections: AtomicU64,
    /// Exchanges whose every byte was right.
    requests: AtomicU64,
    /// Connections and processes that ended in the middle of something.
    kills: AtomicU64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (connections, requests) = (self.connections.load(Relaxed), self.requests.load(Relaxed));
        let kills = self.kills.load(Relaxed);
        write!(f, "{connections} connections, {requests} requests, {kills} kills")
    }
}

/// Numbers drawn from a seed (splitmix64, Steele et al. 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound
    }

    /// A length, small ones as often as large ones.
    fn length(&mut self) -> usize {
        let most = [1, 100, 5_000, 70_000, 1_000_000][self.below(5) as usize];
        1 + self.below(most) as usize
    }

    /// Bytes that repeat after a prime's length, from anywhere in it.
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let start = self.below(251) as usize;
        (start..start + length)
            .map(|position| (position % 251) as u8)
            .collect()
    }
}

/// One thing that a peer of this server does.
///
/// # Panics
/// If a byte is wrong, or the server does not do what it should.
pub(crate) fn act(target: &Target, random: &mut Random, tally: &Tally) {
    match (target.service, random.below(8)) {
        (Service::Datagrams, 0) => flood(target, random, tally),
        (Service::Datagrams, _) => datagrams(target, random, tally),
        (_, 0) => churn(target, random, tally),
        (_, 1) => go_with_a_reset(target, random, tally),
        (Service::Echo, 2) => half_close(target, random, tally),
        (Service::Echo, 3) => slow(target, random, tally),
        (Service::Echo, 4) => leave_unread(target, random, tally),
        (Service::Echo, _) => echo(target, random, tally),
        (Service::Http, 2 | 3) => pipeline(target, random, tally),
        (Service::Http, 4) => leave_a_download(target, tally),
        (Service::Http, 5) => upload(target, random, tally),
        (Service::Http, _) => download(target, random, tally),
        (Service::Rpc, kind) => calls(target, kind == 2, random, tally),
    }
}

fn open(target: &Target, tally: &Tally) -> TcpStream {
    tally.connections.fetch_add(1, Relaxed);
    connect(target.address())
}

/// Ends the connection in order: nothing more comes.
fn end(mut stream: impl Read, socket: &TcpStream) {
    // The server may have ended first.
    let _ = socket.shutdown(Shutdown::Write);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("an orderly end");
    assert!(rest.is_empty(), "{} bytes that nobody asked for", rest.len());
}

fn churn(target: &Target, random: &mut Random, tally: &Tally) {
    for _ in 0..=random.below(20) {
        drop(open(target, tally));
    }
}

/// Goes with a reset, in the middle of a message.
fn go_with_a_reset(target: &Target, random: &mut Random, tally: &Tally) {
    let mut stream = open(target, tally);
    let part = match target.service {
        Service::Http => b"POST /echo HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nand so".to_vec(),
        _ => {
            let length = 1 + random.below(3) as usize;
            random.bytes(length)
        }
    };
    let part = &part[..1 + random.below(part.len() as u64) as usize];
    stream.write_all(part).unwrap();
    reset(stream);
    tally.kills.fetch_add(1, Relaxed);
}

/// Sends and receives at the same time, since the two directions of much wait for each other.
fn there_and_back(stream: &mut impl Read, mut writer: TcpStream, message: &[u8], half_close: bool) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(message).unwrap();
            if half_close {
                writer.shutdown(Shutdown::Write).unwrap();
            }
        });
        let mut back = vec![0; message.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == message, "other bytes came back");
    });
}

fn echo(target: &Target, random: &mut Random, tally: &Tally) {
    let mut stream = open(target, tally);
    for _ in 0..=random.below(20) {
        let length = random.length();
        let writer = stream.try_clone().unwrap();
        there_and_back(&mut stream, writer, &random.bytes(length), false);
        tally.requests.fetch_add(1, Relaxed);
    }
    end(&stream, &stream);
}

fn half_close(target: &Target, random: &mut Random, tally: &Tally) {
    let mut stream = open(target, tally);
    let length = random.length();
    let writer = stream.try_clone().unwrap();
    there_and_back(&mut stream, writer, &random.bytes(length), true);
    tally.requests.fetch_add(1, Relaxed);
    end(&stream, &stream);
}

/// Sends until nothing more is taken, and only then reads, by little pieces at first.
fn slow(target: &Target, random: &mut Random, tally: &Tally) {
    let mut stream = open(target, tally);
    let message = random.bytes(16 << 20);
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut refusals = 0;
    while sent < message.len() && refusals < 100 {
        match stream.write(&message[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refusals += 1;
                std::thread::yield_now();
            }
            Err(error) => panic!("{target}: {error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    let mut back = vec![0; sent];
    for piece in back.chunks_mut(100).take(1000) {
        stream.read_exact(piece).unwrap();
    }
    let rest = 100_000.min(sent);
    stream.read_exact(&mut back[rest..]).unwrap();
    assert!(back == message[..sent], "other bytes came back");
    tally.requests.fetch_add(1, Relaxed);
    end(&stream, &stream);
}

/// Goes without reading what it has asked for: the kernel resets the connection.
fn leave_unread(target: &Target, random: &mut Random, tally: &Tally) {
    let mut stream = open(target, tally);
    let message = random.bytes(200_000);
    stream.write_all(&message).unwrap();
    let mut first = [0; 100];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, message[..100]);
    tally.kills.fetch_add(1, Relaxed);
}

fn pipeline(target: &Target, random: &mut Random, tally: &Tally) {
    let mut client = Client::new(open(target, tally));
    for _ in 0..=random.below(5) {
        let count = 1 + random.below(64);
        client.send("GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n".repeat(count as usize));
        for _ in 0..count {
            assert_eq!(client.response().text(), "Hello, World!");
        }
        tally.requests.fetch_add(count, Relaxed);
    }
    let socket = client.stream.get_ref().try_clone().unwrap();
    end(&mut client.stream, &socket);
}

fn download(target: &Target, random: &mut Random, tally: &Tally) {
    let mut client = Client::new(open(target, tally));
    for _ in 0..=random.below(5) {
        let length = random.length() as u64 * 3;
        client.send(format!("GET /bytes/{length} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        Pattern::new().read(&mut client.stream, length);
        tally.requests.fetch_add(1, Relaxed);
    }
    let socket = client.stream.get_ref().try_clone().unwrap();
    end(&mut client.stream, &socket);
}

fn leave_a_download(target: &Target, tally: &Tally) {
    let mut client = Client::new(open(target, tally));
    client.send("GET /bytes/50000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    client.head();
    Pattern::new().read(&mut client.stream, 100_000);
    tally.kills.fetch_add(1, Relaxed);
}

fn upload(target: &Target, random: &mut Random, tally: &Tally) {
    let mut client = Client::new(open(target, tally));
    let length = random.length();
    let body = random.bytes(length);
    client.send(format!(
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
    ));
    let mut writer = client.stream.get_ref().try_clone().unwrap();
    std::thread::scope(|scope| {
        let body = &body;
        scope.spawn(move || writer.write_all(body).unwrap());
        assert!(client.response().body == *body, "other bytes came back");
    });
    tally.requests.fetch_add(1, Relaxed);
    let socket = client.stream.get_ref().try_clone().unwrap();
    end(&mut client.stream, &socket);
}

/// A process that calls by rpc and checks every message, or is killed in the middle of that.
fn calls(target: &Target, kill: bool, random: &mut Random, tally: &Tally) {
    let connections = 1 + random.below(8);
    // A message has a header of 24 bytes.
    let (streams, size) = (1 + random.below(16), 24 + random.length() % 5_000);
    let requests = if kill {
        u32::MAX.into()
    } else {
        8 * (1 + random.below(200))
    };
    let mut command = quoit(&format!(
        "load rpc --connect {} --warmup 0 --connections {connections} --streams {streams} --size {size} \
         --requests {requests} --json",
        target.address()
    ));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    tally.connections.fetch_add(connections, Relaxed);
    let mut child = command.spawn().unwrap();
    if kill {
        let before = target.figures("quoit_received_bytes_total");
        while target.figures("quoit_received_bytes_total") < before + 10_000
            && child.try_wait().unwrap().is_none()
        {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        tally.kills.fetch_add(1, Relaxed);
        return;
    }
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{target}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    tally.requests.fetch_add(requests, Relaxed);
}

fn open_datagrams(target: &Target) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(target.address()).unwrap();
    socket
}

/// A datagram of any length that the server takes, with a number in front.
fn numbered(number: u64, random: &mut Random) -> Vec<u8> {
    let length = random.below(9000) as usize;
    [&number.to_be_bytes(), &random.bytes(length)[..]].concat()
}

/// Datagrams there and back, one by one. Under a flood some are lost: those are sent again.
fn datagrams(target: &Target, random: &mut Random, tally: &Tally) {
    let socket = open_datagrams(target);
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = vec![0; 65_536];
    for number in 0..=random.below(200) {
        let message = numbered(number, random);
        let begin = Instant::now();
        socket.send(&message).unwrap();
        loop {
            assert!(begin.elapsed() < PATIENCE, "a datagram is never answered");
            match socket.recv(&mut buffer) {
                Ok(length) if buffer[..length] == message => break,
                Ok(length) => {
                    // The second answer to one that was sent again, as the first was late.
                    let earlier = buffer[..length]
                        .first_chunk()
                        .map(|bytes| u64::from_be_bytes(*bytes));
                    assert!(
                        earlier.is_some_and(|earlier| earlier < number),
                        "another datagram came back"
                    );
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    socket.send(&message).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
        tally.requests.fetch_add(1, Relaxed);
    }
}

/// Sends more than can be taken, and goes before it is answered.
fn flood(target: &Target, random: &mut Random, tally: &Tally) {
    let socket = open_datagrams(target);
    for number in 0..random.below(500) {
        // Its own memory may be full.
        let _ = socket.send(&numbered(number, random));
    }
    tally.kills.fetch_add(1, Relaxed);
}
