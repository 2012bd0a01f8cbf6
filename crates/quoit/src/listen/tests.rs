use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use super::*;
use crate::sys::Linux;

fn listen(address: &Address, options: &ListenOptions) -> Result<ListenSocket, ListenError> {
    bind(address, options)
}

fn tcp(text: &str) -> Address {
    text.parse().unwrap()
}

fn tcp_address(socket: &ListenSocket) -> SocketAddr {
    match socket.address() {
        Address::Tcp(address) => *address,
        other => panic!("{other}"),
    }
}

fn socket_option(socket: &ListenSocket, name: i32) -> i32 {
    let mut value = -1;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value and its length are live.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0);
    value
}

#[test]
fn port_zero_becomes_the_chosen_one() {
    let options = ListenOptions::default();
    let socket = listen(&tcp("127.0.0.1:0"), &options).unwrap();
    let address = tcp_address(&socket);
    assert_ne!(address.port(), 0);
    assert_eq!(socket_option(&socket, libc::SO_REUSEADDR), 1);
    assert_eq!(socket_option(&socket, libc::SO_REUSEPORT), 0);

    let mut client = TcpStream::connect(address).unwrap();
    let mut accepted = TcpStream::from(Linux.accept_now(socket.as_fd()).unwrap());
    accepted.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();

    let error = listen(&Address::Tcp(address), &options).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::new(libc::EADDRINUSE)));
    assert!(error.to_string().contains("ss -ltnp"), "{error}");
}

/// How many connections may wait on a listening TCP socket (`sk_max_ack_backlog`, which `tcp_get_info` of the kernel
/// gives here).
fn backlog(socket: &ListenSocket) -> u32 {
    // SAFETY: a structure of integers, for which zeroes are values.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the structure and its length are live and writable for the time of the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0);
    info.tcpi_sacked
}

#[test]
fn the_backlog_is_what_was_asked_for() {
    let most: u32 = fs::read_to_string("/proc/sys/net/core/somaxconn")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    for (asked, options) in [
        (
            7,
            ListenOptions {
                backlog: 7,
                ..ListenOptions::default()
            },
        ),
        (4096, ListenOptions::default()),
    ] {
        let socket = listen(&tcp("127.0.0.1:0"), &options).unwrap();
        assert_eq!(backlog(&socket), asked.min(most));
    }
}

#[test]
fn options_reach_the_socket() {
    let options = ListenOptions {
        reuse_port: true,
        receive_buffer: Some(16384),
        send_buffer: Some(32768),
        ..ListenOptions::default()
    };
    let first = listen(&tcp("127.0.0.1:0"), &options).unwrap();
    assert_eq!(socket_option(&first, libc::SO_RCVBUF), 32768);
    assert_eq!(socket_option(&first, libc::SO_SNDBUF), 65536);
    let second = listen(first.address(), &options).unwrap();
    assert_eq!(first.address(), second.address());
    assert!(listen(first.address(), &ListenOptions::default()).is_err());
}

#[test]
fn ipv6_takes_ipv4_unless_told_otherwise() {
    for ipv6_only in [false, true] {
        let options = ListenOptions {
            ipv6_only,
            ..ListenOptions::default()
        };
        let socket = match listen(&tcp("[::]:0"), &options) {
            // A kernel without IPv6 has nothing to test.
            Err(error) if error.errno() == Some(Errno::new(libc::EAFNOSUPPORT)) => return,
            other => other.unwrap(),
        };
        let v4 = SocketAddr::from(([127, 0, 0, 1], tcp_address(&socket).port()));
        assert_eq!(TcpStream::connect(v4).is_err(), ipv6_only);
    }
}

#[test]
fn an_address_of_another_host_is_refused() {
    // 192.0.2.0/24 is for documentation (RFC 5737).
    let error = listen(&tcp("192.0.2.1:0"), &ListenOptions::default()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::new(libc::EADDRNOTAVAIL)));
    let error = listen(&Address::UnixUnnamed, &ListenOptions::default()).unwrap_err();
    assert_eq!(error, ListenError::Unnamed);
}

#[test]
fn a_unix_socket_comes_and_goes_with_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let address = Address::UnixPath(path.clone());
    let options = ListenOptions::default();
    let socket = listen(&address, &options).unwrap();
    assert_eq!(socket.address(), &address);
    UnixStream::connect(&path).unwrap();
    let error = listen(&address, &options).unwrap_err();
    assert!(error.to_string().contains("the file is there already"), "{error}");
    assert!(path.exists());

    let (descriptor, file) = socket.into_parts();
    drop(descriptor);
    assert!(path.exists());
    drop(file);
    assert!(!path.exists());

    let missing = Address::UnixPath(directory.path().join("no/socket"));
    let error = listen(&missing, &options).unwrap_err();
    assert!(error.to_string().contains("there is no directory"), "{error}");
}

#[test]
fn a_file_that_took_the_place_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let socket = listen(&Address::UnixPath(path.clone()), &ListenOptions::default()).unwrap();
    // Kept under another name, so that the inode number is not given again.
    fs::rename(&path, directory.path().join("old")).unwrap();
    let _successor = UnixListener::bind(&path).unwrap();
    drop(socket);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn only_a_stale_socket_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let address = Address::UnixPath(path.clone());
    let options = ListenOptions {
        unlink_existing: true,
        backlog: 0,
        ..ListenOptions::default()
    };
    let in_use = Some(Errno::new(libc::EADDRINUSE));

    drop(UnixListener::bind(&path).unwrap());
    let live = listen(&address, &options).unwrap();
    let _waiting = UnixStream::connect(&path).unwrap();
    // With a queue that is full, and one that is not.
    assert_eq!(listen(&address, &options).unwrap_err().errno(), in_use);
    Linux.accept_now(live.as_fd()).unwrap();
    assert_eq!(listen(&address, &options).unwrap_err().errno(), in_use);
    Linux.accept_now(live.as_fd()).unwrap();
    UnixStream::connect(&path).unwrap();
    drop(live);

    let datagrams = UnixDatagram::bind(&path).unwrap();
    assert_eq!(listen(&address, &options).unwrap_err().errno(), in_use);
    drop(datagrams);
    fs::remove_file(&path).unwrap();

    fs::write(&path, "content").unwrap();
    let error = listen(&address, &options).unwrap_err();
    assert_eq!(error, ListenError::NotASocket { path: path.clone() });
    assert_eq!(fs::read_to_string(&path).unwrap(), "content");
}

#[test]
fn an_abstract_socket() {
    let name = format!("quoit-listen-{}", std::process::id());
    let address = Address::UnixAbstract(name.into_bytes().into());
    let options = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let socket = listen(&address, &options).unwrap();
    assert_eq!(socket.address(), &address);
    let error = listen(&address, &options).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::new(libc::EADDRINUSE)));
}

#[test]
fn only_what_listens_is_adopted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let socket = ListenSocket::adopt(listener.into()).unwrap();
    assert_eq!(socket.address(), &Address::Tcp(address));
    assert_eq!(socket.name(), None);

    let (stream, _peer) = UnixStream::pair().unwrap();
    let error = ListenSocket::adopt(stream.into()).unwrap_err();
    assert!(error.to_string().contains("does not listen"), "{error}");
    let (datagrams, _peer) = UnixDatagram::pair().unwrap();
    let error = ListenSocket::adopt(datagrams.into()).unwrap_err();
    assert!(error.to_string().contains("not a stream socket"), "{error}");
    let file = tempfile::tempfile().unwrap();
    let error = ListenSocket::adopt(file.into()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::new(libc::ENOTSOCK)));
}
