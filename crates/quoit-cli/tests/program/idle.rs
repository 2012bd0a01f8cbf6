//! Connections that do nothing, to servers whose protocols set no limits of time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::rpc::{frame, read_frame};
use crate::support::{Server, connect, engines};

/// How it ended, if it has; it must bring nothing.
fn end(stream: &mut TcpStream) -> Option<ErrorKind> {
    match stream.read(&mut [0]) {
        Ok(0) => panic!("it ended in order"),
        Ok(_) => panic!("something came"),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
        Err(error) => Some(error.kind()),
    }
}

#[test]
fn who_does_nothing_is_let_go_and_who_does_is_not() {
    for engine in engines() {
        for protocol in ["echo", "sink", "rpc"] {
            let server = Server::on(engine, &format!("{protocol} --idle-timeout 1"));
            let mut silent = connect(server.address());
            silent.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let mut busy = connect(server.address());
            // Credit for a stream that is not open is ignored.
            let something = frame(9, 3, &[0, 0, 0, 1]);
            let ended = loop {
                busy.write_all(&something).unwrap();
                if protocol == "echo" {
                    busy.read_exact(&mut vec![0; something.len()]).unwrap();
                }
                if let Some(ended) = end(&mut silent) {
                    break ended;
                }
            };
            assert_eq!(ended, ErrorKind::ConnectionReset, "{engine} {protocol}");
            busy.set_nonblocking(true).unwrap();
            assert_eq!(end(&mut busy), None, "{engine} {protocol}");
        }
    }
}

/// Nothing comes of it, but it takes what it is sent.
#[test]
fn who_is_sent_to_is_not_idle() {
    for engine in engines() {
        let server = Server::on(engine, "rpc --idle-timeout 1");
        let mut client = connect(server.address());
        // One message of 24 bytes for each tenth of a second, for several times as long as it may be idle.
        let mut payload = vec![0, 0, 0, 0, 7];
        payload.extend(40_u64.to_be_bytes());
        payload.extend(24_u32.to_be_bytes());
        payload.extend(40_u32.to_be_bytes());
        payload.extend(1_u32.to_be_bytes());
        payload.extend(100_000_000_u64.to_be_bytes());
        client.write_all(&frame(1, 1, &payload)).unwrap();
        for _ in 0..40 {
            assert_eq!(read_frame(&mut client).0, 1, "{engine}");
        }
    }
}
