//! C programs, compiled as C11 and as C++17, that use datagram sockets through the ABI: an echo server, blocking and from
//! an epoll set of its own, and everything else case by case.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{compile, compilers, engines, file, succeeded};

const CLIENTS: usize = 8;

/// Sends datagrams of these sizes, one after the other, and takes each answer.
fn talk(server: SocketAddr, client: usize, lengths: &[usize]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = vec![0; 65_536];
    for &length in lengths {
        let message: Vec<u8> = (0..length).map(|index| (index * 7 + client) as u8).collect();
        socket.send(&message).unwrap();
        let received = receive(&socket, &mut answer);
        assert!(answer[..received] == message, "{length} bytes came back changed");
    }
}

/// Receives, whatever interrupts it: a receive with a limit is not begun again when the kernel has something for the thread
/// to do (`signal(7)`).
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> usize {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.unwrap(),
        }
    }
}

fn serve(program: &Path, engine: &str, mode: &str) {
    let mut server = Command::new(program)
        .args([engine, mode])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut address)
        .unwrap();
    let mut address: SocketAddr = address.trim().parse().unwrap();
    address.set_ip([127, 0, 0, 1].into());
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            // Few enough bytes at once that the kernel drops none.
            scope.spawn(move || talk(address, client, &[1, 0, 100, 1472]));
        }
    });
    talk(address, CLIENTS, &[9000, 60_000]);
    let last = UdpSocket::bind("127.0.0.1:0").unwrap();
    last.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    last.send_to(b"stop", address).unwrap();
    assert_eq!(receive(&last, &mut [0; 16]), 4);
    let status = server.wait().unwrap();
    assert!(status.success(), "{engine} {mode}: {status}");
}

#[test]
fn a_c_program_echoes_datagrams() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("datagram_echo");
        compile(compiler, options, &file("tests/c/datagram_echo.c"), &program);
        for engine in engines() {
            for mode in ["block", "epoll"] {
                serve(&program, engine, mode);
            }
        }
    }
}

#[test]
fn datagram_sockets_do_what_the_header_says() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("datagrams");
        compile(compiler, options, &file("tests/c/datagrams.c"), &program);
        for engine in engines() {
            let output = Command::new(&program).arg(engine).output().unwrap();
            succeeded(&format!("{compiler} {engine}"), &output);
        }
    }
}

#[test]
fn each_processor_or_each_peer_has_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("steering");
        compile(compiler, options, &file("tests/c/steering.c"), &program);
        for engine in engines() {
            let output = Command::new(&program).arg(engine).output().unwrap();
            succeeded(&format!("{compiler} {engine}"), &output);
        }
    }
}
