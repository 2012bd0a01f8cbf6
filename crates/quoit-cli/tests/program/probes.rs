//! What whoever watches a server is told: whether it is ready, whether it lives, and how busy its loops are.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Client, PATIENCE, Pattern, Response, Server, connect, engines};

/// Long enough that no socket buffers hold it.
const STREAM: u64 = 100_000_000;

/// One probe, on a connection of its own.
#[track_caller]
fn probe(metrics: &str, path: &str) -> Response {
    Client::<TcpStream>::new(connect(metrics)).get(path)
}

#[track_caller]
fn says(metrics: &str, path: &str, status: u16, text: &str) {
    let response = probe(metrics, path);
    assert_eq!((response.status, response.text()), (status, text), "{path}");
}

/// The figure of that loop, if it is there.
#[track_caller]
fn figure(metrics: &str, name: &str, index: usize) -> Option<f64> {
    let response = probe(metrics, "/metrics");
    let prefix = format!("{name}{{loop=\"{index}\"}} ");
    let found = response
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(&prefix));
    found.map(|figure| figure.parse().unwrap())
}

/// What happens when a pod is taken down: until the signal it is ready, from then on it is not; it lives all the same, so that nobody
/// starts it again, and what is in flight is finished.
#[test]
fn a_server_that_drains_is_not_ready_and_lives() {
    for engine in engines() {
        let mut server = Server::on(engine, "http --loops 2 --drain 600 --metrics 127.0.0.1:0");
        let metrics = server.message("metrics on ");
        for path in ["/readyz", "/livez", "/healthz"] {
            says(&metrics, path, 200, "ok");
        }
        let mut busy = server.connect();
        busy.send(format!("GET /bytes/{STREAM} HTTP/1.1\r\nHost: x\r\n\r\n"));
        busy.head();
        let mut idle = server.connect();
        // Where it serves, too.
        for path in ["/readyz", "/livez"] {
            assert_eq!(idle.get(path).text(), "ok");
        }
        server.terminate();
        // So it has taken notice.
        idle.is_ended();
        says(&metrics, "/readyz", 503, "draining");
        says(&metrics, "/livez", 200, "ok");
        says(&metrics, "/healthz", 200, "ok");
        Pattern::new().read(&mut busy.stream, STREAM);
        busy.is_ended();
        drop((busy, idle));
        server.ends_with(0);
    }
}

/// Servers that speak no HTTP have the same probes, those of datagrams too.
#[test]
fn every_protocol_has_probes() {
    for protocol in ["echo", "rpc", "sink", "udp-echo", "dns --record a.test=192.0.2.1"] {
        let server = Server::on("epoll", &format!("{protocol} --metrics 127.0.0.1:0"));
        let metrics = server.message("metrics on ");
        says(&metrics, "/readyz", 200, "ok");
        says(&metrics, "/livez", 200, "ok");
    }
}

/// A handler that never returns: the loop that has it is named, and probes are answered all the same.
#[test]
fn a_loop_that_stands_still_is_named_by_the_probe() {
    let servers: Vec<_> = engines()
        .iter()
        .map(|engine| {
            // An hour of work for each piece.
            let arguments = "echo --work 3600000000000 --loops 2 --metrics 127.0.0.1:0";
            let server = Server::on(engine, arguments);
            let metrics = server.message("metrics on ");
            says(&metrics, "/livez", 200, "ok");
            let mut client = connect(server.address());
            client.write_all(b"x").unwrap();
            (server, metrics, client)
        })
        .collect();
    let begin = Instant::now();
    loop {
        let probed: Vec<_> = servers
            .iter()
            .map(|(_, metrics, _)| probe(metrics, "/livez"))
            .collect();
        let stuck = probed.iter().filter(|response| response.status == 503);
        if stuck.clone().count() == servers.len() {
            for response in stuck {
                let text = response.text();
                assert!(
                    text.starts_with("loop ") && text.ends_with(" stands still"),
                    "{text}"
                );
            }
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "nobody misses a loop: {probed:?}");
        // So that probes do not use up the ports.
        std::thread::sleep(Duration::from_millis(20));
    }
    for (server, metrics, _client) in &servers {
        // Nothing was said of draining: that it takes clients is what it is for.
        says(metrics, "/readyz", 200, "ok");
        server.terminate();
    }
}

/// Two loops, one of which works: its thread's time grows, and what it waits for a processor is told beside.
#[test]
fn how_busy_each_loop_is_is_told() {
    const RUNNING: &str = "quoit_loop_running_seconds_total";
    for engine in engines() {
        // 200 ms of work for each piece.
        let arguments = "echo --work 200000000 --loops 2 --metrics 127.0.0.1:0";
        let server = Server::on(engine, arguments);
        let metrics = server.message("metrics on ");
        let before = [0, 1].map(|index| figure(&metrics, RUNNING, index).unwrap());
        let mut client = connect(server.address());
        client.write_all(b"x").unwrap();
        let mut back = [0; 1];
        client.read_exact(&mut back).unwrap();
        let took = [0, 1].map(|index| figure(&metrics, RUNNING, index).unwrap() - before[index]);
        let (most, least) = (took[0].max(took[1]), took[0].min(took[1]));
        // The work is counted in steps, so that it may be a little less, or more.
        assert!(most > 0.1, "{engine}: {took:?}");
        assert!(least < 0.1, "{engine}: {took:?}");
        for index in [0, 1] {
            assert!(figure(&metrics, "quoit_loop_runnable_seconds_total", index).is_some());
        }
    }
}
