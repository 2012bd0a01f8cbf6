//! A C program, compiled as C11 and as C++17, that serves through the ABI: blocking, from an epoll set of its own, and
//! by attaching what it accepts.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{compile, compilers, engines, file};

const CLIENTS: usize = 20;

fn talk(address: &str, client: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut greeting = [0; 6];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"hello\n");
    for length in [1, 100, 513, 5000, 40_000] {
        let message: Vec<u8> = (0..length).map(|index| (index * 7 + client) as u8).collect();
        let mut answer = vec![0; length];
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == message, "{length} bytes came back changed");
    }
}

fn serve(program: &Path, engine: &str, mode: &str) {
    let mut server = Command::new(program)
        .args([engine, mode, &CLIENTS.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut address)
        .unwrap();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let address = address.trim();
            scope.spawn(move || talk(address, client));
        }
    });
    let status = server.wait().unwrap();
    assert!(status.success(), "{engine} {mode}: {status}");
}

#[test]
fn a_c_program_serves() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("echo");
        compile(compiler, options, &file("tests/c/echo.c"), &program);
        for engine in engines() {
            for mode in ["block", "epoll", "attach"] {
                serve(&program, engine, mode);
            }
        }
    }
}
