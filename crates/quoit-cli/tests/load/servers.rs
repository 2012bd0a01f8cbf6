//! Servers on threads of the test, and the program as a client of them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use serde_json::Value;

/// Starts a server that hands each connection, with its number from 0, to `serve` on a thread of its own.
/// The check before a run is connection 0. Returns the server's address.
pub(crate) fn serve(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address")
        .to_string();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let serve = serve.clone();
            let stream = stream.expect("accept works");
            thread::spawn(move || serve(number, stream));
        }
    });
    address
}

/// CAP_SYS_RESOURCE of linux/capability.h.
const MAY_RAISE_LIMITS: libc::c_ulong = 24;

/// Takes the capability to raise hard limits from a command, which root usually has.
pub(crate) fn may_not_raise_limits(command: &mut Command) {
    // SAFETY: between fork and exec one system call is made, which reads no memory.
    unsafe {
        command.pre_exec(|| {
            // Fails for who is not root, and has nothing to lose then.
            libc::prctl(libc::PR_CAPBSET_DROP, MAY_RAISE_LIMITS, 0, 0, 0);
            Ok(())
        });
    }
}

/// Returns what arrives until the peer ends, changed by `change`.
pub(crate) fn echo(mut stream: impl Read + Write, mut change: impl FnMut(&mut [u8])) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        change(&mut buffer[..length]);
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Answers each request with the next reply of `reply` until that is `None`, then ends the connection.
pub(crate) fn answer(mut stream: TcpStream, mut reply: impl FnMut(usize) -> Option<String>) {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    let mut answered = 0;
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        received.extend_from_slice(&buffer[..length]);
        while let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            received.drain(..end + 4);
            let Some(reply) = reply(answered) else {
                // An orderly end: a close with requests unread would reset, and take replies with it.
                drop(stream.shutdown(Shutdown::Write));
                drop(std::io::copy(&mut stream, &mut std::io::sink()));
                return;
            };
            answered += 1;
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// A reply with a date and a body.
pub(crate) fn plain(body: &str) -> Option<String> {
    Some(format!(
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// Runs the program to its end.
pub(crate) fn quoit(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quoit"))
        .args(arguments.split_whitespace())
        .output()
        .expect("the program can be started")
}

/// Runs with `--json` and returns the exit code and the report.
pub(crate) fn report(arguments: &str) -> (i32, Value) {
    let output = quoit(&format!("{arguments} --json"));
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code().expect("it exits"), report)
}

/// Sends SIGINT.
pub(crate) fn interrupt(child: &Child) {
    send(child, "-INT");
}

/// Sends a signal, by its name as `kill` has it.
pub(crate) fn send(child: &Child, signal: &str) {
    let signalled = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(signalled.expect("kill can be started").success());
}

/// Starts a load that would wait an hour for what it is told, and interrupts it behind `asked`, which returns once it has asked.
pub(crate) fn interrupt_the_check(load: &[&str], address: &str, asked: impl FnOnce()) {
    let child = Command::new(env!("CARGO_BIN_EXE_quoit"))
        .arg("load")
        .args(load)
        .args(["--connect", address, "--timeout", "3600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    asked();
    interrupt(&child);
    let line = error_line(&child.wait_with_output().expect("it ends"));
    assert!(
        line.contains(&format!(
            "interrupted before {address} had passed the check; nothing was measured"
        )),
        "{line}"
    );
}

/// The report of a run that was interrupted, whose standard output is piped.
pub(crate) fn interrupted_report(child: Child) -> Value {
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    assert_eq!(report["interrupted"], true, "{report:#}");
    report
}

/// The one line that a run says which could not be made.
pub(crate) fn error_line(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// Runs and checks that it measured so many requests and no error.
pub(crate) fn assert_right(arguments: &str, requests: u64) -> Value {
    let (code, report) = report(arguments);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["requests"], requests, "{report:#}");
    assert_eq!(errors(&report), 0, "{report:#}");
    assert_eq!(report["invalid"], Value::Null, "{report:#}");
    // On a busy machine a slip may leave every one of a few requests out of `latency`.
    assert!(report["latency"]["p50_ns"].as_u64() > Some(0), "{report:#}");
    assert!(
        report["generator_cpu_ns_per_request"].as_f64() > Some(0.0),
        "{report:#}"
    );
    report
}

/// All errors of a report.
pub(crate) fn errors(report: &Value) -> u64 {
    let errors = report["errors"].as_object().expect("errors are an object");
    errors.values().map(number).sum()
}

/// A count in a report.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}
