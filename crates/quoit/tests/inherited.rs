//! Listening sockets that a service manager passes on. Alone in its file: while a process starts another, the
//! child has all descriptors for a moment, which tests that close sockets would notice.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Stdio;

use quoit::listen::inherited;
use support::inheriting;

/// This test is two processes: the one that passes a socket as a service manager does, and the one started by
/// it, which takes the socket over and serves one connection.
#[test]
fn sockets_are_inherited() {
    const CHILD: &str = "QUOIT_TEST_INHERITS";
    if std::env::var_os(CHILD).is_some() {
        let again = inherited().unwrap();
        let [socket] = &inherited().unwrap()[..] else {
            panic!("one socket was passed");
        };
        assert_eq!(socket.name(), Some("web"));
        assert_eq!(socket.address(), again[0].address());
        for descriptor in [3, socket.as_fd().as_raw_fd()] {
            // SAFETY: F_GETFD takes no pointer.
            let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
            assert_eq!(flags, libc::FD_CLOEXEC);
        }
        let listener = TcpListener::from(socket.as_fd().try_clone_to_owned().unwrap());
        listener.accept().unwrap().0.write_all(b"inherited").unwrap();
        return;
    }
    assert!(
        inherited().unwrap().is_empty(),
        "nothing was passed to this process"
    );

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = inheriting("sockets_are_inherited", &listener);
    command
        .env(CHILD, "1")
        .env("LISTEN_FDNAMES", "web")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // Without this end, a child that fails resets the connection instead of leaving it queued.
    drop(listener);
    let mut text = String::new();
    let read = client.read_to_string(&mut text);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert_eq!((read.unwrap(), text.as_str()), (9, "inherited"));
}
