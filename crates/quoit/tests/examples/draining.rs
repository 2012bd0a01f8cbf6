//! What the examples do at SIGTERM and SIGINT: all that they were asked before is answered, and they end with 0.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, UdpSocket};

use libc::{SIGINT, SIGTERM};

use crate::example::Example;
use crate::support::{PATIENCE, client, echo, end_of, guard};
use crate::{answer, report};

#[test]
fn echo_answers_who_is_connected() {
    guard(120);
    let mut example = Example::start("echo", &[]);
    let mut client = client(example.address);
    echo(&mut client, b"before");
    example.signal(SIGTERM);
    example.wait_draining();
    echo(&mut client, &[7; 100_000]);
    client.shutdown(Shutdown::Write).unwrap();
    end_of(&mut client).unwrap();
    assert_eq!(example.exit_code(), 0);
}

#[test]
fn udp_echo_ends() {
    guard(120);
    let mut example = Example::start("udp_echo", &[]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(example.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send(b"before").unwrap();
    let mut answer = [0; 16];
    assert_eq!(client.recv(&mut answer).unwrap(), 6);
    example.signal(SIGTERM);
    assert_eq!(example.exit_code(), 0);
}

#[test]
fn statsd_tells_who_has_asked() {
    guard(120);
    let mut example = Example::start("statsd", &[]);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(example.address).unwrap();
    sender.send(b"hits:3|c").unwrap();
    while !report(example.address).contains("datagrams=1 ") {}
    // The report is under way, and not read yet.
    let mut client = client(example.address);
    example.signal(SIGTERM);
    example.wait_draining();
    let mut last = String::new();
    client.read_to_string(&mut last).unwrap();
    assert_eq!(last, "hits 3\ndatagrams=1 refused=0 truncated=0 dropped=0\n");
    drop(client);
    assert_eq!(example.exit_code(), 0);
}

#[test]
fn key_value_answers_the_line_that_was_begun() {
    guard(120);
    let mut example = Example::start("key_value", &[]);
    let mut idle = client(example.address);
    let mut silent = client(example.address);
    let mut busy = client(example.address);
    idle.write_all(b"SET a b\n").unwrap();
    answer(&mut idle, "+ok\n");
    busy.write_all(b"GET a\nGET").unwrap();
    answer(&mut busy, "+b\n");
    example.signal(SIGTERM);
    // Nothing is owed to these.
    end_of(&mut idle).unwrap();
    end_of(&mut silent).unwrap();
    busy.write_all(b" a\n").unwrap();
    answer(&mut busy, "+b\n");
    end_of(&mut busy).unwrap();
    drop((idle, silent, busy));
    assert_eq!(example.exit_code(), 0);
}

#[test]
fn proxy_passes_on_until_both_have_ended() {
    guard(120);
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap().to_string();
    let mut example = Example::start("proxy", &[&address]);
    let mut client = client(example.address);
    let (mut server, _) = target.accept().unwrap();
    client.write_all(b"ques").unwrap();
    server.read_exact(&mut [0; 4]).unwrap();
    example.signal(SIGTERM);
    example.wait_draining();
    client.write_all(b"tion").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut question = String::new();
    server.read_to_string(&mut question).unwrap();
    assert_eq!(question, "tion");
    server.write_all(b"answer").unwrap();
    drop(server);
    let mut received = String::new();
    client.read_to_string(&mut received).unwrap();
    assert_eq!(received, "answer");
    assert_eq!(example.exit_code(), 0);
}

/// Each of those that wait for their clients.
fn held() -> Vec<(Example, std::net::TcpStream)> {
    ["echo", "key_value"]
        .map(|name| {
            let example = Example::start(name, &[]);
            let mut client = client(example.address);
            // Half a line, so that there is something to wait for.
            client.write_all(b"GET\nhalf").unwrap();
            client.read_exact(&mut [0; 4]).unwrap();
            (example, client)
        })
        .into()
}

#[test]
fn a_second_signal_ends_them_at_once() {
    guard(120);
    for (mut example, _client) in held() {
        example.signal(SIGINT);
        example.wait_draining();
        assert!(example.is_running(), "it waits for its client");
        example.signal(SIGTERM);
        assert_eq!(example.exit_code(), 1);
    }
}

/// All at once, as each takes as long as it has for draining.
#[test]
fn who_stays_for_ever_is_aborted_at_the_deadline() {
    guard(120);
    let mut held = held();
    for (example, _) in &mut held {
        example.signal(SIGTERM);
    }
    for (example, mut client) in held {
        let drained = example.exit_code();
        let mut rest = Vec::new();
        assert!(client.read_to_end(&mut rest).is_err(), "a reset, not an end");
        assert_eq!(drained, 0);
    }
}
