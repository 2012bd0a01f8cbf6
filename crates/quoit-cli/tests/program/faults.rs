//! System calls that fail or take their time: the real server under strace, which answers in the kernel's place at
//! chosen calls (`strace(1)`, "Tampering"). A fault that passes is noticed by nobody; one that ends a connection ends
//! that one alone; one that ends the loop ends the program with a line and its exit code. In every case no byte is
//! wrong, nothing is stuck, and all descriptors are given back.
//!
//! Injected are only answers that the call may give in the state in which it is: an EAGAIN of a readable socket,
//! say, would be a lie by which an edge-triggered server rightly waits. So would be any failure of the send by which the
//! handler of a signal tells the thread that waits for signals: it takes no time and cannot be interrupted, and the
//! signal would be lost. It is made by the thread that gets the signal. The first sends nothing else, and no fault
//! begins at a thread's first send, so the server is ended by a signal for its first thread.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Server, engines, quoit, run};
use crate::traffic::{self, Harm};

/// A fault: the calls, what strace does to them, and at which calls of each thread. Io_uring's begin after those
/// of the probe, which runs on the first thread and is tested by itself.
struct Fault {
    engine: &'static str,
    calls: &'static str,
    tampering: &'static str,
    when: &'static str,
    harm: Harm,
}

const fn fault(
    engine: &'static str,
    calls: &'static str,
    tampering: &'static str,
    when: &'static str,
    harm: Harm,
) -> Fault {
    Fault {
        engine,
        calls,
        tampering,
        when,
        harm,
    }
}

const WAITS: &str = "epoll_wait,epoll_pwait,epoll_pwait2";
const SENDS: &str = "sendto,sendmsg";

/// Calls that are interrupted or late, and conditions that pass.
const PASSING: &[Fault] = &[
    fault("uring", "io_uring_enter", "error=EINTR", "40+3", Harm::None),
    fault("uring", "io_uring_enter", "error=EAGAIN", "40+3", Harm::None),
    fault("uring", "io_uring_enter", "error=EBUSY", "40+3", Harm::None),
    fault("uring", "io_uring_enter", "delay_enter=500", "40+2", Harm::None),
    fault("uring", "io_uring_enter", "delay_exit=500", "40+2", Harm::None),
    fault("epoll", WAITS, "error=EINTR", "2+3", Harm::None),
    fault("epoll", WAITS, "delay_enter=500", "1+2", Harm::None),
    fault("epoll", WAITS, "delay_exit=500", "1+2", Harm::None),
    fault("epoll", "recvfrom", "error=EINTR", "5+3", Harm::None),
    fault("epoll", "recvfrom", "delay_exit=500", "5+3", Harm::None),
    fault("epoll", SENDS, "error=EINTR", "2+3", Harm::None),
    fault("epoll", SENDS, "delay_exit=500", "2+3", Harm::None),
];

/// Accepting that fails: for one connection of the queue, or for want of something. What is queued stays queued.
const ACCEPTING: &[Fault] = &[
    fault("epoll", "accept4", "error=EINTR", "1+2", Harm::None),
    fault("epoll", "accept4", "error=ECONNABORTED", "1+2", Harm::None),
    fault("epoll", "accept4", "error=EPROTO", "1+2", Harm::None),
    fault("epoll", "accept4", "error=EMFILE", "1+3", Harm::None),
    fault("epoll", "accept4", "error=ENFILE", "1+3", Harm::None),
    fault("epoll", "accept4", "error=ENOMEM", "1+3", Harm::None),
    fault("epoll", "accept4", "error=ENOBUFS", "1+3", Harm::None),
];

/// What ends the connection that it meets.
const ENDING: &[Fault] = &[
    fault("epoll", "recvfrom", "error=ECONNRESET", "9+97", Harm::One),
    fault("epoll", "recvfrom", "error=ETIMEDOUT", "9+97", Harm::One),
    fault("epoll", "recvfrom", "error=ENOMEM", "9+97", Harm::One),
    // Once: what the peer still sends is delivered first, for as long as a graceful close may take.
    fault("epoll", SENDS, "error=ENOBUFS", "29", Harm::One),
    // The wake and the listener are registered first. No removal is among these calls, which cannot fail so: the
    // listener's comes after 16 connections, of which as many as there are clients may not be registered yet.
    fault("epoll", "epoll_ctl", "error=ENOMEM", "4..12+4", Harm::One),
    fault("epoll", "epoll_ctl", "error=ENOSPC", "4..12+4", Harm::One),
];

const RECEIVE_MESSAGES: &str = "recvmmsg";
const SEND_MESSAGES: &str = "sendmmsg";

/// The same for datagrams. Where receiving fails nothing was received yet, and it goes on.
const DATAGRAMS: &[Fault] = &[
    fault("uring", "io_uring_enter", "error=EINTR", "40+3", Harm::None),
    fault("uring", "io_uring_enter", "error=EAGAIN", "40+3", Harm::None),
    fault("uring", "io_uring_enter", "error=EBUSY", "40+3", Harm::None),
    fault("uring", "io_uring_enter", "delay_exit=500", "40+2", Harm::None),
    fault("epoll", WAITS, "error=EINTR", "2+3", Harm::None),
    fault("epoll", WAITS, "delay_exit=500", "1+2", Harm::None),
    fault("epoll", RECEIVE_MESSAGES, "error=EINTR", "1+2", Harm::None),
    fault("epoll", RECEIVE_MESSAGES, "error=ENOMEM", "1+3", Harm::None),
    fault("epoll", RECEIVE_MESSAGES, "error=ECONNREFUSED", "1+3", Harm::None),
    fault("epoll", RECEIVE_MESSAGES, "delay_exit=500", "1+3", Harm::None),
    fault("epoll", SEND_MESSAGES, "error=EINTR", "1+2", Harm::None),
    fault("epoll", SEND_MESSAGES, "delay_exit=500", "1+3", Harm::None),
];

/// Sending that fails, for want of memory or as a filter forbids it. The first of the batch is lost, and no other.
const UNSENT: &[Fault] = &[
    fault("epoll", SEND_MESSAGES, "error=ENOBUFS", "9..210+97", Harm::One),
    fault("epoll", SEND_MESSAGES, "error=EPERM", "9..210+97", Harm::One),
];

/// The server under strace, which writes what it does to `log`. The server is this process's child, strace its
/// grandchild, so that signals, waiting and `/proc` are the server's.
fn strace(fault: &Fault, serve: &str, log: &Path) -> Command {
    let server = quoit(&format!(
        "serve {serve} --engine {} --listen 127.0.0.1:0",
        fault.engine
    ));
    let mut command = Command::new("strace");
    command
        .args(["-D", "-f", "-qq", "-o"])
        .arg(log)
        .arg(format!("--trace={}", fault.calls))
        .arg(format!(
            "--inject={}:{}:when={}",
            fault.calls, fault.tampering, fault.when
        ))
        .arg("--")
        .arg(server.get_program())
        .args(server.get_args())
        .stdin(Stdio::null());
    command
}

/// Whether strace is installed and may trace here; says so if not.
fn can_inject(test: &str) -> bool {
    let attempt = Command::new("strace")
        .args([
            "-D",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "--inject=getppid:error=EINTR",
            "--",
            "true",
        ])
        .output();
    let reason = match attempt {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    quoit_skipped::skip(test, format_args!("strace cannot inject faults here: {reason}"));
    false
}

/// Runs echo traffic through each fault, and checks that strace has made it.
fn endured(test: &str, faults: &[Fault]) {
    if !can_inject(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (number, fault) in faults.iter().enumerate() {
        if !engines().contains(&fault.engine) {
            continue;
        }
        let name = format!("{} {}:{}", fault.engine, fault.calls, fault.tampering);
        let log = folder.path().join(number.to_string());
        let mut server = Server::start_command(strace(fault, "echo", &log), 1);
        assert_eq!(server.ready[0].engine, fault.engine, "{name}");
        let before = traffic::open_descriptors(&server);
        let broken = traffic::exchange(server.address(), fault.harm);
        traffic::wait_for_descriptors(&server, before);
        server.terminate_first_thread();
        server.ends_with(0);
        let injected = injections(&log);
        println!("{name}: {injected} faults, {broken} connections broke");
        assert!(injected > 0, "{name}: the fault did not happen");
        assert!(
            fault.harm == Harm::None || broken > 0,
            "{name}: {injected} faults broke nothing"
        );
    }
}

/// Has datagrams answered under each fault: each once and unchanged, but for as many as sends failed.
fn answered(test: &str, faults: &[Fault]) {
    if !can_inject(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (number, fault) in faults.iter().enumerate() {
        if !engines().contains(&fault.engine) {
            continue;
        }
        let name = format!("{} {}:{}", fault.engine, fault.calls, fault.tampering);
        let log = folder.path().join(number.to_string());
        let mut server = Server::start_command(strace(fault, "udp-echo", &log), 1);
        let before = traffic::open_descriptors(&server);
        // So few at once that no socket's buffer is ever full.
        let sizes = "--sizes 40..9000 --count 600 --outstanding 4 --senders 2";
        // How long nothing is lost, and how soon what is lost is given up.
        let timeout = if fault.harm == Harm::None { 20 } else { 5 };
        let output = run(&format!(
            "load udp --connect {} --echo --timeout {timeout} {sizes} --json",
            server.address()
        ));
        assert!(output.status.success(), "{name}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        traffic::wait_for_descriptors(&server, before);
        server.terminate_first_thread();
        server.ends_with(0);
        let injected = injections(&log) as u64;
        let replies = &report["replies"];
        let lost = replies["lost"].as_u64().unwrap();
        println!("{name}: {injected} faults, {lost} datagrams were lost");
        assert!(injected > 0, "{name}: the fault did not happen");
        let expected = if fault.harm == Harm::None { 0 } else { injected };
        assert_eq!(lost, expected, "{name}: {report:#}");
        for harm in ["wrong", "duplicates", "foreign"] {
            assert_eq!(replies[harm], 0, "{name}: {report:#}");
        }
    }
}

/// How often strace has tampered with a call.
fn injections(log: &Path) -> usize {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines()
        .filter(|line| line.ends_with("(INJECTED)") || line.ends_with("(DELAYED)"))
        .count()
}

#[test]
fn interruptions_and_delays_are_noticed_by_nobody() {
    endured("interruptions_and_delays_are_noticed_by_nobody", PASSING);
}

#[test]
fn accepting_goes_on_after_every_error() {
    endured("accepting_goes_on_after_every_error", ACCEPTING);
}

#[test]
fn a_connections_error_ends_that_connection_alone() {
    endured("a_connections_error_ends_that_connection_alone", ENDING);
}

#[test]
fn datagrams_are_all_answered_whatever_receiving_them_meets() {
    answered(
        "datagrams_are_all_answered_whatever_receiving_them_meets",
        DATAGRAMS,
    );
}

#[test]
fn a_datagram_that_cannot_be_sent_is_lost_alone() {
    answered("a_datagram_that_cannot_be_sent_is_lost_alone", UNSENT);
}

#[test]
fn http_is_whole_under_interruptions() {
    if !can_inject("http_is_whole_under_interruptions") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (number, fault) in PASSING.iter().enumerate() {
        if !engines().contains(&fault.engine) || !fault.tampering.starts_with("error") {
            continue;
        }
        let log = folder.path().join(number.to_string());
        // No timer of the server's may come to the aid of a loop that sleeps with work at hand.
        let serve = "http --idle-timeout 86400 --head-timeout 86400";
        let mut server = Server::start_command(strace(fault, serve, &log), 1);
        // Each answer takes a call to send it and to wait, so the faults have begun, however few calls the rest takes.
        let mut client = server.connect();
        (0..40).for_each(|_| assert_eq!(client.get("/plaintext").text(), "Hello, World!"));
        drop(client);
        for length in [0_u64, 1, 70_000, 3_000_000] {
            let mut client = server.connect();
            // Pipelined, so that answers are coalesced.
            client.send("GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20));
            (0..20).for_each(|_| assert_eq!(client.response().text(), "Hello, World!"));
            let expected: Vec<u8> = (0..length).map(|position| (position % 251) as u8).collect();
            assert!(
                client.get(&format!("/bytes/{length}")).body == expected,
                "{length} bytes"
            );
            client.send(format!(
                "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
            ));
            let mut writer = client.stream.get_ref().try_clone().unwrap();
            std::thread::scope(|scope| {
                let body = &expected;
                scope.spawn(move || std::io::Write::write_all(&mut writer, body).unwrap());
                assert!(client.response().body == *body, "{length} bytes echoed");
            });
        }
        server.terminate_first_thread();
        server.ends_with(0);
        assert!(injections(&log) > 0, "{}:{}", fault.calls, fault.tampering);
    }
}

/// What the engine cannot outlive ends the program, which says so and leaves nobody waiting.
#[test]
fn an_engine_that_fails_for_good_ends_the_program_with_a_line() {
    const FATAL: &[Fault] = &[
        fault("uring", "io_uring_enter", "error=EBADF", "60+1", Harm::One),
        fault("epoll", WAITS, "error=EBADF", "9+1", Harm::One),
    ];
    if !can_inject("an_engine_that_fails_for_good_ends_the_program_with_a_line") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (number, fault) in FATAL.iter().enumerate() {
        if !engines().contains(&fault.engine) {
            continue;
        }
        let log = folder.path().join(number.to_string());
        let mut server = Server::start_command(strace(fault, "echo", &log), 1);
        let mut stream = crate::support::connect(server.address());
        let mut back = [0; 3];
        let failed = (0..1000).any(|_| {
            std::io::Write::write_all(&mut stream, b"abc")
                .and_then(|()| std::io::Read::read_exact(&mut stream, &mut back))
                .inspect(|()| assert_eq!(&back, b"abc"))
                .is_err()
        });
        assert!(failed, "{}: it goes on with {}", fault.engine, fault.tampering);
        let messages = server.ends_with(1);
        assert_eq!(messages.lines().count(), 1, "{messages}");
        assert!(
            messages.contains("engine failed") && messages.contains("Bad file descriptor"),
            "{messages}"
        );
    }
}
