//! `TcpSocket`: options first, then it listens or connects.

use std::io::{ErrorKind, Read};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scenario;
use crate::support::blocking;

scenario! {
    fn it_listens_as_servers_are_written(says) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.set_reuseport(true).unwrap();
        socket.set_keepalive(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = socket.local_addr().unwrap();
        says.note(format!("bound {}", at.port() > 0));
        let listener = socket.listen(16).unwrap();
        assert_eq!(listener.local_addr().unwrap(), at);
        let (one, accepted) = tokio::join!(TcpStream::connect(at), listener.accept());
        let (mut one, (mut other, from)) = (one.unwrap(), accepted.unwrap());
        assert_eq!(from, one.local_addr().unwrap());
        other.write_all(b"hello").await.unwrap();
        let mut buffer = [0; 5];
        says.told("read", one.read_exact(&mut buffer).await);

        // Another one with the port, as it was asked for on both.
        let second = TcpSocket::new_v4().unwrap();
        second.set_reuseport(true).unwrap();
        says.told("bind again", second.bind(at));
        says.told("listen again", second.listen(16).map(drop));
    }
}

scenario! {
    fn options_are_read_as_they_were_set(says) {
        let socket = TcpSocket::new_v4().unwrap();
        says.told("keepalive", socket.keepalive());
        says.told("reuseaddr", socket.reuseaddr());
        says.told("reuseport", socket.reuseport());
        says.told("device", socket.device());
        says.told("local", socket.local_addr());
        socket.set_keepalive(true).unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.set_reuseport(true).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_recv_buffer_size(20_000).unwrap();
        socket.set_send_buffer_size(30_000).unwrap();
        socket.set_tos_v4(0x10).unwrap();
        says.told("keepalive", socket.keepalive());
        says.told("reuseaddr", socket.reuseaddr());
        says.told("reuseport", socket.reuseport());
        says.told("nodelay", socket.nodelay());
        says.told("received", socket.recv_buffer_size());
        says.told("sent", socket.send_buffer_size());
        says.told("tos", socket.tos_v4());
        says.told("no such device", socket.bind_device(Some(b"nothere")));
        says.told("error", socket.take_error().map(|error| error.is_none()));
        let v6 = TcpSocket::new_v6().unwrap();
        v6.set_tclass_v6(0x20).unwrap();
        says.told("tclass", v6.tclass_v6());
    }
}

scenario! {
    fn what_connects_or_is_accepted_has_the_options(says) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_nodelay(false).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(16).unwrap();
        let at = listener.local_addr().unwrap();
        let (one, accepted) = tokio::join!(TcpStream::connect(at), listener.accept());
        let (accepted, _) = accepted.unwrap();
        says.told("nodelay of what is accepted", accepted.nodelay());
        drop(one);

        let socket = TcpSocket::new_v4().unwrap();
        socket.set_nodelay(false).unwrap();
        socket.set_tos_v4(0x10).unwrap();
        let (one, other) = tokio::join!(socket.connect(at), listener.accept());
        says.told("nodelay of what connects", one.unwrap().nodelay());
        drop(other);
    }
}

scenario! {
    fn binding_fails_at_once(says) {
        let (listener, taken) = listen().await;
        let socket = TcpSocket::new_v4().unwrap();
        says.told("taken", socket.bind(taken));
        says.told("not here", socket.bind("192.0.2.1:0".parse().unwrap()));
        says.told("other family", socket.bind("[::1]:0".parse().unwrap()).map_err(|error| error.kind().into()));
        says.told("then", socket.bind("127.0.0.1:0".parse().unwrap()));
        says.told("twice", socket.bind("127.0.0.1:0".parse().unwrap()));
        drop(listener);
    }
}

scenario! {
    fn it_connects_from_where_it_was_bound(says) {
        let (listener, at) = listen().await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.7:0".parse().unwrap()).unwrap();
        let from = socket.local_addr().unwrap();
        let (one, accepted) = tokio::join!(socket.connect(at), listener.accept());
        let (one, (other, seen)) = (one.unwrap(), accepted.unwrap());
        assert_eq!((one.local_addr().unwrap(), seen), (from, from));
        says.note(format!("{}", seen.ip()));
        drop((one, other));
        says.told("other family", TcpSocket::new_v4().unwrap().connect("[::1]:1".parse().unwrap()).await.map(drop));
    }
}

scenario! {
    fn it_listens_without_having_been_bound(says) {
        let listener = TcpSocket::new_v4().unwrap().listen(8).unwrap();
        let at = listener.local_addr().unwrap();
        says.note(format!("{} {}", at.ip(), at.port() > 0));
        let connecting = TcpStream::connect(("127.0.0.1", at.port()));
        let (one, accepted) = tokio::join!(connecting, listener.accept());
        says.told("connected", one.map(drop));
        says.told("accepted", accepted.map(drop));
    }
}

scenario! {
    fn a_socket_of_the_standard_library_connects(says) {
        let (listener, at) = listen().await;
        let made = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        made.bind(&std::net::SocketAddr::from(([127, 0, 0, 8], 0)).into()).unwrap();
        made.set_nonblocking(true).unwrap();
        let socket = TcpSocket::from_std_stream(made.into());
        let (one, accepted) = tokio::join!(socket.connect(at), listener.accept());
        says.note(format!("{}", accepted.unwrap().1.ip()));
        drop(one.unwrap());
    }
}

/// What the peer of a stream sees that is dropped with everything read.
async fn end_of(mut peer: std::net::TcpStream) -> Result<usize, ErrorKind> {
    blocking(move || peer.read(&mut [0; 8]).map_err(|error| error.kind())).await
}

scenario! {
    fn without_lingering_the_peer_sees_a_reset(says) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_zero_linger().unwrap();
        let stream = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (peer, _) = listener.accept().unwrap();
        drop(stream);
        says.note(format!("connected: {:?}", end_of(peer).await));

        let socket = TcpSocket::new_v4().unwrap();
        socket.set_zero_linger().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(8).unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        drop(stream);
        says.note(format!("accepted: {:?}", end_of(peer).await));
    }
}

scenario! {
    fn sockets_of_the_standard_library_are_taken_over(says) {
        let made = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        made.set_nonblocking(true).unwrap();
        let at = made.local_addr().unwrap();
        let listener = TcpListener::try_from(made).unwrap();
        let made = std::net::TcpStream::connect(at).unwrap();
        made.set_nonblocking(true).unwrap();
        let mut stream = TcpStream::try_from(made).unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        other.write_all(b"hello").await.unwrap();
        says.told("read", stream.read(&mut [0; 8]).await);
        let made = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        made.set_nonblocking(true).unwrap();
        let socket = UdpSocket::try_from(made).unwrap();
        let (one, _) = udp().await;
        one.send_to(b"x", socket.local_addr().unwrap()).await.unwrap();
        says.told("received", socket.recv(&mut [0; 8]).await);
        let (one, two) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        two.set_nonblocking(true).unwrap();
        let (mut one, mut two) = (UnixStream::try_from(one).unwrap(), UnixStream::try_from(two).unwrap());
        one.write_all(b"unix").await.unwrap();
        says.told("unix", two.read(&mut [0; 8]).await);
        let folder = tempfile::tempdir().unwrap();
        let made = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        made.set_nonblocking(true).unwrap();
        let listener = UnixListener::try_from(made).unwrap();
        let (one, two) = tokio::join!(UnixStream::connect(folder.path().join("s")), listener.accept());
        says.note(format!("{} {}", one.is_ok(), two.is_ok()));
    }
}
