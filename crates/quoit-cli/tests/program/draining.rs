//! Ending by signals.

use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

use crate::support::{Client, PATIENCE, Pattern, Server, engines};

/// Long enough that no socket buffers hold it.
const STREAM: u64 = 100_000_000;

/// A client in the midst of a streamed response, and one that is idle after a request.
fn busy_and_idle(server: &Server) -> (Client<TcpStream>, Client<TcpStream>) {
    let mut busy = server.connect();
    busy.send(format!("GET /bytes/{STREAM} HTTP/1.1\r\nHost: x\r\n\r\n"));
    busy.head();
    let mut idle = server.connect();
    assert_eq!(idle.get("/plaintext").status, 200);
    (busy, idle)
}

#[test]
fn a_signal_lets_finish_what_is_in_flight() {
    for engine in engines() {
        let mut server = Server::on(engine, "http");
        let (mut busy, mut idle) = busy_and_idle(&server);
        server.terminate();
        // So it has taken notice.
        idle.is_ended();
        let begin = Instant::now();
        while TcpStream::connect(server.address()).is_ok() {
            assert!(begin.elapsed() < PATIENCE, "it still listens");
            std::thread::yield_now();
        }
        Pattern::new().read(&mut busy.stream, STREAM);
        busy.is_ended();
        // The server waits for the clients' ends too, or for the deadline.
        drop((busy, idle));
        server.ends_with(0);
    }
}

#[test]
fn a_request_in_parts_is_answered_and_told_that_it_is_the_last() {
    for engine in engines() {
        let mut server = Server::on(engine, "http");
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
        // The response has begun, so its head is there.
        client.head();
        let mut late = server.connect();
        late.send("GET /healthz HTTP/1.1\r\nHo");
        let mut idle = server.connect();
        idle.get("/plaintext");
        server.terminate();
        idle.is_ended();
        client.send("def");
        let mut body = [0; 6];
        client.stream.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"abcdef");
        client.is_ended();
        late.send("st: x\r\n\r\n");
        let response = late.response();
        assert_eq!(response.status, 503);
        assert_eq!(response.field("Connection"), Some("close"));
        late.is_ended();
        drop((client, late, idle));
        server.ends_with(0);
    }
}

#[test]
fn who_does_not_read_is_cut_off_at_the_deadline() {
    for engine in engines() {
        let mut server = Server::on(engine, "http --drain 1");
        let (mut busy, _idle) = busy_and_idle(&server);
        server.terminate();
        server.ends_with(0);
        let mut received = Vec::new();
        // A reset, or less than there should be.
        let outcome = busy.stream.read_to_end(&mut received);
        assert!(outcome.is_err() || (received.len() as u64) < STREAM);
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    for engine in engines() {
        let mut server = Server::on(engine, "http --drain 86400");
        let (_busy, mut idle) = busy_and_idle(&server);
        server.terminate();
        idle.is_ended();
        server.terminate();
        let messages = server.ends_with(1);
        assert!(messages.contains("a second signal"), "{messages}");
    }
}

#[test]
fn echo_and_sink_drain_too() {
    for engine in engines() {
        for protocol in ["echo", "sink"] {
            let mut server = Server::on(engine, &format!("{protocol} --drain 0"));
            let _client = server.connect();
            server.terminate();
            server.ends_with(0);
        }
    }
}
