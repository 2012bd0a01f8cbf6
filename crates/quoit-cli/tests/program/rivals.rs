//! The rivals of the lab answer as Quoit does, so that a comparison with them compares the same work.
//!
//! `make lab-peers` builds them into `target/peers`; a rival that is not there is left out, with a line.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::loading::load;
use crate::support::{Response, Server, engines, error_line, output};

struct Rival {
    /// The program, with the arguments that choose its engine.
    command: &'static str,
    /// As the ready line has it.
    engine: &'static str,
    services: &'static [&'static str],
    /// Whether its responses are Quoit's byte for byte, but for the date.
    same_bytes: bool,
    /// Whether it can choose a free port.
    any_port: bool,
}

const RIVALS: &[Rival] = &[
    rival("tokio-raw", "tokio-raw", &["echo", "http"], true),
    rival("hyper", "hyper", &["http"], false),
    rival("quoit-async", "quoit-async", &["echo", "http"], false),
    rival(
        "quoit-async --engine epoll",
        "quoit-async-epoll",
        &["echo", "http"],
        false,
    ),
    rival("axum", "axum", &["http"], false),
    rival("axum --engine uring", "axum-uring", &["http"], false),
    rival("axum --engine epoll-loops", "axum-epoll-loops", &["http"], false),
    rival("monoio", "monoio", &["echo", "http"], true),
    rival("monoio --engine epoll", "monoio-epoll", &["echo", "http"], true),
    rival("monoio-hyper", "monoio-hyper", &["http"], false),
    rival(
        "monoio-hyper --engine epoll",
        "monoio-hyper-epoll",
        &["http"],
        false,
    ),
    rival("compio", "compio", &["http"], false),
    rival("ntex", "ntex", &["http"], false),
    rival("ntex --engine epoll", "ntex-epoll", &["http"], false),
    rival("actix-web", "actix-web", &["http"], false),
    rival("gnet", "gnet", &["echo", "http"], true),
    rival("net", "net", &["echo"], true),
    rival("fasthttp", "fasthttp", &["http"], true),
    rival("nethttp", "nethttp", &["http"], false),
    rival("kestrel --transport sockets", "kestrel-sockets", &["http"], false),
    rival(
        "kestrel --transport sockets-inline",
        "kestrel-sockets-inline",
        &["http"],
        false,
    ),
    rival(
        "kestrel --transport quoit-uring",
        "kestrel-quoit-uring",
        &["http"],
        false,
    ),
    rival(
        "kestrel --transport quoit-epoll-inline --app bare",
        "kestrel-quoit-epoll-inline",
        &["http"],
        false,
    ),
    rival(
        "quoit-go --way event --engine epoll",
        "epoll",
        &["echo", "http"],
        true,
    ),
    rival(
        "quoit-go --way event --engine uring",
        "uring",
        &["echo", "http"],
        true,
    ),
    rival("quoit-go --way fasthttp --engine epoll", "epoll", &["http"], true),
    rival("quoit-go --way nethttp --engine epoll", "epoll", &["http"], false),
    rival(
        "quoit-go --way listener --engine epoll",
        "epoll",
        &["http"],
        false,
    ),
    rival("netty --engine nio", "netty-nio", &["echo", "http"], true),
    rival("netty --engine epoll", "netty-epoll", &["echo", "http"], true),
    rival("netty --engine uring", "netty-uring", &["echo", "http"], true),
    rival(
        "netty --engine uring-rings",
        "netty-uring-rings",
        &["echo", "http"],
        true,
    ),
    rival(
        "netty --engine quoit-uring",
        "netty-quoit-uring",
        &["echo", "http"],
        true,
    ),
    rival(
        "netty --engine quoit-epoll",
        "netty-quoit-epoll",
        &["echo", "http"],
        true,
    ),
    Rival {
        any_port: false,
        ..rival("nginx", "nginx", &["http"], false)
    },
];

const NEEDS_URING: &[&str] = &[
    "uring",
    "quoit-async",
    "axum-uring",
    "async-services-uring",
    "monoio",
    "monoio-hyper",
    "compio",
    "ntex",
    "netty-uring",
    "netty-uring-rings",
    "netty-quoit-uring",
    "kestrel-quoit-uring",
];

const fn rival(
    command: &'static str,
    engine: &'static str,
    services: &'static [&'static str],
    same_bytes: bool,
) -> Rival {
    Rival {
        command,
        engine,
        services,
        same_bytes,
        any_port: true,
    }
}

impl Rival {
    /// Its program, if it is built and this machine lets it run.
    fn program(&self) -> Option<PathBuf> {
        let name = self.command.split(' ').next().unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../target/peers")
            .join(name);
        if !program.exists() {
            println!("{name} is not built (make lab-peers) and left out");
            return None;
        }
        if NEEDS_URING.contains(&self.engine) && !engines().contains(&"uring") {
            println!("{} is left out, for io_uring is denied", self.engine);
            return None;
        }
        Some(program)
    }

    fn serve(&self, program: &Path, service: &str, loops: u32) -> Server {
        let port = if self.any_port {
            0
        } else {
            quoit_host::ports::free(IpAddr::from([127, 0, 0, 1])).unwrap()
        };
        let mut command = Command::new(program);
        command
            .arg(service)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--loops", &loops.to_string()])
            .args(self.command.split(' ').skip(1))
            .stdin(Stdio::null());
        let server = Server::start_command(command, 1);
        let ready = &server.ready[0];
        assert_eq!((ready.engine.as_str(), ready.loops), (self.engine, loops));
        assert!(ready.version.as_ref().is_some_and(|version| !version.is_empty()));
        server
    }
}

/// Runs a check on every rival with this service that is there.
fn each(service: &str, check: impl Fn(&Rival, &Path)) {
    for rival in RIVALS.iter().filter(|rival| rival.services.contains(&service)) {
        if let Some(program) = rival.program() {
            check(rival, &program);
        }
    }
}

#[test]
fn rivals_echo_under_load() {
    each("echo", |rival, program| {
        for loops in [1, 2] {
            let mut server = rival.serve(program, "echo", loops);
            let address = server.address();
            for (connections, pipeline, size, requests) in [
                (64, 1, 1, 5_000),
                (16, 16, 512, 10_000),
                (8, 2, 70_000, 500),
                (4, 2, 1_000_000, 50),
            ] {
                load(
                    &format!(
                        "echo --connect {address} --connections {connections} --pipeline {pipeline} --size {size}"
                    ),
                    requests,
                );
            }
            let _open = server.connect();
            server.terminate();
            server.ends_with(0);
        }
    });
}

#[test]
fn rivals_serve_http_under_load() {
    each("http", |rival, program| {
        for loops in [1, 2] {
            let mut server = rival.serve(program, "http", loops);
            let address = server.address();
            for (path, pipeline) in [("/plaintext", 1), ("/plaintext", 16), ("/json", 1), ("/json", 16)] {
                load(
                    &format!("http --connect {address} --connections 32 --pipeline {pipeline} --path {path}"),
                    10_000,
                );
            }
            let _open = server.connect();
            server.terminate();
            server.ends_with(0);
        }
    });
}

#[test]
fn kestrel_streams_bodies_under_load() {
    each("http", |rival, program| {
        // What the bare application leaves out.
        if !rival.command.starts_with("kestrel") || rival.command.contains("bare") {
            return;
        }
        let mut server = rival.serve(program, "http", 1);
        let address = server.address();
        for (options, requests) in [
            ("--path /download/65536/16384", 2_000),
            ("--path /download/1048577/65536", 200),
            ("--path /upload --body 65536", 2_000),
            ("--path /upload --body 1048577", 200),
        ] {
            load(
                &format!("http --connect {address} --connections 8 {options}"),
                requests,
            );
        }
        let mut client = server.connect();
        client.send("GET /download/1000/7 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let pattern: Vec<u8> = (0..1000).map(|at: u32| (at % 251) as u8).collect();
        assert_eq!(client.response().body, pattern, "{}", rival.command);
        client.send("POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response().body, b"5", "{}", rival.command);
        server.terminate();
        server.ends_with(0);
    });
}

#[test]
fn async_services_under_their_own_load() {
    for (command, engine) in [
        ("async-services", "async-services"),
        ("async-services --engine uring", "async-services-uring"),
        ("async-services --engine epoll", "async-services-epoll"),
    ] {
        let rival = rival(command, engine, &[], false);
        let Some(program) = rival.program() else {
            continue;
        };
        for (service, what) in [
            ("https", "https"),
            ("https", "handshakes"),
            ("grpc", "grpc"),
            ("websocket", "websocket"),
        ] {
            let server = rival.serve(&program, service, 1);
            let mut load = Command::new(&program);
            load.args(["load", what, "--connections", "8", "--seconds", "0.2"])
                .args(["--connect", server.address()]);
            let output = output(load);
            assert!(output.status.success(), "{command} {what}: {output:?}");
            let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(told["requests"].as_u64() > Some(0), "{command} {what}: {told}");
        }
    }
}

#[test]
fn rivals_respond_as_quoit_does() {
    let quoit = Server::start("http --listen 127.0.0.1:0");
    each("http", |rival, program| {
        let server = rival.serve(program, "http", 1);
        for path in ["/plaintext", "/json"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let ask = |server: &Server| {
                // The head in two parts, with a second request behind it.
                let mut client = server.connect();
                let (first, second) = request.split_at(8);
                client.send(first);
                client.send(format!("{second}{request}"));
                let response = client.response();
                let again = client.response();
                // A map's order is not always the same.
                let fields = |response: &Response| {
                    let head = without_date(response);
                    head.lines().map(str::to_owned).collect::<BTreeSet<_>>()
                };
                assert_eq!(fields(&response), fields(&again));
                assert_eq!(response.body, again.body);
                response
            };
            let (ours, theirs) = (ask(&quoit), ask(&server));
            assert_eq!((ours.status, theirs.status), (200, 200));
            assert_eq!(theirs.text(), ours.text());
            for name in ["Content-Type", "Content-Length"] {
                assert_eq!(theirs.field(name), ours.field(name), "{}: {name}", rival.command);
            }
            for name in ["Server", "Date"] {
                let length = |response: &Response| response.field(name).map(str::len);
                assert_eq!(length(&theirs), length(&ours), "{}: {name}", rival.command);
            }
            let (ours, theirs) = (without_date(&ours), without_date(&theirs));
            if rival.same_bytes {
                assert_eq!(theirs, ours, "{}", rival.command);
            }
            let difference = if theirs == ours {
                "the same bytes".to_owned()
            } else {
                let more = theirs.len() as i64 - ours.len() as i64;
                format!("{more:+} bytes: {theirs:?}")
            };
            println!("{:22} {path:11} {difference}", rival.command);
        }
    });
}

#[test]
fn rivals_refuse_wrong_usage() {
    for rival in RIVALS {
        let Some(program) = rival.program() else {
            continue;
        };
        for arguments in [
            "",
            "nothing",
            "http --loops 0",
            "http --listen nowhere",
            "http --listen",
            "http --folders 1",
        ] {
            let mut command = Command::new(&program);
            command.args(arguments.split_whitespace());
            let line = error_line(&output(command), 2);
            let name = rival.command.split(' ').next().unwrap();
            assert!(line.starts_with(&format!("{name}: ")), "{line}");
        }
    }
}

/// The head without the date's value, which may differ by a second.
fn without_date(response: &Response) -> String {
    let date = response.field("Date").expect("there is a date");
    response.head.replace(date, "DATE")
}
