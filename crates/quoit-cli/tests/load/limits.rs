//! What a server could keep a run from ever ending by, or could fill its memory with.

use std::io::{self, Read, Write};
use std::sync::mpsc;

use socket2::{Domain, SockAddr, Socket, Type};

use super::servers::{error_line, interrupt_the_check, quoit, serve};

/// A server that stands still takes nobody from its queue. Where that is full, connect(2) of a Unix socket waits, and of
/// itself for ever.
#[test]
fn a_unix_socket_whose_queue_is_full_is_not_waited_for_longer_than_the_timeout() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("full.sock");
    let address = SockAddr::unix(&path).expect("the path is short");
    let unbound = || Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket can be made");
    let stands_still = unbound();
    stands_still.bind(&address).expect("the path is free");
    // So short that an ordinary user has descriptors enough to fill it.
    stands_still.listen(1).expect("it is bound");
    let mut waiting = Vec::new();
    loop {
        let socket = unbound();
        socket.set_nonblocking(true).expect("it can be set");
        match socket.connect(&address) {
            Ok(()) => waiting.push(socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    let target = format!("unix:{}", path.display());
    let line = error_line(&quoit(&format!(
        "load echo --connect {target} --timeout 0.2 --connections 1 --warmup 0 --requests 1"
    )));
    assert!(
        line.contains(&format!("cannot connect to {target}: ")) && line.contains("within 200ms"),
        "{line}"
    );
}

/// The first reply is kept, to hold the others against. One without an end would fill the memory of the machine.
#[test]
fn a_reply_that_is_too_large_to_be_kept_is_refused() {
    for head in [
        "Content-Length: 268435457\r\n\r\n",
        "Content-Length: 18446744073709551615\r\n\r\n",
        // All of these chunks are full of zeroes.
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffff\r\n",
    ] {
        let address = serve(move |_, mut stream| {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).expect("a request comes");
            assert!(read > 0);
            let zeroes = vec![0; 1 << 20];
            let mut left = stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}").as_bytes());
            while left.is_ok() {
                left = stream.write_all(&zeroes);
            }
        });
        let line = error_line(&quoit(&format!("load http --connect {address}")));
        assert!(
            line.contains("the reply has more than 268435456 bytes, which is the most that is kept to compare others with"),
            "{head}: {line}"
        );
    }
}

/// The check before a run ends with an interrupt, too, and at once: nothing is measured yet.
#[test]
fn an_interrupt_ends_the_check_of_a_server_that_says_nothing() {
    let (asked, is_asked) = mpsc::channel();
    let address = serve(move |_, mut stream| {
        let mut request = [0; 4096];
        let read = stream.read(&mut request).expect("a request comes");
        asked.send(()).expect("the test waits");
        assert!(read > 0);
        // Until the other end has gone.
        drop(stream.read(&mut request));
    });
    for load in ["echo", "http", "rpc"] {
        interrupt_the_check(&[load], &address, || is_asked.recv().expect("it asks"));
    }
}
