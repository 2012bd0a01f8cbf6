use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::address::Address;

fn loopback() -> SocketAddress {
    "127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()
}

/// A connected pair; the first is the accepted end.
fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, client)
}

fn descriptor_flags(socket: impl AsFd) -> c_int {
    // SAFETY: F_GETFD takes no pointer.
    unsafe { libc::fcntl(socket.as_fd().as_raw_fd(), libc::F_GETFD) }
}

fn is_nonblocking(socket: impl AsFd) -> bool {
    // SAFETY: F_GETFL takes no pointer.
    let flags = unsafe { libc::fcntl(socket.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK != 0
}

fn option(socket: impl AsFd, level: c_int, name: c_int) -> c_int {
    let mut value: c_int = -1;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the value and its length are live.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0);
    value
}

#[test]
fn the_clock_goes_forward() {
    let first = Linux.now();
    assert!(first > Time::default());
    assert!(Linux.now() >= first);
}

#[test]
fn a_listener_is_made_and_accepts_without_waiting() {
    let socket = Linux.stream_socket(&loopback()).unwrap();
    assert_eq!(descriptor_flags(&socket), libc::FD_CLOEXEC);
    assert!(!is_nonblocking(&socket));
    Linux.bind(socket.as_fd(), &loopback()).unwrap();
    assert_eq!(Linux.is_listening(socket.as_fd()), Ok(false));
    Linux.listen(socket.as_fd(), u32::MAX).unwrap();
    assert_eq!(Linux.is_listening(socket.as_fd()), Ok(true));

    let address = Linux.local_address(socket.as_fd()).unwrap();
    let Ok(Address::Tcp(address)) = Address::try_from(&address) else {
        panic!("{address:?}");
    };
    assert_ne!(address.port(), 0);

    Linux.set_nonblocking(socket.as_fd(), true).unwrap();
    assert_eq!(Linux.accept_now(socket.as_fd()).unwrap_err(), Errno::EAGAIN);
    let client = TcpStream::connect(address).unwrap();
    let accepted = Linux.accept_now(socket.as_fd()).unwrap();
    assert_eq!(descriptor_flags(&accepted), libc::FD_CLOEXEC);
    assert!(!is_nonblocking(&accepted) && is_nonblocking(&socket));
    assert_eq!(
        Linux.peer_address(accepted.as_fd()).unwrap(),
        client.local_addr().unwrap().into()
    );
    assert_eq!(Linux.accept_now(socket.as_fd()).unwrap_err(), Errno::EAGAIN);
}

#[test]
fn a_mode_that_was_set_is_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Linux.set_nonblocking(listener.as_fd(), true).unwrap();
    assert!(is_nonblocking(&listener));
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = Linux.accept_now(listener.as_fd()).unwrap();
    assert!(is_nonblocking(&listener) && !is_nonblocking(&accepted));
    Linux.set_nonblocking(listener.as_fd(), false).unwrap();
    assert!(!is_nonblocking(&listener));
}

#[test]
fn connecting_never_waits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let address = SocketAddress::try_from(path.as_path()).unwrap();
    let connect_one = || {
        let socket = Linux.stream_socket(&address).unwrap();
        let result = Linux.connect_now(socket.as_fd(), &address);
        assert!(!is_nonblocking(&socket));
        result.map(|()| socket)
    };

    assert_eq!(connect_one().unwrap_err(), Errno::ENOENT);
    let listener = Linux.stream_socket(&address).unwrap();
    Linux.bind(listener.as_fd(), &address).unwrap();
    assert_eq!(connect_one().unwrap_err(), Errno::ECONNREFUSED);
    Linux.listen(listener.as_fd(), 0).unwrap();
    let client = connect_one().unwrap();
    assert_eq!(Linux.peer_address(client.as_fd()), Ok(address.clone()));
    // The backlog is full: a call in blocking mode would wait for ever.
    assert_eq!(connect_one().unwrap_err(), Errno::EAGAIN);
    Linux.accept_now(listener.as_fd()).unwrap();
    connect_one().unwrap();
}

#[test]
fn connecting_tcp_goes_on_by_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = SocketAddress::from(listener.local_addr().unwrap());
    let socket = Linux.stream_socket(&address).unwrap();
    match Linux.connect_now(socket.as_fd(), &address) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(error) => panic!("{error}"),
    }
    let (accepted, peer) = listener.accept().unwrap();
    assert_eq!(
        Linux.local_address(socket.as_fd()).unwrap(),
        SocketAddress::from(peer)
    );
    drop(accepted);
}

#[test]
fn options_are_set() {
    let (server, _client) = tcp_pair();
    let set = |option| Linux.set_option(server.as_fd(), option);
    set(SocketOption::NoDelay(true)).unwrap();
    assert_eq!(option(&server, libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
    set(SocketOption::NoDelay(false)).unwrap();
    assert_eq!(option(&server, libc::IPPROTO_TCP, libc::TCP_NODELAY), 0);

    set(SocketOption::Keepalive {
        idle: Duration::from_millis(1500),
        interval: Duration::ZERO,
        probes: 7,
    })
    .unwrap();
    assert_eq!(option(&server, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
    assert_eq!(option(&server, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 2);
    assert_eq!(option(&server, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL), 1);
    assert_eq!(option(&server, libc::IPPROTO_TCP, libc::TCP_KEEPCNT), 7);
    let refused = set(SocketOption::Keepalive {
        idle: Duration::MAX,
        interval: Duration::ZERO,
        probes: 7,
    });
    assert_eq!(refused, Err(Errno::EINVAL));

    set(SocketOption::ReceiveBuffer(8192)).unwrap();
    assert_eq!(option(&server, libc::SOL_SOCKET, libc::SO_RCVBUF), 16384);
    set(SocketOption::SendBuffer(8192)).unwrap();
    assert_eq!(option(&server, libc::SOL_SOCKET, libc::SO_SNDBUF), 16384);

    let unbound = Linux.stream_socket(&loopback()).unwrap();
    for (wanted, name) in [
        (SocketOption::ReuseAddress(true), libc::SO_REUSEADDR),
        (SocketOption::ReusePort(true), libc::SO_REUSEPORT),
    ] {
        assert_eq!(option(&unbound, libc::SOL_SOCKET, name), 0);
        Linux.set_option(unbound.as_fd(), wanted).unwrap();
        assert_eq!(option(&unbound, libc::SOL_SOCKET, name), 1);
    }
    let v6 = "[::1]:0".parse::<std::net::SocketAddr>().unwrap();
    // A kernel without IPv6 has no such socket.
    if let Ok(v6) = Linux.stream_socket(&v6.into()) {
        for on in [true, false] {
            Linux.set_option(v6.as_fd(), SocketOption::Ipv6Only(on)).unwrap();
            assert_eq!(option(&v6, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), i32::from(on));
        }
    }

    let (unix, _peer) = UnixStream::pair().unwrap();
    assert_eq!(
        Linux.set_option(unix.as_fd(), SocketOption::NoDelay(true)),
        Err(Errno::EOPNOTSUPP)
    );
}

#[test]
fn what_is_no_stream_socket_is_named() {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(Linux.is_listening(file.as_fd()), Err(Errno::new(libc::ENOTSOCK)));
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(
        Linux.is_listening(datagrams.as_fd()),
        Err(Errno::new(libc::EPROTOTYPE))
    );
}

#[test]
fn the_peer_of_an_ended_stream_reads_to_its_end() {
    let (mut server, mut client) = tcp_pair();
    server.write_all(b"last words").unwrap();
    Linux.shutdown_send(server.as_fd()).unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "last words");
    client.write_all(b"answer").unwrap();
    assert_eq!(server.read(&mut [0; 16]).unwrap(), 6);
}

#[test]
fn a_reset_reaches_the_peer_also_with_data_queued() {
    // Queued in both directions: here unread, and there more than the peer's window takes.
    let (server, mut client) = tcp_pair();
    client.write_all(b"unread").unwrap();
    server.set_nonblocking(true).unwrap();
    let block = vec![0u8; 1 << 16];
    while (&server).write(&block).is_ok() {}
    let duplicate = Linux.duplicate(server.as_fd()).unwrap();
    assert_eq!(descriptor_flags(&duplicate), libc::FD_CLOEXEC);

    Linux.reset(server.as_fd()).unwrap();
    let error = std::io::copy(&mut client, &mut std::io::sink()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(
        Linux.peer_address(duplicate.as_fd()),
        Err(Errno::ENOTCONN),
        "the reset ends the socket, not one descriptor of it"
    );
}

#[test]
fn a_reset_after_the_end_of_the_stream_reaches_the_peer() {
    let (server, mut client) = tcp_pair();
    Linux.shutdown_send(server.as_fd()).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    Linux.reset(server.as_fd()).unwrap();
    let error = client.write(b"x").and_then(|_| client.write(b"y")).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{error}"
    );
}

#[test]
fn a_reset_unix_socket_ends() {
    let (server, mut client) = UnixStream::pair().unwrap();
    Linux.reset(server.as_fd()).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(client.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);

    let (server, mut client) = UnixStream::pair().unwrap();
    client.write_all(b"unread").unwrap();
    Linux.reset(server.as_fd()).unwrap();
    drop(server);
    assert_eq!(
        client.read(&mut [0; 1]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}

#[test]
fn a_file_is_sent_until_the_socket_is_full() {
    let (server, mut client) = tcp_pair();
    let content: Vec<u8> = (0..32u32 << 20).map(|index| (index % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    let send = |offset: usize, length: usize| {
        Linux.send_file(server.as_raw_fd(), file.as_raw_fd(), offset as u64, length as u64)
    };

    assert_eq!(send(content.len(), 1), Ok(0), "nothing follows the file's end");
    let mut sent = send(3, 5).unwrap();
    assert_eq!(sent, 5);
    let full = loop {
        match send(3 + sent, usize::MAX) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
    };
    assert_eq!(full, Errno::EAGAIN);
    assert!(3 + sent < content.len() && !is_nonblocking(&server));
    let mut received = vec![0; sent];
    client.read_exact(&mut received).unwrap();
    assert!(received == content[3..3 + sent]);
    assert_eq!(
        Linux.send_file(server.as_raw_fd(), file.as_raw_fd(), u64::MAX, 1),
        Err(Errno::new(libc::EOVERFLOW))
    );
}

#[test]
fn sending_a_file_raises_no_signal() {
    static RAISED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: c_int) {
        RAISED.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler only touches an atomic.
    let earlier = unsafe { libc::signal(libc::SIGPIPE, count as extern "C" fn(c_int) as libc::sighandler_t) };
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[0; 64]).unwrap();
    let (server, client) = UnixStream::pair().unwrap();
    drop(client);
    let result = Linux.send_file(server.as_raw_fd(), file.as_raw_fd(), 0, 64);
    let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigpending fills the set before it is read; the handler put back is the earlier one.
    let left = unsafe {
        libc::sigpending(pending.as_mut_ptr());
        libc::signal(libc::SIGPIPE, earlier);
        libc::sigismember(pending.as_ptr(), libc::SIGPIPE)
    };
    assert_eq!(result, Err(Errno::EPIPE));
    assert_eq!((RAISED.load(Ordering::Relaxed), left), (0, 0));
}

#[test]
fn abstract_and_unnamed_addresses_are_read() {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("quoit-test-{}", std::process::id());
    let std_address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&std_address).unwrap();
    let read = Linux.local_address(listener.as_fd()).unwrap();
    let expected = Address::UnixAbstract(name.into_bytes().into());
    assert_eq!(Address::try_from(&read), Ok(expected));

    let client = Linux.stream_socket(&read).unwrap();
    Linux.connect_now(client.as_fd(), &read).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let peer = Linux.peer_address(accepted.as_fd()).unwrap();
    assert_eq!(Address::try_from(&peer), Ok(Address::UnixUnnamed));
}
