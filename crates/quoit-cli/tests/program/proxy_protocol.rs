//! `--proxy-protocol`: headers of a balancer before the bytes of each protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use quoit::proxy_protocol::{Addresses, Header, Version};

use crate::rpc::{open, read_frame};
use crate::support::{Client, Server, connect, engines, error_line, run};

const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n";

fn binary() -> Vec<u8> {
    let mut header = Header::new(Some(Addresses {
        source: "[2001:db8::7]:56324".parse().unwrap(),
        destination: "[2001:db8::1]:443".parse().unwrap(),
    }));
    assert_eq!(header.version, Version::Two);
    header.push_value(2, b"example.test").unwrap();
    header.encode()
}

/// The figure of a server's first loop.
#[track_caller]
fn figure(metrics: &str, name: &str) -> u64 {
    let response = Client::new(connect(metrics)).get("/metrics");
    let begin = format!("quoit_proxy_protocol_{name}_total{{loop=\"0\"}} ");
    let line = response.text().lines().find_map(|line| line.strip_prefix(&begin));
    line.expect("it is there").parse().unwrap()
}

/// How a connection ended by which nothing is sent.
#[track_caller]
fn is_reset(mut stream: TcpStream) {
    let error = stream.read(&mut [0]).expect_err("nothing comes");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn every_protocol_follows_a_header() {
    for engine in engines() {
        for header in [LINE.to_vec(), binary(), b"PROXY UNKNOWN\r\n".to_vec()] {
            let server = Server::on(engine, "echo --proxy-protocol");
            let mut client = server.connect();
            client.send([&header[..], b"hello"].concat());
            let mut back = [0; 5];
            client.stream.read_exact(&mut back).unwrap();
            assert_eq!(&back, b"hello");

            let server = Server::on(engine, "http --proxy-protocol");
            let mut client = server.connect();
            client.send(&header);
            assert_eq!(client.get("/plaintext").text(), "Hello, World!");
            assert_eq!(client.get("/json").status, 200);

            let server = Server::on(engine, "rpc --proxy-protocol");
            let mut client = server.connect();
            client.send([&header[..], &open(1, 1, 24, 1)].concat());
            assert_eq!(read_frame(&mut client.stream).0, 1);

            let server = Server::on(engine, "sink --proxy-protocol");
            let mut client = server.connect();
            client.send([&header[..], &[7; 100_000]].concat());
            client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
            client.is_ended();
        }
    }
}

/// However loops share the listener, and also in a loop that is not theirs.
#[test]
fn each_loop_takes_headers_off() {
    for engine in engines() {
        for how in [
            "--loops 3",
            "--loops 3 --spread shared",
            "--loops 2 --wait foreign",
        ] {
            let server = Server::on(engine, &format!("echo --proxy-protocol {how}"));
            let mut clients: Vec<_> = (0..12).map(|_| server.connect()).collect();
            for client in &mut clients {
                client.send([LINE, b"hello"].concat());
            }
            for client in &mut clients {
                let mut back = [0; 5];
                client.stream.read_exact(&mut back).unwrap();
                assert_eq!(&back, b"hello", "{engine} {how}");
            }
        }
    }
}

#[test]
fn headers_are_counted_and_what_has_none_is_reset() {
    for engine in engines() {
        let arguments = "http --proxy-protocol --head-timeout 1 --metrics 0";
        let server = Server::on(engine, arguments);
        let metrics = server.message("metrics on ");
        for header in [LINE, &binary(), b"PROXY UNKNOWN\r\n"] {
            let mut client = server.connect();
            client.send(header);
            assert_eq!(client.get("/plaintext").status, 200);
        }
        for bytes in [
            &b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            &[b'x'; 10_000],
        ] {
            let mut stream = connect(server.address());
            // It may have been reset by the first of it.
            let _ = stream.write_all(bytes);
            is_reset(stream);
        }
        let silent = connect(server.address());
        let mut slow = connect(server.address());
        slow.write_all(&LINE[..20]).unwrap();
        is_reset(silent);
        is_reset(slow);
        let mut check = server.connect();
        check.stream.get_ref().shutdown(Shutdown::Write).unwrap();
        check.is_ended();
        for (name, count) in [
            ("proxied", 2),
            ("local", 1),
            ("malformed", 2),
            ("late", 2),
            ("ended", 1),
        ] {
            assert_eq!(figure(&metrics, name), count, "{engine} {name}");
        }
    }
}

#[test]
fn datagrams_have_no_header() {
    let output = run("serve udp-echo --listen 127.0.0.1:0 --proxy-protocol");
    let line = error_line(&output, 2);
    assert!(line.contains("--proxy-protocol is for connections"), "{line}");
}
