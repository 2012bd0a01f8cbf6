//! Connections made from this end.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use bytes::Bytes;
use quoit::{Address, CloseReason, Command, ConnectOptions, Errno, Refusal, Token};
use socket2::{Domain, Socket, Type};

use crate::driver::{Driver, OnData, drive, drive_with};
use crate::levels::Level;
use crate::sockets::pattern;

macro_rules! connecting {
    ($level:ident) => {
        tests! { $level, connecting:
            connected_and_used
            by_a_socket_made_before
            sends_before_it_is_connected
            over_unix_sockets
            refused
            timed_out
            given_up_by_close_and_abort
            given_up_with_something_unreported
            by_command
            past_the_limit
            to_itself
        }
    };
}

fn listener() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    (listener, address)
}

/// A listener that answers no attempt: its queue of one is full, and the kernel drops what comes.
fn deaf_listener() -> (TcpListener, TcpStream, Address) {
    let (listener, address) = listener();
    // SAFETY: listen takes no pointer; on a listening socket it changes the length of the queue.
    assert_eq!(unsafe { libc::listen(listener.as_fd().as_raw_fd(), 0) }, 0);
    let filler = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener, filler, address)
}

fn wait_opened(driver: &mut Driver, id: quoit::ConnectionId) {
    driver.until("it is connected", |driver| driver.seen(id).opened);
}

pub(crate) fn connected_and_used(level: &Level) {
    drive(level, |driver| {
        let (listener, address) = listener();
        let options = ConnectOptions {
            local: Some("127.0.0.2:0".parse().unwrap()),
            ..ConnectOptions::default()
        };
        let id = driver.connect(&address, &options, 6);
        wait_opened(driver, id);
        let (peer, peer_address) = listener.accept().unwrap();
        assert_eq!(peer_address.ip().to_string(), "127.0.0.2");
        assert_eq!(driver.event_loop.peer_address(id), Some(address));
        assert_eq!(driver.event_loop.local_address(id), Some(peer_address.into()));
        std::io::Write::write_all(&mut &peer, &pattern(0, 3000)).unwrap();
        driver.wait_received(id, 3000);
        drop(peer);
        driver.wait_ended(id);
        driver.close(id, None).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::PeerClosed);
        assert_eq!(driver.event_loop.counters().connected, 1);
    });
}

/// Bound before, and blocking or not: the loop makes of it what it needs.
pub(crate) fn by_a_socket_made_before(level: &Level) {
    drive(level, |driver| {
        let (listener, address) = listener();
        for nonblocking in [false, true] {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(nonblocking).unwrap();
            socket
                .bind(&SocketAddr::from(([127, 0, 0, 3], 0)).into())
                .unwrap();
            let local = socket.local_addr().unwrap().as_socket().unwrap();
            let id = driver.connect_on(socket.into(), &address, 6);
            wait_opened(driver, id);
            let (peer, peer_address) = listener.accept().unwrap();
            assert_eq!(peer_address, local);
            std::io::Write::write_all(&mut &peer, &pattern(0, 3000)).unwrap();
            driver.wait_received(id, 3000);
            drop(peer);
            driver.wait_ended(id);
            driver.close(id, None).unwrap();
            assert_eq!(driver.wait_closed(id), CloseReason::PeerClosed);
        }

        let options = ConnectOptions::default();
        let listening = listener.try_clone().unwrap().into();
        let refused = driver
            .event_loop
            .connect_on(listening, &address, &options, Token(7));
        assert_eq!(refused, Err(Refusal::Error(Errno::EINVAL)));
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
        let refused = driver
            .event_loop
            .connect_on(datagrams, &address, &options, Token(8));
        assert_eq!(refused, Err(Refusal::Error(Errno::new(libc::EPROTOTYPE))));
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let id = driver.connect_on(connected.into(), &address, 9);
        let reason = driver.wait_closed(id);
        assert_eq!(reason, CloseReason::Error(Errno::new(libc::EISCONN)));
    });
}

pub(crate) fn sends_before_it_is_connected(level: &Level) {
    drive(level, |driver| {
        let (listener, address) = listener();
        let id = driver.connect(&address, &ConnectOptions::default(), 6);
        driver.send(id, b"early ", Token::NONE).unwrap();
        driver.send(id, Bytes::from_static(b"bird"), Token(1)).unwrap();
        driver.shutdown(id).unwrap();
        driver.until("it is sent", |driver| driver.seen(id).sent == [Token(1)]);
        let (mut peer, _) = listener.accept().unwrap();
        driver.until_quiet();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut peer, &mut text).unwrap();
        assert_eq!(text, "early bird");
        drop(peer);
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
    });
}

pub(crate) fn over_unix_sockets(level: &Level) {
    drive(level, |driver| {
        driver.on_data = OnData::Record;
        let folder = tempfile::tempdir().unwrap();
        let path = Address::UnixPath(folder.path().join("socket"));
        let (_, address) = driver.listen_on(&path, &quoit::ListenerOptions::default());
        let id = driver.connect(&address, &ConnectOptions::default(), 1);
        wait_opened(driver, id);
        let other = driver.accept();
        driver.send(id, b"ping", Token::NONE).unwrap();
        driver.wait_received(other, 4);
        driver.send(other, b"pong", Token::NONE).unwrap();
        driver.wait_received(id, 4);

        let missing = Address::UnixPath(folder.path().join("missing"));
        let id = driver.connect(&missing, &ConnectOptions::default(), 2);
        assert_eq!(driver.wait_closed(id), CloseReason::Error(Errno::ENOENT));
    });
}

pub(crate) fn refused(level: &Level) {
    drive(level, |driver| {
        // Bound and not listening: the port is nobody else's.
        let (listener, address) = listener();
        let unused = Address::from(listener.local_addr().unwrap());
        assert_eq!(unused, address);
        // SAFETY: shutdown takes no pointer; it ends listening and keeps the port.
        let result = unsafe { libc::shutdown(listener.as_fd().as_raw_fd(), libc::SHUT_RD) };
        assert_eq!(result, 0);
        let id = driver.connect(&address, &ConnectOptions::default(), 6);
        let lent = Bytes::from(vec![1; 100]);
        driver.send(id, lent.clone(), Token(1)).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::Error(Errno::ECONNREFUSED));
        assert!(!driver.seen(id).opened && driver.seen(id).sent.is_empty());
        assert!(lent.is_unique(), "the memory is free");
    });
}

pub(crate) fn timed_out(level: &Level) {
    drive(level, |driver| {
        let (_listener, _filler, address) = deaf_listener();
        let options = ConnectOptions {
            timeout: Some(Duration::from_millis(60)),
            ..ConnectOptions::default()
        };
        let id = driver.connect(&address, &options, 6);
        driver.send(id, b"never sent", Token::NONE).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::Timeout);
        assert!(!driver.seen(id).opened);
    });
}

pub(crate) fn given_up_by_close_and_abort(level: &Level) {
    drive(level, |driver| {
        let (_listener, _filler, address) = deaf_listener();
        for abort in [true, false] {
            for begun in [true, false] {
                let id = driver.connect(&address, &ConnectOptions::default(), 6);
                if begun {
                    driver.until_quiet();
                }
                if abort {
                    driver.abort(id).unwrap();
                } else {
                    driver.close(id, None).unwrap();
                }
                assert_eq!(driver.wait_closed(id), CloseReason::Local);
                assert!(!driver.seen(id).opened);
            }
        }
    });
}

pub(crate) fn given_up_with_something_unreported(level: &Level) {
    let (_listener, _filler, address) = deaf_listener();
    for abort in [true, false] {
        drive(level, |driver| {
            let id = driver.connect(&address, &ConnectOptions::default(), 6);
            driver.deadline_unreported(id);
            if abort {
                driver.abort(id).unwrap();
            } else {
                driver.close(id, None).unwrap();
            }
            assert_eq!(driver.wait_closed(id), CloseReason::Local);
            assert_eq!(driver.seen(id).deadlines, 0);
        });
    }
}

pub(crate) fn by_command(level: &Level) {
    drive(level, |driver| {
        let (listener, address) = listener();
        let connect = |address: &Address, token| Command::Connect {
            address: address.clone(),
            options: Box::default(),
            token: Token(token),
        };
        driver.turn_with([connect(&address, 8)], Duration::ZERO);
        driver.until("it is connected", |driver| {
            driver.event_loop.counters().connected == 1
        });
        let (_peer, _) = listener.accept().unwrap();
        let too_long = Address::UnixPath("x".repeat(200).into());
        driver.turn_with([connect(&too_long, 9)], Duration::ZERO);
        driver.until("it is refused", |driver| driver.refusals.len() == 1);
        let invalid = Refusal::Error(Errno::EINVAL);
        assert_eq!(driver.refusals, [(Token(9), None, invalid)]);
    });
}

pub(crate) fn past_the_limit(level: &Level) {
    drive_with(
        level,
        |config| config.connections = 2,
        |driver| {
            let (_listener, address) = listener();
            let options = ConnectOptions::default();
            let first = driver.connect(&address, &options, 1);
            let _second = driver.connect(&address, &options, 2);
            let third = driver.event_loop.connect(&address, &options, Token(3));
            assert_eq!(third, Err(Refusal::Limit));
            wait_opened(driver, first);
            driver.abort(first).unwrap();
            driver.wait_closed(first);
            let fourth = driver.connect(&address, &options, 4);
            wait_opened(driver, fourth);
        },
    );
}

/// Both ends on one loop: a proxy's shape.
pub(crate) fn to_itself(level: &Level) {
    drive(level, |driver| {
        let address = driver.listen();
        let id = driver.connect(&address, &ConnectOptions::default(), 1);
        let other = driver.accept();
        wait_opened(driver, id);
        driver.send(id, &pattern(0, 100_000)[..], Token::NONE).unwrap();
        driver.close(id, None).unwrap();
        driver.wait_ended(other);
        assert!(driver.seen(other).received == pattern(0, 100_000));
        driver.shutdown(other).unwrap();
        assert_eq!(driver.wait_closed(other), CloseReason::PeerClosed);
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
    });
}
