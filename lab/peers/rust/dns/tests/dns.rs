//! The plain responder as a program, asked by sockets and by dnsperf.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running responder, killed when dropped.
struct Responder {
    child: Child,
    address: SocketAddr,
}

impl Drop for Responder {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Responder {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dns-recvfrom"))
            .args(["--listen", "127.0.0.1:0", "--work", "100"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.next().expect("it says that it is ready").expect("text");
        assert!(ready.ends_with(" engine=recvfrom loops=1"), "{ready}");
        let address = ready.split(' ').nth(2).expect("the ready line names the address");
        Self {
            child,
            address: address.parse().expect("an address"),
        }
    }
}

#[test]
fn a_query_is_answered_and_other_bytes_are_not() {
    let responder = Responder::start();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("not zero");
    socket.connect(responder.address).expect("it receives there");
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x04test\0\0\x01\0\x01";
    for bytes in [&b""[..], b"scraps", query] {
        socket.send(bytes).expect("it is sent");
    }
    let mut response = [0; 512];
    let length = socket.recv(&mut response).expect("it is answered");
    assert_eq!(length, query.len() + 16);
    assert_eq!(
        (&response[..4], &response[length - 4..length]),
        (&b"\x12\x34\x85\0"[..], &[192, 0, 2, 1][..])
    );
}

#[test]
fn dnsperf_and_its_report() {
    if Command::new("dnsperf").arg("-h").output().is_err() {
        println!("dnsperf is not installed");
        return;
    }
    let responder = Responder::start();
    let folder = std::env::temp_dir().join(format!("lab-dns-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("folders can be made");
    let output = Command::new(env!("CARGO_BIN_EXE_dns-load"))
        .args(["--connect", &responder.address.to_string(), "--seconds", "0.2"])
        .args(["--clients", "2", "--outstanding", "8", "--folder"])
        .arg(&folder)
        .output()
        .expect("the program can be started");
    std::fs::remove_dir_all(&folder).expect("it is there");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).expect("JSON");
    assert_eq!(report["errors"], serde_json::json!({}), "{report:#}");
    assert!(report["requests"].as_u64().unwrap() > 0, "{report:#}");
    assert!(report["elapsed_seconds"].as_f64().unwrap() > 0.0, "{report:#}");
}

#[test]
fn wrong_usage_is_refused() {
    for (program, words) in [
        (env!("CARGO_BIN_EXE_dns-recvfrom"), &["--listen", "here"][..]),
        (env!("CARGO_BIN_EXE_dns-recvfrom"), &[]),
        (
            env!("CARGO_BIN_EXE_dns-load"),
            &["--connect", "127.0.0.1:1", "--seconds"],
        ),
    ] {
        let output = Command::new(program)
            .args(words)
            .output()
            .expect("the program can be started");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("usage: "),
            "{output:?}"
        );
    }
}
