//! Large responses in bounded memory.

use crate::support::{Pattern, Server, engines};

const GIBIBYTE: u64 = 1 << 30;
/// How much larger the server may become: pools and buffers fill, a response does not.
const GROWTH_KIB: u64 = 64 * 1024;

#[track_caller]
fn has_not_grown(server: &Server, before_kib: u64) {
    let peak = server.status_kib("VmHWM");
    assert!(
        peak < before_kib + GROWTH_KIB,
        "it had {before_kib} KiB and came to have {peak} KiB"
    );
}

#[test]
fn a_gibibyte_is_streamed_in_bounded_memory() {
    for engine in engines() {
        let server = Server::on(engine, "http");
        let mut client = server.connect();
        client.get("/plaintext");
        let before = server.status_kib("VmRSS");
        client.send(format!("GET /bytes/{GIBIBYTE} HTTP/1.1\r\nHost: x\r\n\r\n"));
        client.head();
        Pattern::new().read(&mut client.stream, GIBIBYTE);
        has_not_grown(&server, before);
        assert_eq!(client.get("/plaintext").status, 200);
    }
}

#[test]
fn slow_readers_cost_bounded_memory_and_hold_up_nobody() {
    const STREAM: u64 = 100_000_000;
    for engine in engines() {
        let server = Server::on(engine, "http");
        let mut other = server.connect();
        other.get("/plaintext");
        let before = server.status_kib("VmRSS");
        let mut slow: Vec<_> = (0..16)
            .map(|_| {
                let mut client = server.connect();
                client.send(format!("GET /bytes/{STREAM} HTTP/1.1\r\nHost: x\r\n\r\n"));
                client.head();
                let mut pattern = Pattern::new();
                pattern.read(&mut client.stream, 10_000);
                (client, pattern)
            })
            .collect();
        for _ in 0..100 {
            assert_eq!(other.get("/plaintext").text(), "Hello, World!");
        }
        has_not_grown(&server, before);
        let (mut client, mut pattern) = slow.remove(0);
        pattern.read(&mut client.stream, STREAM - 10_000);
        assert_eq!(client.get("/plaintext").status, 200);
        has_not_grown(&server, before);
    }
}
