//! What differs from `tokio::net` and stays: each line of DIFFERS.md that a program can see at run time.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use quoit::DatagramSend;
use quoit_async::{Address, TcpListener, TcpSocket, TcpStream, UdpSocket, UnixListener, UnixStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{blocking, both_ways, is_own_process, nobody, on_a_loop, reset};

/// A test of ours alone, in both ways and on both engines.
macro_rules! differs {
    ($name:ident, $body:expr) => {
        #[test]
        fn $name() {
            if is_own_process(concat!(module_path!(), "::", stringify!($name))) {
                both_ways($body);
            }
        }
    };
}

async fn to_std() -> (TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (stream, listener.accept().unwrap().0)
}

differs!(errors_of_binding_say_what_to_do_and_have_no_number, || async {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let error = TcpListener::bind(at).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.raw_os_error()),
        (io::ErrorKind::AddrInUse, None)
    );
    assert!(error.to_string().contains(&at.to_string()), "{error}");
});

differs!(small_segments_leave_at_once, || async {
    let (stream, _peer) = to_std().await;
    assert!(stream.nodelay().unwrap());
});

differs!(the_peers_address_is_known_behind_a_reset, || async {
    let (mut stream, peer) = to_std().await;
    let at = peer.local_addr().unwrap();
    reset(peer);
    stream.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(stream.peer_addr().unwrap(), at);
});

differs!(the_own_address_of_a_wildcard_is_not, || async {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let at = ("127.0.0.1", listener.local_addr().unwrap().port());
    let peer = std::net::TcpStream::connect(at).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    reset(peer);
    stream.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(
        stream.local_addr().unwrap_err().kind(),
        io::ErrorKind::NotConnected
    );

    let peer = std::net::TcpStream::connect(at).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let own = stream.local_addr().unwrap();
    reset(peer);
    stream.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(stream.local_addr().unwrap(), own, "asked for before");
});

differs!(what_comes_behind_the_drop_is_taken_in, || async {
    for unread in [false, true] {
        let (mut stream, mut peer) = to_std().await;
        stream.write_all(b"bye").await.unwrap();
        if unread {
            peer.write_all(b"never read").unwrap();
            stream.readable().await.unwrap();
            stream.shutdown().await.unwrap();
        }
        drop(stream);
        blocking(move || {
            let mut text = String::new();
            peer.read_to_string(&mut text).unwrap();
            assert_eq!(text, "bye");
            for _ in 0..100 {
                peer.write_all(b"more").unwrap();
            }
            // No reset comes.
            assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
        })
        .await;
    }
});

#[test]
fn what_the_loop_has_not_seen_is_not_unread() {
    if !is_own_process(concat!(
        module_path!(),
        "::what_the_loop_has_not_seen_is_not_unread"
    )) {
        return;
    }
    on_a_loop(|_| async {
        let (stream, mut peer) = to_std().await;
        peer.write_all(b"not received yet").unwrap();
        // In the turn of the write: no turn of the loop is between.
        drop(stream);
        let read = blocking(move || peer.read(&mut [0; 1])).await;
        assert_eq!(read.unwrap(), 0);
    });
}

differs!(unix_sockets_have_no_reset, || async {
    let (one, mut other) = UnixStream::pair().unwrap();
    other.write_all(b"never read").await.unwrap();
    one.readable().await.unwrap();
    drop(one);
    assert_eq!(other.read(&mut [0; 1]).await.unwrap(), 0);
});

differs!(a_listeners_file_goes_with_it, || async {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("socket");
    let listener = UnixListener::bind(&at).unwrap();
    assert!(at.exists());
    drop(listener);
    while at.exists() {
        tokio::task::yield_now().await;
    }
    drop(UnixListener::bind(&at).unwrap());
});

#[test]
fn a_dropped_listener_is_closed_by_its_loop() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_dropped_listener_is_closed_by_its_loop"
    )) {
        return;
    }
    on_a_loop(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        // Accepting has begun.
        drop(tokio::join!(TcpStream::connect(at), listener.accept()));
        drop(listener);
        // What cannot wait for the loop's turn.
        let socket = TcpSocket::new_v4().unwrap();
        assert_eq!(socket.bind(at).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(TcpListener::bind(at).await.unwrap());
    });
}

differs!(of_several_addresses_the_first_error_is_told, || async {
    let (_bound, refuses) = nobody();
    // Not an address that can be connected to.
    let other: SocketAddr = "255.255.255.255:9".parse().unwrap();
    let error = TcpStream::connect(&[refuses, other][..]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let stock = tokio::net::TcpStream::connect(&[refuses, other][..])
        .await
        .unwrap_err();
    assert_ne!(stock.kind(), io::ErrorKind::ConnectionRefused);
});

differs!(a_send_tells_what_an_earlier_one_failed_with, || async {
    let one = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = other.local_addr().unwrap();
    one.send_to(b"x", "255.255.255.255:9").await.unwrap();
    let mut buffer = [0; 1];
    let error = loop {
        if let Err(error) = one.send_to(b"y", at).await {
            break error;
        }
        other.recv(&mut buffer).await.unwrap();
    };
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    // That one was not sent.
    one.send_to(b"z", at).await.unwrap();
    other.recv(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"z");
});

differs!(names_of_unix_sockets_are_addresses_of_the_core, || async {
    let name = format!("quoit-differs-{}", std::process::id());
    let address = Address::UnixAbstract(name.into_bytes().into());
    let listener = Arc::new(UnixListener::bind_to(&address).unwrap());
    let (one, other) = tokio::join!(UnixStream::connect_to(address.clone()), listener.accept());
    assert_eq!(one.unwrap().peer_addr().unwrap(), address);
    assert_eq!(other.unwrap().1, Address::UnixUnnamed);
});

differs!(datagrams_go_to_the_peer_that_was_connected_later, || async {
    let one = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = one.local_addr().unwrap();
    one.connect(at).await.unwrap();
    one.send_datagram(DatagramSend::to_connected(&b"self"[..]))
        .await
        .unwrap();
    assert_eq!(one.recv(&mut [0; 8]).await.unwrap(), 4);
});
