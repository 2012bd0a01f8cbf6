//! The examples, as programs of their own, talked to over sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod documentation;
mod draining;
mod example;
mod proxy;
#[path = "../support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;

use example::Example;
use support::{PATIENCE, client, echo, end_of, guard};

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
    // Datagrams and connections come by different ways: it is asked until all have been received, and once more, when
    // the turn that received the last has handed them out.
    while !report(example.address).contains("datagrams=105 ") {}
    assert_eq!(report(example.address), expected);
}

/// What statsd tells.
fn report(address: SocketAddr) -> String {
    let mut report = String::new();
    client(address).read_to_string(&mut report).unwrap();
    report
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
