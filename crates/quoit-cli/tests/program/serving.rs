//! Where `quoit serve` listens, and how.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use crate::support::{Client, Server, connect, connect_unix, engines, quoit};

#[track_caller]
fn echoes(stream: &mut (impl Read + Write)) {
    stream.write_all(b"one and the same").unwrap();
    let mut back = [0; 16];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"one and the same");
}

#[test]
fn every_kind_of_address_is_served_and_named() {
    let folder = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = format!("unix:{}", folder.path().join(engine).display());
        let name = format!("unix:@quoit-test-{}-{engine}", std::process::id());
        let command = quoit(&format!(
            "serve echo --engine {engine} --listen 127.0.0.1:0 --listen [::1]:0 --listen {path} --listen {name}"
        ));
        let server = Server::start_command(command, 4);
        assert!(
            server
                .ready
                .iter()
                .all(|ready| ready.engine == *engine && ready.loops == 1)
        );
        let addresses: Vec<&str> = server.ready.iter().map(|ready| ready.address.as_str()).collect();
        assert!(addresses[0].starts_with("127.0.0.1:") && !addresses[0].ends_with(":0"));
        assert!(addresses[1].starts_with("[::1]:") && !addresses[1].ends_with(":0"));
        assert_eq!(addresses[2..], [path.as_str(), name.as_str()]);
        echoes(&mut connect(addresses[0]));
        echoes(&mut connect(addresses[1]));
        echoes(&mut connect_unix(addresses[2]));
        echoes(&mut connect_unix(addresses[3]));
    }
}

#[test]
fn a_socket_file_left_by_a_dead_server_is_replaced_and_a_living_ones_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("socket").display());
    // On epoll: the kernel takes a killed process's ring down after its end, and the listening socket with it.
    let arguments = format!("echo --engine epoll --listen {address}");
    let first = Server::start(&arguments);
    let second = quoit(&format!("serve {arguments}")).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    // Killed, so that the file stays.
    drop(first);
    let _third = Server::start(&arguments);
    echoes(&mut connect_unix(&address));
}

#[test]
fn a_sink_takes_everything_and_answers_nothing() {
    for engine in engines() {
        let server = Server::on(engine, "sink");
        let mut client = server.connect();
        client.send(vec![7; 10 << 20]);
        client
            .stream
            .get_ref()
            .shutdown(std::net::Shutdown::Write)
            .unwrap();
        client.is_ended();
    }
}

#[test]
fn echo_goes_on_for_a_client_that_has_shut_its_side() {
    for engine in engines() {
        let server = Server::on(engine, "echo");
        let mut client = server.connect();
        let message: Vec<u8> = (0..3_000_000_u32).map(|byte| byte as u8).collect();
        let mut writer = client.stream.get_ref().try_clone().unwrap();
        let sent = message.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        assert!(client.rest() == message, "what came back differs");
        writing.join().unwrap();
    }
}

#[test]
fn loops_share_a_listener_in_every_way() {
    for engine in engines() {
        for spread in ["hand-over", "shared", "reuse-port"] {
            let server = Server::on(engine, &format!("http --loops 2 --spread {spread}"));
            assert_eq!(server.ready[0].loops, 2);
            let mut clients: Vec<_> = (0..32).map(|_| server.connect()).collect();
            for client in &mut clients {
                assert_eq!(
                    client.get("/plaintext").text(),
                    "Hello, World!",
                    "{engine} {spread}"
                );
            }
            let metrics = clients[0].get("/metrics");
            for index in ["0", "1"] {
                let counter = format!("quoit_turns_total{{loop=\"{index}\"}}");
                assert!(metrics.text().contains(&counter), "{engine} {spread}");
            }
            if spread == "hand-over" {
                // Both have connections, as each goes to the loop with the fewest.
                let idle = |line: &&str| line.starts_with("quoit_connections{") && line.ends_with(" 0");
                assert_eq!(
                    metrics.text().lines().filter(idle).count(),
                    0,
                    "{}",
                    metrics.text()
                );
            }
        }
    }
}

#[test]
fn sockets_of_a_service_manager_are_served() {
    for engine in engines() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut command = Command::new("/bin/sh");
        // From standard input, which the test can fill, to where a service manager puts it.
        command
            .args([
                "-c",
                "exec 3<&0 </dev/null; LISTEN_PID=$$ exec \"$0\" serve http --engine \"$1\"",
            ])
            .args([env!("CARGO_BIN_EXE_quoit"), engine])
            .env("LISTEN_FDS", "1")
            .stdin(OwnedFd::from(listener));
        let server = Server::start_command(command, 1);
        assert_eq!(server.address(), address);
        assert_eq!(server.connect().get("/healthz").text(), "ok");
    }
}

#[test]
fn messages_that_nobody_can_have_end_nothing() {
    for arguments in [
        "--engine epoll --metrics 127.0.0.1:0",
        "--connections 1000000",
        "",
    ] {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "exec \"$0\" serve echo --listen 127.0.0.1:0 $1 2>/dev/full"])
            .args([env!("CARGO_BIN_EXE_quoit"), arguments])
            .stdin(Stdio::null());
        let mut server = Server::start_command(command, 1);
        echoes(&mut connect(server.address()));
        server.terminate();
        server.ends_with(0);
    }
}

#[test]
fn metrics_are_served_beside_any_protocol() {
    for engine in engines() {
        let server = Server::on(engine, "echo --metrics 127.0.0.1:0");
        echoes(&mut connect(server.address()));
        let metrics = server.message("metrics on ");
        let mut client = Client::<TcpStream>::new(connect(&metrics));
        let response = client.get("/metrics");
        assert_eq!(response.status, 200);
        assert!(
            response
                .field("Content-Type")
                .is_some_and(|kind| kind.starts_with("application/openmetrics-text"))
        );
        let text = response.text();
        let engine_line = text.lines().find(|line| line.starts_with("quoit_engine_info{"));
        assert!(
            engine_line.is_some_and(|line| line.contains(&format!("engine=\"{engine}\""))),
            "{text}"
        );
        for line in [
            "# TYPE quoit_enters counter",
            "# TYPE quoit_connections gauge",
            "quoit_system_calls_total{loop=\"0\"} ",
            "quoit_submissions_total{loop=\"0\"} ",
            "quoit_accepted_total{loop=\"0\"} ",
        ] {
            assert!(
                text.lines().any(|found| found.starts_with(line)),
                "{line}: {text}"
            );
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        // A probe has a connection of its own.
        client.is_ended();
        let mut client = Client::<TcpStream>::new(connect(&metrics));
        assert_eq!(client.get("/healthz").text(), "ok");
    }
}

/// Metrics are for whoever can connect, so that all interfaces have to be asked for.
#[test]
fn a_port_of_metrics_alone_is_one_of_this_host() {
    // A port that is free now, and mostly still when it is asked for.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for (given, bound) in [
        ("0".to_owned(), "127.0.0.1:"),
        (":0".to_owned(), "127.0.0.1:"),
        (format!(":{free}"), &format!("127.0.0.1:{free}")),
        ("0.0.0.0:0".to_owned(), "0.0.0.0:"),
        ("[::1]:0".to_owned(), "[::1]:"),
    ] {
        let server = Server::on("epoll", &format!("echo --metrics {given}"));
        let metrics = server.message("metrics on ");
        assert!(metrics.starts_with(bound), "{given}: {metrics}");
    }
    for (wrong, said) in [
        ("99999", "99999 is not a port from 0 to 65535"),
        (":99999", "99999 is not a port from 0 to 65535"),
        ("65536", "65536 is not a port from 0 to 65535"),
        ("nowhere", "the port is missing"),
        (":", "\"\" is not a port"),
    ] {
        let output = quoit(&format!("serve echo --metrics {wrong}")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(said), "{wrong}: {text}");
    }
}

/// More than are kept for long, and no more than there is room for.
#[test]
fn probes_that_come_at_once_are_all_answered() {
    let server = Server::on("epoll", "echo --metrics 127.0.0.1:0");
    let metrics = server.message("metrics on ");
    let mut probes = Vec::new();
    server.stop();
    for _ in 0..28 {
        let mut probe = Client::<TcpStream>::new(connect(&metrics));
        probe.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        probes.push(probe);
    }
    server.go_on();
    for probe in &mut probes {
        assert_eq!(probe.response().text(), "ok");
    }
}

/// A liveness probe is answered whatever else comes to the metrics' address: it would end a healthy server.
#[test]
fn a_probe_is_answered_among_clients_that_say_nothing() {
    let server = Server::on("epoll", "echo --metrics 127.0.0.1:0");
    let metrics = server.message("metrics on ");
    let mut rude = Vec::new();
    for number in 0..200 {
        let mut client = Client::<TcpStream>::new(connect(&metrics));
        match number % 3 {
            0 => {}
            1 => client.send("GET /metrics HTTP/1.1\r\nHo"),
            // It asks, and does not read.
            _ => client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100)),
        }
        rude.push(client);
    }
    let mut probe = Client::<TcpStream>::new(connect(&metrics));
    assert_eq!(probe.get("/healthz").text(), "ok");
}

#[test]
fn the_counters_of_many_loops_are_served_whole() {
    // More text than is queued for a connection at once.
    let server = Server::on("epoll", "http --loops 200 --connections 16");
    let metrics = server.connect().get("/metrics");
    assert!(metrics.body.len() > 256 * 1024, "{}", metrics.body.len());
    assert!(
        metrics.text().contains("quoit_turns_total{loop=\"199\"}") && metrics.text().ends_with("# EOF\n")
    );
}

#[test]
fn features_can_be_done_without() {
    if !engines().contains(&"uring") {
        return;
    }
    for without in [
        "multishot-receive",
        "buffer-ring,multishot-accept,defer-taskrun",
        "single-issuer,multishot-poll,submit-all,no-submission-array,registered-ring,cooperative-taskrun",
    ] {
        let server = Server::on("uring", &format!("echo --without {without}"));
        echoes(&mut connect(server.address()));
    }
}
