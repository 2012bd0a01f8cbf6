use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::example::{Example, PATIENCE};

const CLIENTS: usize = 16;

/// A client that keeps its connection until a response says that it closes, and sends nothing twice.
struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
    connects: usize,
}

impl Client {
    fn ask(&mut self) {
        let address = self.address;
        let mut stream = self.stream.take().unwrap_or_else(|| {
            self.connects += 1;
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        });
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nHello, World!") {
            let mut piece = [0; 1024];
            let length = stream.read(&mut piece).unwrap();
            assert!(
                length > 0,
                "no answer, but {:?}",
                String::from_utf8_lossy(&response)
            );
            response.extend_from_slice(&piece[..length]);
        }
        let head = String::from_utf8(response).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        if !head.contains("\r\nconnection: close\r\n") {
            self.stream = Some(stream);
        }
    }
}

/// A process after another, each on its socket, while clients ask all the time: none of them sees anything but answers.
#[test]
fn restarts_lose_no_request() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut old = Example::inheriting("axum_restart", "uring", &socket);
    let (over, begun) = (AtomicBool::new(false), Barrier::new(CLIENTS + 1));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client {
                        address,
                        stream: None,
                        connects: 0,
                    };
                    client.ask();
                    begun.wait();
                    while !over.load(Ordering::Relaxed) {
                        client.ask();
                    }
                    client.connects
                })
            })
            .collect();
        begun.wait();
        for engine in ["epoll", "uring", "epoll"] {
            let next = Example::inheriting("axum_restart", engine, &socket);
            old.terminate();
            // When each of its connections was told.
            old.ends();
            old = next;
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().unwrap() > 1, "it met no restart");
        }
    });
    old.terminate();
    old.ends();
}
