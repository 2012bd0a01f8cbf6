//! HTTP/1.1 over real sockets: what a bad client sees.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use crate::support::{Client, Server, connect_unix, engines};

/// What comes back for these bytes until the server ends the connection.
#[track_caller]
fn answer(server: &Server, bytes: &[u8]) -> String {
    let mut client = server.connect();
    client.send(bytes);
    String::from_utf8(client.rest()).unwrap()
}

#[test]
fn what_cannot_be_served_has_its_status_and_closes() {
    let long = "x".repeat(9000);
    let cases = [
        (400, "GET /plaintext HTTP/1.1\r\n\r\n".to_owned()),
        (400, "nonsense\r\n\r\n".to_owned()),
        (404, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        (
            405,
            "POST /plaintext HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
        (405, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        (
            413,
            "GET /plaintext HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n".to_owned(),
        ),
        (414, format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n")),
        (
            431,
            format!("GET / HTTP/1.1\r\nHost: x\r\nA: {long}{long}\r\n\r\n"),
        ),
        (
            431,
            format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(100)),
        ),
        (501, "BREW /plaintext HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        (
            501,
            "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned(),
        ),
        (505, "GET /plaintext HTTP/2.0\r\nHost: x\r\n\r\n".to_owned()),
    ];
    for engine in engines() {
        let server = Server::on(engine, "http");
        for (status, request) in &cases {
            let answer = answer(&server, request.as_bytes());
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{engine}: {status} for {:.60?}: {answer:.200?}",
                request
            );
            assert!(answer.contains("Connection: close\r\n"), "{answer}");
        }
        assert_eq!(server.connect().get("/plaintext").status, 200);
    }
}

#[test]
fn smuggling_shapes_are_refused_and_what_follows_is_not_served() {
    let smuggled = "GET /json HTTP/1.1\r\nHost: x\r\n\r\n";
    let post = |fields: &str, body: &str| {
        format!("POST /echo HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n{body}{smuggled}")
    };
    let get = |head: &str| format!("{head}{smuggled}");
    let chunked = |body: &str| post("Transfer-Encoding: chunked", body);
    let cases = [
        post("Content-Length: 4\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
        post("Content-Length: 4\r\nContent-Length: 5", "abcd"),
        post("Content-Length: 4\r\nContent-Length: 4", "abcd"),
        post("Content-Length: +4", "abcd"),
        post("Content-Length: -4", "abcd"),
        post("Content-Length: 4, 4", "abcd"),
        post("Content-Length: 0x4", "abcd"),
        post("Content-Length:", "abcd"),
        post("Content-Length: 99999999999999999999", "abcd"),
        post("Content-Length : 4", "abcd"),
        post("Transfer-Encoding : chunked", "0\r\n\r\n"),
        post(
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "0\r\n\r\n",
        ),
        post(" Content-Length: 4", "abcd"),
        post("A: b\r\n c: d", ""),
        chunked("g\r\n"),
        chunked("+1\r\na\r\n0\r\n\r\n"),
        chunked("0x1\r\na\r\n0\r\n\r\n"),
        chunked("fffffffffffffffff\r\na"),
        chunked("1\na\n0\n\n"),
        chunked("1\r\nab\r\n0\r\n\r\n"),
        chunked("-1\r\n"),
        get("GET /plaintext HTTP/1.1\nHost: x\n\n"),
        get("GET /plaintext HTTP/1.1\r\nHost: x\rA: b\r\n\r\n"),
        get("GET /plaintext HTTP/1.1\r\nHost: x\0\r\n\r\n"),
        get("GET /plaintext HTTP/1.1\r\n\r\n"),
        get("GET /plaintext HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
        get("GET  /plaintext HTTP/1.1\r\nHost: x\r\n\r\n"),
    ];
    for engine in engines() {
        let server = Server::on(engine, "http");
        for request in &cases {
            let answer = answer(&server, request.as_bytes());
            let served = answer.matches("\r\nServer: quoit\r\n").count();
            assert!(
                served == 1 && !answer.contains("application/json"),
                "{engine}: {request:?}: {answer}"
            );
            // A body that goes wrong after it has begun can only be cut short.
            let begun = answer.starts_with("HTTP/1.1 200 ")
                && answer.contains("chunked")
                && !answer.ends_with("0\r\n\r\n");
            assert!(
                begun || answer.starts_with("HTTP/1.1 400 "),
                "{engine}: {request:?}: {answer}"
            );
        }
    }
}

#[test]
fn a_head_that_takes_too_long_is_answered_408() {
    for engine in engines() {
        let server = Server::on(engine, "http --head-timeout 1");
        let mut slow = server.connect();
        slow.send("GET /plaintext HTTP/1.1\r\nHost");
        let answer = String::from_utf8(slow.rest()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    for engine in engines() {
        let server = Server::on(engine, "http --idle-timeout 1");
        let mut silent = server.connect();
        let mut served = server.connect();
        served.get("/plaintext");
        silent.is_ended();
        served.is_ended();
    }
}

/// A body of a byte now and then would keep its connection for ever.
#[test]
fn a_body_that_trickles_is_given_up() {
    for engine in engines() {
        let server = Server::on(engine, "http --idle-timeout 1");
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
        // Each read waits for a part of the time that it may be idle.
        let stream = client.stream.get_ref().try_clone().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let begin = Instant::now();
        loop {
            match (&stream).read(&mut [0; 4096]) {
                Ok(1..) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    // Refused once it has ended, which the next read tells.
                    let _ = (&stream).write_all(b".");
                }
                Ok(0) | Err(_) => break,
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{engine}: it goes on");
        }
    }
}

/// It is not idle although the server has had nothing to do for it: what it takes was in the kernel's hands.
#[test]
fn a_slow_but_steady_download_is_not_idle() {
    for engine in engines() {
        let server = Server::on(engine, "http --idle-timeout 1");
        let mut client = server.connect();
        client.send("GET /bytes/100000000 HTTP/1.1\r\nHost: x\r\n\r\n");
        client.head();
        let mut stream = client.stream.get_ref();
        let begin = Instant::now();
        // For several times as long as it may be idle.
        while begin.elapsed() < Duration::from_secs(4) {
            let mut bytes = vec![0; 128 * 1024];
            stream.read_exact(&mut bytes).expect("it goes on");
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

#[test]
fn the_time_for_a_head_is_for_each_head() {
    for engine in engines() {
        let server = Server::on(engine, "http --head-timeout 1");
        let mut client = server.connect();
        client.send("GET /plaintext HTTP/1.1\r\nHo");
        // For longer than one head may take, there is always an incomplete one.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(1500) {
            client.send("st: x\r\n\r\nGET /plaintext HTTP/1.1\r\nHo");
            assert_eq!(client.response().status, 200);
        }
    }
}

/// Over Unix sockets, whose own memory is small and always the same.
#[test]
fn responses_that_nobody_reads_share_the_memory_of_the_loop() {
    const PEERS: usize = 600;
    // What sends are copied to, by which lent memory is measured too, and the last piece of each connection.
    const MOST: usize = (64 << 20) + PEERS * (64 << 10);
    for engine in engines() {
        let name = format!("unix:@quoit-test-{}-unread-{engine}", std::process::id());
        let server = Server::start(&format!(
            "http --engine {engine} --listen 127.0.0.1:0 --listen {name}"
        ));
        let mut peers: Vec<_> = (0..PEERS)
            .map(|_| {
                let mut peer = Client::new(connect_unix(&name));
                peer.send("GET /bytes/1000000000000 HTTP/1.1\r\nHost: x\r\n\r\n");
                peer
            })
            .collect();
        // Of whom something has arrived, all has been queued that is for the time being.
        for peer in &mut peers {
            peer.stream.get_mut().read_exact(&mut [0]).unwrap();
        }
        let metrics = server.connect().get("/metrics");
        let queued = metrics
            .text()
            .lines()
            .find_map(|line| line.strip_prefix("quoit_queued_bytes{loop=\"0\"} "))
            .expect("the figure is there");
        let queued: usize = queued.parse().unwrap();
        assert!((1 << 20..=MOST).contains(&queued), "{engine}: {queued}");
    }
}
