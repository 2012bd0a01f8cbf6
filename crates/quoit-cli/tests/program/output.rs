//! Standard output that nobody reads, as behind `head`, and that cannot be written.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Client, Server, quoit, signal};

/// Starts it when whoever was to read its output has gone already.
fn spawn_unread(command: &mut Command) -> Child {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started")
}

fn full(mut command: Command) -> Output {
    let full = std::fs::File::options().write(true).open("/dev/full");
    command
        .stdout(full.expect("a device of every Linux"))
        .output()
        .expect("the program can be started")
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let echo = Server::on("epoll", "echo");
    let datagrams = Server::on("epoll", "udp-echo");
    for arguments in [
        "--help",
        "--version",
        "doctor",
        "doctor --json",
        &format!(
            "load echo --connect {} --connections 1 --warmup 0 --requests 1",
            echo.address()
        ),
        &format!("load udp --connect {} --echo --count 1", datagrams.address()),
        "lab list",
    ] {
        let output = spawn_unread(&mut quoit(arguments))
            .wait_with_output()
            .expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{arguments}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments}");
    }
}

#[test]
fn a_server_serves_on_when_nobody_reads_its_ready_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let mut command = quoit(&format!(
        "serve echo --engine epoll --listen unix:{}",
        path.display()
    ));
    let mut server = spawn_unread(&mut command);
    // It says nothing, so it has to be tried.
    let mut client = loop {
        match UnixStream::connect(&path) {
            Ok(client) => break Client::new(client),
            Err(_) => assert_eq!(server.try_wait().expect("it is ours"), None, "it goes on"),
        }
        std::thread::yield_now();
    };
    client.send("anybody?");
    let mut answer = [0; 8];
    client.stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"anybody?");
    drop(client);
    signal(&server, libc::SIGTERM);
    let output = server.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_full_disk_is_an_error() {
    for arguments in [
        "doctor",
        "doctor --json",
        "lab list",
        "--help",
        "--version",
        "serve http --help",
    ] {
        let output = full(quoit(arguments));
        assert_eq!(output.status.code(), Some(1), "{arguments}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains("cannot write to standard output"),
            "{arguments}: {text}"
        );
    }
}
